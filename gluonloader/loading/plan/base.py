"""What both plans share: the protocol, and the record of which batches are settled.

NOTE [positions]: promise P8. A position counts delivered batches, not drawn ones. A batch is settled once it was
delivered or has failed, or if its number turned out to have no batch. A position consists of the number of the first
batch that is not settled, and of `ahead`: the numbers of later batches that are settled, since they were delivered out
of order. After a resume, all other batches are drawn again. They get the same numbers as before, and so the same seeds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Protocol

from ...state import to_ranges
from ...work.task import Task

NOTHING: Final = object()  # is returned instead of a batch if there is no batch to deliver


@dataclass(frozen=True, slots=True)
class Start:
    """Where an epoch starts: at its first batch, or at a saved position."""

    number: int = 0  # of the next batch in the epoch
    skip: int = 0  # batches to skip in the sampler's pass
    ahead: tuple[range, ...] = ()  # numbers of later batches that were delivered before the position was saved


class Plan(Protocol):
    """Gives out the tasks of one epoch and knows which of them are settled.

    Callers hold `lock` during each call, since another thread or a signal handler may ask for the state.
    """

    lock: threading.RLock
    epoch: int
    finished: bool  # the epoch was read to its end
    outdated: bool  # the loader has loaded a position since then, so no samples move from this epoch to the next

    def next(self) -> Task | None:
        """The next task; None until other batches are settled; raises StopIteration if there are no more tasks."""

    def deliver(self, task: Task, result: Any) -> Any:
        """Settles a task that has a result; returns the batch to deliver, or NOTHING."""

    def fail(self, task: Task, error: BaseException) -> bool:
        """Settles a task that failed; returns whether the user gets the error."""

    def finish(self) -> None:
        """Marks the epoch as read to its end; samples that are left over move to the next epoch (rollover)."""

    def state(self) -> dict[str, Any]:
        """The position, as fields of a state."""

    def rewind(self) -> None:
        """Goes back to the position: `next` returns again all tasks that are not settled."""


class Progress:
    """Which batch numbers of an epoch are settled; see NOTE [positions]. `upcoming` is the next number to issue.

    >>> progress = Progress(0)
    >>> [progress.issue(number) for number in range(3)]
    [True, True, True]
    >>> progress.settle(1); progress.position, progress.ahead
    (0, [1])
    >>> progress.settle(0); progress.position, progress.ahead
    (2, [])
    """

    def __init__(self, number: int, ahead: Iterable[range] = ()) -> None:
        self.upcoming = number
        self._in_flight: dict[int, None] = {}  # ascending
        self._ahead = set(chain.from_iterable(ahead))

    def issue(self, number: int) -> bool:
        """Issues a number; returns False if its batch was delivered before the epoch was resumed."""
        is_new = number not in self._ahead
        if is_new:
            self._in_flight[number] = None
        self.upcoming = number + 1
        return is_new

    def settle(self, number: int) -> None:
        is_first = next(iter(self._in_flight)) == number
        if not is_first:
            self._ahead.add(number)
        del self._in_flight[number]
        if is_first and self._ahead:
            done = min(self.position, self.upcoming)  # `issue` still has to skip the numbers from `upcoming` on
            self._ahead = {settled for settled in self._ahead if settled >= done}

    @property
    def position(self) -> int:
        number = next(iter(self._in_flight), self.upcoming)
        while number in self._ahead:
            number += 1
        return number

    @property
    def in_flight(self) -> list[int]:
        return list(self._in_flight)

    @property
    def ahead(self) -> list[int]:
        """The settled numbers beyond the position, ascending."""
        position = self.position
        return sorted(settled for settled in self._ahead if settled > position)

    def state(self) -> dict[str, Any]:
        """The fields `batch` and `ahead` of a position."""
        return {"batch": self.position, "ahead": to_ranges(self.ahead)}

    def rewound(self) -> Progress:
        """The same position with nothing in flight."""
        return Progress(self.position, [range(number, number + 1) for number in self.ahead])
