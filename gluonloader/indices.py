"""Indices and keys of samples: conversion to lists and arrays, and checks against the length of a dataset."""

from __future__ import annotations

import operator
import zlib
from collections.abc import Mapping, Set
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.intp]
Keys = list[Any] | NDArray[np.int64]  # of samples; an array is read-only and never passed to user code

COMPARED: Final = 64  # keys; orders of so many keys are equal by chance only if the sampler does not shuffle
_SIGNED: Final = np.dtype(np.intp)
_UNSIGNED: Final = np.dtype(np.uintp)


def as_list(keys: Any) -> list[Any]:
    """Keys as a list. NumPy ints become Python ints, which every dataset accepts."""
    return keys.tolist() if isinstance(keys, np.ndarray) else list(keys)


def checksum_of(keys: Any, before: int = 0) -> int | None:
    """A checksum of a key, or of any structure of keys, that is the same in each process.

    Args:
        before: the checksum of the keys before these.

    Returns:
        An int of 32 bits; None if a key is no number, no text and no array.
    """
    try:
        text = repr(_plain(keys))
    except (TypeError, ValueError):
        return None
    return zlib.crc32(text.encode(errors="backslashreplace"), before)


def checksum_of_array(array: NDArray[Any], before: int = 0) -> int:
    """A checksum of the bytes of an array of numbers, an int of 32 bits that is the same on each machine.

    Args:
        before: the checksum of the arrays before this one.
    """
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return zlib.crc32(little.view(np.uint8).data, before)


def _plain(keys: Any) -> Any:
    """Keys as objects of Python whose `repr` is the same in each process; raises a TypeError for other objects."""
    if keys is None or isinstance(keys, (bool, int, float)):
        return keys
    if isinstance(keys, str):
        return str(keys)
    if isinstance(keys, Set):
        return sorted(map(_plain, keys), key=repr)
    if isinstance(keys, (list, tuple, Mapping)):
        return [_plain(part) for part in (keys.items() if isinstance(keys, Mapping) else keys)]
    if hasattr(keys, "tolist"):  # numbers and arrays of NumPy, tensors
        return _plain(keys.tolist())
    return operator.index(keys)


def is_int_array(keys: Any) -> bool:
    """Whether `keys` is an array of ints, shape (N,)."""
    return isinstance(keys, np.ndarray) and keys.ndim == 1 and keys.dtype.kind in "iu"


def known_indices(keys: Any, length: int) -> Indices:
    """Those of the keys that are indices of samples, from 0 to `length - 1`; reading the others raises errors."""
    try:
        array: Indices = np.asarray(keys, np.intp)
    except (TypeError, ValueError, OverflowError):
        return np.empty(0, np.intp)
    array = np.where(array < 0, array + length, array)
    return array[(array >= 0) & (array < length)]


def is_mask(indices: Any) -> bool:
    """Whether `indices` is an array, column or list of bools, which would be used as the indices 0 and 1."""
    if hasattr(indices, "dtype") and str(indices.dtype) != "object":
        return "bool" in str(indices.dtype).lower()
    listed = isinstance(indices, (list, tuple)) or hasattr(indices, "dtype")
    return listed and len(indices) > 0 and all(isinstance(index, (bool, np.bool_)) for index in indices)


def between(indices: Any, start: int, stop: int) -> Any:
    """Those of the indices, an array or a range, that are at least `start` and less than `stop`, counted from `start`.

    >>> between(range(0, 100, 7), 10, 30), between(np.array([3, 12, 10]), 10, 30)
    (range(4, 25, 7), array([2, 0]))
    """
    if not isinstance(indices, range):
        array = np.asarray(indices)
        return array[(start <= array) & (array < stop)] - start
    rising = indices if indices.step > 0 else indices[::-1]
    first, last = (max(0, -((rising.start - end) // rising.step)) for end in (start, stop))
    part = rising[first:last]
    return range(part.start - start, part.stop - start, part.step)


def lengths_of(name: str, parts: Any) -> list[int]:
    """The length of each item of the sequence or mapping `parts`, which the user gave as the argument `name`."""
    lengths = []
    for key, part in parts.items() if isinstance(parts, Mapping) else enumerate(parts):
        try:
            lengths.append(len(part))
        except TypeError as error:
            right = "it has no length; pass a list, an array or a dataset with __len__"
            raise ValueError(f"{name}[{key!r}]={part!r:.80}: {right}") from error
    return lengths


def checked_index(index: Any, length: int) -> int:
    """The index of a sample, from 0 to `length - 1`; a negative index counts from the end."""
    if not hasattr(index, "__index__"):
        raise TypeError(f"index={index!r:.80}: must be an int; for several samples, use Subset(dataset, indices)")
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range for {length} samples")
    return int(index) % length


def checked_indices(indices: Any, length: int) -> Indices:
    """Indices of samples as an array, shape (M,), from 0 to `length - 1`; negative indices count from the end."""
    array = np.asarray(indices)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise TypeError(f"indices={indices!r:.80}: pass a list or an array of ints, shape (M,)")
    if array.dtype is not _SIGNED:
        given, array = array, array.astype(_SIGNED)
        if given.dtype == _UNSIGNED and (array < 0).any():  # a number that is too large for a signed int
            raise IndexError(f"index {given.max()} is out of range for {length} samples")
    unsigned = array.view(_UNSIGNED)  # a negative index becomes a very large number: one comparison finds both errors
    if array.size and unsigned.item(unsigned.argmax()) >= length:
        outside = (array < -length) | (array >= length)
        if outside.any():
            raise IndexError(f"index {array[outside][0]} is out of range for {length} samples")
        array = np.where(array < 0, array + length, array)
    return array
