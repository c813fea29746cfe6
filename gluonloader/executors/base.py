"""What every executor shares: the outcome of a task, where it arrives, and the protocol.

loader --Task--> executor.submit(task, inbox) ... work runs somewhere ... Outcome --> inbox --> loader
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, Protocol

from ..work.task import Task

__all__ = ["Executor", "Failed", "Inbox", "Made", "Outcome"]


class Outcome(Protocol):
    """What became of a task; it comes to the inbox of whoever submitted it."""

    @property
    def task(self) -> Task: ...

    @property
    def made_s(self) -> float:
        """Seconds that it took to make."""

    def take(self) -> Any:
        """The batch; raises if there is none. Once."""

    def discard(self) -> None:
        """Instead of `take`: nobody wants it."""


class Inbox:
    """Where the outcomes of one iterator's tasks arrive.

    NOTE [withdrawn]: an iterator that is broken off may die in any thread, in the middle of anything, so ending it
    takes no lock: it sets `withdrawn`, discards what has arrived, and puts None, which wakes a thread that waits for
    more. Executors look at the flag before they start a task and after they put an outcome.
    """

    __slots__ = ("_arrived", "asked", "withdrawn")

    def __init__(self) -> None:
        self._arrived: SimpleQueue[Outcome | None] = SimpleQueue()
        self.asked: deque[Task] = deque()  # in the serial executor: what is to be made
        self.withdrawn = False

    def put(self, outcome: Outcome) -> None:
        self._arrived.put(outcome)
        if self.withdrawn:
            self.withdraw()

    def get(self, timeout: float | None = 0) -> Outcome | None:
        """The next outcome; None if there is none within `timeout` seconds (None: wait for ever), or is to be none."""
        if timeout == 0 and self._arrived.empty():
            return None
        try:
            return self._arrived.get(timeout != 0, timeout)
        except Empty:
            return None

    def withdraw(self) -> None:
        """Nobody wants these batches any more."""
        self.withdrawn = True
        while not self._arrived.empty():
            outcome = self.get()
            if outcome is not None:
                outcome.discard()
        self._arrived.put(None)


@dataclass(slots=True, eq=False)  # not frozen: see records.py
class Made:
    """A batch that was made in this process."""

    task: Task
    batch: Any
    made_s: float = 0.0

    def take(self) -> Any:
        return self.batch

    def discard(self) -> None:
        pass


@dataclass(slots=True, eq=False)  # not frozen: see records.py
class Failed:
    """A batch that could not be made."""

    task: Task
    error: BaseException
    made_s: float = 0.0

    def take(self) -> NoReturn:
        raise self.error

    def discard(self) -> None:
        pass


class Executor(Protocol):
    """Where batches are made. Several inboxes, in several threads, may use one executor."""

    def submit(self, task: Task, inbox: Inbox) -> None:
        """Has the batch made; its outcome will be put into `inbox`."""

    def window(self, size: int, holding: bool) -> int:
        """How many batches are to be in flight now.

        Args:
            size: usually.
            holding: the program still has the batch before the one that it is given next.
        """

    def wait(self, inbox: Inbox, timeout: float | None) -> Outcome | None:
        """The next outcome for `inbox`; None after `timeout` seconds without one, or when it is withdrawn."""

    def wake(self) -> None:
        """An inbox was withdrawn: has whoever waits for it look. Takes no lock; see NOTE [withdrawn]."""

    def overdue(self, task: Task, timeout: float) -> BaseException:
        """Gives up a task that took longer than `timeout` seconds; the error says where it is stuck."""

    def close(self) -> None:
        """Ends all work and every worker; nothing stays behind. A second call does nothing."""
