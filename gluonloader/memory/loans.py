"""Loans: the memory that delivered batches still use, until their last array dies.

    Loan      the memory of one delivered batch
     ^
    Lent      a large array of it: the base of all NumPy arrays over this part of the memory
     ^
    arrays    that the program uses: views, slices, tensors of frameworks

NOTE [loans]: each large array of a delivered batch has a `Lent` as its base, and each `Lent` refers to the `Loan`. When
the last of them dies, the loan dies, and its weak reference appends itself to a deque. The weak reference does nothing
else, because this can happen in any thread, at any point of any function, and it calls no function of Python, which a
signal handler could interrupt. The memory is free when its owner calls `ended`, which reads the deque. So no batch is
overwritten while anything refers to it, and users need not release batches.

NOTE [kept arrays]: a program may keep one array of each batch, such as the labels. So small arrays are copied when the
batch is delivered, and do not keep the loan alive. If a large array has died while others live, its pages are given
back to the system, see `Loan.give_back`. Memory that is not a slab cannot be given back in parts, so it is lent only to
arrays that take at least a quarter of the batch. Arrays that overlap are copied or lent together, so that they still
share memory.

NOTE [holders]: a framework can map a slab by itself and use it after the last NumPy view has died. MXNet does this,
because its engine runs operations later. When such a holder no longer uses the slab, it subtracts 1 from the word
HOLDERS, in any thread and without Python. `Slab.share` sets the word for the first holder of a loan; after that only
holders change it. The loan ends when its arrays are dead and every holder has subtracted 1. A forked child subtracts as
well, for the mappings that it inherited, but by NOTE [loans and fork] in slabs.py such a slab is not used again.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..frameworks import Lent
from .allocator import LARGE, Span
from .buffers import aligned_copy
from .slab import Slab, give_back_pages

_BYTE: Final = np.dtype(np.uint8)
_dtype_of = cache(np.dtype)
_LEAST_PART: Final = 4  # without pages to give back, an array is lent if it takes one part in so many of its batch

S = TypeVar("S", Slab, None)  # None: the memory is not a slab, so no framework can map it


@dataclass(slots=True)
class Piece:
    """The bytes from `start` to `stop` of a batch, for the arrays that lie there: lent, or a private copy."""

    start: int
    stop: int
    memory: NDArray[np.uint8]


class BatchBytes:
    """The bytes of a batch from which `rebuild` makes the batch; all its arrays are copies.

    Args:
        buffer: contains the batch; not a NumPy array, because NumPy would make it the base of all arrays.
        used: bytes that the batch uses.

    Attributes:
        view: the first `used` bytes.
    """

    __slots__ = ("view",)

    def __init__(self, buffer: Any, used: int) -> None:
        self.view = memoryview(buffer)[:used]  # not more, since the rest may be freed

    def pieces(self, spans: Sequence[Span]) -> list[Piece]:
        """The parts of the batch that a large array takes, or that several arrays share."""
        return [self._copy(start, stop) for start, stop in spans]

    def array(self, pieces: list[Piece], offset: int, strides: Any, shape: Any, dtype: Any) -> NDArray[Any]:
        """The array at `offset`: over one of the `pieces`, or a copy."""
        array: NDArray[Any]
        dtype = _dtype_of(dtype) if type(dtype) is str else dtype  # equal dtypes may differ in their metadata
        for piece in pieces:
            if piece.start <= offset < piece.stop:
                array = np.ndarray(shape, dtype, piece.memory, offset - piece.start, strides)
                return array
        array = np.ndarray(shape, dtype, self.view, offset, strides).copy()
        if self.view.readonly:
            array.flags.writeable = False  # as if it were not copied
        return array

    def _copy(self, start: int, stop: int) -> Piece:
        copy = aligned_copy(self.view[start:stop])
        copy.flags.writeable = not self.view.readonly
        return Piece(start, stop, copy)


class Loan(BatchBytes):
    """The memory of one delivered batch, until its last array dies; see NOTE [loans].

    Args:
        buffer, used: as for `BatchBytes`.
        slab: the slab whose memory it is, if it is one.
        least: bytes from which on an array is lent, not copied; 0 lends the batch as a whole.

    Attributes:
        mappings: a framework's own mappings of the slab; they live as long as the loan.
    """

    __slots__ = ("__weakref__", "_buffer", "_least", "_lent", "_slab", "mappings")

    def __init__(self, buffer: Any, used: int, slab: Slab | None, least: int) -> None:
        super().__init__(buffer, used)
        self._buffer, self._slab, self._least = buffer, slab, least
        self.mappings: dict[Any, Any] = {}
        self._lent: list[tuple[weakref.ref[Lent], Span]] = []  # the large arrays, if there are several

    @property
    def address(self) -> int:
        """The address of byte 0 in this process; only of a slab."""
        assert self._slab is not None
        return self._slab.address

    @property
    def nbytes(self) -> int:
        """Bytes that the batch uses."""
        return self.view.nbytes

    @property
    def whole_slab(self) -> Slab | None:
        """The slab, if the batch is lent as a whole; otherwise None."""
        return None if self._least else self._slab

    def share(self) -> int | None:
        """Returns a new descriptor of the slab, see `Slab.share`; None if the memory is not a slab."""
        return None if self._slab is None else self._slab.share()

    def pieces(self, spans: Sequence[Span]) -> list[Piece]:
        least, pieces = self._least, []
        for start, stop in spans if least else [(0, self.nbytes)]:
            if stop - start < least:
                pieces.append(self._copy(start, stop))
            else:
                lent = Lent(stop - start, _BYTE, self._buffer, start)
                lent.loan = self
                pieces.append(Piece(start, stop, lent))
        if len(pieces) > 1:
            self._lent = [
                (weakref.ref(piece.memory), (piece.start, piece.stop)) for piece in pieces if type(piece.memory) is Lent
            ]
        return pieces

    def give_back(self) -> int:
        """Gives the pages of large arrays that have died while others live back to the system; returns how many bytes.

        If all have died, the batch may be rebuilt again, after a signal handler has interrupted its delivery.
        """
        slab, dead = self._slab, [span for lent, span in self._lent if lent() is None]
        if not 0 < len(dead) < len(self._lent) or slab is None or slab.inherited or slab.holders:
            return 0
        self._lent = [(lent, span) for lent, span in self._lent if span not in dead]
        given = sum(give_back_pages(self._buffer, *span) for span in dead)
        slab.given += given
        return given


class LoanRef(weakref.ref[Loan], Generic[S]):
    """Refers to a loan without keeping it alive.

    Attributes:
        number: that of the memory; differs between all loans that have not ended.
        slab: the memory; None if it is not a slab.
        used: bytes that the batch uses.
    """

    __slots__ = ("number", "slab", "used")

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

    def start(self, number: int, slab: S, buffer: Any, used: int, least: int = LARGE) -> Loan:
        """Lends the first `used` bytes of a buffer; for the arguments see `Loan`."""
        if slab is None:
            least = max(least, used // _LEAST_PART)
        else:
            slab.holders = 0
        loan = Loan(buffer, used, slab, least)
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
