"""Indices and keys of samples: as lists, as arrays, checked against a length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Indices", "Keys", "as_list", "is_int_array", "is_mask", "lengths_of", "position", "positions"]

Indices = NDArray[np.intp]
Keys = list[Any] | NDArray[np.int64]  # of samples; an array is read-only, and never passed to user code

_SIGNED: Final = np.dtype(np.intp)
_UNSIGNED: Final = np.dtype(np.uintp)


def as_list(keys: Any) -> list[Any]:
    """Keys as a list; Python ints instead of NumPy's, which datasets of every kind take."""
    return keys.tolist() if isinstance(keys, np.ndarray) else list(keys)


def is_int_array(keys: Any) -> bool:
    """Whether it is an array of ints, shape (N,)."""
    return isinstance(keys, np.ndarray) and keys.ndim == 1 and keys.dtype.kind in "iu"


def lengths_of(name: str, parts: Any) -> list[int]:
    """The length of each part of a sequence or mapping, an argument that is called `name`.

    Raises:
        ValueError: a part has none.
    """
    found = []
    for key, part in parts.items() if isinstance(parts, Mapping) else enumerate(parts):
        try:
            found.append(len(part))
        except TypeError as error:
            right = "it has no length; give a list, an array or a dataset that has one"
            raise ValueError(f"{name}[{key!r}]={part!r:.80}: {right}") from error
    return found


def is_mask(indices: Any) -> bool:
    """Whether it is an array, column or list of bools, which would be taken for the indices 0 and 1."""
    if hasattr(indices, "dtype"):
        return "bool" in str(indices.dtype).lower()
    listed = isinstance(indices, (list, tuple)) and len(indices) > 0
    return listed and all(isinstance(index, (bool, np.bool_)) for index in indices)


def position(index: Any, length: int) -> int:
    """The index of a sample, from 0 to `length - 1`; a negative one counts from the end.

    Raises:
        IndexError: it is out of range.
        TypeError: it is no int.
    """
    if not hasattr(index, "__index__"):
        raise TypeError(f"index={index!r:.80}: give an int; for several samples, Subset(dataset, indices)")
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range for {length} samples")
    return int(index) % length


def positions(indices: Any, length: int) -> Indices:
    """Indices of samples as an array, shape (M,), each from 0 to `length - 1`; negative ones count from the end.

    Raises:
        IndexError: one is out of range.
        TypeError: they are no ints.
    """
    found = np.asarray(indices)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size):
        raise TypeError(f"indices={indices!r:.80}: give ints, shape (M,)")
    if found.dtype is not _SIGNED:
        found = found.astype(_SIGNED)
    sizes = found.view(_UNSIGNED)  # a negative one is very large
    if found.size and sizes.item(sizes.argmax()) >= length:
        outside = (found < -length) | (found >= length)
        if outside.any():
            raise IndexError(f"index {found[outside][0]} is out of range for {length} samples")
        found = np.where(found < 0, found + length, found)
    return found
