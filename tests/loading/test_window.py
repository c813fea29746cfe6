"""The window keeps its order and its size, however additions, completions and deliveries interleave."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluonloader.loading.epoch import Window


@given(
    size=st.integers(1, 5),
    in_order=st.booleans(),
    steps=st.lists(st.tuples(st.sampled_from(["add", "complete", "deliver", "drop"]), st.integers(0, 99)), max_size=80),
)
def test_any_interleaving_agrees_with_a_model(size, in_order, steps):
    """The model: the numbers that are being made, and those that have completed, in the order of completion."""
    window = Window(size, in_order)
    making, completed, added = [], [], 0
    for step, choice in steps:
        oldest = min(making + completed, default=None)
        ready = bool(completed) and (not in_order or oldest in completed)
        assert window.ready == ready
        assert window.empty == (not making and not completed)
        assert window.has_room == (len(making) + len(completed) < size)
        if making:
            assert window.oldest == min(making)
        if step == "add" and window.has_room:
            window.add(added)
            making.append(added)
            added += 1
        elif step == "complete" and making:
            number = making.pop(choice % len(making))
            window.complete(number, f"item {number}")
            completed.append(number)
        elif step == "deliver" and ready:
            number = oldest if in_order else completed[0]
            assert window.deliver() == f"item {number}"
            completed.remove(number)
        elif step == "drop" and making:
            window.drop(making.pop(choice % len(making)))


@given(size=st.integers(1, 6), count=st.integers(0, 30), in_order=st.booleans(), data=st.data())
def test_every_batch_is_delivered_once(size, count, in_order, data):
    window, making, out, completed = Window(size, in_order), [], [], []
    most = 0
    while len(out) < count:
        while window.has_room and len(completed) + len(making) < count:
            making.append(len(completed) + len(making))
            window.add(making[-1])
        most = max(most, len(making) + len(completed) - len(out))
        if making:
            number = making.pop(data.draw(st.integers(0, len(making) - 1)))
            completed.append(number)
            window.complete(number, number)
        while window.ready:
            out.append(window.deliver())
    assert window.empty
    assert not window.ready
    assert out == (list(range(count)) if in_order else completed)
    assert most <= size


@pytest.mark.parametrize("in_order", [True, False])
def test_a_dropped_batch_does_not_hold_up_the_others(in_order):
    window = Window(3, in_order)
    first, second, third = range(3)
    for number in range(3):
        window.add(number)
    window.complete(third, "third")
    window.drop(first)
    assert window.has_room
    assert window.oldest == second
    window.complete(second, "second")
    expected = ["second", "third"] if in_order else ["third", "second"]
    assert [window.deliver(), window.deliver()] == expected
    assert window.empty


def test_an_item_may_be_none():
    window = Window(1, True)
    window.add(0)
    window.complete(0, None)
    assert window.ready
    assert window.deliver() is None
    assert window.empty


@given(size=st.integers(1, 5), in_order=st.booleans(), completions=st.lists(st.booleans(), max_size=5))
def test_clear_returns_what_has_completed_and_leaves_no_room(size, in_order, completions):
    window = Window(size, in_order)
    expected = []
    for number, is_completed in enumerate(completions[:size]):
        window.add(number)
        if is_completed:
            window.complete(number, number)
            expected.append(number)
    assert sorted(window.clear()) == expected
    assert (window.empty, window.ready, window.has_room) == (True, False, False)
    assert window.clear() == []
