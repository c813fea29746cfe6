"""Conversion of Arrow columns to NumPy: the dtype of a column, what a null becomes, and 2-D arrays of several columns.

Column      one column of a table, as an array or as Python objects
Matrix      several columns of numbers, as one 2-D array
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import bad_argument, import_extra
from .bulk import taken

_FLOATS: Final = {"halffloat": "f2", "float": "f4", "double": "f8"}  # Arrow's names that are not those of NumPy

Layout = dict[str, "str | tuple[str, ...]"]  # the fields of a sample: a column, or the columns of a 2-D array


def pyarrow(module: str = "pyarrow") -> Any:
    """Returns pyarrow, or a module of it; raises `MissingExtraError` if it is not installed."""
    return import_extra(module, "arrow")


@dataclass(frozen=True, slots=True)
class Column:
    """How one column is read."""

    name: str  # in the table
    kind: Any  # the Arrow type of its values
    dtype: np.dtype[Any] | None  # of its values in NumPy; None if they become Python objects
    shape: tuple[int, ...] = ()  # of one value

    def decode(self, table: Any) -> Any:
        """Returns the column as a NumPy array, or as an Arrow array if its values become Python objects.

        The array may be a read-only view of the memory of the table.
        """
        pa, values = pyarrow(), table.column(self.name)
        if isinstance(values.type, pa.BaseExtensionType):
            values = pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
        if values.type != self.kind:
            values = values.cast(self.kind)
        if self.dtype is None:
            whole = values.combine_chunks()
            if _is_list_of_numbers(self.kind) and counts_nulls(self.kind.value_type):
                self._refuse_nulls(whole.flatten(), "cast the column to lists of floats, whose nulls become NaN")
            return whole
        if self.shape:
            self._refuse_nulls(values, "cast the column to list_(...), whose nulls become None")
            values = values.combine_chunks().flatten()
        if pa.types.is_decimal(values.type) or (counts_nulls(values.type) and self.dtype == np.float64):
            values = values.cast(pa.float64(), safe=False)
        elif counts_nulls(values.type):
            written = "" if self.shape else ", or write the file with statistics"
            self._refuse_nulls(values, f"cast the column to floats{written}; then a null becomes NaN")
        if isinstance(values, pa.ChunkedArray):
            values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
        return _as_numpy(values, self.dtype).reshape(-1, *self.shape)

    def pick(self, decoded: Any, rows: NDArray[np.intp]) -> Any:
        """The values in these rows of what `decode` returned: an array or a list."""
        if self.dtype is None:
            return self._objects(self.take(decoded, rows))
        return taken(decoded, rows)

    def take(self, decoded: Any, rows: NDArray[np.intp]) -> Any:
        """These rows of what `decode` returned, still as NumPy or Arrow array."""
        return decoded.take(pyarrow().array(rows)) if self.dtype is None else decoded.take(rows, 0)

    def join(self, parts: Sequence[Any], order: NDArray[np.intp]) -> Any:
        """The values of the results of several calls of `take`, concatenated and then permuted by `order`."""
        return self.pick(pyarrow().concat_arrays(parts) if self.dtype is None else np.concatenate(parts), order)

    def get(self, decoded: Any, row: int) -> Any:
        if self.dtype is not None:
            return decoded[row].copy() if self.shape else decoded[row]  # the row group stays in use
        if _is_list_of_numbers(self.kind):
            return self._objects(decoded.slice(row, 1))[0]
        return decoded[row].as_py()

    def _objects(self, values: Any) -> list[Any]:
        at_once = str(self.kind) in ("large_string", "large_binary") or _is_list_of_numbers(self.kind)
        listed: list[Any] = values.to_numpy(zero_copy_only=False).tolist() if at_once else values.to_pylist()
        return listed

    def _refuse_nulls(self, values: Any, right: str) -> None:
        if values.null_count:
            raise ValueError(
                f"column {self.name!r} of type {values.type} contains a null, which NumPy cannot store; fill it with "
                f"pyarrow.compute.fill_null, or {right}"
            )


@dataclass(frozen=True, slots=True)
class Matrix(Column):
    """How several columns of numbers are read as one array, one row for each row of the table."""

    columns: tuple[Column, ...] = ()

    def decode(self, table: Any) -> Any:
        rows: NDArray[Any] = np.empty((table.num_rows, len(self.columns)), self.dtype)
        for number, column in enumerate(self.columns):
            rows[:, number] = column.decode(table)
        return rows


def layout_of(columns: Any) -> Layout | None:
    """The argument `columns` of `ArrowDataset`; None for all columns of the table."""
    if columns is None:
        return None
    if isinstance(columns, (str, bytes)) or not columns:
        right = "pass a list of column names, a dict such as {'x': ['a', 'b'], 'y': 'c'}, or None for all columns"
        raise bad_argument("columns", columns, right)
    if not isinstance(columns, Mapping):
        return {name: name for name in columns}
    layout: Layout = {}
    for key, names in columns.items():
        listed = isinstance(names, (list, tuple)) and names and all(isinstance(name, str) for name in names)
        if not isinstance(key, str) or not (isinstance(names, str) or listed):
            right = "must be the name of a column, or a list of names for a 2-D array; the key must be a str"
            raise bad_argument(f"columns[{key!r}]", names, right)
        layout[key] = names if isinstance(names, str) else tuple(names)
    return layout


def names_in(layout: Layout | None) -> list[str] | None:
    """The columns that a layout reads, each once; None for all columns of the table."""
    if layout is None:
        return None
    listed = [[names] if isinstance(names, str) else names for names in layout.values()]
    return list(dict.fromkeys(chain.from_iterable(listed)))


def columns_of(layout: Layout | None, fields: Sequence[Any], nulls: set[str]) -> dict[str, Column]:
    """How each field of a sample is read.

    Args:
        fields: the pyarrow Fields that the layout names.
        nulls: the names of those that have nulls; it matters only for types that `counts_nulls`.
    """
    columns = {field.name: _column_of(field, field.name in nulls) for field in fields}
    if layout is None:
        return columns
    return {
        key: columns[names] if isinstance(names, str) else _matrix_of(key, [columns[name] for name in names])
        for key, names in layout.items()
    }


def _matrix_of(key: str, columns: Sequence[Column]) -> Matrix:
    for column in columns:
        if column.dtype is None or column.shape or column.dtype.kind not in "biuf":
            right = f"read it under its own key: {{..., {column.name!r}: {column.name!r}}}"
            what = f"column {column.name!r} has type {column.kind}, but a 2-D array takes only numbers and bools"
            raise ValueError(f"columns[{key!r}]: {what}; {right}")
    dtype = np.result_type(*[column.dtype for column in columns if column.dtype is not None])
    return Matrix(key, None, dtype, (len(columns),), tuple(columns))


def _column_of(field: Any, nulls: bool) -> Column:
    kind, types = _plain(field.type), pyarrow().types
    if types.is_fixed_size_list(kind) and (dtype := _dtype(kind.value_type, False)) is not None:
        return Column(field.name, kind, dtype, (kind.list_size,))
    return Column(field.name, kind, _dtype(kind, nulls))


def counts_nulls(kind: Any) -> bool:
    """Whether the dtype of a column of this type depends on whether it has nulls."""
    types, kind = pyarrow().types, _plain(kind)
    return bool(types.is_integer(kind) or types.is_boolean(kind))


def _as_numpy(values: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """An Arrow array of numbers, bools or times as a NumPy array, a view if possible; a null becomes NaN or NaT.

    `values.to_numpy()` does the same, but imports pandas if it is installed, which takes each worker 0.3 s.
    """
    validity, data = values.buffers()
    part = slice(values.offset, values.offset + len(values))
    if data is None:  # no values
        return np.empty(0, dtype)
    if dtype.kind == "b":
        return _bits(data)[part].view(np.bool_)
    stored = np.int32 if pyarrow().types.is_date32(values.type) else dtype
    array: NDArray[Any] = np.frombuffer(data, stored, part.stop)[part].astype(dtype, copy=False)
    if values.null_count:
        array = array.copy()
        array[_bits(validity)[part] == 0] = np.array("nan" if dtype.kind == "f" else "NaT", dtype)
    return array


def _bits(buffer: Any) -> NDArray[np.uint8]:
    """The bits of an Arrow buffer, one in each element."""
    return np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little")


def _dtype(kind: Any, nulls: bool) -> np.dtype[Any] | None:
    types = pyarrow().types
    if types.is_decimal(kind) or (nulls and counts_nulls(kind)):
        return np.dtype(np.float64)
    if counts_nulls(kind) or types.is_floating(kind):
        return np.dtype(_FLOATS.get(str(kind), str(kind)))
    if types.is_timestamp(kind):
        return np.dtype(f"M8[{kind.unit}]")
    if types.is_duration(kind):
        return np.dtype(f"m8[{kind.unit}]")
    if types.is_date(kind):
        return np.dtype("M8[D]" if types.is_date32(kind) else "M8[ms]")
    return None


def _plain(kind: Any) -> Any:
    """The type of the values: the entries of a dictionary, the storage of an extension; text with 64-bit offsets."""
    pa = pyarrow()
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    if str(kind) in ("string", "string_view"):
        return pa.large_string()
    return pa.large_binary() if str(kind) in ("binary", "binary_view") else kind


def _is_list_of_numbers(kind: Any) -> bool:
    types = pyarrow().types
    listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(listed and _dtype(kind.value_type, False) is not None)
