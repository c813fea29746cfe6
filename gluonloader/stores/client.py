"""How a process reads blocks: from their files, and if there is none, it asks the fetcher.

    read --> a block that is open --> its bytes
             a file that is there --> opened, locked, mapped
             otherwise            --> Want to the fetcher, which is started if there is none; wait for Ready

Each thread has a `BlockReader` with a connection of its own, so that threads wait independently of each other. A forked
child closes the blocks and connections of its parent: otherwise it would keep the parent's locks.

A reader connects before it opens its first file: if there is no fetcher, the files may be damaged, and a fetcher that
starts takes all of them away until they are checked.

NOTE [no child]: the fetcher is no child of the process that starts it, since it lives longer than the reader, and
nobody would wait for its end: it would stay as a zombie. So the process that was started forks at once, and ends.
"""

from __future__ import annotations

import atexit
import errno
import io
import json
import os
import select
import socket
import sys
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from mmap import mmap
from typing import Any, Final, NoReturn, TypeVar

from ..errors import StoreError
from ..forks import no_fork
from ..interrupts import Uninterrupted, from_signal_handler
from ..messages import message
from ..wire.descriptors import receive_bytes
from ..wire.ends import close_end, is_ready
from ..wire.greeting import MESSAGE_BYTES, Refused, Welcome, encode, greet, library_version
from ..wire.names import NoRoom, OtherUser, connect
from .folder import LOG, locked_block, open_block, path_of, space_of
from .messages import (
    AskCounts,
    CacheHello,
    Counts,
    FaultKind,
    Find,
    Found,
    List,
    Listed,
    Ready,
    Trouble,
    Unavailable,
    Want,
    environment_hashes,
    from_fetcher,
    located,
)
from .objects import Block, Remote

T = TypeVar("T")

_PREFIX: Final = "\0gluonloader-cache-"
_PAUSE_S: Final = 0.02  # between two tries to connect
_STARTED_S: Final = 1.0  # how long a fetcher that was started may take, before another one is started; it doubles
_LONGEST_START_S: Final = 8.0
_PATIENCE_S: Final = 10.0  # see `Fetcher`; less for a short timeout, so that a request is made some times in it
_LOOK_S: Final = 10.0  # how long a command waits for a fetcher
_MOST_OPEN: Final = 64  # blocks that a reader keeps open; each needs a descriptor
_FEWEST_PROCESSES: Final = 16  # so many readers together keep at most half of the blocks open
_MOST_WANTED: Final = 64  # blocks in a message; the others are asked for later
_PROGRAM: Final = """import os, sys
if not os.fork():
    sys.path[:] = {path!r}
    from gluonloader.stores.fetcher import main
    main()
os._exit(0)"""

_readers: Final[weakref.WeakSet[BlockReader]] = weakref.WeakSet()


@message(frozen=True, slots=True)
class CacheOptions:
    """What a process needs to know of a cache.

    Attributes:
        folder: its absolute path.
        limit: in bytes.
        block: size of a block, in bytes.
        requests: number of requests at a time.
        timeout: seconds to wait for a block.
    """

    folder: str
    limit: int
    block: int
    requests: int
    timeout: float

    @property
    def room(self) -> int:
        """The number of blocks that the folder has room for."""
        return self.limit // space_of(self.block)

    @property
    def facts(self) -> dict[str, Any]:
        """What all clients of a folder must have in common."""
        return {"limit": self.limit, "block": self.block, "requests": self.requests}


class BlockReader:
    """Reads objects through a cache; for one thread."""

    def __init__(self, options: CacheOptions) -> None:
        self.options = options
        self._open: OrderedDict[Block, mmap] = OrderedDict()  # the one that was used last comes last
        self._open_nbytes = 0  # of these blocks
        self._locked: io.FileIO | None = None  # the file of the block that is read as a whole
        processes = max(_FEWEST_PROCESSES, 2 * (os.cpu_count() or 1))
        self._keep = min(_MOST_OPEN, options.room // (2 * processes))
        self._connection: socket.socket | None = None
        self._wanted = False  # the fetcher keeps blocks for this reader
        self._waited_s = 0.0
        self._loaders: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
        self._next_number = count()
        _readers.add(self)

    def open(self, blocks: Sequence[Block], remotes: Mapping[str, Remote]) -> Iterator[mmap]:
        """Yields each of these blocks, mapped; it may be closed when the next one is asked for.

        Args:
            remotes: their objects, by their keys.

        Raises:
            FileNotFoundError: there is no such object.
            StoreError: the object was changed, the store refuses it, or it has not come before the timeout.
        """
        return self._each(blocks, lambda: remotes, self._mapped)

    def read(self, blocks: Sequence[Block], remotes: Callable[[], Mapping[str, Remote]]) -> Iterator[bytes]:
        """Yields the bytes of each of these blocks, which are not kept open; raises as `open`.

        Args:
            remotes: returns their objects, by their keys; called only if a block is not in the folder.
        """
        return self._each(blocks, remotes, self._whole)

    def _each(
        self, blocks: Sequence[Block], remotes: Callable[[], Mapping[str, Remote]], get: Callable[[Block], T | None]
    ) -> Iterator[T]:
        """Yields what `get` returns for each of these blocks; it returns None if a block is not in the folder."""
        if self._connection is None:
            what = remotes()[blocks[0].key].url if blocks else "no blocks"
            self._connected(time.monotonic() + self.options.timeout, what)
        for place, block in enumerate(blocks):
            found = get(block)
            yield self._awaited(blocks[place:], remotes(), get) if found is None else found
        self._close_oldest()  # first, since the fetcher may remove them as soon as it knows that they were read
        if self._wanted:
            self._wanted = False
            self._send(encode(Want([], [], self._waited_s)))
            self._waited_s = 0.0

    def _mapped(self, block: Block) -> mmap | None:
        found = self._open.get(block)
        if found is not None:
            self._open.move_to_end(block)
            return found
        self._close_oldest(block)
        return self._opened(block, self._map)

    def _map(self, block: Block, path: str) -> mmap | None:
        if (found := open_block(path)) is not None:
            self._open_nbytes += block.nbytes
            self._open[block] = found
        return found

    def _whole(self, block: Block) -> bytes | None:
        file = self._opened(block, self._lock)
        if file is None:
            return None
        try:
            data = file.read(block.nbytes)
            if len(data) < block.nbytes:  # one call reads at most 2 GB
                data += file.readall()[: block.nbytes - len(data)]
            return data
        finally:
            with no_fork:
                file.close()

    def _lock(self, block: Block, path: str) -> io.FileIO | None:
        self._locked = found = locked_block(path)
        return found

    def _opened(self, block: Block, opened: Callable[[Block, str], T | None]) -> T | None:
        """Calls `opened`, which notes what it opens, so that a forked child can close it."""
        path = path_of(self.options.folder, block)
        try:
            with no_fork:
                return opened(block, path)
        except OSError as error:
            if from_signal_handler(error):
                raise
            if not self._open:
                raise StoreError(f"{path}: {error.strerror}") from error
        self._close_blocks()  # too many files are open: it keeps none
        return self._opened(block, opened)

    def _close_oldest(self, coming: Block | None = None) -> None:
        """Keeps only as many blocks open as it may; fewer if they are much larger than usual, or another one comes."""
        most = self._keep - (coming is not None)
        most_nbytes = 2 * self._keep * self.options.block - (coming.nbytes if coming else 0)
        while self._open and (len(self._open) > most or self._open_nbytes > most_nbytes):
            with no_fork:
                block, oldest = self._open.popitem(last=False)
                self._open_nbytes -= block.nbytes
                with suppress(BufferError):  # an error keeps an array on it; it closes with that
                    oldest.close()
        if not self._open:
            self._open_nbytes = 0  # an interrupt may have come before it was subtracted

    # -- the fetcher ---------------------------------------------------------------------------------------------------

    def find(self, url: str) -> Remote:
        """The version of an object that is in the store now; raises as `read`."""
        ask = Find(url)
        found: Found = self._answer(
            url, "its length and version", lambda: ask, lambda answer: isinstance(answer, Found) and answer.url == url
        )
        return Remote(found.url, found.size, found.etag)

    def listed(self, folder: str, after: str = "") -> Iterator[Remote]:
        """The objects in a folder of the store and in the folders in it, in the order of their URLs; raises as `read`.

        Args:
            folder: a URL that ends with "/".
            after: only objects whose URLs come after this one.
        """
        while True:
            page = self._listed_after(folder, after)
            for name, size, etag in zip(page.names, page.sizes, page.etags, strict=True):
                after = folder + name
                yield Remote(after, size, etag)
            if not page.names:
                return

    def _listed_after(self, folder: str, after: str) -> Listed:
        ask = List(folder, after)
        page: Listed = self._answer(
            folder,
            "the list of its objects",
            lambda: ask,
            lambda answer: isinstance(answer, Listed) and (answer.url, answer.after) == (folder, after),
        )
        return page

    def numbers(self, loader: object) -> tuple[int, list[int]]:
        """The number of a loader that tells what it needs next, and those of all loaders that still exist."""
        if loader not in self._loaders:
            self._loaders[loader] = next(self._next_number)
        return self._loaders[loader], list(self._loaders.values())

    def tell(self, soon: bytes) -> None:
        """Tells the fetcher by an encoded `Soon` what comes next; does nothing if it cannot be reached."""
        if not self._send(soon):
            with suppress(StoreError):  # whoever reads a block gets this error
                self._connected(time.monotonic() + self.options.timeout, "the blocks of the next batches")
                self._send(soon)

    def counts(self) -> dict[str, Any]:
        """What the fetcher has done."""
        folder = self.options.folder
        answer: Counts = self._answer(folder, "the counts", AskCounts, lambda answer: isinstance(answer, Counts))
        return answer.counts

    def _awaited(self, needed: Sequence[Block], remotes: Mapping[str, Remote], get: Callable[[Block], T | None]) -> T:
        """Waits for the first of the blocks that this read needs from now on."""
        block, (objects, rows) = needed[0], located(needed[:_MOST_WANTED], remotes)
        started = time.monotonic()
        deadline = started + self.options.timeout

        def want() -> Want:
            waited_s, self._waited_s = self._waited_s, 0.0
            return Want(objects, rows, waited_s)

        while True:
            self._wanted = True
            what = f"bytes {block.start} to {block.stop - 1}"
            self._answer(remotes[block.key].url, what, want, lambda answer: isinstance(answer, Ready), deadline)
            if (found := get(block)) is not None:
                self._waited_s += time.monotonic() - started
                return found

    def _send(self, message: bytes) -> bool:
        """Sends a message, if there is a connection; ends the connection if that fails."""
        if self._connection is None:
            return False
        try:
            self._send_now(self._connection, message)
        except OSError as error:  # the fetcher has ended, or does not read
            if from_signal_handler(error):
                raise
            self._hang_up()
            return False
        return True

    def _send_now(self, connection: socket.socket, data: bytes) -> None:
        while True:
            try:
                connection.send(data)
                return
            except BlockingIOError:  # the fetcher has several messages to read
                if not is_ready(connection, select.POLLOUT, self.options.timeout):
                    raise

    def _answer(
        self,
        url: str,
        what: str,
        ask: Callable[[], Any],
        is_answer: Callable[[Any], bool],
        deadline: float | None = None,
    ) -> Any:
        """Asks a question about a URL, and waits for the answer; answers to earlier questions may come before it.

        Args:
            what: is asked for, for error texts.
            ask: makes the question; it is asked again if another fetcher has started.
        """
        deadline = time.monotonic() + self.options.timeout if deadline is None else deadline
        self._send(encode(ask()))
        trouble = "no answer of the fetcher"
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                text = f"{url}: {what} did not come within {self.options.timeout} s; last: {trouble}"
                raise StoreError(f"{text}; pass a larger timeout to NodeCache if it is only slow")
            if self._connection is None:
                self._connected(deadline, f"{url}: {what}")
                self._send(encode(ask()))
                continue  # the new fetcher may have ended already
            if not is_ready(self._connection, select.POLLIN, left_s):
                continue
            message = self._received()
            if isinstance(message, Trouble):
                trouble = message.text
                self._close_blocks()  # others may need their room
            elif isinstance(message, Unavailable) and message.url == url:
                _fail(message.url, message.kind, message.text)
            elif is_answer(message):
                return message

    def _received(self) -> Any:
        """The next message; None if the connection has ended, or for something else."""
        assert self._connection is not None
        with suppress(BlockingIOError):
            try:
                data = receive_bytes(self._connection, MESSAGE_BYTES)
            except ConnectionError:
                data = b""
            if data:
                return from_fetcher(data)
            self._hang_up()
        return None

    def _connected(self, deadline: float, what: str) -> None:
        """Connects to the fetcher, and starts one if there is none."""
        try:
            if self._connection is None:
                self._connect(deadline, what)
        except OSError as error:
            if isinstance(error, StoreError) or from_signal_handler(error):
                raise
            raise StoreError(f"{what}: the fetcher of {self.options.folder} cannot be reached: {error}") from error

    def _connect(self, deadline: float, what: str) -> None:
        next_start, start_s = 0.0, _STARTED_S
        hello = CacheHello(library_version(), self.options.facts, environment_hashes())
        while not self.greeted(hello, what, deadline):
            now = time.monotonic()
            if now > deadline:
                raise StoreError(f"{what}: no fetcher has started within {self.options.timeout} s{self._log()}")
            if now > next_start:
                next_start, start_s = now + start_s, min(2 * start_s, _LONGEST_START_S)
                _start(self.options)
            time.sleep(_PAUSE_S)

    def greeted(self, hello: CacheHello, what: str, deadline: float) -> bool:
        """Connects to the fetcher, if there is one; `what` is wanted from it, for error texts."""
        try:
            connection = connect(address_of(self.options.folder), 0)
        except NoRoom:
            return False
        except OtherUser as error:
            raise StoreError(f"{what}: the folder {self.options.folder}: {error}; use another folder") from None
        if connection is None:
            return False
        answer = greet(connection, hello, lambda connection: self._await_greeting(connection, deadline), Welcome)
        if isinstance(answer, Refused):
            raise StoreError(f"{what}: {answer.why}")
        if answer is not None:
            self._connection = connection
        return answer is not None

    def _await_greeting(self, connection: socket.socket, deadline: float) -> None:
        if not is_ready(connection, select.POLLIN, max(0.0, deadline - time.monotonic())):
            close_end(connection)
            raise StoreError(f"the fetcher of {self.options.folder} does not answer; is it stopped?")

    def _log(self) -> str:
        """The end of what the last fetcher has written."""
        with suppress(OSError), open(os.path.join(self.options.folder, LOG), errors="replace") as file:
            if lines := file.read()[-2000:].strip().splitlines():
                return f"; it wrote: {lines[-1]}"
        return ""

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            close_end(connection)

    def close(self) -> None:
        """Closes what it has opened."""
        self._close_blocks()
        self._hang_up()

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing() and "_open" in vars(self):  # see NOTE [exit] in interrupts.py
            self.close()

    def drop(self) -> None:
        """In a forked child: closes the blocks of the parent; its connection is closed already."""
        self._close_blocks()
        if self._locked is not None:
            self._locked.close()
        self._connection = None

    def _close_blocks(self) -> None:
        with no_fork:
            self._close_each()  # see NOTE [loops and try] in interrupts.py
            self._open_nbytes = 0

    def _close_each(self) -> None:
        while self._open:  # each is forgotten first, since an interrupt may come after it was closed
            _, data = self._open.popitem()
            with suppress(BufferError):
                data.close()


def look(folder: str) -> dict[str, Any] | None:
    """What the fetcher of a folder has done; None if there is none."""
    reader = BlockReader(CacheOptions(folder, 0, 0, 0, _LOOK_S))
    hello = CacheHello(library_version(), {}, {})
    return reader.counts() if reader.greeted(hello, folder, time.monotonic() + _LOOK_S) else None


def address_of(folder: str) -> str:
    """The address of the fetcher of a folder, by whatever path it is reached."""
    status = os.stat(folder)
    return f"{_PREFIX}{os.geteuid()}-{status.st_dev}-{status.st_ino}"


def _start(options: CacheOptions) -> None:
    """Starts a fetcher; it ends at once if there is one already. See NOTE [no child]."""
    given = {
        "folder": options.folder,
        "address": address_of(options.folder),
        "facts": options.facts,
        "patience_s": min(_PATIENCE_S, options.timeout / 4),
    }
    log = os.open(os.path.join(options.folder, LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        path = [str(entry) for entry in sys.path if isinstance(entry, str)]  # Python ignores all others, such as a Path
        arguments = [sys.executable, "-c", _PROGRAM.format(path=path), json.dumps(given)]
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ]
        with Uninterrupted(), suppress(ChildProcessError):  # the program may wait for all children elsewhere
            os.waitpid(os.posix_spawn(sys.executable, arguments, os.environ, file_actions=actions, setpgroup=0), 0)
    finally:
        os.close(log)


def _fail(url: str, kind: FaultKind, text: str) -> NoReturn:
    if kind == "missing":
        raise FileNotFoundError(errno.ENOENT, "there is no such object, or no such bucket", url)
    raise StoreError(f"{url}: {text}")


def _drop_in_child() -> None:
    for reader in list(_readers):
        reader.drop()


def _close_all() -> None:
    for reader in list(_readers):
        reader.close()


os.register_at_fork(after_in_child=_drop_in_child)
atexit.register(_close_all)  # when the last objects are deleted, sockets would only warn
