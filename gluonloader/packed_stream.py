"""`PackedStream` makes rows of documents whose lengths are known only when they are read.

    documents of a shard --> window of documents --> rows, planned as a PackingSampler plans them --> one row at a time

NOTE [packed streams]: the rows of a window depend only on its documents, and on the tokens that were carried into it.
So a position consists of the state of the documents before the window, these tokens, and how many rows of the window
were read. After a resume, the window is read and planned again.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .checks import check_indexed
from .dataset import PackedDataset
from .dataset.iterable import IterableDataset, Step, Take, check_shard, in_epoch, is_iterable, shard_of, unwrap
from .dataset.opening import Opened
from .describe import arguments, call, describe, short_repr
from .errors import TokenError, add_note, bad_argument, bad_state
from .sampler import (
    PackingSampler,
    Pass,
    check_orders_documents,
    check_saved_pass,
    computed_copy,
    saved_pass,
    start_pass,
    unseeded,
)
from .sampler.packing import LongDocuments, PackingMethod
from .segments import PackedRow, Segments
from .state import field, int_field, list_field


@dataclass(frozen=True, slots=True)
class _Document:
    """A document, or the rest of one that was cut: `tokens[0]` is its token `start`."""

    number: int
    start: int
    tokens: NDArray[Any]


@dataclass(frozen=True, slots=True)
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
        tokens = np.asarray(sample if self.field is None else sample[self.field])
        if tokens.shape == (0,):
            tokens = tokens.astype(np.int64)  # an empty list becomes an array of floats
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            what = f"document {number} is an array of shape {tokens.shape} and dtype {tokens.dtype}"
            raise TokenError(f"{what}, but a PackedStream packs arrays of ints of shape (N,); check `field`")
        if self.long == "error" and len(tokens) > self.size:
            what = f"document {number} has {len(tokens)} tokens, but a row has only size={self.size}"
            raise ValueError(f"{what}; pass long='split', 'truncate' or 'drop', or a larger size")
        return _Document(number, 0, tokens)


class PackedStream(IterableDataset[Segments]):
    """An iterable dataset of rows of documents whose lengths are not known: streams, or texts that workers tokenize.

    Each shard packs its own documents, so the rows depend on the number of shards: pass `num_shards` to the loader to
    get the same rows for any number of workers. `PackRows` makes batches of the rows.

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
        field: the name or number of the field with the tokens, if a sample is a dict or a tuple.

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
        self._packing = _Packing(size, method, window, long, align, field)
        self._documents = _as_stream(documents, sampler)
        self._shards: tuple[tuple[int, int], ...] = ()  # the arguments of `shard`, one call after another

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration read the documents in the order of this epoch."""
        self._documents = in_epoch(self._documents, epoch)

    def shard(self, num_shards: int, index: int) -> PackedStream:
        """Returns the rows of shard `index` of the documents.

        Raises:
            ValueError: unless `0 <= index < num_shards`.
        """
        check_shard(num_shards, index)
        shard = copy.copy(self)
        shard._shards += ((num_shards, index),)
        return shard

    @property
    def _inside(self) -> tuple[Any, ...]:
        return (self._documents,)

    def __iter__(self) -> Iterator[Segments]:
        documents = self._documents
        for num_shards, index in self._shards:
            documents = shard_of(documents, num_shards, index)
        source, steps = unwrap(documents)
        # `take` counts the documents from the start.
        opened = Opened(source, type(source).__name__, not any(isinstance(step, Take) for step in steps))
        return (_ResumableRows if opened.stateful else _Rows)(self._packing, opened, steps)

    @short_repr
    def __repr__(self) -> str:
        about = self._packing
        shards = [f"shard {index} of {num_shards}" for num_shards, index in self._shards]
        return call(self, describe(self._documents), *arguments(size=about.size, method=about.method), *shards)


def _as_stream(documents: Any, sampler: Any) -> IterableDataset[Any]:
    """The documents as an iterable dataset."""
    if is_iterable(documents):
        if sampler is not None:
            right = "an iterable dataset has its own order; pass shuffle=True to the loader to shuffle the rows"
            raise bad_argument("sampler", sampler, right)
        return documents if isinstance(documents, IterableDataset) else IterableDataset(documents)
    check_indexed("documents", documents)
    if sampler is None:
        sampler = range(len(documents))
    check_orders_documents("sampler", sampler)
    if unseeded(sampler) is not None:
        right = "each worker reads a part of the order, and all need the same one; pass seed=... to the sampler"
        raise bad_argument("sampler", sampler, right)
    return IterableDataset(_Ordered(documents, sampler))


@dataclass(frozen=True, slots=True)
class _Indexed:
    """A sample and its index in the dataset."""

    index: Any
    sample: Any


class _Ordered:
    """A dataset with `__getitem__`, read in the order of a sampler; it yields `_Indexed` samples."""

    def __init__(self, dataset: Any, sampler: Any, start: int = 0, stride: int = 1) -> None:
        self._dataset, self._sampler, self._start, self._stride = dataset, sampler, start, stride

    def set_epoch(self, epoch: int) -> None:
        if hasattr(self._sampler, "set_epoch"):
            self._sampler = computed_copy(self._sampler)
            self._sampler.set_epoch(epoch)

    def shard(self, num_shards: int, index: int) -> _Ordered:
        return _Ordered(self._dataset, self._sampler, self._start + index * self._stride, self._stride * num_shards)

    def __iter__(self) -> _OrderedSamples:
        return _OrderedSamples(self._dataset, self._sampler, self._start, self._stride)

    @short_repr
    def __repr__(self) -> str:
        return f"{describe(self._dataset)} in the order of {describe(self._sampler)}"


class _OrderedSamples(Iterator[_Indexed]):
    """The samples of every `stride`-th key of a pass, from the key number `start` on."""

    def __init__(self, dataset: Any, sampler: Any, start: int, stride: int) -> None:
        self._dataset, self._sampler, self._start, self._stride = dataset, sampler, start, stride
        self._order = saved_pass(sampler)
        self._seek(0)

    def _seek(self, read: int) -> None:
        """Starts the pass of the sampler, and continues after so many samples."""
        keys = start_pass(computed_copy(self._sampler))
        assert isinstance(keys, Pass), "only samplers whose order is computed are accepted"
        keys.skip(self._start + read * self._stride)
        self._keys, self._read = keys, read

    def __next__(self) -> _Indexed:
        key = next(self._keys)
        self._keys.skip(self._stride - 1)
        self._read += 1
        try:
            return _Indexed(key, self._dataset[key])
        except Exception as error:
            add_note(error, f"document {key!r} of {describe(self._dataset)}")
            raise

    def state_dict(self) -> dict[str, Any]:
        return {"read": self._read, "sampler": self._order}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where a state was saved.

        Raises:
            ValueError: the state is that of another order; the text names the difference.
        """
        check_saved_pass(self._sampler, field(state, "sampler"))
        self._seek(int_field(state, "read"))


class _Rows(Iterator[Segments]):
    """The rows of one shard; see NOTE [packed streams]. If reading a document fails, `next` continues after it."""

    def __init__(self, packing: _Packing, opened: Opened, steps: tuple[Step, ...]) -> None:
        self._packing, self._opened, self._steps = packing, opened, steps
        self._read = 0  # documents
        self._ended = False  # all documents were read
        self._window: list[_Document] | None = None  # that is read now
        self._carried: list[_Document] = []  # into the next window
        self._rows: list[Segments] = []  # of the last window
        self._used = 0  # of these rows
        self._errors = 0  # of documents of the last window
        self._known_errors = 0  # of them, those that were raised before the position was saved
        self._skipped = 0  # rows of the next window that were used before the position was saved
        self._start_reading()

    def _start_reading(self) -> None:
        self._documents = self._opened.samples
        for step in self._steps:
            self._documents = step.over(self._documents)

    def __next__(self) -> Segments:
        while self._used >= len(self._rows):
            self._plan(self._read_window())
        self._used += 1
        return self._rows[self._used - 1]

    def _begin_window(self) -> None:
        self._window, self._rows, self._used, self._errors = [], [], 0, 0

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
            sample, number = next(self._documents), self._read
            self._read += 1
            if isinstance(sample, _Indexed):
                number, sample = sample.index, sample.sample
            window.append(self._packing.document(number, sample))
        except StopIteration:
            self._ended = True
        except Exception:
            self._errors += 1
            if self._errors > self._known_errors:
                raise

    def _plan(self, window: list[_Document]) -> None:
        documents = self._carried + window
        rows = self._packing.plan([len(document.tokens) for document in documents])
        self._carried = []
        if self._packing.method == "split" and not self._ended and rows and sum(rows[-1].lengths) < self._packing.size:
            last = rows.pop()
            places = zip(last.documents, last.starts, strict=True)
            self._carried = [_rest(documents[place], start) for place, start in places]
        samples = PackedDataset([document.tokens for document in documents]).__getitems__(rows)
        self._rows = [Segments(_named(sample.row, documents), sample.tokens) for sample in samples]
        self._used, self._skipped = self._skipped, 0
        self._window, self._known_errors = None, 0


def _rest(document: _Document, start: int) -> _Document:
    """The document from one of its tokens on."""
    return _Document(document.number, document.start + start, document.tokens[start:])


def _named(row: PackedRow, documents: list[_Document]) -> PackedRow:
    """The row with the numbers of documents and places in them, instead of those in the window."""
    parts = [documents[place] for place in row.documents]
    starts = [part.start + start for part, start in zip(parts, row.starts, strict=True)]
    stops = [part.start + stop for part, stop in zip(parts, row.stops, strict=True)]
    return PackedRow(tuple(part.number for part in parts), tuple(starts), tuple(stops), row.size, row.align)


class _ResumableRows(_Rows):
    """Rows of documents whose iterator, or dataset, has a state."""

    _start: Mapping[str, Any] | None = None  # the state before the last window, without rows; None: nothing was read
    _loaded = False  # it is a state that was loaded, and nothing was read since then

    def _begin_window(self) -> None:
        if not self._loaded:
            # Before its first sample, a dataset of Hugging Face may have the state of an earlier iteration.
            has_state = self._read or isinstance(self._opened.samples, _OrderedSamples)
            source = {"state": self._opened.state()} if has_state else None
            carried = [[part.number, part.start, part.tokens.dtype.str, part.tokens.tolist()] for part in self._carried]
            self._start = {"documents": self._read, "source": source, "carried": carried}
        self._loaded = False
        super()._begin_window()

    def state_dict(self) -> dict[str, Any]:
        if self._start is None:
            return {}
        return {**self._start, "rows": self._used or self._skipped, "errors": self._errors or self._known_errors}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where a state was saved.

        Raises:
            ValueError: a field is missing, or has a wrong value.
        """
        if not state:
            return
        self._read, self._skipped = int_field(state, "documents"), int_field(state, "rows")
        self._known_errors = int_field(state, "errors")
        self._carried = [_loaded_document(carried) for carried in list_field(state, "carried")]
        source = field(state, "source")
        self._start = {name: state[name] for name in ("documents", "source", "carried")}
        self._loaded = True
        if source is not None:
            self._opened.load(field(source, "state"))
            self._start_reading()


def _loaded_document(saved: Any) -> _Document:
    try:
        number, start, dtype, tokens = saved
        return _Document(number, int(start), np.array(tokens, np.dtype(dtype)))
    except (TypeError, ValueError):
        right = "must be the number of a document, a place in it, a dtype and tokens"
        raise bad_state("carried", saved, right) from None
