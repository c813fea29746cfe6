"""`ConcatDataset` joins datasets end to end, and `random_split` splits a dataset into random parts."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from numbers import Real
from typing import Any, cast

import numpy as np

from ..describe import call, describe, short_repr
from ..errors import bad_argument, explain_torch_arguments
from ..indices import checked_index, checked_indices, lengths_of
from ..randomness import batch_seed, draw_seed
from .base import Dataset, Subset
from .bulk import bulk_read, interleave, read, split_where_changed


class ConcatDataset(Dataset):
    """Joins datasets end to end: all samples of the first dataset, then all samples of the second dataset, and so on.

    If a dataset has a bulk read, a batch reads all its samples from that dataset at once; all other datasets are read
    sample by sample.

    Args:
        datasets: at least one object with `__len__` and `__getitem__`; or a list of such objects.

    Raises:
        ValueError: no dataset is passed, or a dataset has no length.

    >>> data = ConcatDataset(["a", "b"], ["c"])
    >>> len(data), data[2], data[-3]
    (3, 'c', 'a')
    """

    def __init__(self, *datasets: Any) -> None:
        parts = datasets[0] if len(datasets) == 1 and isinstance(datasets[0], (list, tuple)) else datasets
        if not parts:
            raise ValueError("ConcatDataset() needs at least one dataset, e.g. ConcatDataset(first, second)")
        self.datasets: list[Any] = list(parts)
        self._ends = list(accumulate(lengths_of("datasets", self.datasets)))
        self._bounds = np.array([0, *self._ends])  # for bulk reads

    def __getitem__(self, index: Any) -> Any:
        index = checked_index(index, len(self))
        part = bisect_right(self._ends, index)
        return self.datasets[part][index - self._ends[part - 1] if part else index]

    @bulk_read(lambda self: any(hasattr(dataset, "__getitems__") for dataset in self.datasets))
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        keys = checked_indices(indices, len(self))
        owners = np.searchsorted(self._bounds[1:], keys, side="right")
        keys = keys - self._bounds[owners]
        if not len(keys) or (owners == owners[0]).all():
            return read(self.datasets[owners[0] if len(keys) else 0], keys)
        order = np.argsort(owners, kind="stable")
        parts = split_where_changed(order, owners)
        return interleave([read(self.datasets[owners[part[0]]], keys[part]) for part in parts], order)

    @property
    def _parts(self) -> tuple[Any, ...]:
        return tuple(self.datasets)

    def __len__(self) -> int:
        return self._ends[-1]

    @short_repr
    def __repr__(self) -> str:
        return call(self, *map(describe, self.datasets))


@explain_torch_arguments(generator="pass an int as seed instead")
def random_split(dataset: Any, lengths: Sequence[float], seed: int | None = None) -> list[Subset]:
    """Splits a dataset at random into parts that have no sample in common.

    Args:
        dataset: an object with `__len__` and `__getitem__`.
        lengths: the number of samples in each part, with the sum `len(dataset)`; or fractions with the sum 1. The sizes
            from fractions are rounded down, and the samples that are left over go to the first parts, one to each.
        seed: an int; None draws one from NumPy's global generator now.

    Raises:
        ValueError: a length is negative, or their sum is wrong.

    >>> [len(part) for part in random_split(range(10), [0.75, 0.25], seed=0)]
    [8, 2]
    """
    count = len(dataset)
    if not isinstance(lengths, Iterable) or isinstance(lengths, str):
        raise bad_argument("lengths", lengths, "must be a list, e.g. [0.8, 0.2]")
    if seed is not None and not isinstance(seed, (int, np.integer)):
        raise bad_argument("seed", seed, "must be an int or None")
    if not all(isinstance(length, Real) and length >= 0 for length in lengths):
        raise bad_argument("lengths", lengths, "all lengths or fractions must be >= 0")
    sizes = lengths
    if math.isclose(sum(lengths), 1):
        sizes = rounded = [math.floor(count * fraction) for fraction in lengths]
        for i in range(count - sum(rounded)):
            rounded[i % len(rounded)] += 1
    if sum(sizes) != count or any(size != int(size) for size in sizes):
        right = f"pass ints with the sum len(dataset), which is {count}, or fractions with the sum 1"
        raise bad_argument("lengths", lengths, right)
    rng = np.random.default_rng(batch_seed(draw_seed() if seed is None else int(seed), 0, 1))
    cuts = list(accumulate(map(int, sizes)))[:-1]
    return [Subset(dataset, cast("Sequence[Any]", part)) for part in np.split(rng.permutation(count), cuts)]
