"""Counts how a loader spends its time: its iterators count, and `DataLoader.stats` returns the result."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Final

from ..work.tolerance import BadSample

_RECENT: Final = 256  # batches
_ENOUGH: Final = 32  # batches, before there is advice
_MOST_COMPUTING: Final = 0.5  # the share of a worker's time; workers that compute more get no advice
_MOST_CONCURRENCY: Final = 32  # that is advised
_BURST: Final = 8  # batches; fewer would measure the gaps inside a burst
_LOGGED: Final = 1000  # different errors of samples

_log = logging.getLogger("gluonloader")


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """Which executor makes a loader's batches, and how the time was spent in this process, over all epochs.

    Attributes:
        executor: "serial", "thread" or "process"; with "auto" the one that was chosen.
        why: the reason for that executor.
        num_workers: number of workers; 0 in the serial executor.
        batches: number of batches that were delivered.
        waited_s: seconds that the program spent in `next`; with the serial executor this includes making the batches.
        made_s: seconds that workers (or the program, in the serial executor) spent making these batches.
        waiting: the share of `made_s`, from 0 to 1, in which workers did not compute, but waited: for a disk, a
            network, a lock or a free core. Batches that take less than 1 ms count as computed. With `concurrency` above
            1, the thread and the serial executor count only the calling thread of the worker.
        advice: what to change if workers wait most of the time; otherwise "".
        errors: number of samples that raised an error and were skipped or replaced; see `on_error`.
    """

    executor: str
    why: str
    num_workers: int
    batches: int
    waited_s: float
    made_s: float
    waiting: float = 0.0
    advice: str = ""
    errors: int = 0


@dataclass(slots=True)
class Tally:
    """The counts of all iterators of a loader in one process; see `LoaderStats`.

    `waits` and `makes` are the seconds of each recent batch, except batches at the start of an epoch.
    """

    batches: int = 0
    waited_s: float = 0.0
    made_s: float = 0.0
    cpu_s: float = 0.0
    errors: int = 0
    waits: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    makes: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    pid: int = field(default_factory=os.getpid)
    _logged: set[str] = field(default_factory=set)  # errors of samples

    def note(self, errors: Iterable[BadSample]) -> None:
        """Counts samples that raised an error, and logs each different error once."""
        for bad in errors:
            self.errors += 1
            if bad.error in self._logged or len(self._logged) > _LOGGED:
                continue
            self._logged.add(bad.error)
            if len(self._logged) > _LOGGED:
                _log.warning("samples raised more than %d different errors; further errors are not logged", _LOGGED)
            else:
                _log.warning("%s raised an error, so on_error applies: %s", bad.sample, bad.error)

    @property
    def waiting(self) -> float:
        """The share of `made_s` in which workers waited."""
        return min(1.0, max(0.0, 1 - self.cpu_s / self.made_s)) if self.made_s else 0.0


def advice_on_waiting(tally: Tally, num_workers: int, concurrency: int, cores: int) -> str:
    """Advises `concurrency` if workers wait most of the time, and not for free cores; otherwise "".

    >>> advice_on_waiting(Tally(batches=50, made_s=50.0, cpu_s=5.0), num_workers=2, concurrency=1, cores=2)
    'workers spent 90 % of their time waiting; if samples wait for a disk or a network, pass concurrency=8'
    """
    computes, workers = 1 - tally.waiting, max(1, num_workers)
    if concurrency > 1 or tally.batches < _ENOUGH or computes > _MOST_COMPUTING or workers * computes > cores / 2:
        return ""
    # With this concurrency, workers would keep all cores busy.
    useful = cores / workers / max(computes, 1 / _MOST_CONCURRENCY)
    advised = min(_MOST_CONCURRENCY, 1 << max(1, int(useful).bit_length() - 1))
    share = f"workers spent {tally.waiting:.0%} of their time waiting".replace("%", " %")
    return f"{share}; if samples wait for a disk or a network, pass concurrency={advised}"


def usual_wait(waits: Iterable[float], burst: int) -> float:
    """Seconds that the program usually waited for a batch, if up to `burst` of them may arrive together.

    >>> usual_wait([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 8.0] * 4 + [500.0], 8)
    1.0
    """
    found, burst = list(waits), max(burst, _BURST)
    starts = range(0, max(len(found) - burst, 0) + 1, burst)
    return median(fmean(found[start : start + burst]) for start in starts)
