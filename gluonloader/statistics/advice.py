"""What limits a loader, and what to change: a few sentences, each with its figure.

LoaderStats --> does the program wait? --> why are the workers slow? --> is memory short? --> text
"""

from __future__ import annotations

import mmap
import time
from contextlib import suppress
from functools import cache
from typing import Final

from ..describe import counted
from ..units import duration, percent
from .stats import ENOUGH, LoaderStats

_WAITS: Final = 0.1  # the program waits for the loader if it spends more of its time there
_TINY_S: Final = 200e-6  # getting a batch from a worker takes 25 to 50 us in each of the two processes
_LEAST_FAULT_S: Final = 0.2e-6
_PAGES: Final = 1024  # whose faults are measured
_FAULTY: Final = 0.2  # share of the time of workers that page faults may take
_DATA: Final = 0.5  # the share of a worker's time; workers that wait less for data do not need `concurrency`
_CORE: Final = 0.4  # the same for a core; a program that computes beside as many workers as cores causes 0.33
_MOST_CONCURRENCY: Final = 32  # the largest value that is advised
_IDLE: Final = 0.6  # the share of the time of workers; if it is larger, they are not the limit
_SLOW: Final = 0.5  # the share of the time that the program waits; slow batches that took longer are the cause


def advise(stats: LoaderStats, overlaps: bool, has_undeclared: bool = False) -> str:
    """The advice for these figures; "" before 32 batches.

    Args:
        overlaps: whether `concurrency` applies to this dataset.
        has_undeclared: whether processes make the batches only because a part does not declare that it is thread-safe.
    """
    if stats.batches < ENOUGH:
        return ""
    sentences = [_on_program(stats)]
    if stats.waited >= _WAITS and stats.work.made_s:  # all batches may have been made before these statistics
        on_waiting = [_on_waiting_workers] * overlaps
        causes = (
            _on_slow_batches,
            _on_tiny_batches,
            _on_start,
            _on_idle_workers,
            _on_used_cores,
            *on_waiting,
            _on_page_faults,
            _on_batchify,
            _on_reading,
        )
        sentences.append(next((text for cause in causes if (text := cause(stats))), ""))
    sentences.append(_on_memory(stats))
    if has_undeclared:
        sentences.append(f"This Python has no GIL, but {stats.why}: with it, threads make the batches without a copy.")
    return " ".join(filter(str.strip, sentences))


def advise_on_source(stats: LoaderStats) -> str:
    """The advice for a bridge, whose source makes the batches; "" before 32 batches."""
    if stats.batches < ENOUGH:
        return ""
    waited = f"The program waited {percent(stats.waited)} of the time"
    if stats.waited < _WAITS:
        return f"{waited}: the program is the limit, not the source."
    per_batch = duration(stats.made_s / stats.batches)
    return f"{waited}: the source is the limit ({per_batch} per batch): give it more workers."


def _on_program(stats: LoaderStats) -> str:
    waited = f"The program waited {percent(stats.waited)} of the time"
    idle = _idle(stats)
    if stats.waited >= _WAITS and stats.num_workers and idle >= _IDLE:
        return f"{waited}, although workers were idle {percent(idle)} of the time."
    if stats.waited >= _WAITS:
        return f"{waited}: {'workers are' if stats.num_workers else 'making batches is'} the limit."
    text = f"{waited}: the program is the limit, not the loader."
    enough = max(1, round(stats.num_workers * (1 - idle) + 0.5))
    if stats.num_workers > 1 and enough < stats.num_workers:
        text += f" Workers were idle {percent(idle)} of the time, so num_workers={enough} is enough."
    return text


def _idle(stats: LoaderStats) -> float:
    """The share of their time that workers were idle, from 0 to 1."""
    work = stats.work
    return work.idle_s / (work.idle_s + work.made_s) if work.idle_s else 0.0


def _on_slow_batches(stats: LoaderStats) -> str:
    """A few samples take very long, and prefetched batches do not cover this."""
    if stats.slow_s < _SLOW * stats.waited_s or not stats.epochs:  # those of a whole program have no epochs
        return ""
    slow = max(stats.epochs, key=lambda epoch: epoch.slowest_s)
    usual = duration((stats.made_s - stats.slow_s) / stats.batches)
    cure = "raise prefetch, or pass in_order=False" if stats.num_workers else "pass num_workers: workers read ahead"
    return (
        f"A few slow batches took {duration(stats.slow_s)}: batch {slow.slowest} of epoch {slow.epoch} took "
        f"{duration(slow.slowest_s)}, a usual batch {usual}; look at it with loader.replay({slow.epoch}, "
        f"{slow.slowest}); {cure}."
    )


def _on_tiny_batches(stats: LoaderStats) -> str:
    made_s = stats.made_s / stats.batches
    if made_s >= _TINY_S:
        return ""
    text = f"Making a batch takes only {duration(made_s)}, about as long as getting it from a worker: raise batch_size"
    return f"{text}, or pass num_workers=0." if stats.num_workers else f"{text}."


def _on_start(stats: LoaderStats) -> str:
    """The program waits for the first batch for longer than all batches take to make."""
    if not stats.num_workers or stats.first_s <= max(stats.made_s, stats.waited_s / 2):
        return ""
    return (
        f"{duration(stats.first_s)} of this was the wait for the first batch, although making all batches took only "
        f"{duration(stats.made_s)}: workers and sampler take this long to start. Create the loader early, and use it "
        "for all epochs."
    )


def _on_idle_workers(stats: LoaderStats) -> str:
    """Workers have no batch to make, although the program waits."""
    if not stats.num_workers or _idle(stats) < _IDLE:
        return ""
    if stats.memory is not None and stats.memory.refusals > stats.batches // 10:
        return " "  # the sentence on memory follows
    return (
        f"At most {counted(stats.window, 'batch', 'batches')} may be in flight, and each epoch starts when the program "
        "asks for it: raise prefetch, or pass auto_reload=True."
    )


def _on_used_cores(stats: LoaderStats) -> str:
    """Workers could compute, but other threads and programs use the cores."""
    if stats.waiting_for_core < max(_CORE, stats.waiting):
        return ""
    who, workers = ("Workers", stats.num_workers) if stats.num_workers else ("The program", 1)
    cores = counted(stats.cores, "core", "cores")
    text = f"{who} waited for a core {percent(stats.waiting_for_core)} of the time for a batch"
    if workers > stats.cores:
        return f"{text}: {workers} workers share {cores}: pass num_workers={stats.cores}, or stop other programs."
    fewer = ", pass fewer workers" if workers > 1 else ""
    return f"{text}: other programs or threads use the {cores}: stop them{fewer}, or set OMP_NUM_THREADS=1."


def _on_waiting_workers(stats: LoaderStats) -> str:
    """Workers wait for data, and cores are free, so that more samples should be read at the same time."""
    computes, workers = 1 - stats.waiting, max(1, stats.num_workers)  # or would, if they had a core
    if stats.waiting < _DATA or workers * computes > stats.cores / 2:
        return ""
    if stats.concurrency > 1 and stats.executor not in ("process", "ray"):
        return ""  # the computing of threads that `concurrency` starts counts as waiting
    # With this concurrency, workers would keep all cores busy. A worker reads the samples of one batch at a time.
    whole_batch = 1 << (-(-stats.samples // stats.batches) - 1).bit_length()
    now = min(stats.concurrency, whole_batch)
    useful = now * stats.cores / workers / max(computes, 1 / _MOST_CONCURRENCY)
    advised = min(_MOST_CONCURRENCY, whole_batch, 1 << max(now.bit_length(), int(useful).bit_length() - 1))
    who = "Workers spent" if stats.num_workers else "Making batches spent"
    text = f"{who} {percent(stats.waiting)} of the time waiting"
    if now > 1:
        text += f", although each reads {now} samples at the same time"
    cure = f"concurrency={advised}" if advised > now else f"num_workers={2 * stats.num_workers or 2}"
    return f"{text}: if samples wait for a disk or a network, pass {cure}."


def _on_page_faults(stats: LoaderStats) -> str:
    work = stats.work
    if not work.cpu_s or work.page_faults < 0.1 * _FAULTY * work.cpu_s / _LEAST_FAULT_S:
        return ""
    share = min(1.0, work.page_faults * fault_seconds() / work.cpu_s)
    if share < _FAULTY:
        return ""
    count = work.page_faults / max(1, stats.samples)
    return (
        f"Each sample had {count:,.0f} page faults, about {percent(share)} of the computing time, because large "
        "temporary arrays got new memory: reuse arrays (out=), or create them with gluonloader.empty in batchify_fn; "
        "`python -m gluonloader doctor` checks the settings of the allocator."
    )


@cache
def fault_seconds() -> float:
    """Seconds that one page fault takes on this machine, from 0.2 us to several us in a virtual machine."""
    memory = mmap.mmap(-1, _PAGES * mmap.PAGESIZE)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with suppress(OSError):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    start = time.thread_time()
    for offset in range(0, len(memory), mmap.PAGESIZE):
        memory[offset] = 1
    return max(_LEAST_FAULT_S, (time.thread_time() - start) / _PAGES)


def _on_batchify(stats: LoaderStats) -> str:
    share = stats.work.batchify_s / stats.work.made_s
    if share < 0.5:
        return ""
    per_batch = duration(stats.work.batchify_s / stats.work.batches)
    return (
        f"batchify_fn takes {percent(share)} of the time for a batch ({per_batch} per batch): use NumPy functions on "
        f"whole arrays, and create the arrays with gluonloader.empty.{_more_workers(stats)}"
    )


def _on_reading(stats: LoaderStats) -> str:
    share = stats.work.read_s / stats.work.made_s
    per_sample = duration(stats.work.read_s / max(1, stats.samples))
    text = f"Reading samples takes {percent(share)} of the time for a batch ({per_sample} per sample)."
    busy = "" if stats.waiting >= _DATA else " All cores are busy: make dataset[i] cheaper, or use more machines."
    return text + (_more_workers(stats) or busy)


def _more_workers(stats: LoaderStats) -> str:
    """How many workers would help, if cores are free."""
    workers, free = stats.num_workers, stats.cores - max(1, stats.num_workers)
    if free <= 0 and workers:
        return ""
    if not workers:
        useful = max(1, stats.cores - 1, round(stats.cores * stats.waited))  # a program that only waits needs no core
        return f" Workers make batches while the program computes: pass num_workers={useful}."
    more = min(2 * workers, stats.cores)
    effect = "about half as long" if more == 2 * workers else f"{percent(1 - workers / more)} less time"
    return f" {more} workers would take {effect}; this machine has {free} more core{'s' * (free > 1)}."


def _on_memory(stats: LoaderStats) -> str:
    memory = stats.memory
    if memory is None or memory.limit is None:
        return ""
    if memory.copies:
        count = f"{memory.copies:,} {'copies' if memory.copies > 1 else 'copy'}"
        return f"memory_limit forced {count} of batches: raise memory_limit, or drop batches sooner."
    if memory.refusals > stats.batches // 10 and stats.waited >= _WAITS:
        return f"memory_limit left no room for a batch {memory.refusals:,} times: raise memory_limit."
    return ""
