"""`empty` makes the arrays of a batch, in memory that the executor supplies.

In a worker process this is the slab of the batch, so the array need not be copied to reach the parent. In the loader's
own process it is a recycled buffer (buffers.py). Everywhere else `empty` is `numpy.empty`.
"""

from __future__ import annotations

import mmap
import operator
import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

ALIGNMENT: Final = 64  # bytes: a cache line, and what JAX and AVX-512 need
# From this size arrays start at a page, because NumPy's own large arrays start just after one: a copy whose target lies
# a little further into its page than its source waits for its own writes.
_PAGE_ALIGNED_FROM: Final = 64 * 1024

Shape = int | tuple[int, ...]
Allocator = Callable[[tuple[int, ...], "np.dtype[Any]"], "NDArray[Any]"]


class _Local(threading.local):
    # Per thread, so helper threads of a user's batchify_fn get ordinary memory and no lock is needed.
    allocate: Allocator | None = None


_local = _Local()


def empty(shape: Shape, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Returns an uninitialised array in the memory of the batch that is being made.

    Use it in a `batchify_fn` for every array of the batch. In a worker process the array lies in the shared memory that
    carries the batch, so it is not copied afterwards. The array belongs to its batch: do not keep it.

    Args:
        shape: an int or a tuple of ints.
        dtype: any NumPy dtype; dtypes that hold Python objects get ordinary memory.

    Returns:
        A C-contiguous array; in a worker it is aligned to 64 bytes, or to a page if it has 64 kB or more.

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
    return empty_of(tuple(map(operator.index, lengths)), np.dtype(dtype))  # NumPy's ints overflow and do not marshal


def empty_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """`empty` without conversions: `shape` is a tuple of Python ints, `dtype` a NumPy dtype object."""
    allocate = _local.allocate
    return np.empty(shape, dtype) if allocate is None or dtype.hasobject else allocate(shape, dtype)


def set_allocator(allocate: Allocator | None) -> Allocator | None:
    """Makes `empty` of this thread call `allocate(shape, dtype)`, or `numpy.empty` if it is None.

    Returns:
        The previous allocator of this thread.
    """
    before, _local.allocate = _local.allocate, allocate
    return before


def alignment_of(nbytes: int) -> int:
    """Returns the alignment in bytes of an array of `nbytes`."""
    return mmap.PAGESIZE if nbytes >= _PAGE_ALIGNED_FROM else ALIGNMENT
