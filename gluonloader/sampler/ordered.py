"""Deterministic samplers: in order, filtered, or in steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_int
from ..errors import bad_argument
from .base import OrderedSampler
from .passes import Sliceable


def check_length(name: str, value: Any) -> int:
    """Checks an argument that is a number of samples."""
    return check_int(name, value, 0, "give the number of samples, an int >= 0, e.g. len(dataset)")


class SequentialSampler(OrderedSampler):
    """Indices `start`, `start + 1`, ..., `start + length - 1`.

    >>> list(SequentialSampler(3, start=5))
    [5, 6, 7]
    """

    def __init__(self, length: int, start: int = 0) -> None:
        self._range = range(start, start + check_length("length", length))

    def _order(self) -> Sliceable:
        return self._range

    def __len__(self) -> int:
        return len(self._range)

    def pass_state(self) -> dict[str, Any]:
        return {**super().pass_state(), "start": self._range.start}


class FilterSampler(OrderedSampler):
    """Indices of the samples for which `fn(sample)` is true; the constructor calls `fn` on every sample.

    >>> list(FilterSampler(lambda x: x > 1, [3, 0, 2]))
    [0, 2]
    """

    def __init__(self, fn: Callable[[Any], object], dataset: Any) -> None:
        self._indices = np.array([i for i in range(len(dataset)) if fn(dataset[i])], np.int64)

    def _order(self) -> Sliceable:
        return self._indices

    def __len__(self) -> int:
        return len(self._indices)


class IntervalSampler(OrderedSampler):
    """Every `interval`-th index from 0; with `rollover`, then from 1, from 2, ... until every index came once.

    >>> list(IntervalSampler(7, 3))
    [0, 3, 6, 1, 4, 2, 5]
    >>> list(IntervalSampler(7, 3, rollover=False))
    [0, 3, 6]
    """

    def __init__(self, length: int, interval: int, rollover: bool = True) -> None:
        size = check_length("length", length)
        if not 0 < interval <= size:
            raise bad_argument("interval", interval, f"give an int from 1 to length ({size})")
        self._interval = int(interval)
        self._once = range(0, size, self._interval)
        self._size = size if rollover else len(self._once)
        self._rounds = _Rounds(size, self._interval)

    def _order(self) -> Sliceable:
        return self._rounds if self._size > len(self._once) else self._once

    def __len__(self) -> int:
        return self._size

    def pass_state(self) -> dict[str, Any]:
        return {**super().pass_state(), "interval": self._interval}


class _Rounds:
    """The order 0, interval, 2 * interval, ..., 1, 1 + interval, ..., computed from offsets."""

    def __init__(self, size: int, interval: int) -> None:
        self._size, self._interval = size, interval

    def __getitem__(self, part: slice) -> NDArray[np.int64]:
        offsets = np.arange(*part.indices(self._size))
        short, longer = divmod(self._size, self._interval)  # the first `longer` rounds have short + 1 indices
        edge = longer * (short + 1)
        start, step = np.divmod(offsets, short + 1)
        late_start, late_step = np.divmod(offsets - edge, short)
        early = offsets < edge
        late = longer + late_start + late_step * self._interval
        indices: NDArray[np.int64] = np.where(early, start + step * self._interval, late)
        return indices
