"""What a transport provides: lanes to workers, the crew of workers, and the memory in which batches travel.

    dispatcher --give--> Lane --> worker            process/: a socket, a worker process, slabs
    executor <--replies-- Lane <-- worker           ray/:     calls of a Ray actor, objects in Ray's store
    executor <--bury-- Crew: a worker has died

A lane starts attempts, receives their replies, and reports the death of its worker. Everything else (which worker
makes which batch, what happens after a death, who waits) is the same for all transports; see dispatch.py and
lane_executor.py.
"""

from __future__ import annotations

import select
import time
from collections.abc import Collection, Mapping, Sized
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ...memory.budget import MemoryStats
from ...memory.loans import BatchBytes
from ...memory.slab import ROW, SINCE, STARTED, TICKET
from ...messages import message
from ..base import Submission
from .messages import Reply, Request


class SlabLike(Protocol):
    """The memory of one batch, with the layout of a slab: a slab, or the room of a batch in Ray's store.

    Attributes:
        number: differs between all slabs of a memory.
        size: bytes that it has.
        allowance: bytes that it may grow to while it is in flight.
        control: the words of its header; see memory/slab.py.
    """

    number: int
    size: int
    allowance: int
    control: memoryview

    def read(self, offset: int, length: int) -> bytes:
        """Returns some bytes of it; raises OSError if it cannot be mapped."""


S = TypeVar("S", bound=SlabLike)


@dataclass(slots=True, eq=False)
class Attempt(Generic[S]):
    """One try at a batch by one worker."""

    submission: Submission
    slab: S
    ticket: int
    request: Request
    sent: list[int] = field(default_factory=list)  # empty until the request was sent
    cancelled: bool = False

    @property
    def started(self) -> bool:
        """Whether the worker has started on it."""
        return bool(self.slab.control[STARTED] == self.ticket)

    @property
    def row(self) -> int | None:
        """The row (with `on_error` the slot, see `Tolerance`) of the sample that the worker reads, if that is known."""
        return self.slab.control[ROW] - 1 if self.slab.control[ROW] else None

    @property
    def busy_s(self) -> float:
        """Seconds since the worker started on that sample or, if the sample is not known, on the batch."""
        since: int = self.slab.control[SINCE]
        return time.monotonic() - since * 1e-9

    def cancel(self) -> None:
        """Makes the worker skip the attempt, or ignores its reply."""
        self.cancelled = True
        self.slab.control[TICKET] = 0


@message(frozen=True, slots=True)
class Death(Generic[S]):
    """The death of a worker."""

    pid: int | None
    how: str  # its exit code or signal, in words
    attempts: list[Attempt[S]]  # that were under way on its lane
    alone: bool = True  # it was making no batch besides these


class Lane(Protocol[S]):
    """The channel to one worker.

    Attributes:
        attempts: those under way on the lane, by ticket, oldest first.
        ready: the worker has started.
        answered: the worker has sent a reply about a batch.
        reading: the iterations of iterable datasets of which the worker may have streams open.
        was_killed: `kill_stuck` was called.
        shared: the worker also makes batches of other programs, so an attempt may wait although it is the only one.
        busy_since: when the worker started on its current batch.
    """

    attempts: dict[int, Attempt[S]]
    ready: bool
    answered: bool
    reading: set[int]
    was_killed: bool
    busy_since: float

    @property
    def shared(self) -> bool: ...

    @property
    def worker(self) -> int:
        """The number of the worker."""

    def give(self, submission: Submission, slab: S, ticket: int, task: bytes) -> None:
        """Starts an attempt at an encoded task. Raises an OSError, and starts nothing, if the request is not sent."""

    def send_rest(self) -> None:
        """Sends the requests that an interrupted call has not sent."""

    def drop(self, slab: int) -> None:
        """Makes the worker forget a slab that is closed."""

    def end_streams(self, iteration: int) -> None:
        """Makes the worker close the streams of an iteration, after the requests that it has."""

    def replies(self) -> list[Reply] | None:
        """The replies that have arrived; None if the worker is dead. They stay here until `remove` is called."""

    def remove(self, replies: list[Reply]) -> None:
        """Removes replies that were handled."""

    def look(self) -> None:
        """Updates what the attempts say about the sample that the worker reads."""

    def kill_stuck(self) -> str:
        """Kills a worker that does not answer; returns a text for an error that shows where the worker was stuck."""


class Crew(Protocol[S]):
    """The workers of one executor, each with its lane. The executor calls every method with its lock held, except
    `hang_up` and `shut`.

    Attributes:
        poll: reports the descriptors of `watched`.
    """

    poll: select.poll

    @property
    def lanes(self) -> Mapping[int, Lane[S]]:
        """The lanes of live workers, by file descriptor. A worker that died has none until its replacement starts."""

    @property
    def watched(self) -> Mapping[int, Lane[S]]:
        """The same lanes, by every descriptor that is readable if a lane has a reply or its worker has died."""

    @property
    def requested(self) -> Sized:
        """The workers that `start_requested` has to start."""

    @property
    def error(self) -> Exception | None:
        """The error to raise if workers cannot start, or are gone for good; otherwise None."""

    def start_requested(self, epoch: int) -> None:
        """Starts the missing workers. Raises an OSError if that is not possible now; the next call tries again."""

    def hear(self, descriptor: int) -> None:
        """Reads what a descriptor has to say that `poll` reports and that belongs to no lane."""

    def has_answered(self) -> None:
        """A worker has sent its first reply about a batch."""

    def has_failed(self, descriptor: int, size: int) -> None:
        """The worker of a watched lane has reported an error of `size` bytes, before it ends or instead of starting."""

    def bury(self, descriptor: int) -> Death[S]:
        """Closes the watched lane of a dead worker, after making sure that the worker can write no more."""

    def hang_up(self) -> None:
        """Tells all workers to end; may be called from any thread and in a signal handler, without the lock."""

    def shut(self) -> None:
        """Waits until all workers have ended. Called after `hang_up`, without the lock."""

    def close(self) -> None:
        """Closes the lanes. Called after `shut`."""


class Memory(Protocol[S]):
    """The memory in which the batches of one executor travel; for the methods see `SlabPool`.

    Attributes:
        window: batches that are usually in flight at once.
        limit: `memory_limit` in bytes; None for no limit.
        largest: bytes of the largest batch so far; 0 before the first.
        lent: bytes on loan; 0 if there is no limit.
        retired: numbers of slabs that are closed, until the dispatcher tells the workers and clears the list.
        whole: batches are delivered without copies of small arrays.
    """

    window: int
    limit: int | None
    largest: int
    retired: list[int]
    whole: bool

    @property
    def lent(self) -> int: ...

    def take(self, nbytes: int, writer: int, needed: int = 0, last_room: bool = False) -> S | None: ...

    def lend(self, slab: S, used: int) -> BatchBytes: ...

    def copy_out(self, slab: S, used: int) -> BatchBytes: ...

    def give_back(self, slab: S) -> None: ...

    def reclaim(self, slab: S) -> None: ...

    def recount(self, in_flight: Collection[int]) -> None: ...

    def demand(self, nbytes: int) -> bool: ...

    def has_grown(self, slab: S, size: int) -> None: ...

    def stats(self) -> MemoryStats: ...

    def close(self) -> None: ...


def is_busy(lanes: Mapping[int, Lane[S]]) -> bool:
    """Whether any worker has a batch to make."""
    return any(lane.attempts for lane in lanes.values())
