"""The slabs of one loader, and what happens to a slab that contains a batch.

    take -> in flight -> lend -> on loan: a delivered batch refers to it -> its last array dies -> free
                      -> copy_out: the batch moves to private memory --------------------------> free
                      -> give_back: nobody wants the batch ------------------------------------> free

budget.py counts slabs against `memory_limit`, see NOTE [memory limit] there; loans.py knows which loans have ended, and
which parts of the others are not used any more.

NOTE [loans and fork]: a forked child can read the batches that were on loan at the fork, but the parent does not see
the child's references. So a slab that is on loan at a fork is closed after its loan, not used again.
"""

from __future__ import annotations

import errno
import mmap
import os
import weakref
from collections.abc import Collection
from itertools import chain
from typing import Final

from ..errors import SharedMemoryError
from ..forks import no_fork
from ..frameworks import leaves_room
from ..interrupts import Uninterrupted
from .allocator import LARGE
from .budget import SPARE_LOANS, UNLIMITED, Budget, MemoryStats
from .loans import BatchBytes, LoanRef, Loans
from .slab import HEADER, Slab, align, anonymous_file, reserve, seal

_FIRST_SIZE: Final = 64 * 1024  # bytes of the slab for the first batch; it grows if the batch is larger
_USUAL_LOANS: Final = 4  # a program with more loans keeps arrays; with fewer, it will soon drop the rest of a batch

_pools: weakref.WeakSet[SlabPool] = weakref.WeakSet()
_outliving: list[LoanRef[Slab]] = []  # loans that have not ended when their pool was closed


class SlabPool:
    """Slabs for one executor; not thread-safe, except that loans may die in any thread.

    Args:
        window: batches that are usually in flight at once.
        limit: most bytes of shared memory; None for no limit.

    Attributes:
        window, limit: as above; the window may be changed at any time.
        largest: bytes of the largest batch so far, or of the slab that grew for it; 0 before the first.
        retired: numbers of closed slabs, until the executor has told the workers and clears the list.
        whole: batches are delivered without copies of small arrays, see NOTE [kept arrays] in loans.py; may be set.
    """

    def __init__(self, window: int, limit: int | None) -> None:
        self.window, self.limit, self.largest = window, limit, 0
        self.whole = False
        self._copies = self._refusals = 0
        self._budget = None if limit is None else Budget(limit, window, unit=mmap.PAGESIZE)
        self._slabs: dict[int, Slab] = {}
        self._next_number = 0
        self._free: list[Slab] = []  # the last slab in the list was used last and is warmest in the caches
        self._loans: Loans[Slab] = Loans()
        self.retired: list[int] = []
        _pools.add(self)
        _give_back_outliving()

    def take(self, nbytes: int, writer: int, needed: int = 0, last_room: bool = False) -> Slab | None:
        """Returns a slab for worker `writer`, with room for a task of `nbytes`; None while the limit leaves no room.

        The slab may grow to its `allowance` until `lend`, `copy_out` or `give_back` is called for it.

        Args:
            needed: bytes that the task and its batch need, if that is known.
            last_room: no batch is in flight, so the slab gets all that loans leave; see NOTE [memory limit].

        Raises:
            SharedMemoryError: the system has no memory left, or the task alone is larger than the limit.
        """
        self._collect()
        budget, least = self._budget, max(HEADER + nbytes + _FIRST_SIZE, needed)
        if budget is not None and least > budget.share and not budget.demand(least):
            what = f"memory_limit={budget.limit:,} bytes: one batch needs at least {least:,} bytes"
            raise SharedMemoryError(errno.ENOMEM, f"{what}; raise memory_limit, or make the batches smaller")
        slab = self._pop_free(writer)
        had = 0 if slab is None else slab.size
        size, allowance = had or align(max(self.largest, least), mmap.PAGESIZE), UNLIMITED
        if budget is not None:
            size = min(size, budget.most)
            allowance = max(size, budget.share)
            if not self._reserve(budget, allowance - had):
                allowance = self._reserve_the_rest(budget, had, least) if last_room else 0
                size = min(size, allowance)
            if not allowance:
                self._refusals += 1
                if slab is not None:
                    self._free.append(slab)
                return None
        try:
            if slab is None:
                slab = self._make(size)
            elif had < least:
                slab.grow(least, allowance)
            elif slab.mapped < least:
                slab.map(had)
        except OSError:
            if budget is not None:
                budget.reserved -= allowance - had
            if slab is not None:
                self._free.append(slab)
            raise
        slab.allowance, slab.writer = allowance, writer
        return slab

    def lend(self, slab: Slab, used: int) -> BatchBytes:
        """Ends the flight of a slab and returns the memory of its batch of `used` bytes; see NOTE [loans].

        Raises:
            OSError: there is no free descriptor to map the slab again.
        """
        if slab.mapped < slab.size:
            slab.map(slab.size)
        self.largest = max(self.largest, used)
        if used <= LARGE and not self.whole:  # all its arrays are small
            return self.copy_out(slab, used)
        least = 0 if self.whole else LARGE
        if not self._may_lend(slab, used):
            self._copies += 1
            least = UNLIMITED  # the loan ends when the batch has been rebuilt
        loan = self._loans.start(slab.number, slab, slab.memory, used, least)
        if self._budget is not None:
            self._budget.lent += slab.size
        self._end_flight(slab)
        return loan

    def copy_out(self, slab: Slab, used: int) -> BatchBytes:
        """Ends the flight of a slab and returns a private copy of its first `used` bytes; raises OSError as `lend`."""
        if slab.mapped < slab.size:
            slab.map(slab.size)
        self._copies += used > LARGE
        copy = BatchBytes(bytearray(memoryview(slab.memory)[:used]), used)
        self._end_flight(slab)
        # It is not closed here, even if there are enough free slabs: if a signal handler interrupts the delivery now,
        # the batch is read from the slab again.
        self._free.append(slab)
        return copy

    def give_back(self, slab: Slab) -> None:
        """Ends the flight of a slab that nothing refers to."""
        self._end_flight(slab)
        self._put(slab)

    def reclaim(self, slab: Slab) -> None:
        """Ends the flight of a slab whose worker has died, and may have grown it."""
        self.has_grown(slab, slab.measure())
        self.give_back(slab)

    def recount(self, in_flight: Collection[int]) -> None:
        """Computes again which slabs are free and how much memory is in use, after a method was interrupted.

        Args:
            in_flight: the numbers of the slabs that a worker may write or that contain a batch that is not delivered.
        """
        self._loans.recount(in_flight)
        lent = {loan.number for loan in self._loans}
        self._free = []
        for number, slab in list(self._slabs.items()):
            if number not in in_flight and number not in lent:
                slab.size = max(slab.size, slab.measure())  # a worker may have grown it
                slab.allowance = slab.size
                self._put(slab)
        if self._budget is not None:
            flying = {number for number in in_flight if number in self._slabs}
            self._budget.lent = sum(loan.slab.nbytes for loan in self._loans)
            self._budget.reserved = sum(
                slab.allowance if number in flying else slab.nbytes for number, slab in self._slabs.items()
            )

    def demand(self, nbytes: int) -> bool:
        """Lets later slabs grow to `nbytes`, which a batch needs; returns False if that exceeds the memory limit."""
        return self._budget is None or self._budget.demand(nbytes)

    def has_grown(self, slab: Slab, size: int) -> None:
        """Notes that a worker has grown a slab to `size` bytes; it is mapped again when its batch is delivered."""
        slab.size = max(slab.size, size)
        self.largest = max(self.largest, size)

    @property
    def has_room(self) -> bool:
        """Whether the limit leaves room for one more batch, if free slabs are closed."""
        if self._budget is None:
            return True
        in_use = self._budget.reserved - sum(slab.nbytes for slab in self._free)
        return in_use + self._budget.share <= self._budget.most

    @property
    def lent(self) -> int:
        """Bytes on loan; 0 if there is no limit."""
        return 0 if self._budget is None else self._budget.lent

    def stats(self) -> MemoryStats:
        nbytes = sum(slab.nbytes for slab in list(self._slabs.values()))
        lent = sum(loan() is not None for loan in self._loans)
        return MemoryStats(len(self._slabs), lent, nbytes, self.limit, self._copies, self._refusals)

    def close(self) -> None:
        """Closes all slabs; delivered batches stay valid as long as anything refers to them."""
        for slab in self._slabs.values():
            slab.close()
        self._slabs, self._free = {}, []
        _outliving.extend(self._loans)
        self._loans.clear()
        _give_back_outliving()

    def _make(self, size: int) -> Slab:
        """Makes a slab; raises OSError if the system has no memory or no descriptor left."""
        with Uninterrupted(), no_fork:
            fd = anonymous_file()
            try:
                reserve(fd, size)
                seal(fd)
                slab = Slab(self._next_number, fd, size)
            except OSError:
                os.close(fd)
                raise
            self._next_number += 1
            self._slabs[slab.number] = slab
        slab.leaves_room = leaves_room(fd)  # called once per slab, because it takes a third of the time of a loan
        return slab

    def _pop_free(self, writer: int) -> Slab | None:
        """Returns a free slab: if possible a large enough slab, else a slab that `writer` wrote, else the last used.

        A slab of at least half the largest batch's size counts as large enough, because most batches are smaller.
        """
        free = self._free
        if len(free) < 2:  # nearly always
            return free.pop() if free else None
        best = max(reversed(free), key=lambda slab: (2 * slab.size >= self.largest, slab.writer == writer))
        free.remove(best)
        return best

    def _reserve(self, budget: Budget, nbytes: int) -> bool:
        """Reserves `nbytes` in the budget; while the limit leaves no room, closes free slabs, longest unused first."""
        while not budget.reserve(nbytes):
            if not self._free:
                return False
            self._retire(self._free.pop(0))
        return True

    def _reserve_the_rest(self, budget: Budget, had: int, least: int) -> int:
        """Reserves all that loans leave for a slab that has `had` bytes already, after all free slabs were closed.

        Returns:
            The bytes that the slab may grow to; 0 if these are less than `least`, and then nothing is reserved.
        """
        self._trim_loans(budget)
        more = budget.reserve_at_most(budget.share - had)
        if had + more >= least:
            return had + more
        budget.reserved -= more
        return 0

    def _trim_loans(self, budget: Budget) -> None:
        """Frees the memory of slabs on loan that their batches do not use."""
        for loan in self._loans:
            size = align(loan.used, mmap.PAGESIZE)
            with Uninterrupted():
                excess = loan.slab.size - size
                if excess > 0:
                    loan.slab.shrink(size)
                    budget.reserved -= excess
                    budget.lent -= excess

    def _give_back_dead(self) -> None:
        """Gives the memory of dead arrays back to the system, if other arrays of their batches live."""
        for reference in self._loans:
            if (loan := reference()) is None:
                continue
            with Uninterrupted():
                given = loan.give_back()
                if self._budget is not None:
                    self._budget.reserved -= given
                    self._budget.lent -= given

    def _may_lend(self, slab: Slab, used: int) -> bool:
        """Whether a batch may stay in its slab when it is delivered."""
        if not slab.leaves_room and not leaves_room(slab.fd):
            return False
        if len(self._loans.by_number) > _USUAL_LOANS:
            self._collect()
            self._give_back_dead()
            if sum(loan.slab.given > 0 for loan in self._loans) >= SPARE_LOANS:
                return False  # each of them takes a descriptor, and a new slab, which is slower than a copy
        if self._budget is None:
            return len(self._loans.by_number) < self.window + SPARE_LOANS
        self._collect()
        if self._budget.may_lend(slab.size, self.window):
            return True
        self._give_back_dead()
        if self._budget.may_lend(slab.size, self.window):
            return True
        if len(self._loans.by_number) > 1:  # a usual loop keeps only the previous batch
            kept = sum(loan.used - loan.slab.given for loan in self._loans)
            if kept + used > self._budget.lendable(self.window) // 2:  # otherwise larger batches have grown their slabs
                self._budget.warn_of_copies(kept)
        return False

    def _end_flight(self, slab: Slab) -> None:
        """Counts a slab with its size, no longer with its allowance."""
        if self._budget is not None:
            self._budget.reserved -= slab.allowance - slab.size

    def _collect(self) -> None:
        for loan in self._loans.ended():
            if self._budget is not None:
                self._budget.lent -= loan.slab.nbytes
            self._put(loan.slab)
        while len(self._free) > self.window + 2:
            self._retire(self._free.pop(0))  # the coldest

    def _put(self, slab: Slab) -> None:
        if slab.inherited or slab.given:
            self._retire(slab)
        else:
            self._free.append(slab)

    def _retire(self, slab: Slab) -> None:
        with Uninterrupted(), no_fork:
            if self._budget is not None:
                self._budget.reserved -= slab.nbytes
            if not slab.inherited:
                slab.shrink(0)  # frees the memory now, because a busy worker closes its descriptor only later
            del self._slabs[slab.number]
            self.retired.append(slab.number)
            slab.close()


def _give_back_outliving() -> None:
    """`_give_back_dead` for the loans of closed pools; they end without a pool."""
    _outliving[:] = [reference for reference in list(_outliving) if reference() is not None]
    for reference in _outliving:
        if (loan := reference()) is not None:
            loan.give_back()


def _before_fork() -> None:
    for reference in (*chain.from_iterable(pool._loans for pool in list(_pools)), *_outliving):
        reference.slab.inherited = True  # NOTE [loans and fork]


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool.close()  # the child keeps no slab alive, except through the batches that it inherited
    _pools.clear()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
