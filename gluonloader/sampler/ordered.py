"""Deterministic samplers: in order, filtered, or in steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..checks import check_predicate
from ..errors import bad_argument
from ..indices import checksum_of_array
from .base import OrderedSampler, check_length
from .passes import Computed, Integers, Order


class SequentialSampler(OrderedSampler):
    """Yields the indices `start`, `start + 1`, ..., `start + length - 1`.

    >>> list(SequentialSampler(3, start=5))
    [5, 6, 7]
    """

    def __init__(self, length: int, start: int = 0) -> None:
        self._indices = range(start, start + check_length("length", length))
        self._identity = {"start": self._indices.start}


class FilterSampler(OrderedSampler):
    """Yields the indices of the samples for which `fn(sample)` is true; the constructor calls `fn` on every sample.

    >>> list(FilterSampler(lambda x: x > 1, [3, 0, 2]))
    [0, 2]
    """

    def __init__(self, fn: Callable[[Any], object], dataset: Any) -> None:
        check_predicate("fn", fn)
        self._indices = np.array([i for i in range(len(dataset)) if fn(dataset[i])], np.int64)
        self._identity = {"indices": checksum_of_array(self._indices)}


class IntervalSampler(OrderedSampler):
    """Yields every `interval`-th index from 0; with `rollover`, then from 1, from 2, ... until each index came once.

    >>> list(IntervalSampler(7, 3))
    [0, 3, 6, 1, 4, 2, 5]
    >>> list(IntervalSampler(7, 3, rollover=False))
    [0, 3, 6]
    """

    def __init__(self, length: int, interval: int, rollover: bool = True) -> None:
        size = check_length("length", length)
        if not 0 < interval <= size:
            raise bad_argument("interval", interval, f"must be an int from 1 to length ({size})")
        self._rollover, self._interval = bool(rollover), int(interval)
        self._indices = range(size) if rollover else range(0, size, self._interval)
        self._identity = {"interval": self._interval}

    def order(self, epoch: int) -> Order:
        return Computed(self._rounds) if self._rollover else self._indices

    def _rounds(self, part: slice) -> Integers:
        """Part of the order 0, interval, 2 * interval, ..., 1, 1 + interval, ..., computed from offsets."""
        offsets = np.arange(*part.indices(len(self)))
        short, longer = divmod(len(self), self._interval)  # the first `longer` rounds have short + 1 indices
        edge = longer * (short + 1)
        start, step = np.divmod(offsets, short + 1)
        late_start, late_step = np.divmod(offsets - edge, short)
        early = offsets < edge
        late = longer + late_start + late_step * self._interval
        indices: Integers = np.where(early, start + step * self._interval, late)
        return indices
