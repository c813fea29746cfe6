"""`ArrayDataset`: arrays, lists and datasets side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..declared import IN_MEMORY
from ..indices import as_list, lengths_of
from ..rows import Rows
from .base import Dataset
from .bulk import are_ints, bulk_read, each, read
from .packed import PackedList

_LISTS: Final = (list, tuple, range, PackedList)  # a bulk read of them is as fast as single reads
_PLAIN: Final = (bool, int, float, str, bytes, np.ndarray)


class ArrayDataset(Dataset):
    """Sequences of one length, side by side: sample `i` is the tuple of their elements `i`.

    NumPy arrays are read in bulk, with one copy per batch and array, also beside lists and datasets with a bulk read.

    Args:
        arrays: at least one array, list or dataset; with a single one, a sample is its bare element.

    Raises:
        ValueError: no array is given, one has no length, or their lengths differ.

    >>> ArrayDataset([10, 20], ["a", "b"])[1]
    (20, 'b')
    """

    def __init__(self, *arrays: Any) -> None:
        if not arrays:
            raise ValueError("ArrayDataset() needs at least one array, e.g. ArrayDataset(images, labels)")
        first, *others = lengths_of("arrays", arrays)
        for number, length in enumerate(others, 1):
            if length != first:
                what = f"argument {number} has length {length}, argument 0 has {first}"
                raise ValueError(f"ArrayDataset: {what}; all must have the same length")
        self._arrays = arrays
        self._rows = rows_in_memory(arrays if others else arrays[0], arrays)
        # A range stands for a list whose items draw no random numbers. A worker must not look at the items itself:
        # counting references to them would copy their memory into the worker.
        self._declared = tuple([range(len(array)) if _draws_nothing(array) else array for array in arrays])

    def __getitem__(self, index: Any) -> Any:
        if len(self._arrays) == 1:
            return self._arrays[0][index]
        return tuple([array[index] for array in self._arrays])

    @bulk_read(lambda self: has_bulk_read(self._arrays))
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        if not are_ints(indices):
            return each(self.__getitem__, indices, indices)
        if self._rows is not None:
            return self._rows.at(indices)
        columns = [read_column(array, indices) for array in self._arrays]
        return Rows(tuple(columns)) if len(columns) > 1 else columns[0]

    @property
    def _parts(self) -> tuple[Any, ...]:
        return self._declared

    def __len__(self) -> int:
        return len(self._arrays[0])


def has_bulk_read(columns: Sequence[Any]) -> bool:
    """Whether a bulk read of these columns gains anything: all can be read in bulk, and not all are lists."""
    readable = all(type(column) in (*IN_MEMORY, *_LISTS) or hasattr(column, "__getitems__") for column in columns)
    return readable and not all(type(column) in _LISTS for column in columns)


def read_column(column: Any, indices: Sequence[Any]) -> Sequence[Any]:
    """The elements of an array, a list or a dataset at `indices`."""
    if hasattr(column, "__getitems__"):
        return read(column, indices)
    return Rows(column, indices) if type(column) in IN_MEMORY else [column[index] for index in as_list(indices)]


def rows_in_memory(container: Any, columns: Sequence[Any]) -> Rows | None:
    """All samples, if the columns in `container` are arrays and lists, with at least one array."""
    kinds = set(map(type, columns))
    return Rows(container) if not kinds.isdisjoint(IN_MEMORY) and kinds <= {*IN_MEMORY, *_LISTS} else None


def _draws_nothing(items: Any) -> bool:
    """Whether `items` is a list of nothing but numbers, text and arrays."""
    return type(items) is list and all(kind in _PLAIN or issubclass(kind, np.generic) for kind in set(map(type, items)))
