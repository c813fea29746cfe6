"""The count of samples that raised errors follows the position, in whatever order batches are made and settled."""

from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gluonloader.position.error_count import NOTHING, ErrorCount
from gluonloader.types import BadSample
from gluonloader.work.in_flight import InFlight
from gluonloader.work.task import Task
from gluonloader.work.tolerance import Tolerated


def tolerated(number, count):
    errors = tuple(BadSample(f"dataset[{number}]", f"error {i}") for i in range(count))
    return Tolerated(f"batch {number}", errors, is_empty=count == 3)


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["accept", "settle", "rewind"])), max_size=40))
def test_only_settled_batches_count(steps):
    """The number of errors of a batch is its number modulo 4; a window of four batches moves on."""
    in_flight, tasks, first, settled = InFlight(), {}, 0, set()
    count = ErrorCount(in_flight, 7)
    count.limit = 10**6
    accepted = set()
    for offset, action in steps:
        for number in range(first, first + 4):
            if number not in settled and number not in in_flight:
                tasks[number] = Task(0, number, 0, [number])
                in_flight.add(tasks[number])
        number = first + offset
        if action == "accept" and number not in settled:
            errors = number % 4
            result = count.unwrap(tasks[number], tolerated(number, errors) if errors else "whole")
            assert result is NOTHING if errors == 3 else result == (f"batch {number}" if errors else "whole")
            accepted.add(number)
        elif action == "settle" and number in accepted and number not in settled:
            in_flight.settle(tasks[number])
            settled.add(number)
        elif action == "rewind":
            count.rewind()
            in_flight.clear()
            accepted &= settled
        while first in settled:
            first += 1
        assert count.state(in_flight) == {"errors": 7 + sum(number % 4 for number in settled)}


def test_without_on_error_nothing_is_saved_or_limited():
    task = Task(0, 0, 0, [0])
    count = ErrorCount(InFlight([task]), 0)
    count.unwrap(task, tolerated(0, 2))
    assert count.state({}) == {}
    assert count.excess(task) is None
