"""Conversion of Arrow columns to NumPy: the dtype of a column, and what a null becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import import_extra
from .bulk import taken


def pyarrow(module: str = "pyarrow") -> Any:
    """Returns pyarrow, or a module of it; raises `MissingExtraError` if it is not installed."""
    return import_extra(module, "arrow")


@dataclass(frozen=True, slots=True)
class Column:
    """How one column is read."""

    name: str
    kind: Any  # the Arrow type of its values
    dtype: np.dtype[Any] | None  # of its values in NumPy; None if they become Python objects
    shape: tuple[int, ...] = ()  # of one value

    def decode(self, values: Any) -> Any:
        """Returns a ChunkedArray as a NumPy array, or as an Arrow array if its values become Python objects."""
        pa = pyarrow()
        if isinstance(values.type, pa.BaseExtensionType):
            values = pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
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
        return np.ascontiguousarray(values.to_numpy(zero_copy_only=False), self.dtype).reshape(-1, *self.shape)

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
            return decoded[row]
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


def column_of(field: Any, nulls: bool) -> Column:
    """How a pyarrow Field is read; `nulls` (whether it has nulls) matters only if `counts_nulls(field.type)`."""
    kind, types = _plain(field.type), pyarrow().types
    if types.is_fixed_size_list(kind) and (dtype := _dtype(kind.value_type, False)) is not None:
        return Column(field.name, kind, dtype, (kind.list_size,))
    return Column(field.name, kind, _dtype(kind, nulls))


def counts_nulls(kind: Any) -> bool:
    """Whether the dtype of a column of this type depends on whether it has nulls."""
    types, kind = pyarrow().types, _plain(kind)
    return bool(types.is_integer(kind) or types.is_boolean(kind))


def _dtype(kind: Any, nulls: bool) -> np.dtype[Any] | None:
    types = pyarrow().types
    if types.is_decimal(kind) or (nulls and counts_nulls(kind)):
        return np.dtype(np.float64)
    if counts_nulls(kind) or types.is_floating(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
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
