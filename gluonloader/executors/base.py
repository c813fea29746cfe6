"""What every executor shares: the job, a task, its outcome, and the protocol.

loader --Task--> executor.submit(task, inbox) ... work runs somewhere ... Outcome --> inbox --> loader
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, Protocol

from ..containers import Keys, as_list
from ..dataset.streams import Chunk

__all__ = ["Executor", "Failed", "Inbox", "Job", "Made", "Outcome", "Part", "Samples", "Task"]


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is given once: how to make any batch of a loader."""

    dataset: Any
    batchify_fn: Callable[[Any], Any]
    worker_init_fn: Callable[[Any], object] | None
    num_workers: int
    seed: int
    iterable: bool = False  # the dataset is read in shards, each by one worker
    payloads: tuple[Any, ...] = ()  # of each worker, for its `WorkerInfo`
    epoch: int = 0  # that the first workers start for


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples that were read before, to be made a batch: what shards left over, or the parts of a first batch."""

    samples: list[Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a batch, whose samples are to be read only; see NOTE [first batch] in first.py."""

    number: int  # in its batch, from 0
    keys: Keys


@dataclass(slots=True, eq=False)  # not frozen: see records.py
class Task:
    """One batch to make."""

    epoch: int
    batch: int  # number in its epoch, from 0
    seed: int  # of the loader, or of its rank: NOTE [batch seeds] in randomness.py
    work: Keys | Chunk | Samples | Part  # keys: indices of a map-style dataset
    worker: int | None = None  # the worker that has to make it; None: any

    def __str__(self) -> str:
        if self.batch < 0 and isinstance(self.work, Chunk):
            return f"what shard {self.work.shard} left over in epoch {self.work.epoch}, read again,"
        return f"batch {self.batch} of epoch {self.epoch}"

    def sample(self, position: int) -> str:
        """What to call the sample at a position of the batch."""
        if isinstance(self.work, Chunk):
            return f"sample {self.work.number * self.work.size + position} of shard {self.work.shard}"
        return f"leftover sample {position}" if self.indices is None else f"dataset[{self.indices[position]!r}]"

    @property
    def indices(self) -> list[Any] | None:
        """The indices that it reads, if it is one of a map-style dataset."""
        work = self.work.keys if isinstance(self.work, Part) else self.work
        return None if isinstance(work, (Chunk, Samples)) else as_list(work)


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
