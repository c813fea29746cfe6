"""The window keeps its order, however arrivals, deliveries and failures interleave, and takes each outcome once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluonloader.executors.base import Made, Window
from gluonloader.work.in_flight import InFlight
from gluonloader.work.task import Task


class Discardable(Made):
    """An outcome that notes whether it was discarded."""

    def __init__(self, task):
        super().__init__(task, f"batch {task.batch}")
        self.discarded = 0

    def discard(self):
        self.discarded += 1


class Owner:
    """Stands for the epoch of a window."""


OWNER = Owner()


def task_of(number):
    return Task(0, number, 0, [number])


def a_window(count, in_order=True, owner=OWNER):
    return Window(InFlight(map(task_of, range(count))), in_order, owner)


def in_flight(window, number):
    return next(task for task in window.in_flight.tasks if task.batch == number)


@given(
    in_order=st.booleans(),
    steps=st.lists(st.tuples(st.sampled_from(["draw", "put", "deliver", "fail"]), st.integers(0, 99)), max_size=80),
)
def test_any_interleaving_agrees_with_a_model(in_order, steps):
    """The model: the numbers that are being made, and those that have arrived, in the order of arrival."""
    window = a_window(0, in_order)
    making, arrived, drawn = [], [], 0
    for step, choice in steps:
        oldest = min(making + arrived, default=None)
        ready = (oldest if oldest in arrived else None) if in_order else next(iter(arrived), None)
        assert window.ready == ready
        assert [task.batch for task in window.missing] == sorted(making)
        if step == "draw":
            window.in_flight.add(task_of(drawn))
            making.append(drawn)
            drawn += 1
        elif step == "put" and making:
            number = making.pop(choice % len(making))
            window.put(Made(in_flight(window, number), f"batch {number}"))
            arrived.append(number)
        elif step == "deliver" and ready is not None:
            assert window.arrived.pop(ready).take() == f"batch {ready}"
            window.in_flight.settle(in_flight(window, ready))
            arrived.remove(ready)
        elif step == "fail" and making:
            window.in_flight.settle(in_flight(window, making.pop(choice % len(making))))


@pytest.mark.parametrize("in_order", [True, False])
def test_a_failed_batch_does_not_hold_up_the_others(in_order):
    window = a_window(3, in_order)
    tasks = window.in_flight.tasks
    window.put(Made(tasks[2], "third"))
    window.in_flight.settle(tasks[0])
    assert window.missing == [tasks[1]]
    window.put(Made(tasks[1], "second"))
    delivered = []
    while (number := window.ready) is not None:
        delivered.append(window.arrived.pop(number).take())
        window.in_flight.settle(tasks[number])
    assert delivered == (["second", "third"] if in_order else ["third", "second"])
    assert not window.in_flight


def test_a_batch_may_be_none():
    window = a_window(1)
    window.put(Made(in_flight(window, 0), None))
    assert window.ready == 0
    assert window.arrived[0].take() is None


def test_a_second_outcome_of_a_task_is_discarded():
    window = a_window(1)
    first, second = (Discardable(in_flight(window, 0)) for _ in range(2))
    window.put(first)
    window.put(second)
    assert window.arrived == {0: first}
    assert (first.discarded, second.discarded) == (0, 1)


def test_the_outcome_of_an_earlier_task_of_the_same_number_is_discarded():
    window = a_window(1)
    late = Discardable(in_flight(window, 0))
    window.in_flight.add(task_of(0))  # drawn again after a flush
    window.put(late)
    assert window.ready is None
    assert late.discarded == 1


@given(in_order=st.booleans(), arrives=st.lists(st.booleans(), max_size=5))
def test_cancel_discards_what_has_arrived_and_what_comes_later(in_order, arrives):
    window = a_window(len(arrives), in_order)
    outcomes = [Discardable(task) for task in window.in_flight.tasks]
    for outcome, is_early in zip(outcomes, arrives, strict=True):
        if is_early:
            window.put(outcome)
    window.cancel()
    for outcome, is_early in zip(outcomes, arrives, strict=True):
        if not is_early:
            window.put(outcome)
    window.cancel()
    assert [outcome.discarded for outcome in outcomes] == [1] * len(outcomes)
    assert not window.arrived
    assert len(window.in_flight) == len(arrives)  # the position of the epoch stays


def test_an_outcome_that_arrives_while_another_thread_cancels_is_discarded():
    window = a_window(1)

    class Late(Discardable):
        """Another thread cancels the window after `put` has asked whether it wants the outcome."""

        asked = 0

        def __getattribute__(self, name):
            if name == "task":
                Late.asked += 1
                if Late.asked == 2:
                    window.cancel()
            return super().__getattribute__(name)

    late = Late(in_flight(window, 0))
    window.put(late)
    assert late.discarded == 1
    assert not window.arrived


def test_outcomes_of_batches_that_have_left_are_dropped():
    window = a_window(2)
    outcomes = [Discardable(task) for task in window.in_flight.tasks]
    for outcome in outcomes:
        window.put(outcome)
    window.in_flight.settle(outcomes[0].task)  # as if an exception came before the outcome was removed
    window.drop_unwanted()
    assert [outcome.discarded for outcome in outcomes] == [1, 0]
    assert window.ready == 1


def test_without_its_owner_a_window_takes_nothing():
    owner = Owner()
    window = a_window(1, owner=owner)
    assert not window.cancelled
    del owner
    assert window.cancelled
    late = Discardable(in_flight(window, 0))
    window.put(late)
    assert (late.discarded, window.arrived) == (1, {})
