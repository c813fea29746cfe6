"""The files of a cache: how a block becomes a file, is read by other processes, and goes.

    folder/lock                 held by the fetcher as long as it runs
    folder/fetcher.log          what fetchers have written, e.g. errors
    folder/new/                 files that are being written
    folder/blocks/KE/KEY-START-STOP     whole and checked blocks: the bytes of the block, then a footer
    folder/unchecked/...        blocks of an earlier fetcher that this one has not checked yet

There may be millions of files, so KE, the first two digits of an object's key, are a level of 256 folders.

The fetcher never touches files with other names.

NOTE [block files]: a file in `blocks` is whole, and its fetcher has checked it: the bytes that were received, or those
that an earlier fetcher has left, by their checksum. Nothing writes to such a file. So a process may read a file that it
finds there, without asking. The checksum covers the name as well, so that a file that was moved is noticed.

NOTE [block locks]: a process that uses a block holds a shared `flock` of its file, and the fetcher removes a file only
if it can lock it alone. So no removed file occupies space because somebody still reads it, and the sizes of the files
are what the folder occupies. The kernel frees the locks of a process that has ended in whatever way. A process that has
locked a file looks whether the file still has a name: it may have been removed just before.
"""

from __future__ import annotations

import fcntl
import io
import mmap
import os
import re
import shutil
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from typing import Final

from ..errors import StoreError
from ..messages import message
from .objects import Block

LOCK: Final = "lock"
LOG: Final = "fetcher.log"
LINGER_S: Final = 2.0  # how long a fetcher waits for the next client, after the last one has left
_PAUSE_S: Final = 0.02  # between two tries to lock a folder
_BLOCKS, _NEW, _UNCHECKED = "blocks", "new", "unchecked"
_FOOTER: Final = struct.Struct("<8sIQ")
_MAGIC: Final = b"glblock1"
_PART: Final = re.compile(r"[0-9a-f]{2}")  # of the blocks
_NAME: Final = re.compile(r"([0-9a-f]{32})-(0|[1-9][0-9]*)-(0|[1-9][0-9]*)")  # of a block
_NEW_NAME: Final = re.compile(r"[0-9a-f]{16}")
_PAGE: Final = 4096  # file systems allocate so many bytes at once


def space_of(nbytes: int) -> int:
    """How many bytes of the disk a block of so many bytes occupies."""
    return -(-(nbytes + _FOOTER.size) // _PAGE) * _PAGE


def path_of(folder: str, block: Block) -> str:
    """The path of a block that is whole and checked."""
    return _path_in(f"{folder}/{_BLOCKS}", block)


def _path_in(folder: str, block: Block) -> str:
    return f"{folder}/{block.key[:2]}/{block.key}-{block.name}"


def locked_block(path: str) -> io.FileIO | None:
    """The file of a block, locked until it is closed; None if there is no such file.

    See NOTE [block locks].

    Raises:
        OSError: this process has too many open files.
    """
    try:
        file = open(path, "rb", buffering=0)  # noqa: SIM115 - no descriptor is lost if an interrupt comes here
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.fstat(file.fileno()).st_nlink:
            return file
    except BlockingIOError:  # the fetcher removes it just now
        pass
    file.close()
    return None


def open_block(path: str) -> mmap.mmap | None:
    """A block, mapped into memory and locked until the map is closed; otherwise as `locked_block`."""
    if (file := locked_block(path)) is None:
        return None
    with file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # it duplicates the descriptor, and keeps the lock


def fetched_ns(folder: str) -> int:
    """When a block was written last, or a fetcher has started; each changes the time of the folder of new files."""
    try:
        return os.stat(os.path.join(folder, _NEW)).st_mtime_ns
    except OSError:
        return 0


def is_ours(folder: str) -> bool:
    """Whether the folder of a cache may be used: it is empty, or it was one before."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return True
    return LOCK in names or names in ([], [LOG])  # the log alone: a fetcher was about to start


@message(frozen=True, slots=True)
class Contained:
    """What is in the folder of a cache.

    Attributes:
        nbytes: the space of all blocks.
    """

    blocks: int = 0
    objects: int = 0
    nbytes: int = 0


def contained(folder: str) -> Contained:
    """What is in the folder of a cache; raises StoreError if it is none."""
    if not is_ours(folder) or not os.path.isdir(folder):
        raise StoreError(f"folder={folder!r}: it is not the folder of a cache")
    lefts = [left for name in (_BLOCKS, _UNCHECKED) for left in _lefts(os.path.join(folder, name))]
    return Contained(len(lefts), len({left.block.key for left in lefts}), sum(left.space for left in lefts))


def empty(folder: str) -> Contained:
    """Removes what the cache of a folder has written, and returns what that was.

    Raises:
        StoreError: it is not the folder of a cache, or a program uses it.
    """
    found = contained(folder)
    with open(os.path.join(folder, LOCK), "ab") as lock:
        if not _locked(lock.fileno(), time.monotonic() + LINGER_S + 1):
            raise StoreError(f"folder={folder!r}: a program uses this cache; end it first")
        for name in (_BLOCKS, _UNCHECKED, _NEW):
            shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    return found


def _locked(descriptor: int, deadline: float) -> bool:
    """Locks a file, as soon as no other process has locked it."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_S)
        else:
            return True


@message(frozen=True, slots=True)
class Left:
    """A file of an earlier fetcher."""

    block: Block
    space: int  # in bytes


class Folder:
    """The files, as the fetcher sees them.

    Args:
        path: of the folder; the caller holds its lock.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._unchecked: set[Block] = set()
        for name in (_BLOCKS, _NEW, _UNCHECKED):
            os.makedirs(os.path.join(path, name), exist_ok=True)
        self._remove_new()
        os.utime(os.path.join(path, _NEW))  # see `fetched_ns`

    def take_over(self) -> Iterator[Left]:
        """Moves the blocks of an earlier fetcher to where they wait to be checked, and yields them."""
        blocks, unchecked = (os.path.join(self.path, name) for name in (_BLOCKS, _UNCHECKED))
        for part in _parts(blocks):
            source, target = os.path.join(blocks, part), os.path.join(unchecked, part)
            with suppress(OSError):  # there are unchecked ones already
                os.rename(source, target)
                continue
            for entry in _files(source):
                os.replace(entry.path, os.path.join(target, entry.name))
        for left in _lefts(unchecked):
            self._unchecked.add(left.block)
            yield left

    def is_unchecked(self, block: Block) -> bool:
        return block in self._unchecked

    def contains(self, block: Block) -> bool:
        """Whether there is the file of a block that is whole and checked."""
        return os.path.exists(path_of(self.path, block))

    def check(self, block: Block) -> bool:
        """Reads a block of an earlier fetcher; moves it to the checked ones if it is whole, and removes it if not."""
        path = self._path_of(block)
        is_placed = False
        with suppress(OSError):  # the file is gone, or cannot be read
            if _is_whole(path, block):
                self._place(path, block)
                is_placed = True
        if not is_placed:
            with suppress(OSError):
                os.unlink(path)
        self._unchecked.remove(block)
        return is_placed

    def write(self, block: Block, data: bytes) -> None:
        """Writes a block beside the others, and gives it its name; raises OSError if the disk is full."""
        new = os.path.join(self.path, _NEW, os.urandom(8).hex())
        try:
            with open(new, "xb", buffering=0) as file:
                for part in (memoryview(data), memoryview(_footer(block, data))):
                    _write_all(file.fileno(), part)
            self._place(new, block)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(new)
            raise

    def remove(self, block: Block) -> bool:
        """Removes a block; returns False if that is not possible now, see NOTE [block locks]."""
        path = self._path_of(block)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # somebody else has removed it
            self._unchecked.discard(block)
            return True
        except OSError:  # e.g. too many open files
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        except OSError:  # a process uses it
            return False
        finally:
            os.close(descriptor)
        self._unchecked.discard(block)
        return True

    def _path_of(self, block: Block) -> str:
        is_unchecked = block in self._unchecked
        return _path_in(os.path.join(self.path, _UNCHECKED), block) if is_unchecked else path_of(self.path, block)

    def _place(self, path: str, block: Block) -> None:
        target = path_of(self.path, block)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.rename(path, target)

    def _remove_new(self) -> None:
        """Removes what an earlier fetcher has not written to the end."""
        new = os.path.join(self.path, _NEW)
        for name in filter(_NEW_NAME.fullmatch, os.listdir(new)):
            os.unlink(os.path.join(new, name))


def _parts(folder: str) -> list[str]:
    """The folders that contain blocks."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if _PART.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)]


def _files(folder: str) -> list[os.DirEntry[str]]:
    """The blocks in one of these folders."""
    part = os.path.basename(folder)
    with os.scandir(folder) as entries:
        named = [entry for entry in entries if entry.name.startswith(part) and _NAME.fullmatch(entry.name)]
        return [entry for entry in named if entry.is_file(follow_symlinks=False)]


def _lefts(folder: str) -> Iterator[Left]:
    """All blocks below a folder."""
    if not os.path.isdir(folder):
        return
    for entry in chain.from_iterable(_files(os.path.join(folder, part)) for part in _parts(folder)):
        key, start, stop = entry.name.split("-")
        with suppress(FileNotFoundError):  # it was removed just now
            yield Left(Block(key, int(start), int(stop)), space_of(entry.stat().st_size - _FOOTER.size))


def _is_whole(path: str, block: Block) -> bool:
    """Whether a file contains all of a block, and nothing else; raises OSError if it cannot be read."""
    with open(path, "rb") as file:
        data = file.read()
    body, footer = data[: -_FOOTER.size], data[-_FOOTER.size :]
    return len(data) >= _FOOTER.size and footer == _footer(block, body)


def _footer(block: Block, data: bytes) -> bytes:
    named = zlib.crc32(f"{block.key}/{block.name}".encode())
    return _FOOTER.pack(_MAGIC, zlib.crc32(data, named), len(data))


def _write_all(descriptor: int, data: memoryview) -> None:
    while len(data):
        data = data[os.write(descriptor, data) :]
