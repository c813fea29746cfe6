"""Finds or makes the shared memory in which a batch goes to consumers.

    batch of worker processes   lies in a slab already: the consumers map this slab, and nothing is copied
    any other batch             is copied into a slab of the server

The server keeps the batch, and with it the loan of its slab, until no consumer needs the memory any more.

NOTE [last room]: a copy that takes the last room, of `memory_limit` or of descriptors, is `scarce`: consumers copy it
and release it at once. So they may keep all other batches, and the server goes on. While such a copy is on its way, the
next one waits for it without limit, since it is released when the slowest consumer has received it.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final
from weakref import WeakKeyDictionary, finalize

from ..errors import SharedMemoryError
from ..executors.lanes.lane_executor import LaneExecutor
from ..frameworks import leaves_room
from ..locks import Lock
from ..memory.allocator import Arena
from ..memory.reduce import reduce
from ..memory.slab import HEADER, Head, Slab
from ..memory.slabs import SlabPool

_PATIENCE_S: Final = 10.0  # how long a batch waits for memory that consumers give back


@dataclass(slots=True, eq=False)
class Parcel:
    """A batch in shared memory.

    Attributes:
        slab, number: where the batch lies, and the number of this slab among all slabs of the server.
        head: where its head lies in the slab.
        free: gives the memory back; to be called once.
        scarce: see `Packet`.
    """

    slab: Slab
    number: int
    head: Head
    free: Callable[[], object]
    scarce: bool


class Parcels:
    """Makes parcels; `make` is called by one thread, `Parcel.free` by any thread.

    Args:
        window: how many parcels usually exist at a time.
        limit: the most bytes of copies; None for no limit.

    Attributes:
        copies: how many batches were copied.
        waits: whether `make` waits for memory.
        retired: numbers of slabs in which no batch will lie any more; the server removes them.
    """

    def __init__(self, window: int, limit: int | None) -> None:
        self._pool = SlabPool(window, limit)
        self._lock = Lock()
        self._changed = threading.Condition()
        self._freed, self._closed = 0, False  # how many parcels were freed
        self._scarce = 0  # parcels that are `scarce` and not freed
        self.waits = False
        self._numbers: WeakKeyDictionary[Slab, int] = WeakKeyDictionary()
        self._count = count(1)
        self.copies = 0
        self.retired: deque[int] = deque()
        with suppress(OSError):  # so that the loader, which makes slabs later, does not use up all descriptors
            self._make_slabs(window + 1)

    def _make_slabs(self, count: int) -> None:  # see NOTE [loops and try] in interrupts.py
        for slab in [self._pool.take(0, -1) for _ in range(count)]:
            if slab is not None:
                self._pool.give_back(slab)

    def make(self, batch: Any, executor: object) -> Parcel:
        """The parcel of a batch that an executor has made.

        Raises:
            TransportError: a part of the batch cannot be pickled.
            SharedMemoryError: there is no memory for a copy.
        """
        whole = executor.take_whole(batch) if isinstance(executor, LaneExecutor) else None
        if whole is None:
            return self._copied(batch)
        kept = [whole.loan]

        def free() -> None:
            kept.clear()
            self._note_freed()

        return Parcel(whole.slab, self._number(whole.slab), whole.head, free, False)

    def _copied(self, batch: Any) -> Parcel:
        """A copy of a batch; waits for the end of other parcels if there is no room for it. See NOTE [last room]."""
        deadline, needed = time.monotonic() + _PATIENCE_S, 0
        while True:
            freed = self._freed
            try:
                return self._copy(batch, needed)
            except _NeedsMore as more:
                (needed,) = more.args
                if not self._pool.demand(needed):
                    what = f"a batch needs {needed:,} bytes, but memory_limit={self._pool.limit:,}"
                    cure = "raise memory_limit, or make the batches smaller (batch_size)"
                    raise SharedMemoryError(errno.ENOMEM, f"{what}; {cure}") from None
            except OSError:
                if not self._wait_for_freed(freed, deadline - time.monotonic()):
                    raise

    def _wait_for_freed(self, freed: int, seconds: float) -> bool:
        """Waits until a parcel was freed that `freed` does not count."""
        with self._changed:
            limit, self.waits = None if self._scarce else seconds, True
            self._changed.wait_for(lambda: self._freed > freed or self._closed, limit)
            self.waits = False
            return self._freed > freed and not self._closed

    def _note_freed(self, scarce: bool = False) -> None:
        with self._changed:
            self._freed += 1
            self._scarce -= scarce
            self._changed.notify_all()

    def _copy(self, batch: Any, needed: int) -> Parcel:
        with self._lock:
            slab = self._pool.take(0, -1, needed)
            if slab is None:
                kept = f"consumers keep batches that use all of memory_limit={self._pool.limit:,} bytes"
                raise SharedMemoryError(errno.ENOMEM, f"{kept}; raise memory_limit, or keep fewer batches")
            arena = Arena(slab, HEADER, slab.allowance)
            try:
                head = reduce(batch, arena)
                if head is None:
                    raise _NeedsMore(arena.needed)
            except BaseException:
                self._pool.give_back(slab)
                raise
            self.copies += 1
            self._pool.has_grown(slab, slab.size)
            self._pool.retired.clear()  # consumers close old slabs themselves
            scarce = not self._pool.has_room or _few_descriptors()
        with self._changed:
            self._scarce += scarce
        return Parcel(slab, self._number(slab), head, partial(self._give_back, slab, scarce), scarce)

    def _give_back(self, slab: Slab, scarce: bool) -> None:
        with self._lock:
            self._pool.give_back(slab)
        self._note_freed(scarce)

    def _number(self, slab: Slab) -> int:
        if slab not in self._numbers:
            number = self._numbers[slab] = next(self._count)
            finalize(slab, self.retired.append, number).atexit = False
        return self._numbers[slab]

    def close(self) -> None:
        """Closes the slabs of copies; consumers that have mapped them keep their batches."""
        self.stop_waiting()
        with self._lock:
            self._pool.close()

    def stop_waiting(self) -> None:
        """Ends the wait of a thread for memory, with the error of the system."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _few_descriptors() -> bool:
    """Whether this process can hardly open more files."""
    try:
        descriptor = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return True
    os.close(descriptor)
    return not leaves_room(descriptor)


class _NeedsMore(Exception):
    """A batch needs more memory than the slab may grow to; the argument says how many bytes."""
