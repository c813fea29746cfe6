"""The serial executor: each batch is made in the caller, when it is asked for."""

from __future__ import annotations

import time
from threading import RLock
from typing import NoReturn

from .. import frameworks
from ..errors import LoaderClosed, WorkerStartError
from ..memory.buffers import BatchMemory, BufferPool
from ..randomness import PreservedGenerators, seed_generators, set_current_seed
from ..work.maker import Maker
from ..work.task import Job, Task
from .base import Failed, Inbox, Made, Outcome

__all__ = ["SerialExecutor"]


class SerialExecutor:
    """Makes batches one at a time, in the thread that waits for them."""

    def __init__(self, job: Job) -> None:
        self._maker = Maker(job, 0, _seed)
        self._buffers = BufferPool(window=1)
        self._memory = BatchMemory(self._buffers)
        self._started = self._closed = False
        self._lock = RLock()  # a dataset is not read by two threads at once where one asked for no workers

    def submit(self, task: Task, inbox: Inbox) -> None:
        inbox.asked.append(task)

    def window(self, size: int, holding: bool) -> int:
        return size

    def wait(self, inbox: Inbox, timeout: float | None) -> Outcome | None:
        with self._lock:
            if self._closed or not inbox.asked:
                raise LoaderClosed("the loader was closed while a batch was waited for")
            outcome = self._make(inbox.asked[0])
            inbox.asked.popleft()  # only now: a Ctrl-C in the user's code leaves the batch to be asked for again
            return outcome

    def wake(self) -> None:
        pass  # nobody waits for others

    def overdue(self, task: Task, timeout: float) -> NoReturn:
        raise AssertionError("wait() of the serial executor never times out")

    def close(self) -> None:
        self._closed = True
        self._buffers.close()

    def _make(self, task: Task) -> Outcome:
        if not self._started:
            self._start(task.epoch)
        if not self._maker.draws:  # nor asks who makes it
            return self._made(task)
        with self._maker.at_work(), PreservedGenerators(), frameworks.PreservedGenerators():
            try:
                return self._made(task)
            finally:
                set_current_seed(None)

    def _made(self, task: Task) -> Outcome:
        with self._memory:
            try:
                began = time.perf_counter()
                return Made(task, self._maker.make(task), time.perf_counter() - began)
            except Exception as error:
                return Failed(task, error)

    def _start(self, epoch: int) -> None:
        try:
            with self._maker.at_work():
                self._maker.start(epoch)
        except Exception as error:
            raise WorkerStartError(f"worker_init_fn(0) raised {type(error).__name__}: {error}") from error
        self._started = True


def _seed(seed: int) -> None:
    seed_generators(seed)
    frameworks.seed_restorable(seed)
    set_current_seed(seed)
