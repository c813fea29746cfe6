"""Reads and builds the index of a RecordIO file: a text file with a line `key<TAB>offset` for each record."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..errors import RecordError, bad_argument
from ..progress import ProgressBar
from ..replacing import replacing
from ..stores.objects import full_path
from .frames import mapped, starts_of

_SHOWN = 1024  # records between two updates of the progress bar
_MAX_DIGITS = 18  # of an offset; longer offsets may not fit in 64 bits


def index_path(path: Any, index: Any = None) -> str:
    """Returns the absolute path of the index; the default for `photos.rec` is `photos.idx` in the same folder."""
    full = full_path(path)
    name = os.path.splitext(full)[0] + ".idx" if index is None else full_path(index)
    if name == full:
        raise bad_argument("path", path, "is the path of the index; pass the path of the .rec file")
    return name


def index_line(key: Any, offset: int) -> bytes:
    return f"{key}\t{offset}\n".encode()


def read_index(path: str, key_type: Callable[[str], Any]) -> tuple[list[Any], list[int]]:
    """Reads an index, and returns the keys and the offsets.

    Raises:
        RecordError: a line is damaged, or two lines have the same key.
    """
    with open(path, "rb") as file:
        return parse_index(file, path, key_type)


def parse_index(lines: Iterable[bytes], path: str, key_type: Callable[[str], Any]) -> tuple[list[Any], list[int]]:
    """The keys and the offsets in the lines of an index; raises as `read_index`."""
    keys, offsets = list[Any](), list[int]()
    start = 0
    for line in lines:
        text, _, offset = line.strip().partition(b"\t")
        if not offset.isdigit() or len(offset) > _MAX_DIGITS:
            raise _bad_line(path, len(keys), start, line, "a line must contain a key, a tab and an offset")
        try:
            keys.append(key_type(text.decode()))
        except ValueError as error:
            expected = f"the key must be of type {getattr(key_type, '__name__', key_type)}; pass another key_type"
            raise _bad_line(path, len(keys), start, line, f"{expected}, or correct the line") from error
        offsets.append(int(offset))
        start += len(line)
    if len(set(keys)) < len(keys):
        seen = set[Any]()
        key = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise RecordError(f"two lines have the key {key!r}; rebuild the index with build_index", path)
    return keys, offsets


def build_index(path: str | os.PathLike[str], index: str | os.PathLike[str] | None = None) -> int:
    """Writes the index of a `.rec` file if the index is missing or damaged. The keys are 0, 1, 2, ...

    The function reads only the headers of the frames, not the data of the records. It replaces an existing index only
    at the end, so that the existing index stays unchanged if an error is raised.

    Args:
        path: the path of the `.rec` file.
        index: the path of the index; the default for `photos.rec` is `photos.idx` in the same folder.

    Returns:
        The number of records.

    Raises:
        RecordError: a frame of the file is damaged.
    """
    path, index = full_path(path), index_path(path, index)
    file_map = mapped(path)
    with ProgressBar(len(file_map), "bytes") as progress:
        lines = [index_line(key, start) for key, start in enumerate(_shown(starts_of(file_map, path), progress))]
        progress.reach(len(file_map))
    with replacing(index) as (new,), open(new, "wb") as file:
        file.writelines(lines)
    return len(lines)


def _shown(starts: Iterable[int], progress: ProgressBar) -> Iterator[int]:
    """Yields the starts of frames, and shows how far in the file they are."""
    for number, start in enumerate(starts):
        if not number % _SHOWN:
            progress.reach(start)
        yield start


def _bad_line(path: str, number: int, start: int, line: bytes, expected: str) -> RecordError:
    return RecordError(f"line {number + 1} is {line[:80]!r}: {expected}; build_index rebuilds the index", path, start)
