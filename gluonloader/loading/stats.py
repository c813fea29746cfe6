"""Counts how a loader spends its time: its epochs count, and `DataLoader.stats` returns the result."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from statistics import fmean, median
from typing import Any, Final, Literal, TypeVar

import numpy as np

from ..describe import counted
from ..limits import available_cores
from ..locks import Lock
from ..memory.budget import MemoryStats
from ..tree import leaves
from ..units import duration, percent, size
from ..work.info import BadSample
from ..work.usage import NOTHING_SPENT, Usage, WorkerStats
from .trace import Trace

_RECENT: Final = 256  # batches
_TIMES: Final = 4096  # batches, for percentiles
_STARTING: Final = 16  # this many first batches of an epoch are not typical, since workers have no lead yet
_SLOW: Final = 10  # a slow batch takes more than this many times as long as the median
_EPOCHS: Final = 100  # epochs that `LoaderStats.epochs` lists; older ones are added up
_BURST: Final = 8  # batches; fewer would measure the gaps inside a burst
_SUMS: Final = "batches", "samples", "nbytes", "waited_s", "program_s", "made_s", "slow_s", "deaths", "retries"
_LOGGED: Final = 1000  # different errors of samples
ENOUGH: Final = 32  # batches, before there is advice
_SIZED: Final = 64  # one batch of so many is measured in bytes, since this takes as long as all other counting

_log = logging.getLogger("gluonloader")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EpochStats:
    """What the program received in one epoch, and how long it waited.

    Attributes:
        epoch: number of the epoch.
        batches, samples: number of batches and of samples that were delivered.
        nbytes: bytes of these batches, estimated from one batch in 64.
        waited_s: seconds that the program spent in `next`. Without workers, this includes the time to make the batches.
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


def _items(items: deque[T]) -> list[T]:
    """The items of a deque, to which another thread may append meanwhile."""
    while True:
        try:
            return list(items)
        except RuntimeError:  # without a GIL, it may change while it is copied
            continue


def _nbytes_of(leaf: Any) -> int:
    try:
        return int(getattr(leaf, "nbytes", 0))
    except Exception:  # sparse tensors of torch raise a RuntimeError
        return 0


@dataclass(slots=True)
class EpochTally:
    """The counts of one epoch; see `EpochStats`."""

    epoch: int
    batches: int = 0
    samples: int = 0
    waited_s: float = 0.0
    program_s: float = 0.0
    made_s: float = 0.0
    slowest_s: float = 0.0
    slowest: int | None = None
    ready: int = 0
    returned: float = 0.0  # when `next` returned last, as `time.perf_counter()`
    skip: int = 0  # first batches that are not typical
    waits: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES))
    makes: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES))
    _sized: int = 0  # batches whose bytes were counted
    _nbytes: int = 0

    def count(self, batch: Any, number: int, samples: int, made_s: float, start: float) -> float:
        """Counts a batch that `next`, called at `start`, is about to return; returns the time now."""
        now = time.perf_counter()
        if not self.batches % _SIZED:
            self._size(batch)
        self.batches += 1
        self.samples += samples
        self.waited_s += now - start
        self.waits.append(now - start)
        self.program_s += start - self.returned if self.returned else 0.0
        self.made_s += made_s
        self.makes.append(made_s)
        if made_s > self.slowest_s:
            self.slowest_s, self.slowest = made_s, number
        self.returned = now
        return now

    def _size(self, batch: Any) -> None:
        """Counts the bytes of a batch."""
        self._sized += 1
        self._nbytes += sum(_nbytes_of(leaf) for _, leaf in leaves(batch))

    def add(self, other: EpochTally) -> None:
        for name in ("batches", "samples", "waited_s", "program_s", "made_s", "ready", "_sized", "_nbytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.slowest_s > self.slowest_s:
            self.slowest_s, self.slowest = other.slowest_s, other.slowest
        self.waits.extend(_items(other.waits))
        self.makes.extend(_items(other.makes))

    def typical(self, times: deque[float]) -> list[float]:
        """Those of `waits` or `makes` that are typical."""
        return _items(times)[self.skip if self.batches <= _TIMES else 0 :]

    def stats(self) -> EpochStats:
        waits = _items(self.waits)
        p50, p90, p99 = np.percentile(waits, [50, 90, 99]).tolist() if waits else (0.0, 0.0, 0.0)
        return EpochStats(
            epoch=self.epoch,
            batches=self.batches,
            samples=self.samples,
            nbytes=round(self._nbytes / self._sized * self.batches) if self._sized else 0,
            waited_s=self.waited_s,
            program_s=self.program_s,
            made_s=self.made_s,
            slowest_s=self.slowest_s,
            slowest=self.slowest,
            wait_p50_s=p50,
            wait_p90_s=p90,
            wait_p99_s=p99,
            ready=self.ready / self.batches if self.batches else 0.0,
        )


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
        return "\n".join(filter(None, (f"{who}; {what}; {waited}.", self._errors_text(), self.verdict)))

    @property
    def verdict(self) -> str:
        """The advice, or a sentence that there is none yet."""
        return self.advice if self.batches >= ENOUGH else f"There is no advice before {ENOUGH} batches."

    def since(self, earlier: LoaderStats) -> LoaderStats:
        """The figures from `earlier` on, as far as `advice` needs them; without advice."""
        sums = {name: getattr(self, name) - getattr(earlier, name) for name in _SUMS}
        return replace(self, work=self.work - earlier.work, advice="", **sums)

    def _errors_text(self) -> str:
        """How many samples and batches raised an error; "" if none did."""
        replaced = self.errors - self.skipped
        fates = [f"{self.skipped:,} skipped"] * bool(self.skipped) + [f"{replaced:,} replaced"] * bool(replaced)
        samples = f"{counted(self.errors, 'sample', 'samples')} raised an error ({', '.join(fates)})."
        batches = f"{counted(self.failed, 'batch', 'batches')} raised an error and did not arrive."
        return " ".join([samples] * bool(self.errors) + [batches] * bool(self.failed))


@dataclass(slots=True)
class Tally:
    """The counts of all epochs of a loader in one process; `trace` records each batch, if that was asked for."""

    errors: int = 0
    skipped: int = 0
    failed: int = 0
    pid: int = field(default_factory=os.getpid)
    trace: Trace | None = None
    _epochs: deque[EpochTally] = field(default_factory=deque)
    _recent: deque[EpochTally] = field(default_factory=lambda: deque(maxlen=_RECENT))  # of the current executor
    _earlier: EpochTally = field(default_factory=lambda: EpochTally(0))  # the sum of epochs that are not kept
    _logged: set[str] = field(default_factory=set)  # errors of samples
    _lock: Lock = field(default_factory=Lock)  # while an epoch is added to the earlier ones

    def start(self, epoch: int, window: int) -> EpochTally:
        """Starts to count an epoch, in which `window` batches are in flight at the start."""
        tally = EpochTally(epoch, skip=min(window, _STARTING))
        with self._lock:
            self._epochs.append(tally)
            self._recent.append(tally)
            if len(self._epochs) > _EPOCHS:
                self._earlier.add(self._epochs.popleft())
        return tally

    def forget(self) -> None:
        """Called when the executor changes: `recent_waits` and `recent_makes` are those of one executor."""
        self._recent.clear()

    def recent_waits(self) -> list[float]:
        """How long the program waited for each recent batch, except batches at the start of an epoch; seconds."""
        return [seconds for tally in _items(self._recent) for seconds in tally.typical(tally.waits)][-_RECENT:]

    def recent_makes(self) -> list[float]:
        """How long making these batches took; seconds."""
        return [seconds for tally in _items(self._recent) for seconds in tally.typical(tally.makes)][-_RECENT:]

    def sums(self) -> EpochTally:
        """The counts of all epochs together."""
        with self._lock:
            sums = EpochTally(self._epochs[-1].epoch if self._epochs else 0)
            for tally in (self._earlier, *self._epochs):
                sums.add(tally)
        return sums

    def epochs(self) -> tuple[EpochStats, ...]:
        return tuple(tally.stats() for tally in _items(self._epochs))

    def note(self, errors: Iterable[BadSample]) -> None:
        """Counts samples that raised an error, and logs each different error once."""
        for bad in errors:
            self.errors += 1
            self.skipped += bad.skipped
            if bad.error in self._logged or len(self._logged) > _LOGGED:
                continue
            self._logged.add(bad.error)
            if len(self._logged) > _LOGGED:
                _log.warning("samples raised more than %d different errors; further errors are not logged", _LOGGED)
            else:
                _log.warning("%s raised an error, so on_error applies: %s", bad.sample, bad.error)


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
        **asdict(sums.stats()),
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
        deaths=usage.deaths,
        retries=usage.retries,
        errors=tally.errors,
        skipped=tally.skipped,
        failed=tally.failed,
        epochs=tally.epochs(),
    )


def slow_seconds(makes: Iterable[float]) -> float:
    """The sum of the times that are more than 10 times as long as the median.

    >>> slow_seconds([0.01] * 99 + [3.0])
    3.0
    """
    found = list(makes)
    limit = _SLOW * median(found) if found else 0.0
    return sum(seconds for seconds in found if seconds > limit)


def usual_wait(waits: Iterable[float], burst: int) -> float:
    """Seconds that the program usually waited for a batch, if up to `burst` of them may arrive together.

    >>> usual_wait([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 8.0] * 4 + [500.0], 8)
    1.0
    """
    found, burst = list(waits), max(burst, _BURST)
    starts = range(0, max(len(found) - burst, 0) + 1, burst)
    return median(fmean(found[start : start + burst]) for start in starts)
