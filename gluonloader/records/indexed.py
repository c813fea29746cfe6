"""`IndexedRecordIO`: reads and writes records by their keys."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Any

from ..errors import RecordError, bad_argument
from ..stores.objects import is_url
from .frames import MAX_LENGTH, frames_of
from .index import full_path, index_line, index_path
from .reader import RecordFile


class IndexedRecordIO:
    """Reads or writes a RecordIO file (`.rec`) and its index (`.idx`), as `MXIndexedRecordIO` of MXNet does.

    After writing, call `close()`, or use a `with` block. If the file is open for reading, several threads can read from
    the object at the same time, and it can be pickled. Only one thread at a time can write.

    Args:
        path: the path of the `.rec` file. (The first argument of MXNet's class is the path of the index.)
        mode: "r" to read, "w" to write. If the file exists, "w" deletes its content.
        index: the path of the index; the default for `photos.rec` is `photos.idx` in the same folder.
        key_type: function that converts the text of a key in the index to the key; for example int or str.
        partial: only for "r": whether the index may list only some of the records of the file. By default a record
            that the index does not list is an error, since otherwise the class would not notice a truncated index.

    Raises:
        FileNotFoundError: the file does not exist, or it has no index. `build_index` writes an index.
        RecordError: the index is damaged, or belongs to another file.

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
        if is_url(os.fsdecode(path)):
            right = "it reads and writes local files; for a URL, use RecordFileDataset(path, cache=NodeCache(...))"
            raise bad_argument("path", path, right)
        if mode not in ("r", "w"):
            raise bad_argument("mode", mode, 'must be "r" or "w"; the path of the index is the argument `index`')
        self._reader = RecordFile(path, index, key_type, partial) if mode == "r" else None
        self._writer = _Writer(full_path(path), index_path(path, index), key_type) if mode == "w" else None
        self._numbers: dict[Any, int] | None = None

    @property
    def keys(self) -> list[Any]:
        """The keys of the records, in the order of the index."""
        return (self._writer or self._read_only()).keys

    def __len__(self) -> int:
        return len((self._writer or self._read_only()).keys)

    def read_idx(self, key: Any) -> bytes:
        """Returns the record with this key.

        Raises:
            KeyError: the index does not contain the key.
            RecordError: the record is damaged.
            ValueError: the file is closed.
        """
        reader = self._read_only()
        if reader.closed:
            raise ValueError(f"{reader.path}: the file is closed; open it again to read")
        if self._numbers is None:
            self._numbers = {key: number for number, key in enumerate(reader.keys)}
        if key not in self._numbers:
            first = f"the first key is {reader.keys[0]!r}" if reader.keys else "there are no records"
            what = f"no record has the key {key!r}, and {first}; key_type determines the type of the keys"
            raise KeyError(f"{reader.path}: {what}")
        return reader.read(self._numbers[key])

    def write_idx(self, key: Any, record: Any) -> None:
        """Appends a record to the file.

        Args:
            key: the key of the record; no other record of the file may have the same key.
            record: less than 2^29 bytes, as bytes or as an object such as a memoryview.

        Raises:
            ValueError: another record has this key already, or the record is too large.
        """
        if self._writer is None:
            raise ValueError('the file is open for reading; open it with mode="w" to write')
        self._writer.write(key, record if isinstance(record, bytes) else memoryview(record).tobytes())

    def close(self) -> None:
        """Closes the files. You may call it more than once."""
        (self._writer or self._read_only()).close()

    def __enter__(self) -> IndexedRecordIO:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        if self._writer is not None:
            raise TypeError("an IndexedRecordIO that is open for writing cannot be pickled; write in a single process")
        return {**vars(self), "_numbers": None}

    def _read_only(self) -> RecordFile:
        if self._reader is None:
            raise ValueError('the file is open for writing; close it, and open it with mode="r" to read')
        return self._reader


class _Writer:
    """Writes records and their index without a buffer, so that a forked process cannot write buffered data again."""

    def __init__(self, path: str, index: str, key_type: Callable[[Any], Any]) -> None:
        self._path, self._key_type = path, key_type
        self._files = open(path, "wb", buffering=0), open(index, "wb", buffering=0)  # noqa: SIM115, closed by close()
        self._ends = 0, 0  # where the complete records and lines end; close() removes an incomplete write after them
        self.keys: list[Any] = []
        self._known: set[Any] = set()
        self._pid = os.getpid()

    def write(self, key: Any, record: bytes) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"{self._path} was opened for writing by process {self._pid}; write only in that process"
            )
        if self._files[0].closed:
            raise ValueError(f"{self._path}: the file is closed; write all records before you close it")
        key = self._key_type(key)
        if key in self._known:
            raise bad_argument("key", key, "another record has this key already; pass a different key for each record")
        text = str(key)
        if not text.isprintable() or text != text.strip() or not text:
            expected = "must be an int, or a text without tabs and line breaks, and without spaces at its ends"
            raise bad_argument("key", key, expected)
        if len(record) > MAX_LENGTH:
            size = f"record {key!r} has {len(record)} bytes, but a record can have at most {MAX_LENGTH} bytes (512 MB)"
            raise RecordError(f"{size}; split the record", self._path, self._ends[0])
        start, line = self._ends
        ends = self._write(0, start, frames_of(record)), self._write(1, line, index_line(key, start))
        self._ends = ends
        self._known.add(key)
        self.keys.append(key)

    def close(self) -> None:
        for file, end in zip(self._files, self._ends, strict=True):
            if not file.closed:
                if os.getpid() == self._pid:  # a forked process may have an old value of `end`
                    file.truncate(end)
                file.close()

    def _write(self, number: int, at: int, data: bytes) -> int:
        """Writes data at the offset `at`, and returns the offset after the data."""
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._files[number].fileno(), rest, at)
            at, rest = at + written, rest[written:]
        return at
