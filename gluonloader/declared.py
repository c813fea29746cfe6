"""What datasets, transforms and batchify functions say of themselves, and whose word it is.

A subclass that reads or is called in its own way is another thing than its base: what the base says is not said of it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import numpy as np

__all__ = ["gil_enabled", "gil_free", "is_gil_free", "nearest"]

T = TypeVar("T")

_AT_HAND: Final = (np.ndarray, np.memmap, list, tuple, range)  # to read an element of them is nothing


def gil_free(part: T) -> T:
    """Says of a dataset, a transform or a batchify that most of its time runs outside the GIL.

    So do decoders, resizing, compression, file reads and the operations of NumPy on large arrays. With
    `executor="auto"` a loader uses threads where all its parts say so, since nothing has to be sent to threads. Our own
    datasets say what their parts say. A subclass with a `__getitem__` or `__call__` of its own has to say it again.

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
        part.gil_free = True  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        raise ValueError(f"part={part!r:.80}: it takes no attributes; put it into a function of your own") from None
    return part


def is_gil_free(*parts: Any) -> bool:
    """Whether all of them run outside the GIL, as far as is known."""
    return all(type(part) in _AT_HAND or _says(part) for part in parts)


def _says(part: Any) -> bool:
    own = getattr(part, "__dict__", {})
    if "gil_free" in own:
        return bool(own["gil_free"])
    defining = nearest(type(part), "gil_free", "__getitem__", "__getitems__", "__iter__", "__call__")
    return "gil_free" in defining and bool(part.gil_free)


def nearest(kind: type, *names: str) -> Mapping[str, Any]:
    """What the first class of a hierarchy that defines any of these names defines; nothing if there is none."""
    return next((vars(base) for base in kind.__mro__ if not vars(base).keys().isdisjoint(names)), {})


def gil_enabled() -> bool:
    """Whether this Python has a GIL, and uses it."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())
