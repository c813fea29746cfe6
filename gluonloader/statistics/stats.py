"""How a loader has spent its time, as `DataLoader.stats` returns it; tally.py counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from ..describe import counted
from ..limits import available_cores
from ..memory.budget import MemoryStats
from ..units import duration, percent, size
from ..work.usage import NOTHING_SPENT, Usage, WorkerStats
from .tally import EpochTally, Tally, items_of

if TYPE_CHECKING:
    from ..stores.cache import CacheStats

_SLOW: Final = 10  # a slow batch takes more than this many times as long as the median
_SUMS: Final = ("batches", "samples", "nbytes", "waited_s", "first_s", "program_s", "made_s", "slow_s", "deaths",
                "retries")  # fmt: skip
ENOUGH: Final = 32  # batches, before there is advice


@dataclass(frozen=True, slots=True)
class EpochStats:
    """What the program received in one epoch, and how long it waited.

    Attributes:
        epoch: number of the epoch.
        batches, samples: number of batches and of samples that were delivered.
        nbytes: bytes of these batches, estimated from one batch in 64.
        waited_s: seconds that the program spent in `next`. Without workers, this includes the time to make the batches.
        first_s: how many of these seconds the program waited for the first batch, for example while workers started.
        program_s: seconds that the program spent between two calls of `next`.
        made_s: seconds that workers (or the program, without workers) spent making these batches.
        slowest_s, slowest: seconds that the slowest batch took to make, and its number; None before the first batch.
        wait_p50_s, wait_p90_s, wait_p99_s: percentiles of the seconds that the program waited for a batch; of the last
            4,096 batches.
        ready: how many batches were ready on average when the program asked for one.
    """

    epoch: int
    batches: int
    samples: int
    nbytes: int
    waited_s: float
    first_s: float
    program_s: float
    made_s: float
    slowest_s: float
    slowest: int | None
    wait_p50_s: float
    wait_p90_s: float
    wait_p99_s: float
    ready: float

    @property
    def waited(self) -> float:
        """The share of its time that the program waited, from 0 to 1."""
        total = self.waited_s + self.program_s
        return self.waited_s / total if total else 0.0


@dataclass(frozen=True, slots=True)
class LoaderStats(EpochStats):
    """How a loader spent its time in this process, over all epochs.

    The attributes of `EpochStats` are the sums of all epochs; `epoch` is the number of the newest one. `print` shows a
    summary and the advice.

    Attributes:
        executor: "serial", "thread", "process" or "ray"; with "auto" the one that was chosen.
        why: the reason for that executor.
        num_workers: number of workers; 0 in the serial executor.
        cores: number of cores that this process may use.
        window: the maximum number of batches in flight.
        concurrency: how many samples of a batch each worker reads at the same time.
        workers: how each worker of the current executor spent its time; without workers, one item for the program.
        work: the sum of the times of all workers, including those of earlier executors.
        memory: the shared memory of the batches; None if batches are not in shared memory.
        slow_s: seconds that slow batches took to make: batches that took more than 10 times as long as the median.
        deaths: number of workers that died.
        retries: number of batches that were made again because their worker died.
        errors: number of samples that raised an error and were skipped or replaced; see `on_error`.
        skipped: how many of these were skipped; they are not counted in `samples`.
        failed: number of batches for which `next` raised an error instead of returning them.
        epochs: the same figures for each of the last 100 epochs.
        advice: what limits the loader and what to change, as text; "" before 32 batches.
        cache: what the cache of the dataset has done, for all programs that use it; None if there is none. If the
            dataset has several, it is the first one; see `NodeCache.stats`.
    """

    executor: str
    why: str
    num_workers: int
    cores: int
    window: int
    concurrency: int
    workers: tuple[WorkerStats, ...]
    work: WorkerStats
    memory: MemoryStats | None
    slow_s: float
    deaths: int
    retries: int
    errors: int
    epochs: tuple[EpochStats, ...]
    advice: str = ""
    skipped: int = 0
    failed: int = 0
    cache: CacheStats | None = None

    @property
    def slower(self) -> Literal["source", "trainer"]:
        """Whether making the batches or using them is slower, so that the other side waits for it."""
        return "source" if self.waited_s > self.work.idle_s / max(1, len(self.workers)) else "trainer"

    @property
    def waiting(self) -> float:
        """The share of the time for batches in which workers waited for data, from 0 to 1.

        Workers wait for data if they neither compute nor wait for a core. If the system does not say how long they
        waited for a core, that time counts as well.
        """
        work = self.work
        return min(1.0, max(0.0, 1 - (work.cpu_s + work.core_wait_s) / work.made_s)) if work.made_s else 0.0

    @property
    def waiting_for_core(self) -> float:
        """The share of the time for batches in which workers waited for a core, from 0 to 1; 0 if that is unknown."""
        return self.work.core_wait_s / self.work.made_s if self.work.made_s else 0.0

    def __str__(self) -> str:
        kind = f"{self.executor} worker"
        who = counted(self.num_workers, kind, f"{kind}s") if self.num_workers else "no workers"
        what = f"{counted(self.batches, 'batch', 'batches')} ({self.samples:,} samples, {size(self.nbytes)})"
        waits = ", ".join(map(duration, (self.wait_p50_s, self.wait_p90_s, self.wait_p99_s)))
        waited = f"waited {duration(self.waited_s)}, {percent(self.waited)} of the time; p50, p90, p99: {waits}"
        cache = "" if self.cache is None else f"{self.cache}."
        more = self._deaths_text(), self._errors_text(), cache, self.verdict
        return "\n".join(filter(None, (f"{who}; {what}; {waited}.", *more)))

    @property
    def verdict(self) -> str:
        """The advice, or a sentence that there is none yet."""
        return self.advice if self.batches >= ENOUGH else f"There is no advice before {ENOUGH} batches."

    def since(self, earlier: LoaderStats) -> LoaderStats:
        """The figures from `earlier` on, as far as `advice` needs them; without advice."""
        sums = {name: getattr(self, name) - getattr(earlier, name) for name in _SUMS}
        return replace(self, work=self.work - earlier.work, advice="", **sums)

    def _deaths_text(self) -> str:
        """How many workers died, and how many batches were made again for that; "" if none died."""
        if not self.deaths:
            return ""
        again = f"; {counted(self.retries, 'batch was', 'batches were')} made again" if self.retries else ""
        return f"{counted(self.deaths, 'worker', 'workers')} died{again}."

    def _errors_text(self) -> str:
        """How many samples and batches raised an error; "" if none did."""
        replaced = self.errors - self.skipped
        fates = [f"{self.skipped:,} skipped"] * bool(self.skipped) + [f"{replaced:,} replaced"] * bool(replaced)
        samples = f"{counted(self.errors, 'sample', 'samples')} raised an error ({', '.join(fates)})."
        batches = f"{counted(self.failed, 'batch', 'batches')} raised an error and did not arrive."
        return " ".join([samples] * bool(self.errors) + [batches] * bool(self.failed))


def summarize(
    tally: Tally,
    usage: Usage,
    earlier: WorkerStats = NOTHING_SPENT,
    memory: MemoryStats | None = None,
    *,
    executor: str,
    why: str,
    num_workers: int,
    window: int,
    concurrency: int = 1,
) -> LoaderStats:
    """The statistics from the counts of the program and the reports of the workers; `earlier`: of earlier workers."""
    sums, spent = tally.sums(), usage.fold()
    return LoaderStats(
        **asdict(_of_epoch(sums)),
        executor=executor,
        why=why,
        num_workers=num_workers,
        cores=available_cores(),
        window=window,
        concurrency=concurrency,
        workers=tuple(spent.values()),
        work=sum(spent.values(), earlier),
        memory=memory,
        slow_s=slow_seconds(sums.makes),
        deaths=tally.deaths + usage.deaths,
        retries=tally.retries + usage.retries,
        errors=tally.errors,
        skipped=tally.skipped,
        failed=tally.failed,
        epochs=tuple(map(_of_epoch, tally.epochs())),
    )


def _of_epoch(tally: EpochTally) -> EpochStats:
    waits = items_of(tally.waits)
    p50, p90, p99 = np.percentile(waits, [50, 90, 99]).tolist() if waits else (0.0, 0.0, 0.0)
    return EpochStats(
        epoch=tally.epoch,
        batches=tally.batches,
        samples=tally.samples,
        nbytes=tally.nbytes,
        waited_s=tally.waited_s,
        first_s=tally.first_s,
        program_s=tally.program_s,
        made_s=tally.made_s,
        slowest_s=tally.slowest_s,
        slowest=tally.slowest,
        wait_p50_s=p50,
        wait_p90_s=p90,
        wait_p99_s=p99,
        ready=tally.ready / tally.batches if tally.batches else 0.0,
    )


def slow_seconds(makes: Iterable[float]) -> float:
    """The sum of the times that are more than 10 times as long as the median.

    >>> slow_seconds([0.01] * 99 + [3.0])
    3.0
    """
    found = list(makes)
    limit = _SLOW * float(np.median(found)) if found else 0.0
    return sum(seconds for seconds in found if seconds > limit)
