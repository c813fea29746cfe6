"""Who makes a loader's batches: as told, or as the parts declare and the batches so far have shown.

    declared   all parts leave the GIL -----------------------------------------> threads
               anything else ---------------------------------------------------> processes
    measured   at the start of an epoch: a batch is made in less time than the
               program spends to get one from workers --------------------------> the caller, from now on
               data in memory, where the caller may be quicker than threads:
               both are tried, epoch by epoch ----------------------------------> whichever was quicker
    running    num_workers="auto": lanes are parked while the program never waits

NOTE [auto]: no batch depends on this (P1), so what can be told apart is left alone: MXNet's generator is seeded in
worker processes only, and `worker_init_fn` is for workers. Nothing is read in the caller while there are workers that
may read it too, or that may be forked later: a file that was opened before a fork has one position for both. So the
change is made between epochs, closes the workers, and is final, also where the loader begins anew with another job or
in a forked child; only what lies in memory, where there is no such file and threads compete with the program for the
GIL, is tried both ways.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
import threading
import time
from dataclasses import dataclass
from typing import Final

from ..checks import ExecutorName
from ..declared import in_memory, is_gil_free
from ..executors.base import Executor
from ..executors.first import with_first_batch
from ..executors.pace import Pace
from ..executors.process.executor import ProcessExecutor
from ..executors.serial import SerialExecutor
from ..executors.thread import ThreadExecutor
from ..work.maker import may_draw
from ..work.task import Job
from .stats import Tally, in_a_row, trimmed_mean

__all__ = ["Choice", "Means"]

_ENOUGH: Final = 24  # batches to judge by
_CALLER_S: Final = 3e-6  # what a batch takes in the caller besides being made; a worker's time has its own besides
_GENERATORS_S: Final = 3e-6  # the same, to leave the random generators as they are, where they may be used
_TRIALS: Final = 4  # epochs in threads and in the caller, as many of each: the machine may be busy in one
_CLEAR: Final = 3  # times as long, and it needs no more of them
_PACE: Final = 32  # batches between two looks at the pace

_log = logging.getLogger("gluonloader")


@dataclass(frozen=True, slots=True)
class Means:
    """How batches are to be made; see the arguments of `DataLoader`.

    Attributes:
        elastic: the window was not given, and may be larger while batches are small.
        adaptive: `num_workers` is "auto", so lanes may be parked.
    """

    executor: ExecutorName
    window: int
    elastic: bool
    start_method: str
    max_retries: int
    memory_limit: int | None
    max_per_worker: int | None
    adaptive: bool


class Choice:
    """Who makes the batches.

    Args:
        job, means: what to do, and how.
        tally: what was measured; begins anew here.
        former: the choice of this loader for another job or process.

    Attributes:
        executor: whoever makes those of an epoch that begins now.
        name: "serial", "thread" or "process".
        why: in words.
    """

    executor: Executor
    name: ExecutorName
    why: str
    _may_change: bool

    def __init__(self, job: Job, means: Means, tally: Tally, former: Choice | None = None) -> None:
        self._job, self._means, self._tally = job, means, tally
        tally.watch = None  # the former one's
        tally.forget()
        self._lock = threading.RLock()
        self._closed = False
        if means.executor != "auto":
            self._take(means.executor, "the arguments say so")
        elif former is not None and former.name == "serial" and not former._may_change:
            self._take("serial", former.why)
        else:
            self._take(*_declared(job))
        draws = may_draw(job)
        self._overhead_s = _CALLER_S + _GENERATORS_S * draws
        self._may_change = (
            means.executor == "auto"
            and self.name != "serial"
            and not job.iterable
            and job.worker_init_fn is None
            and not (draws and "mxnet" in sys.modules)
        )
        self._pace: Pace | None = None
        if means.adaptive and isinstance(self.executor, ProcessExecutor) and not job.iterable:
            self._pace, tally.watch = Pace(job.num_workers), self._keep_pace
        self._tried: list[float] = []  # waits in threads and in the caller, in turn
        self._looked_at, self._looked = time.perf_counter(), tally.waited_s

    def next_epoch(self, alone: bool, waited_for: bool) -> Executor:
        """Who makes the batches of an epoch; `alone`: no other one is under way; `waited_for`: it is begun in need."""
        with self._lock:
            if alone and self._may_change and len(self._tally.waits) >= _ENOUGH and not self._closed:
                wait = in_a_row(self._tally.waits, 2 * self._means.window)  # as many may be in flight
                self._judge(wait, trimmed_mean(self._tally.makes))
            if not alone or not waited_for or self._means.memory_limit is not None:
                return self.executor
            return with_first_batch(self.executor, self._job, self.num_workers, self._tally)

    @property
    def num_workers(self) -> int:
        """Workers that are in use."""
        if self.name == "serial":
            return 0
        return self._job.num_workers if self._pace is None else self._pace.lanes

    def close(self) -> None:
        """Ends all workers."""
        with self._lock:
            self._closed = True
            self.executor.close()

    def _judge(self, wait: float, make: float) -> None:
        """Whether the caller is to make the batches, by the mean seconds for which one was waited and made."""
        if self._tried:
            self._try(wait)
        elif self.name == "thread" and in_memory(self._job.dataset):
            # Threads hold each other up, so that a batch may take as long as those of all of them in turn. The caller
            # needs at least what is left: if that is more than the program waits, as it does other work, it is slower.
            if (make + self._overhead_s) / self._job.num_workers < wait:
                self._try(wait)
        elif make + self._overhead_s < wait:
            self._may_change, self._tally.watch = False, None
            self._change("serial", f"a batch is made in {make * 1e6:.0f} us, and took {wait * 1e6:.0f} us to get")

    def _try(self, wait: float) -> None:
        """One more epoch in threads or in the caller has shown for how many seconds a batch is waited for."""
        self._tried.append(wait)
        threads = min(self._tried[::2])
        caller = min(self._tried[1::2], default=threads)
        clear = max(threads, caller) > _CLEAR * min(threads, caller)
        if len(self._tried) < _TRIALS and not clear:
            name: ExecutorName = "serial" if self.name == "thread" else "thread"
            self._change(name, f"the data are in memory, and both are tried; threads took {threads * 1e6:.0f} us")
            return
        self._may_change = False
        name = "serial" if caller <= threads else "thread"
        why = f"a batch took {threads * 1e6:.0f} us to get from threads, and {caller * 1e6:.0f} us in the caller"
        if name == self.name:
            self.why = why
        else:
            self._change(name, why)

    def _change(self, name: ExecutorName, why: str) -> None:
        self.executor.close()
        self._take(name, why)
        self._tally.forget()

    def _take(self, name: ExecutorName, why: str) -> None:
        job, means = self._job, self._means
        self.name, self.why = name, why
        if name == "serial":
            self.executor = SerialExecutor(job)
        elif name == "thread":
            self.executor = ThreadExecutor(job, means.window)
        else:
            limits = means.max_retries, means.memory_limit, means.max_per_worker
            self.executor = ProcessExecutor(job, means.start_method, means.window, *limits, means.elastic)
        if means.executor == "auto":
            _log.debug("executor='auto': %s, since %s", name, why)

    def _keep_pace(self) -> None:
        """Parks a lane, or takes one back, by how much of the time the program waits."""
        executor, pace, tally = self.executor, self._pace, self._tally
        if tally.batches % _PACE or pace is None or not isinstance(executor, ProcessExecutor):
            return
        now, waited = time.perf_counter(), tally.waited_s
        before = pace.lanes
        pace.step((waited - self._looked) / max(now - self._looked_at, 1e-9))
        self._looked_at, self._looked = now, waited
        if pace.lanes != before:
            executor.use(pace.lanes)
            _log.debug("num_workers='auto': %d of %d workers in use", pace.lanes, pace.most)


def _declared(job: Job) -> tuple[ExecutorName, str]:
    """What follows from what the parts say, and why."""
    if not is_gil_free(job.dataset):
        held = "the dataset does not say"
    elif not is_gil_free(job.batchify_fn):
        held = "batchify_fn does not say"
    else:
        return "thread", "dataset and batchify_fn leave the GIL"
    if multiprocessing.current_process().daemon:
        return "serial", f"{held} that it leaves the GIL, and this is a worker process, which may not start others"
    return "process", f"{held} that it leaves the GIL (gluonloader.gil_free)"
