"""The arithmetic of `memory_limit`: numbers only, no slabs.

NOTE [memory limit]: the sizes of all slabs together never exceed the limit; a slab in flight counts with its allowance,
the size that it may grow to. This is usually the share, which is at least the size of the largest batch so far. Loans
may use the memory that the window does not need, or half of the limit, but they always leave one share. A batch that
would exceed this is delivered as a private copy, and its slab is free at once. So a consumer that keeps every batch
never stops the loader.

If there is no room for a share, the batch waits until no other batch is in flight. Then batches that wait for delivery
are copied to private memory, loans give back what their batches do not use, and the batch may take all memory that is
left. So a batch is refused only if it and the batches that the program keeps together exceed the limit.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Final

from ..errors import warn
from .slab import align

# Without a memory limit:
SPARE_LOANS: Final = 16  # loans beyond the window, since each occupies a slab and its descriptors, or a store
UNLIMITED: Final = 2**62  # the allowance of a slab, in bytes


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """The shared memory of a loader's batches.

    Attributes:
        slabs: number of blocks of shared memory, each with room for one batch.
        lent: number of blocks whose batch your program still uses.
        nbytes: bytes of all blocks.
        limit: `memory_limit` in bytes; None for no limit.
        copies: number of batches that were copied to private memory, since too much memory was lent already.
        refusals: how often a batch was made later because `memory_limit` left no room for it.
    """

    slabs: int
    lent: int
    nbytes: int
    limit: int | None
    copies: int
    refusals: int


class Budget:
    """Counts the shared memory of one pool against its limit in bytes.

    Args:
        limit: as the user has given it.
        window: batches that are usually in flight at once.
        unit: memory is counted in multiples of so many bytes.

    Attributes:
        most: `limit` in whole units.
        share: bytes that a slab may usually grow to while it is in flight.
        reserved: bytes of all slabs, where a slab in flight counts with its allowance; never more than `most`.
        lent: bytes of the slabs on loan.

    >>> budget = Budget(limit=1_000_000, window=4)
    >>> budget.share, budget.reserve(900_000), budget.reserve(200_000)
    (200000, True, False)
    """

    def __init__(self, limit: int, window: int, unit: int = 1) -> None:
        self.limit = limit
        self.most = limit // unit * unit
        self.share = limit // (window + 1) // unit * unit
        self.reserved = self.lent = 0
        self._warned = False

    def demand(self, nbytes: int) -> bool:
        """Raises the share to a little more than `nbytes`; returns False if `nbytes` exceeds the limit."""
        if nbytes > self.most:
            return False
        roomy = align(nbytes + (nbytes >> 5), mmap.PAGESIZE)
        self.share = max(self.share, min(roomy, self.most))
        return True

    def reserve(self, nbytes: int) -> bool:
        """Adds `nbytes` to `reserved`; returns False, and adds nothing, if that exceeds the limit."""
        if self.reserved + nbytes > self.most:
            return False
        self.reserved += nbytes
        return True

    def reserve_at_most(self, nbytes: int) -> int:
        """Adds `nbytes`, or all that the limit leaves, to `reserved`; returns how much it has added."""
        nbytes = min(nbytes, self.most - self.reserved)
        self.reserved += nbytes
        return nbytes

    def lendable(self, window: int) -> int:
        """The most bytes that may be on loan, so that enough is left for batches in flight; see NOTE [memory limit]."""
        return max(self.most - window * self.share, min(self.most // 2, self.most - self.share))

    def may_lend(self, nbytes: int, window: int) -> bool:
        """Whether a loan of `nbytes` leaves enough for the batches in flight."""
        return self.lent + nbytes <= self.lendable(window)

    def warn_of_copies(self, kept: int) -> None:
        """Warns once that batches are copied because the user keeps batches of `kept` bytes."""
        if not self._warned:
            self._warned = True
            warn(
                f"memory_limit={self.limit:,} bytes: {kept:,} bytes are used by batches that you keep, so further "
                "batches are private copies; delete batches that you no longer need, or raise memory_limit",
            )
