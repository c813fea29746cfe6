"""Files of tokens in the format of Megatron-LM: `.bin` with the tokens of all documents, `.idx` with their lengths.

    bytes 0 to 8    b"MMIDIDX" and two zeros
    9 to 16         version, uint64: 1
    17              dtype of the tokens, uint8: a key of `_DTYPES`
    18 to 33        number of sequences, N, and of boundaries between documents, G; uint64
    34 ...          N lengths of sequences, int32
                    N offsets of the sequences in the `.bin` file in bytes, int64
                    G boundaries, int64: the number of the first sequence of each document, and N
                    in files with several modalities, the mode of each of the N sequences, int8; 0 is text
                    in files that this module has written, a mark: `_MARK`, and a hash of the `.bin` file

All numbers are little-endian. Usually, each document is a sequence. Some have none, since their text was empty, or
several, such as one for each sentence. Megatron does not read the mark.

NOTE [mark]: the mark tells an index from an old one beside a new `.bin` file of the same size. When the dataset opens
them, it hashes a few places of the tokens, and compares. Files that are written together are replaced in this order:
the index, then the tokens. So an old index, which may have no mark, never lies beside new tokens.

NOTE [damaged index]: every offset is the end of the document before it. So the lengths and offsets of a document and of
its neighbours are checked against each other when the document is read. A few flipped bits are an error, never a wrong
token: only if at least three of these numbers are wrong, and fit together, a document has wrong tokens. The boundaries
are not stored twice: in a file without a mark, a flipped bit may move the end of a document. With a mark, they are not
read, since each sequence is a document.
"""

from __future__ import annotations

import hashlib
import os
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from ..checks import as_dtype
from ..errors import ColumnError, TokenError, bad_argument, warn
from ..indices import Indices
from ..messages import message
from ..replacing import replacing
from ..stores.cache import Needed, RemoteFile
from ..tables.stored import map_npy
from .documents import described

_MAGIC: Final = b"MMIDIDX\x00\x00"
_HEAD: Final = struct.Struct("<9sQBQQ")
_DTYPES: Final = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_CODES: Final = {np.dtype(name): code for code, name in _DTYPES.items()}
_MARK: Final = b"gltokens"
_MARKED: Final = len(_MARK) + 16  # bytes of the mark with the hash
_PLACES: Final = 64  # of a `.bin` file that are hashed
_PLACE: Final = 4096  # bytes of such a place
_MOST_TOKENS: Final = 2**31 - 1  # of one document; the lengths are int32
_CHUNK: Final = 1 << 24  # tokens that are read at once
JUDGED: Final = 1 << 16  # tokens by which a dtype is judged
_FEWEST_JUDGED: Final = 16
_NO_TOKEN: Final = 1 << 24  # larger than any vocabulary; two tokens of uint16, read as one int32, are often larger
_RARELY: Final = 0.01
_UPPER_HALF: Final = 16  # the upper half of a token of int32 is less, unless the vocabulary has more than a million
_AROUND: Final = np.array([[-1], [0], [1], [2]])  # a document's neighbours, and the start of the one after them

WRITABLE: Final = tuple(dtype.name for dtype in _CODES)  # the dtypes that a file can have


@message(frozen=True, slots=True)
class Spans:
    """Where documents lie in an array of tokens.

    Attributes:
        starts: the offset of the first token of each.
        lengths: the number of tokens of each.
    """

    starts: NDArray[Any]
    lengths: NDArray[Any]


class Index:
    """The lengths and offsets of the documents of a `.bin` file, from its `.idx` file, which is mapped into memory.

    Args:
        path: of the `.idx` file.
        data: its bytes.
        tokens: all tokens of the file, of any dtype.
        source: path of the file with the tokens, for error texts.

    Attributes:
        dtype: of the tokens.
        lengths: the number of tokens of each document.

    Raises:
        TokenError: the file is no index of tokens, was cut or is damaged, belongs to another file, or has other
            modalities than text.
    """

    def __init__(self, path: str, data: NDArray[np.uint8], tokens: Tokens, source: str) -> None:
        self._path, self._source = path, source
        if len(data) < _HEAD.size:
            raise TokenError(f"{path}: it has only {len(data)} bytes, so it is no index of tokens")
        magic, version, code, count, boundaries = _HEAD.unpack(data[: _HEAD.size].tobytes())
        if magic != _MAGIC or version != 1:
            raise TokenError(f"{path}: it is no index of tokens in the format of Megatron, version 1")
        if code not in _DTYPES:
            raise TokenError(f"{path}: the code of its dtype is {code}; tokens have one of {sorted(_DTYPES)}")
        needed = _HEAD.size + 12 * count + 8 * boundaries
        rest = data[needed:].tobytes()
        mark = rest[len(_MARK) :] if rest.startswith(_MARK) and len(rest) == _MARKED else None
        if len(data) < needed or (mark is None and len(rest) not in (0, count)):
            what = f"it has {len(data)} bytes, but its header says {needed}"
            raise TokenError(f"{path}: {what}: the file was cut, or damaged; make it again")
        self.dtype, self._nbytes = np.dtype(_DTYPES[code]), tokens.nbytes
        self.lengths: NDArray[Any] = _part(data, "<i4", _HEAD.size, count)
        self._offsets: NDArray[Any] = _part(data, "<i8", _HEAD.size + 4 * count, count)
        end = int(self._offsets[-1]) + int(self.lengths[-1]) * self.dtype.itemsize if count else 0
        if end != self._nbytes:
            raise TokenError(
                f"{source} has {self._nbytes} bytes of tokens, but the last document in {path} ends at byte {end}: one "
                f"of the files was cut, or they do not belong together; copy both again, or make {path} again"
            )
        if mark is not None and isinstance(tokens, np.ndarray) and mark != hash_of(tokens):
            raise TokenError(
                f"{path} was made for other tokens than those in {source}, which has the same size: one of the files "
                f"is older than the other; copy both again or, if {path} was made with end=..., delete it and pass "
                "end=... again"
            )
        if mark is None:
            self._join(_part(data, "<i8", _HEAD.size + 12 * count, boundaries))
            if (modes := np.frombuffer(rest, np.int8)).any():
                sequence = int((modes != 0).argmax())
                what = f"sequence {sequence} in {path} has the mode {modes[sequence]}, but only mode 0 is text"
                raise TokenError(f"{what}; write the tokens of the texts to a file of their own")

    def _join(self, boundaries: NDArray[Any]) -> None:
        """Joins the sequences of each document, if they are not the documents."""
        count = len(self.lengths)
        if np.array_equal(boundaries, np.arange(count + 1)):
            return
        if not len(boundaries) or boundaries[0] or boundaries[-1] != count or (np.diff(boundaries) < 0).any():
            what = f"{self._path}: the boundaries of its documents do not fit its {count} sequences"
            raise TokenError(f"{what}: the file is damaged, or its documents were not ended; make it again")
        offsets = np.append(0, np.cumsum(self.lengths, dtype=np.int64)) * self.dtype.itemsize
        if (self.lengths < 0).any() or not np.array_equal(self._offsets, offsets[:-1]):
            raise TokenError(f"{self._path} is damaged: a sequence does not end where the next one starts")
        starts = offsets[boundaries]
        self.lengths, self._offsets = np.diff(starts) // self.dtype.itemsize, starts[:-1]

    def spans(self, documents: Indices) -> Spans:
        """Where these documents lie; see NOTE [damaged index].

        Raises:
            TokenError: the index is damaged; the text names the document.
        """
        around, count = documents + _AROUND, len(self.lengths)
        inside = np.clip(around, 0, count - 1)
        starts, lengths = self._offsets[inside], self.lengths[inside[:3]].astype(np.int64)
        starts[around < 0], starts[around >= count] = 0, self._nbytes
        lengths[around[:3] != inside[:3]] = 0  # there is no such document
        wrong = (lengths < 0) | (starts[:3] + lengths * self.dtype.itemsize != starts[1:]) | (starts[1:] > self._nbytes)
        if wrong.any():
            document = int(inside[:3][wrong][0])
            raise TokenError(f"{self._path} is damaged: document {document} does not end where the next one starts")
        return Spans(starts[1] // self.dtype.itemsize, lengths[1])


def hash_of(*parts: NDArray[Any]) -> bytes:
    """A hash of the number of bytes of all parts, and of those at `_PLACES` places; all bytes of a small file."""
    data = [part.view(np.uint8) for part in parts]
    ends = list(accumulate(map(len, data)))
    count = ends[-1] if ends else 0
    last, found = max(0, count - _PLACE), hashlib.blake2b(str(count).encode(), digest_size=_MARKED - len(_MARK))
    for number in range(_PLACES):
        start = last * number // (_PLACES - 1)
        stop = min(start + _PLACE, count)
        while start < stop:
            part = bisect_right(ends, start)
            piece = data[part][len(data[part]) - (ends[part] - start) :][: stop - start]
            found.update(piece.tobytes())
            start += len(piece)
    return found.digest()


def _part(data: NDArray[np.uint8], dtype: str, start: int, count: int) -> NDArray[Any]:
    return np.frombuffer(data, dtype, count, start)


def index_data(path: str) -> NDArray[np.uint8]:
    """The bytes of a `.idx` file, mapped into memory."""
    return _mapped(path, np.dtype(np.uint8), 0)


def _mapped(path: str, dtype: np.dtype[Any], offset: int) -> NDArray[Any]:
    """The content of a file from a byte on, mapped into memory."""
    size = os.path.getsize(path) - offset
    if size <= 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, "r", offset, (size // dtype.itemsize,)))


class RemoteTokens:
    """The tokens of a `.bin` file in a store; a slice of them is an array of its own, not a view."""

    def __init__(self, file: RemoteFile, dtype: Any = np.uint8) -> None:
        self.file = file
        self.dtype: np.dtype[Any] = np.dtype(dtype)

    def __len__(self) -> int:
        return len(self.file) // self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return len(self) * self.dtype.itemsize

    def __getitem__(self, part: slice) -> NDArray[Any]:
        start, stop, _ = part.indices(len(self))
        return self.read(np.array([start]), np.array([max(start, stop)]))[0]

    def read(self, starts: Indices, stops: Indices) -> list[NDArray[Any]]:
        """The tokens between each start and stop."""
        width = self.dtype.itemsize
        return [np.frombuffer(piece, self.dtype) for piece in self.file.read_many(starts * width, stops * width)]

    def read_rows(self, starts: Indices, out: NDArray[Any]) -> None:
        """Fills each row with the tokens from a start on; all rows lie in whole blocks."""
        width, nbytes = self.dtype.itemsize, self.dtype.itemsize * out.shape[1]
        target = out.reshape(-1).view(np.uint8).data  # copying bytes to it takes half the time of assigning arrays
        for row, _, data, start, stop in self.file.places(starts * width, starts * width + nbytes):
            target[row * nbytes : (row + 1) * nbytes] = data[start:stop]

    def needed(self, starts: Indices, stops: Indices) -> Needed:
        """The blocks of a cache that contain the tokens between each start and stop."""
        return self.file.needed(starts * self.dtype.itemsize, stops * self.dtype.itemsize)

    def view(self, dtype: Any) -> RemoteTokens:
        return RemoteTokens(self.file, dtype)

    def cut(self, starts: Indices, stops: Indices) -> RemoteTokens:
        """The same tokens in blocks that contain whole samples; see `RemoteFile.cut`."""
        width = self.dtype.itemsize
        return RemoteTokens(self.file.cut(starts * width, stops * width), self.dtype)


Tokens = NDArray[Any] | RemoteTokens


def map_tokens(path: str, dtype: Any) -> NDArray[Any]:
    """The tokens of a `.bin` or `.npy` file, mapped into memory.

    Args:
        dtype: of a `.bin` file; a `.npy` file knows it.

    Raises:
        TokenError: the file contains something else, or was cut.
    """
    if path.endswith(".npy"):
        try:
            tokens = map_npy(path)
        except ColumnError as error:
            what = f"{path}: cannot be mapped into memory ({error.__cause__ or error.reason})"
            raise TokenError(f"{what}; the file was cut, or is no array") from error
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            what = f"it contains an array of shape {tokens.shape} and dtype {tokens.dtype}"
            raise TokenError(f"{path}: {what}; tokens are a single row of ints, shape (N,)")
        return tokens
    check_size(path, os.path.getsize(path), np.dtype(dtype))
    return _mapped(path, np.dtype(dtype), 0)


def check_size(path: str, nbytes: int, dtype: np.dtype[Any]) -> None:
    """Raises a TokenError if a `.bin` file of so many bytes cannot have this dtype."""
    if nbytes % dtype.itemsize:
        what = f"its {nbytes} bytes are no whole number of {dtype.name}"
        raise TokenError(f"{path}: {what}; pass the dtype of its tokens, or copy the file again, since it was cut")


def warn_of_dtype(path: str, tokens: NDArray[Any]) -> None:
    """Warns if a file without a dtype was probably written with another one than these tokens have."""
    first, name = tokens[:JUDGED], tokens.dtype.name
    if len(first) < _FEWEST_JUDGED or first.dtype.itemsize == 1:
        return
    if first.dtype.itemsize > 2 and np.mean(np.abs(first.astype(np.int64)) >= _NO_TOKEN) > _RARELY:
        what = f"many of its tokens are {_NO_TOKEN:,} or more, or negative, if they are read as {name}"
        right = "narrower, such as uint16"
    elif 0 <= first[1::2].min() <= first[1::2].max() < _UPPER_HALF and first[::2].max() > 255:
        what = f"every second token is less than {_UPPER_HALF} if they are read as {name}"
        right = "wider, such as int32"
    else:
        return
    cure = "pass dtype=..., and delete the .idx file if one was made"
    warn(f"{path}: {what}; the dtype of the file is probably {right}: {cure}")


def check_dtype(path: str, dtype: np.dtype[Any]) -> None:
    """Raises a TokenError if an index cannot have this dtype."""
    if dtype not in _CODES:
        name = dtype.name if dtype.isnative else f"big-endian {dtype.name}"
        what = f"{path} contains {name}, but an index can be made only for {', '.join(WRITABLE)}"
        raise TokenError(f"{what}; convert the file")


def ends_of(tokens: NDArray[Any], end: int) -> NDArray[np.int64]:
    """The offset after each token `end`, and after the last token."""
    found = [
        np.flatnonzero(tokens[start : start + _CHUNK] == end) + (start + 1) for start in range(0, len(tokens), _CHUNK)
    ]
    ends = np.concatenate([np.empty(0, np.int64), *found])
    if len(tokens) and (not len(ends) or ends[-1] != len(tokens)):
        ends = np.append(ends, len(tokens))
    return ends


def write_index(path: str, tokens: NDArray[Any], lengths: NDArray[Any]) -> None:
    """Writes the `.idx` file of these tokens, with a mark; see NOTE [mark].

    Raises:
        TokenError: a document is too long for the format.
        OSError: the file cannot be written.
    """
    lengths = np.asarray(lengths, np.int64)
    if lengths.size and lengths.max() > _MOST_TOKENS:
        document = int(lengths.argmax())
        what = f"document {document} has {lengths[document]} tokens, but the format has room for {_MOST_TOKENS}"
        raise TokenError(f"{what}; split it")
    dtype = tokens.dtype.newbyteorder("<")
    offsets = (np.cumsum(lengths) - lengths) * dtype.itemsize
    with open(path, "wb") as file:
        file.write(_HEAD.pack(_MAGIC, 1, _CODES[dtype], len(lengths), len(lengths) + 1))
        file.write(lengths.astype("<i4").tobytes())
        file.write(offsets.astype("<i8").tobytes())
        file.write(np.arange(len(lengths) + 1, dtype="<i8").tobytes())
        file.write(_MARK + hash_of(tokens))


def without_ending(path: str) -> str:
    """The path of files of tokens, of which one may be named, without an ending.

    >>> without_ending("corpus.bin")
    'corpus'
    """
    root, ending = os.path.splitext(path)
    return root if ending in {".bin", ".npy", ".idx"} else path


def write_tokens(prefix: str, documents: Iterable[Any], dtype: Any) -> int:
    """Writes the files `prefix`.bin and `prefix`.idx; returns the number of documents.

    Both are complete, or the old files stay as they were.

    Args:
        documents: the tokens of each document, ints of shape (N,).
        dtype: of the tokens in the file.

    Raises:
        TokenError: a token does not fit in the dtype; the text names the document.
    """
    right = f"must be one of {', '.join(WRITABLE)}"
    prefix, kind = without_ending(prefix), as_dtype(dtype, right).newbyteorder("<")
    if kind not in _CODES:
        raise bad_argument("dtype", dtype, right)
    with replacing(f"{prefix}.idx", f"{prefix}.bin") as (index, tokens):
        with open(tokens, "wb") as file:
            lengths = [_append(file, document, kind, number) for number, document in enumerate(documents)]
        write_index(index, _mapped(tokens, kind, 0), np.array(lengths, np.int64))
    return len(lengths)


def check_is_no_dict(document: Any, number: int) -> None:
    """Raises a TokenError if a document is a row of a table, not only its tokens."""
    if isinstance(document, Mapping):
        what = f"document {number} is {described(document)}"
        right = 'pass only the tokens, such as rows["input_ids"] of a dataset of Hugging Face'
        raise TokenError(f'{what}; {right}, or (row["input_ids"] for row in rows)')


def _append(file: BinaryIO, document: Any, dtype: np.dtype[Any], number: int) -> int:
    check_is_no_dict(document, number)
    tokens = np.asarray(document)
    if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
        what = f"document {number} has shape {tokens.shape} and dtype {tokens.dtype}"
        raise TokenError(f"{what}; pass the tokens of each document as ints, shape (N,)")
    if tokens.size:
        limits = np.iinfo(dtype)
        least, most = int(tokens.min()), int(tokens.max())
        if least < limits.min or most > limits.max:
            token = least if least < limits.min else most
            what = f"document {number} has the token {token}, which does not fit in {dtype.name}"
            raise TokenError(f"{what}; pass another dtype, such as 'int32'")
    file.write(tokens.astype(dtype).tobytes())
    return len(tokens)
