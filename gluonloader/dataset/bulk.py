"""Bulk reads: which datasets offer `__getitems__`, and how the results of several datasets are joined.

A dataset with `__getitems__(indices)` is read once per batch. A loader tests for the method with `hasattr`, so classes
use `bulk_read` to hide the method in objects for which it is not faster: its errors cannot name a sample.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from inspect import isawaitable
from itertools import chain
from types import CoroutineType, MethodType
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ..checks import cure_of
from ..declared import IN_MEMORY, defining_namespace
from ..errors import a_class, add_note, bad_argument
from ..indices import Indices, as_list, is_int_array, is_mask
from ..memory import empty, for_samples
from ..rows import Rows, copy_rows, pick
from ..tree import refill

_LARGE_ROW: Final = 32768  # bytes; larger rows are copied one by one


class bulk_read:  # noqa: N801, a decorator
    """Decorates a method `__getitems__` that an object has only if `offered(self)` is true.

    Subclasses that define `__getitem__` but not `__getitems__` do not inherit the method, since their samples differ.
    The method takes its indices as a list or as an array of ints.
    """

    def __init__(self, offered: Callable[[Any], bool]) -> None:
        self._offered = offered

    def __call__(self, method: Callable[[Any, Sequence[Any]], Any]) -> bulk_read:
        self._method, self.__doc__ = method, method.__doc__
        vars(method)["takes_arrays"] = True
        return self

    def __get__(self, dataset: Any, kind: type) -> Any:
        if dataset is None:
            return self
        if "__getitems__" not in defining_namespace(kind, "__getitem__", "__getitems__") or not self._offered(dataset):
            raise AttributeError(f"this {kind.__name__} has no __getitems__; read its samples with dataset[index]")
        return self._method.__get__(dataset, kind)


def check_no_mask(name: str, indices: Any) -> None:
    """Raises a ValueError if the argument `name` is a mask, which would be used as the indices 0 and 1."""
    if is_mask(indices):
        raise bad_argument(name, indices, "it is a mask; pass the indices where it is true: np.flatnonzero(mask)")


def are_ints(indices: Any) -> bool:
    """Whether all indices are ints; only `__getitem__` knows what other keys mean, such as slices."""
    if isinstance(indices, np.ndarray):
        return is_int_array(indices)
    return all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in set(map(type, indices)))


def read(dataset: Any, indices: Any) -> Sequence[Any]:
    """The samples at `indices`, a list or an array of ints: by one bulk read, if the dataset has it."""
    if (bulk := getattr(dataset, "__getitems__", None)) is not None:
        return read_by(bulk, indices)
    return each(dataset.__getitem__, as_list(indices), indices)


def read_by(bulk: Callable[[Any], Sequence[Any]], indices: Any) -> Sequence[Any]:
    """The samples at `indices`, read by the method `bulk`; a user's method is called with a new list of indices.

    If the method is a coroutine function, the result is a coroutine that returns the samples.
    """
    # A function that wraps a method has the same attributes, but may not accept an array.
    takes_arrays = isinstance(bulk, MethodType) and hasattr(bulk, "takes_arrays")
    samples: Any = bulk(indices if takes_arrays else as_list(indices))
    if isinstance(samples, CoroutineType):
        return cast("Sequence[Any]", _awaited(samples, bulk, indices))
    return _checked(samples, bulk, indices)


async def _awaited(samples: Awaitable[Sequence[Any]], bulk: Any, indices: Any) -> Sequence[Any]:
    return _checked(await samples, bulk, indices)


def _checked(samples: Sequence[Any], bulk: Any, indices: Any) -> Sequence[Any]:
    if columns := columns_in(samples):
        raise TypeError(f"{getattr(bulk, '__qualname__', bulk)} returned {columns}")
    if len(samples) != len(indices):
        what = f"{getattr(bulk, '__qualname__', bulk)} returned {len(samples)} samples for {len(indices)} indices"
        raise ValueError(f"{what}; return one sample for each index, in the same order")
    return samples


def columns_in(samples: Any) -> str:
    """Says what to return instead of columns, whose items would be taken for samples; "" for a sequence of samples."""
    if isinstance(samples, (list, tuple, np.ndarray, Rows)):
        return ""
    if isinstance(samples, (Mapping, str, bytes)) or cure_of(samples, "samples"):
        return f"{a_class(samples)}; return a list of samples, or Rows({{name: column}}) for columns"
    return ""


async def settled(result: Any) -> Any:
    """The result, which is awaited if that is necessary."""
    return await result if isawaitable(result) else result


def each(fn: Callable[[Any], Any], values: Iterable[Any], indices: Sequence[Any]) -> list[Any]:
    """`fn(value)` for each value; an error gets a note with the sample's index."""
    results: list[Any] = []
    try:
        with for_samples():
            for value in values:
                results.append(fn(value))  # noqa: PERF401, extend would take a StopIteration from fn for the end
    except Exception as error:
        add_note(error, f"gluonloader: sample {as_list(indices)[len(results)]!r} of a bulk read")
        raise
    return results


def taken(column: NDArray[Any], indices: Indices) -> NDArray[Any]:
    """These rows of an array, copied into the memory of the batch."""
    out = empty((len(indices), *column.shape[1:]), column.dtype)
    copy_rows(column, indices, out)
    return out


def split_where_changed(order: Indices, numbers: NDArray[Any]) -> list[Indices]:
    """`order` in parts, cut between `i` and `j` if `numbers[i]` and `numbers[j]` differ."""
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def interleave(parts: Sequence[Any], order: Indices) -> Sequence[Any]:
    """The samples of several bulk reads as one sequence: `Rows` of `Rows`, an array of arrays, otherwise a list.

    The concatenated `parts` are the samples `order[0]`, `order[1]`, ... of the resulting sequence.
    """
    return _interleave(parts, [None] * len(parts), order)


def _interleave(columns: Sequence[Any], indices: Sequence[Indices | None], order: Indices) -> Sequence[Any]:
    """Like `interleave`, for the elements of each column at its `indices`; None means all elements."""
    in_memory = all(type(column) in IN_MEMORY for column in columns)
    if in_memory and len({(column.dtype, column.shape[1:]) for column in columns}) == 1:
        return cast("Sequence[Any]", _interleave_arrays(columns, indices, order))
    parts = list(map(pick, columns, indices))
    first = parts[0]
    if all(isinstance(part, Rows) and _structure(part.held) == _structure(first.held) for part in parts):
        rows = [part.indices for part in parts]
        joined = zip(*[_columns_of(part.held) for part in parts], strict=True)
        merged = [_interleave(column, rows, order) for column in joined]
        return Rows(refill(first.held, merged) if isinstance(first.held, (Mapping, tuple)) else merged[0])
    samples: list[Any] = [None] * len(order)
    for row, sample in zip(order.tolist(), chain.from_iterable(parts), strict=True):
        samples[row] = sample
    return samples


def _interleave_arrays(
    columns: Sequence[NDArray[Any]], indices: Sequence[Indices | None], order: Indices
) -> NDArray[Any]:
    lengths = [len(column if rows is None else rows) for column, rows in zip(columns, indices, strict=True)]
    merged = empty((len(order), *columns[0].shape[1:]), columns[0].dtype)
    ends = np.cumsum(lengths)[:-1]
    if merged.nbytes >= len(order) * _LARGE_ROW:
        for column, rows, targets in zip(columns, indices, np.split(order, ends), strict=True):
            sources = range(len(column)) if rows is None else rows.tolist()
            for target, source in zip(targets.tolist(), sources, strict=True):
                merged[target] = column[source]
        return merged
    # Concatenate first and then permute: for small rows this takes half the time of one copy in random order.
    concatenated: NDArray[Any] = np.empty(merged.shape, merged.dtype)
    for column, rows, out in zip(columns, indices, np.split(concatenated, ends), strict=True):
        copy_rows(column, rows, out)
    inverse = np.empty(len(order), np.intp)
    inverse[order] = np.arange(len(order))
    copy_rows(concatenated, inverse, merged)
    return merged


def _structure(held: Any) -> Any:
    if isinstance(held, Mapping):
        return type(held), list(held)
    return (type(held), len(held)) if isinstance(held, tuple) else None


def _columns_of(held: Any) -> Iterable[Any]:
    return held.values() if isinstance(held, Mapping) else held if isinstance(held, tuple) else [held]
