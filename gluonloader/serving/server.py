"""`serve`: one loader makes the batches for several programs.

    thread "read"    loader --next--> Item --+--> thread "serve": stream --Packet--> consumer, another process
                       ^                     |                      ^
                       +-- one item more ----+                      +-- acknowledge, release

The two threads share only `Reading`. All other state belongs to the thread "serve", which holds `_lock` while it works;
the methods of `Server` take it, too. reading.py reads the loader, stream.py decides who gets what, parcel.py finds the
memory of a batch. The consumer's side is client.py.
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import select
import socket
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from ..checks import check_int
from ..describe import call, describe, short_repr
from ..errors import bad_argument, text_of
from ..executors.lanes.ends import close_end, open_pair, ring, track_end
from ..executors.shared.messages import library_version, peer
from ..forks import no_fork
from ..loader import DataLoader
from ..locks import Lock
from .messages import (
    MESSAGE_BYTES,
    Ask,
    Kind,
    Order,
    Packet,
    Refused,
    Welcome,
    address_of,
    decode_hello,
    decode_orders,
    encode,
    encode_facts,
    is_name,
    receive_orders,
    send_packet,
)
from .parcel import Parcels
from .reading import Reading
from .stats import ConsumerStats, ServerStats
from .stream import ForAll, ForOne, Item

_QUEUE: Final = 256  # consumers that wait until they are accepted
_RETRY_S: Final = 1.0  # how long to wait before a connection is accepted again if there are too many open files
_PATIENCE_S: Final = 30.0  # how long the consumers wait for one of them before the log says so
_FULL: Final = (errno.EAGAIN, errno.ENOBUFS, errno.ETOOMANYREFS)  # errors of a queue that takes nothing now
_WINDOW: Final = 4  # items that the slowest consumer of "all" may be behind

_log = logging.getLogger("gluonloader")


@dataclass(eq=False, slots=True)
class Attached:
    """A consumer.

    Attributes:
        generation: see `Packet`.
        known: how many bytes of each slab the consumer can map with the descriptor that it has got, by number.
        pending: what it has to get, in order.
        writes: whether the poll object watches for room in its queue.
    """

    connection: socket.socket
    pid: int
    generation: int = 0
    known: dict[int, int] = field(default_factory=dict)
    pending: deque[Item | Packet] = field(default_factory=deque)
    writes: bool = False


class Server:
    """Serves a loader to the programs that call `attach`; made by `serve`."""

    def __init__(self, loader: DataLoader[Any], name: str, each: str, slow: str, consumers: int) -> None:
        self.name, self._each, self._least = name, each, consumers
        self._loader, self._before = loader, _state_of(loader)
        self._lock = Lock()
        self._stream: ForAll | ForOne = ForOne() if each == "one" else ForAll(_WINDOW, slow == "skip")
        self._listener = _listen(name)
        self._woken, self._waker = open_pair()
        self._guests: dict[int, socket.socket] = {}  # connected, but no Hello received; by descriptor
        self._attached: dict[int, Attached] = {}  # by descriptor
        self._deaf_until: float | None = None  # there are too many open files to accept a connection
        self._begun = False  # as many consumers have attached as `consumers` says
        self._stuck_since: float | None = None  # since when consumers wait for another one
        self._closing = self._warned = False
        self._ended = threading.Event()
        self._poll = select.poll()
        for one in (self._woken, self._listener):
            one.setblocking(False)
            self._poll.register(one, select.POLLIN)
        self._parcels = Parcels(_WINDOW)
        self._reading = Reading(loader, self._parcels, f"the server {name!r} (pid {os.getpid()})", self._wake)
        self._thread = threading.Thread(target=self._run, name="gluonloader-serve", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    # -- for the program ----------------------------------------------------------------------------------------------

    def wait(self) -> None:
        """Waits until `close()` is called, or the loader has ended with an error.

        Raises:
            Exception: the error that has ended the loader, for example `WorkerStartError`.
        """
        self._ended.wait()
        if self._reading.error is not None and not self._closing:
            raise self._reading.error

    def state_dict(self) -> dict[str, Any]:
        """The position up to which all consumers have received all batches, for `loader.load_state_dict`.

        A new server, whose loader has loaded this state, continues there.
        """
        with self._lock:
            return self._stream.state or self._before or self._loader.state_dict()

    def stats(self) -> ServerStats:
        """How many batches each consumer has received, and for whom the others wait."""
        with self._lock:
            return self._stats()

    def close(self) -> None:
        """Tells all consumers that the server ends; a second call does nothing. The loader stays open."""
        atexit.unregister(self.close)
        self._closing = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @short_repr
    def __repr__(self) -> str:
        closed = ["closed"] * self._closing
        return call(self, repr(self.name), f"each={self._each!r}", describe(self._loader), *closed)

    # -- the thread "serve" -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        why = "it was closed"
        try:
            while not self._closing and self._reading.error is None:
                with self._lock:
                    self._advance()
                for descriptor, event in self._poll.poll(self._timeout_ms()):
                    with self._lock:
                        self._handle(descriptor, event)
            if self._reading.error is not None:
                why = f"its loader raised {type(self._reading.error).__name__}: {text_of(self._reading.error)}"
        except Exception as error:
            why = f"it failed: {type(error).__name__}: {text_of(error)}"
            raise
        finally:
            self._end(why)

    def _stop_using(self, item: Item | None) -> None:
        """Lets nobody use the memory of a batch again; see NOTE [kept memory] in mapping.py."""
        if item is not None:
            item.content.slab.inherited = True

    def _end(self, why: str) -> None:
        self._reading.close()
        with self._lock:
            self._goodbye(why)
            for place in self._stream.places.values():
                for item in place.held.values():
                    self._stop_using(item)
            for connection in (self._listener, self._woken, self._waker, *self._guests.values()):
                close_end(connection)
            for one in self._attached.values():
                close_end(one.connection)
            self._parcels.close()
        self._ended.set()

    def _goodbye(self, why: str) -> None:
        for one in self._attached.values():
            with suppress(OSError):  # it is gone, or does not read
                send_packet(one.connection, Packet(Kind.GOODBYE, body=why.encode()), None)

    def _wake(self) -> None:
        ring(self._waker)

    def _timeout_ms(self) -> float | None:
        return 1000 * _RETRY_S if self._deaf_until is not None or self._stuck_since is not None else None

    def _advance(self) -> None:
        """Does everything that is possible now."""
        stream, reading = self._stream, self._reading
        for item in reading.take():
            stream.add(item)
        self._begun = self._begun or len(self._attached) >= self._least
        if self._begun and not reading.busy and stream.wants():
            reading.start()
        for due in list(stream.due()):
            one = self._attached[due.consumer]
            one.pending.append(due.item)
        for one in list(self._attached.values()):
            if one.pending and not one.writes:
                self._send_pending(one)
        for item in stream.take_freed():
            item.content.free()
            item.content = None
        if self._begun and not reading.busy and stream.wants():
            reading.start()
        self._watch_for_slow()
        if self._deaf_until is not None and time.monotonic() >= self._deaf_until:
            self._deaf_until = None
            self._poll.register(self._listener, select.POLLIN)

    def _watch_for_slow(self) -> None:
        """Logs once if the others wait for a consumer for a long time."""
        slow = self._stream.waits_for()
        if not slow or len(slow) == len(self._attached) or self._warned:
            self._stuck_since = None
            return
        now = time.monotonic()
        self._stuck_since = self._stuck_since or now
        if now - self._stuck_since > _PATIENCE_S:
            self._warned = True
            pids = ", ".join(str(self._attached[number].pid) for number in slow)
            cure = 'end it, or pass slow="skip" to serve'
            _log.warning("server %r: consumers have waited %.0f s for pid %s; %s", self.name, _PATIENCE_S, pids, cure)

    def _handle(self, descriptor: int, event: int) -> None:
        if descriptor == self._woken.fileno():
            self._woken.recv(4096)
        elif descriptor == self._listener.fileno():
            self._accept()
        elif descriptor in self._guests:
            self._hear_guest(self._guests.pop(descriptor))
        elif (one := self._attached.get(descriptor)) is not None:
            if event & select.POLLOUT:
                self._send_pending(one)
            if event & ~select.POLLOUT and descriptor in self._attached:
                self._hear(one)

    def _accept(self) -> None:
        try:
            with no_fork:
                connection = track_end(self._listener.accept()[0])
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._poll.unregister(self._listener)
                self._deaf_until = time.monotonic() + _RETRY_S
            return
        connection.setblocking(False)
        if peer(connection).uid != os.geteuid():
            close_end(connection)
            return
        self._guests[connection.fileno()] = connection
        self._poll.register(connection, select.POLLIN)

    def _hear_guest(self, connection: socket.socket) -> None:
        """Reads the first message of a process that has connected."""
        try:
            hello = decode_hello(connection.recv(MESSAGE_BYTES))
            ours = library_version()
            if hello.version != ours:
                versions = f"gluonloader {hello.version} here, but {ours} in the server"
                connection.send(encode(Refused(f"{versions}; install the same version for both")))
                raise ValueError("another version")
            connection.send(encode(self._welcome()))
        except (OSError, ValueError):
            self._close(connection)
            return
        number = connection.fileno()
        self._attached[number] = Attached(connection, peer(connection).pid)
        self._stream.attach(number)
        if isinstance(self._stream, ForOne) and hello.epoch is not None:
            for start, stop in hello.received:
                self._stream.know(hello.epoch, range(start, stop))

    def _welcome(self) -> Welcome:
        try:
            length = len(self._loader)
        except (TypeError, NotImplementedError):
            length = None
        return Welcome(os.getpid(), self._each, length, self._loader.batch_size)

    def _hear(self, one: Attached) -> None:
        """Reads the orders of a consumer; it is gone if there are none."""
        try:
            data = receive_orders(one.connection)
            orders = list(decode_orders(data))
        except BlockingIOError:
            return
        except (OSError, ValueError):  # it is gone, or is no consumer
            data, orders = b"", []
        if not data:
            self._detach(one)
        for order in orders:
            self._obey(one, order)

    def _obey(self, one: Attached, order: Order) -> None:
        stream, consumer = self._stream, one.connection.fileno()
        if order.ask is Ask.ACKNOWLEDGE:
            stream.acknowledge(consumer, order.number)
        elif order.ask is Ask.KEEP:
            self._stop_using(stream.places[consumer].held.get(order.number))
            stream.release(consumer, order.number)
        elif order.ask is Ask.RELEASE:
            stream.release(consumer, order.number)
        elif order.ask is Ask.NEXT:
            stream.ask(consumer)
        elif order.ask is Ask.SKIP:
            stream.skip(consumer, order.number)
        elif order.ask is Ask.AGAIN:
            one.generation = order.number
            one.known.clear()
            one.pending = deque(stream.again(consumer))
        elif order.ask is Ask.FACTS:
            state = stream.state or self._before
            if self._each == "all":
                state = stream.places[consumer].state or state
            facts = {"stats": self._stats().as_json(), "state": state}
            one.pending.append(Packet(Kind.FACTS, body=encode_facts(facts)))

    def _send_pending(self, one: Attached) -> None:
        """Sends what the consumer's queue takes; the rest is sent when it has read."""
        full = False
        try:
            while one.pending:
                self._send(one, one.pending[0])
                one.pending.popleft()
        except OSError as error:
            if error.errno not in _FULL:
                one.pending.clear()  # it is gone; `_hear` reads its last orders
            else:
                full = True
        if full != one.writes:
            one.writes = full
            self._poll.modify(one.connection, select.POLLIN | (select.POLLOUT if full else 0))

    def _send(self, one: Attached, what: Item | Packet) -> None:
        if isinstance(what, Packet):
            what.generation = one.generation
            send_packet(one.connection, what, None)
            return
        packet = Packet(what.kind, one.generation, what.number, what.epoch, what.batch)
        if what.kind is not Kind.BATCH:
            packet.body = what.content or b""
            send_packet(one.connection, packet, None)
            return
        parcel = what.content
        packet.slab, packet.size, packet.body = parcel.number, parcel.size, parcel.inline
        packet.offset, packet.length, packet.spans = parcel.head.offset, parcel.head.length, parcel.head.spans
        size = parcel.slab.size
        packet.scarce = parcel.scarce
        packet.brings = one.known.get(parcel.number, 0) < parcel.size
        send_packet(one.connection, packet, parcel.slab.fd if packet.brings else None)
        if packet.brings:
            one.known[parcel.number] = size

    def _detach(self, one: Attached) -> None:
        number = one.connection.fileno()
        del self._attached[number]
        self._stream.detach(number)
        self._close(one.connection)

    def _close(self, connection: socket.socket) -> None:
        self._poll.unregister(connection)
        close_end(connection)

    def _stats(self) -> ServerStats:
        reading, stream = self._reading, self._stream
        slow = stream.waits_for()
        consumers = tuple(
            ConsumerStats(self._attached[number].pid, place.received, place.skipped, place.kept, number in slow)
            for number, place in stream.places.items()
        )
        counted = reading.epoch, reading.batches, self._parcels.copies, reading.made_s, reading.idle_s
        return ServerStats(self.name, os.getpid(), self._each, *counted, consumers)


def serve(
    loader: DataLoader[Any],
    name: str,
    each: Literal["all", "one"] = "all",
    slow: Literal["wait", "skip"] = "wait",
    consumers: int = 1,
) -> Server:
    """Serves the batches of a loader to other programs of the same user on this machine, which call `attach(name)`.

    The server runs in threads of this process, and makes batches while at least one consumer is attached. Batches that
    worker processes have made are not copied. Best is a program that does nothing else; see `docs/serving.md`.

    Args:
        loader: a `DataLoader`, without `output`: each consumer chooses its own.
        name: 1 to 64 letters, digits and characters of `_.:-`; no other running server of this user has it.
        each: "all" gives each batch to each consumer; "one" gives each batch to one consumer, the first that asks.
        slow: with `each="all"`: if a consumer is 4 batches behind, "wait" lets the others wait for it; "skip" lets it
            miss the oldest batches.
        consumers: how many consumers must be attached before the first batch is made.

    Returns:
        The `Server`; call its method `wait()` to serve until the program is interrupted.

    Raises:
        ValueError: an argument is wrong, or a server of this name runs already.
    """
    if not isinstance(loader, DataLoader):
        raise bad_argument("loader", loader, "must be a gluonloader.DataLoader")
    if not isinstance(name, str) or not is_name(name):
        raise bad_argument("name", name, "must be 1 to 64 letters, digits and characters of _.:-")
    if each not in ("all", "one"):
        raise bad_argument("each", each, 'must be "all" or "one"')
    if slow not in ("wait", "skip") or (slow == "skip" and each == "one"):
        raise bad_argument("slow", slow, 'must be "wait", or "skip" with each="all"')
    if sys.platform != "linux":
        raise bad_argument("name", name, "serving needs Linux")
    if loader.epochs.delivery.convert is not None:
        raise bad_argument("loader", loader, 'remove output and pin_memory here; pass output to attach, e.g. "torch"')
    return Server(loader, name, each, slow, check_int("consumers", consumers, 1))


def _state_of(loader: DataLoader[Any]) -> dict[str, Any] | None:
    """The position of a loader; None if its sampler or dataset has a state that JSON cannot store."""
    try:
        return loader.state_dict()
    except TypeError:
        return None


def _listen(name: str) -> socket.socket:
    with no_fork:
        listener = track_end(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    try:
        listener.bind(address_of(name))
        listener.listen(_QUEUE)
    except OSError as error:
        close_end(listener)
        if error.errno == errno.EADDRINUSE:
            raise bad_argument(
                "name", name, "a server of this name runs already; end it or choose another name"
            ) from None
        raise
    return listener
