"""What every executor shares: the job, a task, its outcome, the protocol, and how one batch is made.

loader --Task--> executor.submit(task, inbox) ... work runs somewhere ... Outcome --> inbox --> loader
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, Protocol

import numpy as np

from ..errors import BatchifyError, add_note
from ..randomness import batch_seed, get_rng

__all__ = [
    "Executor",
    "Failed",
    "Inbox",
    "Job",
    "Made",
    "Outcome",
    "Task",
    "WorkerInfo",
    "being_worker",
    "get_worker_info",
    "load_batch",
]


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is given once: how to make any batch of a loader."""

    dataset: Any
    batchify_fn: Callable[[Sequence[Any]], Any]
    worker_init_fn: Callable[[int], object] | None
    num_workers: int
    seed: int


@dataclass(frozen=True, slots=True)
class Task:
    """One batch to make."""

    epoch: int
    batch: int  # number in its epoch, from 0
    seed: int  # NOTE [batch seeds] in randomness.py
    indices: list[Any]


class Outcome(Protocol):
    """What became of a task; it comes to the inbox of whoever submitted it."""

    @property
    def task(self) -> Task: ...

    def take(self) -> Any:
        """The batch; raises if there is none. Once."""

    def discard(self) -> None:
        """Instead of `take`: nobody wants it."""


class Inbox:
    """Where the outcomes of one iterator's tasks arrive.

    NOTE [withdrawn]: an iterator that is broken off may die in any thread, in the middle of anything, so ending it
    takes no lock: it sets `withdrawn` and discards what has arrived. Executors look at the flag before they start a
    task and after they put an outcome.
    """

    __slots__ = ("_arrived", "withdrawn")

    def __init__(self) -> None:
        self._arrived: SimpleQueue[Outcome] = SimpleQueue()
        self.withdrawn = False

    def put(self, outcome: Outcome) -> None:
        self._arrived.put(outcome)
        if self.withdrawn:
            self.withdraw()

    def get(self, timeout: float | None = 0) -> Outcome | None:
        """The next outcome; None if there is none within `timeout` seconds (None: wait for ever)."""
        if timeout == 0 and self._arrived.empty():
            return None
        try:
            return self._arrived.get(timeout != 0, timeout)
        except Empty:
            return None

    def withdraw(self) -> None:
        """Nobody wants these batches any more."""
        self.withdrawn = True
        while (outcome := self.get()) is not None:
            outcome.discard()


@dataclass(frozen=True, slots=True)
class Made:
    """A batch that was made in this process."""

    task: Task
    batch: Any

    def take(self) -> Any:
        return self.batch

    def discard(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Failed:
    """A batch that could not be made."""

    task: Task
    error: BaseException

    def take(self) -> NoReturn:
        raise self.error

    def discard(self) -> None:
        pass


class Executor(Protocol):
    """Where batches are made. Several inboxes, in several threads, may use one executor."""

    def submit(self, task: Task, inbox: Inbox) -> None:
        """Has the batch made; its outcome will be put into `inbox`."""

    def wait(self, inbox: Inbox, timeout: float | None) -> Outcome | None:
        """The next outcome for `inbox`; None after `timeout` seconds without one."""

    def overdue(self, task: Task, timeout: float) -> BaseException:
        """Gives up a task that took longer than `timeout` seconds; the error says where it is stuck."""

    def close(self) -> None:
        """Ends all work and every worker; nothing stays behind. A second call does nothing."""


@dataclass(frozen=True)
class WorkerInfo:
    """Who makes the current batch; from `get_worker_info()`.

    Attributes:
        id: this worker's number, from 0 to `num_workers - 1`.
        num_workers: number of workers of the loader; 0 in the serial executor.
        seed: this worker's own 64-bit seed, a hash of the loader's seed and `id`.
        dataset: the dataset as this worker sees it.
    """

    id: int
    num_workers: int
    seed: int
    dataset: Any

    @property
    def rng(self) -> np.random.Generator:
        """The current batch's random generator; see `get_rng`."""
        return get_rng()


class _Local(threading.local):
    info: WorkerInfo | None = None


_local = _Local()


def get_worker_info() -> WorkerInfo | None:
    """Inside a dataset, a batchify or `worker_init_fn`: which worker runs it; elsewhere None.

    As in torch, except that the serial executor, too, counts as a worker, with number 0 of 0.
    """
    return _local.info


@contextmanager
def being_worker(job: Job, worker: int) -> Iterator[None]:
    """Within the block this thread is that worker of the job."""
    before = _local.info
    _local.info = WorkerInfo(worker, job.num_workers, batch_seed(job.seed, worker), job.dataset)
    try:
        yield
    finally:
        _local.info = before


def start_worker(job: Job, worker: int) -> None:
    """Runs the user's `worker_init_fn`, once per worker, inside `being_worker`."""
    if job.worker_init_fn is not None:
        job.worker_init_fn(worker)


def load_batch(job: Job, task: Task, mark: Callable[[int], None] | None = None) -> Any:
    """Reads the samples of a task and makes them one batch.

    Args:
        job, task: what to do.
        mark: called with each sample's position before it is read.

    Raises:
        Exception: the user's own, with a note that says which sample of which batch; `StopIteration` and
            `SystemExit` come as a RuntimeError, since they would end the user's loop or program without a word.
    """
    dataset = job.dataset
    index: Any = None
    samples: list[Any] = []
    try:
        if mark is None:
            samples = [dataset[index := key] for key in task.indices]
        else:
            for position, index in enumerate(task.indices):
                mark(position)
                samples.append(dataset[index])
    except (StopIteration, SystemExit) as error:
        where = f"dataset[{index!r}]"
        raise _note(RuntimeError(f"{where} raised {type(error).__name__}({error})"), task, where) from error
    except Exception as error:
        _note(error, task, f"dataset[{index!r}]")
        raise
    try:
        return job.batchify_fn(samples)
    except BatchifyError as error:
        raise _located(error, task) from error.__cause__
    except (StopIteration, SystemExit) as error:
        raise _note(RuntimeError(f"batchify_fn raised {type(error).__name__}({error})"), task, "batchify_fn") from error
    except Exception as error:
        _note(error, task, "batchify_fn")
        raise


def _note(error: Exception, task: Task, where: str) -> Exception:
    add_note(error, f"gluonloader: in {where}, batch {task.batch} of epoch {task.epoch}")
    return error


def _located(error: BatchifyError, task: Task) -> BatchifyError:
    """The same error, naming the sample by its index in the dataset."""
    if error.position is None or error.position >= len(task.indices):
        return error
    sample = f"sample {task.indices[error.position]!r} (batch {task.batch}, position {error.position})"
    located = BatchifyError(error.reason, error.position, error.path, sample)
    return located.with_traceback(error.__traceback__)
