"""`attach`: reads the batches of a loader that another program serves; the consumer's side of server.py.

    server --Packet--> inbox --> batch over mapped memory --convert--> kept --acknowledge--> user
    server <--release-- the last array of the batch dies

NOTE [again]: Ctrl-C can end `next` at any place. If that happens while a packet is read, the packet may be lost. So
`_reading` is true meanwhile; the next call then orders `AGAIN`, and the server sends once more all items that are not
acknowledged. A batch stays in `_kept` from before its acknowledgement until `next` returns it. So no batch is lost, and
none comes twice: a repeated acknowledgement does nothing.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic

from ..checks import check_flags, check_int
from ..describe import call, short_repr
from ..errors import BatchTimeout, LoaderClosed, bad_argument, hide_own_frames, warn
from ..executors.lanes.ends import close_end, is_ready, track_end
from ..executors.lanes.remote import decode_error
from ..executors.shared.messages import library_version, peer
from ..forks import no_fork
from ..interrupts import Uninterrupted, from_signal_handler
from ..loading.arguments import choose_delivery
from ..locks import Lock
from ..memory.reduce import rebuild, rebuild_with
from ..memory.slab import Head
from ..state import joined, range_with, save_ranges
from ..tree import Batch
from .mapping import Ended, Mappings
from .messages import (
    MESSAGE_BYTES,
    MOST_RANGES,
    Ask,
    Hello,
    Kind,
    Packet,
    Refused,
    Welcome,
    address_of,
    brings_descriptor,
    decode_answer,
    decode_facts,
    decode_packet,
    encode,
    encode_orders,
    is_name,
    receive_packet,
    running,
)
from .stats import ServerStats

_LOOK_S: Final = 0.05  # how often `attach` looks whether the server runs
_ANSWER_S: Final = 30.0  # how long the answer of a server may take
_FACTS_S: Final = 1.0  # the same for the text of a timeout


@dataclass(slots=True)
class Kept:
    """A batch, or the error of a batch, until `next` returns it.

    Attributes:
        number: of the item.
        which: the number of the batch.
        acknowledged: the server knows that it was received.
    """

    number: int
    which: int
    batch: Any
    error: BaseException | None = None
    acknowledged: bool = False


class Received:
    """The batches of an epoch that a consumer has received, as ranges.

    >>> received = Received()
    >>> for number in [0, 1, 5, 2]: received.add(number)
    >>> received.ranges, 2 in received, 3 in received
    ([range(0, 3), range(5, 6)], True, False)
    """

    def __init__(self) -> None:
        self.ranges: list[range] = []

    def __contains__(self, number: int) -> bool:
        return range_with(self.ranges, number) is not None

    def add(self, number: int) -> None:
        last = self.ranges[-1] if self.ranges else range(0)
        if self.ranges and last.stop == number:
            self.ranges[-1] = range(last.start, number + 1)
        elif number >= last.stop:
            self.ranges.append(range(number, number + 1))
        elif number not in self:
            self.ranges = joined(sorted([*self.ranges, range(number, number + 1)], key=lambda one: one.start))


class ServedLoader(Generic[Batch]):
    """The batches that a server makes, as a loader; made by `attach`.

    Attributes:
        name: that of the server.
        epoch: the number of the epoch that is read, or that comes next; None before the first batch.
    """

    def __init__(self, name: str, timeout: float | None, convert: Callable[[Any], Any] | None, wait: float) -> None:
        self.name, self._timeout, self._convert = name, timeout, convert
        self.epoch: int | None = None
        self._pid = os.getpid()
        self._lock = Lock()
        self._received = Received()  # of the current epoch
        self._left = False  # whether `iter` leaves the current epoch, since a batch of it was read
        self._kept: dict[int, Kept] = {}  # by thread
        self._warned = False
        self._connect(wait)

    def _connect(self, wait: float) -> None:
        connection, welcome = _enter(self.name, self._hello(), wait)
        self._connection, self._welcome = connection, welcome
        self._mappings = Mappings(writable=welcome.each == "one")
        self._inbox: deque[Packet] = deque()
        self._generation, self._reading, self._lacks = 0, False, False
        self._asked = False  # whether the server knows that this consumer waits
        self._facts: dict[str, Any] | None = None
        self._ending: str | None = None  # why there is no connection
        self._delivered: set[int] = set()  # items that are acknowledged and not released
        self._last = -1  # the item that was kept last

    def _hello(self) -> Hello:
        ranges = save_ranges(self._received.ranges[-MOST_RANGES:])
        return Hello(library_version(), self.epoch, ranges)

    # -- as a loader --------------------------------------------------------------------------------------------------

    def __iter__(self) -> ServedIterator[Batch]:
        """Starts the next epoch, or joins the current epoch if no batch of it was read.

        If batches of the current epoch are left, `each="all"` skips them. With `each="one"`, the iterator continues
        with them, since otherwise nobody might read them.
        """
        with self._locked():
            if self._left and self.epoch is not None and self._welcome.each == "all":
                self._order((Ask.SKIP, self.epoch))
                self._start_epoch(self.epoch + 1)
        return ServedIterator(self)

    def __len__(self) -> int:
        """The number of batches in an epoch of the server's loader; TypeError if it is not known."""
        if self._welcome.length is None:
            raise TypeError(f"the loader of the server {self.name!r} has no length")
        return self._welcome.length

    @property
    def batch_size(self) -> int | None:
        """The `batch_size` of the server's loader."""
        return self._welcome.batch_size

    def set_epoch(self, epoch: int) -> None:
        """Does nothing, since the server decides which epoch comes next; warns once if it is another one."""
        check_int("epoch", epoch)
        coming = None if self.epoch is None else self.epoch + (self._left and self._welcome.each == "all")
        if coming not in (None, epoch) and not self._warned:
            self._warned = True
            warn(f"set_epoch({epoch}) has no effect: the server {self.name!r} decides, and epoch {coming} comes next")

    def state_dict(self) -> dict[str, Any]:
        """The position of the server's loader after the last batch that this program has received.

        With `each="one"`, the position up to which all consumers have received all batches.

        Raises:
            LoaderClosed: the server has ended.
        """
        state: dict[str, Any] = self._ask_facts(_ANSWER_S)["state"]
        return state

    def stats(self) -> ServerStats:
        """What the server knows of itself and all its consumers; raises LoaderClosed if it has ended."""
        return ServerStats.of_json(self._ask_facts(_ANSWER_S)["stats"])

    def reconnect(self, wait: float = 10.0) -> None:
        """Attaches to a new server of the same name; iterators continue after the last batch that was received.

        Args:
            wait: how many seconds to wait for the new server.

        Raises:
            ConnectionRefusedError: there is no server of this name.
        """
        with self._locked():
            self._hang_up("it was left for another server")
            self._connect(wait)

    def close(self) -> None:
        """Leaves the server; a second call does nothing. Batches that were delivered stay valid."""
        with self._lock:
            self._hang_up("this loader is closed; call attach again")

    def __enter__(self) -> ServedLoader[Batch]:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_connection", None) is not None and os.getpid() == self._pid:
            self._hang_up("it was deleted")

    @short_repr
    def __repr__(self) -> str:
        about = ["no server"] if self._ending is not None else [f"pid {self._welcome.pid}"]
        return call(self, repr(self.name), f"each={self._welcome.each!r}", *about)

    # -- reading ------------------------------------------------------------------------------------------------------

    def next_of(self, iterator: ServedIterator[Batch]) -> Batch:
        """The next batch of an iterator; see NOTE [again]."""
        thread, kept = threading.get_ident(), self._kept
        with self._locked():
            if thread not in kept:
                kept[thread] = self._take(iterator)
            if not kept[thread].acknowledged:
                self._acknowledge(kept[thread])
        item = kept[thread]
        if item.error is not None:
            del kept[thread]
            raise hide_own_frames(item.error)
        batch: Batch = item.batch
        del kept[thread]  # no signal handler runs between this statement and the end of `next`
        return batch

    def _take(self, iterator: ServedIterator[Batch]) -> Kept:
        """Builds the next batch of an iterator; raises StopIteration at the end of the epoch."""
        while not iterator.ended:
            packet = self._receive()
            if self._is_old(packet):
                self._discard(packet)
                continue
            if self.epoch is None and packet.kind is Kind.END:  # it has attached just before the end of an epoch
                self._start_epoch(packet.epoch + 1)
                continue
            if self.epoch is None or packet.epoch > self.epoch:
                self._start_epoch(packet.epoch)
            if iterator.epoch is None:
                iterator.epoch = packet.epoch
            if packet.epoch > iterator.epoch:
                break
            if packet.kind is Kind.END:
                self._start_epoch(packet.epoch + 1)
                break
            kept = self._build(packet)
            if kept is not None:
                self._last, self._left, self._asked = packet.number, True, False
                return kept
        iterator.ended = True
        raise StopIteration

    def _is_old(self, packet: Packet) -> bool:
        """Whether the program has received this item, perhaps from an earlier server, or has left its epoch."""
        if packet.number == self._last or (self.epoch is not None and packet.epoch < self.epoch):
            return True
        return packet.epoch == self.epoch and packet.kind is Kind.BATCH and packet.batch in self._received

    def _discard(self, packet: Packet) -> None:
        self._order((Ask.ACKNOWLEDGE, packet.number))
        if packet.number not in self._delivered:
            self._order((Ask.RELEASE, packet.number))
        self._inbox.popleft()
        self._asked = False

    def _start_epoch(self, epoch: int) -> None:
        self.epoch, self._received, self._left = epoch, Received(), False

    def _build(self, packet: Packet) -> Kept | None:
        """The batch of a packet, or its error; None if the memory of the batch has to be sent again."""
        if packet.kind is Kind.ERROR:
            return Kept(packet.number, packet.batch, None, decode_error(packet.body))
        mappings = self._mappings
        if not mappings.has(packet.slab, packet.size):
            self._again()
            return None
        memory = mappings.lend(packet.number, packet.slab, packet.size, packet.scarce)
        head = Head(packet.offset, packet.length, packet.spans)
        batch = rebuild(memory, head) if packet.length else rebuild_with(memory, packet.body)
        if self._convert is not None:
            try:
                batch = self._convert(batch)
            except Exception as error:
                if from_signal_handler(error):
                    raise
                return Kept(packet.number, packet.batch, None, error)
        return Kept(packet.number, packet.batch, batch)

    def _acknowledge(self, kept: Kept) -> None:
        """Tells the server that an item is received, and which ones are not used any more."""
        number = kept.number
        orders = [(Ask.ACKNOWLEDGE, number)]
        self._delivered.add(number)
        if not self._mappings.is_lent(number):  # an error or a copy
            orders += self._releases([Ended(number, False)])
        orders += self._releases(self._mappings.ended())
        self._order(*orders)
        if kept.which >= 0:
            self._received.add(kept.which)
        kept.acknowledged = True
        if self._inbox and self._inbox[0].number == number:
            self._inbox.popleft()

    def _receive(self) -> Packet:
        """The next packet, which stays in the inbox.

        Raises:
            BatchTimeout: it takes too long.
            LoaderClosed: the server has ended.
        """
        self._release()
        if self._welcome.each == "one" and not self._inbox and not self._asked:
            self._order((Ask.NEXT, 0))
            self._asked = True
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        while not self._inbox:
            if not self._read() and not self._wait(deadline):
                raise BatchTimeout(self._timeout_text())
        return self._inbox[0]

    def _release(self) -> None:
        orders = self._releases(self._mappings.ended())
        if orders:
            self._order(*orders)

    def _releases(self, ended: Iterable[Ended]) -> list[tuple[Ask, int]]:
        """The orders for memory that is not used any more.

        There is none for a batch that was built and not delivered, since it is built again; see NOTE [again].
        """
        known = [one for one in ended if one.item in self._delivered]
        self._delivered.difference_update(one.item for one in known)
        return [(Ask.KEEP if one.inherited else Ask.RELEASE, one.item) for one in known]

    def _wait(self, deadline: float | None) -> bool:
        """Waits for a packet; returns False after the deadline."""
        left = 3600.0 if deadline is None else deadline - time.monotonic()
        return left > 0 and (is_ready(self._connection, select.POLLIN, left) or deadline is None)

    def _timeout_text(self) -> str:
        text = f"no batch came from the server {self.name!r} (pid {self._welcome.pid}) within {self._timeout:g} s"
        try:
            facts = self._ask_facts(_FACTS_S)
        except BatchTimeout:
            return f"{text}, and it does not answer; it is stopped, or its dataset holds the GIL"
        slow = [one.pid for one in ServerStats.of_json(facts["stats"]).consumers if one.is_waited_for]
        if slow and slow != [os.getpid()]:
            return f"{text}, since it waits for the consumer with pid {slow[0]}; end that, or pass slow='skip' to serve"
        return f"{text}; its loader is slow, or waits for more consumers; pass a larger timeout to attach"

    def _read(self) -> bool:
        """Reads a packet into the inbox; returns False if none has arrived. See NOTE [again]."""
        if self._ending is not None:
            raise LoaderClosed(self._ending)
        if self._reading:
            self._again()
        self._reading = True
        try:
            if brings_descriptor(self._connection):
                with Uninterrupted():
                    data = self._read_descriptor()
            else:
                data, _ = receive_packet(self._connection)
        except BlockingIOError:
            self._reading = False
            return False
        except ConnectionResetError:
            data = b""
        if not data:
            self._lost("without a message, so it was probably killed")
        packet = decode_packet(data)
        if packet.kind is Kind.GOODBYE:
            self._lost(packet.body.decode())
        elif packet.kind is Kind.FACTS:
            self._facts = decode_facts(packet.body)
        elif packet.generation == self._generation:
            self._inbox.append(packet)
        self._reading = False
        return True

    def _read_descriptor(self) -> bytes:
        data, descriptor = receive_packet(self._connection)
        if descriptor is None and data:
            self._lacks = True
        elif descriptor is not None:
            try:
                self._mappings.add(decode_packet(data).slab, descriptor)
            except OSError:
                self._lacks = True
        return data

    def _again(self) -> None:
        """Orders all items again that are not acknowledged.

        Raises:
            OSError: the memory of a batch could not be mapped, and no memory of other batches can be unmapped.
        """
        lacks, self._lacks = self._lacks, False
        self._generation += 1
        self._inbox.clear()
        self._order((Ask.AGAIN, self._generation))
        self._reading = self._asked = False
        if lacks and not self._mappings.forget():
            cure = "close files, or raise the limit with `ulimit -n`"
            raise OSError(errno.EMFILE, f"too many open files: the memory of a batch cannot be mapped; {cure}")

    def _ask_facts(self, seconds: float) -> dict[str, Any]:
        with self._locked():
            self._facts = None
            self._release()
            self._order((Ask.FACTS, 0))
            deadline = time.monotonic() + seconds
            self._await_facts(deadline)
            assert self._facts is not None
            return self._facts

    def _await_facts(self, deadline: float) -> None:
        while self._facts is None:
            if not self._read() and not self._wait(deadline):
                raise BatchTimeout(f"the server {self.name!r} (pid {self._welcome.pid}) does not answer")

    def _order(self, *orders: tuple[Ask, int]) -> None:
        """Sends orders; raises LoaderClosed if the server has ended."""
        if self._ending is not None:
            raise LoaderClosed(self._ending)
        try:
            self._send(encode_orders(orders))
        except (BrokenPipeError, ConnectionResetError):
            self._find_ending()

    def _send(self, data: bytes) -> None:
        try:
            self._connection.send(data)
        except BlockingIOError:  # the server is stopped, or very busy
            is_ready(self._connection, select.POLLOUT, _ANSWER_S)
            self._connection.send(data)

    def _find_ending(self) -> None:
        """Reads what the server has said before it ended; raises LoaderClosed."""
        while self._read():
            pass
        self._lost("without a message, so it was probably killed")

    def _lost(self, why: str) -> None:
        who = f"the server {self.name!r} (pid {self._welcome.pid}) has ended: {why}"
        self._hang_up(f"{who}; start it again from its last state, and call reconnect() on this loader")
        raise LoaderClosed(str(self._ending))

    def _hang_up(self, why: str) -> None:
        if self._ending is None:
            self._keep_lent()
            self._ending = why
            close_end(self._connection)
            self._mappings.forget()
            self._inbox.clear()
            for thread, kept in list(self._kept.items()):
                if not kept.acknowledged:  # a new server sends it again
                    del self._kept[thread]

    def _keep_lent(self) -> None:
        """Tells the server that the program may use its batches after this loader; see NOTE [kept memory]."""
        ended = [Ended(item, True) for item in self._mappings.lent]
        orders = self._releases([*self._mappings.ended(), *ended])
        if orders:
            with suppress(OSError):  # it has ended
                self._send(encode_orders(orders))

    def _locked(self) -> Lock:
        if os.getpid() != self._pid:
            raise RuntimeError("this loader belongs to the parent process; call attach in the forked child")
        return self._lock


class ServedIterator(Iterator[Batch]):
    """One epoch of a served loader.

    Attributes:
        epoch: its number; None before the first batch.
        ended: whether the epoch has ended.
    """

    def __init__(self, loader: ServedLoader[Batch]) -> None:
        self._loader = loader
        self.epoch: int | None = None
        self.ended = False

    def __iter__(self) -> ServedIterator[Batch]:
        return self

    def __next__(self) -> Batch:
        """The next batch.

        Raises:
            BatchTimeout: no batch came within `timeout` seconds.
            LoaderClosed: the server has ended, or the loader was closed.
            Exception: the error that the loader of the server has raised for this batch.
        """
        return self._loader.next_of(self)


def attach(
    name: str,
    output: str | Callable[[Any], Any] | None = None,
    timeout: float | None = 120,
    pin_memory: bool = False,
    wait: float = 10.0,
) -> ServedLoader[Any]:
    """Reads the batches of the loader that another program of the same user on this machine serves.

    With `each="all"`, NumPy arrays of a batch are read-only, since other programs read the same memory.

    Args:
        name: that of the server.
        output, timeout, pin_memory: as for `DataLoader`.
        wait: how many seconds to wait for the server to start.

    Returns:
        A `ServedLoader`. Iterate over it as over a loader; close it when you are done, since others may wait for it.

    Raises:
        ValueError: an argument is wrong.
        ConnectionRefusedError: no server of this name runs, or it has another version of gluonloader.
    """
    if not isinstance(name, str) or not is_name(name):
        raise bad_argument("name", name, "must be 1 to 64 letters, digits and characters of _.:-")
    check_flags(pin_memory=pin_memory)
    delivery = choose_delivery(True, timeout, output, bool(pin_memory), 0)
    return ServedLoader(name, timeout, delivery.convert, wait)


def _enter(name: str, hello: Hello, wait: float) -> tuple[socket.socket, Welcome]:
    """A connection to the server; waits for the server to start."""
    deadline = time.monotonic() + wait
    while True:
        connection = _connect(name)
        welcome = None if connection is None else _welcomed(name, connection, hello)
        if connection is not None and welcome is not None:
            return connection, welcome
        if time.monotonic() > deadline:
            others = ", ".join(map(repr, running())) or "none"
            what = f"no server {name!r} runs on this machine (running: {others})"
            raise _refused(f"{what}; start it with gluonloader.serve(loader, {name!r})")
        time.sleep(_LOOK_S)


def _welcomed(name: str, connection: socket.socket, hello: Hello) -> Welcome | None:
    """The answer of the server; None, and the connection is closed, if the server ends just now."""
    answer = None
    try:
        with suppress(BrokenPipeError, ConnectionResetError):
            answer = _answer(connection, hello)
    finally:
        if not isinstance(answer, Welcome):
            close_end(connection)
    if isinstance(answer, Refused):
        raise _refused(f"the server {name!r}: {answer.why}")
    return answer


def _answer(connection: socket.socket, hello: Hello) -> Welcome | Refused | None:
    connection.send(encode(hello))
    if not is_ready(connection, select.POLLIN, _ANSWER_S):
        return Refused(f"it has not answered within {_ANSWER_S:g} s; it is stopped, or its dataset holds the GIL")
    data = connection.recv(MESSAGE_BYTES)
    return decode_answer(data) if data else None


def _refused(text: str) -> ConnectionRefusedError:
    return ConnectionRefusedError(errno.ECONNREFUSED, text)


def _connect(name: str) -> socket.socket | None:
    """A connection to the server of this name; None if there is none."""
    with no_fork:
        connection = track_end(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    is_ours = False
    try:
        connection.settimeout(None)  # the program may have set another default
        with suppress(ConnectionRefusedError):
            connection.connect(address_of(name))
            is_ours = peer(connection).uid == os.geteuid()
        connection.setblocking(False)
    finally:
        if not is_ours:
            close_end(connection)
    return connection if is_ours else None
