"""Recycled private memory for batches that are made in the main program.

    empty -> an idle buffer of the right size, or a new one -> array over it -> ... its last view dies -> idle

The system hands out new memory page by page, which takes as long as copying a batch into it. A recycled buffer has its
pages already.

NOTE [idle buffers]: every array in a buffer, and every view of such an array, refers to its `_Buffer`, because NumPy
makes the lowest array that is not a view the base of all others. So a buffer is idle if its reference count shows that
only the pool refers to it; no callback is needed when a view dies. While a buffer is idle, no other code can get a
reference to it. This needs exact reference counts, which only a GIL provides; without a GIL all memory is new.
"""

from __future__ import annotations

import math
import mmap
import sys
import threading
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..interrupts import from_signal_handler
from ..limits import has_gil
from . import Allocator, set_allocator
from .allocator import alignment_of

_SMALL: Final = 16 * 1024  # bytes; for smaller arrays the C library's memory is warm, and faster to get
_HUGE_PAGES_FROM: Final = 4 * 1024 * 1024  # bytes; NumPy asks for huge pages from this size on, too
_TOO_LARGE: Final = 2**46  # bytes; must be a mistake: NumPy raises the best error for it
_MOST_WASTE: Final = 4  # a buffer may be this many times as large as its array
_SPARE_BATCHES: Final = 2  # beyond the window: one batch that the user has, one that is being made
_COUNTS_ARE_EXACT: Final = has_gil()


class _Buffer(np.ndarray[Any, Any]):
    """The bytes of one buffer. It lies over a mapping, not over an array, so NumPy makes it the base of all views."""

    base = None  # so code that keeps the lowest `base` of a batch keeps the buffer


class BufferPool:
    """The buffers of one executor, for two batches more than the `window` that is usually in flight; thread-safe."""

    def __init__(self, window: int) -> None:
        self._batches = window + _SPARE_BATCHES
        self._lock = threading.RLock()
        self._buffers: list[_Buffer] = []  # the buffer that was taken last comes first
        self._keep = 0

    def take(self, size: int, arrays: int) -> _Buffer:
        """Returns a buffer of at least `size` bytes; the batch has `arrays` large arrays so far, with this one."""
        with self._lock:
            self._keep = max(self._keep, arrays * self._batches)
            buffer = self._pop_idle(size)
            if buffer is None:
                buffer = _map(size)
                del self._buffers[self._keep - 1 :]  # the longest unused buffers: of a rare size, or kept by the user
            self._buffers.insert(0, buffer)
            return buffer

    def _pop_idle(self, size: int) -> _Buffer | None:
        """Returns the smallest idle buffer that fits; see NOTE [idle buffers]."""
        buffers, best, least = self._buffers, -1, _MOST_WASTE * size + 1
        for number in range(len(buffers) - 1, -1, -1):
            if _references(buffers, number) == _IDLE and size <= buffers[number].size < least:
                best, least = number, buffers[number].size
                if least == size:
                    break
        return buffers.pop(best) if best >= 0 else None

    def close(self) -> None:
        """Forgets all buffers; arrays over them stay valid."""
        with self._lock:
            self._buffers, self._batches, self._keep = [], 0, 0


class BatchMemory:
    """Context manager in which one thread makes one batch, whose arrays lie in buffers."""

    def __init__(self, buffers: BufferPool) -> None:
        self._buffers, self._arrays = buffers, 0
        self._before: Allocator | None = None

    def __enter__(self) -> None:
        before = set_allocator(self.empty if _COUNTS_ARE_EXACT else None)
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


def aligned_copy(memory: NDArray[np.uint8], nbytes: int) -> NDArray[np.uint8]:
    """Returns a copy of the first `nbytes` bytes, aligned like the memory of a batch."""
    alignment = alignment_of(nbytes)
    room: NDArray[np.uint8] = np.empty(nbytes + alignment, np.uint8)
    copy = room[-room.__array_interface__["data"][0] % alignment :][:nbytes]
    copy[:] = memory[:nbytes]
    return copy


def _references(buffers: list[_Buffer], number: int) -> int:
    return sys.getrefcount(buffers[number])


_IDLE: Final = _references([np.empty(0).view(_Buffer)], 0)


@lru_cache(1024)
def _size_class(nbytes: int) -> int:
    """Rounds up to whole pages, by at most an eighth or one page, so that arrays of like sizes share buffers."""
    step = max(1 << max(nbytes.bit_length() - 4, 0), mmap.PAGESIZE)
    return -(-nbytes // step) * step


def _map(size: int) -> _Buffer:
    """Makes a buffer; raises MemoryError if the system has no room for it."""
    try:
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        if from_signal_handler(error):
            raise
        raise MemoryError(f"no memory for an array of {size:,} bytes in a batch ({error})") from None
    if size >= _HUGE_PAGES_FROM and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # the kernel has no huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    buffer: _Buffer = _Buffer((size,), np.uint8, memory)
    return buffer
