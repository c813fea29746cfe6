"""What all executors share: the window of an epoch, submissions, outcomes, and the protocol.

epoch --Task--> executor.submit(task, window) ... a worker makes the batch ... Outcome --> window --> epoch

NOTE [interrupts]: promises P2 and P4. In the main thread a signal handler may raise (Ctrl-C raises KeyboardInterrupt)
after any function call. So the state of a loader is of two kinds. The *window* says which batches were drawn and which
have arrived. Each change of it is one operation of a dict, which happens wholly or not at all. All else can be computed
from the window: what is still to be submitted, which slabs are in use. A method that changes this second kind sets a
flag when it starts and clears the flag when it ends. A method that finds the flag set computes all of it again. A batch
leaves the window when `next` has nothing left to do but to return it.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Final, NoReturn, Protocol

from ..locks import Lock
from ..memory.budget import MemoryStats
from ..work.in_flight import InFlight
from ..work.reading import side_by_side
from ..work.task import Job, Task
from ..work.usage import Usage

CLOSED: Final = "the loader or its iterator was closed before this batch was delivered"
LONGEST_WAIT_S: Final = 1e6  # the functions of the system that wait accept no more than some weeks


@dataclass(slots=True, eq=False)
class Outcome:
    """What became of a task."""

    task: Task
    made_s: float = field(default=0.0, kw_only=True)  # seconds that the worker spent making the batch
    worker: int | None = field(default=None, kw_only=True)  # the worker that made it; None for the caller

    def take(self) -> Any:
        """Returns the batch, or raises its error if the batch could not be made. A later call does the same."""
        raise NotImplementedError

    def discard(self) -> None:
        """Called instead of `take` if nobody wants the batch."""


def usual_window(job: Job) -> int:
    """The number of batches in flight if there is no `prefetch`: each worker has one more than it makes at a time."""
    return (1 + side_by_side(job)) * job.num_workers


class Window:
    """The batches of one epoch that are in flight: drawn from the sampler and not delivered.

    Args:
        in_flight: their tasks, which the plan of the epoch adds and the epoch settles.
        in_order: deliver batches in the order in which they were drawn; otherwise in the order in which they arrive.
        owner: the epoch; when it is deleted, nobody wants its batches any more.

    Attributes:
        arrived: the outcomes of those that were made, in the order in which they arrived.
        reading: what the caller keeps to make these batches itself; it is dropped with the window. May be set.

    NOTE [cancelled]: any thread may close an iterator at any moment. So closing takes no lock: it marks the window as
    cancelled, discards the outcomes that have arrived, and wakes a thread that waits for more. Executors check
    `cancelled` before they start a task, and `put` checks it after it has added an outcome. Deleting an iterator runs
    no code of ours, because Python would drop an exception that a signal handler raises in that code. A window whose
    `owner` was deleted counts as cancelled. Only streams that the caller reads are closed at once, in `reading`; the
    code of a dataset that closes a file would run there in any case. Workers are told by a thread; see ended.py.

    >>> from gluonloader.work.task import Task
    >>> tasks = [Task(0, number, 0, [number]) for number in range(2)]
    >>> window = Window(InFlight(tasks), in_order=True, owner=Window)
    >>> window.put(Made(tasks[1], "b")); window.ready
    >>> window.put(Made(tasks[0], "a")); window.ready
    0
    """

    __slots__ = (
        *("__weakref__", "_bell", "_is_cancelled", "_owner", "_waits"),
        *("arrived", "in_flight", "in_order", "reading"),
    )

    def __init__(self, in_flight: InFlight, in_order: bool, owner: object) -> None:
        self.in_flight, self.in_order = in_flight, in_order
        self.arrived: dict[int, Outcome] = {}
        self.reading: Any = None
        self._owner = weakref.ref(owner)
        self._is_cancelled = False
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._waits = False

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants these batches any more."""
        return self._is_cancelled or self._owner() is None

    @property
    def ready(self) -> int | None:
        """The number of the batch to deliver next; None if it has not arrived."""
        if not self.in_order:
            # A copy, since other threads add outcomes meanwhile.
            return next((number for number in list(self.arrived) if number in self.in_flight), None)
        number = next(iter(self.in_flight), None)
        return number if number in self.arrived else None

    @property
    def missing(self) -> list[Task]:
        """The tasks that have no outcome yet, oldest first."""
        return self.in_flight.missing(self.arrived)

    @property
    def next_missing(self) -> Task | None:
        """The oldest task that has no outcome yet; None if all have one."""
        return self.in_flight.next_missing(self.arrived)

    def wants(self, task: Task) -> bool:
        """Whether the outcome of a task is still missing."""
        return not self.cancelled and self.in_flight.has(task) and task.batch not in self.arrived

    def put(self, outcome: Outcome) -> None:
        """Adds an outcome, or discards it if it is not wanted; may be called from any thread."""
        if not self.wants(outcome.task):
            outcome.discard()
            return
        self.arrived[outcome.task.batch] = outcome
        if self._waits:
            self.ring()
        if self.cancelled:
            self.cancel()

    def wait(self, timeout: float) -> None:
        """Waits until another thread adds an outcome or rings, at most `timeout` seconds; may return earlier."""
        self._waits = True
        if self.ready is None and not self.cancelled:
            try:
                self._bell.get(timeout=min(timeout, LONGEST_WAIT_S))
            except Empty:
                pass
        self._waits = False

    def ring(self) -> None:
        """Wakes the thread that waits, or that is about to wait."""
        self._bell.put(None)

    def cancel(self) -> None:
        """Nobody wants these batches any more; see NOTE [cancelled]."""
        self._is_cancelled = True
        while self.arrived:
            try:
                _, outcome = self.arrived.popitem()
            except KeyError:  # another thread took the last outcome
                break
            outcome.discard()
        self.reading = None
        self.ring()

    def drop_unwanted(self) -> None:
        """Discards outcomes that an interrupted call has left; see NOTE [interrupts]."""
        for number in list(self.arrived):
            if number not in self.in_flight:
                self.arrived.pop(number).discard()


@dataclass(slots=True, eq=False)
class Submission:
    """A task, and the window that waits for its outcome."""

    task: Task
    window: Window
    number: int = 0  # in the order of submission
    needed: int = 0  # bytes that the batch needs, if it did not fit into its slab
    moves: int = 0  # how often it was moved from a busy worker to an idle one
    deaths: int = 0  # workers that died while they made this batch
    # With `on_error`, the deaths by slot (see `Tolerance`; None if it is not known), and the slots that are given up.
    deaths_at: dict[int | None, int] = field(default_factory=dict)
    given_up: dict[int, Exception] = field(default_factory=dict)

    @property
    def careful(self) -> bool:
        """Whether the next attempt notes which sample is read."""
        return self.deaths > 0 or bool(self.given_up)


@dataclass(slots=True, eq=False)
class Made(Outcome):
    """A batch that was made in this process."""

    batch: Any

    def take(self) -> Any:
        return self.batch


@dataclass(slots=True, eq=False)
class Failed(Outcome):
    """A batch that could not be made."""

    error: BaseException

    def take(self) -> NoReturn:
        raise self.error


class CalledInHandler(RuntimeError):
    """A signal handler called a method of a loader that the signal had interrupted."""


def check_not_inside(lock: Lock) -> None:
    """Raises CalledInHandler if this is a signal handler that has interrupted a block which holds this lock."""
    if lock._is_owned():  # type: ignore[attr-defined]
        raise CalledInHandler(
            "a signal handler called next() on a loader that the signal had interrupted; let the handler set a flag "
            "or raise an exception, and call next() outside of the handler"
        )


class Executor(Protocol):
    """Where batches are made. Several windows, in several threads, may use one executor.

    Attributes:
        usage: how its workers spend their time.
        keeps_streams: whether workers keep streams open between batches, until `end_streams` is called.
    """

    usage: Usage
    keeps_streams: bool

    @property
    def window(self) -> int:
        """How many batches an epoch should have in flight now."""

    @property
    def makes_ahead(self) -> bool:
        """Whether batches are made before the user asks for them. Otherwise `iter(loader)` draws no indices."""

    def memory(self) -> MemoryStats | None:
        """The shared memory of its batches; None if batches are not in shared memory."""

    def submit(self, task: Task, window: Window) -> None:
        """Starts making a batch that is in flight in `window`; its outcome arrives there."""

    def resubmit(self, window: Window) -> None:
        """Submits the missing tasks of `window` that an interrupted call has lost; see NOTE [interrupts]."""

    def wait(self, window: Window, timeout: float | None) -> Outcome | None:
        """Waits until the next batch of `window` is ready, `window` is cancelled, or `timeout` seconds are over.

        Returns the outcome of the next batch if this call has made it. Other outcomes are in the window.
        """

    def wake(self) -> None:
        """Wakes the thread that waits for a window that was cancelled. Takes no lock; see NOTE [cancelled]."""

    def end_streams(self) -> None:
        """Makes workers close the streams that they read for cancelled windows. Called in a thread of the library."""

    def time_out(self, task: Task, timeout: float) -> BaseException | None:
        """Gives up a task that took longer than `timeout` seconds; returns an error that shows where it is stuck.

        With `on_error`, worker processes give up only the sample that is stuck; then the result is None, and the batch
        will still arrive.

        Raises:
            BatchTimeout: this error, if the task cannot be given up; then the batch will still arrive.
        """

    def close(self) -> None:
        """Ends all workers and frees their memory. A second call does nothing.

        In a signal handler that has interrupted this executor it only tells the workers to end, and returns.
        """
