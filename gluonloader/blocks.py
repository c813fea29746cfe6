"""Memory for the batches that are made in this process: blocks that are used again when nobody looks at them any more.

    empty -> block of its size class -> array (on loan) -> the last view dies -> free again, at the next `empty`

Memory that is new has to be given by the system page by page, which takes as long as copying a batch into it; that of
a block was had before. The loan rule is that of slabs (NOTE [loans] in transport/slabs.py): the death of the last view
puts the block into a deque, or lets go of it, and nothing else, so a batch is never overwritten while anybody looks.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .memory import set_allocator

__all__ = ["Blocks"]

_SMALL: Final = 16 * 1024  # bytes up to which the C library's own memory is warm and quicker to be had
_HUGE: Final = 4 * 1024 * 1024  # bytes from which on NumPy, too, asks for huge pages
_WASTE: Final = 4
_SPARE: Final = 2  # batches beyond the window: one that the user looks at, and one that is being made


class _Loan(np.ndarray[Any, Any]):
    """The bytes of one array. Since it is a class of its own, over what is no array, it is the base of all views."""


class Blocks:
    """The blocks of one executor, for any of its threads.

    Args:
        window: batches that are usually in flight at once; blocks for so many, and two more, are kept.
    """

    def __init__(self, window: int) -> None:
        self._batches = window + _SPARE
        self._lock = threading.RLock()
        self._free: list[mmap.mmap] = []  # the last one is warmest
        self._most = self._keep = 0  # blocks in one batch; blocks that are kept while nobody uses them
        self._lent: dict[int, tuple[mmap.mmap, weakref.ref[Any]]] = {}
        self._returned: deque[int] = deque()
        self._numbers = count()
        self._local = threading.local()

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Within the block this thread makes one batch, whose arrays lie in blocks."""
        self._local.used = 0
        before = set_allocator(self.empty)
        try:
            yield
        finally:
            set_allocator(before)  # of the batch within which this one was made

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An uninitialised array, aligned to 64 bytes at least; for `gluonloader.empty`."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes <= _SMALL:
            return np.empty(shape, dtype)
        size = _size_class(nbytes)
        self._local.used = used = self._local.used + 1
        with self._lock:
            if used > self._most:
                self._most, self._keep = used, used * self._batches
            block = self._take(size)
            loan: _Loan = _Loan((size,), np.uint8, block)
            number, me = next(self._numbers), weakref.ref(self)
            self._lent[number] = block, weakref.ref(loan, lambda _: _over(me(), number))
        return np.ndarray(shape, dtype, loan)

    def _take(self, size: int) -> mmap.mmap:
        while self._returned:
            block, _ = self._lent.pop(self._returned.popleft())
            self._free.append(block)
        fits = [at for at, block in enumerate(self._free) if size <= len(block) <= _WASTE * size]
        if fits:
            return self._free.pop(min(reversed(fits), key=lambda at: len(self._free[at])))
        if len(self._free) + len(self._lent) >= self._keep:
            del self._free[:1]  # the coldest, of a size that was needed once
        return _map(size)


def _over(blocks: Blocks | None, number: int) -> None:
    """The last view of a block has died: in any thread, in the middle of anything."""
    if blocks is None:
        return
    if len(blocks._returned) + len(blocks._free) < blocks._keep:
        blocks._returned.append(number)
    else:
        blocks._lent.pop(number, None)


def _size_class(nbytes: int) -> int:
    """Whole pages, for at least `nbytes` and at most an eighth more, or one page."""
    step = max(1 << max(nbytes.bit_length() - 4, 0), mmap.PAGESIZE)
    return -(-nbytes // step) * step


def _map(size: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_ANONYMOUS"):  # Windows
        return mmap.mmap(-1, size)
    block = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block
