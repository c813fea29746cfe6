"""Which executor makes the batches: as told, or, with "auto", as the parts declare and the first batches show.

    a part that holds the GIL -----------------------------> processes
    all outside the GIL, or a Python without it -----------> threads
    all of that, and the data in arrays --first batches, timed in the caller--> the caller, or threads

NOTE [auto]: nothing is read in the caller that a worker process may read later, since a file that is opened before a
fork has one position for both. Batches do not depend on who makes them (P1), so the change may come between any two.
"""

from __future__ import annotations

import logging
import multiprocessing
import threading
import time
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, Literal

from ..declared import in_memory, is_gil_free
from .base import Executor, Inbox, Job, Outcome, Task
from .process import ProcessExecutor
from .serial import SerialExecutor
from .thread import ThreadExecutor

__all__ = ["AutoExecutor", "ExecutorName", "Means", "make_executor"]

ExecutorName = Literal["serial", "thread", "process", "auto"]

_WARM_UP, _MEASURED = 2, 10  # batches: what is not timed, and what is
_CHEAP_S: Final = 150e-6  # to copy so many rows in the caller takes as long as having two threads do it

_log = logging.getLogger("gluonloader")


@dataclass(frozen=True, slots=True)
class Means:
    """How an executor is to work; see the arguments of `DataLoader`."""

    executor: ExecutorName
    window: int
    start_method: str
    max_retries: int
    memory_limit: int | None
    max_per_worker: int | None


def make_executor(job: Job, means: Means) -> Executor:
    """The executor of this name, its workers started."""
    if means.executor == "auto":
        return AutoExecutor(job, means)
    if means.executor == "serial":
        return SerialExecutor(job)
    if means.executor == "thread":
        return ThreadExecutor(job, means.window)
    return ProcessExecutor(
        job, means.start_method, means.window, means.max_retries, means.memory_limit, means.max_per_worker
    )


class AutoExecutor:
    """Chooses an executor, and where that cannot be known from what is declared, measures first.

    Attributes:
        name: the one that makes batches now.
        why: in words.
    """

    name: ExecutorName

    def __init__(self, job: Job, means: Means) -> None:
        self._job, self._means = job, means
        self._lock = threading.RLock()
        self._seconds: list[float] = []
        self._closed = False
        self._serial: SerialExecutor | None = None
        self._workers: Executor | None = None
        free = is_gil_free(job.dataset) and is_gil_free(job.batchify_fn)
        if free and not job.iterable and job.worker_init_fn is None and in_memory(job.dataset):
            self._serial = SerialExecutor(job)
            self._tell("serial", "the data are in memory, and the first batches are being timed")
        elif free:
            self._hire("thread", "dataset and batchify_fn leave the GIL")
        elif multiprocessing.current_process().daemon:
            self._hire("thread", "this is a worker process, which may not start others")
        else:
            held = "batchify_fn" if is_gil_free(job.dataset) else "the dataset"
            self._hire("process", f"{held} does not say that it leaves the GIL (gluonloader.gil_free)")

    def submit(self, task: Task, inbox: Inbox) -> None:
        self._now.submit(task, inbox)

    def wait(self, inbox: Inbox, timeout: float | None) -> Outcome | None:
        serial = self._serial
        if serial is None or (self._workers is not None and not inbox.asked and not self._closed):
            return self._now.wait(inbox, timeout)
        start = time.perf_counter()
        outcome = serial.wait(inbox, timeout)
        self._learn(time.perf_counter() - start)
        return outcome

    def wake(self) -> None:
        self._now.wake()

    def overdue(self, task: Task, timeout: float) -> BaseException:
        return self._now.overdue(task, timeout)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for executor in (self._serial, self._workers):
                if executor is not None:
                    executor.close()

    @property
    def _now(self) -> Executor:
        executor = self._workers or self._serial
        assert executor is not None
        return executor

    def _learn(self, seconds: float) -> None:
        """What one batch took in the caller; the last of a few decides."""
        with self._lock:
            if self._closed or len(self._seconds) >= _WARM_UP + _MEASURED:
                return
            self._seconds.append(seconds)
            if len(self._seconds) < _WARM_UP + _MEASURED:
                return
            cost = median(self._seconds[_WARM_UP:])
            took = f"the data are in memory, and a batch takes {cost * 1e6:.0f} us"
            if cost <= _CHEAP_S:
                self._tell("serial", f"{took}, as much as to have it made elsewhere")
            else:
                self._hire("thread", took)

    def _hire(self, name: ExecutorName, why: str) -> None:
        self._workers = workers = make_executor(self._job, replace(self._means, executor=name))
        if self._closed:  # meanwhile, by a signal handler
            workers.close()
        self._tell(name, why)

    def _tell(self, name: ExecutorName, why: str) -> None:
        self.name, self.why = name, why
        _log.debug("executor='auto': %s, since %s", name, why)
