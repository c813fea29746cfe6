"""What a sample costs, measured by a worker that runs in this process, and whether it draws random numbers."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...comparing import Items, items_of
from ...loader import DataLoader
from ...loading.index_source import IndexSource
from ...memory.buffers import BatchMemory, BufferPool
from ...memory.warm import LARGEST_IN_WORKER, keep_freed_memory
from ...messages import message
from ...randomness import Draws, set_current_seed
from ...work.maker import BatchMaker, held_by
from ...work.streams import ShardBatch, ShardEnd
from ...work.task import Chunk, Task
from ...work.tolerance import Tolerated
from ...work.usage import process_resources
from .everywhere import Everywhere, EverywhereReader
from .time_limit import OutOfTime

_WARM_UP: Final = 2  # batches that are not counted: the first ones import modules, open files and touch new memory


@message(frozen=True, slots=True)
class Cost:
    """The cost of a sample, as the mean over some batches.

    Attributes:
        samples: how many were measured.
        batch_bytes: of the largest batch.
        wall_s, cpu_s: seconds for a sample and its share of `batchify_fn`; the CPU time of all threads.
        core_wait_s: seconds of `wall_s` in which other programs or threads used all cores; 0 if that is unknown.
        page_faults: for each sample.
        batch_share: bytes of a sample in the batch.
        read_bytes: for each sample, by calls that read; mapped files are not counted.
        draws: generators other than `get_rng` that random numbers were drawn from.
    """

    samples: int
    batch_bytes: int
    wall_s: float
    cpu_s: float
    core_wait_s: float
    page_faults: float
    batch_share: float
    read_bytes: float
    draws: tuple[str, ...]

    @property
    def waiting(self) -> float:
        """The share of the time in which no thread computed or waited for a core, from 0 to 1."""
        return max(0.0, 1 - (self.cpu_s + self.core_wait_s) / self.wall_s) if self.wall_s else 0.0

    @property
    def waiting_for_core(self) -> float:
        """The share of the time of waiting for a core, from 0 to 1."""
        return self.core_wait_s / self.wall_s if self.wall_s else 0.0


def measure(
    loader: DataLoader[Any], batches: int, made: Callable[[int], object], everywhere_s: float
) -> tuple[Cost, Everywhere | None]:
    """Makes the first batches of a loader in this process, as its worker 0 does; the loader itself reads nothing.

    Then it reads samples from everywhere in the epoch, unless the dataset is iterable or the time is over.

    Args:
        batches: how many to make; `made` is called with 1 after each.
        everywhere_s: how long to read samples from everywhere.

    Raises:
        ValueError: the loader has no batches.
        OutOfTime: the first batch was not made in time.
        Exception: any error of the dataset or of `batchify_fn`.
    """
    job = loader.epochs.workers.job
    job = replace(job, reading=replace(job.reading, concurrency=1))
    keep_freed_memory(LARGEST_IN_WORKER)
    # As in a worker thread: the global generators are not seeded, so a draw changes them.
    maker = BatchMaker(job, 0, set_current_seed, process_resources)
    source = loader.epochs.source
    plan, draws = source.plan(0, job.seed, None), Draws(held_by(job))
    counts, names, everywhere = list[_Count](), set[str](), None
    try:
        with maker.running():
            maker.start(0)
            _count(maker, islice(iter(partial(_next, plan), None), batches), draws, counts, names, made)
            if counts and isinstance(source, IndexSource):
                everywhere = EverywhereReader(maker, source.sampler, job.seed).read(everywhere_s)
    except OutOfTime:
        if not counts:
            raise
    finally:
        maker.close()
        set_current_seed(None)
    if not counts:
        raise ValueError("the loader yields no batch: is its dataset empty?")
    return _mean(counts, tuple(sorted(names))), everywhere


def _count(
    maker: BatchMaker,
    tasks: Iterator[Task],
    draws: Draws,
    counts: list[_Count],
    names: set[str],
    made: Callable[[int], object],
) -> None:  # see NOTE [loops and try] in interrupts.py
    """Makes the batches of the tasks; adds the counts of each batch, and the generators from which it drew."""
    memory = BatchMemory(BufferPool(1))
    streams = maker.new_streams() if maker.reads_streams else None
    for task in tasks:
        draws.mark()
        # The counters are read before and after the clock, so they cover at least the time that it measures.
        before, start = _Count.now(), time.perf_counter()
        with memory:
            batch = _batch_of(maker.make(task, streams=streams))
        wall_s = time.perf_counter() - start
        count = _Count.now() - before
        names.update(draws.found())
        if batch is None:
            break
        core_wait_s = min(count.core_wait_s, wall_s)
        nbytes = _nbytes(items_of(batch))
        counts.append(replace(count, wall_s=wall_s, core_wait_s=core_wait_s, samples=_samples(task), nbytes=nbytes))
        del batch  # its memory is used again
        made(1)


@message(frozen=True, slots=True)
class _Count:
    """Counters of this process, or their differences for one batch."""

    cpu_s: float
    core_wait_s: float
    faults: int
    read: int
    wall_s: float = 0.0
    samples: int = 0
    nbytes: int = 0

    @classmethod
    def now(cls) -> _Count:
        used = process_resources()
        return cls(used.cpu_ns / 1e9, used.core_wait_ns / 1e9, used.page_faults, _bytes_read())

    def __sub__(self, other: _Count) -> _Count:
        return _Count(
            self.cpu_s - other.cpu_s,
            self.core_wait_s - other.core_wait_s,
            self.faults - other.faults,
            self.read - other.read,
        )


def _mean(counts: list[_Count], draws: tuple[str, ...]) -> Cost:
    used = counts[min(_WARM_UP, len(counts) - 1) :]
    samples = max(1, sum(count.samples for count in used))
    return Cost(
        samples=samples,
        batch_bytes=max(count.nbytes for count in counts),
        wall_s=sum(count.wall_s for count in used) / samples,
        cpu_s=sum(count.cpu_s for count in used) / samples,
        core_wait_s=sum(count.core_wait_s for count in used) / samples,
        page_faults=sum(count.faults for count in used) / samples,
        batch_share=sum(count.nbytes for count in used) / samples,
        read_bytes=sum(count.read for count in used) / samples,
        draws=draws,
    )


def _next(plan: Any) -> Task | None:
    try:
        task: Task | None = plan.next()
        return task
    except StopIteration:
        return None


def _batch_of(made: Any) -> Any:
    """The batch that a worker made; None if it made none, because a shard has ended or all samples were skipped."""
    if type(made) is Tolerated:
        return None if made.is_empty else made.batch
    return None if type(made) is ShardEnd else made.batch if type(made) is ShardBatch else made


def _samples(task: Task) -> int:
    return task.work.size if isinstance(task.work, Chunk) else len(task.indices or ())


def _nbytes(items: Items) -> int:
    values = (value for _, _, value in items if value is not None)
    return sum(value.nbytes if isinstance(value, np.ndarray) else sys.getsizeof(value) for value in values)


def _bytes_read() -> int:
    """The bytes that this process has read by system calls; 0 if that is unknown."""
    try:
        return int(Path("/proc/self/io").read_text().split()[1])  # rchar
    except (OSError, ValueError, IndexError):
        return 0
