"""Memory for the batches that are made in this process: blocks that are used again when nobody looks at them any more.

    empty -> an idle block of its size class, or a new one -> array over it -> ... the last view dies: idle again

Memory that is new has to be given by the system page by page, which takes as long as copying a batch into it; that of
a block was had before.

NOTE [idle blocks]: every array over a block, and every view of such an array however it was made, holds a reference to
the one `_Block` below it, since NumPy keeps the lowest array that is no view of another. So a block is idle when only
the pool refers to it, and its reference count says so; nothing is called when a view dies. Nobody can come by a
reference meanwhile, because the block is in the pool and nowhere else. This holds where a GIL makes counts exact;
without one, all memory is new.
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

from ..limits import has_gil
from . import Allocator, set_allocator

__all__ = ["BatchMemory", "Blocks"]

_SMALL: Final = 16 * 1024  # bytes up to which the C library's own memory is warm and quicker to be had
_HUGE: Final = 4 * 1024 * 1024  # bytes from which on NumPy, too, asks for huge pages
_MOST: Final = 2**46  # bytes; what is more is a mistake, which NumPy tells best
_WASTE: Final = 4
_SPARE: Final = 2  # batches beyond the window: one that the user looks at, and one that is being made
_COUNTED: Final = has_gil()


class _Block(np.ndarray[Any, Any]):
    """The bytes of one block. Since it lies over what is no array, it is the base of all views."""

    base = None  # who goes down to the owner of a batch's memory, to keep that alone, is to keep the block


class Blocks:
    """The blocks of one executor, for any of its threads.

    Args:
        window: batches that are usually in flight at once; blocks for so many, and two more, are kept.
    """

    def __init__(self, window: int) -> None:
        self._batches = window + _SPARE
        self._lock = threading.RLock()
        self._pool: list[_Block] = []  # the one that was given last comes first
        self._keep = 0

    def give(self, size: int, arrays: int) -> _Block:
        """A block of at least `size` bytes; `arrays` are wanted for this batch so far."""
        with self._lock:
            self._keep = max(self._keep, arrays * self._batches)
            block = self._idle(size)
            if block is None:
                block = _map(size)
                del self._pool[self._keep - 1 :]  # the coldest, of a size that was needed once, or kept by the user
            self._pool.insert(0, block)
            return block

    def _idle(self, size: int) -> _Block | None:
        """The smallest that fits, taken out of the pool; see NOTE [idle blocks]."""
        pool, best, least = self._pool, -1, _WASTE * size + 1
        for number in range(len(pool) - 1, -1, -1):
            if _references(pool, number) == _IDLE and size <= pool[number].size < least:
                best, least = number, pool[number].size
                if least == size:
                    break
        return pool.pop(best) if best >= 0 else None

    def close(self) -> None:
        """Lets go of all blocks; arrays over them stay as they are."""
        with self._lock:
            self._pool, self._batches, self._keep = [], 0, 0


class BatchMemory:
    """Within the block `with memory:` this thread makes one batch, whose arrays lie in blocks; one for each thread."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._arrays = 0
        self._before: Allocator | None = None

    def __enter__(self) -> None:
        self._arrays, self._before = 0, set_allocator(self.empty if _COUNTED else None)

    def __exit__(self, *exception: object) -> None:
        set_allocator(self._before)  # of the batch within which this one was made

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An uninitialised array, which begins at a page where it is larger than 16 kB; for `gluonloader.empty`."""
        nbytes = math.prod(shape) * dtype.itemsize
        if not _SMALL < nbytes < _MOST:
            return np.empty(shape, dtype)
        self._arrays += 1
        array: NDArray[Any] = np.ndarray(shape, dtype, self._blocks.give(_size_class(nbytes), self._arrays))
        return array


def _references(pool: list[_Block], number: int) -> int:
    return sys.getrefcount(pool[number])


_IDLE: Final = _references([np.empty(0).view(_Block)], 0)


@lru_cache(1024)
def _size_class(nbytes: int) -> int:
    """Whole pages, for at least `nbytes` and at most an eighth more, or one page."""
    step = max(1 << max(nbytes.bit_length() - 4, 0), mmap.PAGESIZE)
    return -(-nbytes // step) * step


def _map(size: int) -> _Block:
    """A new block.

    Raises:
        MemoryError: there is no room for it.
    """
    try:
        memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no memory for an array of {size:,} bytes in a batch ({error})") from None
    if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    block: _Block = _Block((size,), np.uint8, memory)
    return block
