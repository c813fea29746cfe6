"""The arithmetic of the memory limit: whatever is asked for in whatever order, the sum never exceeds the limit."""

from hypothesis import given
from hypothesis import strategies as st

from gluonloader.memory.budget import Budget

sizes = st.integers(0, 600_000)
limits = st.integers(1, 2_000_000)
windows = st.integers(1, 8)
kinds = "reserve", "reserve_at_most", "release", "start_loan", "end_loan", "demand"
steps = st.lists(st.tuples(st.sampled_from(kinds), sizes))


@given(given_limit=limits, window=windows, unit=st.sampled_from([1, 4096]), steps=steps)
def test_reservations_loans_and_the_share_never_exceed_the_limit(given_limit, window, unit, steps):
    budget, reserved, lent = Budget(given_limit, window, unit), [], []
    limit = given_limit // unit * unit
    for step, size in steps:
        if step == "reserve":
            fits = sum(reserved) + size <= limit
            assert budget.reserve(size) == fits
            reserved += [size] if fits else []
        elif step == "reserve_at_most":
            reserved += [min(size, limit - sum(reserved))]
            assert budget.reserve_at_most(size) == reserved[-1]
        elif step == "release" and reserved:
            budget.reserved -= reserved.pop(size % len(reserved))
        elif step == "start_loan" and budget.may_lend(size, window):
            budget.lent += size
            lent.append(size)
        elif step == "end_loan" and lent:
            budget.lent -= lent.pop(size % len(lent))
        elif step == "demand":
            before = budget.share
            assert budget.demand(size) == (size <= limit)
            assert budget.share >= max(before, size) if size <= limit else budget.share == before
        assert budget.reserved == sum(reserved) <= limit
        assert budget.lent == sum(lent) <= limit
        assert budget.share <= limit
        assert budget.share % unit == 0


@given(limit=limits, window=windows, size=sizes, needed=sizes)
def test_loans_leave_the_window_its_shares_or_take_half_but_always_leave_one_share(limit, window, size, needed):
    budget = Budget(limit, window)
    budget.demand(needed)
    enough_for_window = size + window * budget.share <= limit
    at_most_half = size <= limit // 2 and size + budget.share <= limit
    assert budget.may_lend(size, window) == (enough_for_window or at_most_half)


def test_a_batch_larger_than_the_limit_does_not_change_the_share_of_others():
    budget = Budget(1_000_000, 4)
    assert not budget.demand(1_000_001)
    assert budget.share == 200_000
