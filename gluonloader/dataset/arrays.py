"""Datasets side by side: `ArrayDataset`, mostly for arrays in memory, and `StackDataset`, whose fields may be named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..declared import IN_MEMORY
from ..indices import as_list, lengths_of
from ..rows import Rows
from .base import Dataset, SimpleDataset
from .bulk import are_ints, bulk_read, each, read
from .packed import PackedList

__all__ = ["ArrayDataset", "SimpleDataset", "StackDataset", "TupleDataset"]

_ITEMS: Final = (list, tuple, range, PackedList)  # what they hold is at hand, in bulk or not
_PLAIN: Final = (bool, int, float, str, bytes, np.ndarray)


class ArrayDataset(Dataset):
    """Several sequences of one length, side by side: sample `i` is the tuple of their elements `i`.

    Arrays of NumPy are read in bulk, one copy per batch and array, also with lists and other bulk datasets beside them.

    Args:
        arrays: arrays, lists or datasets, at least one; with a single one a sample is its bare element.

    Raises:
        ValueError: if none is given, one has no length, or their lengths differ.

    >>> ArrayDataset([10, 20], ["a", "b"])[1]
    (20, 'b')
    """

    def __init__(self, *arrays: Any) -> None:
        if not arrays:
            raise ValueError("ArrayDataset() needs at least one array, e.g. ArrayDataset(images, labels)")
        first, *others = lengths_of("arrays", arrays)
        for number, length in enumerate(others, 1):
            if length != first:
                raise ValueError(
                    f"ArrayDataset: argument {number} has length {length}, argument 0 has {first}; "
                    "all must have one length"
                )
        self._arrays = arrays
        self._rows = _rows(arrays if others else arrays[0], arrays)
        # A range stands for a list that draws no random numbers. Found out now: a worker that looked at all items would
        # count references to them, and so copy the memory that they lie in.
        self._told = tuple([range(len(array)) if _draws_nothing(array) else array for array in arrays])

    def __getitem__(self, index: Any) -> Any:
        if len(self._arrays) == 1:
            return self._arrays[0][index]
        return tuple([array[index] for array in self._arrays])

    @bulk_read(lambda self: _in_bulk(self._arrays))
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        if not are_ints(indices):
            return each(self.__getitem__, indices, indices)
        if self._rows is not None:
            return self._rows.at(indices)
        columns = [_read(array, indices) for array in self._arrays]
        return Rows(tuple(columns)) if len(columns) > 1 else columns[0]

    @property
    def _parts(self) -> tuple[Any, ...]:
        return self._told

    def __len__(self) -> int:
        return len(self._arrays[0])


class StackDataset(Dataset):
    """Datasets of one length, side by side: a sample is the tuple, or the dict by name, of their samples.

    Args:
        datasets: at least one dataset, array or list; a single one gives tuples of one field, other than in
            `ArrayDataset`. Given by name, samples are dicts.

    Raises:
        ValueError: if none is given, some have names and some have not, one has no length, or their lengths differ.

    >>> StackDataset(image=[10, 20], name=["a", "b"])[1]
    {'image': 20, 'name': 'b'}
    """

    def __init__(self, *args: Any, **datasets: Any) -> None:
        if bool(args) == bool(datasets):
            raise ValueError("StackDataset: give datasets either all by position or all by name, and at least one")
        self._datasets: Any = datasets or args
        found = lengths_of("datasets", self._datasets)
        if len(set(found)) != 1:
            told = dict(zip(datasets, found, strict=True)) if datasets else found
            raise ValueError(f"StackDataset: the datasets have lengths {told}; all must have one length")
        self._rows = _rows(self._datasets, self._parts)

    def __getitem__(self, index: Any) -> Any:
        return self._sample([part[index] for part in self._parts])

    @bulk_read(lambda self: _in_bulk(self._parts))
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        if not are_ints(indices):
            return each(self.__getitem__, indices, indices)
        if self._rows is not None:
            return self._rows.at(indices)
        return Rows(self._sample([_read(part, indices) for part in self._parts]))

    def __len__(self) -> int:
        return len(self._parts[0])

    @property
    def _parts(self) -> tuple[Any, ...]:
        return self._datasets if isinstance(self._datasets, tuple) else tuple(self._datasets.values())

    def _sample(self, fields: Sequence[Any]) -> Any:
        if isinstance(self._datasets, tuple):
            return tuple(fields)
        return dict(zip(self._datasets, fields, strict=True))


TupleDataset = StackDataset  # its name in Chainer


def _in_bulk(parts: Sequence[Any]) -> bool:
    """Whether each part is at hand or can be read in bulk; and not all are lists, which would gain nothing."""
    known = all(type(part) in (*IN_MEMORY, *_ITEMS) or hasattr(part, "__getitems__") for part in parts)
    return known and not all(type(part) in _ITEMS for part in parts)


def _draws_nothing(items: Any) -> bool:
    """Whether it is a list of nothing but numbers, text and arrays."""
    return type(items) is list and all(kind in _PLAIN or issubclass(kind, np.generic) for kind in set(map(type, items)))


def _rows(samples: Any, parts: Sequence[Any]) -> Rows | None:
    """All samples, if they are held as arrays and lists, arrays among them."""
    kinds = set(map(type, parts))
    return Rows(samples) if not kinds.isdisjoint(IN_MEMORY) and kinds <= {*IN_MEMORY, *_ITEMS} else None


def _read(part: Any, indices: Sequence[Any]) -> Sequence[Any]:
    if hasattr(part, "__getitems__"):
        return read(part, indices)
    return Rows(part, indices) if type(part) in IN_MEMORY else [part[index] for index in as_list(indices)]
