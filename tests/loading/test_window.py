"""The window: any interleaving of admissions, completions and deliveries keeps the order and the bound."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluonloader.loading.window import Window


@given(
    size=st.integers(1, 5),
    in_order=st.booleans(),
    steps=st.lists(st.tuples(st.sampled_from(["admit", "land", "take", "give up"]), st.integers(0, 99)), max_size=80),
)
def test_any_interleaving(size, in_order, steps):
    """Against a model: numbers on their way, numbers that have landed (in order of landing), numbers handed out."""
    window = Window(size, in_order)
    flying, landed, admitted = [], [], 0
    for step, choice in steps:
        oldest = min(flying + landed, default=None)
        ready = bool(landed) and (not in_order or oldest in landed)
        assert window.ready == ready
        assert window.empty == (not flying and not landed)
        assert window.has_room == (len(flying) + len(landed) < size)
        if flying:
            assert window.head == min(flying)
        if step == "admit" and window.has_room:
            window.admit(admitted)
            flying.append(admitted)
            admitted += 1
        elif step == "land" and flying:
            number = flying.pop(choice % len(flying))
            window.land(number, f"item {number}")
            landed.append(number)
        elif step == "take" and ready:
            number = oldest if in_order else landed[0]
            assert window.take() == f"item {number}"
            landed.remove(number)
        elif step == "give up" and flying:
            window.give_up(flying.pop(choice % len(flying)))


@given(size=st.integers(1, 6), count=st.integers(0, 30), in_order=st.booleans(), data=st.data())
def test_everything_that_is_admitted_comes_out_once(size, count, in_order, data):
    window, flying, out, completed = Window(size, in_order), [], [], []
    most = 0
    while len(out) < count:
        while window.has_room and len(completed) + len(flying) < count:
            flying.append(len(completed) + len(flying))
            window.admit(flying[-1])
        most = max(most, len(flying) + len(completed) - len(out))
        if flying:
            number = flying.pop(data.draw(st.integers(0, len(flying) - 1)))
            completed.append(number)
            window.land(number, number)
        while window.ready:
            out.append(window.take())
    assert window.empty
    assert not window.ready
    assert out == (list(range(count)) if in_order else completed)
    assert most <= size


@pytest.mark.parametrize("in_order", [True, False])
def test_a_batch_that_is_given_up_does_not_hold_up_the_others(in_order):
    window = Window(3, in_order)
    first, second, third = range(3)
    for number in range(3):
        window.admit(number)
    window.land(third, "third")
    window.give_up(first)
    assert window.has_room
    assert window.head == second
    window.land(second, "second")
    expected = ["second", "third"] if in_order else ["third", "second"]
    assert [window.take(), window.take()] == expected
    assert window.empty


def test_items_may_be_anything_even_none():
    window = Window(1, True)
    window.admit(0)
    window.land(0, None)
    assert window.ready
    assert window.take() is None
    assert window.empty


@given(size=st.integers(1, 5), in_order=st.booleans(), landed=st.lists(st.booleans(), max_size=5))
def test_breaking_off_returns_what_has_landed_and_admits_nothing_more(size, in_order, landed):
    window = Window(size, in_order)
    expected = []
    for number, land in enumerate(landed[:size]):
        window.admit(number)
        if land:
            window.land(number, number)
            expected.append(number)
    assert sorted(window.empty_out()) == expected
    assert (window.empty, window.ready, window.has_room) == (True, False, False)
    assert window.empty_out() == []
