"""The serial executor: each batch is made in the caller, when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from threading import RLock
from typing import NoReturn

from .. import frameworks
from ..errors import WorkerStartError
from ..randomness import preserved_generators, seed_generators, set_current_seed
from .base import Failed, Inbox, Job, Made, Outcome, Task, being_worker, load_batch, start_worker

__all__ = ["SerialExecutor"]


@dataclass(frozen=True, slots=True)
class _Waiting:
    task: Task
    inbox: Inbox


class SerialExecutor:
    """Makes batches one at a time, in the thread that waits for them."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._waiting: list[_Waiting] = []
        self._started = False
        self._lock = RLock()  # a dataset is not read by two threads at once where one asked for no workers

    def submit(self, task: Task, inbox: Inbox) -> None:
        self._waiting.append(_Waiting(task, inbox))

    def wait(self, inbox: Inbox, timeout: float | None) -> Outcome | None:
        with self._lock:
            mine = next(waiting for waiting in self._waiting if waiting.inbox is inbox)
            self._waiting = [w for w in self._waiting if w is not mine and not w.inbox.withdrawn]
            return self._make(mine.task)

    def overdue(self, task: Task, timeout: float) -> NoReturn:
        raise AssertionError("wait() of the serial executor never times out")

    def close(self) -> None:
        self._waiting.clear()

    def _start(self) -> None:
        try:
            start_worker(self._job, 0)
        except Exception as error:
            raise WorkerStartError(f"worker_init_fn(0) raised {type(error).__name__}: {error}") from error
        self._started = True

    def _make(self, task: Task) -> Outcome:
        with being_worker(self._job, 0):
            if not self._started:
                self._start()
            with preserved_generators(), frameworks.preserved_generators(task.seed):
                seed_generators(task.seed)
                set_current_seed(task.seed)
                try:
                    return Made(task, load_batch(self._job, task))
                except Exception as error:
                    return Failed(task, error)
                finally:
                    set_current_seed(None)
