"""`Timer`: how long a worker makes a batch, and how much of this time it computes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_LONG_S: Final = 1e-3  # reading a CPU clock takes up to 2 us, so it is read only if batches take longer than this


class Timer:
    """Measures the batches of one worker, one after another.

    A batch counts as computed without waiting if the batch before it took less than 1 ms.

    Args:
        cpu_clock: the CPU time of the worker, in seconds.
    """

    def __init__(self, cpu_clock: Callable[[], float]) -> None:
        self._cpu_clock = cpu_clock
        self._start = 0.0
        self._cpu: float | None = None
        self._is_long = True

    def start(self) -> None:
        self._cpu = self._cpu_clock() if self._is_long else None
        self._start = time.perf_counter()

    def stop(self) -> tuple[float, float]:
        """The seconds since `start`, and the seconds of them in which the worker computed."""
        took = time.perf_counter() - self._start
        self._is_long = took > _LONG_S
        return took, took if self._cpu is None else min(took, self._cpu_clock() - self._cpu)
