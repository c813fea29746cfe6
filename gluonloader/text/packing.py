"""`PackingSampler` puts several documents into each row of tokens, by their lengths alone.

    documents of a window, by their lengths --> pieces that fit in a row --> rows

best_fit    the longest piece first, each into the fullest row that has room; rows end with their window
in_order    each piece into the last row, or into a new row; rows end with their window
split       the tokens of all documents one after another, cut into rows; a row may continue in the next window
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import check_int
from ..dataset.base import ConcatDataset, Subset
from ..describe import arguments, call, describe, short_repr
from ..errors import a_class, bad_argument
from ..messages import message
from ..randomness import batch_seed
from ..sampler.passes import Integers, Order
from ..segments import PackedRow
from .tokens import TokenDataset
from .windowed import PlannedWindow, Sums, WindowedSampler, Windows

PackingMethod = Literal["best_fit", "in_order", "split"]
LongDocuments = Literal["split", "truncate", "drop", "error"]

_METHODS: Final = ("best_fit", "in_order", "split")
_OF_DOCUMENTS: Final = (list, tuple, np.ndarray, TokenDataset, ConcatDataset, Subset)  # they have no rows
_LONG: Final = ("split", "truncate", "drop", "error")


@dataclass(frozen=True, slots=True)
class PackingStats(Sums):
    """What a `PackingSampler` has planned in its newest epoch; more than was delivered, since it plans ahead.

    Attributes:
        documents: number of documents that it has read.
        rows: number of rows.
        tokens: number of tokens in the rows.
        capacity: number of tokens that would fit into the rows.
        cut: number of documents of more than `size` tokens that were split into several rows, or truncated.
        dropped: number of documents that are in no row, because they are empty or too long.
    """

    documents: int = 0
    rows: int = 0
    tokens: int = 0
    capacity: int = 0
    cut: int = 0
    dropped: int = 0

    @property
    def fill(self) -> float:
        """The share of the rows that tokens fill, from 0 to 1; the rest is padding."""
        return self.tokens / self.capacity if self.capacity else 0.0


@message(frozen=True, slots=True)
class _Pieces:
    """Pieces of documents: the tokens `starts[i]` to `stops[i] - 1` of document `documents[i]`, of `totals[i]`."""

    documents: Integers
    starts: Integers
    stops: Integers
    totals: Integers

    @property
    def lengths(self) -> Integers:
        return self.stops - self.starts

    @property
    def are_cut(self) -> NDArray[np.bool_]:
        """Whether the document of each piece has more tokens after it."""
        return self.stops < self.totals

    def listed(self) -> tuple[list[int], list[int], list[int]]:
        """The documents, starts and stops as lists."""
        return self.documents.tolist(), self.starts.tolist(), self.stops.tolist()


@message(frozen=True, slots=True)
class _Stream:
    """The tokens of a window, one piece after another: piece `i` ends before the token `ends[i]` of the window."""

    pieces: _Pieces
    ends: Integers

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def cut(self, start: int, stop: int) -> _Pieces:
        """What is in the tokens from `start` to `stop - 1` of the window; they may reach beyond its end."""
        first, last = np.searchsorted(self.ends, start, "right"), np.searchsorted(self.ends, stop, "left") + 1
        ends, lengths = self.ends[first:last], self.pieces.lengths[first:last]
        begins = ends - lengths
        return _Pieces(
            self.pieces.documents[first:last],
            np.maximum(start - begins, 0),
            np.minimum(stop - begins, lengths),
            lengths,
        )


class _Rows:
    """The rows of a window. They are made when they are read, since the first batch needs only some of them.

    Args:
        rows: the numbers of the pieces in each row.
    """

    def __init__(self, pieces: _Pieces, rows: Sequence[Sequence[int]], size: int, align: int) -> None:
        self._rows, self._size, self._align = rows, size, align
        self._documents, self._starts, self._stops = pieces.listed()
        self._cut = set(np.flatnonzero(pieces.are_cut).tolist())

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, part: slice) -> list[PackedRow]:
        return [self._row(pieces) for pieces in self._rows[part]]

    def _row(self, pieces: Sequence[int]) -> PackedRow:
        documents, starts, stops = self._documents, self._starts, self._stops
        return PackedRow(
            tuple([documents[piece] for piece in pieces]),
            tuple([starts[piece] for piece in pieces]),
            tuple([stops[piece] for piece in pieces]),
            self._size,
            self._align,
            () if self._cut.isdisjoint(pieces) else tuple([i for i, piece in enumerate(pieces) if piece in self._cut]),
        )


def document_too_long(document: Any, length: int, size: int) -> ValueError:
    """The error of a document that does not fit in a row, with long='error'."""
    what = f"document {document} has {length} tokens, but a row has only size={size}"
    return ValueError(f"{what}; pass long='split', 'truncate' or 'drop', or a larger size")


class PackingSampler(WindowedSampler):
    """Yields rows of at most `size` tokens, each with one or more documents or parts of documents.

    Each row is a `PackedRow`; `PackedDataset` reads it, and `PackRows` makes batches of rows. The rows are planned from
    (seed, epoch) and the lengths of the documents alone. So they are the same for any number of workers, and a position
    can be loaded with another number of ranks.

    Args:
        lengths: number of tokens of each document, ints of shape (N,), e.g. `TokenDataset.lengths`.
        size: number of tokens in a row.
        sampler: the order of the documents, such as a `MixtureSampler`: a sampler of gluonloader or a list of indices.
            None for a random order if `shuffle`, otherwise for the order of `lengths`.
        method: 'best_fit' looks for the fullest row that has room for a document, among the rows of a window of
            documents. 'in_order' fills one row after another. 'split' cuts documents at the end of each row, and has no
            padding but in the last row.
        window: number of documents that are planned at once. A larger one leaves less padding.
        long: what to do with documents of more than `size` tokens: 'split' cuts them into several pieces, 'truncate'
            drops their last tokens, 'drop' drops the documents, 'error' raises a ValueError. The method 'split' cuts
            all documents, and needs long='split'.
        align: each document starts at a multiple of this many tokens, as context parallelism needs; it divides `size`.
        shuffle: the order of the documents is random, unless `sampler` is passed, and so is the order of the rows of a
            window. Without it, rows come in the order of their first documents.
        seed: an int; None draws one from NumPy's global generator now.

    Empty documents are left out. The number of rows is known only when all of them are planned, so `len()` raises a
    TypeError, and so does `len()` of a loader: `count()` plans an epoch and returns the number.

    >>> for row in PackingSampler([5, 3, 2, 6, 1], size=8, shuffle=False):
    ...     print(row.documents, row.lengths)
    (0, 1) [5, 3]
    (2, 3) [2, 6]
    (4,) [1]
    """

    _units = "rows"
    _no_stats = PackingStats()

    def __init__(
        self,
        lengths: Any,
        size: int,
        sampler: Any = None,
        method: PackingMethod = "best_fit",
        window: int = 4096,
        long: LongDocuments = "split",
        align: int = 1,
        shuffle: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__(lengths, window, sampler, shuffle, seed)
        self._size, self._align = check_int("size", size, 1), check_int("align", align, 1)
        if method not in _METHODS:
            raise bad_argument("method", method, f"must be one of {', '.join(map(repr, _METHODS))}")
        if long not in _LONG:
            raise bad_argument("long", long, f"must be one of {', '.join(map(repr, _LONG))}")
        if method == "split" and long != "split":
            raise bad_argument("long", long, "method='split' cuts all documents where a row ends; pass long='split'")
        if self.size % self._align:
            raise bad_argument("align", align, f"it must divide size={size}")
        if method == "split" and self._align > 1:
            raise bad_argument("align", align, "method='split' leaves no gaps between documents; pass align=1")
        self._method, self._long = method, long
        self._identity = {
            **self._identity, "size": self.size, "method": method, "long": long, "align": self._align,
        }  # fmt: skip

    @short_repr
    def __repr__(self) -> str:
        about = f"{len(self.lengths):,} documents", describe(self.sampler)
        return call(self, *about, *arguments(size=self.size, method=self._method))

    def stats(self) -> PackingStats:
        """What was planned so far in the newest epoch, since it started or was resumed."""
        stats: PackingStats = self._stats
        if self._method == "split":
            rows = -(-stats.tokens // self.size)
            return replace(stats, rows=rows, capacity=rows * self.size)
        return stats

    @property
    def size(self) -> int:
        """The number of tokens in a row."""
        return self._size

    def check_fits(self, dataset: Any, ranks: int) -> None:
        """See `OrderedSampler`."""
        if isinstance(dataset, _OF_DOCUMENTS):
            right = "a PackingSampler yields rows of several documents; pass PackedDataset(dataset) to the loader"
            raise ValueError(f"dataset: it is {a_class(dataset)}, but {right}")
        super().check_fits(dataset, ranks)

    def _order_of(self, windows: Windows) -> Order:
        return _SplitOrder(windows, self.size) if self._method == "split" else super()._order_of(windows)

    def count(self) -> int:
        """Plans the whole next epoch and returns the number of its rows; the sampler does not change."""
        units = super().count()
        return -(-units // self.size) if self._method == "split" else units

    def _plan(self, seed: int, number: int, documents: Integers) -> PlannedWindow:
        pieces, stats = self._pieces(documents)
        if self._method == "split":
            return PlannedWindow(_Stream(pieces, np.cumsum(pieces.lengths)), stats)
        rows = self._best_fit(pieces) if self._method == "best_fit" else self._in_order(pieces)
        rows.sort()
        if self._shuffle:
            order = np.random.default_rng(batch_seed(seed, number)).permutation(len(rows))
            rows = [rows[row] for row in order.tolist()]
        stats = replace(stats, rows=len(rows), capacity=len(rows) * self.size)
        return PlannedWindow(_Rows(pieces, rows, self.size, self._align), stats)

    def _pieces(self, documents: Integers) -> tuple[_Pieces, PackingStats]:
        """The pieces of documents in their order, and what they are counted as."""
        lengths = self._lengths_of(documents)
        too_long = lengths > self.size
        keep = lengths > 0
        if self._long == "error" and too_long.any():
            index = int(too_long.argmax())
            raise document_too_long(documents[index], lengths[index], self.size)
        if self._long == "drop":
            keep &= ~too_long
        kept, documents = lengths[keep], documents[keep]
        starts, stops, totals = np.zeros_like(kept), kept, kept
        if self._long == "truncate":
            stops = np.minimum(kept, self.size)
        elif self._method != "split" and too_long.any():
            counts = -(-kept // self.size)
            number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)  # in its document
            documents, starts, totals = np.repeat(documents, counts), number * self.size, np.repeat(kept, counts)
            stops = np.minimum(starts + self.size, totals)
        cut = int((kept > self.size).sum())
        stats = PackingStats(len(lengths), 0, int((stops - starts).sum()), 0, cut, len(lengths) - len(kept))
        return _Pieces(documents, starts, stops, totals), stats

    def _rooms(self, pieces: _Pieces) -> Integers:
        """How many tokens of a row each piece takes."""
        return -(-pieces.lengths // self._align) * self._align

    def _best_fit(self, pieces: _Pieces) -> list[list[int]]:
        """The numbers of the pieces in each row."""
        taken = self._rooms(pieces)
        longest_first = np.argsort(-taken, kind="stable")
        rows: list[list[int]] = []
        rooms: list[int] = []  # how much room rows have; ascending, each number once
        with_room: dict[int, list[list[int]]] = {}
        row: list[int] = []
        room = last = 0
        for piece, length in zip(longest_first.tolist(), taken[longest_first].tolist(), strict=True):
            # A row stays the fullest one that has room until no other piece of the same length fits.
            if length != last or length > room:
                if room:
                    same = with_room.setdefault(room, [])
                    if not same:
                        insort(rooms, room)
                    same.append(row)
                place = bisect_left(rooms, length)
                if place < len(rooms):
                    room = rooms[place]
                    same = with_room[room]
                    row = same.pop()
                    if not same:
                        del rooms[place]
                else:
                    room, row = self.size, []
                    rows.append(row)
                last = length
            row.append(piece)
            room -= length
        for row in rows:
            row.sort()
        return rows

    def _in_order(self, pieces: _Pieces) -> list[list[int]]:
        """The numbers of the pieces in each row."""
        rows: list[list[int]] = []
        room = 0
        for piece, length in enumerate(self._rooms(pieces).tolist()):
            if length > room or not rows:
                rows.append([])
                room = self.size
            rows[-1].append(piece)
            room -= length
        return rows


class _SplitOrder:
    """Rows of `size` tokens, cut from the tokens of all windows one after another; the last row may be shorter."""

    def __init__(self, windows: Windows, size: int) -> None:
        self._windows, self._size = windows, size

    def __getitem__(self, part: slice) -> list[PackedRow]:
        if self._windows.number_of(part.start * self._size) < 0:
            return _SplitOrder(self._windows.from_start(), self._size)[part]
        rows = []
        for number in range(part.start, part.stop):
            row = self._row(number)
            if not row.documents:  # the order has ended
                break
            rows.append(row)
        return rows[:: part.step]

    def change_from(self, offset: int) -> bool:
        """See NOTE [changes] in passes.py."""
        return self._windows.change_from(offset * self._size)

    def saved(self, offset: int) -> dict[str, Any]:
        """See `Order` in passes.py."""
        return self._windows.saved(offset * self._size)

    def _row(self, number: int) -> PackedRow:
        """A row; it is empty if there are not so many."""
        windows, start, stop = self._windows, number * self._size, (number + 1) * self._size
        window = windows.number_of(start)
        documents: list[int] = []
        starts: list[int] = []
        stops: list[int] = []
        cut: list[int] = []
        while start < stop and (stream := windows.units(window)) is not None:
            before = windows.before(window)
            pieces = stream.cut(start - before, stop - before)
            cut += [len(documents) + place for place in np.flatnonzero(pieces.are_cut).tolist()]
            more = pieces.listed()
            documents, starts, stops = documents + more[0], starts + more[1], stops + more[2]
            window += 1
            start = max(start, windows.before(window))
        return PackedRow(tuple(documents), tuple(starts), tuple(stops), self._size, cut=tuple(cut))
