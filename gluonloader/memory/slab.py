"""A slab: one growable block of anonymous shared memory, and its layout.

    byte 0        64             64 + request           head
    | five words | request      | arrays, aligned ...         | head |
      HOLDERS      what to load   written by batchify            pickled structure
      TICKET       (parent)       (worker)                       (worker)
      STARTED
      POSITION
      TOOK

The memory is a file without a name: a memfd, or an unlinked temporary file where the system has none. It is not
bound by the size of /dev/shm (memfd), cannot be left behind by any death, and is passed on by its descriptor.

NOTE [slab growth]: a slab grows, never shrinks. Room is made with posix_fallocate, so a full machine is an OSError
here and not a SIGBUS at the first write. Whoever grows maps the file again and leaves the old mapping to the arrays
that look into it (both show the same pages); the other side maps again when a record tells it the new size.
A mapping is never closed by hand: NumPy arrays point into it without holding a buffer export. It goes with the last
array that refers to it.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import tempfile
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import SharedMemoryError
from ..limits import available_memory

__all__ = [
    "ALIGNMENT",
    "HEADER",
    "HOLDERS",
    "POSITION",
    "STARTED",
    "TICKET",
    "TOOK",
    "Slab",
    "align",
    "alignment_of",
    "anonymous_file",
]

ALIGNMENT: Final = 64  # a cache line; what JAX and AVX-512 ask for
HEADER: Final = 64
# Words of the header. MXNet's format of shared memory has its count of holders in the first 4 bytes, NOTE [holders] in
# slabs.py; for the others see NOTE [tickets] in executors/lane.py.
# TOOK: microseconds, written by the worker.
HOLDERS, TICKET, STARTED, POSITION, TOOK = range(5)

# What the word HOLDERS starts with: more than there can be, since at 0 MXNet would take the memory for its own.
_NO_HOLDERS: Final = 1 << 20

# Bytes from which on arrays begin at a page: a copy that stores a little further into a page than it loads waits for
# its own stores, and NumPy's large arrays begin just after a page.
_LARGE: Final = 64 * 1024

# Python's mmap keeps a descriptor of its own unless told not to (3.13); one less per slab and process.
_MAP_OPTIONS: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
_POPULATE: int = getattr(mmap, "MAP_POPULATE", 0)


def align(offset: int, to: int = ALIGNMENT) -> int:
    """The next multiple of `to`."""
    return -(-offset // to) * to


def alignment_of(nbytes: int) -> int:
    """What the start of an array of so many bytes is a multiple of."""
    return mmap.PAGESIZE if nbytes >= _LARGE else ALIGNMENT


def anonymous_file() -> int:
    """The descriptor of a new, empty file in memory that has no name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("gluonloader", os.MFD_CLOEXEC)
    folder = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.dup(file.fileno())


def reserve(fd: int, size: int) -> None:
    """Makes the file `size` bytes long and its memory certain.

    Raises:
        SharedMemoryError: there is not enough memory, or a limit forbids it.
    """
    try:
        # Before the kernel refuses memory to a memfd it kills processes to get it; so ask first.
        if size - os.fstat(fd).st_blocks * 512 > available_memory():
            raise OSError(errno.ENOMEM, "the machine, or this cgroup, has not that much left")
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        elif os.fstat(fd).st_size < size:
            os.ftruncate(fd, size)
    except OSError as error:
        folder = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
        place = "memory" if hasattr(os, "memfd_create") else folder
        raise SharedMemoryError(
            error.errno,
            f"no room for {size:,} bytes of shared memory in {place} ({error.strerror}); "
            "use a smaller batch_size or prefetch, or set memory_limit",
        ) from None


class Slab:
    """One process's view of a slab.

    Args:
        number: the slab's name in requests and replies.
        fd: descriptor of its file; the slab owns it.
        size: bytes to map; the file is at least that long.
        populate: enter all pages in this process's page table at once, for one who is about to write them.
    """

    __slots__ = (
        "_populate",
        "address",
        "allowance",
        "control",
        "fd",
        "holders",
        "leaves_room",
        "memory",
        "number",
        "size",
        "writer",
    )

    def __init__(self, number: int, fd: int, size: int, populate: bool = False) -> None:
        self.number, self.fd, self._populate = number, fd, populate
        self.writer = -1  # the worker that wrote it last: its pages and cache lines are warm there
        self.allowance = size  # to how many bytes it may grow while it is in flight
        self.holders = 0  # frameworks that were given this loan's memory to map
        self.leaves_room = False  # whether its descriptor is known to leave room for others
        self.map(size)

    def map(self, size: int) -> None:
        """Looks at the first `size` bytes from now on; see NOTE [slab growth]."""
        flags = mmap.MAP_SHARED | (_POPULATE if self._populate else 0)
        self.memory = mmap.mmap(self.fd, size, flags=flags, **_MAP_OPTIONS)
        self.size = size
        self.control = memoryview(self.memory)[:HEADER].cast("Q")
        start: NDArray[np.uint8] = np.ndarray((1,), np.uint8, self.memory)
        self.address: int = start.__array_interface__["data"][0]

    def grow(self, size: int, most: int) -> None:
        """Makes room for `size` bytes, up to `most` some more: for the head, and so that ragged batches settle soon."""
        size = min(align(max(size + mmap.PAGESIZE, self.size + (self.size >> 5)), mmap.PAGESIZE), most)
        reserve(self.fd, size)
        self.map(size)

    def begin_loan(self) -> None:
        """From now on frameworks may map it; see NOTE [holders] in slabs.py."""
        self.control[HOLDERS], self.holders = _NO_HOLDERS, 0

    @property
    def is_held(self) -> bool:
        """Whether a framework may still look into it."""
        return self.control[HOLDERS] > _NO_HOLDERS - self.holders

    def vacate(self) -> None:
        """Gives the memory back to the system; only when nobody, in any process, will look at it again."""
        os.ftruncate(self.fd, 0)

    def close(self) -> None:
        """Lets go of the file; its memory is freed when the last array in any process is gone."""
        os.close(self.fd)
        self.fd = -1
        del self.control, self.memory
