"""The files that `tokens make` reads, cut into pieces: lines of text or JSON, also compressed, and tables.

The main program reads and decompresses each file once, from its start to its end; workers get the pieces.
"""

from __future__ import annotations

import gzip
import io
import os
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any, BinaryIO, Final

from ..errors import import_extra
from ..messages import message

_TEXTS: Final = (".jsonl", ".txt")
ENDINGS: Final = (*_TEXTS, ".jsonl.gz", ".jsonl.zst", ".txt.gz", ".txt.zst", ".parquet")

PIECE: Final = 1 << 20  # bytes of documents in a piece
_ROWS: Final = 2048  # of a table in a piece, at most
_COMPRESSED: Final = 1 << 10  # bytes of zstd that are decompressed at once; each 4 bytes may become 128 kB
_BUFFER: Final = 1 << 17


@message(frozen=True)
class FilePlace:
    """A place between two rows of the files.

    Attributes:
        file: number of the file.
        offset: of the next line in the file, without its compression, in bytes; 0 in a table.
        row: number of the next row of the file, from 0.
        read: bytes that were read of the file, for a progress bar.
    """

    file: int = 0
    offset: int = 0
    row: int = 0
    read: int = 0


@message(frozen=True)
class FilePiece:
    """Some rows of a file: lines of a text, or an array of pyarrow."""

    path: str
    first: int  # the number of the first row, from 0
    rows: Any = field(repr=False)
    end: FilePlace

    def name(self, row: int) -> str:
        """How error texts name a row: lines are counted from 1, as editors do, and rows of a table from 0."""
        number = self.first + row
        return f"{self.path}: row {number:,}" if is_table(self.path) else f"{self.path}: line {number + 1:,}"


def is_table(path: str) -> bool:
    return path.endswith(".parquet")


def is_json(path: str) -> bool:
    return path.removesuffix(".gz").removesuffix(".zst").endswith(".jsonl")


def find_files(sources: Iterable[str]) -> list[str]:
    """The paths of these files, and of all files in these folders and in the folders in them.

    Raises:
        ValueError: a file has another ending than `ENDINGS`, or a folder contains no file with one of them.
        OSError: there is no such file.
    """
    found: list[str] = []
    for source in map(os.path.abspath, sources):
        paths = [source]
        if os.path.isdir(source):
            inside = [os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names]
            paths = sorted(path for path in inside if path.endswith(ENDINGS))
        elif not source.endswith(ENDINGS):
            raise ValueError(f"{source}: the ending must be one of {', '.join(ENDINGS)}")
        if not paths:
            raise ValueError(f"{source}: it contains no files that end with one of {', '.join(ENDINGS)}")
        found += paths
    return found


class Pieces:
    """A sampler of the rows of all files from a place on; of tables, those of the column `key`.

    Raises:
        ValueError: a file cannot be read; the text names it.
    """

    def __init__(self, paths: list[str], key: str, start: FilePlace) -> None:
        self._paths, self._key, self._start = paths, key, start

    def __iter__(self) -> Iterator[FilePiece]:
        for number, path in enumerate(self._paths[self._start.file :], self._start.file):
            place = self._start if number == self._start.file else FilePlace(number)
            try:
                yield from _rows_of(path, self._key, place) if is_table(path) else _lines_of(path, place)
            except _errors_of(path) as error:
                raise ValueError(f"{path} cannot be read ({error}); copy the file again, or remove it") from error


def _errors_of(path: str) -> tuple[type[Exception], ...]:
    """What reading a file raises if the file is damaged."""
    errors = OSError, EOFError, zlib.error
    if path.endswith(".zst"):
        return (*errors, import_extra("zstandard", "text", "zstandard").ZstdError)
    return (*errors, import_extra("pyarrow", "arrow").ArrowException) if is_table(path) else errors


def _lines_of(path: str, place: FilePlace) -> Iterator[FilePiece]:
    with open(path, "rb") as file, _decompressed(file, path) as lines:
        if lines is file:
            file.seek(place.offset)
        else:
            _skip(lines, place.offset)
        yield from _lines_in(file, lines, path, place)


def _skip(file: BinaryIO, count: int) -> None:
    while count > 0 and (data := file.read(min(count, PIECE))):
        count -= len(data)


def _lines_in(file: BinaryIO, lines: BinaryIO, path: str, place: FilePlace) -> Iterator[FilePiece]:
    offset, row = place.offset, place.row
    while rows := lines.readlines(PIECE):
        offset, first, row = offset + sum(map(len, rows)), row, row + len(rows)
        if first == 0:
            rows[0] = rows[0].removeprefix(BOM_UTF8)
        yield FilePiece(path, first, rows, FilePlace(place.file, offset, row, file.tell()))


def _decompressed(file: BinaryIO, path: str) -> BinaryIO:
    if path.endswith(".gz"):
        return io.BufferedReader(gzip.GzipFile(fileobj=file), _BUFFER)  # type: ignore[arg-type]
    return io.BufferedReader(_Chunks(_frames_of(file)), _BUFFER) if path.endswith(".zst") else file


def _frames_of(file: BinaryIO) -> Iterator[bytes]:
    """The content of a file in the format of zstd. The library's own reader does not notice that a file was cut."""
    zstandard = import_extra("zstandard", "text", "zstandard")
    frame = None
    while data := file.read(_COMPRESSED):
        while data:
            frame = zstandard.ZstdDecompressor().decompressobj() if frame is None else frame
            yield frame.decompress(data)
            data, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("the file ends in the middle of its data")


class _Chunks(io.RawIOBase):
    """A file with the content of these chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest and (chunk := next(self._chunks, None)) is not None:
            self._rest = memoryview(chunk)
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size


def _rows_of(path: str, key: str, place: FilePlace) -> Iterator[FilePiece]:
    parquet = import_extra("pyarrow.parquet", "arrow")
    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        if key not in file.schema_arrow.names:
            names = ", ".join(map(repr, file.schema_arrow.names))
            raise ValueError(f"{path} has no column {key!r}, but {names}; pass --key")
        yield from _rows_in(file, path, key, place)


def _rows_in(file: Any, path: str, key: str, place: FilePlace) -> Iterator[FilePiece]:
    pa, size, row = import_extra("pyarrow", "arrow"), os.path.getsize(path), 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        if row + count <= place.row:
            row += count
            continue
        at_once = min(_ROWS, max(1, count * PIECE // max(1, _bytes_of(file.metadata.row_group(group), key))))
        for batch in file.iter_batches(at_once, [group], [key], use_threads=False):
            first, row = max(row, place.row), row + batch.num_rows
            if first < row:
                rows = batch.column(0)[first - row :]
                end = FilePlace(place.file, 0, row, size * row // max(1, file.metadata.num_rows))
                # A slice is pickled with all of its array, but this copy contains only these rows.
                yield FilePiece(path, first, pa.concat_arrays([rows]), end)


def _bytes_of(group: Any, key: str) -> int:
    """The number of bytes of a column of a row group, without compression."""
    columns = [group.column(number) for number in range(group.num_columns)]
    return sum(column.total_uncompressed_size for column in columns if column.path_in_schema.split(".")[0] == key)
