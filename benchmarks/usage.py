"""Measures processor time, page faults and memory of a loader, in a separate program for each loader."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import gluonloader.mxnet

from .cases import CASES, Case
from .loaders import Loader
from .processes import Spent, memory_of, peak, processes, shared_memory
from .programs import in_new_program
from .variants import LOADERS

_WARM_UP: Final = 2  # epochs that are not measured


@dataclass(frozen=True)
class Usage:
    """Processor time, page faults and memory of a loader. All figures except `peak` are per batch.

    Attributes:
        parent_s: processor time of the main program with all its threads, in seconds.
        tree_s: processor time of the main program and the workers, in seconds.
        parent_faults: minor page faults of the main program.
        worker_faults: minor page faults of the workers.
        peak: highest memory of the main program, the workers and all shared memory, minus the memory in use before the
            loader was opened, in bytes.
    """

    parent_s: float
    tree_s: float
    parent_faults: float
    worker_faults: float
    peak: int


def measure_usage(case: Case, loader: Loader, workers: int) -> Usage:
    """Measures a loader in a new program."""
    return in_new_program(_measured, case.name, loader.name, workers)


def _measured(case: str, loader: str, workers: int) -> Usage:
    gluonloader.mxnet.patch_numpy()
    return usage_of(CASES[case], next(each for each in LOADERS if each.name == loader), workers)


def usage_of(
    case: Case,
    loader: Loader,
    workers: int,
    *,
    counted_s: float = 1.5,
    sampled_s: float = 0.5,
    memory: Callable[[], int] | None = None,
) -> Usage:
    """Measures the usage of a loader in this process, over whole epochs.

    Args:
        case: what is loaded.
        loader: the loader that is measured.
        workers: number of workers that the case asks for.
        counted_s: for at least this many seconds, processor time and page faults are counted.
        sampled_s: for at least this many seconds, the memory is sampled.
        memory: function that returns the bytes in use now. By default it counts the memory of this process and its
            descendants, and all shared memory of the machine, since a batch in flight may be mapped by no process.
    """
    memory = memory or _memory
    loader.imported()
    dataset = case.dataset()
    gc.collect()
    before = memory()
    with loader.open(case, dataset, loader.workers(case, workers)) as run:
        for _ in range(_WARM_UP):
            run.epoch()
        start = _spent()
        epochs = _repeat(run.epoch, counted_s)
        end = _spent()
        with peak(memory) as samples:
            _repeat(run.epoch, sampled_s)
    return _per_batch(start, end, epochs * run.drawn, max(samples) - before)


def _repeat(epoch: Callable[[], object], seconds: float) -> int:
    start, epochs = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        epoch()
        epochs += 1
    return epochs


def _per_batch(start: Mapping[int, Spent], end: Mapping[int, Spent], batches: int, peak: int) -> Usage:
    none = Spent(0.0, 0)
    cpu = {pid: (spent.cpu_s - start.get(pid, none).cpu_s) / batches for pid, spent in end.items()}
    faults = {pid: (spent.faults - start.get(pid, none).faults) / batches for pid, spent in end.items()}
    parent = os.getpid()
    return Usage(cpu[parent], sum(cpu.values()), faults[parent], sum(faults.values()) - faults[parent], peak)


def _spent() -> dict[int, Spent]:
    """Returns what this process and its descendants have spent; the processor time of this process is exact."""
    spent, own = processes(), os.getpid()
    return {**spent, own: Spent(time.process_time(), spent[own].faults)}


def _memory() -> int:
    """Returns the bytes of memory of this process and its descendants, and of all shared memory."""
    return memory_of("Pss_Anon", "Pss_File") + shared_memory()
