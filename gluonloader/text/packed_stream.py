"""`PackedStream` makes rows of documents whose lengths are known only when they are read.

    documents of a shard --> window of documents --> rows, planned as a PackingSampler plans them --> one row at a time

NOTE [packed streams]: the rows of a window depend only on the lengths of its documents, and on the tokens that were
carried into it. So a position consists of the state of the documents before the window, these tokens, and how many rows
of the window were read. After a resume, the window is read and planned again. A position contains a hash of the
lengths: if they differ then, that is an error, and no row is lost or doubled in silence.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import reduce
from typing import Any

import numpy as np

from ..checks import check_indexed, check_shard
from ..dataset.iterable import (
    IterableDataset,
    Step,
    is_iterable,
    own_shard,
    split_steps,
    takes,
    through,
    unwrap,
)
from ..dataset.opening import NewestIterators, Opened
from ..describe import arguments, call, describe, short_repr
from ..errors import bad_argument, bad_state
from ..messages import message
from ..sampler.base import check_orders_documents, unseeded
from ..segments import PackedRow, Segments
from ..state import check_same, field, int_field, list_field
from .documents import Document, document_of, segments_of
from .ordered_stream import Indexed, OrderedSamples, OrderedStream
from .packing import LongDocuments, PackingMethod, PackingSampler, document_too_long
from .windowed import WindowedSampler


@message(frozen=True, slots=True)
class _Document:
    """A document, or the rest of one that was cut: its first token is token `start` of the document."""

    number: int
    start: int
    content: Document

    def __len__(self) -> int:
        return len(self.content.tokens)


@message(frozen=True, slots=True)
class _Packing:
    """The arguments of a `PackedStream` that decide what becomes of documents."""

    size: int
    method: PackingMethod
    window: int
    long: LongDocuments
    align: int
    field: Any

    def plan(self, lengths: Any) -> list[PackedRow]:
        """The rows of a window of documents with these lengths."""
        lengths = np.array(lengths, np.int64)
        window = max(len(lengths), 1)
        return list(PackingSampler(lengths, self.size, None, self.method, window, self.long, self.align, shuffle=False))

    def document(self, number: int, sample: Any) -> _Document:
        """The document of a sample, which is checked."""
        document = document_of(sample, self.field, number)
        tokens = document.tokens
        if self.long == "error" and len(tokens) > self.size:
            raise document_too_long(number, len(tokens), self.size)
        return _Document(number, 0, document)

    def as_fields(self) -> dict[str, Any]:
        """The arguments that the rows depend on, for a state."""
        fields = {name: getattr(self, name) for name in ("size", "method", "window", "long", "align")}
        return {**fields, "field": None if self.field is None else str(self.field)}


class PackedStream(IterableDataset[Segments]):
    """An iterable dataset of rows of documents whose lengths are not known: streams, or texts that workers tokenize.

    Each shard packs its own documents, so the rows depend on the number of shards: pass `IterableDataset(stream,
    num_shards=...)` to the loader to get the same rows for any number of workers. An iterable dataset must make its
    shards itself; if it has no method `shard`, pass `num_shards=1`. `PackRows` makes batches of the rows.

    A document must have the same tokens each time it is read in an epoch: do not draw its length at random.

    Args:
        documents: the tokens of documents, ints of shape (N,): an iterable dataset, or a dataset with `__getitem__`.
        size: number of tokens in a row.
        sampler: the order of a dataset with `__getitem__`: a sampler of gluonloader, such as
            `RandomSampler(len(documents), seed=0)`, or a list of indices. None for the order of the dataset.
        method: 'best_fit', 'in_order' or 'split', see `PackingSampler`.
        window: number of documents that are read, and then planned at once.
        long: what to do with documents of more than `size` tokens: 'split', 'truncate', 'drop' or 'error', see
            `PackingSampler`.
        align: each document starts at a multiple of this many tokens; it divides `size`.
        field: the name or number of the field with the tokens, if a sample is a dict or a tuple. The other fields of a
            dict that are arrays or lists of numbers belong to its tokens, e.g. `labels`; `PackRows` packs them, too.

    If the lengths of the documents are known, use a `PackingSampler`: its rows do not depend on shards.

    >>> texts = ["ab", "c", "defg", "hi"]
    >>> rows = PackedStream(IterableDataset(texts).transform(lambda text: [ord(letter) - 96 for letter in text]), 5)
    >>> [[document.tolist() for document in row.tokens] for row in rows]
    [[[1, 2], [3], [8, 9]], [[4, 5, 6, 7]]]
    """

    def __init__(
        self,
        documents: Any,
        size: int,
        sampler: Any = None,
        method: PackingMethod = "best_fit",
        window: int = 1024,
        long: LongDocuments = "split",
        align: int = 1,
        field: Any = None,
    ) -> None:
        PackingSampler(range(0), size, None, method, window, long, align, shuffle=False)  # checks these arguments
        self._packing = _Packing(int(size), method, int(window), long, int(align), field)
        self._documents = _as_stream(documents, sampler)
        self._shard = (1, 0)  # number of shards, and which of them this is
        self._epoch: int | None = None
        self._newest = NewestIterators()  # of the documents, by shard

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration read the documents in the order of this epoch."""
        self._epoch = epoch  # see NOTE [epochs of shards]

    def shard(self, num_shards: int, index: int) -> PackedStream:
        """Returns the rows of shard `index` of the documents, which must have a method `shard` themselves.

        Raises:
            ValueError: unless `0 <= index < num_shards`.
        """
        num_shards, index = check_shard(num_shards, index)
        shard = copy.copy(self)
        shard._shard = self._shard[0] * num_shards, self._shard[1] + self._shard[0] * index
        return shard

    @property
    def _inside(self) -> Sequence[Any]:
        return (self._documents,)

    def __iter__(self) -> Iterator[Segments]:
        source, steps = own_shard(self._documents, *self._shard, self._epoch)
        opened = Opened(source, type(source).__name__, stateful=not takes(steps))
        self._newest.add(self._shard, opened.samples, f"{type(source).__name__}.__iter__")
        return (_ResumableRows if opened.stateful else _Rows)(self._packing, opened, steps)

    @short_repr
    def __repr__(self) -> str:
        about = self._packing
        shards, index = self._shard
        parts = [f"shard {index} of {shards}"] if shards > 1 else []
        return call(self, describe(self._documents), *arguments(size=about.size, method=about.method), *parts)


def _as_stream(documents: Any, sampler: Any) -> IterableDataset[Any]:
    """The documents as an iterable dataset."""
    if is_iterable(documents):
        if sampler is not None:
            right = "an iterable dataset has its own order; pass shuffle=True to the loader to shuffle the rows"
            raise bad_argument("sampler", sampler, right)
        if hasattr(unwrap(documents)[0], "__next__"):
            raise bad_argument("documents", documents, "it is a single iterator; pass IterableDataset(make) instead")
        return documents if isinstance(documents, IterableDataset) else IterableDataset(documents)
    if callable(documents) and not hasattr(documents, "__getitem__"):
        raise bad_argument("documents", documents, "it is a function; pass IterableDataset(function) instead")
    check_indexed("documents", documents)
    if sampler is None:
        sampler = range(len(documents))
    check_orders_documents("sampler", sampler)
    if isinstance(sampler, WindowedSampler):
        raise bad_argument("sampler", sampler, "it yields rows or batches, but the sampler must yield documents")
    if unseeded(sampler) is not None:
        right = "each worker reads a part of the order, and all need the same one; pass seed=... to the sampler"
        raise bad_argument("sampler", sampler, right)
    return IterableDataset(OrderedStream(documents, sampler))


@message(frozen=True, slots=True)
class _Position:
    """What a position says of the window in which it is.

    Attributes:
        rows: number of its rows that were read.
        errors: number of documents that raised an error.
        content: a hash of the lengths of its documents; None if it was not planned yet.
    """

    rows: int
    errors: int
    content: int | None


class _Rows(Iterator[Segments]):
    """The rows of one shard; see NOTE [packed streams]. If reading a document fails, `next` continues after it."""

    def __init__(self, packing: _Packing, opened: Opened, steps: tuple[Step, ...]) -> None:
        self._packing, self._opened = packing, opened
        self._steps, self._transforms = split_steps(steps)
        self._read = 0  # number of documents
        self._ended = False  # all documents were read
        self._window: list[_Document] | None = None  # the window that is being read
        self._lengths: list[int] = []  # of the documents of the last window; -1 for an error
        self._content: int | None = None  # a hash of these lengths; None while the window is being read
        self._carried: list[_Document] = []  # what the last window leaves to the next one
        self._rows: list[Segments] = []  # the rows of the last window
        self._used = 0  # how many of them were returned
        self._resumed: _Position | None = None  # a position that was loaded, until its window is planned
        self._start_reading()

    def _start_reading(self) -> None:
        self._documents = through(self._steps, self._opened.samples)

    def __next__(self) -> Segments:
        while self._used >= len(self._rows):
            self._plan(self._read_window())
        self._used += 1
        return self._rows[self._used - 1]

    def _begin_window(self) -> None:
        self._window, self._rows, self._used, self._lengths, self._content = [], [], 0, [], None

    def _read_window(self) -> list[_Document]:
        """Reads the rest of the window; StopIteration if nothing is left."""
        if self._window is None:
            self._begin_window()
        window = self._window
        assert window is not None
        while not self._ended and len(window) < self._packing.window:
            self._read_document(window)
        if not window and not self._carried:
            raise StopIteration
        return window

    def _read_document(self, window: list[_Document]) -> None:
        try:
            sample = next(self._documents, self)
            if sample is self:
                self._ended = True
                return
            number, self._read = self._read, self._read + 1
            if isinstance(sample, Indexed):
                number, sample = sample.index, sample.sample
            sample = reduce(lambda value, transform: transform(value), self._transforms, sample)
            document = self._packing.document(number, sample)
        except Exception:
            self._lengths.append(-1)
            if self._resumed is None or self._lengths.count(-1) > self._resumed.errors:
                raise
        else:
            window.append(document)
            self._lengths.append(len(document))

    def _plan(self, window: list[_Document]) -> None:
        resumed, self._resumed = self._resumed, None
        self._content = zlib.crc32(np.array(self._lengths, np.int64).tobytes())
        if resumed is not None and resumed.content not in (None, self._content):
            self._window, self._rows, self._used, self._carried, self._ended = None, [], 0, [], True
            raise RuntimeError(
                "the documents of a window have other lengths than when they were read first, so a PackedStream cannot "
                "continue in this window; documents must have the same tokens each time they are read"
            )
        documents = self._carried + window
        rows = self._packing.plan([len(document) for document in documents])
        self._carried = []
        if self._packing.method == "split" and not self._ended and rows and sum(rows[-1].lengths) < self._packing.size:
            last = rows.pop()
            places = zip(last.documents, last.starts, strict=True)
            self._carried = [_rest(documents[place], start) for place, start in places]
        self._rows = [_sample_of(row, documents) for row in rows]
        self._window, self._used = None, 0 if resumed is None else resumed.rows


def _rest(document: _Document, start: int) -> _Document:
    """The document from one of its tokens on."""
    return _Document(document.number, document.start + start, document.content.from_token(start))


def _sample_of(row: PackedRow, documents: list[_Document]) -> Segments:
    """The sample of a row of a window."""
    parts = [documents[place].content for place in row.documents]
    sample = segments_of(row, [part.tokens for part in parts], [part.fields for part in parts])
    return replace(sample, row=_named(row, documents))


def _named(row: PackedRow, documents: list[_Document]) -> PackedRow:
    """The row with the numbers of documents and places in them, instead of those in the window."""
    parts = [documents[place] for place in row.documents]
    starts = [part.start + start for part, start in zip(parts, row.starts, strict=True)]
    stops = [part.start + stop for part, stop in zip(parts, row.stops, strict=True)]
    return PackedRow(tuple(part.number for part in parts), tuple(starts), tuple(stops), row.size, row.align, row.cut)


class _ResumableRows(_Rows):
    """Rows of documents whose iterator, or dataset, has a state."""

    _start: Mapping[str, Any] | None = None  # the position before the last window; None if nothing was read

    def _begin_window(self) -> None:
        if self._resumed is None:
            # Before its first sample, a dataset of Hugging Face may have the state of an earlier iteration.
            has_state = self._read or isinstance(self._opened.samples, OrderedSamples)
            source = self._opened.state() if has_state else None
            carried = [[part.number, part.start, part.content.tokens, part.content.fields] for part in self._carried]
            self._start = {"documents": self._read, "source": source, "carried": carried}
        super()._begin_window()

    def state_dict(self) -> dict[str, Any]:
        if self._start is None:
            return {}
        position = self._resumed
        if position is None:
            position = _Position(self._used, self._lengths.count(-1), self._content)
        return {"packing": self._packing.as_fields(), **self._start, **asdict(position)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where a state was saved.

        Raises:
            ValueError: a field is missing, or has a wrong value.
        """
        if not state:
            return
        for name, ours in self._packing.as_fields().items():
            check_same(field(state, "packing"), name, ours, "this PackedStream")
        content = None if field(state, "content") is None else int_field(state, "content")
        position = _Position(int_field(state, "rows"), int_field(state, "errors"), content)
        read, source = int_field(state, "documents"), field(state, "source")
        carried = [_loaded_document(part) for part in list_field(state, "carried")]
        if source is not None:
            self._opened.load(source)
            self._start_reading()
        self._start = {name: state[name] for name in ("documents", "source", "carried")}
        self._read, self._carried, self._resumed = read, carried, position


def _loaded_document(saved: Any) -> _Document:
    right = "must be the number of a document, a place in it, its tokens, and its other fields"
    if not isinstance(saved, (list, tuple)) or len(saved) != 4:
        raise bad_state("carried", saved, right)
    number, start, tokens, fields = saved
    if not isinstance(tokens, np.ndarray) or tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise bad_state("carried", saved, right)
    values = fields.values() if isinstance(fields, dict) else [None]
    if not all(isinstance(array, np.ndarray) and array.shape[:1] == tokens.shape for array in values):
        raise bad_state("carried", saved, right)
    return _Document(number, int_field({"carried": start}, "carried"), Document(tokens, fields))
