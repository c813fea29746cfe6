"""Where the time of a loader goes: counted by its iterators, told by `DataLoader.stats`."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Final

__all__ = ["LoaderStats", "Tally", "in_a_row", "trimmed_mean"]

_RECENT: Final = 256  # batches
_BURST: Final = 8  # batches, at least


@dataclass(frozen=True, slots=True)
class LoaderStats:
    """Who makes a loader's batches, and where the time of the program went, over all its epochs in this process.

    Attributes:
        executor: "serial", "thread" or "process"; with "auto" the one that was chosen.
        why: with "auto", why it was; else that it was told.
        num_workers: number of workers that are in use; 0 in the serial executor.
        batches: number of batches that were delivered.
        waited_s: seconds that the program spent in `next`; in the serial executor batches are made there.
        made_s: seconds that workers, or the program itself, spent making these batches.
    """

    executor: str
    why: str
    num_workers: int
    batches: int
    waited_s: float
    made_s: float


@dataclass(slots=True)
class Tally:
    """What all iterators of a loader count together.

    Attributes:
        waits, makes: the seconds of recent batches, but for those at the start of an epoch.
        watch: called after each batch, if somebody wants to know.
        may_split: whether a first batch may be read by all workers at once; NOTE [first batch] in executors/first.py.
        pid: the process that counts.
    """

    batches: int = 0
    waited_s: float = 0.0
    made_s: float = 0.0
    waits: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    makes: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))
    watch: Callable[[], object] | None = None
    may_split: bool = True
    pid: int = field(default_factory=os.getpid)

    def count(self, waited_s: float, made_s: float, steady: bool) -> None:
        """One more batch was delivered; `steady`: it was not among the first of its epoch, which workers begin on."""
        self.batches += 1
        self.waited_s += waited_s
        self.made_s += made_s
        if steady:
            self.waits.append(waited_s)
            self.makes.append(made_s)
        if self.watch is not None:
            self.watch()

    def forget(self) -> None:
        """From now on other circumstances are measured."""
        self.waits.clear()
        self.makes.clear()


def in_a_row(waits: Iterable[float], burst: int) -> float:
    """What a batch was usually waited for, where up to so many may come at once.

    >>> in_a_row([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 8.0] * 4 + [500.0], 8)
    1.0
    """
    found, burst = list(waits), max(burst, _BURST)
    starts = range(0, max(len(found) - burst, 0) + 1, burst)
    return median(fmean(found[start : start + burst]) for start in starts)


def trimmed_mean(values: Iterable[float]) -> float:
    """The mean of all but the largest twentieth, which has other reasons.

    >>> trimmed_mean([1.0] * 19 + [500.0])
    1.0
    """
    ordered = sorted(values)
    ordered = ordered[: len(ordered) - len(ordered) // 20]
    return sum(ordered) / len(ordered)
