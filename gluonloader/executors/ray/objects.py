"""The batches of one loader in Ray's object store, and what happens to each of them.

    take -> the worker makes the batch -> arrive -> lend -> on loan: a delivered batch refers to the object
                                                 -> copy_out: the batch moves to private memory
                                       -> give_back: nobody wants the batch

These are the rules of slabs (NOTE [loans] and NOTE [memory limit] in memory/), except that nothing is recycled: Ray
deletes an object when nothing refers to it. Ray maps objects read-only, so the arrays of a batch are read-only.
"""

from __future__ import annotations

import errno
from collections.abc import Collection
from pickle import PickleBuffer
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...errors import SharedMemoryError
from ...memory.allocator import LARGE
from ...memory.budget import SPARE_LOANS, UNLIMITED, Budget, MemoryStats
from ...memory.loans import BatchBytes, Loans
from ...memory.slab import HEADER

_NO_BYTES: Final = np.empty(0, np.uint8)


class StoredBatch:
    """The room of a batch in the store, and its bytes once they have arrived; has the layout of a slab.

    Attributes:
        number: differs between all batches of a loader.
        allowance: bytes that the batch may take.
        size: bytes that it takes; 0 before it has arrived.
        control: the words of the header of a slab; the main program writes those of them that the worker cannot write.
    """

    def __init__(self, number: int, allowance: int) -> None:
        self.number, self.allowance, self.size = number, allowance, 0
        self.control = memoryview(bytearray(HEADER)).cast("Q")
        self.data: NDArray[np.uint8] = _NO_BYTES

    def arrive(self, data: NDArray[np.uint8]) -> None:
        self.data = data
        if len(data) >= HEADER:
            self.control = memoryview(bytearray(data[:HEADER])).cast("Q")

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length].tobytes()


class ObjectMemory:
    """The batches of one executor in Ray's store; not thread-safe, except that loans may die in any thread.

    Args:
        window: batches that are usually in flight at once.
        limit: the maximum number of bytes in the store, for batches in flight and on loan; None for no limit.
    """

    def __init__(self, window: int, limit: int | None) -> None:
        self.window, self.limit, self.largest = window, limit, 0
        self._copies = self._refusals = 0
        self.retired: list[int] = []  # stays empty
        self.whole = False  # has no effect, since a server of batches copies them
        self._budget = None if limit is None else Budget(limit, window)
        self._next_number = 0
        self._flying: dict[int, StoredBatch] = {}
        self._loans: Loans[None] = Loans()

    def take(self, nbytes: int, writer: int, needed: int = 0, last_room: bool = False) -> StoredBatch | None:
        """Room for a batch whose task has `nbytes`; None while the limit leaves no room. See `SlabPool.take`."""
        self._collect()
        budget, least, allowance = self._budget, max(HEADER + nbytes, needed), UNLIMITED
        if budget is not None:
            if least > budget.share and not budget.demand(least):
                what = f"memory_limit={budget.limit:,} bytes: one task takes {least:,} bytes"
                raise SharedMemoryError(errno.ENOMEM, f"{what}; raise memory_limit, or make the batches smaller")
            allowance = budget.share
            if not budget.reserve(allowance):
                allowance = budget.reserve_at_most(allowance) if last_room else 0
                if allowance < least:
                    budget.reserved -= allowance
                    self._refusals += 1
                    return None
        self._next_number += 1
        batch = self._flying[self._next_number] = StoredBatch(self._next_number, allowance)
        return batch

    def lend(self, batch: StoredBatch, used: int) -> BatchBytes:
        """Returns the memory of a batch that is delivered now: a view of the store, or a copy if too many are lent."""
        self.largest = max(self.largest, used)
        lends = used > LARGE and self._may_lend(used)  # all arrays of a small batch are copied in any case
        if not lends:
            self._copies += used > LARGE
            self._end_flight(batch)
            return BatchBytes(PickleBuffer(batch.data.data), used)
        loan = self._loans.start(batch.number, None, PickleBuffer(batch.data.data), used)
        if self._budget is not None:
            self._budget.reserved += used
            self._budget.lent += used
        self._end_flight(batch)
        return loan

    def copy_out(self, batch: StoredBatch, used: int) -> BatchBytes:
        """Returns a private copy of the first `used` bytes of a batch, and frees its room."""
        self._copies += 1
        copy = BatchBytes(bytearray(batch.data[:used].data), used)
        self._end_flight(batch)
        return copy

    def give_back(self, batch: StoredBatch) -> None:
        """Frees the room of a batch that nobody needs; a second call does nothing."""
        batch.data = _NO_BYTES
        self._end_flight(batch)

    def _end_flight(self, batch: StoredBatch) -> None:
        # The batch keeps its data: a call that an exception of a signal handler has ended is repeated.
        if self._flying.pop(batch.number, None) is not None and self._budget is not None:
            self._budget.reserved -= batch.allowance

    def reclaim(self, batch: StoredBatch) -> None:
        """Frees the room of a batch whose worker has died."""
        self.give_back(batch)

    def recount(self, in_flight: Collection[int]) -> None:
        """Computes again how much memory is in use, after a method was interrupted; see `SlabPool.recount`."""
        self._flying = {number: batch for number, batch in self._flying.items() if number in in_flight}
        self._loans.recount(in_flight)
        if self._budget is not None:
            self._budget.lent = sum(loan.used for loan in self._loans)
            self._budget.reserved = self._budget.lent + sum(batch.allowance for batch in self._flying.values())

    def demand(self, nbytes: int) -> bool:
        """Lets later batches take `nbytes`; returns False if that exceeds the memory limit."""
        return self._budget is None or self._budget.demand(nbytes)

    def has_grown(self, batch: StoredBatch, size: int) -> None:
        """Notes the size of a batch that has arrived."""
        batch.size = size
        self.largest = max(self.largest, size)

    @property
    def lent(self) -> int:
        """Bytes on loan; 0 if there is no limit."""
        return 0 if self._budget is None else self._budget.lent

    def stats(self) -> MemoryStats:
        flying, loans = list(self._flying.values()), [loan for loan in self._loans if loan() is not None]
        nbytes = sum(batch.size for batch in flying) + sum(loan.used for loan in loans)
        return MemoryStats(len(flying) + len(loans), len(loans), nbytes, self.limit, self._copies, self._refusals)

    def close(self) -> None:
        """Forgets all batches; those that were delivered stay valid as long as anything refers to them."""
        self._flying = {}
        self._loans.clear()

    def _may_lend(self, nbytes: int) -> bool:
        self._collect()
        if self._budget is None:
            return len(self._loans.by_number) < self.window + SPARE_LOANS
        if self._budget.may_lend(nbytes, self.window):
            return True
        if len(self._loans.by_number) > 1:  # a usual loop keeps only the previous batch
            self._budget.warn_of_copies(self._budget.lent)
        return False

    def _collect(self) -> None:
        for loan in self._loans.ended():
            if self._budget is not None:
                self._budget.reserved -= loan.used
                self._budget.lent -= loan.used
