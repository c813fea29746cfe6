"""`ArrayDataset` and `StackDataset`: arrays, lists and datasets side by side."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..checks import check_indexed
from ..declared import is_array, one_of_each_type
from ..errors import warn
from ..indices import as_list, lengths_of
from ..lengths import computed_lengths, lengths_if_known
from ..rows import Rows
from .base import Dataset
from .bulk import are_ints, bulk_read, each, read
from .compact import CompactList

_LISTS: Final = (list, tuple, range, CompactList)  # a bulk read of them is as fast as single reads


class _SideBySide(Dataset):
    """Columns of equal length; a sample is the dict or tuple of their elements or, if `bare`, the only element."""

    _parts: tuple[Any, ...] = ()
    _columns: Sequence[Any]
    _kept_rows: tuple[tuple[Any, ...], Rows | None] = ((), None)  # columns, and all their samples

    def __init__(self, argument: str, columns: Any, bare: bool = False) -> None:
        lengths = lengths_of(argument, columns)
        self._names = tuple(columns) if isinstance(columns, dict) else ()
        if len(set(lengths)) != 1:
            found = dict(zip(columns, lengths, strict=True)) if self._names else lengths
            what = f"the {argument} have lengths {found}"
            raise ValueError(f"{type(self).__name__}: {what}; all must have the same length")
        for key, column in columns.items() if self._names else enumerate(columns):
            check_indexed(f"{argument}[{key!r}]", column)
        self._bare = bare
        self._columns = tuple(columns.values()) if self._names else columns
        # One item of each type replaces a list. A worker must not look at all items: it would change their reference
        # counts, and so copy their memory.
        self._parts = tuple([one_of_each_type(item) if type(item) is list else item for item in self._columns])

    def __getitem__(self, index: Any) -> Any:
        return self._sample([column[index] for column in self._columns])

    @bulk_read(lambda self: _has_bulk_read(self._columns))
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        if not are_ints(indices):
            return each(self.__getitem__, indices, indices)
        rows = self._all_rows()
        if rows is not None:
            return rows.at(indices)
        columns = [_read_column(column, indices) for column in self._columns]
        return columns[0] if self._bare else Rows(self._sample(columns))

    def __len__(self) -> int:
        return len(self._columns[0])

    @computed_lengths
    def lengths(self) -> NDArray[Any]:
        """The number of tokens of each sample, if any column has such an attribute."""
        named = zip(self._names or range(len(self._columns)), map(lengths_if_known, self._columns), strict=True)
        found = [(name, lengths) for name, lengths in named if lengths is not None]
        if not found:
            raise AttributeError("no dataset in it has an attribute `lengths`")
        first, lengths = found[0]
        for name, others in found[1:]:
            for sample in np.flatnonzero(lengths != others)[:1]:
                what = f"sample {sample} has {lengths[sample]} tokens in {first!r}, and {others[sample]} in {name!r}"
                raise AttributeError(f"{what}; pass the lengths of one of these datasets to the sampler")
        return lengths

    def _all_rows(self) -> Rows | None:
        """All samples, if the columns lie in memory."""
        columns, (seen, rows) = self._columns, self._kept_rows
        if len(seen) != len(columns) or not all(map(is_, seen, columns)):  # at first, and if a subclass has changed one
            has_rows = any(map(is_array, columns)) and all(is_array(item) or type(item) in _LISTS for item in columns)
            rows = Rows(self._sample(columns)) if has_rows else None
            self._kept_rows = tuple(columns), rows
        return rows

    def _sample(self, fields: Sequence[Any]) -> Any:
        if self._bare:
            return fields[0]
        return dict(zip(self._names, fields, strict=True)) if self._names else tuple(fields)


class ArrayDataset(_SideBySide):
    """A dataset of sequences of equal length: sample `i` is the tuple of element `i` of each sequence.

    NumPy arrays and tensors of torch are read in bulk, with one copy for each batch and array, if every other sequence
    is a list or a dataset with a bulk read.

    Args:
        arrays: at least one array, list or dataset. If only one is passed, a sample is its element, not a tuple.

    Raises:
        ValueError: no array is passed, an array has no length, or the lengths differ.

    >>> ArrayDataset([10, 20], ["a", "b"])[1]
    (20, 'b')
    """

    def __init__(self, *arrays: Any) -> None:
        if not arrays:
            raise ValueError("ArrayDataset() needs at least one array, e.g. ArrayDataset(images, labels)")
        super().__init__("arrays", arrays, bare=len(arrays) == 1)
        if self._bare:
            warn_of_columns("arrays[0]", arrays[0])


class StackDataset(_SideBySide):
    """A dataset of datasets of equal length: sample `i` is the tuple, or the dict, of sample `i` of each dataset.

    Args:
        datasets: at least one dataset, array or list. If they are passed by keyword, samples are dicts. If only one is
            passed, samples are tuples of one field, unlike in `ArrayDataset`.

    Raises:
        ValueError: no dataset is passed, only some are passed by keyword, one has no length, or the lengths differ.

    >>> StackDataset(image=[10, 20], name=["a", "b"])[1]
    {'image': 20, 'name': 'b'}
    """

    def __init__(self, *args: Any, **datasets: Any) -> None:
        if bool(args) == bool(datasets):
            raise ValueError("StackDataset() needs datasets: pass all of them by position or all by keyword")
        super().__init__("datasets", datasets or args)


def warn_of_columns(name: str, dataset: Any) -> None:
    """Warns if a dataset is a tuple of a few arrays of equal length, such as (X, Y), which may be meant as columns."""
    if type(dataset) is not tuple or not 2 <= len(dataset) <= 4:
        return
    shapes: list[Any] = [getattr(item, "shape", None) for item in dataset]
    if not all(isinstance(shape, tuple) and shape for shape in shapes):
        return
    (length, *_), *others = [tuple(shape[:1]) for shape in shapes]
    if length > len(dataset) and all(other == (length,) for other in others):
        what = f"{name}: a tuple of {len(dataset)} arrays of length {length:,} is a dataset of {len(dataset)} samples"
        columns = ", ".join("XYZW"[: len(dataset)])
        warn(f"{what}; did you mean ArrayDataset({columns})? If each array is a sample, pass a list, not a tuple")


def _has_bulk_read(columns: Sequence[Any]) -> bool:
    """Whether a bulk read of these columns is faster: all columns can be read in bulk, and not all are lists."""
    readable = all(is_array(item) or type(item) in _LISTS or hasattr(item, "__getitems__") for item in columns)
    return readable and not all(type(column) in _LISTS for column in columns)


def _read_column(column: Any, indices: Sequence[Any]) -> Sequence[Any]:
    """The elements of an array, a list or a dataset at `indices`."""
    if hasattr(column, "__getitems__"):
        return read(column, indices)
    return Rows(column, indices) if is_array(column) else [column[index] for index in as_list(indices)]
