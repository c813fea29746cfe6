"""The serial executor: each batch is made in the caller, when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import RLock
from typing import NoReturn

from .. import frameworks
from ..blocks import Blocks
from ..errors import LoaderClosed, WorkerStartError
from ..randomness import preserved_generators, seed_generators, set_current_seed
from .base import Failed, Inbox, Job, Made, Outcome, Task
from .making import Maker

__all__ = ["SerialExecutor"]


@dataclass(frozen=True, slots=True)
class _Waiting:
    task: Task
    inbox: Inbox


class SerialExecutor:
    """Makes batches one at a time, in the thread that waits for them."""

    def __init__(self, job: Job) -> None:
        self._maker = Maker(job, 0, _seed)
        self._blocks = Blocks(window=1)
        self._waiting: list[_Waiting] = []
        self._started = False
        self._lock = RLock()  # a dataset is not read by two threads at once where one asked for no workers
        self._queue = RLock()  # another thread may submit meanwhile

    def submit(self, task: Task, inbox: Inbox) -> None:
        with self._queue:
            self._waiting.append(_Waiting(task, inbox))

    def wait(self, inbox: Inbox, timeout: float | None) -> Outcome | None:
        with self._lock:
            mine = next((waiting for waiting in self._waiting if waiting.inbox is inbox), None)
            if mine is None:
                raise LoaderClosed("the loader was closed while a batch was waited for")
            outcome = self._make(mine.task)
            with self._queue:
                self._waiting = [w for w in self._waiting if w is not mine and not w.inbox.withdrawn]
            return outcome

    def has(self, inbox: Inbox) -> bool:
        """Whether a batch is to be made for this inbox."""
        return any(waiting.inbox is inbox for waiting in self._waiting)

    def wake(self) -> None:
        pass  # nobody waits for others

    def overdue(self, task: Task, timeout: float) -> NoReturn:
        raise AssertionError("wait() of the serial executor never times out")

    def close(self) -> None:
        with self._queue:
            self._waiting = []

    def _make(self, task: Task) -> Outcome:
        with self._maker.at_work():
            if not self._started:
                self._start(task.epoch)
            with _preserved_generators() if self._maker.draws else nullcontext(), self._blocks.batch():
                try:
                    return Made(task, self._maker.make(task))
                except Exception as error:
                    return Failed(task, error)
                finally:
                    set_current_seed(None)

    def _start(self, epoch: int) -> None:
        try:
            self._maker.start(epoch)
        except Exception as error:
            raise WorkerStartError(f"worker_init_fn(0) raised {type(error).__name__}: {error}") from error
        self._started = True


@contextmanager
def _preserved_generators() -> Iterator[None]:
    with preserved_generators(), frameworks.preserved_generators():
        yield


def _seed(seed: int) -> None:
    seed_generators(seed)
    frameworks.seed_restorable(seed)
    set_current_seed(seed)
