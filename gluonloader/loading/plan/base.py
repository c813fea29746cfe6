"""What both kinds of plan share: the protocol, and which batches of an epoch are settled.

NOTE [positions]: promise P8. A position counts what was delivered, not what was drawn: every number that a plan gives
out is awaited until its batch is delivered, or known not to come. All numbers below `next` are settled, and those in
`ahead`, which came out of order. What is drawn beyond that is drawn again after a resume, with the same numbers and
so with the same seeds.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Protocol

from ...state import to_ranges
from ...work.task import Task

__all__ = ["NOTHING", "Loaded", "Plan", "Progress", "Start"]

NOTHING: Final = object()  # in place of a batch: there is none for the user


@dataclass(frozen=True, slots=True)
class Start:
    """Where an epoch begins: at its start, or where a saved one stood.

    Attributes:
        number: of the next batch.
        skip: batches of the sampler's pass that are not wanted.
        ahead: numbers beyond `number` that were delivered already.
    """

    number: int = 0
    skip: int = 0
    ahead: tuple[range, ...] = ()


@dataclass(frozen=True, slots=True)
class Loaded:
    """A position that was loaded: its fields, and where the sampler's next pass begins."""

    state: dict[str, Any]
    start: Start


class Plan(Protocol):
    """The work of one epoch.

    Attributes:
        lock: to be held for each call, since one thread may ask for the state while another one iterates; or a signal
            handler in the middle of a call.
        finished: whether it was used to its end.
        outdated: a position was loaded since: what it leaves over is not for the next epoch.
    """

    lock: threading.RLock
    epoch: int
    finished: bool
    outdated: bool

    def next(self) -> Task | None:
        """The next batch to make; None: none before others have been delivered. StopIteration: no more at all."""

    def deliver(self, task: Task, result: Any) -> Any:
        """A result has come to its turn; returns the batch, or NOTHING."""

    def fail(self, task: Task, error: BaseException) -> bool:
        """An error has come to its turn instead; returns whether the user is told."""

    def finish(self) -> None:
        """The epoch was used to its end: what it left over is for the next one."""

    def state(self) -> dict[str, Any]:
        """The position, as fields of a state."""

    def rewind(self) -> None:
        """Forgets what was given out and not delivered: `next` begins anew there."""


class Progress:
    """Which numbers are settled; see NOTE [positions].

    >>> progress = Progress(0)
    >>> for number in range(3): progress.plan(number)
    >>> progress.settle(1); progress.next, progress.ahead
    (0, [1])
    >>> progress.settle(0); progress.next, progress.ahead
    (2, [])
    """

    def __init__(self, number: int, ahead: Iterable[range] = ()) -> None:
        self.upcoming = number
        self._awaited: dict[int, None] = {}  # in order
        self._ahead = set(chain.from_iterable(ahead))

    def plan(self, number: int) -> None:
        """This number is given out."""
        self._awaited[number] = None
        self.upcoming = number + 1

    def pass_over(self, number: int) -> bool:
        """Whether a number was settled before this epoch was resumed, and so is not given out."""
        if number not in self._ahead:
            return False
        self.upcoming = number + 1
        return True

    def settle(self, number: int) -> None:
        """Its batch was delivered, or will not come."""
        if not self._ahead and next(iter(self._awaited)) == number:  # in order, as most are
            del self._awaited[number]
            return
        if number != self.next:
            self._ahead.add(number)
            del self._awaited[number]
            return
        del self._awaited[number]
        if self._ahead:
            now = min(self.next, self.upcoming)  # those from `upcoming` on are still to be passed over
            self._ahead = {settled for settled in self._ahead if settled >= now}

    @property
    def next(self) -> int:
        """All numbers below are settled."""
        number = next(iter(self._awaited), self.upcoming)
        while number in self._ahead:
            number += 1
        return number

    @property
    def awaited(self) -> list[int]:
        """The numbers that were given out and are not settled."""
        return list(self._awaited)

    @property
    def ahead(self) -> list[int]:
        """Numbers beyond that are settled, too."""
        now = self.next
        return sorted(settled for settled in self._ahead if settled > now)

    def state(self) -> dict[str, Any]:
        """The fields `batch` and `ahead` of a position."""
        return {"batch": self.next, "ahead": to_ranges(self.ahead)}

    def again(self) -> Progress:
        """Where what is awaited now is given out again."""
        return Progress(self.next, [range(number, number + 1) for number in self.ahead])
