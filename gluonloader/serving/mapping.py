"""The memory of a server that a consumer has mapped, and the loans of the batches in it.

A slab is mapped once, because the pages of a large batch are entered one by one in the page table. A mapping stays
until the server has closed the slab or ends, or this process may open no more files.

NOTE [kept memory]: the server uses the memory of a batch again when the consumer has released it. If a forked child may
still read the batch, nobody will see when the last array dies. Then the consumer sends `KEEP`, and the server closes
the slab instead. So it does with all batches that a consumer has not released when it leaves or dies, or when the
server ends. The system frees the memory when the last mapping is gone.
"""

from __future__ import annotations

import mmap
import os
import weakref
from typing import Final

from ..memory.loans import BatchBytes, Loans
from ..memory.slab import MAP_OPTIONS

_MOST_LOANS: Final = 4  # batches that a consumer keeps in the server's memory; further ones are copied


class Mappings:
    """The mapped slabs of one server; not thread-safe, except that loans may die in any thread."""

    def __init__(self) -> None:
        self._maps: dict[int, mmap.mmap] = {}  # by number of the slab
        self._loans: Loans[None] = Loans()
        self._slabs: dict[int, int] = {}  # the slab of each item that was lent
        self._inherited: set[int] = set()  # items that were lent when this process was forked
        _all.add(self)

    def add(self, slab: int, descriptor: int) -> None:
        """Maps a slab, and closes the descriptor; raises OSError if there are too many open files or mappings.

        Does nothing if the server has closed the slab already: this consumer has left the epoch of the batch.
        """
        try:
            size = os.fstat(descriptor).st_size
            mapped = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ, **MAP_OPTIONS)
        except ValueError:  # the file is empty, or shorter than `size` by now
            return
        finally:
            os.close(descriptor)
        self._maps[slab] = mapped

    def drop(self, slab: int) -> None:
        """Unmaps a slab that the server does not use any more; batches in it stay valid."""
        self._maps.pop(slab, None)

    def has(self, slab: int, size: int) -> bool:
        """Whether so many bytes of a slab are mapped."""
        mapped = self._maps.get(slab)
        return mapped is not None and len(mapped) >= size

    def lend(self, item: int, slab: int, size: int, scarce: bool) -> BatchBytes:
        """The memory of the batch that is this item: the first `size` bytes of a slab, or a private copy.

        It is a copy if the program keeps many batches, or the server has little room (`scarce`). See NOTE
        [loans] in memory/loans.py.
        """
        mapped = self._maps[slab]
        if scarce or len(self._loans.by_number) >= _MOST_LOANS:
            return BatchBytes(mapped, size)
        self._slabs[item] = slab
        return self._loans.start(item, None, mapped, size)

    def forget_ended(self) -> None:
        """Forgets the loans that have ended."""
        for loan in self._loans.ended():
            slab = self._slabs.pop(loan.number, None)
            if loan.number in self._inherited and slab is not None:
                self._maps.pop(slab, None)  # the server will not use it again

    def is_lent(self, item: int) -> bool:
        """Whether the program uses the memory of a batch; False for a copy."""
        loan = self._loans.by_number.get(item)
        return loan is not None and loan() is not None

    def is_inherited(self, item: int) -> bool:
        """Whether a forked child may use the memory of a batch."""
        return item in self._inherited

    @property
    def lent(self) -> list[int]:
        """The items whose memory the program uses."""
        return [item for item in list(self._loans.by_number) if self.is_lent(item)]

    def forget(self) -> bool:
        """Forgets all slabs; batches over them stay valid. Returns whether there were any."""
        had, self._maps = bool(self._maps), {}
        return had


_all: Final[weakref.WeakSet[Mappings]] = weakref.WeakSet()


def _before_fork() -> None:
    for mappings in list(_all):
        mappings._inherited.update(mappings.lent)  # NOTE [kept memory]


os.register_at_fork(before=_before_fork)
