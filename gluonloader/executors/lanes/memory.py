"""What the dispatcher and the lanes need of memory: a slab for each batch, and the memory that provides slabs.

processes   memory/slabs.py   slabs: recycled shared memory
Ray         ray/objects.py    the room of a batch in Ray's store, which has the layout of a slab
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...memory.budget import MemoryStats


class SlabLike(Protocol):
    """The memory of one batch, with the layout of a slab.

    Attributes:
        number: differs between all slabs of a memory.
        size: bytes that it has.
        allowance: bytes that it may grow to while it is in flight.
        control: the words of its header, see memory/slab.py.
    """

    number: int
    size: int
    allowance: int
    control: memoryview

    def read(self, offset: int, length: int) -> bytes:
        """Returns some bytes of it; raises OSError if it cannot be mapped."""


S = TypeVar("S", bound=SlabLike)


class Memory(Protocol[S]):
    """The memory in which the batches of one executor travel; for the methods see `SlabPool`.

    Attributes:
        window: batches that are usually in flight at once.
        limit: `memory_limit` in bytes; None for no limit.
        largest: bytes of the largest batch so far; 0 before the first.
        lent: bytes on loan; 0 if there is no limit.
        retired: numbers of slabs that are closed, until the dispatcher tells the workers and clears the list.
    """

    window: int
    limit: int | None
    largest: int
    retired: list[int]

    @property
    def lent(self) -> int: ...

    def take(self, nbytes: int, writer: int, needed: int = 0, last_room: bool = False) -> S | None: ...

    def lend(self, slab: S, used: int) -> NDArray[np.uint8]: ...

    def copy_out(self, slab: S, used: int) -> NDArray[np.uint8]: ...

    def give_back(self, slab: S) -> None: ...

    def reclaim(self, slab: S) -> None: ...

    def recount(self, in_flight: Collection[int]) -> None: ...

    def demand(self, nbytes: int) -> bool: ...

    def has_grown(self, slab: S, size: int) -> None: ...

    def stats(self) -> MemoryStats: ...

    def close(self) -> None: ...
