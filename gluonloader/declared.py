"""What datasets, transforms and batchify functions say of themselves, and what follows for those that are made of them.

    gil_free   it leaves the GIL, and may run in threads          said by a class, an object or a function
    _parts     what one of ours is made of, and does nothing else than read or call; () for one that does so by itself

A subclass that reads or is called in its own way is another thing than its base: what the base says is not said of it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FunctionType
from typing import Any, Final, TypeVar

import numpy as np

__all__ = ["IN_MEMORY", "by_itself", "draws", "gil_free", "has_gil", "in_memory", "is_gil_free", "nearest"]

T = TypeVar("T")

IN_MEMORY: Final = (np.ndarray, np.memmap)  # exactly these: what a subclass gives at an index is its own
_AT_HAND: Final = (*IN_MEMORY, list, tuple, range)  # to read an element of them is nothing
_CALLS: Final = ("__getitem__", "__getitems__", "__iter__", "__call__")


class _Said:
    """One saying: `functools.wraps` copies it from what it wraps, of which alone it is true."""


def gil_free(part: T) -> T:
    """Says of a dataset, a transform or a batchify that it is to run in threads: with `executor="auto"` it does.

    It promises three things. Most of its time is spent outside the GIL, as in decoders, resizing, compression, file
    reads and NumPy on large arrays. Several threads may run it at once. And if it draws random numbers, it does so
    from `get_rng()`, since threads share all other generators. On a Python without a GIL the first is always true.

    A loader takes threads where all its parts say so. Our own datasets say what their parts say; a subclass with a
    `__getitem__` or `__call__` of its own has to say it again.

    Args:
        part: a function, a class, or an object that takes attributes; `gil_free = True` in a class is the same.

    Returns:
        `part`.

    Raises:
        ValueError: it takes no attributes, as a builtin function.

    >>> @gil_free
    ... def decode(data: bytes) -> np.ndarray:
    ...     return np.frombuffer(data, np.uint8)
    """
    try:
        part.gil_free = _Said()  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        raise ValueError(f"part={part!r:.80}: it takes no attributes; put it into a function of your own") from None
    return part


def by_itself(function: T) -> T:
    """Says of a function of ours that it leaves the GIL, and draws nothing."""
    vars(function)["_parts"] = ()
    return function


def is_gil_free(part: Any) -> bool:
    """Whether it and all its parts say so; what is at hand needs not."""
    if type(part) in _AT_HAND:
        return True
    own = getattr(part, "__dict__", {})
    if "gil_free" in own:
        return bool(own["gil_free"]) and own["gil_free"] is not getattr(own.get("__wrapped__"), "gil_free", None)
    if "gil_free" in nearest(type(part), "gil_free", *_CALLS):
        return bool(part.gil_free)
    parts = _parts_of(part)
    return parts is not None and all(map(is_gil_free, parts))


def in_memory(data: Any) -> bool:
    """Whether its samples lie in memory as they are, so that one is had as quickly alone as among others."""
    parts = _parts_of(data)
    return type(data) in _AT_HAND or (bool(parts) and all(map(in_memory, parts or ())))


def draws(data: Any) -> bool:
    """Whether it may draw random numbers, as far as is known: an object may do anything, a number does not."""
    if type(data) in IN_MEMORY:
        return bool(data.dtype.hasobject)
    parts = _parts_of(data)
    return type(data) is not range and (parts is None or any(map(draws, parts)))


def has_gil() -> bool:
    """Whether this Python has a GIL, and it is on: then reference counts are exact."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def nearest(kind: type, *names: str) -> Mapping[str, Any]:
    """What the first class of a hierarchy that defines any of these names defines; nothing if there is none."""
    return next((vars(base) for base in kind.__mro__ if not vars(base).keys().isdisjoint(names)), {})


def _parts_of(part: Any) -> tuple[Any, ...] | None:
    """What it is made of; None if it does not say so, or does more."""
    own = getattr(part, "__dict__", {})
    if isinstance(part, FunctionType):
        return None if "__wrapped__" in own else own.get("_parts")
    ours = "_parts" in nearest(type(part), "_parts", *_CALLS) and own.keys().isdisjoint(_CALLS)
    return tuple(part._parts) if ours else None
