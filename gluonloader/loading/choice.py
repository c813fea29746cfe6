"""Which executor makes a loader's batches: the one that was given, or with "auto" the one that suits the data.

    the samples are small rows in memory, and batchify_fn releases the GIL -> the caller
    everything is declared to release the GIL (`gluonloader.gil_free`) -----> threads
    anything else ----------------------------------------------------------> processes
    at the start of a later epoch: making a batch takes less time than
    the program waits to get one from workers ------------------------------> the caller, from now on

NOTE [auto]: no batch depends on the choice (P1). So "auto" does not move to the caller if that could be noticed:
MXNet's generator is seeded only in worker processes, `worker_init_fn` is written for workers, and the shards of an
iterable dataset belong to workers. The caller never reads the dataset while there are workers that read it too, or
that may be forked later, since a file that was opened before a fork has one file offset for both. So the change
happens between epochs, closes the workers, and is final, also if the loader starts again with another job or in a
forked child.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
import threading
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from ..checks import ExecutorName
from ..declared import in_memory, is_gil_free
from ..executors.base import Executor
from ..executors.process import ProcessExecutor
from ..executors.serial import SerialExecutor
from ..executors.thread import ThreadExecutor
from ..tree import leaves
from ..work.maker import may_draw
from ..work.task import Job
from .stats import Tally, usual_wait

_ENOUGH: Final = 24  # batches to measure before a change
_CALLER_S: Final = 3e-6  # what a batch takes in the caller besides being made; the time of a worker includes it
_GENERATORS_S: Final = 3e-6  # the same, for saving and restoring random generators
_SMALL_ROW: Final = 4096  # bytes of a sample; handing it to another thread takes longer than copying it

_log = logging.getLogger("gluonloader")


@dataclass(frozen=True, slots=True)
class Options:
    """How batches are made; see the arguments of `DataLoader` with these names."""

    executor: ExecutorName
    num_workers: int
    prefetch: int | None
    start_method: str
    max_retries: int
    memory_limit: int | None
    max_per_worker: int | None


class Choice:
    """The executor of one loader, and the reason for it.

    Args:
        job, options: what to make, and how.
        tally: what was measured; its recent times are cleared here.
        former: the choice that this loader made for another job or in another process.

    Attributes:
        executor: makes the batches of an epoch that starts now.
        name: "serial", "thread" or "process".
        why: the reason in words.
    """

    executor: Executor
    name: ExecutorName
    why: str

    def __init__(self, job: Job, options: Options, tally: Tally, former: Choice | None = None) -> None:
        self._job, self._options, self._tally = job, options, tally
        self._clear_tally()
        self._lock = threading.RLock()
        self._closed = False
        if options.executor != "auto":
            given = "num_workers=0" if options.executor == "serial" else f'executor="{options.executor}"'
            self._use(options.executor, f"{given} was given")
        elif former is not None and former.name == "serial":
            self._use("serial", former.why)
        else:
            self._use(*_suited(job))
        draws = may_draw(job)
        self._overhead_s = _CALLER_S + _GENERATORS_S * draws
        self._may_change = (
            options.executor == "auto"
            and not job.iterable
            and job.worker_init_fn is None
            and not (draws and "mxnet" in sys.modules)
        )

    def next_executor(self, alone: bool) -> Executor:
        """The executor for an epoch that starts now; `alone`: no other epoch is under way."""
        with self._lock:
            may_change = alone and self._may_change and self.name != "serial" and not self._closed
            if may_change and len(self._tally.waits) >= _ENOUGH:
                wait_s = usual_wait(self._tally.waits, self.executor.window)
                made_s = median(self._tally.makes)
                if made_s + self._overhead_s < wait_s:
                    self.executor.close()
                    why = (
                        f"a batch is made in {made_s * 1e6:.0f} us, and took {wait_s * 1e6:.0f} us to get from workers"
                    )
                    self._use("serial", why)
                    self._clear_tally()
            return self.executor

    @property
    def num_workers(self) -> int:
        """Number of workers; 0 in the serial executor."""
        return 0 if self.name == "serial" else self._job.num_workers

    def close(self) -> None:
        """Ends all workers."""
        with self._lock:
            self._closed = True
            self.executor.close()

    def _clear_tally(self) -> None:
        self._tally.waits.clear()
        self._tally.makes.clear()

    def _use(self, name: ExecutorName, why: str) -> None:
        job, options = self._job, self._options
        self.name, self.why = name, why
        if name == "serial":
            self.executor = SerialExecutor(job)
        elif name == "thread":
            self.executor = ThreadExecutor(job, options.prefetch or 2 * job.num_workers)
        else:
            limits = options.max_retries, options.memory_limit, options.max_per_worker
            self.executor = ProcessExecutor(job, options.start_method, options.prefetch, *limits)
        if options.executor == "auto":
            _log.debug("executor='auto': %s, because %s", name, why)


def _suited(job: Job) -> tuple[ExecutorName, str]:
    """The executor that suits a job by its declarations, and why."""
    if not is_gil_free(job.dataset):
        part = "the dataset does not declare"
    elif not is_gil_free(job.batchify_fn):
        part = "batchify_fn does not declare"
    elif in_memory(job.dataset) and job.worker_init_fn is None and _has_small_rows(job.dataset):
        return "serial", "the samples are small rows in memory"
    else:
        return "thread", "dataset and batchify_fn are declared to release the GIL"
    if multiprocessing.current_process().daemon:
        return "serial", f"{part} that it releases the GIL, and a worker process may not start other processes"
    return "process", f"{part} that it releases the GIL (gluonloader.gil_free)"


def _has_small_rows(dataset: Any) -> bool:
    if not len(dataset):
        return True
    return sum(getattr(leaf, "nbytes", sys.getsizeof(leaf)) for _, leaf in leaves(dataset[0])) <= _SMALL_ROW
