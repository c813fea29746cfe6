"""Whether samples look into the same memory, so that one of them may have changed when another one was read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import numpy as np

from ..frameworks import owner_by_base

__all__ = ["overlap"]

_FIXED: Final = (str, bytes, int, float, complex, np.generic, type(None), type, Enum)  # they never change


def overlap(samples: Sequence[Any]) -> bool:
    """Whether any two samples hold the same object or overlapping arrays, but for what cannot change.

    It looks into tuples, lists, mappings and dataclasses, as `default_batchify` does. Arrays whose elements lie between
    each other's count as overlapping, too.

    >>> rows = np.zeros((4, 3))
    >>> overlap([rows[0], rows[1]]), overlap([rows[:2], rows[1:]]), overlap([(rows, rows), 5])
    (False, True, False)
    """
    # All are held meanwhile: where a framework's array had to be copied, the next one would get its address.
    held = [(number, part) for number, sample in enumerate(samples) for part in _changeable(sample)]
    last, whose = 0, -1  # the end of what reaches furthest so far, and the sample that it is of
    for start, end, number in sorted((*_span(part), number) for number, part in held):
        if start < last and number != whose:
            return True
        if end > last:
            last, whose = end, number
    return False


def _changeable(value: Any) -> Iterator[Any]:
    """The arrays of a sample, and the other objects in it that can change."""
    if isinstance(value, (np.ndarray, np.void)):
        if value.size:
            yield np.asarray(value)  # of a record: its memory
        if value.dtype == object:
            yield from _changeable(value.tolist())
    elif isinstance(value, _FIXED):
        return
    elif isinstance(value, (tuple, list, Mapping)) or dataclasses.is_dataclass(value):
        if not isinstance(value, tuple):
            yield value
        for part in _parts(value):
            yield from _changeable(part)
    else:
        framework = owner_by_base(type(value))
        array = None if framework is None else framework.to_numpy(value)
        yield value if array is None else array


def _parts(container: Any) -> Any:
    if isinstance(container, (tuple, list)):
        return container
    if isinstance(container, Mapping):
        return container.values()
    return [getattr(container, field.name) for field in dataclasses.fields(container)]


def _span(part: Any) -> tuple[int, int]:
    """Where it lies: the bytes of an array; of another object its id, which is no array's address."""
    if not isinstance(part, np.ndarray):
        return id(part), id(part) + 1
    start = end = part.__array_interface__["data"][0]
    for length, stride in zip(part.shape, part.strides, strict=True):
        start, end = start + min(0, (length - 1) * stride), end + max(0, (length - 1) * stride)
    return start, end + part.itemsize
