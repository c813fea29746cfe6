"""What samples come in and batches keep: tuples, lists, mappings, dataclasses; and `Rows`, samples held as columns."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Indices",
    "Keys",
    "Rows",
    "as_list",
    "copy_rows",
    "is_int_array",
    "is_mask",
    "lengths_of",
    "pick",
    "position",
    "positions",
    "refill",
]

Indices = NDArray[np.intp]
_SIGNED: Final = np.dtype(np.intp)
_UNSIGNED: Final = np.dtype(np.uintp)
Keys = list[Any] | NDArray[np.int64]  # of samples; an array is not to be written to, nor given to what is not ours


def as_list(keys: Any) -> list[Any]:
    """Keys as a list; Python ints instead of NumPy's, which datasets of every kind take."""
    return keys.tolist() if isinstance(keys, np.ndarray) else list(keys)


def is_int_array(keys: Any) -> bool:
    """Whether it is an array of ints, shape (N,)."""
    return isinstance(keys, np.ndarray) and keys.ndim == 1 and keys.dtype.kind in "iu"


def refill(container: Any, contents: Any) -> Any:
    """A container of the same kind as `container`.

    Args:
        container: a tuple, named tuple, list, mapping or dataclass; it stays as it is.
        contents: a list of the items of a tuple or list; a dict by key of a mapping, by field of a dataclass.

    >>> refill((1, 2), ["a", "b"]), refill({"x": 1}, {"x": 5})
    (('a', 'b'), {'x': 5})
    """
    kind = type(container)
    if isinstance(container, tuple):
        return kind._make(contents) if hasattr(kind, "_make") else kind(contents)
    if isinstance(container, list):
        return kind(contents)
    mapping = isinstance(container, Mapping)
    if mapping and (kind is dict or not hasattr(container, "update")):
        return contents
    new = copy.copy(container)  # an OrderedDict, a defaultdict ... stays one
    for key, item in contents.items():
        if mapping:
            new[key] = item  # not update(), which adds in a Counter
        else:
            # Past a frozen dataclass's own __setattr__, and past a __post_init__ that checks single samples.
            object.__setattr__(new, key, item)
    return new


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
            return refill(self.held, {key: take(column, f"[{key!r}]") for key, column in self.held.items()})
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
        if isinstance(held, Mapping):
            samples = map(dict, map(zip, repeat(list(held)), samples))
        return samples if type(held) in (tuple, dict) else map(partial(refill, held), samples)

    def __repr__(self) -> str:
        return f"Rows({self.columns!r})"

    def _sample(self, row: Any) -> Any:
        if isinstance(self.held, Mapping):
            return refill(self.held, {key: column[row] for key, column in self.held.items()})
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


def lengths_of(name: str, parts: Any) -> list[int]:
    """The length of each part of a sequence or mapping, an argument that is called `name`.

    Raises:
        ValueError: a part has none.
    """
    found = []
    for key, part in parts.items() if isinstance(parts, Mapping) else enumerate(parts):
        try:
            found.append(len(part))
        except TypeError as error:
            right = "it has no length; give a list, an array or a dataset that has one"
            raise ValueError(f"{name}[{key!r}]={part!r:.80}: {right}") from error
    return found


def is_mask(indices: Any) -> bool:
    """Whether it is an array, column or list of bools, which would be taken for the indices 0 and 1."""
    if hasattr(indices, "dtype"):
        return "bool" in str(indices.dtype).lower()
    listed = isinstance(indices, (list, tuple)) and len(indices) > 0
    return listed and all(isinstance(index, (bool, np.bool_)) for index in indices)


def position(index: Any, length: int) -> int:
    """The index of a sample, from 0 to `length - 1`; a negative one counts from the end.

    Raises:
        IndexError: it is out of range.
        TypeError: it is no int.
    """
    if not hasattr(index, "__index__"):
        raise TypeError(f"index={index!r:.80}: give an int; for several samples, Subset(dataset, indices)")
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range for {length} samples")
    return int(index) % length


def positions(indices: Any, length: int) -> Indices:
    """Indices of samples as an array, shape (M,), each from 0 to `length - 1`; negative ones count from the end.

    Raises:
        IndexError: one is out of range.
        TypeError: they are no ints.
    """
    found = np.asarray(indices)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size):
        raise TypeError(f"indices={indices!r:.80}: give ints, shape (M,)")
    if found.dtype is not _SIGNED:
        found = found.astype(_SIGNED)
    sizes = found.view(_UNSIGNED)  # a negative one is very large
    if found.size and sizes.item(sizes.argmax()) >= length:
        outside = (found < -length) | (found >= length)
        if outside.any():
            raise IndexError(f"index {found[outside][0]} is out of range for {length} samples")
        found = np.where(found < 0, found + length, found)
    return found
