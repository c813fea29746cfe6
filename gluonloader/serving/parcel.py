"""Finds or makes the shared memory in which a batch goes to consumers.

    batch of worker processes   lies in a slab already: the consumers map this slab, and nothing is copied
    any other batch             is copied into a slab of the server

The server keeps the batch, and with it the loan of its slab, until no consumer needs the memory any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final
from weakref import WeakKeyDictionary

from numpy.typing import NDArray

from ..executors.lanes.lane_executor import LaneExecutor
from ..locks import Lock
from ..memory.allocator import Arena
from ..memory.reduce import reduce
from ..memory.slab import HEADER, Head, Slab
from ..memory.slabs import SlabPool
from .messages import INLINE_BYTES

_NOWHERE: Final = Head(0, 0, 0)


@dataclass(slots=True, eq=False)
class Parcel:
    """A batch in shared memory.

    Attributes:
        slab, number: where the batch lies, and the number of this slab among all slabs of the server.
        size: how many bytes of the slab the batch uses.
        head: where its head lies in the slab; `inline` is the head if the length of this is 0.
        free: gives the memory back; to be called once.
    """

    slab: Slab
    number: int
    size: int
    head: Head
    inline: bytes
    free: Callable[[], object]


class Parcels:
    """Makes parcels; `make` is called by one thread, `Parcel.free` by any thread.

    Args:
        window: how many parcels usually exist at a time.
    """

    def __init__(self, window: int) -> None:
        self._pool = SlabPool(window, None)
        self._lock = Lock()
        self._numbers: WeakKeyDictionary[Slab, int] = WeakKeyDictionary()
        self._count = count(1)
        self.copies = 0

    def make(self, batch: Any, executor: object) -> Parcel:
        """The parcel of a batch that an executor has made.

        Raises:
            TransportError: a part of the batch cannot be pickled.
            SharedMemoryError: there is no memory for a copy.
        """
        lent = _Lent(executor.lent_slabs if isinstance(executor, LaneExecutor) else [])
        try:
            head = reduce(batch, lent)
        except _NotInSlab:
            head = None
        if head is not None and lent.slab is not None and not head.spans and head.length <= INLINE_BYTES:
            # The list keeps the batch, and so the loan of the slab, until it is cleared.
            return Parcel(lent.slab, self._number(lent.slab), lent.end, _NOWHERE, lent.head, [batch].clear)
        return self._copy(batch)

    def _copy(self, batch: Any) -> Parcel:
        with self._lock:
            self.copies += 1
            slab = self._pool.take(0, -1)
            assert slab is not None  # the pool has no limit
            try:
                head = reduce(batch, Arena(slab, HEADER, slab.allowance))
                assert head is not None
            except BaseException:
                self._pool.give_back(slab)
                raise
            self._pool.has_grown(slab, slab.size)
            self._pool.retired.clear()  # consumers close old slabs themselves
        return Parcel(slab, self._number(slab), head.offset + head.length, head, b"", lambda: self._give_back(slab))

    def _give_back(self, slab: Slab) -> None:
        with self._lock:
            self._pool.give_back(slab)

    def _number(self, slab: Slab) -> int:
        if slab not in self._numbers:
            self._numbers[slab] = next(self._count)
        return self._numbers[slab]

    def close(self) -> None:
        """Closes the slabs of copies; consumers that have mapped them keep their batches."""
        with self._lock:
            self._pool.close()


class _NotInSlab(Exception):
    """The batch does not lie in a slab."""


class _Lent(Arena):
    """Says where the arrays of a delivered batch lie in its slab, and keeps the head; copies nothing.

    Attributes:
        slab: the slab of the batch; None before its first array.
        end: how many bytes of the slab the arrays use.
        head: the head of the batch.
    """

    def __init__(self, slabs: list[Slab]) -> None:
        self._slabs = slabs
        self.slab: Slab | None = None
        self.end, self.head = HEADER, b""

    def place(self, array: NDArray[Any]) -> int:
        address: int = array.__array_interface__["data"][0]
        for slab in self._slabs if self.slab is None else [self.slab]:
            offset = address - slab.address
            if 0 <= offset <= slab.size - array.nbytes and (self._is_dense(array)):
                self.slab = slab
                self.end = max(self.end, offset + array.nbytes)
                return offset
        raise _NotInSlab

    def _is_dense(self, array: NDArray[Any]) -> bool:
        """Whether the elements of the array lie side by side, in any order of the axes."""
        return array.flags.c_contiguous or array.flags.f_contiguous

    def strides_of(self, array: NDArray[Any]) -> tuple[int, ...] | None:
        return None if array.flags.c_contiguous else array.strides

    def write(self, data: bytes | memoryview) -> int | None:
        self.head = bytes(data)
        return 0
