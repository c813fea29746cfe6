"""Loans: the memory that delivered batches still use, until their last array dies.

NOTE [loans]: all arrays of a delivered batch have the same `Loan` as their base. When the last array dies, the loan
dies, and its weak reference appends itself to a deque. The weak reference does nothing else, because this can happen in
any thread, at any point of any function, and it calls no function of Python, which a signal handler could interrupt.
The memory is free when its owner calls `ended`, which reads the deque. So no batch is overwritten while anything refers
to it, and users need not release batches.

NOTE [holders]: a framework can map a slab by itself and use it after the last NumPy view has died. MXNet does this,
because its engine runs operations later. When such a holder no longer uses the slab, it subtracts 1 from the word
HOLDERS, in any thread and without Python. `Slab.share` sets the word for the first holder of a loan; after that only
holders change it. The loan ends when its arrays are dead and every holder has subtracted 1. A forked child subtracts as
well, for the mappings that it inherited, but by NOTE [loans and fork] in slabs.py such a slab is not used again.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Collection, Iterator
from typing import Any, Final, Generic, TypeVar

import numpy as np

from ..frameworks import Lent
from .slab import Slab

_BYTE: Final = np.dtype(np.uint8)

S = TypeVar("S", Slab, None)  # None: the memory is not a slab, so no framework can map it


class Loan(Lent):
    """The memory of one delivered batch; because it is a subclass, NumPy makes it the base of all views."""

    slab: Slab | None

    def share(self) -> int | None:
        return None if self.slab is None else self.slab.share()


class LoanRef(weakref.ref[Loan], Generic[S]):
    """Refers to a loan without keeping it alive.

    Attributes:
        number: that of the memory; differs between all loans that have not ended.
        slab: the memory; None if it is not a slab.
        used: bytes that the batch uses.
    """

    number: int
    slab: S
    used: int


class Loans(Generic[S]):
    """The loans of one executor's memory; not thread-safe, except that loans may die in any thread.

    Attributes:
        by_number: those that have not ended, as far as is known; only the methods change it.
    """

    def __init__(self) -> None:
        self.by_number: dict[int, LoanRef[S]] = {}
        self._dead: deque[LoanRef[S]] = deque()

    def __iter__(self) -> Iterator[LoanRef[S]]:
        return iter(list(self.by_number.values()))

    def start(self, number: int, slab: S, buffer: Any, used: int) -> Loan:
        """Lends the first `used` bytes of a buffer.

        The buffer must not be a NumPy array, because NumPy would make it, and not the loan, the base of all arrays.
        """
        loan: Loan = Loan(used, _BYTE, buffer)  # not more, since the rest may be freed
        loan.slab, loan.mappings = slab, {}
        if slab is not None:
            slab.holders = 0
        reference: LoanRef[S] = LoanRef(loan, self._dead.append)  # type: ignore[arg-type]  # it is called with itself
        reference.number, reference.slab, reference.used = number, slab, used
        self.by_number[number] = reference
        return loan

    def ended(self) -> list[LoanRef[S]]:
        """The loans that have ended since the last call; they are no longer counted as loans."""
        ended: list[LoanRef[S]] = []
        for _ in range(len(self._dead)):
            loan = self._dead.popleft()
            if self.by_number.get(loan.number) is not loan:  # `recount` has removed it, or put it there as well
                continue
            if loan.slab is not None and loan.slab.is_held:
                self._dead.append(loan)  # checked again the next time
                continue
            del self.by_number[loan.number]
            ended.append(loan)
        return ended

    def recount(self, in_flight: Collection[int]) -> None:
        """Keeps only the loans that have not ended, after a method was interrupted.

        Args:
            in_flight: the numbers of memory that is not lent. A call that was to lend it may have been interrupted.
        """
        self.by_number = {
            number: loan
            for number, loan in self.by_number.items()
            if number not in in_flight and (loan() is not None or (loan.slab is not None and loan.slab.is_held))
        }
        self._dead.extend(loan for loan in self.by_number.values() if loan() is None)

    def clear(self) -> None:
        self.by_number = {}
