"""`empty` makes the arrays of a batch, in memory that the executor supplies.

In a worker process an `Arena` hands out the slab of the batch, so its arrays are not copied to reach the main program.
For a batch that is made in the main program, `empty` takes recycled buffers (buffers.py). Everywhere else it calls
`numpy.empty`.
"""

from __future__ import annotations

import math
import mmap
import operator
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .slab import ALIGNMENT, Slab

# Bytes; arrays from this size on are lent to the program, smaller ones are copied: see NOTE [kept arrays] in loans.py.
# They start at a page, so that the pages of each can be given back. NumPy's own large arrays start a little after a
# page, and a copy is slow if its target lies a little further into its page than its source (the reads wait for earlier
# writes).
LARGE: Final = 64 * 1024

Span = tuple[int, int]  # a part of the slab: bytes from, to
Location = tuple[int, tuple[int, ...] | None]  # offset of an array's first element; strides, or None for C order
Shape = int | tuple[int, ...]
Allocator = Callable[[tuple[int, ...], "np.dtype[Any]"], "NDArray[Any]"]


class _Local(threading.local):
    # Per thread, so helper threads of a user's batchify_fn get ordinary memory and no lock is needed.
    allocate: Allocator | None = None


_local = _Local()


def empty(shape: Shape, dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Returns an uninitialised array in the memory of the batch that is being made.

    Use it in a `batchify_fn` for every array of the batch. In a worker process the array lies in the shared memory that
    carries the batch, so it is not copied later. Do not use the array for another batch. While a single sample is read
    or transformed, `empty` is `numpy.empty`.

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
    """Makes `empty` of this thread call `allocate`, or `numpy.empty` if it is None; returns the previous allocator."""
    before, _local.allocate = _local.allocate, allocate
    return before


@contextmanager
def for_samples() -> Iterator[None]:
    """Within the block, `empty` of this thread calls `numpy.empty`.

    The block reads or transforms samples, which a dataset may keep when other batches use the memory of this batch.
    """
    before = set_allocator(None)
    try:
        yield
    finally:
        set_allocator(before)


def alignment_of(nbytes: int) -> int:
    """Returns the alignment in bytes of an array of `nbytes`."""
    return mmap.PAGESIZE if nbytes >= LARGE else ALIGNMENT


def needs_pickle(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype.str` is incomplete: the dtype has fields or metadata, or another package defines it."""
    return dtype.isbuiltin != 1 and bool(dtype.names or dtype.metadata or dtype.isbuiltin == 2)


def _bounds_of_view(array: NDArray[Any], offset: int) -> tuple[int, int]:
    """Where a view starts and stops whose first element lies at `offset`."""
    if array.flags.forc:
        return offset, offset + array.nbytes
    steps = [(length - 1) * stride for length, stride in zip(array.shape, array.strides, strict=True)]
    back = sum(step for step in steps if step < 0)
    return offset + back, offset + sum(steps) - back + array.itemsize


def _joined(bounds: list[Span]) -> list[Span]:
    """Joins those that overlap; they are sorted."""
    joined: list[Span] = []
    for start, stop in bounds:
        if joined and start < joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], stop)
        else:
            joined.append((start, stop))
    return joined


def _address_of(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class Arena:
    """A bump allocator over one slab, for one batch.

    Args:
        slab: where to allocate; it grows as needed.
        start: first free byte.
        allowance: bytes that the slab may grow to. If a batch needs more, it continues in private memory, and `needed`
            counts how many bytes it needs.
    """

    def __init__(self, slab: Slab, start: int, allowance: int) -> None:
        self._slab, self._allowance = slab, allowance
        self.needed = start
        # Where arrays lie, by id. The dict holds the array, so its id is not reused.
        self._located: dict[int, tuple[NDArray[Any], Location, Span]] = {}
        # Where arrays of the batch may lie besides the mapping of the slab: in its earlier mappings or, if the batch is
        # too large, in private memory that stands for a part of the slab. (memory, address, size, offset in the slab)
        self._elsewhere: list[tuple[Any, int, int, int]] = []
        self._to_copy: list[tuple[NDArray[Any], int]] = []
        self._bounds: list[Span] = []  # of the arrays of the batch
        self._has_views = False  # without views, no arrays overlap

    @property
    def overflowed(self) -> bool:
        """Whether the batch is larger than the allowance, so that it cannot travel in this slab."""
        return self.needed > self._allowance

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Returns an uninitialised array in the slab; this is the allocator behind `gluonloader.empty`."""
        nbytes = math.prod(shape) * dtype.itemsize
        offset = self._reserve(nbytes)
        array: NDArray[Any]
        if self.overflowed:
            array = np.empty(shape, dtype)
            self._elsewhere.append((array, _address_of(array), nbytes, offset))
        else:
            array = np.ndarray(shape, dtype, self._slab.memory, offset)
        self._located[id(array)] = array, (offset, None), (offset, offset + nbytes)
        return array

    def place(self, array: NDArray[Any]) -> Location:
        """Returns where `array` lies in the slab; if it lies elsewhere, `write` copies it to the slab in C order.

        All copies are made by `write`, so that the slab grows only once.
        """
        located = self._located.get(id(array))
        if located is None or not array.flags.c_contiguous:  # the strides of an array may have been set
            located = self._locate(array)
        self._bounds.append(located[2])
        return located[1]

    def _locate(self, array: NDArray[Any]) -> tuple[NDArray[Any], Location, Span]:
        offset = self._offset_of_view(array)
        if offset is None:
            offset = self._count(array.nbytes)
            self._to_copy.append((array, offset))
            strides, bounds = None, (offset, offset + array.nbytes)
        else:
            self._has_views = True
            strides = None if array.flags.c_contiguous else array.strides
            bounds = _bounds_of_view(array, offset)
        located = self._located[id(array)] = array, (offset, strides), bounds
        return located

    def spans(self) -> list[Span]:
        """The parts of the slab that a large array takes, or that several arrays of the batch share."""
        if self._has_views:
            self._bounds.sort()
            if any(start < end for (_, end), (start, _) in pairwise(self._bounds)):
                return _joined(self._bounds)
        if self.needed < LARGE:
            return []
        return [bounds for bounds in self._bounds if bounds[1] - bounds[0] >= LARGE]

    def write(self, data: bytes | memoryview) -> int | None:
        """Copies `data`, and the arrays that `place` has listed, into the slab; returns the offset of `data`.

        Returns None, and copies nothing, if the batch is larger than the allowance.
        """
        offset = self._reserve(len(data))
        if self.overflowed:
            return None
        for array, at in self._to_copy:
            copy: NDArray[Any] = np.ndarray(array.shape, array.dtype, self._slab.memory, at)
            copy[...] = array
        self._to_copy.clear()
        self._slab.memory[offset : offset + len(data)] = data  # type: ignore[assignment]
        return offset

    def put(self, data: memoryview) -> int:
        """Copies a buffer of the batch into the slab; returns its offset, or 0 if it exceeds the allowance."""
        offset = self.write(data) or 0
        self._bounds.append((offset, offset + len(data)))
        return offset

    def _offset_of_view(self, array: NDArray[Any]) -> int | None:
        """Returns the offset of a view of an array made by `empty` (a slice, a reshape, a tensor over it), or None."""
        if array.base is None or not array.size:  # views without elements may start after the end of their array
            return None
        address, slab = _address_of(array), self._slab
        for _, start, size, offset in (*self._elsewhere, (slab.memory, slab.address, slab.size, 0)):
            if start <= address < start + size:
                return offset + address - start
        return None

    def _reserve(self, nbytes: int) -> int:
        """Counts `nbytes`, grows the slab unless that exceeds the allowance, and returns their offset."""
        offset, slab = self._count(nbytes), self._slab
        if slab.size < self.needed <= self._allowance:
            self._elsewhere.append((slab.memory, slab.address, slab.size, 0))
            slab.grow(self.needed, self._allowance)
        return offset

    def _count(self, nbytes: int) -> int:
        alignment = alignment_of(nbytes)
        offset = -(-self.needed // alignment) * alignment
        self.needed = offset + nbytes
        return offset
