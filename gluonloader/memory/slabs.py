"""The parent's slabs: which are free, in flight or on loan, and the bound on their memory.

    take -> in flight -> lend -> on loan (a delivered batch looks into it) -> the last view dies -> free again
                      -> give_back (nobody will look) ------------------------------------------> free again

NOTE [loans]: every array of a delivered batch has the same `_Loan` as its base, and the loan's death puts the slab's
number into a deque: nothing else, since it can happen in any thread, in any order, in the middle of anything. The slab
is free again when `take` next reads the deque. So a batch is never overwritten while anybody looks at it, and nobody
has to say when he is done.

NOTE [holders]: a framework can map a slab by itself and look into it after the last NumPy view has died; MXNet does,
whose engine works later. Such a holder subtracts 1 from the word HOLDERS when it is done, in any thread, without a
word to Python. The word is set when a loan begins, while there are no holders, and then only they change it: the loan
is over when its views are dead and as much is subtracted as there were holders. A forked child subtracts for the
mappings that it inherited, too, but the next note keeps such a slab from being used again.

NOTE [loans and fork]: a forked child may look into a batch that was on loan at the fork, without a loan of its own.
A slab that is on loan at a fork is therefore not used again after its loan; it is closed.

NOTE [memory limit]: the sum of all slabs' sizes (for one in flight: the size it is allowed to grow to) never passes the
limit. A delivered batch gets a loan only while loans leave enough for the window, and at least half of the limit, free
for batches to come; otherwise it is copied to private memory, and its slab is free at once. So a consumer that keeps
every batch never stops the loader.
"""

from __future__ import annotations

import errno
import mmap
import os
import warnings
import weakref
from collections import deque
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import SharedMemoryError
from ..frameworks import Lent, leaves_room
from .slab import HEADER, Slab, align, alignment_of, anonymous_file, reserve

__all__ = ["SlabPool"]

_FIRST_SIZE: Final = 64 * 1024
_LARGE: Final = 16 << 20  # bytes of a batch
_SPARE_LOANS: Final = 16  # loans beyond the window that are given out where no limit is set
_UNLIMITED: Final = 2**62
_BYTE: Final = np.dtype(np.uint8)  # found once

_pools: weakref.WeakSet[SlabPool] = weakref.WeakSet()


class _Loan(Lent):
    """The bytes of one delivered batch. Since it is a class of its own, NumPy makes it the base of the views."""

    slab: Slab

    def share(self) -> int | None:
        try:
            descriptor = os.dup(self.slab.fd)
        except OSError:  # the loader is closed, or there are too many descriptors
            return None
        if not leaves_room(descriptor):
            os.close(descriptor)
            return None
        self.slab.holders += 1
        return descriptor


class SlabPool:
    """Slabs for one executor; not thread-safe, except that loans may die anywhere.

    Args:
        window: batches that are usually in flight at once.
        limit: most bytes of shared memory; None for no limit.

    Attributes:
        window: the same; it may be set.
        largest: bytes of the largest batch that has come, or of the slab that grew for it; 0 before.
    """

    def __init__(self, window: int, limit: int | None) -> None:
        self.window, self.limit = window, limit
        self._all: dict[int, Slab] = {}
        self._free: list[Slab] = []  # the last one given back is warmest: used first
        self._lent: dict[int, tuple[Slab, weakref.ref[Any]]] = {}
        self._returned: deque[int] = deque()
        self._held: list[int] = []  # returned, but a framework may look into them still
        self._retiring: set[int] = set()
        self._next_number = 0
        self._reserved = 0  # bytes of all slabs, with what those in flight may still grow
        self._lent_bytes = 0
        self._share = _FIRST_SIZE if limit is None else max(_FIRST_SIZE, limit // (window + 1))
        self.largest = 0
        self._warned = False
        self.retired: list[int] = []  # numbers of closed slabs, for the executor to tell the workers
        _pools.add(self)

    @property
    def are_large(self) -> bool:
        """Whether the memory of one batch is worth saving."""
        return self.largest >= _LARGE

    @property
    def exhausted(self) -> bool:
        """Whether one more batch would take new memory, and much of it."""
        return self.are_large and not self._returned and not any(map(self._is_roomy, self._free))

    def take(self, nbytes: int, writer: int) -> Slab | None:
        """A slab for worker `writer`, with room for a request of `nbytes`; None while the memory limit leaves no room.

        It may grow to its `allowance` until it comes back by `lend` or `give_back`.

        Raises:
            SharedMemoryError: the system has no memory left, or the request alone is larger than the limit.
        """
        self._collect()
        least = HEADER + nbytes + _FIRST_SIZE
        if self.limit is not None and least > self.limit:
            raise SharedMemoryError(errno.ENOMEM, f"memory_limit={self.limit:,} bytes: a request needs {least:,}")
        self._share = max(self._share, least)
        slab = self._pop_free(writer)
        size = slab.size if slab else align(max(self.largest, least), mmap.PAGESIZE)
        allowance = _UNLIMITED if self.limit is None else max(size, self._share)
        more = allowance - (slab.size if slab else 0)
        if not self._reserve(more):
            if slab:
                self._free.append(slab)
            return None
        try:
            if slab is None:
                slab = self._make(size)
            elif slab.size < least:
                slab.grow(least, allowance)
        except OSError:
            self._reserved -= 0 if self.limit is None else more
            if slab:
                self._free.append(slab)
            raise
        slab.allowance, slab.writer = allowance, writer
        return slab

    def _pop_free(self, writer: int) -> Slab | None:
        """The warmest free slab: rather one with room for a batch, then one that this worker wrote, then the last."""
        best, most = None, -1
        for slab in reversed(self._free):
            score = 2 * self._is_roomy(slab) + (slab.writer == writer)
            if score > most:
                best, most = slab, score
                if most == 3:
                    break
        if best is not None:
            self._free.remove(best)
        return best

    def _is_roomy(self, slab: Slab) -> bool:
        """Whether a batch will hardly make it grow."""
        return 2 * slab.size >= self.largest

    def _make(self, size: int) -> Slab:
        fd = anonymous_file()
        try:
            reserve(fd, size)
            slab = Slab(self._next_number, fd, size)
        except OSError:
            os.close(fd)
            raise
        self._next_number += 1
        self._all[slab.number] = slab
        slab.leaves_room = leaves_room(fd)  # asked now, since it takes a third of all that a loan does
        return slab

    def demand(self, nbytes: int) -> bool:
        """A batch needs `nbytes`: later slabs may grow that far. False if the limit forbids it for ever."""
        share = align(nbytes + (nbytes >> 5), mmap.PAGESIZE)
        self._share = max(self._share, share if self.limit is None else min(share, self.limit))
        return nbytes <= self._share

    def has_grown(self, slab: Slab, size: int) -> None:
        """A worker needed more room than the slab had."""
        slab.map(size)
        self.largest = max(self.largest, size)

    def lend(self, slab: Slab, used: int) -> NDArray[np.uint8]:
        """The memory of a batch of `used` bytes, to be looked at as long as anyone likes; see NOTE [loans]."""
        self.largest = max(self.largest, used)
        if not self._may_lend(slab):
            return self.copy_out(slab, used)
        loan: _Loan = _Loan(slab.size, _BYTE, slab.memory)
        loan.slab, loan.address, loan.mappings = slab, slab.address, {}
        slab.begin_loan()
        returned, number = self._returned, slab.number
        self._lent[number] = slab, weakref.ref(loan, lambda _: returned.append(number))
        self._lent_bytes += slab.size
        self._settle(slab)
        return loan

    def copy_out(self, slab: Slab, used: int) -> NDArray[np.uint8]:
        """The first `used` bytes of a slab in flight as private memory; its flight is over."""
        to = alignment_of(used)
        private: NDArray[np.uint8] = np.empty(used + to, np.uint8)
        private = private[-private.__array_interface__["data"][0] % to :][:used]
        private[:] = np.ndarray((used,), np.uint8, slab.memory)
        self.give_back(slab)
        return private

    def give_back(self, slab: Slab) -> None:
        """Ends the flight of a slab that nobody looks into."""
        self._settle(slab)
        self._put(slab)

    def close(self) -> None:
        """Closes all slabs; delivered batches stay valid as long as somebody looks at them."""
        self._collect()
        for slab in self._all.values():
            slab.close()
        self._all, self._free, self._lent, self._held = {}, [], {}, []

    def _reserve(self, nbytes: int) -> bool:
        if self.limit is None:
            return True
        while self._free and self._reserved + nbytes > self.limit:
            self._retire(self._free.pop(0))
        if self._reserved + nbytes > self.limit:
            return False
        self._reserved += nbytes
        return True

    def _settle(self, slab: Slab) -> None:
        """Counts a slab that comes back at its size, no longer at what it was allowed."""
        if self.limit is not None:
            self._reserved -= slab.allowance - slab.size

    def _may_lend(self, slab: Slab) -> bool:
        if not slab.leaves_room and not leaves_room(slab.fd):
            return False
        if self.limit is None:
            most = self.window + _SPARE_LOANS
            if len(self._lent) >= most:
                self._collect()
            return len(self._lent) < most
        self._collect()
        cap = max(self.limit - self.window * self._share, self.limit // 2)
        if self._lent_bytes + slab.size <= cap:
            return True
        if not self._warned and len(self._lent) > 1:  # one is only the batch before this, in a usual loop
            self._warned = True
            warnings.warn(
                f"memory_limit={self.limit:,} bytes: {self._lent_bytes:,} are held by batches that you keep; "
                "further ones are private copies until some are let go",
                RuntimeWarning,
                stacklevel=6,  # the user's loop
            )
        return False

    def _collect(self) -> None:
        """Takes back the slabs whose loans are over."""
        if self._held:
            self._returned.extend(self._held)
            self._held = []
        for _ in range(len(self._returned)):
            number = self._returned.popleft()
            if self._lent[number][0].is_held:
                self._held.append(number)
                continue
            slab, _ = self._lent.pop(number)
            self._lent_bytes -= slab.size  # as it was lent: only a slab in flight grows
            self._put(slab)

    def _put(self, slab: Slab) -> None:
        if slab.number in self._retiring or len(self._free) > self.window + 1:
            self._retire(slab)
            return
        self._free.append(slab)
        # What only the second trip of a batch took is not kept, where it is much.
        if self.are_large and len(self._free) > 1 and len(self._all) > self.window + max(len(self._lent), 1):
            smallest = min(self._free, key=lambda free: free.size)
            self._free.remove(smallest)
            self._retire(smallest)

    def _retire(self, slab: Slab) -> None:
        if slab.number in self._retiring:
            self._retiring.discard(slab.number)  # a forked child may look into it; its pages go with the child
        else:
            slab.vacate()  # at once, though a busy worker will only later hear that the slab is gone
        del self._all[slab.number]
        if self.limit is not None:
            self._reserved -= slab.size
        self.retired.append(slab.number)
        slab.close()

    def _before_fork(self) -> None:
        self._retiring.update(list(self._lent))  # NOTE [loans and fork]

    def _after_fork_in_child(self) -> None:
        """Gives up the child's share of all slabs, except what it may look at."""
        for slab in self._all.values():
            slab.close()
        self._all, self._free, self._lent, self._held = {}, [], {}, []


def _before_fork() -> None:
    for pool in list(_pools):
        pool._before_fork()


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool._after_fork_in_child()
    _pools.clear()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
