"""The frames of a RecordIO file: how a record is written, and where the data of a record are in a file.

NOTE [frames]: a frame is the magic word, a word with flag (3 bits) and length (29 bits), the data, and zeros up to the
next multiple of 4 bytes. A record is one frame. Only if its data contain the magic word at a multiple of 4 bytes, the
record is cut there: each such word is left out, and each part gets a frame, whose flag says whether it is the first, a
middle or the last part. So the magic word at a multiple of 4 bytes is always the start of a frame, and each damaged
header is noticed: a frame that is too long or too short does not end where the next frame starts. The format has no
checksum, so damaged data are not noticed, and neither is a length that differs by the zeros at the end of the data.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ..errors import RecordError

MAGIC: Final = b"\x0a\x23\xd7\xce"
MAX_LENGTH: Final = (1 << 29) - 1  # bytes of a record

_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)  # the flag of a frame
_HEADER: Final = struct.Struct("<4sI")
_WORD: Final = np.dtype("<u4")
_MAGIC_WORD: Final = np.frombuffer(MAGIC, _WORD)[0]
_NO_WORDS: Final = np.empty(0, _WORD)
_SEARCHED: Final = 1 << 20  # bytes that are searched at a time
# Without it a mapping keeps a descriptor open. Older versions of Python have no such argument.
_NO_DESCRIPTOR: Final[dict[str, Any]] = {"trackfd": False} if sys.version_info >= (3, 13) else {}

Mapped = mmap.mmap | bytes
Span = tuple[int, int]


def frames_of(data: bytes) -> bytes:
    """A record as it stands in a file."""
    cuts = _aligned_magics(data, 0, len(data))
    ends = [*cuts, len(data)]
    flags = [_FIRST, *[_MIDDLE] * (len(cuts) - 1), _LAST] if cuts else [_WHOLE]
    pieces, start = [], 0
    for flag, end in zip(flags, ends, strict=True):
        pieces += [_HEADER.pack(MAGIC, flag << 29 | end - start), data[start:end]]
        start = end + len(MAGIC)
    return b"".join([*pieces, bytes(-len(data) % 4)])


def mapped(path: str) -> Mapped:
    """The file as read-only memory, whose pages all processes share."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ, **_NO_DESCRIPTOR) if size else b""


def spans_of(file: Mapped, start: int, limit: int, path: str) -> tuple[list[Span], int]:
    """Where the parts of the record at `start` are, and where the record ends; it must end at `limit` at the latest.

    Raises:
        RecordError: a frame is damaged, or ends after `limit`.
    """
    spans: list[Span] = []
    at = start
    while True:
        if at + _HEADER.size > limit or at % 4:
            left = f"a frame should start here, but only {limit - at} bytes are left for it"
            raise RecordError(left if at % 4 == 0 else "frames start at multiples of 4 bytes", path, at)
        magic, word = _HEADER.unpack_from(file, at)
        flag, length = word >> 29, word & MAX_LENGTH
        if magic != MAGIC:
            raise RecordError(f"a frame should start here with {MAGIC.hex()}, but here is {magic.hex()}", path, at)
        if flag not in ((_MIDDLE, _LAST) if spans else (_WHOLE, _FIRST)):
            expected = "the next part of a record" if spans else "a record"
            raise RecordError(f"{expected} should start here, but the flag of this frame is {flag}", path, at)
        first = at + _HEADER.size
        last = first + length
        at = last + -length % 4
        if at > limit:
            what = f"the data of this frame need {at - first} bytes, but only {limit - first} bytes are left for them"
            raise RecordError(what, path, first - _HEADER.size)
        if last != at and (flag in (_FIRST, _MIDDLE) or any(file[last:at])):
            what = f"the length {length} of this frame is wrong, or the zeros after its data were changed"
            raise RecordError(what, path, first - _HEADER.size)
        spans.append((first, last))
        if flag in (_WHOLE, _LAST):
            return spans, at


def check_no_frame_in(file: Mapped, spans: list[Span], path: str) -> None:
    """Raises a RecordError if a frame starts inside the data: then the length of the frame before it is too large."""
    for first, last in spans:
        for inner in _aligned_magics(file, first, last):
            raise RecordError(
                f"a frame of {last - first} bytes starts here, but the frame at byte {inner} is inside it",
                path, first - _HEADER.size,
            )  # fmt: skip


def data_of(file: Mapped, spans: list[Span]) -> bytes:
    """The data of a record."""
    if len(spans) == 1:
        return file[spans[0][0] : spans[0][1]]
    return MAGIC.join([file[first:last] for first, last in spans])


def starts_of(file: Mapped, path: str) -> Iterator[int]:
    """Where each record of a file starts, found by reading the header of each frame."""
    at = 0
    while at < len(file):
        yield at
        at = spans_of(file, at, len(file), path)[1]


def next_start(file: Mapped, at: int) -> int:
    """Where the next record starts at `at` or after it; the length of the file if there is none."""
    for chunk in range(at + -at % 4, len(file), _SEARCHED):
        for start in _aligned_magics(file, chunk, min(chunk + _SEARCHED, len(file))):
            if start + _HEADER.size <= len(file) and _HEADER.unpack_from(file, start)[1] >> 29 in (_WHOLE, _FIRST):
                return start
    return len(file)


def _aligned_magics(data: Mapped, start: int, end: int) -> list[int]:
    """Where the magic word is, at multiples of 4 bytes after `start`."""
    words = np.frombuffer(data, _WORD, (end - start) // 4, start) if end - start >= 4 else _NO_WORDS
    found: list[int] = (words == _MAGIC_WORD).nonzero()[0].tolist()  # several times as fast as bytes.find
    return [start + 4 * word for word in found]
