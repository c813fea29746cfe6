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
    """The mapped slabs of one server; not thread-safe, except that loans may die in any thread.

    Attributes:
        inherited: items that were lent when this process was forked, so a forked child may use their memory.
    """

    def __init__(self) -> None:
        self.inherited: set[int] = set()
        self._maps: dict[int, mmap.mmap] = {}  # by number of the slab
        self._loans: Loans[None] = Loans()
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

    def lend(self, item: int, slab: int, size: int, scarce: bool) -> BatchBytes | None:
        """The memory of the batch that is this item: the first `size` bytes of a slab, or a private copy.

        It is a copy if the program keeps many batches, or the server has little room (`scarce`). See NOTE
        [loans] in memory/loans.py. It is None if so many bytes of the slab are not mapped.
        """
        mapped = self._maps.get(slab)
        if mapped is None or len(mapped) < size:
            return None
        self._loans.ended()  # forgets them
        if scarce or len(self._loans.by_number) >= _MOST_LOANS:
            return BatchBytes(mapped, size)
        return self._loans.start(item, None, mapped, size)

    @property
    def lent(self) -> set[int]:
        """The items whose memory the program uses; not those that were copied."""
        return {loan.number for loan in self._loans if loan() is not None}

    def forget(self) -> bool:
        """Forgets all slabs; batches over them stay valid. Returns whether there were any."""
        had, self._maps = bool(self._maps), {}
        return had


_all: Final[weakref.WeakSet[Mappings]] = weakref.WeakSet()


def _before_fork() -> None:
    for mappings in list(_all):
        mappings.inherited.update(mappings.lent)  # NOTE [kept memory]


os.register_at_fork(before=_before_fork)
