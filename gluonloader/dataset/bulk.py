"""Reading many samples at once: who offers `__getitems__`, and how what several parts gave is put in order.

A dataset that has `__getitems__(indices)` is read once for each batch. `hasattr` decides, so a class whose objects do
not all have it says so with `bulk_read`: reading through it would cost, and an error would name no sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MethodType
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ..declared import IN_MEMORY, nearest
from ..errors import add_note, bad_argument
from ..indices import Indices, as_list, is_int_array, is_mask
from ..memory import empty
from ..rows import Rows, copy_rows, pick

__all__ = ["are_ints", "bulk_read", "check_no_mask", "each", "interleave", "read", "read_by", "taken"]

_LARGE: Final = 32768  # bytes of a row that is best copied by itself


class bulk_read:  # noqa: N801, a decorator
    """Makes a method `__getitems__` that only some objects of its class have, by the condition `offered(self)`.

    A subclass that defines `__getitem__` and no `__getitems__` of its own does not have it: its samples are others.
    The method takes its indices as a list or as an array of ints.
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
        if "__getitems__" not in nearest(kind, "__getitem__", "__getitems__") or not self._offered(dataset):
            raise AttributeError(f"this {kind.__name__} has no __getitems__: it reads sample by sample")
        return self._method.__get__(dataset, kind)


def check_no_mask(name: str, indices: Any) -> None:
    """An argument that is indices, and not a mask, which would be taken for the indices 0 and 1."""
    if is_mask(indices):
        raise bad_argument(name, indices, "a mask; give np.flatnonzero(mask), the indices where it is true")


def are_ints(indices: Any) -> bool:
    """Whether all of them are ints: what other keys mean, such as slices, knows only `__getitem__`."""
    if isinstance(indices, np.ndarray):
        return is_int_array(indices)
    return all(issubclass(kind, (int, np.integer)) and kind is not bool for kind in set(map(type, indices)))


def read(dataset: Any, indices: Any) -> Sequence[Any]:
    """The samples at `indices`, in bulk if it can; where they are read one by one, an error names the index.

    Args:
        dataset: any.
        indices: a list, or an array of ints.

    Raises:
        ValueError: `__getitems__` gives another number of samples.
    """
    if (bulk := getattr(dataset, "__getitems__", None)) is not None:
        return read_by(bulk, indices)
    return each(dataset.__getitem__, as_list(indices), indices)


def read_by(bulk: Callable[[Any], Sequence[Any]], indices: Any) -> Sequence[Any]:
    """The same by a `__getitems__`: ours gets the indices as they are, any other one a list of its own."""
    ours = isinstance(bulk, MethodType) and hasattr(bulk, "takes_arrays")  # a function that wraps one has that, too
    samples = bulk(indices if ours else as_list(indices))
    if len(samples) != len(indices):
        what = f"{getattr(bulk, '__qualname__', bulk)} gave {len(samples)} samples for {len(indices)} indices"
        raise ValueError(f"{what}; return one for each, in their order")
    return samples


def each(fn: Callable[[Any], Any], values: Sequence[Any], indices: Sequence[Any]) -> list[Any]:
    """`fn` of each value; an error names the index."""
    results: list[Any] = []
    try:
        for value in values:
            results.append(fn(value))  # noqa: PERF401, extend would take a StopIteration from fn for the end
    except Exception as error:
        add_note(error, f"gluonloader: sample {as_list(indices)[len(results)]!r} of a bulk read")
        raise
    return results


def taken(column: NDArray[Any], indices: Indices) -> NDArray[Any]:
    """These rows of an array, copied into the batch's memory."""
    out = empty((len(indices), *column.shape[1:]), column.dtype)
    copy_rows(column, indices, out)
    return out


def interleave(parts: Sequence[Any], order: NDArray[np.intp]) -> Sequence[Any]:
    """The samples of all parts as one: `Rows` of `Rows`, an array of arrays, else a list.

    Args:
        parts: what several datasets gave.
        order: shape (N,): the samples of the parts, one part after the other, are samples `order[0]`, `order[1]`, ...
    """
    first = parts[0]
    if _are_alike(parts):
        joined = iter([_merge(column, order) for column in zip(*map(_columns, parts), strict=True)])
        return Rows(first.map_columns(lambda column, path: next(joined)))
    return _merge([_Piece(part, None) for part in parts], order)


@dataclass(slots=True)
class _Piece:
    """What one part has of a column: its rows at `indices`, or all."""

    column: Any
    indices: Indices | None

    def __len__(self) -> int:
        return len(self.column) if self.indices is None else len(self.indices)

    def rows(self) -> Iterable[Any]:
        return self.column if self.indices is None else map(self.column.__getitem__, self.indices)


def _merge(pieces: Sequence[_Piece], order: NDArray[np.intp]) -> Sequence[Any]:
    first = pieces[0].column
    merged: Any
    if all(type(piece.column) in IN_MEMORY and _row(piece.column) == _row(first) for piece in pieces):
        merged = empty((len(order), *first.shape[1:]), first.dtype)
        if merged.nbytes >= len(order) * _LARGE:
            for place, row in zip(order.tolist(), chain.from_iterable(map(_Piece.rows, pieces)), strict=True):
                merged[place] = row
            return cast("Sequence[Any]", merged)
        # By part, then by place: for small rows two copies in long runs take half as long as one that jumps.
        by_part: NDArray[Any] = np.empty(merged.shape, merged.dtype)
        start = 0
        for piece in pieces:
            copy_rows(piece.column, piece.indices, by_part[start : start + len(piece)])
            start += len(piece)
        places = np.empty(len(order), np.intp)
        places[order] = np.arange(len(order))
        copy_rows(by_part, places, merged)
        return cast("Sequence[Any]", merged)
    samples = [pick(piece.column, piece.indices) for piece in pieces]
    if _are_alike(samples):
        return interleave(samples, order)
    merged = [None] * len(order)
    for place, sample in zip(order.tolist(), chain.from_iterable(samples), strict=True):
        merged[place] = sample
    return cast("Sequence[Any]", merged)


def _are_alike(parts: Sequence[Any]) -> bool:
    """Whether all are `Rows` of the same structure."""
    return all(isinstance(part, Rows) and _structure(part) == _structure(parts[0]) for part in parts)


def _structure(rows: Any) -> Any:
    held = rows.held
    if isinstance(held, Mapping):
        return type(held), list(held)
    return (type(held), len(held)) if isinstance(held, tuple) else None


def _columns(rows: Any) -> list[_Piece]:
    return [_Piece(column, rows.indices) for column in rows._parts]


def _row(array: Any) -> Any:
    return array.dtype, array.shape[1:]
