"""`NodeCache`: a folder that keeps blocks of remote objects, and `RemoteFile`: an object that is read through it."""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Any, Final

import numpy as np

from ..checks import check_int, is_positive, parse_size
from ..describe import call, short_repr
from ..errors import StoreError, bad_argument
from ..indices import Indices
from ..messages import message
from ..units import percent, size
from ..wire.greeting import MESSAGE_BYTES, encode
from .bounds import DEFAULT, Bounds
from .client import BlockReader, CacheOptions
from .folder import fetched_ns, is_ours, space_of
from .messages import Soon, located
from .objects import Block, Remote, full_path, is_url, joined
from .source import check_readable

_LEAST_BLOCK: Final = 1 << 12
_FEWEST_BLOCKS: Final = 16  # below, there is hardly room for the blocks that are read at a time
_NETWORK: Final = ("nfs", "cifs", "smb", "lustre", "ceph", "9p", "afs", "fuse.")


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What a cache has done since its fetcher has started, for all programs that use the folder.

    Attributes:
        hits, misses: blocks that were in the folder when they were needed, and those that were fetched. Hits are not
            counted while a loader announces no blocks, since its last epoch has fetched nothing.
        requests: requests to the store.
        repeated: how many of these were made a second time, since the first took much longer than others.
        failed: how many of these have failed; they were made again.
        fetched: bytes that were fetched.
        removed: blocks that made room for others.
        damaged: blocks of an earlier program that were not whole; they were fetched again.
        waited_s: seconds that all readers together have waited for blocks.
        blocks, nbytes: number of blocks in the folder, and the space that they occupy.
        limit: the most bytes of the disk that the cache uses; less than the argument while the disk is full.
        pid: the process that fetches.
    """

    hits: int
    misses: int
    requests: int
    repeated: int
    failed: int
    fetched: int
    removed: int
    damaged: int
    waited_s: float
    blocks: int
    nbytes: int
    limit: int
    pid: int

    @property
    def hit_rate(self) -> float:
        """The share of blocks that were in the folder when they were needed, from 0 to 1."""
        return self.hits / max(1, self.hits + self.misses)

    def __str__(self) -> str:
        return (
            f"Cache: {size(self.nbytes)} of {size(self.limit)}, {percent(self.hit_rate)} hits, {self.requests:,} "
            f"requests, {size(self.fetched)} fetched; readers waited {self.waited_s:.1f} s"
        )


class NodeCache:
    """A folder on a local disk that keeps parts of remote objects, for all processes of a machine.

    Pass it as `cache` to a dataset with a URL. Objects are cached in blocks. Blocks that the loader needs next are
    fetched before they are needed. The folder never occupies more than `limit`, and no process reads a block before it
    is whole and checked. If a process is killed, nothing has to be cleaned up. One process of its own, the fetcher,
    does all requests; it starts and ends by itself. It reads the same environment variables as obstore and fsspec,
    such as AWS_ACCESS_KEY_ID. See `docs/stores.md`.

    Args:
        folder: the path of a new folder, an empty one, or one that was a cache before; on a local disk.
        limit: the most bytes of the disk that the cache uses, as an int or as text such as "500 GB".
        block: size of a block; larger blocks need fewer requests. All programs that use the folder pass the same.
        requests: the most requests at a time.
        timeout: seconds that a read waits for a block before it raises a StoreError.

    Raises:
        ValueError: an argument is wrong, or `limit` has room for fewer than 16 blocks.
        StoreError: the folder cannot be used: it contains other files, is on a network file system, or is read-only.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        limit: int | str,
        *,
        block: int | str = DEFAULT,
        requests: int = 16,
        timeout: float = 120,
    ) -> None:
        if not isinstance(folder, (str, os.PathLike)) or is_url(os.fsdecode(folder)):
            raise bad_argument("folder", folder, "must be the path of a folder on a local disk")
        path = full_path(folder)
        block_bytes = parse_size(block, "block", _LEAST_BLOCK)
        room = f", so that {_FEWEST_BLOCKS} blocks of {size(block_bytes)} fit"
        limit_bytes = parse_size(limit, "limit", _FEWEST_BLOCKS * space_of(block_bytes), room)
        check_int("requests", requests, 1)
        if not is_positive(timeout):
            raise bad_argument("timeout", timeout, "must be a number of seconds > 0")
        _check_folder(path)
        self._start(CacheOptions(path, limit_bytes, block_bytes, int(requests), float(timeout)))

    def _start(self, options: CacheOptions) -> None:
        self.options = options
        self._local = threading.local()

    @property
    def folder(self) -> str:
        """The absolute path of the folder."""
        return self.options.folder

    @property
    def reader(self) -> BlockReader:
        """What this thread reads with."""
        try:
            reader: BlockReader = self._local.reader
        except AttributeError:
            reader = self._local.reader = BlockReader(self.options)
        return reader

    def fetched_ns(self) -> int:
        """When the cache has fetched something last, or a fetcher has started; 0 if never."""
        return fetched_ns(self.options.folder)

    def stats(self) -> CacheStats:
        """What the cache has done; starts its fetcher if there is none."""
        return CacheStats(**self.reader.counts())

    def stats_if_known(self) -> CacheStats | None:
        """`stats`; None if they cannot be had, since the folder cannot be used any more."""
        try:
            return self.stats()
        except StoreError:
            return None

    def open(self, url: str) -> RemoteFile:
        """An object of a store, to be read through this cache.

        Raises:
            MissingExtraError: what reads such URLs is not installed.
            FileNotFoundError: there is no such object.
            StoreError: the store refuses it, or does not answer.
        """
        check_readable(url)
        return RemoteFile(self, self.reader.find(url))

    def __getstate__(self) -> Any:
        return self.options

    def __setstate__(self, options: Any) -> None:
        self._start(options)

    @short_repr
    def __repr__(self) -> str:
        return call(self, repr(self.folder), f"limit={size(self.options.limit)!r}")


@message(frozen=True, slots=True)
class Needed:
    """Blocks of a cache in which samples lie.

    Attributes:
        remotes: the objects that the blocks are parts of, by their keys.
    """

    cache: NodeCache
    remotes: Mapping[str, Remote]
    blocks: list[Block]


class RemoteFile:
    """A version of an object in a store, which is read through a cache; it can be pickled.

    Args:
        bounds: where its blocks start and stop; None for blocks of equal size.
    """

    def __init__(self, cache: NodeCache, remote: Remote, bounds: Bounds | None = None) -> None:
        self.cache, self.remote, self._remotes = cache, remote, {remote.key: remote}
        self.bounds = Bounds.equal(remote.size, cache.options.block) if bounds is None else bounds
        spans = zip(self.bounds.starts.tolist(), self.bounds.stops.tolist(), strict=True)
        self._blocks = [Block(remote.key, start, stop) for start, stop in spans]

    def __len__(self) -> int:
        return self.remote.size

    def cut(self, starts: Indices, stops: Indices) -> RemoteFile:
        """The same object in blocks that contain whole samples, of which these are the starts and stops in order.

        Raises:
            ValueError: the cache has no room for the largest block.
        """
        bounds = Bounds.of(starts, stops, self.cache.options.block)
        largest = int((bounds.stops - bounds.starts).max())
        if space_of(largest) > self.cache.options.limit:
            what = f"it has no room for a block of {size(largest)}, since samples of {self.remote.url} are so large"
            raise bad_argument("cache", self.cache, f"{what}; pass a larger limit")
        return RemoteFile(self.cache, self.remote, bounds)

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop - 1`; raises FileNotFoundError or StoreError if they cannot be fetched."""
        place = int(self.bounds.places(start))
        if stop <= self._blocks[place].stop:
            blocks = self._blocks[place : place + 1]
        else:
            blocks = self._blocks[place : int(self.bounds.places(stop - 1)) + 1]
        pieces = []
        # If `strict`, `zip` goes on to the end of `_open`, which tells the fetcher that the blocks were read.
        for block, data in zip(blocks, self._open(blocks), strict=True):
            end = min(stop, block.stop)
            pieces.append(data[start - block.start : end - block.start])
            start = end  # blocks may overlap
        return joined(pieces)

    def stream(self) -> io.RawIOBase:
        """The object as a file that can be read."""
        return _Stream(self)

    def read_many(self, starts: Indices, stops: Indices) -> list[bytes]:
        """The bytes between each start and stop; raises as `read`."""
        found, several = [b""] * len(starts), []
        for row, block, data, start, stop in self.places(starts, stops):
            found[row] = data[start:stop]
            if stop > block.nbytes:
                several.append(row)
        for row in several:
            found[row] = self.read(starts.item(row), stops.item(row))
        return found

    def places(self, starts: Indices, stops: Indices) -> Iterator[tuple[int, Block, mmap, int, int]]:
        """Where the samples between each start and stop lie, in the order of the object.

        Yields:
            The number of a sample in this read, the block in which it starts, the data of the block, and where the
            sample starts and stops in them. The data may be closed when the next block comes.
        """
        order = starts.argsort(kind="stable")
        starts, stops = starts[order], stops[order]
        places = self.bounds.places(starts).tolist()
        blocks = [self._blocks[place] for place in dict.fromkeys(places)]
        opened, last = zip(blocks, self._open(blocks), strict=True), None
        for row, place, start, stop in zip(order.tolist(), places, starts.tolist(), stops.tolist(), strict=True):
            if place != last:
                (block, data), last = next(opened), place
                base = block.start
            yield row, block, data, start - base, stop - base
        next(opened, None)  # it tells the fetcher that the blocks were read

    def _open(self, blocks: Sequence[Block]) -> Iterator[mmap]:
        return self.cache.reader.open(blocks, self._remotes)

    def needed(self, starts: Indices, stops: Indices) -> Needed:
        """The blocks that contain the bytes between each start and stop."""
        firsts = self.bounds.places(starts)
        lasts = np.maximum(firsts, self.bounds.places(np.maximum(stops - 1, starts)))
        lasts = np.where(stops <= self.bounds.stops[firsts], firsts, lasts)  # blocks of overlapping samples overlap
        several = lasts > firsts
        more = [np.arange(first, last + 1) for first, last in zip(firsts[several], lasts[several], strict=True)]
        places = np.unique(np.concatenate([firsts, *more]))
        return Needed(self.cache, self._remotes, list(map(self._blocks.__getitem__, places.tolist())))


class _Stream(io.RawIOBase):
    """An object as a file that can be read."""

    def __init__(self, file: RemoteFile) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, len(self._file))[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        stop = min(len(self._file), self._at + len(buffer))
        if stop <= self._at:  # the end
            return 0
        buffer[: stop - self._at] = self._file.read(self._at, stop)
        count, self._at = stop - self._at, stop
        return count


def check_cache(name: str, path: str, cache: NodeCache | None) -> None:
    """Raises a ValueError unless a URL has a cache, and a local path has none."""
    if cache is not None and not isinstance(cache, NodeCache):
        raise bad_argument("cache", cache, 'must be a NodeCache, e.g. NodeCache("/scratch/cache", limit="100 GB")')
    if is_url(path) and cache is None:
        right = (
            'a URL is read through a cache on the local disk; pass cache=NodeCache("/scratch/cache", limit="100 GB")'
        )
        raise bad_argument(name, path, right)
    if cache is not None and not is_url(path):
        raise bad_argument(name, path, "a local file needs no cache; remove cache, or pass a URL")


def slow_in_blocks(dataset: Any, indices: Any) -> str:
    """Why a random order of samples in a cache is slow, and what to pass instead; "" if they are in few blocks."""
    needed = dataset.needed_blocks(range(len(dataset)) if indices is None else indices)
    blocks = sum(len(one.blocks) for one in needed)
    options = needed[0].cache.options if needed else None
    if options is None or blocks <= options.room:
        return ""
    objects = {key: remote for one in needed for key, remote in one.remotes.items()}
    bytes_of_sample = sum(remote.size for remote in objects.values()) / max(1, len(dataset))
    times = options.block / max(1.0, bytes_of_sample)
    what = (
        f"the samples of this order lie in {blocks:,} blocks of {size(options.block)}, and the cache has no room for "
        f"them, so a full shuffle would fetch a block for most samples, up to {times:,.0f} times the data"
    )
    right = "shuffle in blocks: DataLoader(dataset, batch_size, sampler=BlockShuffleSampler(data.blocks, buffer=16))"
    return f"{what}; {right}, where data is the {type(dataset).__name__}"


def tell(
    cache: NodeCache, loader: object, blocks: Sequence[Block], remotes: Mapping[str, Remote], goes_on: bool = False
) -> None:
    """Tells the fetcher which blocks are needed next, in this order.

    Args:
        loader: whatever needs them; if it ends, they are needed no more.
        remotes: their objects, by their keys.
        goes_on: they come after those of the last call.
    """
    soon = encode(Soon(*located(blocks, remotes), *cache.reader.numbers(loader), goes_on))
    if len(soon) > MESSAGE_BYTES:
        half = len(blocks) // 2
        tell(cache, loader, blocks[:half], remotes, goes_on)
        tell(cache, loader, blocks[half:], remotes, goes_on=True)
    else:
        cache.reader.tell(soon)


def _check_folder(path: str) -> None:
    """Makes the folder of a cache; raises StoreError if it cannot be one."""
    try:
        os.makedirs(path, exist_ok=True)
        usable, owner = is_ours(path), os.stat(path).st_uid
    except OSError as error:
        raise StoreError(f"folder={path!r}: {error.strerror or error}; pass a folder that you may write to") from None
    if owner != os.geteuid() and os.geteuid():
        raise StoreError(f"folder={path!r}: it belongs to another user; pass a folder of your own")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise StoreError(f"folder={path!r}: it cannot be written; pass a folder that you may write to")
    if not usable:
        raise StoreError(f"folder={path!r}: it contains other files; pass a new folder, since a cache removes files")
    kind = next(_file_systems(path), "")
    if kind.startswith(_NETWORK):
        raise StoreError(f"folder={path!r}: it is on a network file system ({kind}); pass a folder on a local disk")


def _file_systems(path: str) -> Iterator[str]:
    """The kinds of the file systems that contain a path, innermost first."""
    path = os.path.realpath(path)
    try:
        with open("/proc/self/mounts", "rb") as file:
            mounts = [[_unescaped(field) for field in line.split()[1:3]] for line in file]
    except OSError:
        return
    containing = [
        (len(point), number, kind)
        for number, (point, kind) in enumerate(mounts)
        if os.path.commonpath([path, point]) == point
    ]
    for *_, kind in sorted(containing, reverse=True):
        yield kind


def _unescaped(field: bytes) -> str:
    """A field of /proc/mounts, where a space is written as an octal number."""
    return os.fsdecode(re.sub(rb"\\(\d{3})", lambda octal: bytes([int(octal[1], 8)]), field))
