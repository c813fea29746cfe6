"""Measures the speed of a loader in this process, when all its workers are busy.

endless: epoch after epoch --> run: warm-up, then batches with their times --> rates
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

from ...messages import message

_PARTS: Final = 8  # a run is divided into at most so many parts, whose speeds show how much the speed varies
_WARM_UP: Final = 0.25  # share of the time of a run before its batches count


@message(frozen=True, slots=True)
class Step:
    """What the program does with a batch.

    Attributes:
        seconds: how long it takes.
        busy: whether it computes on one core, as training on a CPU does; otherwise it sleeps, as a program does that
            waits for a GPU.
    """

    seconds: float = 0.0
    busy: bool = False

    def __call__(self) -> None:
        if not self.seconds:
            return
        if self.busy:
            end = time.perf_counter() + self.seconds
            while time.perf_counter() < end:
                pass
        else:
            time.sleep(self.seconds)


@message(frozen=True, slots=True)
class TimedRun:
    """The batches of one run.

    Attributes:
        ends: when the batches were delivered, as `time.perf_counter()`; the first of them does not count.
        waits: seconds that the program waited for each of the batches that count.
    """

    ends: list[float]
    waits: list[float]

    @property
    def batches(self) -> int:
        return len(self.waits)

    @property
    def rate(self) -> float:
        """Batches per second."""
        return self.batches / (self.ends[-1] - self.ends[0])

    def rates(self, burst: int) -> list[float]:
        """Batches per second in each part of the run, if up to `burst` batches may arrive together.

        >>> TimedRun([0.0, 1.0, 2.0, 3.0, 7.0], [1.0, 1.0, 1.0, 4.0]).rates(burst=2)
        [1.0, 0.4]
        """
        parts = max(1, min(_PARTS, self.batches // burst))
        cuts = [round(part * self.batches / parts) for part in range(parts + 1)]
        ends = self.ends
        return [(last - first) / (ends[last] - ends[first]) for first, last in pairwise(cuts)]


def endless(loader: Iterable[Any]) -> Iterator[Any]:
    """Yields the batches of epoch after epoch; a ValueError if an epoch is empty."""
    while True:
        empty = True
        for batch in loader:
            empty = False
            yield batch
            del batch  # so that its memory can be reused
        if empty:
            raise ValueError("the loader yields no batch: is its dataset empty?")


def run(
    batches: Iterator[Any],
    seconds: float,
    step: Callable[[], object],
    *,
    workers: int,
    window: int,
    deadline: float = float("inf"),
) -> TimedRun:
    """Reads batches for about `seconds`; longer if that is not enough for two windows of batches.

    Args:
        step: called after each batch.
        workers: at least so many batches count, and more are read before the first one that counts.
        window: the maximum number of batches in flight, which may arrive together.
        deadline: when the run ends if batches are slow, as `time.perf_counter()`; later if fewer than `workers` count.
    """
    start = now = time.perf_counter()
    read = 0
    while not read or ((now - start < _WARM_UP * seconds or read <= workers) and now < (start + deadline) / 2):
        next(batches)
        now = time.perf_counter()
        step()
        read += 1
    ends, waits = [now], list[float]()
    while (now - start < seconds or len(waits) < 2 * window) and (now < deadline or len(waits) < max(1, workers)):
        asked = time.perf_counter()
        next(batches)
        now = time.perf_counter()
        ends.append(now)
        waits.append(now - asked)
        step()
    return TimedRun(ends, waits)
