"""Conversion of Arrow columns to NumPy: the dtype of a column, what a null becomes, and 2-D arrays of several columns.

Column      one column of a table, as an array or as Python objects
Matrix      several columns of numbers, as one 2-D array
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..dataset.bulk import taken
from ..errors import ColumnError, bad_argument, import_extra
from ..messages import message
from .unreadable import reading

CURE: Final = "copy the file again if it is damaged; otherwise cast the column, or pass columns=[...] without it"
_FLOATS: Final = {"halffloat": "f2", "float": "f4", "double": "f8"}  # Arrow's names that are not those of NumPy

Layout = dict[str, "str | tuple[str, ...]"]  # the fields of a sample: a column, or the columns of a 2-D array


def pyarrow(module: str = "pyarrow") -> Any:
    """Returns pyarrow, or a module of it; raises `MissingExtraError` if it is not installed."""
    return import_extra(module, "arrow")


@message(frozen=True, slots=True)
class Column:
    """How one column is read."""

    name: str  # in the table
    kind: Any  # the Arrow type of its values
    dtype: np.dtype[Any] | None  # of its values in NumPy; None if they become Python objects
    stored: tuple[int, ...] = ()  # the shape of one value in the table
    axes: tuple[int, ...] = ()  # the order of the axes of a value, if it is not that of `stored`

    def decode(self, table: Any) -> Any:
        """Returns the column as a NumPy array, or as an Arrow array if its values become Python objects.

        The array may be a read-only view of the memory of the table.
        """
        pa, values = pyarrow(), _plain_values(table.column(self.name))
        if values.type != self.kind:
            values = values.cast(self.kind)
        if self.dtype is None:
            whole = values.combine_chunks()
            if _is_list_of_numbers(self.kind) and counts_nulls(self.kind.value_type):
                self._refuse_nulls(whole.flatten(), "cast the column to lists of floats, whose nulls become NaN")
            return whole
        if self.stored:
            self._refuse_nulls(values, "cast the column to list_(...), whose nulls become None")
            values = values.combine_chunks().flatten()
        if pa.types.is_decimal(values.type):  # a direct cast multiplies by 0.1 ** scale, so its last digit may be wrong
            values = values.cast(pa.string()).cast(pa.float64())
        elif counts_nulls(values.type) and self.dtype == np.float64:
            values = values.cast(pa.float64(), safe=False)
        elif counts_nulls(values.type):
            written = "" if self.stored else ", or write the file with statistics"
            self._refuse_nulls(values, f"cast the column to floats{written}; then a null becomes NaN")
        if isinstance(values, pa.ChunkedArray):
            values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
        rows = _as_numpy(values, self.dtype).reshape(table.num_rows, *self.stored)
        return np.ascontiguousarray(rows.transpose(0, *[axis + 1 for axis in self.axes])) if self.axes else rows

    def pick(self, decoded: Any, rows: NDArray[np.intp]) -> Any:
        """The values in these rows of what `decode` returned: an array or a list."""
        if self.dtype is None:
            return self._objects(self.take(decoded, rows))
        return taken(decoded, rows)

    def take(self, decoded: Any, rows: NDArray[np.intp]) -> Any:
        """These rows of what `decode` returned, still as NumPy or Arrow array."""
        if self.dtype is not None:
            return decoded.take(rows, 0)
        try:
            return decoded.take(pyarrow().array(rows))
        except pyarrow().ArrowNotImplementedError:  # for views of texts and runs of values inside of lists and structs
            return [value for row in rows.tolist() for value in self._objects(decoded.slice(row, 1))]

    def join(self, parts: Sequence[Any], order: NDArray[np.intp]) -> Any:
        """The values of the results of several calls of `take`, concatenated and then permuted by `order`."""
        if self.dtype is not None:
            return self.pick(np.concatenate(parts), order)
        if isinstance(parts[0], list):
            values = list(chain.from_iterable(parts))
            return [values[row] for row in order.tolist()]
        return self.pick(pyarrow().concat_arrays(parts), order)

    def get(self, decoded: Any, row: int) -> Any:
        if self.dtype is not None:
            return decoded[row].copy() if self.stored else decoded[row]  # the row group stays in use
        if _is_list_of_numbers(self.kind):
            return self._objects(decoded.slice(row, 1))[0]
        try:
            return decoded[row].as_py()
        except Exception:
            with self._converting():
                raise

    def _objects(self, values: Any) -> list[Any]:
        if isinstance(values, list):
            return values
        at_once = str(self.kind) in ("large_string", "large_binary") or _is_list_of_numbers(self.kind)
        with self._converting():
            listed: list[Any] = values.to_numpy(zero_copy_only=False).tolist() if at_once else values.to_pylist()
            return listed

    def _converting(self) -> AbstractContextManager[None]:
        return reading("a value cannot become a Python object", CURE, "", self.name)

    def _refuse_nulls(self, values: Any, right: str) -> None:
        if values.null_count:
            what = f"it contains a null, which NumPy cannot store in an array of {values.type}"
            raise ColumnError(f"{what}; fill it with pyarrow.compute.fill_null, or {right}", "", self.name)


@message(frozen=True, slots=True)
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
    names = list(columns) if isinstance(columns, Iterable) and not isinstance(columns, (str, bytes)) else []
    is_dict = isinstance(columns, Mapping)
    if not names or not (is_dict or all(isinstance(name, str) for name in names)):
        right = "pass a list of column names, a dict such as {'x': ['a', 'b'], 'y': 'c'}, or None for all columns"
        raise bad_argument("columns", columns, right)
    if not is_dict and len(set(names)) < len(names):
        raise bad_argument("columns", columns, "it names a column twice; remove one of them")
    if not is_dict:
        return {str(name): str(name) for name in names}
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
        if column.dtype is None or column.stored or column.dtype.kind not in "biuf":
            right = f"read it under its own key: {{..., {column.name!r}: {column.name!r}}}"
            what = f"column {column.name!r} has type {column.kind}, but a 2-D array takes only numbers and bools"
            raise ValueError(f"columns[{key!r}]: {what}; {right}")
    dtype = np.result_type(*[column.dtype for column in columns if column.dtype is not None])
    return Matrix(key, None, dtype, (len(columns),), columns=tuple(columns))


def _column_of(field: Any, nulls: bool) -> Column:
    kind, types = plain_type(field.type), pyarrow().types
    if types.is_fixed_size_list(kind) and (dtype := _dtype(kind.value_type, False)) is not None:
        if getattr(field.type, "extension_name", "") == "arrow.fixed_shape_tensor":
            return Column(field.name, kind, dtype, tuple(field.type.shape), _axes_of(field))
        return Column(field.name, kind, dtype, (kind.list_size,))
    return Column(field.name, kind, _dtype(kind, nulls))


def _axes_of(field: Any) -> tuple[int, ...]:
    """The order of the axes of tensors; empty if it is that of the table."""
    axes = tuple(field.type.permutation or ())
    if any(axes[axis] != place for place, axis in enumerate(axes)):
        what = (
            f"its tensors have permutation={list(axes)}, which pyarrow and the format of Arrow understand differently"
        )
        raise ColumnError(f"{what}; write C-contiguous arrays: np.ascontiguousarray(array)", "", field.name)
    return axes if axes != tuple(sorted(axes)) else ()


def null_count(values: Any) -> int:
    """The number of nulls in a column of a table, also in categories and runs."""
    return int(_plain_values(values).null_count)


def counts_nulls(kind: Any) -> bool:
    """Whether the dtype of a column of this type depends on whether it has nulls."""
    types, kind = pyarrow().types, plain_type(kind)
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


def plain_type(kind: Any) -> Any:
    """The type of the values without dictionaries, runs, extensions and views; text with 64-bit offsets."""
    pa, name = pyarrow(), str(kind)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if name in ("string", "string_view"):
        return pa.large_string()
    if name in ("binary", "binary_view"):
        return pa.large_binary()
    kind = _list_of_view(kind) or kind
    if _is_list(kind) and _is_number(inner := plain_type(kind.value_type)) and inner != kind.value_type:
        if pa.types.is_fixed_size_list(kind):
            return pa.list_(inner, kind.list_size)
        return (pa.large_list if pa.types.is_large_list(kind) else pa.list_)(inner)
    return kind


def _plain_values(values: Any) -> Any:
    """A column without dictionaries, runs, extensions and views of lists."""
    pa = pyarrow()
    kind, chunks = values.type, values.chunks
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind, chunks = kind.storage_type, [chunk.storage for chunk in chunks]
        elif pa.types.is_dictionary(kind):
            kind, chunks = kind.value_type, [chunk.dictionary.take(chunk.indices) for chunk in chunks]
        elif pa.types.is_run_end_encoded(kind):
            kind, chunks = kind.value_type, [pyarrow("pyarrow.compute").run_end_decode(chunk) for chunk in chunks]
        elif (lists := _list_of_view(kind)) is not None:
            kind, chunks = lists, [_as_lists(chunk) for chunk in chunks]
        else:
            return values if kind == values.type else pa.chunked_array(chunks, kind)


def _list_of_view(kind: Any) -> Any:
    """The type of lists that are like views of lists; None for any other type."""
    pa, name = pyarrow(), str(kind)
    if name.startswith("large_list_view<"):
        return pa.large_list(kind.value_type)
    return pa.list_(kind.value_type) if name.startswith("list_view<") else None


def _as_lists(views: Any) -> Any:
    """Views of lists as lists, which a cast of pyarrow does wrong: slices of views lose values."""
    pa, compute = pyarrow(), pyarrow("pyarrow.compute")
    lengths = compute.fill_null(compute.list_value_length(views), 0)
    kind = pa.LargeListArray if pa.types.is_int64(lengths.type) else pa.ListArray
    ends = np.cumsum([0, *lengths.to_pylist()])
    return kind.from_arrays(pa.array(ends, lengths.type), views.flatten(), mask=compute.is_null(views))


def _is_list(kind: Any) -> bool:
    types = pyarrow().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_number(kind: Any) -> bool:
    return _dtype(kind, False) is not None


def _is_list_of_numbers(kind: Any) -> bool:
    return _is_list(kind) and _is_number(kind.value_type)
