"""`RecordFile`: reads the records of a `.rec` file, which is mapped into memory, by their number in the index."""

from __future__ import annotations

import errno
import mmap
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import numpy as np

from ..errors import RecordError
from ..indices import Indices
from ..stores.bounds import Bounds
from ..stores.cache import Needed, NodeCache, RemoteFile, check_cache
from .frames import Mapped, check_no_frame_in, data_of, mapped, spans_of
from .index import full_path, index_path, parse_index, read_index

_MAX_AHEAD: Final = 1 << 20  # bytes of a record to read ahead; the system itself reads ahead in larger records


class RecordFile:
    """A `.rec` file and its index, open for reading.

    Reading changes no state, so threads need no lock, and forked workers share the mapping. A pickled RecordFile
    contains the paths, but not the data. Each process that unpickles it opens the files again.

    The number of a record is the number of its line in the index, from 0.

    Args:
        path: the path of the `.rec` file.
        index: the path of the index; None for the `.idx` file with the same name as the `.rec` file.
        key_type: function that converts the text of a key in the index to the key.
        partial: whether the index may list only some of the records of the file.
        cache: through which both files are read, if `path` is a URL.

    Raises:
        FileNotFoundError: the file does not exist, or it has no index.
        RecordError: the index is damaged, or belongs to another file.
        StoreError: the file cannot be fetched.
    """

    def __init__(
        self, path: Any, index: Any, key_type: Callable[[str], Any], partial: bool, cache: NodeCache | None = None
    ) -> None:
        self.path, self._index = full_path(path), index_path(path, index)
        self._key_type, self._partial, self._cache = key_type, partial, cache
        check_cache("path", self.path, cache)
        self._file: Mapped | RemoteFile = mapped(self.path) if cache is None else cache.open(self.path)
        self.keys, offsets = self._read_index()
        self._starts, self._size = np.array(offsets, np.int64), len(self._file)
        self._limits = self._checked_limits()
        if isinstance(self._file, RemoteFile):
            order = np.argsort(self._starts)
            self._file = self._file.cut(self._starts[order], self._limits[order])

    def _read_index(self) -> tuple[list[Any], list[int]]:
        try:
            if self._cache is None:
                return read_index(self._index, self._key_type)
            file = self._cache.open(self._index)
        except FileNotFoundError:
            what = f"the file has no index; write the index with gluonloader.records.build_index({self.path!r})"
            local = "" if self._cache is None else ", with the path of the file on a local disk, and upload the index"
            raise FileNotFoundError(errno.ENOENT, what + local, self._index) from None
        return parse_index(file.read(0, len(file)).splitlines(True), self._index, self._key_type)

    def __len__(self) -> int:
        return len(self._starts)

    def __getstate__(self) -> dict[str, Any]:
        arguments = (self.path, self._index, self._key_type, self._partial, self._cache)
        version = self._file.remote if isinstance(self._file, RemoteFile) else None
        return {"arguments": arguments, "size": self._size, "length": len(self), "version": version}

    def __setstate__(self, state: dict[str, Any]) -> None:
        RecordFile.__init__(self, *state["arguments"])
        if isinstance(self._file, RemoteFile) and self._file.remote != state["version"]:
            raise RecordError("the object was changed since the dataset was made; make it again", self.path)
        if (len(self._file), len(self)) != (state["size"], state["length"]):
            was = f"{state['size']} bytes and {state['length']} records"
            now = f"{len(self._file)} bytes and {len(self)} records"
            raise RecordError(f"the file has {now}, but it had {was} when the dataset was pickled", self.path)

    def read(self, number: int) -> bytes:
        """Returns the data of the record with this number.

        Raises:
            RecordError: a frame of the record is damaged, or the record does not end where the next record starts.
        """
        start, limit = self._starts.item(number), self._limits.item(number)
        if isinstance(self._file, RemoteFile):
            return self._record(self._file.read(start, limit), 0, limit - start, start)
        return self._record(self._file, start, limit)

    def _record(self, file: Mapped, start: int, limit: int, base: int = 0) -> bytes:
        """The data of the record from `start` to `limit`; `base` is where `file` starts, if it is only a part."""
        spans, end = spans_of(file, start, limit, self.path, base)
        if end != limit:
            if not self._partial:
                what = f"this record ends at byte {base + end}, but the next record of the index starts at byte"
                raise RecordError(f"{what} {base + limit}; {_if_partial(self.path)}", self.path, base + start)
            spans_of(file, end, limit, self.path, base)  # a record that the index does not list must start at `end`
        if self._partial or len(spans) > 1:
            check_no_frame_in(file, spans, self.path, base)
        return data_of(file, spans)

    def read_many(self, numbers: Indices) -> list[bytes]:
        """Reads several records in the order of the file, and returns their data in the order of `numbers`."""
        records = [b""] * len(numbers)
        if isinstance(self._file, RemoteFile):
            for row, block, data, start, limit in self._file.places(self._starts[numbers], self._limits[numbers]):
                records[row] = self._record(data, start, limit, block.start)
            return records
        order = np.argsort(self._starts[numbers])
        ordered = numbers[order]
        self._read_ahead(self._file, ordered)
        spans = self._starts[ordered].tolist(), self._limits[ordered].tolist()
        for row, start, limit in zip(order.tolist(), *spans, strict=True):
            records[row] = self._record(self._file, start, limit)
        return records

    def needed(self, numbers: Indices) -> Needed | None:
        """The blocks of a cache in which records lie; None if the file is local."""
        if not isinstance(self._file, RemoteFile):
            return None
        return self._file.needed(self._starts[numbers], self._limits[numbers])

    def blocks(self) -> list[int]:
        """The number of records that start in each block of the file; see `RecordFileDataset.blocks`."""
        if (self._starts[1:] < self._starts[:-1]).any():
            what = f"{self._index} does not list the records in the order of the file, so they have no blocks"
            raise RecordError(f"{what}; write it again with gluonloader.records.build_index")
        bounds = self._file.bounds if isinstance(self._file, RemoteFile) else Bounds.of(self._starts, self._limits)
        return bounds.counts

    def _read_ahead(self, file: Mapped, numbers: Indices) -> None:
        """Asks the system to read all these records from the disk now; otherwise each page fault waits for the disk.

        For records of 10 kB in random order that were not in the cache, this made bulk reads 15 times as fast.
        """
        if isinstance(file, bytes) or not len(numbers):
            return
        starts = self._starts[numbers]
        ends = np.minimum(self._limits[numbers], starts + _MAX_AHEAD)
        (cuts,) = np.nonzero(starts[1:] > ends[:-1])  # the file has other data between these records
        firsts, lasts = starts[np.append(0, cuts + 1)] & -mmap.PAGESIZE, ends[np.append(cuts, -1)]
        with suppress(OSError):  # if the system refuses the request, the records are still read correctly
            for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
                file.madvise(mmap.MADV_WILLNEED, first, last - first)

    @property
    def closed(self) -> bool:
        return isinstance(self._file, mmap.mmap) and self._file.closed

    def close(self) -> None:
        """Ends the mapping. After that, reading raises ValueError."""
        if isinstance(self._file, mmap.mmap):
            self._file.close()

    def _checked_limits(self) -> Indices:
        """Returns the offset where each record must end: where the next record starts, or the end of the file."""
        order = np.argsort(self._starts, kind="stable")
        starts, size = self._starts[order], len(self._file)
        if len(starts) and starts[-1] >= size:
            key, offset = self.keys[order[-1]], int(starts[-1])
            what = f"record {key!r} of {self._index} should start here, but the file has only {size} bytes"
            raise RecordError(f"{what}; it is truncated, or the index belongs to another file", self.path, offset)
        (same,) = np.nonzero(starts[1:] == starts[:-1])
        if len(same):
            keys = sorted(self.keys[number] for number in order[same[0] : same[0] + 2])
            what = f"records {keys[0]!r} and {keys[1]!r} of {self._index} should both start here; rebuild the index"
            raise RecordError(f"{what} with gluonloader.records.build_index", self.path, int(starts[same[0]]))
        if not self._partial:
            first, last = (int(starts[0]), int(starts[-1])) if len(starts) else (size, size)
            end = self._end_of_last(last, size) if len(starts) else size
            for here, there in ((0, first), (end, size)):
                if here != there:
                    what = f"{self._index} lists no record between this byte and byte {there}; {_if_partial(self.path)}"
                    raise RecordError(what, self.path, here)
        limits = np.empty_like(self._starts)
        limits[order] = np.append(starts[1:], size)
        return limits

    def _end_of_last(self, start: int, size: int) -> int:
        if isinstance(self._file, RemoteFile):
            return start + spans_of(self._file.read(start, size), 0, size - start, self.path, start)[1]
        return spans_of(self._file, start, size, self.path)[1]


def _if_partial(path: str) -> str:
    return (
        f"rebuild the index with gluonloader.records.build_index({path!r}), or pass partial=True if the index lists "
        "only some of the records on purpose"
    )
