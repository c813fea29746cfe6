"""What workers report about their time: a report on each batch, and the sums of these reports.

    Timer.stop --report, 72 bytes--> Usage.add --> Usage.fold --> a `WorkerStats` for each worker
    (in the thread that made or received the batch) (in any thread, which may call `stats`)

A worker process writes its report into the slab of the batch, after the words of the header. The main program appends
it to the log of the worker, and adds the logs up only when somebody asks or when a log is long.
"""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..locks import Lock
from ..messages import message
from .core_wait import core_wait_ns

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_FIELDS: Final = ("end", "idle", "took", "read", "batchify", "cpu", "core_wait", "faults", "key")
_REPORT: Final = struct.Struct(f"={len(_FIELDS)}q")
_LONG_LOG: Final = 4096  # reports; a longer log is folded
_LONG_NS: Final = 1_000_000  # to measure resources takes some us, so it is done only if batches take longer than this


@message(frozen=True, slots=True)
class Resources:
    """What a process or a thread has used since its start.

    Attributes:
        core_wait_ns: how long the calling thread has waited for a core; 0 if the system does not say.
    """

    cpu_ns: int
    page_faults: int = 0
    core_wait_ns: int = 0


def process_resources() -> Resources:
    """What this process has used."""
    return Resources(time.process_time_ns()) if resource is None else _resources(resource.RUSAGE_SELF)


def thread_resources() -> Resources:
    """What the calling thread has used; without page faults if the system does not count them by thread."""
    who = getattr(resource, "RUSAGE_THREAD", None)
    return Resources(time.thread_time_ns()) if who is None else _resources(who)


def _resources(who: int) -> Resources:
    used = resource.getrusage(who)
    return Resources(int((used.ru_utime + used.ru_stime) * 1e9), used.ru_minflt + used.ru_majflt, core_wait_ns())


class Timer:
    """Measures the batches of one worker, one after another.

    A batch counts as computed without waiting and page faults if the batch before it took less than 1 ms.

    Args:
        resources: measures the resources that the worker has used.

    Attributes:
        took: nanoseconds that the last batch took.
    """

    def __init__(self, resources: Callable[[], Resources]) -> None:
        self._resources, self._before, self._is_long = resources, Resources(0), True
        self.took = 0
        self._start = self._end = time.perf_counter_ns()
        self._read = self._made = 0  # times that were noted since `start`

    def start(self) -> None:
        if self._is_long:
            self._before = self._resources()
        self._read = self._made = 0
        self._start = time.perf_counter_ns()

    def note_read(self) -> None:
        """The samples were read."""
        self._read = time.perf_counter_ns()

    def note_made(self) -> None:
        """`batchify_fn` has returned; what follows is transport."""
        self._made = time.perf_counter_ns()

    def stop(self, epoch: int, batch: int) -> bytes:
        """Returns the report on a batch, from the numbers of its epoch and in its epoch."""
        start, last, self._end = self._start, self._end, time.perf_counter_ns()
        cpu = self.took = self._end - start
        core_wait = faults = 0
        if self._is_long:
            before, now = self._before, self._resources()
            cpu, faults = min(cpu, now.cpu_ns - before.cpu_ns), now.page_faults - before.page_faults
            core_wait = max(0, min(self.took - cpu, now.core_wait_ns - before.core_wait_ns))
        self._is_long = self.took > _LONG_NS
        read = self._read or self._end  # the end if the batch has failed before
        key = (epoch & 0x7FFFFFFF) << 32 | batch & 0xFFFFFFFF
        batchify = (self._made or self._end) - read
        return _REPORT.pack(self._end, start - last, self.took, read - start, batchify, cpu, core_wait, faults, key)


@dataclass(frozen=True, slots=True)
class WorkerStats:
    """How a worker spent its time; seconds.

    Attributes:
        batches: number of batches that it made.
        read_s: reading samples.
        batchify_s: in `batchify_fn`.
        transport_s: packing the batch for the main program.
        idle_s: waiting for a batch to make, since the worker has started.
        cpu_s: the part of the time for batches in which the worker computed; in the rest it waited for a core, a disk,
            a network or a lock. A batch of less than 1 ms counts as computed.
        page_faults: how often the system had to map a page of memory while the worker made batches; batches of less
            than 1 ms are not counted.
        core_wait_s: the part of the time for batches in which the worker waited for a core, because other threads and
            programs used all cores. It is 0 if the system does not say, and for batches of less than 1 ms.
    """

    batches: int = 0
    read_s: float = 0.0
    batchify_s: float = 0.0
    transport_s: float = 0.0
    idle_s: float = 0.0
    cpu_s: float = 0.0
    page_faults: int = 0
    core_wait_s: float = 0.0

    @property
    def made_s(self) -> float:
        """Seconds that the worker spent on batches."""
        return self.read_s + self.batchify_s + self.transport_s

    def __add__(self, other: WorkerStats) -> WorkerStats:
        return WorkerStats(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def __sub__(self, other: WorkerStats) -> WorkerStats:
        return WorkerStats(*(getattr(self, name) - getattr(other, name) for name in self.__slots__))


NOTHING_SPENT: Final = WorkerStats()


@message(frozen=True, slots=True)
class BatchReport:
    """The report on one batch; times in nanoseconds of `time.perf_counter_ns`.

    Attributes:
        worker: number of the worker.
        end: when the batch was made.
        idle: how long the worker had waited before.
        took: how long making the batch took; of this, `read` for reading samples and `batchify` for `batchify_fn`.
        cpu, core_wait: the parts of `took` in which the worker computed, and waited for a core.
        faults: number of page faults.
        key: the numbers of the epoch (the upper 32 bits) and of the batch.
    """

    worker: int
    end: int
    idle: int
    took: int
    read: int
    batchify: int
    cpu: int
    core_wait: int
    faults: int
    key: int

    @property
    def start(self) -> int:
        return self.end - self.took

    @property
    def transport(self) -> int:
        return self.took - self.read - self.batchify

    @property
    def epoch(self) -> int:
        return self.key >> 32

    @property
    def batch(self) -> int:
        number = self.key & 0xFFFFFFFF
        return number - 2**32 if number >= 2**31 else number


class Usage:
    """The reports of the workers of one executor; thread-safe.

    Attributes:
        logs: the reports that are not added up yet, by worker.
        deaths: number of workers that died.
        retries: number of batches that were made again because their worker died.
    """

    def __init__(self) -> None:
        self.logs: defaultdict[int, list[bytes]] = defaultdict(list)
        self.deaths = self.retries = 0
        self._lock = Lock()  # while reports are added up
        self._kept: list[BatchReport] = []
        self._keeps = False  # whether `_kept` gets the reports
        self._sums: defaultdict[int, NDArray[Any]] = defaultdict(lambda: np.zeros(len(_FIELDS) + 1, np.int64))

    def add(self, worker: int, report: bytes | memoryview) -> None:
        """Adds the report on a batch."""
        log = self.logs[worker]
        log.append(bytes(report))
        if len(log) > _LONG_LOG:
            self.fold()

    def keep(self) -> None:
        """Keeps the reports from now on, for `kept`."""
        with self._lock:
            self._fold()
            self._kept, self._keeps = [], True

    def kept(self) -> list[BatchReport]:
        """Returns the reports since `keep`, and keeps no more."""
        with self._lock:
            self._fold()
            reports, self._kept, self._keeps = self._kept, [], False
            return reports

    def fold(self) -> dict[int, WorkerStats]:
        """Adds up all reports, and empties the logs."""
        with self._lock:
            self._fold()
            return {worker: _spent(sums) for worker, sums in sorted(self._sums.items())}

    def _fold(self) -> None:
        for worker, log in self.logs.copy().items():  # copies are made at once: another thread may add a report
            arrived = log.copy()
            del log[: len(arrived)]
            reports = np.frombuffer(b"".join(arrived), np.int64).reshape(-1, len(_FIELDS))
            if self._keeps:
                self._kept += [BatchReport(worker, *words) for words in reports.tolist()]
            self._sums[worker][:-1] += reports.sum(0)
            self._sums[worker][-1] += len(reports)


def _spent(sums: NDArray[Any]) -> WorkerStats:
    _, idle, took, read, batchify, cpu, core_wait, faults, _, batches = sums.tolist()
    nanoseconds = {
        "read_s": read,
        "batchify_s": batchify,
        "transport_s": took - read - batchify,
        "idle_s": idle,
        "cpu_s": cpu,
        "core_wait_s": core_wait,
    }
    return WorkerStats(batches, page_faults=faults, **{name: ns * 1e-9 for name, ns in nanoseconds.items()})
