"""Datasets of columns in files: `NpyDataset`, `H5Dataset`, `ZarrDataset`. A sample is one row of each column.

A batch costs one read per column. A pickled dataset contains only the paths; each process opens the files itself.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ..dataset.base import Dataset
from ..dataset.bulk import bulk_read, split_where_changed, taken
from ..describe import call, short_repr
from ..errors import ColumnError, bad_argument, import_extra
from ..indices import Indices, checked_index, checked_indices
from ..memory import empty
from ..rows import Rows
from ..tree import leaves, map_leaves, refill
from .unreadable import reading

_COPY: Final = "copy it again if it is damaged"
# Selecting a single row takes a library as long as reading this many rows, or bytes, of a contiguous range.
_ROWS_PER_SELECTION: Final = 8
_BYTES_PER_SELECTION: Final = 16384


class NpyDataset(Dataset):
    """A dataset of memory-mapped `.npy` files; all workers share the pages in the page cache of the system.

    Sample `i` is the tuple of element `i` of each array. If only one file is passed, it is the element itself; if files
    are passed by keyword, it is a dict. Arrays in samples are read-only views of the file, but batches are copies.

    Args:
        paths: at least one file that `np.save` has written. If files are passed by keyword, samples are dicts.

    Raises:
        ValueError: only some files are passed by keyword, or the lengths differ.
        ColumnError: a file is damaged, or its values cannot be mapped.
    """

    _paths: Any

    def __init__(self, *paths: Any, **named: Any) -> None:
        fields = _fields("paths", paths, named, "images.npy")
        self.__setstate__({"_paths": map_leaves(lambda field, path: _absolute(field), fields)})

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

    @short_repr
    def __repr__(self) -> str:
        return call(self, f"{len(self):,} rows of {', '.join([path for _, path in leaves(self._paths)])}")

    def __getstate__(self) -> dict[str, Any]:
        return {**{name: value for name, value in vars(self).items() if name != "_rows"}, "_length": len(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        paths = [path for _, path in leaves(self._paths)]
        arrays = list(map(map_npy, paths))
        length, pickled = _length_of(paths, arrays), self.__dict__.pop("_length", None)
        if pickled not in (None, length):
            what = f"the files have {length} rows, but had {pickled} rows when this was pickled"
            raise ValueError(f"{self._paths}: {what}")
        self._rows = _as_rows(self._paths, arrays)


class _Stored(Dataset):
    """Columns that a library reads from `source`, by their names in `fields`; a subclass opens the source."""

    _kind: str  # of the files, for errors
    _argument: str  # the name of the source
    _cure: str  # what to do if a column cannot be read

    def __init__(self, source: Any, fields: Any) -> None:
        if hasattr(source, "attrs"):
            right = "it is already open; pass its path, since each process opens the file itself"
            raise bad_argument(self._argument, source, right)
        self._source, self._fields = source, fields
        self._names: list[str] = [name for _, name in leaves(fields)]
        columns = self._open_columns()[1]
        self._length = self._length_of(columns)
        for name, column in zip(self._names, columns, strict=True):
            self._check(name, column)
        chunks = getattr(columns[0], "chunks", None)
        self._block_length: int = chunks[0] if chunks else max(1, self._length)
        # The process that opened the source, the open file, the columns. None until the first read, so that a worker
        # that is forked before it opens the file itself.
        self._opened: tuple[int, Any, list[Any]] | None = None

    @property
    def blocks(self) -> list[int]:
        """The number of rows in each chunk of the first column; pass this list to `BlockShuffleSampler`."""
        length = self._block_length
        return [min(length, self._length - start) for start in range(0, self._length, length)]

    def __getitem__(self, index: Any) -> Any:
        return self._read(np.array([checked_index(index, self._length)]))[0]

    @bulk_read(lambda self: True)
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        return self._read(checked_indices(indices, self._length))

    _parts, gil_free = (), False  # h5py has a global lock, zarr runs much Python code per chunk

    def __len__(self) -> int:
        return self._length

    @short_repr
    def __repr__(self) -> str:
        names = f": {', '.join(self._names)}" if any(self._names) else ""
        return call(self, f"{len(self):,} rows of {self._source}{names}")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": None}

    def _read(self, keys: Indices) -> Rows:
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            opened = self._opened = None  # close an inherited file first, or HDF5 would use that again
            file, columns = self._open_columns()
            if (length := self._length_of(columns)) != self._length:
                what = f"it has {length:,} rows, but had {self._length:,} when the dataset was made"
                raise ColumnError(f"{what}; make a new {type(self).__name__} if it was changed", str(self._source))
            opened = self._opened = (os.getpid(), file, columns)
        read = []
        for name, column in zip(self._names, opened[2], strict=True):
            with reading("its rows cannot be read", self._cure, str(self._source), name):
                read.append(self._rows(column, keys))
        return _as_rows(self._fields, read)

    def _length_of(self, columns: Sequence[Any]) -> int:
        return _length_of([f"{self._source}: {name!r}" for name in self._names], columns)

    def _rows(self, column: Any, keys: Indices) -> Any:
        """Rows of one column, in the order of `keys`: a new array, or a list if they are objects."""
        first, end = (int(keys.min()), int(keys.max()) + 1) if len(keys) else (0, 0)
        size = column.dtype.itemsize * math.prod(column.shape[1:])
        # h5py cannot select many rows that contain no values.
        if size and end - first > len(keys) * max(1, min(_ROWS_PER_SELECTION, _BYTES_PER_SELECTION // size)):
            rows = self._take(column, keys)
        elif (np.diff(keys) == 1).all():
            rows = self._slice(column, first, end)
        else:
            rows = taken(self._slice(column, first, end), keys - first)
        return list(rows) if rows.dtype.kind in "OT" else rows

    def _open_columns(self) -> tuple[Any, list[Any]]:
        with reading(f"it cannot be opened as {self._kind}", _COPY, str(self._source)):
            file = self._open()
        return file, [self._column(file, name) for name in self._names]

    def _column(self, file: Any, name: str) -> Any:
        """The array `name` of an open group; if the source is one array, that array, whose name is empty."""
        if not hasattr(file, "keys"):
            if name:
                raise ValueError(f"{self._source}: it is a single array without names; remove the name {name!r}")
            return file
        with reading("it cannot be opened", _COPY, str(self._source), name):
            array = file.get(name) if name else file
            if hasattr(array, "dtype") and hasattr(array, "shape"):
                return array
            names = sorted(array if hasattr(array, "keys") else file)
        if name in names:
            raise ColumnError("it is not an array, or a link to an array that is missing", str(self._source), name)
        raise ValueError(f"{self._source}: there is no array named {name!r}; the names are {names[:20]}")

    def _open(self) -> Any:
        raise NotImplementedError

    def _check(self, name: str, column: Any) -> None:
        """Raises a ColumnError if the library would read other values than those that were written."""

    def _slice(self, column: Any, first: int, end: int) -> NDArray[Any]:
        return np.asarray(column[first:end])

    def _take(self, column: Any, keys: Indices) -> NDArray[Any]:
        """Rows of a column, in the order of `keys`, by one read per chunk; the library decodes whole chunks anyway."""
        rows: Any = None
        for targets in split_where_changed(np.argsort(keys), keys // column.chunks[0]):
            part = keys[targets]
            read = self._slice(column, part[0], part[-1] + 1)
            if rows is None:
                rows = empty((len(keys), *read.shape[1:]), read.dtype)
            rows[targets] = read[part - part[0]]
        return cast("NDArray[Any]", rows)


class H5Dataset(_Stored):
    """A dataset of arrays of equal length in an HDF5 file ("HDF5 datasets"), read in bulk by h5py.

    Sample `i` is the tuple of row `i` of each array. If only one name is passed, it is the row itself; if names are
    passed by keyword, it is a dict. Variable-length text becomes str if the file declares it as UTF-8, otherwise bytes.
    In compound rows, text stays bytes, as h5py reads it. Rows of variable length become arrays. Neighbouring rows are
    read together, so shuffle a chunked file with `BlockShuffleSampler(dataset.blocks)`.

    Args:
        path: the file. Each process opens it itself, read-only.
        names: at least one name of an array in the file, "group/name" in a group. If names are passed by keyword,
            samples are dicts.

    Raises:
        MissingExtraError: h5py is not installed.
        ValueError: a name is missing, only some names are given by keyword, or the lengths differ.
        ColumnError: the file, or another file that contains a part of an array, is missing or damaged.
    """

    _kind, _argument = "HDF5", "path"
    _cure = f"{_COPY}; if it needs a filter, import the package of the filter, such as hdf5plugin"

    def __init__(self, path: Any, /, *names: str, **named: str) -> None:
        super().__init__(_absolute(path), _fields("names", names, named, "images"))

    def _open(self) -> Any:
        return import_extra("h5py", "hdf5").File(self._source, "r")

    def _check(self, name: str, column: Any) -> None:
        """HDF5 reads fill values for what other files do not contain."""
        folder, known = os.path.dirname(self._source), "HDF5_VDS_PREFIX" not in os.environ
        for path in {source.file_name for source in column.virtual_sources()} if column.is_virtual and known else ():
            if path != "." and "%b" not in path and not any(map(os.path.exists, (os.path.join(folder, path), path))):
                what = f"it is a virtual dataset, and its file {path} is missing"
                raise ColumnError(f"{what}; copy that file, or write a virtual dataset without it", self._source, name)
        parts = [part for part in column.external or () if os.path.exists(part[0])]
        size = sum(min(most, os.path.getsize(path) - offset) for path, offset, most in parts)
        if parts and size < column.nbytes:
            paths = ", ".join(path for path, _, _ in parts)
            what = f"{paths} contains only {size:,} of the {column.nbytes:,} bytes of its values"
            raise ColumnError(f"{what}; copy that again", self._source, name)

    def _slice(self, column: Any, first: int, end: int) -> NDArray[Any]:
        return np.asarray(_decoded(column)[first:end])

    def _take(self, column: Any, keys: Indices) -> NDArray[Any]:
        if column.chunks:
            return super()._take(column, keys)
        wanted, back = np.unique(keys, return_inverse=True)
        return taken(np.asarray(_decoded(column)[wanted]), back)


class ZarrDataset(_Stored):
    """A dataset of one Zarr array, or of arrays of equal length in a Zarr group, read in bulk by zarr 2 or 3.

    Sample `i` is the tuple of row `i` of each array. If at most one name is passed, it is the row itself; if names are
    passed by keyword, it is a dict. Text becomes str. zarr decodes whole chunks, so shuffle with
    `BlockShuffleSampler(dataset.blocks)`.

    Args:
        store: a path, a URL, or a zarr store; instead of a store with an open file, such as a zip file, pass its path.
            Each process opens the store itself, read-only.
        names: names of arrays in the group, "group/name" in an inner group. If names are passed by keyword, samples are
            dicts. Pass no name if the store is one array.

    Raises:
        MissingExtraError: zarr is not installed.
        ValueError: a name is missing, only some names are given by keyword, or the lengths differ.
        ColumnError: the store is damaged.
    """

    _kind, _argument = "Zarr", "store"
    _cure = f"{_COPY}; if it needs a codec, install the package of the codec"

    def __init__(self, store: Any, /, *names: str, **named: str) -> None:
        names = names if names or named else ("",)
        super().__init__(_absolute(store), _fields("names", names, named, "images"))

    def _open(self) -> Any:
        return import_extra("zarr", "zarr").open(self._source, mode="r")

    def _read(self, keys: Indices) -> Rows:
        rows, source = super()._read(keys), self._source
        if isinstance(source, str) and "://" not in source and not os.path.exists(source):  # zarr reads fill values
            raise ColumnError("it was removed while the dataset read it; make a new ZarrDataset", source)
        return rows


def _fields(argument: str, given: tuple[Any, ...], named: dict[str, Any], example: str) -> Any:
    """The names or paths in the container of a sample: a dict, a tuple, or the only name itself."""
    if bool(given) == bool(named):
        right = f"pass at least one, and either all by position or all by keyword, e.g. {example!r}"
        raise bad_argument(argument, (*given, *named), right)
    for field in (*given, *named.values()):
        if not isinstance(field, (str, os.PathLike)):
            raise bad_argument(argument, field, f"pass each of the {argument} as a separate text, e.g. {example!r}")
    return map_leaves(lambda field, path: os.fspath(field), named or (given if len(given) > 1 else given[0]))


def _as_rows(fields: Any, columns: Sequence[Any]) -> Rows:
    """The columns in the container that `_fields` returned."""
    return Rows(refill(fields, columns) if isinstance(fields, (dict, tuple)) else columns[0])


def _absolute(path: Any) -> Any:
    """An absolute path, for workers that start in another folder; URLs and stores stay unchanged."""
    is_path = isinstance(path, (str, os.PathLike)) and "://" not in os.fspath(path)
    return os.path.abspath(path) if is_path else path


def _length_of(names: Sequence[str], columns: Sequence[Any]) -> int:
    """The length of all columns; raises ValueError if the lengths differ."""
    for name, column in zip(names, columns, strict=True):
        if not column.shape:
            raise ValueError(f"{name}: it is a single value, not an array of rows; remove it from the arguments")
        if column.shape[0] < 0:
            raise ValueError(f"{name}: its shape {column.shape} is damaged; copy it again")
        if column.shape[0] != columns[0].shape[0]:
            what = f"{name} has length {column.shape[0]}, but {names[0]} has length {columns[0].shape[0]}"
            raise ValueError(f"{what}; all must have the same length")
    return int(columns[0].shape[0])


def map_npy(path: str) -> NDArray[Any]:
    """The array in a `.npy` file, mapped into memory; raises ColumnError if it is damaged."""
    right = f"pass a file that np.save has written, with numbers or fixed-length text; {_COPY}"
    with reading("it cannot be memory-mapped", right, path):
        array = np.lib.format.open_memmap(path, "r")  # type: ignore[no-untyped-call]
        left = os.path.getsize(path) - array.offset - array.nbytes
    if left:
        what = f"there are {left:,} bytes after its array of shape {array.shape}"
        raise ColumnError(f"{what}; write each array into its own file, or {_COPY}", path)
    return np.asarray(array)


def _decoded(column: Any) -> Any:
    """The column, wrapped so that h5py returns str if it is variable-length text declared as UTF-8."""
    text = import_extra("h5py", "hdf5").check_string_dtype(column.dtype)
    return column.asstr() if text is not None and text.length is None and text.encoding == "utf-8" else column
