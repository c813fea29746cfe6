"""`SplitSampler`: one part of a dataset, GluonNLP's name and meaning with a seed instead of the global generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_flags, check_int
from ..errors import bad_argument
from ..randomness import batch_seed
from .base import SeededSampler
from .passes import Sliceable

__all__ = ["SplitSampler"]

Integers = NDArray[np.int64]


class SplitSampler(SeededSampler):
    """Indices of one of `num_parts` parts of a dataset, one part for each process or machine.

    Part i is always the same range of indices, and the sizes of parts differ by at most one. No two parts share a
    sample, whatever their seeds: processes need not agree on a seed, and with `seed=None` their orders differ.

    Args:
        length: number of samples in the whole dataset.
        num_parts: number of parts.
        part_index: number of this part, from 0.
        even_size: add one sample of another part to a part that is one sample shorter, a new one each time.
        repeat: how often an epoch contains each index; the part is repeated as a whole.
        shuffle: another random order in each repetition, a function of (seed, epoch): all parts follow the same
            permutation of the whole dataset.
        seed: an int; None draws one from NumPy's global generator now.

    >>> [list(SplitSampler(7, 3, part, shuffle=False)) for part in range(3)]
    [[0, 1, 2], [3, 4], [5, 6]]
    """

    def __init__(
        self,
        length: int,
        num_parts: int = 1,
        part_index: int = 0,
        even_size: bool = False,
        repeat: int = 1,
        shuffle: bool = True,
        *,
        seed: int | None = None,
    ) -> None:
        check_flags(even_size=even_size, shuffle=shuffle)
        self._length, parts = check_int("length", length), check_int("num_parts", num_parts, 1)
        if check_int("part_index", part_index) >= parts:
            raise bad_argument("part_index", part_index, f"give an int from 0 to num_parts - 1 ({parts - 1})")
        self._repeat, self._shuffle = check_int("repeat", repeat, 1), bool(shuffle)
        small, larger = divmod(self._length, parts)
        self._start = part_index * small + min(part_index, larger)
        self._stop = self._start + small + (part_index < larger)
        self._size = -(-self._length // parts) if even_size else self._stop - self._start
        super().__init__(seed, self._shuffle or self._size > self._stop - self._start)

    def _order(self) -> Sliceable:
        epoch = self._next_epoch()
        return _Repeated(lambda number: self._once(epoch, number), self._size, self._repeat)

    def _once(self, epoch: int, number: int) -> Integers:
        """The indices of repetition `number`."""
        indices = np.arange(self._start, self._stop)
        if self._shuffle or self._size > len(indices):
            order = np.random.default_rng(batch_seed(self._seed, epoch, number)).permutation(self._length)
            own = (self._start <= order) & (order < self._stop)
            indices = order[own] if self._shuffle else indices
            indices = np.concatenate([indices, order[~own][: self._size - len(indices)]])
        return indices

    def __len__(self) -> int:
        return self._size * self._repeat

    def pass_state(self) -> dict[str, Any]:
        about = {"samples": self._length, "first": self._start, "shuffle": self._shuffle, "repeat": self._repeat}
        return {**super().pass_state(), **about}


class _Repeated:
    """An order of `repeat` arrays of `size` indices, each made when it is needed."""

    def __init__(self, make: Callable[[int], Integers], size: int, repeat: int) -> None:
        self._make, self._size, self._length = make, size, size * repeat
        self._number, self._indices = -1, np.arange(0)  # the array that was made last

    def __getitem__(self, part: slice) -> Integers:
        start, stop, step = part.indices(self._length)
        pieces = [np.arange(0)]
        for number in range(start // self._size, -(-stop // self._size)) if start < stop else ():
            if number != self._number:
                self._number, self._indices = number, self._make(number)
            first = number * self._size
            pieces.append(self._indices[max(start - first, 0) : stop - first])
        whole: Integers = np.concatenate(pieces)
        return whole[::step]
