"""What all executors share: submissions, outcomes, the inbox where outcomes arrive, and the protocol.

epoch --Task--> executor.submit(task, inbox) ... a worker makes the batch ... Outcome --> inbox --> epoch
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, Protocol

from ..work.task import Task


@dataclass(slots=True, eq=False)  # not frozen: a frozen dataclass takes 0.1 us more for each field
class Outcome:
    """What became of a task."""

    task: Task
    made_s: float = field(default=0.0, kw_only=True)  # seconds that the worker spent making the batch

    def take(self) -> Any:
        """Returns the batch, or raises its error if the batch could not be made. Called once."""
        raise NotImplementedError

    def discard(self) -> None:
        """Called instead of `take` if nobody wants the batch."""


class Inbox:
    """Where the outcomes of one iterator's tasks arrive.

    Attributes:
        cancelled: nobody wants these batches any more.
        not_made: in the serial executor, the tasks whose batches are still to be made.

    NOTE [cancelled]: any thread may close an iterator at any moment, and so may the garbage collector. So closing takes
    no lock: it sets `cancelled`, discards the outcomes that have arrived, and puts None, which wakes a thread that
    waits for more outcomes. Executors check `cancelled` before they start a task and after they put an outcome.
    """

    __slots__ = ("_outcomes", "cancelled", "not_made")

    def __init__(self) -> None:
        self._outcomes: SimpleQueue[Outcome | None] = SimpleQueue()
        self.not_made: deque[Task] = deque()
        self.cancelled = False

    @property
    def empty(self) -> bool:
        return self._outcomes.empty()

    def put(self, outcome: Outcome) -> None:
        """Adds an outcome; may be called from any thread."""
        self._outcomes.put(outcome)
        if self.cancelled:
            self.cancel()

    def get(self, timeout: float | None = 0) -> Outcome | None:
        """The next outcome; None after `cancel`, or if no outcome arrives in `timeout` seconds (None: no limit)."""
        if timeout == 0 and self._outcomes.empty():
            return None
        try:
            return self._outcomes.get(timeout != 0, timeout)
        except Empty:
            return None

    def cancel(self) -> None:
        """Nobody wants these batches any more; see NOTE [cancelled]."""
        self.cancelled = True
        while not self._outcomes.empty():
            outcome = self.get()
            if outcome is not None:
                outcome.discard()
        self._outcomes.put(None)


@dataclass(slots=True, eq=False)
class Submission:
    """A task, and the inbox that waits for its outcome."""

    task: Task
    inbox: Inbox
    number: int = 0  # in the order of submission
    deaths: int = 0  # workers that died while they made this batch


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


class Executor(Protocol):
    """Where batches are made. Several inboxes, in several threads, may use one executor."""

    @property
    def window(self) -> int:
        """How many batches an iterator should have in flight now."""

    def submit(self, task: Task, inbox: Inbox) -> None:
        """Starts making the batch; its outcome arrives in `inbox`."""

    def wait(self, inbox: Inbox, timeout: float | None) -> Outcome | None:
        """The next outcome for `inbox`; None if `inbox` was cancelled or no outcome arrives in `timeout` seconds."""

    def wake(self) -> None:
        """Wakes the thread that waits for an inbox that was cancelled. Takes no lock; see NOTE [cancelled]."""

    def time_out(self, task: Task, timeout: float) -> BaseException:
        """Gives up a task that took longer than `timeout` seconds; returns an error that shows where it is stuck."""

    def close(self) -> None:
        """Ends all workers and frees their memory. A second call does nothing."""
