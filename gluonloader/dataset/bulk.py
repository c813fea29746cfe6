"""Bulk reads: which datasets offer `__getitems__`, and how the results of several datasets become one.

A dataset with `__getitems__(indices)` is read once per batch. `hasattr` decides, so classes use `bulk_read` to give the
method only to those objects that gain from it: it has a cost, and its errors cannot name a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MethodType
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ..declared import IN_MEMORY, defining_namespace
from ..errors import add_note, bad_argument
from ..indices import Indices, as_list, is_int_array, is_mask
from ..memory import empty
from ..rows import Rows, copy_rows, pick
from ..tree import refill

_LARGE_ROW: Final = 32768  # bytes; larger rows are copied one by one


class bulk_read:  # noqa: N801, a decorator
    """Decorates a method `__getitems__` that only those objects have for which `offered(self)` is true.

    A subclass that defines `__getitem__` but no `__getitems__` does not have it, since its samples differ. The method
    takes its indices as a list or as an array of ints.
    """

    def __init__(self, offered: Callable[[Any], bool]) -> None:
        self._offered = offered

    def __call__(self, method: Callable[[Any, Sequence[Any]], Sequence[Any]]) -> bulk_read:
        self._method, self.__doc__ = method, method.__doc__
        vars(method)["takes_arrays"] = True
        return self

    def __get__(self, dataset: Any, kind: type) -> Any:
        if dataset is None:
            return self
        if "__getitems__" not in defining_namespace(kind, "__getitem__", "__getitems__") or not self._offered(dataset):
            raise AttributeError(f"this {kind.__name__} has no __getitems__; it reads sample by sample")
        return self._method.__get__(dataset, kind)


def check_no_mask(name: str, indices: Any) -> None:
    """Raises a ValueError if the argument `name` is a mask, which would be read as the indices 0 and 1."""
    if is_mask(indices):
        raise bad_argument(name, indices, "a mask; give np.flatnonzero(mask), the indices where it is true")


def are_ints(indices: Any) -> bool:
    """Whether all indices are ints; only `__getitem__` knows what other keys mean, such as slices."""
    if isinstance(indices, np.ndarray):
        return is_int_array(indices)
    return all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in set(map(type, indices)))


def read(dataset: Any, indices: Any) -> Sequence[Any]:
    """The samples at `indices`, by one bulk read if the dataset has it; errors of single reads name the index.

    Args:
        dataset: any object with `__getitem__` or `__getitems__`.
        indices: a list, or an array of ints.

    Raises:
        ValueError: `__getitems__` returned another number of samples.
    """
    if (bulk := getattr(dataset, "__getitems__", None)) is not None:
        return read_by(bulk, indices)
    return each(dataset.__getitem__, as_list(indices), indices)


def read_by(bulk: Callable[[Any], Sequence[Any]], indices: Any) -> Sequence[Any]:
    """The samples at `indices` by the method `bulk`; one of a user gets the indices as a new list."""
    # A function that wraps a method has its attributes, but may not take an array.
    takes_arrays = isinstance(bulk, MethodType) and hasattr(bulk, "takes_arrays")
    samples = bulk(indices if takes_arrays else as_list(indices))
    if len(samples) != len(indices):
        what = f"{getattr(bulk, '__qualname__', bulk)} gave {len(samples)} samples for {len(indices)} indices"
        raise ValueError(f"{what}; return one for each, in the same order")
    return samples


def each(fn: Callable[[Any], Any], values: Sequence[Any], indices: Sequence[Any]) -> list[Any]:
    """`fn(value)` for each value; an error gets a note with the sample's index."""
    results: list[Any] = []
    try:
        for value in values:
            results.append(fn(value))  # noqa: PERF401, extend would treat a StopIteration from fn as the end
    except Exception as error:
        add_note(error, f"gluonloader: sample {as_list(indices)[len(results)]!r} of a bulk read")
        raise
    return results


def taken(column: NDArray[Any], indices: Indices) -> NDArray[Any]:
    """These rows of an array, copied into the memory of the batch."""
    out = empty((len(indices), *column.shape[1:]), column.dtype)
    copy_rows(column, indices, out)
    return out


def interleave(parts: Sequence[Any], order: NDArray[np.intp]) -> Sequence[Any]:
    """The samples of several bulk reads as one sequence: `Rows` of `Rows`, an array of arrays, otherwise a list.

    Args:
        parts: the results of the bulk reads.
        order: shape (N,): concatenated, the results hold the samples `order[0]`, `order[1]`, ... of the sequence.
    """
    if _are_alike(parts):
        joined = [_merge(column, order) for column in zip(*map(_selections, parts), strict=True)]
        held = parts[0].held
        return Rows(refill(held, joined) if isinstance(held, (Mapping, tuple)) else joined[0])
    return _merge([_Selection(part, None) for part in parts], order)


@dataclass(slots=True)
class _Selection:
    """The rows of one column at `indices`; None means all."""

    column: Any
    indices: Indices | None

    def __len__(self) -> int:
        return len(self.column) if self.indices is None else len(self.indices)

    def rows(self) -> Iterable[Any]:
        return self.column if self.indices is None else map(self.column.__getitem__, self.indices)


def _merge(selections: Sequence[_Selection], order: NDArray[np.intp]) -> Sequence[Any]:
    first = selections[0].column
    merged: Any
    if all(type(s.column) in IN_MEMORY and _row_type(s.column) == _row_type(first) for s in selections):
        merged = empty((len(order), *first.shape[1:]), first.dtype)
        if merged.nbytes >= len(order) * _LARGE_ROW:
            for row, value in zip(order.tolist(), chain.from_iterable(map(_Selection.rows, selections)), strict=True):
                merged[row] = value
            return cast("Sequence[Any]", merged)
        # First concatenated, then permuted: for small rows two sequential copies take half the time of one random copy.
        concatenated: NDArray[Any] = np.empty(merged.shape, merged.dtype)
        start = 0
        for selection in selections:
            copy_rows(selection.column, selection.indices, concatenated[start : start + len(selection)])
            start += len(selection)
        inverse = np.empty(len(order), np.intp)
        inverse[order] = np.arange(len(order))
        copy_rows(concatenated, inverse, merged)
        return cast("Sequence[Any]", merged)
    samples = [pick(selection.column, selection.indices) for selection in selections]
    if _are_alike(samples):
        return interleave(samples, order)
    merged = [None] * len(order)
    for row, sample in zip(order.tolist(), chain.from_iterable(samples), strict=True):
        merged[row] = sample
    return cast("Sequence[Any]", merged)


def _are_alike(parts: Sequence[Any]) -> bool:
    """Whether all are `Rows` of the same structure."""
    return all(isinstance(part, Rows) and _structure(part.held) == _structure(parts[0].held) for part in parts)


def _structure(held: Any) -> Any:
    if isinstance(held, Mapping):
        return type(held), list(held)
    return (type(held), len(held)) if isinstance(held, tuple) else None


def _selections(rows: Rows) -> list[_Selection]:
    held = rows.held
    columns = held.values() if isinstance(held, Mapping) else held if isinstance(held, tuple) else [held]
    return [_Selection(column, rows.indices) for column in columns]


def _row_type(array: Any) -> Any:
    return array.dtype, array.shape[1:]
