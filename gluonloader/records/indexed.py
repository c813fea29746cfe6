"""`IndexedRecordIO`: reads and writes records by their keys."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ..errors import RecordError, bad_argument
from .frames import MAX_LENGTH, frames_of
from .index import index_line, index_path
from .reader import RecordFile


class IndexedRecordIO:
    """Reads or writes a RecordIO file (`.rec`) and its index (`.idx`), byte for byte as `MXIndexedRecordIO` of MXNet.

    Close it after writing, or use it in a `with` block. A file that is open for reading may be read by several threads,
    and may be pickled; only one thread at a time may write.

    Args:
        path: the `.rec` file. (The first argument of MXNet's class is the index.)
        mode: "r" to read, "w" to write; "w" deletes the content of a file that exists.
        index: the path of the index; by default `photos.idx` beside `photos.rec`.
        key_type: makes a key from the text in the index; int or str, for example.
        partial: "r" only: accept an index that does not list all records of the file. By default a missing record is
            an error, since otherwise an index that was cut off would not be noticed.

    Raises:
        FileNotFoundError: there is no such file, or no index; `build_index` writes an index.
        RecordError: the index is damaged, or does not belong to the file.

    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/words.rec"
    >>> with IndexedRecordIO(path, "w") as words:
    ...     words.write_idx(7, b"seven")
    ...     words.write_idx(3, b"three")
    >>> words = IndexedRecordIO(path)
    >>> words.keys, words.read_idx(3)
    ([7, 3], b'three')
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: str = "r",
        index: str | os.PathLike[str] | None = None,
        key_type: Callable[[Any], Any] = int,
        partial: bool = False,
    ) -> None:
        if mode not in ("r", "w"):
            raise bad_argument("mode", mode, 'must be "r" to read or "w" to write; the path of the index is `index`')
        self._reader = RecordFile(path, index, key_type, partial) if mode == "r" else None
        self._writer = _Writer(os.path.abspath(path), index_path(path, index), key_type) if mode == "w" else None
        self._rows: dict[Any, int] | None = None

    @property
    def keys(self) -> list[Any]:
        """The keys of the records, in the order of the index."""
        return (self._writer or self._read_only()).keys

    def __len__(self) -> int:
        return len((self._writer or self._read_only()).keys)

    def read_idx(self, key: Any) -> bytes:
        """Returns the record with this key.

        Raises:
            KeyError: the index has no such key.
            RecordError: the record is damaged.
        """
        reader = self._read_only()
        if self._rows is None:
            self._rows = {key: row for row, key in enumerate(reader.keys)}
        return reader.read(self._rows[key])

    def write_idx(self, key: Any, record: Any) -> None:
        """Appends a record.

        Args:
            key: a key that no other record of the file has.
            record: bytes, or an object with bytes such as a memoryview; less than 2^29 bytes.

        Raises:
            ValueError: the key exists already, or the record is too large.
        """
        if self._writer is None:
            raise ValueError('the file is open for reading; open it with mode="w" to write')
        self._writer.write(key, record if isinstance(record, bytes) else memoryview(record).tobytes())

    def close(self) -> None:
        """Closes the files. It may be called more than once."""
        (self._writer or self._read_only()).close()

    def __enter__(self) -> IndexedRecordIO:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self._writer is not None:
            raise TypeError("an IndexedRecordIO that is open for writing cannot be pickled; open it in one process")
        return {**vars(self), "_rows": None}

    def _read_only(self) -> RecordFile:
        if self._reader is None:
            raise ValueError('the file is open for writing; close it, and open it with mode="r" to read')
        return self._reader


class _Writer:
    """Writes records and their index without a buffer, so that a forked process cannot write a part of them again."""

    def __init__(self, path: str, index: str, key_type: Callable[[Any], Any]) -> None:
        self._path, self._key_type = path, key_type
        self._files = open(path, "wb", buffering=0), open(index, "wb", buffering=0)  # noqa: SIM115, close closes them
        self._ends = 0, 0  # of what was written completely; close cuts off a write that was interrupted
        self.keys: list[Any] = []
        self._known: set[Any] = set()
        self._pid = os.getpid()

    def write(self, key: Any, record: bytes) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"{self._path} was opened for writing by process {self._pid}; write in that process only"
            )
        key = self._key_type(key)
        if key in self._known:
            raise bad_argument("key", key, "another record has this key already; each record needs its own")
        text = str(key)
        if not text.isprintable() or text != text.strip() or not text:
            raise bad_argument("key", key, "must be an int, or text without tabs, line breaks and spaces at its ends")
        if len(record) > MAX_LENGTH:
            size = f"record {key!r} has {len(record)} bytes, and a RecordIO file can store at most {MAX_LENGTH}"
            raise RecordError(f"{size}; split it", self._path, self._ends[0])
        start, line = self._ends
        ends = self._write(0, start, frames_of(record)), self._write(1, line, index_line(key, start))
        self._ends = ends
        self._known.add(key)
        self.keys.append(key)

    def close(self) -> None:
        for file, end in zip(self._files, self._ends, strict=True):
            if not file.closed:
                if os.getpid() == self._pid:  # in a forked process `end` may be out of date
                    file.truncate(end)
                file.close()

    def _write(self, number: int, at: int, data: bytes) -> int:
        """Writes at an offset; returns the offset after the data."""
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._files[number].fileno(), rest, at)
            at, rest = at + written, rest[written:]
        return at
