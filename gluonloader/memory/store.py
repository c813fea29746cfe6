"""The rare events in the life of a pool's slabs: one is made or closed, a framework maps one, the process forks.

NOTE [holders]: a framework can map a slab by itself and use it after the last NumPy view has died. MXNet does, because
its engine works later. Such a holder subtracts 1 from the word HOLDERS when it is done, in any thread and without
Python. `lend` sets the word while there are no holders; after that only holders change it. The loan ends when its
arrays are dead and every holder has subtracted 1. A forked child subtracts as well, for the mappings that it inherited,
but by NOTE [loans and fork] such a slab is not used again.

NOTE [loans and fork]: a forked child can read the batches that were on loan at the fork, but the parent does not see
the child's references. So a slab that is on loan at a fork is not used again after its loan. It is closed.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

from ..frameworks import Lent, leaves_room
from .slab import Slab, anonymous_file, reserve

_stores: weakref.WeakSet[SlabStore] = weakref.WeakSet()


class Loan(Lent):
    """The memory of one delivered batch; because it is a subclass, NumPy makes it the base of all views."""

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


class SlabStore:
    """All slabs of one pool.

    Attributes:
        free: the free slabs; the last one was used last, so it is warmest in the caches.
        lent: the slabs on loan, by number, each with a weak reference to its loan.
        retired: numbers of slabs that were closed, until the executor has told the workers and clears the list.
    """

    def __init__(self) -> None:
        self._slabs: dict[int, Slab] = {}
        self._next_number = 0
        self.free: list[Slab] = []
        self.lent: dict[int, tuple[Slab, weakref.ref[Any]]] = {}
        self.retired: list[int] = []
        _stores.add(self)

    def make(self, size: int) -> Slab:
        """Makes a slab of `size` bytes.

        Raises:
            OSError: the system has no memory or no descriptor left.
        """
        fd = anonymous_file()
        try:
            reserve(fd, size)
            slab = Slab(self._next_number, fd, size)
        except OSError:
            os.close(fd)
            raise
        self._next_number += 1
        self._slabs[slab.number] = slab
        slab.leaves_room = leaves_room(fd)  # asked once per slab, because it takes a third of the time of a loan
        return slab

    def retire(self, slab: Slab) -> None:
        """Closes a slab that is not on loan."""
        if not slab.inherited:
            slab.free_memory()  # now, because a busy worker closes its own descriptor only later
        del self._slabs[slab.number]
        self.retired.append(slab.number)
        slab.close()

    def close(self) -> None:
        """Closes all slabs; delivered batches stay valid as long as anything refers to them."""
        for slab in self._slabs.values():
            slab.close()
        self._slabs.clear()
        self.free.clear()
        self.lent.clear()


def _before_fork() -> None:
    for store in list(_stores):
        for slab, _ in list(store.lent.values()):
            slab.inherited = True  # NOTE [loans and fork]


def _after_fork_in_child() -> None:
    # The child keeps no slab alive, except through the batches that it inherited.
    for store in list(_stores):
        store.close()
    _stores.clear()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
