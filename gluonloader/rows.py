"""`Rows`: samples that are held as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .indices import Indices, lengths_of, positions
from .tree import refill

__all__ = ["Rows", "copy_rows", "pick"]


class Rows(Sequence[Any]):
    """Samples that are held as columns: what a dataset's `__getitems__` returns where reading them at once is cheap.

    `default_batchify` makes one batch of it by one copy for each column, or none; it is the same batch as that of the
    samples one by one. All else sees a sequence of samples.

    Args:
        columns: a dict or tuple of arrays, lists or other `Rows` of one length, N; or a single array, list or `Rows`,
            whose elements are then the samples. Without `indices`, a column that is an array may become the batch
            itself: give one that is new, and not the dataset's own.
        indices: ints, shape (M,), negative ones from the end: the samples are these rows of the columns. Nothing is
            copied before a batch is made. None: all rows in order.

    Raises:
        ValueError: there is no column, one has no length, or their lengths differ.
        IndexError: an index is out of range.
        TypeError: the indices are no ints.

    >>> rows = Rows({"x": np.arange(10, 14), "name": ["a", "b", "c", "d"]}, [3, 0])
    >>> len(rows), rows[1]["name"], rows.columns
    (2, 'a', {'x': array([13, 10]), 'name': ['d', 'a']})
    """

    def __init__(self, columns: Any, indices: Any = None) -> None:
        self.held = columns
        held = columns if isinstance(columns, (Mapping, tuple)) else (columns,)
        found = lengths_of("columns", held)
        if len(set(found)) != 1:
            raise ValueError(f"Rows: columns of lengths {found}; give at least one column, and all of one length")
        self.indices = None if indices is None else positions(indices, found[0])
        self._length = found[0] if self.indices is None else len(self.indices)

    def at(self, indices: Any) -> Rows:
        """The samples at these places of all rows; nothing is copied.

        Raises:
            IndexError: an index is out of range.
            TypeError: the indices are no ints.
        """
        found = positions(indices, self._length)
        return self._of(self.held, found if self.indices is None else self.indices[found], len(found))

    @classmethod
    def _of(cls, held: Any, indices: Indices | None, length: int) -> Rows:
        """Those of columns and indices that are known to be right."""
        rows = object.__new__(cls)
        rows.held, rows.indices, rows._length = held, indices, length
        return rows

    @property
    def columns(self) -> Any:
        """The columns with just these samples: arrays of arrays, `Rows` of `Rows`, lists of all else.

        They may be the dataset's own.
        """
        return self.gather(lambda column, path: pick(column, self.indices))

    def gather(self, take: Callable[[Any, str], Any]) -> Any:
        """The container of `take(column, path)` for each column as it is held, path being its place in a sample."""
        if isinstance(self.held, tuple):
            return refill(self.held, [take(column, f"[{i}]") for i, column in enumerate(self.held)])
        if isinstance(self.held, Mapping):
            return refill(self.held, [take(column, f"[{key!r}]") for key, column in self.held.items()])
        return take(self.held, "")

    @property
    def _parts(self) -> tuple[Any, ...]:
        held = self.held
        return tuple(held.values() if isinstance(held, Mapping) else held if isinstance(held, tuple) else [held])

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.at(np.arange(*index.indices(self._length)))
        return self._sample(range(self._length)[index] if self.indices is None else self.indices.item(index))

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

    def _sample(self, row: Any) -> Any:
        if isinstance(self.held, Mapping):
            return refill(self.held, [column[row] for column in self.held.values()])
        if isinstance(self.held, tuple):
            return refill(self.held, [column[row] for column in self.held])
        return self.held[row]


def pick(column: Any, indices: Indices | None) -> Any:
    """The elements of one column at `indices`, None for all: an array of an array, `Rows` of `Rows`, else a list."""
    if indices is None:
        return column if isinstance(column, (np.ndarray, Rows)) else list(column)
    if isinstance(column, np.ndarray):
        return column[indices]
    if isinstance(column, Rows):
        found = indices if column.indices is None else column.indices[indices]
        return Rows._of(column.held, found, len(indices))
    return [column[i] for i in indices.tolist()]


def copy_rows(column: NDArray[Any], indices: Indices | None, out: NDArray[Any]) -> None:
    """Copies rows of an array into another one, without memory of its own where it can.

    Args:
        column: shape (N, ...).
        indices: shape (M,), each from 0 to N - 1; None for all.
        out: shape (M, ...), C order.

    >>> out = np.empty(2)
    >>> copy_rows(np.array([0.1, 0.2, 0.3]), np.array([2, 0]), out)
    >>> out
    array([0.3, 0.1])
    """
    flags = column.flags
    if indices is not None and flags.c_contiguous and flags.aligned and column.dtype == out.dtype:
        column.take(indices, 0, out, "clip")  # they are in range; "raise" would buffer `out`
    else:  # np.take would copy all of the column first
        out[...] = column if indices is None else column[indices]
