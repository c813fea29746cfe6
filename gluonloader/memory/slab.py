"""A slab: one growable file of anonymous shared memory, and its layout.

    byte 0         56         128               128 + task                 head
    | five words   | report   | task            | arrays, aligned ...      | head
      HOLDERS        written    written by the    written by batchify_fn     written by reduce
      TICKET         by the     main program      in the worker              in the worker
      STARTED        worker
      ROW
      SINCE

The file has no name: it is a memfd, or an unlinked temporary file if the system has no memfd. A memfd is not limited by
the size of /dev/shm. The system frees such a file even if a process crashes. Processes send each other its descriptor.

NOTE [slab growth]: posix_fallocate reserves the memory of a slab that grows. If the machine is full, it raises OSError
here; otherwise the first write would raise SIGBUS. The process that grows a slab maps the file again. Arrays of the
batch keep using the old mapping, which shows the same pages. A worker maps the file again when a request has a larger
size, and the main program when it delivers the batch. No code closes a mapping, because NumPy arrays point into it
without exporting its buffer. It is unmapped when the last array that refers to it dies. A slab shrinks only while it is
on loan, to the bytes that its batch uses. Then mappings stay as they are, larger than the slab. So a process uses only
the first `size` bytes of a mapping, and grows the slab before it uses more. The file is sealed, so that no process can
make it shorter: the slab gives its pages back, and the file stays as long as it was.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import SharedMemoryError
from ..forks import no_fork
from ..frameworks import leaves_room
from ..interrupts import from_signal_handler
from ..limits import available_memory
from ..messages import message

ALIGNMENT: Final = 64  # bytes: a cache line, and what JAX and AVX-512 need

HEADER: Final = 128  # bytes
# The words of the header, 8 bytes each. HOLDERS: NOTE [holders] in loans.py; it comes first in MXNet's format, too.
# TICKET, STARTED: NOTE [tickets] in executors/process/socket_lane.py. ROW: the row of the sample that is being read,
# plus 1; 0 if it is not tracked. SINCE: when the worker started on the batch or, if ROW is tracked, on that sample;
# nanoseconds of the monotonic clock. TOOK: a word of the report, the nanoseconds that making the batch took; see
# work/usage.py.
HOLDERS, TICKET, STARTED, ROW, SINCE = range(5)
REPORT: Final = slice(7, 16)
REPORT_BYTES: Final = slice(56, 128)
TOOK: Final = REPORT.start + 2

# The word HOLDERS while there are no holders. It must stay above 0 after every holder has subtracted 1, because MXNet
# deletes memory whose count reaches 0.
NO_HOLDERS: Final = 1 << 20

# Since Python 3.13 mmap need not duplicate the descriptor, which saves one per slab and process.
MAP_OPTIONS: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
DESCRIPTORS: Final = 1 if MAP_OPTIONS else 2  # that a slab takes in each process
_POPULATE: int = getattr(mmap, "MAP_POPULATE", 0)


def align(offset: int, to: int = ALIGNMENT) -> int:
    """Returns the smallest multiple of `to` that is at least `offset`."""
    return -(-offset // to) * to


def anonymous_file() -> int:
    """Returns the descriptor of a new, empty file in memory that has no name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("gluonloader", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    import tempfile

    with tempfile.TemporaryFile(dir=_folder()) as file:
        return os.dup(file.fileno())


def seal(fd: int) -> None:
    """Lets no process make the file shorter, if the kernel can: others that have mapped it would get SIGBUS."""
    if hasattr(os, "memfd_create"):
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)


def give_back_pages(memory: mmap.mmap, start: int, stop: int) -> int:
    """Gives the whole pages between `start` and `stop` back to the system; returns how many bytes."""
    start, stop = align(start, mmap.PAGESIZE), stop // mmap.PAGESIZE * mmap.PAGESIZE
    if start >= stop or not hasattr(mmap, "MADV_REMOVE"):
        return 0
    try:
        memory.madvise(mmap.MADV_REMOVE, start, stop - start)
    except OSError:  # the file system cannot do that
        return 0
    return stop - start


def _folder() -> str:
    import tempfile

    return "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()


def reserve(fd: int, size: int) -> None:
    """Makes the file `size` bytes long and reserves the memory; raises SharedMemoryError if there is too little."""
    try:
        # Ask first: before the kernel refuses memory for a memfd, it kills processes to free memory.
        if size - os.fstat(fd).st_blocks * 512 > available_memory():
            raise OSError(errno.ENOMEM, "the machine or its cgroup has less free memory")
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, size)
        elif os.fstat(fd).st_size < size:
            os.ftruncate(fd, size)
    except OSError as error:
        if from_signal_handler(error):
            raise
        place = "memory" if hasattr(os, "memfd_create") else _folder()
        why = f"do not fit into {place} ({error.strerror}); pass a smaller batch_size or prefetch, or set memory_limit"
        if error.errno == errno.EFBIG:
            why = "exceed the limit on the size of files; raise it with `ulimit -f`, or pass executor='thread'"
        raise SharedMemoryError(error.errno, f"{size:,} bytes of shared memory {why}") from None


@message(frozen=True, slots=True)
class Head:
    """Where the head of a batch lies in the slab.

    The last `tail` bytes of a head that is a pickle say what lies outside of the pickle; see pickled.py.
    """

    offset: int
    length: int
    tail: int

    @property
    def end(self) -> int:
        """How many bytes of the slab the batch uses, since its head comes last."""
        return self.offset + self.length


class Slab:
    """One process's view of a slab.

    Args:
        number: the slab's name in requests and replies.
        fd: descriptor of its file; the slab owns it.
        size: bytes to map; the file is at least that long.
        populate: enter all pages in this process's page table at once, for a process that is about to write them.

    Attributes:
        size: bytes of the file; may be set when another process has changed the file.
        memory, address, mapped: the mapping, where it lies in this process, and its size in bytes.
        control: the words of the header.
        writer: number of the worker that wrote the slab last, whose caches and page table are warm; -1 for none.
        allowance: bytes that the slab may grow to while it is in flight.
        holders: how many frameworks map the memory of this loan by themselves.
        inherited: whether a forked child may refer to the slab, so that it must not be used again.
        given: bytes that were given back to the system while the slab was on loan; after that it is not used again.
        leaves_room: whether enough descriptors for the rest of the program were left when the slab was made.
    """

    def __init__(self, number: int, fd: int, size: int, populate: bool = False) -> None:
        self.number, self.fd, self._populate = number, fd, populate
        self.writer, self.allowance, self.holders, self.given = -1, size, 0, 0
        self.inherited = self.leaves_room = False
        self.map(size)

    def map(self, size: int) -> None:
        """Replaces the mapping by one of the first `size` bytes; see NOTE [slab growth].

        Raises:
            OSError: there is no free descriptor; before Python 3.13 each mapping needs one.
        """
        flags = mmap.MAP_SHARED | (_POPULATE if self._populate else 0)
        memory = mmap.mmap(self.fd, size, flags=flags, **MAP_OPTIONS)
        control = memoryview(memory)[:HEADER].cast("Q")
        start: NDArray[np.uint8] = np.ndarray((1,), np.uint8, memory)
        address: int = start.__array_interface__["data"][0]
        self.memory, self.control, self.address = memory, control, address
        self.size = self.mapped = size  # last: a signal handler may raise before, and then this is repeated

    def read(self, offset: int, length: int) -> bytes:
        """Returns some bytes of it; raises OSError as `map` if another process has grown it."""
        if self.mapped < self.size:
            self.map(self.size)
        return self.memory[offset : offset + length]

    def grow(self, size: int, most: int) -> None:
        """Grows to `size` bytes plus room for the head, so that ragged batches rarely grow it; at most to `most`."""
        size = min(align(max(size + mmap.PAGESIZE, self.size + (self.size >> 5)), mmap.PAGESIZE), most)
        reserve(self.fd, size)
        self.map(size)

    def shrink(self, size: int) -> None:
        """Gives memory beyond `size` bytes back to the system; see NOTE [slab growth]."""
        try:
            os.ftruncate(self.fd, size)
        except PermissionError:  # it is sealed
            give_back_pages(self.memory, size, self.mapped)
        self.size = size

    def measure(self) -> int:
        """Bytes of the file, which another process may have grown, without those that `shrink` has given back."""
        status = os.fstat(self.fd)
        return min(status.st_size, status.st_blocks * 512) if hasattr(os, "posix_fallocate") else status.st_size

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it takes."""
        return self.size - self.given

    @property
    def is_held(self) -> bool:
        """Whether a framework still uses the memory of a loan; see NOTE [holders] in loans.py."""
        return bool(self.holders) and self.control[HOLDERS] > NO_HOLDERS - self.holders

    def share(self) -> int | None:
        """Returns a new descriptor for one more holder; None if the process may open no more files."""
        try:
            descriptor = os.dup(self.fd)
        except OSError:  # the loader is closed, or there are too many descriptors
            return None
        if not leaves_room(descriptor):
            os.close(descriptor)
            return None
        if not self.holders:
            self.control[HOLDERS] = NO_HOLDERS
        self.holders += 1
        return descriptor

    def close(self) -> None:
        """Closes the file; its memory is freed when the last array over it, in any process, is gone.

        A second call does nothing: a forked child closes all slabs, also those that its parent was just closing.
        """
        with no_fork:
            if self.fd >= 0:
                os.close(self.fd)
                self.fd = -1
                del self.control, self.memory
