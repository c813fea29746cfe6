"""Recycled private memory for batches that are made in the main program.

    empty -> an idle mapping of the right size, or a new one -> array over it -> ... its last view dies -> idle

The system hands out new memory page by page, which takes as long as copying a batch into it. A recycled buffer has its
pages already.

NOTE [idle buffers]: each array gets a `_Buffer` of its own, which lies over the mapping. The array and every view of it
refer to this `_Buffer`, because NumPy makes the lowest array that is not a view the base of all others. The pool has
only a weak reference to it. So the mapping is idle when the weak reference is dead, and no other code can get a
reference to a dead object.
"""

from __future__ import annotations

import math
import mmap
import weakref
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..interrupts import from_signal_handler
from ..locks import Lock
from . import Allocator, set_allocator
from .allocator import alignment_of

_SMALL: Final = 16 * 1024  # bytes; for smaller arrays the C library's memory is warm, and faster to get
_HUGE_PAGES_FROM: Final = 4 * 1024 * 1024  # bytes; NumPy asks for huge pages from this size on, too
_TOO_LARGE: Final = 2**46  # bytes; must be a mistake: NumPy raises the best error for it
_MOST_WASTE: Final = 4  # a buffer may be this many times as large as its array
_SPARE_BATCHES: Final = 2  # beyond the window: one batch that the user has, one that is being made


class _Buffer(np.ndarray[Any, Any]):
    """The bytes of one mapping, until the arrays over it die; NumPy makes it the base of all views."""

    base = None  # so code that keeps the lowest `base` of a batch keeps the buffer


class _Lent(weakref.ref[_Buffer]):
    """Refers to a buffer without keeping it alive.

    Attributes:
        mapping: what the buffer lies over.
    """

    __slots__ = ("mapping",)
    mapping: mmap.mmap


class BufferPool:
    """The buffers of one executor, for two batches more than the `window` that is usually in flight; thread-safe."""

    def __init__(self, window: int) -> None:
        self._batches = window + _SPARE_BATCHES
        self._lock = Lock()
        self._lent: list[_Lent] = []  # the mapping that was taken last comes first
        self._keep = 0

    def take(self, size: int, arrays: int) -> _Buffer:
        """Returns a buffer of at least `size` bytes; the batch has `arrays` large arrays so far, with this one."""
        with self._lock:
            self._keep = max(self._keep, arrays * self._batches)
            mapping = self._pop_idle(size)
            if mapping is None:
                mapping = _map(size)
                del self._lent[self._keep - 1 :]  # the longest unused mappings: of a rare size, or kept by the user
            buffer: _Buffer = _Buffer((len(mapping),), np.uint8, mapping)
            lent = _Lent(buffer)
            lent.mapping = mapping
            self._lent.insert(0, lent)
            return buffer

    def _pop_idle(self, size: int) -> mmap.mmap | None:
        """Returns the smallest idle mapping that fits; see NOTE [idle buffers]."""
        lent, best, least = self._lent, -1, _MOST_WASTE * size + 1
        for number in range(len(lent) - 1, -1, -1):
            if lent[number]() is None and size <= (length := len(lent[number].mapping)) < least:
                best, least = number, length
                if least == size:
                    break
        return lent.pop(best).mapping if best >= 0 else None

    def close(self) -> None:
        """Forgets all mappings; arrays over them stay valid."""
        with self._lock:
            self._lent, self._batches, self._keep = [], 0, 0


class BatchMemory:
    """Context manager in which one thread makes one batch, whose arrays lie in buffers."""

    def __init__(self, buffers: BufferPool) -> None:
        self._buffers, self._arrays = buffers, 0
        self._before: Allocator | None = None

    def __enter__(self) -> None:
        before = set_allocator(self.empty)
        # A signal handler may have interrupted the last `__exit__`, before it restored the allocator.
        self._arrays, self._before = 0, None if before == self.empty else before

    def __exit__(self, *exception: object) -> None:
        set_allocator(self._before)  # not None if this batch is made inside of another batch

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """The allocator behind `gluonloader.empty`; arrays of more than 16 kB start at a page."""
        nbytes = math.prod(shape) * dtype.itemsize
        if not _SMALL < nbytes < _TOO_LARGE:
            return np.empty(shape, dtype)
        self._arrays += 1
        array: NDArray[Any] = np.ndarray(shape, dtype, self._buffers.take(_size_class(nbytes), self._arrays))
        return array


def aligned_copy(memory: memoryview) -> NDArray[np.uint8]:
    """Returns a copy of some bytes, aligned like the arrays of a batch."""
    nbytes = memory.nbytes
    alignment = alignment_of(nbytes)
    room: NDArray[np.uint8] = np.empty(nbytes + alignment, np.uint8)
    copy = room[-room.__array_interface__["data"][0] % alignment :][:nbytes]
    copy.data[:] = memory
    return copy


@lru_cache(1024)
def _size_class(nbytes: int) -> int:
    """Rounds up to whole pages, by at most an eighth or one page, so that arrays of like sizes share buffers."""
    step = max(1 << max(nbytes.bit_length() - 4, 0), mmap.PAGESIZE)
    return -(-nbytes // step) * step


def _map(size: int) -> mmap.mmap:
    """Makes a mapping; raises MemoryError if the system has no room for it."""
    try:
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        if from_signal_handler(error):
            raise
        raise MemoryError(f"no memory for an array of {size:,} bytes in a batch ({error})") from None
    if size >= _HUGE_PAGES_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the kernel has no huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
