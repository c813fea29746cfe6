"""Converts records to the frames of a RecordIO file, and finds the data of a record in a file.

NOTE [frames]: a frame consists of the magic word, a word with a flag (3 bits) and the length of the data (29 bits),
the data, and zeros up to the next multiple of 4 bytes. Usually a record is stored as a single frame. But if its data
contain the magic word at a multiple of 4 bytes, the record is split at each such word. The file does not store these
words, and it stores each part of the record as a frame, whose flag says whether the part is the first, a middle or the
last part. So if the magic word is at a multiple of 4 bytes in the file, a frame always starts there. This is why each
damaged header is noticed: a frame that is too long or too short does not end where the next frame starts. The format
has no checksum, so damaged data are not noticed. A wrong length is not noticed either if the difference is only zeros
at the end of the data.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import struct
import sys
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ..errors import RecordError

MAGIC: Final = b"\x0a\x23\xd7\xce"
MAX_LENGTH: Final = (1 << 29) - 1  # of a record, in bytes

_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)  # the flags of a frame
_HEADER: Final = struct.Struct("<4sI")
_WORD: Final = np.dtype("<u4")
_MAGIC_WORD: Final = np.frombuffer(MAGIC, _WORD)[0]
_NO_WORDS: Final = np.empty(0, _WORD)
_SEARCHED: Final = 1 << 20  # bytes that `next_start` searches in one step
# Without this argument, a mapping keeps a file descriptor open. Versions of Python before 3.13 do not have it.
_NO_DESCRIPTOR: Final[dict[str, Any]] = {"trackfd": False} if sys.version_info >= (3, 13) else {}

Mapped = mmap.mmap | bytes
Span = tuple[int, int]


def frames_of(data: bytes) -> bytes:
    """Returns the frames of a record, as the bytes that a file stores."""
    cuts = _aligned_magics(data, 0, len(data))
    ends = [*cuts, len(data)]
    flags = [_FIRST, *[_MIDDLE] * (len(cuts) - 1), _LAST] if cuts else [_WHOLE]
    pieces, start = [], 0
    for flag, end in zip(flags, ends, strict=True):
        pieces += [_HEADER.pack(MAGIC, flag << 29 | end - start), data[start:end]]
        start = end + len(MAGIC)
    return b"".join([*pieces, bytes(-len(data) % 4)])


def mapped(path: str) -> Mapped:
    """Maps a file into read-only memory; all processes share its pages.

    Raises:
        OSError: the file cannot be opened, or is not a regular file.
    """
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):  # the size of a pipe is 0, as that of a file without records
            raise OSError(errno.EINVAL, "only regular files can be mapped; copy the data to a file first", path)
        size = status.st_size
        return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ, **_NO_DESCRIPTOR) if size else b""


def spans_of(file: Mapped, start: int, limit: int, path: str, base: int = 0) -> tuple[list[Span], int]:
    """Returns the start and end of the data in each frame of the record at `start`, and the end of the record.

    Args:
        base: where `file` starts, if it is only a part of the file at `path`; for error texts.

    Raises:
        RecordError: a frame is damaged, or the record ends after `limit`.
    """
    spans: list[Span] = []
    at = start
    while True:
        if at + _HEADER.size > limit or at % 4:
            left = max(0, limit - at)
            what = f"only {left} bytes are left for the frame" if at % 4 == 0 else "this byte is no multiple of 4"
            raise RecordError(f"a frame should start here, but {what}", path, base + at)
        magic, word = _HEADER.unpack_from(file, at)
        flag, length = word >> 29, word & MAX_LENGTH
        if magic != MAGIC:
            what = f"a frame should start here with {MAGIC.hex()}, but the bytes here are {magic.hex()}"
            raise RecordError(what, path, base + at)
        if flag not in ((_MIDDLE, _LAST) if spans else (_WHOLE, _FIRST)):
            expected = "the next part of a record" if spans else "a record"
            raise RecordError(f"{expected} should start here, but the flag of this frame is {flag}", path, base + at)
        first = at + _HEADER.size
        last = first + length
        at = last + -length % 4
        if at > limit:
            what = f"the data of this frame need {at - first} bytes, but only {limit - first} bytes are left"
            raise RecordError(what, path, base + first - _HEADER.size)
        if last != at and (flag in (_FIRST, _MIDDLE) or any(file[last:at])):
            what = f"the length {length} of this frame is wrong, or the zeros at the end of this frame were changed"
            raise RecordError(what, path, base + first - _HEADER.size)
        spans.append((first, last))
        if flag in (_WHOLE, _LAST):
            return spans, at


def check_no_frame_in(file: Mapped, spans: list[Span], path: str, base: int = 0) -> None:
    """Raises a RecordError if a frame starts inside the data of another frame, whose length is then too large.

    `base`: as for `spans_of`.
    """
    for first, last in spans:
        for inner in _aligned_magics(file, first, last):
            what = f"a frame with {last - first} bytes of data starts here"
            text = f"{what}, but at byte {base + inner} a frame starts in it"
            raise RecordError(text, path, base + first - _HEADER.size)


def data_of(file: Mapped, spans: list[Span]) -> bytes:
    """Returns the data of a record."""
    if len(spans) == 1:
        return file[spans[0][0] : spans[0][1]]
    return MAGIC.join([file[first:last] for first, last in spans])


def starts_of(file: Mapped, path: str) -> Iterator[int]:
    """Yields the offset of each record of a file; reads only the header of each frame."""
    at = 0
    while at < len(file):
        yield at
        at = spans_of(file, at, len(file), path)[1]


def next_start(file: Mapped, at: int) -> int:
    """Returns the offset of the first record at or after `at`, or the length of the file if there is no such record."""
    for chunk in range(at + -at % 4, len(file), _SEARCHED):
        for start in _aligned_magics(file, chunk, min(chunk + _SEARCHED, len(file))):
            if start + _HEADER.size <= len(file) and _HEADER.unpack_from(file, start)[1] >> 29 in (_WHOLE, _FIRST):
                return start
    return len(file)


def _aligned_magics(data: Mapped, start: int, end: int) -> list[int]:
    """Returns the offsets of the magic word between `start` and `end`, at multiples of 4 bytes after `start`."""
    words = np.frombuffer(data, _WORD, (end - start) // 4, start) if end - start >= 4 else _NO_WORDS
    found: list[int] = (words == _MAGIC_WORD).nonzero()[0].tolist()  # this is several times as fast as bytes.find
    return [start + 4 * word for word in found]
