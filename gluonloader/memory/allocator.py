"""Where the arrays of a batch are made: `empty`, and the hook through which an executor supplies the memory.

In a worker process the hook hands out memory of the batch's own slab, so that writing the array is already
sending it; where batches are made in the loader's own process, memory that was used before (blocks.py). Everywhere else
`empty` is `numpy.empty`.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["empty", "empty_of", "set_allocator"]

Shape = int | tuple[int, ...]
Allocator = Callable[[tuple[int, ...], "np.dtype[Any]"], "NDArray[Any]"]


class _Local(threading.local):
    # Per thread: a helper thread inside a user's batchify gets plain memory, and nothing needs a lock.
    allocate: Allocator | None = None


_local = _Local()


def empty(shape: Shape, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """An uninitialised array in the memory of the batch that is being made.

    Use it in a `batchify_fn` for whatever goes into the batch: in a worker process it lies in the shared memory
    that carries the batch, so nothing is copied afterwards. The array belongs to its batch: do not keep it.

    Args:
        shape: an int or a tuple of ints.
        dtype: any NumPy dtype; dtypes that hold Python objects get ordinary memory.

    Returns:
        A C-contiguous array; in a worker it is aligned to 64 bytes, and one of 64 kB or more begins at a page.

    >>> def pad(samples):
    ...     batch = empty((len(samples), max(map(len, samples))), np.int32)
    ...     batch[:] = 0
    ...     for row, sample in zip(batch, samples):
    ...         row[:len(sample)] = sample
    ...     return batch
    >>> pad([[1, 2, 3], [4]])
    array([[1, 2, 3],
           [4, 0, 0]], dtype=int32)
    """
    lengths = shape if isinstance(shape, tuple) else (shape,)
    return empty_of(tuple(map(operator.index, lengths)), np.dtype(dtype))  # NumPy's ints overflow, and do not travel


def empty_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The same, for a shape of Python's ints and a dtype that is one."""
    allocate = _local.allocate
    return np.empty(shape, dtype) if allocate is None or dtype.hasobject else allocate(shape, dtype)


def set_allocator(allocate: Allocator | None) -> Allocator | None:
    """From now on `empty` of this thread takes its memory from `allocate(shape, dtype)`; None: from NumPy.

    Returns:
        what it was before.
    """
    before, _local.allocate = _local.allocate, allocate
    return before
