"""Which batches of an epoch are settled, and where it starts.

NOTE [positions]: promise P8. A position counts delivered batches, not drawn ones. A batch is settled once it was
delivered or has failed, or if its number turned out to have no batch. A position consists of the number of the first
batch that is not settled, and of `ahead`: the numbers of later batches that are settled, since they were delivered out
of order. After a resume, all other batches are drawn again. They get the same numbers as before, and so the same seeds.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from ..messages import message
from ..state import State, joined, range_with, save_ranges
from ..work.in_flight import InFlight
from ..work.task import Task


@message(frozen=True, slots=True)
class Start:
    """Where an epoch starts: at its first batch, or at a saved position."""

    number: int = 0  # of the next batch in the epoch
    skip: int = 0  # batches to skip in the sampler's pass
    offset: int | None = None  # where that pass starts; None if the batches before it have the usual size
    ahead: tuple[range, ...] = ()  # numbers of later batches that were delivered before the position was saved
    errors: int = 0  # samples that raised an error before the position was saved
    sampler: State | None = None  # the saved state of the sampler


class Progress:
    """Which batch numbers of an epoch are settled; see NOTE [positions].

    Args:
        number: the first number to issue.
        ahead: later numbers that are settled already, as ascending ranges. They may be very many.
        in_flight: the tasks that are not settled.

    Attributes:
        upcoming: the next number to issue.

    >>> in_flight, tasks = InFlight(), [Task(0, number, 0, [number]) for number in range(3)]
    >>> progress = Progress(0, [], in_flight)
    >>> [progress.issue(task) for task in tasks]
    [True, True, True]
    >>> in_flight.settle(tasks[1]); progress.position, progress.ahead
    (0, [range(1, 2)])
    >>> in_flight.settle(tasks[0]); progress.position, progress.ahead
    (2, [])
    """

    def __init__(self, number: int, ahead: Iterable[range], in_flight: InFlight) -> None:
        self.upcoming = number
        self._in_flight = in_flight
        self._ahead = list(ahead)  # only numbers >= `upcoming` matter

    def settled_from(self, number: int) -> int:
        """How many numbers from `number` on were settled before the epoch was resumed."""
        settled = range_with(self._ahead, number)
        return 0 if settled is None else settled.stop - number

    def issue(self, task: Task) -> bool:
        """Issues the number `upcoming`; returns False if its batch was delivered before the epoch was resumed."""
        number = task.batch
        is_new = not self._ahead or not self.settled_from(number)
        if is_new:
            self._in_flight.add(task)  # before `upcoming`: a lower number that is not in flight is settled
        self.upcoming = number + 1
        return is_new

    @property
    def position(self) -> int:
        number = next(iter(self.in_flight), self.upcoming)
        while number >= self.upcoming and (settled := self.settled_from(number)):
            number += settled
        return number

    @property
    def in_flight(self) -> list[int]:
        return self._in_flight.numbers

    @property
    def ahead(self) -> list[range]:
        """The settled numbers beyond the position, ascending."""
        upcoming, position = self.upcoming, self.position
        edges = [*(number for number in self.in_flight if number < upcoming), upcoming]
        issued = [range(before + 1, after) for before, after in pairwise(edges)]
        loaded = [range(max(numbers.start, upcoming, position + 1), numbers.stop) for numbers in self._ahead]
        return joined(numbers for numbers in (*issued, *loaded) if numbers)

    def frozen(self) -> Progress:
        """A copy that does not change, since another thread may settle a task between two looks at the position."""
        return Progress(self.upcoming, self._ahead, InFlight(self._in_flight.tasks))

    def state(self) -> dict[str, Any]:
        """The fields `batch` and `ahead` of a position, for a frozen object."""
        return {"batch": self.position, "ahead": save_ranges(self.ahead)}

    def rewind(self) -> None:
        """Returns to the position, with nothing in flight; the position stays the same after each step."""
        self._ahead = self.ahead
        self.upcoming = self.position
        self._in_flight.clear()

    def resume(self) -> None:
        """Completes an `issue` that was interrupted."""
        self.upcoming = max([self.upcoming, *(number + 1 for number in self.in_flight)])
