"""`TokenDataset`: documents of tokens, in memory or in files that are mapped into memory, and windows over them.

file, list, table --> parts: an array of tokens, and where its documents lie --> documents, or windows

A file and a list have one part; a table has one for each chunk of its column.
"""

from __future__ import annotations

import copy
import os
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..checks import as_dtype, check_int
from ..dataset.base import Dataset
from ..dataset.bulk import bulk_read
from ..describe import call, counted, short_repr
from ..errors import TokenError, bad_argument, import_extra
from ..indices import Indices, checked_index, checked_indices, known_indices
from ..lengths import checksum_of_lengths
from ..memory import empty
from ..replacing import replacing
from ..rows import Rows
from ..stores.bounds import DEFAULT, Bounds
from ..stores.cache import Needed, NodeCache, check_cache, slow_in_blocks
from ..stores.objects import full_path
from .token_files import (
    JUDGED,
    WRITABLE,
    Index,
    RemoteTokens,
    Spans,
    Tokens,
    check_dtype,
    check_is_no_dict,
    check_size,
    ends_of,
    hash_of,
    index_data,
    map_tokens,
    warn_of_dtype,
    without_ending,
    write_index,
    write_tokens,
)

_TOKENIZE: Final = "tokenize texts by `python -m gluonloader tokens make`, or in the workers, for a PackedStream"
_CHECKED: Final = 64  # documents whose end is compared with `end`


class _Documents(Protocol):
    """Where the documents of one array of tokens lie."""

    lengths: NDArray[Any]

    def spans(self, documents: Indices) -> Spans: ...


class _Offsets:
    """Documents that follow each other; document i is the tokens from `offsets[i]` to `offsets[i + 1] - 1`."""

    def __init__(self, offsets: NDArray[Any]) -> None:
        self._offsets, self.lengths = offsets, np.diff(offsets)

    def spans(self, documents: Indices) -> Spans:
        return Spans(self._offsets[documents], self.lengths[documents])


class _Part:
    """One array of tokens, and its documents."""

    def __init__(self, tokens: Tokens, documents: _Documents) -> None:
        self.tokens, self.documents = tokens, documents

    def read(self, starts: Indices, lengths: Indices) -> list[NDArray[Any]]:
        """The tokens from each start on; views, unless they are in a store."""
        if isinstance(self.tokens, RemoteTokens):
            return self.tokens.read(starts, starts + lengths)
        spans = zip(starts.tolist(), lengths.tolist(), strict=True)
        tokens = self.tokens
        return [tokens[start : start + length] for start, length in spans]

    def read_rows(self, starts: Indices, out: NDArray[Any]) -> None:
        """Fills each row of `out` with the tokens from a start on."""
        tokens, width = self.tokens, out.shape[1]
        if isinstance(tokens, RemoteTokens):
            tokens.read_rows(starts, out)
            return
        for row, start in zip(out, starts.tolist(), strict=True):
            row[:] = tokens[start : start + width]


class TokenDataset(Dataset):
    """A dataset of documents, each an array of tokens; files are mapped into memory, and shared by all workers.

    `data.lengths` are the numbers of tokens of all documents, for `PackingSampler` and other samplers by length.
    Documents of a file are read-only views of it, but batches are copies.

    Args:
        source: a list of arrays of ints, which are copied into one array; or one of these, which is not loaded:

            - the path of a `.bin` file with an `.idx` file beside it, as Megatron-LM and `TokenDataset.write` write
              them; with or without the ending;
            - the path of a `.npy` or `.bin` file that contains only tokens, see `end`;
            - the URL of such a `.bin` file in a store, with its `.idx` file or a `dtype`, see `cache`;
            - a dataset of Hugging Face, or a table of pyarrow, with a column of lists of ints.
        dtype: of the tokens in a `.bin` file without an `.idx` file, e.g. "uint16". A warning says if the tokens look
            as if they had another one.
        end: the token after which a document ends, in a file that contains only tokens; it belongs to the document. The
            first use writes an `.idx` file, so that the file is scanned only once. None: the file is one document.
        index: path of the `.idx` file, if it is not beside the file with the tokens.
        column: name of the column with the tokens.
        vocabulary: number of tokens in the vocabulary; reading a document or a window with a token outside of it raises
            a TokenError.
        cache: a `NodeCache`, if the source is a URL.

    Raises:
        StoreError: the store refuses a file, or the file was changed. Reading a document may raise it, too.
        TokenError: a file was cut or is damaged, or a token is not in the vocabulary; the text names the file and the
            document. Reading a document may raise it, too.
        ValueError: an argument is missing or does not fit the source.

    >>> data = TokenDataset([[5, 3, 8], [1], [2, 2]])
    >>> data[0], data.lengths
    (array([5, 3, 8]), array([3, 1, 2]))
    """

    _parts = ()  # it runs no code of the user's

    def __init__(
        self,
        source: Any,
        *,
        dtype: Any = None,
        end: int | None = None,
        index: Any = None,
        column: str = "input_ids",
        vocabulary: int | None = None,
        cache: NodeCache | None = None,
    ) -> None:
        if isinstance(source, (str, os.PathLike)):
            source = full_path(source)
            index = None if index is None else full_path(index)
            check_cache("source", source, cache)
        elif cache is not None:
            raise bad_argument("cache", cache, "only for a source that is a URL; remove it")
        elif end is not None or index is not None or dtype is not None:
            raise ValueError("dtype, end and index are only for a source that is the path of a file; remove them")
        elif not hasattr(source, "column_names"):
            source = _of_list(source)  # so that the list itself is not kept
        self._vocabulary = None if vocabulary is None else check_int("vocabulary", vocabulary, 1)
        self._opened_with = source, dtype, end, index, column, cache
        self._open()
        if dtype is not None and not source.endswith(".npy"):
            warn_of_dtype(source, self._stored[0].tokens[:JUDGED])

    @staticmethod
    def write(prefix: Any, documents: Iterable[Any], dtype: Any = "uint16") -> TokenDataset:
        """Writes documents to the files `prefix`.bin and `prefix`.idx, which Megatron-LM can read, too.

        Datasets that have opened old files of these names keep reading the old ones. If it raises an error or is
        interrupted, the old files stay as they were.

        Args:
            prefix: the path of the files, with or without an ending.
            documents: the tokens of each document, ints of shape (N,).
            dtype: of the tokens in the file: uint8, int8, int16, uint16, int32 or int64.

        Returns:
            The dataset of these documents.

        Raises:
            TokenError: a token does not fit in the dtype; the text names the document.
        """
        write_tokens(os.fspath(prefix), documents, dtype)
        return TokenDataset(prefix)

    def _open(self) -> None:
        source, dtype, end, index, column, cache = self._opened_with
        if cache is not None:
            self._name, parts = source, [_of_store(source, dtype, end, index, cache)]
        elif isinstance(source, str):
            self._name, parts = source, [_of_file(source, dtype, end, index)]
        elif hasattr(source, "column_names"):
            self._name, parts = type(source).__name__, _of_table(source, column)
        else:
            self._name, parts = "", [source]
            source.tokens.flags.writeable = False  # a document is a view, as that of a file; also in a copy
        self._stored = parts
        counts = [len(part.documents.lengths) for part in parts]
        self._starts = [0, *accumulate(counts)]  # the number of documents before each part
        lengths = [part.documents.lengths for part in parts]
        joined = [np.empty(0, np.int64), *lengths]
        self.lengths: NDArray[Any] = lengths[0] if len(parts) == 1 else np.concatenate(joined)

    @property
    def _identity(self) -> dict[str, Any]:
        known = {} if self._vocabulary is None else {"vocabulary": self._vocabulary}
        counts = {"documents": len(self), "tokens": self.num_tokens, "lengths": checksum_of_lengths(self.lengths)}
        return {**counts, **known, **self._content}

    @property
    def _content(self) -> dict[str, Any]:
        """What says which tokens these are, if they are not in a store."""
        parts = [part.tokens for part in self._stored if isinstance(part.tokens, np.ndarray)]
        return {} if self.is_remote else {"content": hash_of(*parts).hex()}

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the tokens."""
        return self._stored[0].tokens.dtype if self._stored else np.dtype(np.int64)

    @property
    def num_tokens(self) -> int:
        """The number of tokens of all documents."""
        return sum(len(part.tokens) for part in self._stored)

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: Any) -> Any:
        return self.__getitems__(np.array([checked_index(index, len(self))]))[0]

    @bulk_read(lambda self: True)
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        documents = checked_indices(indices, len(self))
        if len(self._stored) == 1:
            return self._read(self._stored[0], documents, 0)
        number = np.searchsorted(self._starts, documents, "right") - 1
        samples: list[Any] = [None] * len(documents)
        for which in np.unique(number).tolist():
            rows = np.flatnonzero(number == which)
            first = self._starts[which]
            for row, sample in zip(
                rows.tolist(), self._read(self._stored[which], documents[rows] - first, first), strict=True
            ):
                samples[row] = sample
        return samples

    def _read(self, part: _Part, documents: Indices, first: int) -> list[Any]:
        spans = part.documents.spans(documents)
        samples = part.read(spans.starts, spans.lengths)
        if self._vocabulary is not None:
            for document, sample in zip(documents.tolist(), samples, strict=True):
                self._check_vocabulary(f"document {first + document}", sample)
        return samples

    def _check_vocabulary(self, name: str, tokens: NDArray[Any]) -> None:
        size = self._vocabulary
        if size is not None and len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < size:
            place = int(((tokens < 0) | (tokens >= size)).argmax())
            where = f"{self._name}: " if self._name else ""
            what = f"token {place} of {name} is {tokens[place]}, but the vocabulary has {size} tokens"
            raise TokenError(f"{where}{what}; pass the right vocabulary and dtype, or make the file again")

    @property
    def blocks(self) -> list[int]:
        """The number of documents that start in each block of the file, as a cache reads it: for `BlockShuffleSampler`.

        A local file has blocks of the default size.

        Raises:
            ValueError: the tokens are not in one file.
        """
        self._check_file()
        spans = self._stored[0].documents.spans(np.arange(len(self)))
        return self.counts_of_blocks(spans.starts, spans.starts + spans.lengths)

    def counts_of_blocks(self, starts: Indices, stops: Indices) -> list[int]:
        """The number of samples in each block, if these are their first tokens and the ones after their last."""
        width, cache = self.dtype.itemsize, self._opened_with[-1]
        block = DEFAULT if cache is None else cache.options.block
        return Bounds.of(starts * width, stops * width, block).counts

    def _check_file(self) -> None:
        if not isinstance(self._opened_with[0], str):
            raise ValueError(f"{type(self).__name__} has blocks only if it is a file")

    def needed_blocks(self, indices: Any) -> list[Needed]:
        """The blocks in which documents lie; see `gluonloader.declared`."""
        if not self.is_remote:
            return []
        spans = self._stored[0].documents.spans(known_indices(indices, len(self)))
        return self.needed_spans(spans.starts, spans.starts + spans.lengths)

    @property
    def is_remote(self) -> bool:
        """Whether the tokens are in a store."""
        return self._opened_with[-1] is not None

    def cut(self, starts: Indices, stops: Indices) -> TokenDataset:
        """The same tokens in blocks of a cache that contain whole samples, if they are in a store."""
        if not self.is_remote:
            return self
        cut = copy.copy(self)
        tokens, documents = self._stored[0].tokens, self._stored[0].documents
        assert isinstance(tokens, RemoteTokens)
        cut._stored = [_Part(tokens.cut(starts, stops), documents)]
        return cut

    def needed_spans(self, starts: Indices, stops: Indices) -> list[Needed]:
        """The blocks in which the tokens between each start and stop lie, if they are in a store."""
        tokens = self._stored[0].tokens if self._stored else None
        return [tokens.needed(starts, stops)] if isinstance(tokens, RemoteTokens) else []

    def slow_in_random_order(self, indices: Any = None) -> str:
        """Says why a random order is slow, and what to do instead; see `gluonloader.declared`."""
        return slow_in_blocks(self, indices) if self.is_remote else ""

    def windows(self, size: int, extra: int = 1, stride: int | None = None) -> TokenWindows:
        """Returns a dataset of windows of `size + extra` tokens, of the tokens of all documents one after another.

        Args:
            size: number of tokens in a window, without the `extra` ones.
            extra: number of tokens that follow these in the same window; 1 adds the label of the last token.
            stride: number of tokens from the start of a window to the start of the next one; None for `size`.
        """
        return TokenWindows(self, size, extra, stride)

    def read_tokens(self, starts: Indices, width: int) -> NDArray[Any]:
        """Returns `width` tokens from each of these offsets, of the tokens of all documents, shape (N, width)."""
        out = empty((len(starts), width), self.dtype)
        if len(self._stored) == 1:
            self._stored[0].read_rows(starts, out)
        else:
            self._read_across(starts, out)
        if self._vocabulary is not None:
            for row, start in zip(out, starts.tolist(), strict=True):
                self._check_vocabulary(f"the window at token {start}", row)
        return out

    def _read_across(self, starts: Indices, out: NDArray[Any]) -> None:
        """Fills each row with the tokens from an offset on; they may lie in several arrays."""
        ends = list(accumulate(len(part.tokens) for part in self._stored))
        for row, start in zip(out, starts.tolist(), strict=True):
            number, filled, width = bisect_right(ends, start), 0, len(row)
            while filled < width:
                part = self._stored[number].tokens
                begin = start + filled - (ends[number] - len(part))
                piece = part[begin : begin + width - filled]
                row[filled : filled + len(piece)] = piece
                filled, number = filled + len(piece), number + 1

    def contiguous_rows(self, width: int) -> NDArray[Any] | None:
        """All tokens as rows of `width` tokens, without a copy; None if they are not in one array, or are checked."""
        if len(self._stored) != 1 or self._vocabulary is not None:
            return None
        tokens = self._stored[0].tokens
        if isinstance(tokens, RemoteTokens):
            return None
        return tokens[: len(tokens) // width * width].reshape(-1, width)

    def __getstate__(self) -> dict[str, Any]:
        # A file is opened again in another process, where another one may have replaced it by then.
        # An object in a store has a version, which is compared whenever something of it is fetched.
        content = self._hash() if isinstance(self._opened_with[0], str) else None
        return {"_opened_with": self._opened_with, "_vocabulary": self._vocabulary, "_content": content}

    def _hash(self) -> Any:
        """What says which version of the file the tokens are from."""
        tokens = self._stored[0].tokens
        return hash_of(tokens) if isinstance(tokens, np.ndarray) else tokens.file.remote

    def __setstate__(self, state: dict[str, Any]) -> None:
        content = state.pop("_content")
        self.__dict__.update(state)
        self._open()
        if content is not None and content != self._hash():
            what = "it has other tokens than when this dataset was opened"
            raise ValueError(f"{self._name}: {what}; do not change a file while a loader uses it, or open it again")

    @short_repr
    def __repr__(self) -> str:
        counts = f"{counted(len(self), 'document', 'documents')}, {self.num_tokens:,} tokens of {self.dtype}"
        return call(self, *[self._name] * bool(self._name), counts)


class TokenWindows(Dataset):
    """Windows of the tokens of a `TokenDataset`, see its method `windows`; sample i is an array of shape (width,)."""

    _parts = ()

    def __init__(self, tokens: TokenDataset, size: int, extra: int = 1, stride: int | None = None) -> None:
        self._size, self._extra = check_int("size", size, 1), check_int("extra", extra, 0)
        self._stride = self._size if stride is None else check_int("stride", stride, 1)
        self._width = self._size + self._extra
        self._length = max(0, (tokens.num_tokens - self._width) // self._stride + 1)
        self._tokens = self._cut(tokens)

    def _cut(self, tokens: TokenDataset) -> TokenDataset:
        """The same tokens; if they are in a store, in blocks of a cache that contain whole windows."""
        starts = np.arange(self._length) * self._stride if tokens.is_remote else np.empty(0, np.int64)
        return tokens.cut(starts, starts + self._width)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._tokens = self._cut(self._tokens)  # which were opened again, in blocks that contain whole documents

    def __len__(self) -> int:
        return self._length

    @property
    def _identity(self) -> dict[str, Any]:
        about = {"size": self._size, "extra": self._extra, "stride": self._stride}
        return {**about, "tokens": self._tokens.num_tokens, **self._tokens._content}

    def __getitem__(self, index: Any) -> Any:
        return self._tokens.read_tokens(np.array([checked_index(index, self._length) * self._stride]), self._width)[0]

    @property
    def blocks(self) -> list[int]:
        """The number of windows that start in each block of the file: for `BlockShuffleSampler`."""
        self._tokens._check_file()
        starts = np.arange(len(self)) * self._stride
        return self._tokens.counts_of_blocks(starts, starts + self._width)

    def needed_blocks(self, indices: Any) -> list[Needed]:
        """The blocks in which windows lie; see `gluonloader.declared`."""
        starts = known_indices(indices, len(self)) * self._stride
        return self._tokens.needed_spans(starts, starts + self._width)

    def slow_in_random_order(self, indices: Any = None) -> str:
        """Says why a random order is slow, and what to do instead; see `gluonloader.declared`."""
        return slow_in_blocks(self, indices) if self._tokens.is_remote else ""

    @bulk_read(lambda self: True)
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        windows = checked_indices(indices, self._length)
        if self._width == self._stride and (rows := self._tokens.contiguous_rows(self._width)) is not None:
            return Rows(rows, windows)
        return Rows(self._tokens.read_tokens(windows * self._stride, self._width))

    @short_repr
    def __repr__(self) -> str:
        return call(self, f"{self._length:,} windows of {self._size} + {self._extra} tokens")


def _of_file(source: str, dtype: Any, end: int | None, index: str | None) -> _Part:
    """The tokens and documents of a file, whose path may lack the ending or be that of the index."""
    stem = without_ending(source)
    path = source if source.endswith((".bin", ".npy")) else f"{stem}.bin"
    index_path = index or f"{stem}.idx"
    if not os.path.exists(path):
        right = f"there is no file {path}"
        if os.path.isfile(source) and not source.endswith(".idx"):
            what = "it is no .bin or .npy file; make one by `python -m gluonloader tokens make`, or pass a table with a"
            right = f"{what} column of tokens, e.g. pyarrow.parquet.read_table(path)"
        raise bad_argument("source", source, right)
    if os.path.exists(index_path):
        return _indexed(path, index_path, dtype, end)
    if index is not None and end is None:
        right = "there is no such file; pass end=..., the token that ends a document, to make it"
        raise bad_argument("index", index, right)
    tokens = map_tokens(path, _checked_dtype(dtype, index_path) if path.endswith(".bin") else dtype)
    if end is None:
        return _Part(tokens, _Offsets(np.array([0, len(tokens)][: 1 + bool(len(tokens))])))
    check_dtype(path, tokens.dtype)
    lengths = np.diff(ends_of(tokens, end), prepend=0)
    if len(lengths) == 1 and tokens[-1] != end:
        raise TokenError(f"{path} does not contain the token end={end}; pass the right end and dtype")
    try:
        with replacing(index_path) as (new,):
            write_index(new, tokens, lengths)
    except OSError as error:
        right = f"{index_path} cannot be written ({error}); pass index=... with a path that can be written"
        raise bad_argument("index", index, right) from error
    return _indexed(path, index_path, dtype, end)


def _of_store(source: str, dtype: Any, end: int | None, index: str | None, cache: NodeCache) -> _Part:
    """The tokens and documents of a `.bin` file in a store."""
    path = f"{without_ending(source)}.bin"
    if source.endswith(".npy") or end is not None:
        what = "a file in a store must be a .bin file; make one with its .idx file by `gluonloader tokens make`"
        raise bad_argument("source", source, f"{what}, and pass no end")
    tokens, index_path = RemoteTokens(cache.open(path)), index or f"{path[:-4]}.idx"
    try:
        file = cache.open(index_path)
    except FileNotFoundError:
        if index is not None:
            raise
        return _whole(tokens, path, _checked_dtype(dtype, index_path))
    found = Index(index_path, np.frombuffer(file.read(0, len(file)), np.uint8), tokens, path)
    if dtype is not None and np.dtype(dtype) != found.dtype:
        what = f"{index_path} is for tokens of {found.dtype}, not of {np.dtype(dtype)}"
        raise TokenError(f"{what}; pass no dtype")
    tokens, spans = tokens.view(found.dtype), found.spans(np.arange(len(found.lengths)))
    with suppress(ValueError):  # if the cache has no room for a document, it is read in pieces
        tokens = tokens.cut(spans.starts, spans.starts + spans.lengths)
    return _Part(tokens, found)


def _whole(tokens: RemoteTokens, path: str, dtype: Any) -> _Part:
    """All tokens of a file without an index, as one document."""
    check_size(path, tokens.nbytes, np.dtype(dtype))
    tokens = tokens.view(dtype)
    return _Part(tokens, _Offsets(np.array([0, len(tokens)][: 1 + bool(len(tokens))])))


def _checked_dtype(dtype: Any, index_path: str) -> Any:
    """The dtype of a `.bin` file without an index; raises a ValueError if it was not passed."""
    if dtype is None:
        right = f"there is no {index_path}, so pass the dtype of the tokens, e.g. dtype='uint16'"
        raise bad_argument("dtype", dtype, right)
    right = f"tokens are ints; pass one of {', '.join(WRITABLE)}"
    if as_dtype(dtype, right).kind not in "iu":
        raise bad_argument("dtype", dtype, right)
    return dtype


def _indexed(path: str, index_path: str, dtype: Any, end: int | None) -> _Part:
    """The tokens of a file that has an index."""
    bare = map_tokens(path, np.uint8) if path.endswith(".bin") else map_tokens(path, None)
    index = Index(index_path, index_data(index_path), bare, path)
    tokens = bare.view(index.dtype) if path.endswith(".bin") else bare
    if tokens.dtype != index.dtype or (dtype is not None and np.dtype(dtype) != index.dtype):
        found = tokens.dtype if dtype is None else np.dtype(dtype)
        what = f"{index_path} is for tokens of {index.dtype}, not of {found}"
        raise TokenError(f"{what}; pass no dtype or, if it was made with end=..., delete it and pass end=... again")
    if end is not None:
        _check_ends(index, tokens, end, index_path)
    return _Part(tokens, index)


def _check_ends(index: Index, tokens: NDArray[Any], end: int, path: str) -> None:
    """Raises a TokenError if one of some documents does not end with this token; the last document need not."""
    others = max(1, len(index.lengths) - 1)
    documents = np.unique(np.linspace(0, others - 1, _CHECKED).astype(np.int64))[: len(index.lengths)]
    spans = index.spans(documents)
    full = spans.lengths > 0
    wrong = tokens[(spans.starts + spans.lengths - 1)[full]] != end
    if wrong.any():
        what = f"document {documents[full][wrong][0]} in {path} does not end with the token end={end}"
        raise TokenError(f"{what}; delete that file, so that it is made again, or pass no end")


def _of_list(source: Any) -> _Part:
    right = "pass a list of arrays of ints, a path, a dataset of Hugging Face, or a table of pyarrow"
    try:
        arrays = [np.asarray(document) for document in source]
    except (TypeError, ValueError) as error:
        raise bad_argument("source", source, right) from error
    for number, array in enumerate(arrays):
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            what = f"has shape {array.shape} and dtype {array.dtype}; each document must be ints of shape (N,)"
            if not array.ndim:
                check_is_no_dict(array[()], number)
            if array.dtype.kind == "U":
                what = f"is text; {_TOKENIZE}"
            raise ValueError(f"source[{number}] {what}")
    dtype = np.result_type(*{array.dtype for array in arrays if array.size} or {np.dtype(np.int64)})
    if dtype.kind not in "iu":
        names = sorted({array.dtype.name for array in arrays if array.size})
        right = f"its documents have {' and '.join(names)}, and no dtype of ints has room for all of them; convert them"
        raise ValueError(f"source: {right}")
    tokens = np.concatenate([np.empty(0, dtype), *arrays]).astype(dtype, copy=False)
    return _Part(tokens, _Offsets(np.cumsum([0, *map(len, arrays)])))


def _of_table(source: Any, column: str) -> list[_Part]:
    """The chunks of a column of lists, without a copy."""
    pa = import_extra("pyarrow", "arrow")
    table = getattr(source, "data", source)  # of a dataset of Hugging Face
    if not hasattr(table, "to_batches"):
        right = "it is no table; pass a single dataset or table, or use a PackedStream for a stream"
        raise bad_argument("source", type(source).__name__, right)
    if column not in source.column_names:
        raise bad_argument("column", column, f"the columns are {', '.join(map(repr, source.column_names))}")
    if getattr(source, "_indices", None) is not None:
        right = "its rows were selected or shuffled; call source.flatten_indices() first"
        raise bad_argument("source", type(source).__name__, right)
    parts = []
    for chunk in table.column(column).chunks:
        kind = chunk.type
        right = _TOKENIZE if pa.types.is_string(kind) or pa.types.is_large_string(kind) else "cast the column"
        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_integer(kind.value_type):
            raise bad_argument("column", column, f"it contains {kind}, but tokens are lists of ints; {right}")
        tokens = chunk.flatten()  # without those of other rows, if the table is a slice
        if chunk.null_count or tokens.null_count:
            raise bad_argument("column", column, "it contains a null; fill it first")
        offsets = chunk.offsets.to_numpy(zero_copy_only=True).astype(np.int64)
        if len(offsets):
            parts.append(_Part(tokens.to_numpy(zero_copy_only=True), _Offsets(offsets - offsets[0])))
    return parts
