"""Chooses the executor of a loader: the executor that was passed or, with "auto", the one that suits the data.

the samples are small rows in memory, and batchify_fn releases the GIL -> the caller
everything is declared to release the GIL (`gluonloader.gil_free`),
or Python has no GIL, and everything is declared `thread_safe` ---------> threads
anything else ----------------------------------------------------------> processes
"""

from __future__ import annotations

import multiprocessing
import sys
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from ..checks import ExecutorName
from ..declared import in_memory, is_gil_free, is_thread_safe
from ..errors import WorkerStartError, warn
from ..executors.process.main_script import imports_main
from ..limits import has_gil
from ..messages import message
from ..options import Processes, Ray
from ..tree import leaves
from ..work.task import Job

if TYPE_CHECKING:
    from ..executors.shared.meeting import Meeting

_SMALL_ROW: Final = 4096  # bytes of a sample; handing it to another thread takes longer than copying it


@message(frozen=True, slots=True)
class Options:
    """How batches are made; see the arguments of `DataLoader` with these names."""

    executor: ExecutorName
    num_workers: int
    prefetch: int | None
    start_method: str
    memory_limit: int | None
    workers: Processes | Ray = field(default_factory=Processes)  # their own options
    meeting: Meeting | None = None  # how the ranks meet that share their workers; None: each has its own
    ranks: int = 1  # the number of ranks


@message(frozen=True, slots=True)
class Choice:
    """An executor, and the reason for the choice in words."""

    name: ExecutorName
    why: str


def suited(job: Job) -> Choice:
    """The executor that suits a job by the declarations of its parts."""
    if has_gil():
        suits_threads, declared = is_gil_free, "release the GIL"
        declaration = "that it releases the GIL (gluonloader.gil_free)"
    else:
        suits_threads, declared = is_thread_safe, "be safe in threads, and this Python has no GIL"
        declaration = "that threads may share it (gluonloader.thread_safe)"
    if not suits_threads(job.dataset):
        undeclared = f"the dataset does not declare {declaration}"
    elif not suits_threads(job.batchify_fn):
        undeclared = f"batchify_fn does not declare {declaration}"
    elif in_memory(job.dataset) and job.worker_init_fn is None and _has_small_rows(job.dataset):
        return Choice("serial", "the samples are small rows in memory")
    else:
        return Choice("thread", f"dataset and batchify_fn are declared to {declared}")
    if multiprocessing.current_process().daemon:
        return Choice("serial", f"{undeclared}, and a worker process cannot start other processes")
    return Choice("process", undeclared)


def possible(choice: Choice) -> Choice:
    """Replaces processes by threads in a daemonic process, which cannot start processes; keeps any other choice.

    Raises:
        WorkerStartError: the process is a worker that imports the main script.
        ValueError: gevent has replaced threads, and worker processes would hang.
    """
    if choice.name != "process":
        return choice
    gevent: Any = sys.modules.get("gevent.monkey")
    if gevent is not None and any(map(gevent.is_module_patched, ("threading", "queue"))):
        raise ValueError(
            "num_workers: gevent.monkey.patch_all() was called, and worker processes hang with the threads of gevent; "
            "pass num_workers=0, or call gevent.monkey.patch_all(thread=False, queue=False)"
        )
    if imports_main():
        raise WorkerStartError("the main script made a DataLoader with workers while a worker imported it")
    if multiprocessing.current_process().daemon:
        text = "a worker process cannot start worker processes, so this DataLoader uses threads"
        warn(f"{text}; pass executor='thread'")
        return Choice("thread", text)
    return choice


def _has_small_rows(dataset: Any) -> bool:
    try:
        if not len(dataset):
            return True
    except TypeError:  # its keys are not 0, 1, 2, ...
        return False
    return sum(getattr(leaf, "nbytes", sys.getsizeof(leaf)) for _, leaf in leaves(dataset[0])) <= _SMALL_ROW
