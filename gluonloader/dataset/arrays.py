"""Datasets over data that is in memory: `SimpleDataset` (one), `ArrayDataset` (several, side by side)."""

from __future__ import annotations

from typing import Any

from .base import Dataset, SimpleDataset

__all__ = ["ArrayDataset", "SimpleDataset"]


class ArrayDataset(Dataset):
    """Several sequences of one length, side by side: sample `i` is the tuple of their elements `i`.

    Args:
        arrays: arrays, lists or datasets, at least one; with a single one a sample is its bare element.

    Raises:
        ValueError: if none is given, or their lengths differ.

    >>> ArrayDataset([10, 20], ["a", "b"])[1]
    (20, 'b')
    """

    def __init__(self, *arrays: Any) -> None:
        if not arrays:
            raise ValueError("ArrayDataset() needs at least one array, e.g. ArrayDataset(images, labels)")
        for position, array in enumerate(arrays):
            if len(array) != len(arrays[0]):
                raise ValueError(
                    f"ArrayDataset: argument {position} has length {len(array)}, argument 0 has {len(arrays[0])}; "
                    "all must have one length"
                )
        self._arrays = arrays

    def __getitem__(self, index: Any) -> Any:
        if len(self._arrays) == 1:
            return self._arrays[0][index]
        return tuple([array[index] for array in self._arrays])

    def __len__(self) -> int:
        return len(self._arrays[0])
