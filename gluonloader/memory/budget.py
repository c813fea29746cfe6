"""The arithmetic of `memory_limit`: numbers only, no slabs.

NOTE [memory limit]: the sizes of all slabs together never exceed the limit; a slab in flight counts with its allowance,
the size that it may grow to. Loans may use the memory that the window does not need, but always up to half of the
limit. A batch that would exceed this is delivered as a private copy, and its slab is free at once. So a consumer that
keeps every batch never stops the loader.
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

    Attributes:
        share: bytes that a slab may grow to while it is in flight.
        reserved: bytes of all slabs, where a slab in flight counts with its allowance; never more than `limit`.
        lent: bytes of the slabs on loan.

    >>> budget = Budget(limit=1_000_000, window=4)
    >>> budget.share, budget.reserve(900_000), budget.reserve(200_000)
    (200000, True, False)
    """

    def __init__(self, limit: int, window: int) -> None:
        self.limit = limit
        self.share = limit // (window + 1)
        self.reserved = self.lent = 0
        self._warned = False

    def demand(self, nbytes: int) -> bool:
        """Raises the share to a little more than `nbytes`; returns False if `nbytes` exceeds the limit."""
        if nbytes > self.limit:
            return False
        roomy = align(nbytes + (nbytes >> 5), mmap.PAGESIZE)
        self.share = max(self.share, min(roomy, self.limit))
        return True

    def reserve(self, nbytes: int) -> bool:
        """Adds `nbytes` to `reserved`; returns False, and adds nothing, if that exceeds the limit."""
        if self.reserved + nbytes > self.limit:
            return False
        self.reserved += nbytes
        return True

    def may_lend(self, nbytes: int, window: int) -> bool:
        """Whether a loan of `nbytes` leaves enough for the batches in flight; see NOTE [memory limit]."""
        return self.lent + nbytes <= max(self.limit - window * self.share, self.limit // 2)

    def warn_of_copies(self) -> None:
        """Warns once that batches are copied because the user keeps many batches."""
        if not self._warned:
            self._warned = True
            warn(
                f"memory_limit={self.limit:,} bytes: {self.lent:,} bytes are used by batches that you keep, so further "
                "batches are private copies; delete batches that you no longer need, or raise memory_limit",
            )
