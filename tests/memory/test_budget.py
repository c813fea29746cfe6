"""The arithmetic of the memory limit: whatever is asked for in whatever order, the sum never exceeds the limit."""

from hypothesis import given
from hypothesis import strategies as st

from gluonloader.memory.budget import Budget

sizes = st.integers(0, 600_000)
limits = st.integers(1, 2_000_000)
windows = st.integers(1, 8)
steps = st.lists(st.tuples(st.sampled_from(["reserve", "release", "start_loan", "end_loan", "demand"]), sizes))


@given(limit=limits, window=windows, steps=steps)
def test_reservations_loans_and_the_share_never_exceed_the_limit(limit, window, steps):
    budget, reserved, lent = Budget(limit, window), [], []
    for step, size in steps:
        if step == "reserve":
            fits = sum(reserved) + size <= limit
            assert budget.reserve(size) == fits
            reserved += [size] if fits else []
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


@given(limit=limits, window=windows, size=sizes, needed=sizes)
def test_loans_leave_the_window_its_share_and_may_always_take_half(limit, window, size, needed):
    budget = Budget(limit, window)
    budget.demand(needed)
    enough_for_window = size + window * budget.share <= limit
    assert budget.may_lend(size, window) == (enough_for_window or size <= limit // 2)


def test_a_batch_larger_than_the_limit_does_not_change_the_share_of_others():
    budget = Budget(1_000_000, 4)
    assert not budget.demand(1_000_001)
    assert budget.share == 200_000
