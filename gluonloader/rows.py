"""`Rows`: samples that are stored as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .indices import Indices, checked_indices, lengths_of
from .tree import children, refill


class Rows(Sequence[Any]):
    """A sequence of samples that are stored as columns; a dataset's `__getitems__` may return `Rows`.

    `default_batchify` makes a batch of `Rows` with at most one copy per column; a list of the same samples makes the
    same batch. For all other code `Rows` are a sequence of samples.

    Args:
        columns: a dict or tuple of arrays, lists or other `Rows` of equal length, N; or a single array, list or `Rows`,
            whose elements are then the samples. Without `indices`, a column that is an array may become the batch
            itself, so pass a new array and not an array of the dataset.
        indices: ints of shape (M,): the samples are these rows of the columns. Negative ints count from the end.
            Nothing is copied before a batch is made. None means all rows in order.

    Raises:
        ValueError: there is no column, a column has no length, or the lengths differ.
        IndexError: an index is out of range.
        TypeError: `indices` contains something other than ints.

    >>> rows = Rows({"x": np.arange(10, 14), "name": ["a", "b", "c", "d"]}, [3, 0])
    >>> len(rows), rows[1]["name"], rows.columns
    (2, 'a', {'x': array([13, 10]), 'name': ['d', 'a']})
    """

    def __init__(self, columns: Any, indices: Any = None) -> None:
        self.held = columns
        if any(hasattr(column, "iloc") for column in self._parts):  # pandas finds elements by their labels
            self.held = self.map_columns(lambda column, path: column.to_numpy() if hasattr(column, "iloc") else column)
            columns = self.held
        lengths = lengths_of("columns", columns if isinstance(columns, (Mapping, tuple)) else (columns,))
        if len(set(lengths)) != 1:
            raise ValueError(f"Rows: the columns have lengths {lengths}; pass at least one column, all of equal length")
        self.indices = None if indices is None else checked_indices(indices, lengths[0])
        self._length = lengths[0] if self.indices is None else len(self.indices)

    def at(self, indices: Any) -> Rows:
        """The samples at `indices`, as `Rows`; nothing is copied. Raises the errors of `Rows`."""
        checked = checked_indices(indices, self._length)
        return self._of(self.held, checked if self.indices is None else self.indices[checked], len(checked))

    @classmethod
    def _of(cls, held: Any, indices: Indices | None, length: int) -> Rows:
        """`Rows` of columns and indices that were checked before."""
        rows = object.__new__(cls)
        rows.held, rows.indices, rows._length = held, indices, length
        return rows

    @property
    def columns(self) -> Any:
        """The columns with only these samples: arrays for arrays, `Rows` for `Rows`, and lists for everything else.

        Without `indices`, arrays are not copied: they may belong to the dataset.
        """
        return self.map_columns(lambda column, path: pick(column, self.indices))

    def map_columns(self, function: Callable[[Any, str], Any]) -> Any:
        """Returns the container with `function(column, path)` in place of each column; each column has all its rows."""
        if not isinstance(self.held, (Mapping, tuple)):
            return function(self.held, "")
        return refill(self.held, [function(column, path) for path, column in children(self.held) or ()])

    @property
    def _parts(self) -> tuple[Any, ...]:
        held = self.held
        return tuple(held.values() if isinstance(held, Mapping) else held if isinstance(held, tuple) else [held])

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.at(np.arange(*index.indices(self._length)))
        row = range(self._length)[index] if self.indices is None else self.indices.item(index)
        if not isinstance(self.held, (Mapping, tuple)):
            return self.held[row]
        return refill(self.held, [column[row] for column in self._parts])

    def __iter__(self) -> Iterator[Any]:
        held, rows = self.held, range(self._length) if self.indices is None else self.indices.tolist()
        if not isinstance(held, (Mapping, tuple)):
            return map(held.__getitem__, rows)
        samples: Iterator[Any] = zip(*[map(column.__getitem__, rows) for column in self._parts], strict=True)
        if type(held) is dict:
            return map(dict, map(zip, repeat(list(held)), samples))
        return samples if type(held) is tuple else map(partial(refill, held), samples)

    def __repr__(self) -> str:
        return f"Rows({self.columns!r})"


def pick(column: Any, indices: Indices | None) -> Any:
    """The elements of a column at `indices` (None: all): an array, `Rows` or a list, as the column is."""
    if indices is None:
        return column if isinstance(column, (np.ndarray, Rows)) else list(column)
    if isinstance(column, np.ndarray):
        return column[indices]
    if isinstance(column, Rows):
        rows = indices if column.indices is None else column.indices[indices]
        return Rows._of(column.held, rows, len(indices))
    return [column[i] for i in indices.tolist()]


def copy_rows(column: NDArray[Any], indices: Indices | None, out: NDArray[Any]) -> None:
    """Copies the rows at `indices` (in range; None: all) to `out` (C order), without temporary memory if possible."""
    flags = column.flags
    if indices is not None and flags.c_contiguous and flags.aligned and column.dtype == out.dtype:
        column.take(indices, 0, out, "clip")  # with "raise" NumPy would buffer `out`; the indices are in range
    else:  # np.take would first copy the whole column
        out[...] = column if indices is None else column[indices]
