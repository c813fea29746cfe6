"""Files of tokens in the format of Megatron-LM: `.bin` with the tokens of all documents, `.idx` with their lengths.

    bytes 0 to 8    b"MMIDIDX" and two zeros
    9 to 16         version, uint64: 1
    17              dtype of the tokens, uint8: a key of `_DTYPES`
    18 to 33        number of documents, N, and of boundaries between groups of them, G; uint64
    34 ...          N lengths, int32
                    N offsets of the documents in the `.bin` file in bytes, int64
                    G boundaries, int64; and, in files with several modalities, N numbers, int8

All numbers are little-endian. What is called a document here is a sequence in Megatron: a document of a file for BERT
may have several sequences.

NOTE [damaged index]: every offset is the end of the document before it. So the lengths and offsets of a document and of
its neighbours are checked against each other when the document is read. A few flipped bits are an error, never a wrong
token: only if at least three of these numbers are wrong, and fit together, a document has wrong tokens.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import ColumnError, TokenError, bad_argument
from ..indices import Indices
from ..tables.stored import map_npy

_MAGIC: Final = b"MMIDIDX\x00\x00"
_HEAD: Final = struct.Struct("<9sQBQQ")
_DTYPES: Final = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_CODES: Final = {np.dtype(name): code for code, name in _DTYPES.items()}
_MOST_TOKENS: Final = 2**31 - 1  # of one document; the lengths are int32
_CHUNK: Final = 1 << 24  # tokens that are read at once
_AROUND: Final = np.array([[-1], [0], [1], [2]])  # a document's neighbours, and the start of the one after them

WRITABLE: Final = tuple(dtype.name for dtype in _CODES)  # the dtypes that a file can have


@dataclass(frozen=True, slots=True)
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
        nbytes: number of bytes of all tokens.
        source: path of the file with the tokens, for error texts.

    Attributes:
        dtype: of the tokens.
        lengths: the number of tokens of each document, int32.

    Raises:
        TokenError: the file is no index of tokens, was cut, or belongs to another file.
    """

    def __init__(self, path: str, nbytes: int, source: str) -> None:
        self._path, self._source = path, source
        data = _mapped(path, np.dtype(np.uint8), 0)
        if len(data) < _HEAD.size:
            raise TokenError(f"{path}: it has only {len(data)} bytes, so it is no index of tokens")
        magic, version, code, count, boundaries = _HEAD.unpack(data[: _HEAD.size].tobytes())
        if magic != _MAGIC or version != 1:
            raise TokenError(f"{path}: it is no index of tokens in the format of Megatron, version 1")
        if code not in _DTYPES:
            raise TokenError(f"{path}: the code of its dtype is {code}; tokens have one of {sorted(_DTYPES)}")
        needed = _HEAD.size + 12 * count + 8 * boundaries
        if len(data) not in (needed, needed + count):
            what = f"it has {len(data)} bytes, but its header says {needed}"
            raise TokenError(f"{path}: {what}: the file was cut, or damaged; make it again")
        self.dtype, self._nbytes = np.dtype(_DTYPES[code]), nbytes
        self.lengths: NDArray[Any] = _part(data, "<i4", _HEAD.size, count)
        self._offsets: NDArray[Any] = _part(data, "<i8", _HEAD.size + 4 * count, count)
        end = int(self._offsets[-1]) + int(self.lengths[-1]) * self.dtype.itemsize if count else 0
        if end != nbytes:
            raise TokenError(
                f"{source} has {nbytes} bytes of tokens, but the last document in {path} ends at byte {end}: one of "
                f"the files was cut, or they do not belong together; copy both again, or make {path} again"
            )

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


def _part(data: NDArray[np.uint8], dtype: str, start: int, count: int) -> NDArray[Any]:
    return np.frombuffer(data, dtype, count, start)


def _mapped(path: str, dtype: np.dtype[Any], offset: int) -> NDArray[Any]:
    """The content of a file from a byte on, mapped into memory."""
    size = os.path.getsize(path) - offset
    if size <= 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.asarray(np.memmap(path, dtype, "r", offset, (size // dtype.itemsize,)))


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
    if os.path.getsize(path) % np.dtype(dtype).itemsize:
        what = f"its {os.path.getsize(path)} bytes are no whole number of {np.dtype(dtype).name}"
        raise TokenError(f"{path}: {what}; pass the dtype of its tokens, or copy the file again, since it was cut")
    return _mapped(path, np.dtype(dtype), 0)


def check_dtype(path: str, dtype: np.dtype[Any]) -> None:
    """Raises a TokenError if an index cannot have this dtype."""
    if dtype.newbyteorder("<") not in _CODES:
        what = f"{path} contains {dtype.name}, but an index can be made only for {', '.join(WRITABLE)}"
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


def write_index(path: str, dtype: np.dtype[Any], lengths: NDArray[Any]) -> None:
    """Writes an `.idx` file; it appears as a whole, or not at all.

    Raises:
        TokenError: a document is too long for the format.
        OSError: the file cannot be written.
    """
    lengths = np.asarray(lengths, np.int64)
    if lengths.size and lengths.max() > _MOST_TOKENS:
        document = int(lengths.argmax())
        what = f"document {document} has {lengths[document]} tokens, but the format has room for {_MOST_TOKENS}"
        raise TokenError(f"{path}: {what}; split it")
    offsets = (np.cumsum(lengths) - lengths) * dtype.itemsize
    handle, name = tempfile.mkstemp(prefix=os.path.basename(path), dir=os.path.dirname(path) or ".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_HEAD.pack(_MAGIC, 1, _CODES[dtype], len(lengths), len(lengths) + 1))
            file.write(lengths.astype("<i4").tobytes())
            file.write(offsets.astype("<i8").tobytes())
            file.write(np.arange(len(lengths) + 1, dtype="<i8").tobytes())
            os.fchmod(file.fileno(), 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def write_tokens(prefix: str, documents: Iterable[Any], dtype: Any) -> int:
    """Writes the files `prefix`.bin and `prefix`.idx; returns the number of documents.

    Both are complete, or the `.idx` file is not there.

    Args:
        documents: the tokens of each document, ints of shape (N,).
        dtype: of the tokens in the file.

    Raises:
        TokenError: a token does not fit in the dtype; the text names the document.
    """
    kind = np.dtype(dtype).newbyteorder("<")
    if kind not in _CODES:
        raise bad_argument("dtype", dtype, f"must be one of {', '.join(WRITABLE)}")
    if os.path.exists(index := f"{prefix}.idx"):
        os.unlink(index)
    lengths = []
    with open(f"{prefix}.bin", "wb") as file:
        for number, document in enumerate(documents):
            lengths.append(_append(file, document, kind, number))
    write_index(index, kind, np.array(lengths, np.int64))
    return len(lengths)


def _append(file: BinaryIO, document: Any, dtype: np.dtype[Any], number: int) -> int:
    tokens = np.asarray(document)
    if tokens.ndim != 1 or (tokens.size and tokens.dtype.kind not in "iu"):
        what = f"document {number} has shape {tokens.shape} and dtype {tokens.dtype}"
        raise TokenError(f"{what}; pass the tokens of each document as ints, shape (N,)")
    if tokens.size:
        limits = np.iinfo(dtype)
        least, most = int(tokens.min()), int(tokens.max())
        if least < limits.min or most > limits.max:
            token = least if least < limits.min else most
            raise TokenError(f"document {number} has the token {token}, which does not fit in {dtype.name}")
    file.write(tokens.astype(dtype).tobytes())
    return len(tokens)
