"""Columns that lie in files: `NpyDataset`, `H5Dataset`, `ZarrDataset`. A sample is one row of each.

A batch is one read of each column. A dataset is pickled as where its columns lie, and opens them by itself in each
process.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtraError, add_note, bad_argument
from ..indices import Indices, checked_index, checked_indices
from ..memory import empty
from ..rows import Rows
from .base import Dataset
from .bulk import bulk_read, taken

__all__ = ["H5Dataset", "NpyDataset", "ZarrDataset"]

_DENSE: Final = 8  # to read as many small rows as one takes less time than to pick one out
_PICKED: Final = 16384  # to pick one out takes as long as to read as many bytes


class NpyDataset(Dataset):
    """Arrays in `.npy` files, memory-mapped: what is read once stays in the machine's cache, shared by all workers.

    A sample is a tuple of the arrays' elements `i`, the bare element where one file is given, or a dict where files are
    given by name. Elements that are arrays are read-only views on the file, batches are copies.

    Args:
        paths: the files that `np.save` has written, at least one; given by name, samples are dicts.

    Raises:
        ValueError: some files have names and some have not, one cannot be mapped, or their lengths differ.
    """

    _paths: Any

    def __init__(self, *paths: Any, **named: Any) -> None:
        fields = _fields("paths", paths, named, "images.npy")
        self.__setstate__({"_paths": _filled(fields, list(map(_absolute, _values(fields))))})

    def __getitem__(self, index: Any) -> Any:
        return self._rows[checked_index(index, len(self))]

    @bulk_read(lambda self: True)
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        return self._rows.at(indices)

    @property
    def _parts(self) -> tuple[Any, ...]:
        return (self._rows,)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._paths!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**{name: value for name, value in vars(self).items() if name != "_rows"}, "_length": len(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        arrays = [_mapped(path) for path in _values(self._paths)]
        found, was = _length_of(_values(self._paths), arrays), self.__dict__.pop("_length", None)
        if was not in (None, found):
            raise ValueError(f"{self!r}: the files have {found} rows now, and had {was} when this was pickled")
        self._rows = Rows(_filled(self._paths, arrays))


class _Stored(Dataset):
    """Columns that a library reads.

    Args:
        source: the file or store that holds them.
        fields: where each lies in it, as `_fields` gives it.

    Subclasses say how to open the source, and how to read rows of a column.
    """

    def __init__(self, source: Any, fields: Any) -> None:
        self._source, self._fields = source, fields
        columns = self._open()[1]
        self._length = _length_of([f"{source}: {name!r}" for name in _values(fields)], columns)
        chunks = getattr(columns[0], "chunks", None)
        self._block: int = chunks[0] if chunks else max(1, self._length)
        # By which process, what is to be kept, and the columns. Not yet: a worker may be forked from this process.
        self._opened: tuple[int, Any, list[Any]] | None = None

    @property
    def blocks(self) -> list[int]:
        """The number of rows in each chunk of the first column: the blocks for `BlockShuffleSampler`."""
        return [min(self._block, self._length - start) for start in range(0, self._length, self._block)]

    def __getitem__(self, index: Any) -> Any:
        return self._read(np.array([checked_index(index, self._length)]))[0]

    @bulk_read(lambda self: True)
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        return self._read(checked_indices(indices, self._length))

    _parts, gil_free = (), False  # of h5py all calls wait for each other; zarr runs too much of Python around a chunk

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._source)!r}, {self._fields})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": None}

    def _read(self, keys: Indices) -> Rows:
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            opened = self._opened = None  # first of all: HDF5 would share what it has open already
            opened = self._opened = (os.getpid(), *self._open())
        return Rows(_filled(self._fields, [self._rows(column, keys) for column in opened[2]]))

    def _rows(self, column: Any, keys: Indices) -> Any:
        """Rows of one column in this order: a new array, a list where they are objects."""
        first, end = (int(keys.min()), int(keys.max()) + 1) if len(keys) else (0, 0)
        size = column.dtype.itemsize * math.prod(column.shape[1:])
        if end - first > len(keys) * max(1, min(_DENSE, _PICKED // max(1, size))):
            rows = self._take(column, keys)
        elif (np.diff(keys) == 1).all():
            rows = self._slice(column, first, end)
        else:
            rows = taken(self._slice(column, first, end), keys - first)
        return list(rows) if rows.dtype.kind in "OT" else rows

    def _open(self) -> tuple[Any, list[Any]]:
        """What is to be kept open, and the columns."""
        raise NotImplementedError

    def _slice(self, column: Any, first: int, end: int) -> NDArray[Any]:
        return np.asarray(column[first:end])

    def _take(self, column: Any, keys: Indices) -> NDArray[Any]:
        """Rows of a column in this order, by one read of each chunk, which is decoded as a whole anyway."""
        order = np.argsort(keys)
        keys, size = keys[order], column.chunks[0]
        cuts = np.flatnonzero(np.diff(keys // size)) + 1
        rows: Any = None
        for part, places in zip(np.split(keys, cuts), np.split(order, cuts), strict=True):
            read = self._slice(column, part[0], part[-1] + 1)
            if rows is None:
                rows = empty((len(keys), *read.shape[1:]), read.dtype)
            rows[places] = read[part - part[0]]
        return cast("NDArray[Any]", rows)


class H5Dataset(_Stored):
    """Datasets of an HDF5 file, side by side, read in bulk by h5py.

    A sample is a tuple of their rows `i`, the bare row where one name is given, or a dict where names are given by
    keyword. Text of any length is str, where the file declares it as UTF-8, else bytes, and rows of different lengths
    are arrays. What lies close together is read at once: shuffle files that have chunks with
    `BlockShuffleSampler(dataset.blocks)`.

    Args:
        path: the file. Each process opens it for itself, to read.
        names: names of datasets in it, "group/name" in a group, at least one; by keyword, samples are dicts.

    Raises:
        MissingExtraError: h5py is not installed.
        ValueError: a name is not there, some are given by keyword and some are not, or lengths differ.
    """

    def __init__(self, path: Any, /, *names: str, **named: str) -> None:
        super().__init__(_absolute(path), _fields("names", names, named, "images"))

    def _open(self) -> tuple[Any, list[Any]]:
        h5py = _import("h5py", "hdf5")
        with _told(self._source):
            file = h5py.File(self._source, "r")
        return file, [_array_in(file, name, self._source) for name in _values(self._fields)]

    def _slice(self, column: Any, first: int, end: int) -> NDArray[Any]:
        return np.asarray(_decoded(column)[first:end])

    def _take(self, column: Any, keys: Indices) -> NDArray[Any]:
        if column.chunks:
            return super()._take(column, keys)
        wanted, back = np.unique(keys, return_inverse=True)
        return taken(np.asarray(_decoded(column)[wanted]), back)


class ZarrDataset(_Stored):
    """Arrays of a Zarr group, side by side, or one array, read in bulk by zarr, version 2 or 3.

    A sample is a tuple of their rows `i`, the bare row where one name or none is given, or a dict where names are given
    by keyword. Text is str. Whole chunks are decoded: shuffle with `BlockShuffleSampler(dataset.blocks)`.

    Args:
        store: a path, a URL, or a store of zarr's; not a store with a file open, but the file's path. Each process
            opens it for itself, to read.
        names: names of arrays in it, "group/name" in a group; by keyword, samples are dicts; none where the store is
            one array.

    Raises:
        MissingExtraError: zarr is not installed.
        ValueError: a name is not there, some are given by keyword and some are not, or lengths differ.
    """

    def __init__(self, store: Any, /, *names: str, **named: str) -> None:
        names = names if names or named else ("",)
        super().__init__(_absolute(store), _fields("names", names, named, "images"))

    def _open(self) -> tuple[Any, list[Any]]:
        with _told(self._source):
            group = _import("zarr", "zarr").open(self._source, mode="r")
            return group, [_array_in(group, name, self._source) for name in _values(self._fields)]


def _fields(argument: str, given: tuple[Any, ...], named: dict[str, Any], example: str) -> Any:
    """What stands for the sample's container: a dict, a tuple, or the only field itself."""
    if bool(given) == bool(named):
        right = f"give them either all by position or all by name, and at least one, e.g. {example!r}"
        raise bad_argument(argument, (*given, *named), right)
    for field in (*given, *named.values()):
        if not isinstance(field, (str, os.PathLike)):
            raise bad_argument(argument, field, f"give each by itself, as text, e.g. {example!r}")
    return named or (given if len(given) > 1 else given[0])


def _values(fields: Any) -> list[Any]:
    if isinstance(fields, dict):
        return list(fields.values())
    return list(fields) if isinstance(fields, tuple) else [fields]


def _filled(fields: Any, columns: Sequence[Any]) -> Any:
    """The container of `_fields` with these columns in it."""
    if isinstance(fields, dict):
        return dict(zip(fields, columns, strict=True))
    return tuple(columns) if isinstance(fields, tuple) else columns[0]


def _absolute(path: Any) -> Any:
    """The same file for a worker that starts in another folder; URLs and stores stay as they are."""
    is_path = isinstance(path, (str, os.PathLike)) and "://" not in os.fspath(path)
    return os.path.abspath(path) if is_path else path


def _length_of(names: Sequence[str], columns: Sequence[Any]) -> int:
    """The length that all columns have."""
    for name, column in zip(names, columns, strict=True):
        if not column.shape:
            raise ValueError(f"{name}: a single value, not rows; leave it out")
        if column.shape[0] != columns[0].shape[0]:
            told = f"{name} has length {column.shape[0]}, {names[0]} has {columns[0].shape[0]}"
            raise ValueError(f"{told}; all must have one length")
    return int(columns[0].shape[0])


def _mapped(path: str) -> NDArray[Any]:
    try:
        return np.asarray(np.lib.format.open_memmap(path, "r"))  # type: ignore[no-untyped-call]
    except ValueError as error:
        right = "give a file that np.save has written, of numbers or text of one length"
        raise ValueError(f"{path}: cannot be memory-mapped; {right} ({error})") from error


def _import(module: str, extra: str) -> Any:
    try:
        return sys.modules.get(module) or importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(extra) from error


@contextmanager
def _told(source: Any) -> Iterator[None]:
    """What the library raises within it says of which file."""
    try:
        yield
    except Exception as error:
        add_note(error, f"gluonloader: in opening {source}")
        raise


def _decoded(column: Any) -> Any:
    """A column of h5py's, as str where it is text of any length, and declared as UTF-8."""
    text = _import("h5py", "hdf5").check_string_dtype(column.dtype)
    return column.asstr() if text is not None and text.length is None and text.encoding == "utf-8" else column


def _array_in(group: Any, name: str, source: Any) -> Any:
    """An array in an open group, which may be the array itself, whose name is empty."""
    if not hasattr(group, "keys"):
        if name:
            raise ValueError(f"{source}: it is one array, and has none of name {name!r}; leave the name out")
        return group
    found = group.get(name) if name else group
    if not hasattr(found, "dtype"):
        there = sorted(group if found is None else found)[:20]
        raise ValueError(f"{source}: no array of name {name!r}; there are {there}")
    return found
