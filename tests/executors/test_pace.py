"""How many lanes are in use, played through without a worker."""

from hypothesis import given
from hypothesis import strategies as st

from gluonloader.executors.pace import Pace


def share_waited(lanes, needed):
    """A program that `needed` lanes keep busy waits for all that is missing."""
    return max(0.0, 1 - lanes / needed)


@given(most=st.integers(1, 64), waits=st.lists(st.floats(0, 1), max_size=200))
def test_lanes_stay_within_their_bounds(most, waits):
    pace = Pace(most)
    for waited in waits:
        before = pace.lanes
        pace.step(waited)
        assert 1 <= pace.lanes <= most
        assert abs(pace.lanes - before) <= 1


@given(most=st.integers(1, 16), needed=st.floats(0.1, 16))
def test_it_finds_how_many_are_enough_and_seldom_tries_fewer(most, needed):
    pace, too_few = Pace(most), 0
    for look in range(2000):
        pace.step(share_waited(pace.lanes, needed))
        too_few += look >= 200 and pace.lanes < min(most, needed * 0.9)
    assert too_few <= 1800 / 20


@given(most=st.integers(2, 16))
def test_who_always_waits_gets_all_and_who_never_does_gets_one(most):
    pace = Pace(most)
    for _ in range(100):
        pace.step(0.0)
    assert pace.lanes == 1
    for _ in range(most):
        pace.step(1.0)
    assert pace.lanes == most
