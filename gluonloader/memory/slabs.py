"""The slabs of one loader, and the way of each batch through them.

    take -> in flight -> lend -> on loan: a delivered batch refers to it -> its last array dies -> free
                      -> copy_out: the batch moves to private memory --------------------------> free
                      -> give_back: nobody wants the batch ------------------------------------> free

store.py makes and closes slabs. budget.py counts them against `memory_limit`; see NOTE [memory limit] there.

NOTE [loans]: all arrays of a delivered batch have the same `Loan` as their base. When the last array dies, the loan
dies, and its weak reference appends the slab's number to a deque. It does nothing else, because this can happen in any
thread, at any point of any function. The slab is free when `take` reads the deque. So no batch is overwritten while
anything refers to it, and nobody has to release a batch explicitly.
"""

from __future__ import annotations

import errno
import mmap
import weakref
from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..errors import SharedMemoryError
from ..frameworks import leaves_room
from .allocator import alignment_of
from .budget import Budget
from .slab import HEADER, HOLDERS, NO_HOLDERS, Slab, align
from .store import Loan, SlabStore

_FIRST_SIZE: Final = 64 * 1024  # bytes for the first batch; its slab grows if that is too little
_SPARE_LOANS: Final = 16  # loans beyond the window if there is no memory limit; each costs a slab and its descriptors
_UNLIMITED: Final = 2**62
_BYTE: Final = np.dtype(np.uint8)


class SlabPool:
    """Slabs for one executor; not thread-safe, except that loans may die in any thread.

    Args:
        window: batches that are usually in flight at once.
        limit: most bytes of shared memory; None for no limit.

    Attributes:
        window: as above; may be changed at any time.
        largest: bytes of the largest batch so far, or of the slab that grew for it; 0 before the first.
        retired: numbers of closed slabs, for the executor to tell the workers and to clear.
    """

    def __init__(self, window: int, limit: int | None) -> None:
        self.window, self.largest = window, 0
        self._budget = None if limit is None else Budget(limit, window)
        self._store = SlabStore()
        self._free, self._lent, self.retired = self._store.free, self._store.lent, self._store.retired
        self._returned: deque[int] = deque()  # numbers of slabs whose loan has died

    @property
    def limit(self) -> int | None:
        """The memory limit in bytes."""
        return None if self._budget is None else self._budget.limit

    def take(self, nbytes: int, writer: int) -> Slab | None:
        """Returns a slab for worker `writer`, with room for a task of `nbytes`; None while the limit leaves no room.

        The slab may grow to its `allowance` until it comes back by `lend`, `copy_out` or `give_back`.

        Raises:
            SharedMemoryError: the system has no memory left, or the task alone is larger than the limit.
        """
        self._collect()
        budget, least = self._budget, HEADER + nbytes + _FIRST_SIZE
        if budget is not None and least > budget.share and not budget.demand(least):
            text = f"memory_limit={budget.limit:,} bytes: one batch needs at least {least:,}; raise memory_limit"
            raise SharedMemoryError(errno.ENOMEM, text)
        slab = self._pop_free(writer)
        had = 0 if slab is None else slab.size
        size = had or align(max(self.largest, least), mmap.PAGESIZE)
        allowance = _UNLIMITED if budget is None else max(size, budget.share)
        if budget is not None and not self._reserve(budget, allowance - had):
            if slab is not None:
                self._free.append(slab)
            return None
        try:
            if slab is None:
                slab = self._store.make(size)
            elif had < least:
                slab.grow(least, allowance)
        except OSError:
            if budget is not None:
                budget.reserved -= allowance - had
            if slab is not None:
                self._free.append(slab)
            raise
        slab.allowance, slab.writer = allowance, writer
        return slab

    def lend(self, slab: Slab, used: int) -> NDArray[np.uint8]:
        """Ends the flight of a slab and returns the memory of its batch, which stays valid; see NOTE [loans].

        Args:
            slab: in flight; a batch lies in it.
            used: size of that batch in bytes.
        """
        self.largest = max(self.largest, used)
        if not self._may_lend(slab):
            return self.copy_out(slab, used)
        loan: Loan = Loan(slab.size, _BYTE, slab.memory)
        loan.slab, loan.address, loan.mappings = slab, slab.address, {}
        slab.control[HOLDERS], slab.holders = NO_HOLDERS, 0
        returned, number = self._returned, slab.number
        self._lent[number] = slab, weakref.ref(loan, lambda _: returned.append(number))
        if self._budget is not None:
            self._budget.lent += slab.size
        self._end_flight(slab)
        return loan

    def copy_out(self, slab: Slab, used: int) -> NDArray[np.uint8]:
        """Ends the flight of a slab and returns a private copy of its first `used` bytes."""
        alignment = alignment_of(used)
        private: NDArray[np.uint8] = np.empty(used + alignment, np.uint8)
        private = private[-private.__array_interface__["data"][0] % alignment :][:used]
        private[:] = np.ndarray((used,), np.uint8, slab.memory)
        self.give_back(slab)
        return private

    def give_back(self, slab: Slab) -> None:
        """Ends the flight of a slab that nothing refers to."""
        self._end_flight(slab)
        self._put(slab)

    def demand(self, nbytes: int) -> bool:
        """Lets later slabs grow to `nbytes`, which a batch needs; returns False if that exceeds the memory limit."""
        return self._budget is None or self._budget.demand(nbytes)

    def has_grown(self, slab: Slab, size: int) -> None:
        """Maps a slab again that a worker has grown to `size` bytes."""
        slab.map(size)
        self.largest = max(self.largest, size)

    def close(self) -> None:
        """Closes all slabs; delivered batches stay valid as long as anything refers to them."""
        self._store.close()

    def _pop_free(self, writer: int) -> Slab | None:
        """Returns a free slab: a large enough one, else one that `writer` wrote, else the last that was used.

        A slab of at least half the largest batch's size counts as large enough, because most batches are smaller.
        """
        best, most = None, -1
        for slab in reversed(self._free):
            score = 2 * (2 * slab.size >= self.largest) + (slab.writer == writer)
            if score > most:
                best, most = slab, score
                if most == 3:
                    break
        if best is not None:
            self._free.remove(best)
        return best

    def _reserve(self, budget: Budget, nbytes: int) -> bool:
        """Counts `nbytes` more; closes free slabs, longest unused first, while the limit leaves no room."""
        while not budget.reserve(nbytes):
            if not self._free:
                return False
            self._retire(self._free.pop(0))
        return True

    def _may_lend(self, slab: Slab) -> bool:
        """Whether a batch may stay in its slab when it is delivered."""
        if not slab.leaves_room and not leaves_room(slab.fd):
            return False
        if self._budget is None:
            most = self.window + _SPARE_LOANS
            if len(self._lent) >= most:
                self._collect()
            return len(self._lent) < most
        self._collect()
        if self._budget.may_lend(slab.size, self.window):
            return True
        if len(self._lent) > 1:  # a usual loop keeps one batch, the previous one
            self._budget.warn_of_copies()
        return False

    def _end_flight(self, slab: Slab) -> None:
        """Counts a slab with its size, no longer with its allowance."""
        if self._budget is not None:
            self._budget.reserved -= slab.allowance - slab.size

    def _collect(self) -> None:
        """Frees the slabs whose loans have ended."""
        for _ in range(len(self._returned)):
            number = self._returned.popleft()
            slab = self._lent[number][0]
            if slab.holders and slab.is_held:
                self._returned.append(number)  # asked again the next time
                continue
            del self._lent[number]
            if self._budget is not None:
                self._budget.lent -= slab.size  # the size at which it was lent, since it grows only in flight
            self._put(slab)

    def _put(self, slab: Slab) -> None:
        if slab.inherited or len(self._free) > self.window + 1:
            self._retire(slab)
        else:
            self._free.append(slab)

    def _retire(self, slab: Slab) -> None:
        self._store.retire(slab)
        if self._budget is not None:
            self._budget.reserved -= slab.size
