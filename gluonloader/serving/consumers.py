"""The consumers of a server: who is attached, what each of them says and gets.

    consumer --Hello--> guest --Welcome--> attached          attached --instructions--> distribution --Item--> attached

It belongs to the thread "serve"; see server.py.
"""

from __future__ import annotations

import os
import select
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import bad_argument, shortened
from ..wire.descriptors import FULL
from ..wire.door import RETRY_S, Door, Guest
from ..wire.ends import close_end
from ..wire.greeting import Refused, decode, encode, library_version
from ..wire.names import NoRoom, OtherUser, connect, listen
from .distribution import Distribution, Item
from .messages import (
    MESSAGE_BYTES,
    Ask,
    Hello,
    Instruction,
    Kind,
    Packet,
    Welcome,
    address_of,
    decode_instructions,
    facts_packets,
    receive_instructions,
    send_packet,
)

_QUEUE: Final = 256  # consumers that wait until they are accepted


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


class Consumers:
    """The connections of a server.

    Args:
        distribution: what the consumers read.
        welcome: what a new consumer has to know.
        facts: returns what a consumer may ask for; its argument is the number of the consumer.

    Attributes:
        poll: reports what `handle` has to handle; the owner may register more descriptors.
        attached: the consumers, by number, which is that of the descriptor.
    """

    def __init__(
        self, name: str, distribution: Distribution, welcome: Welcome, facts: Callable[[int], dict[str, Any]]
    ) -> None:
        self._distribution, self._welcome, self._facts = distribution, welcome, facts
        self.attached: dict[int, Attached] = {}
        self.poll = select.poll()
        self._door = Door(_listen(name), self.poll, MESSAGE_BYTES)

    def send(self) -> float | None:
        """Sends what is due; returns after how many seconds this has to be called again, None for never."""
        for consumer, item in self._distribution.due():
            self.attached[consumer].pending.append(item)
        for one in list(self.attached.values()):
            if one.pending and not one.writes:
                self._send_pending(one)
        self._door.resume()
        return RETRY_S if self._door.paused else None

    def retire(self, slab: int) -> None:
        """Tells the consumers that they may unmap a slab."""
        for one in self.attached.values():
            if one.known.pop(slab, None) is not None:
                one.pending.append(Packet(Kind.RETIRED, slab=slab))

    def handle(self, descriptor: int, event: int) -> None:
        """Handles an event of a connection."""
        if self._door.watches(descriptor):
            if (guest := self._door.handle(descriptor)) is not None:
                self._let_in(guest)
        elif (one := self.attached.get(descriptor)) is not None:
            if event & select.POLLOUT:
                self._send_pending(one)
            if event & ~select.POLLOUT:
                self._hear(one)

    def close(self, why: str) -> None:
        """Tells all consumers that the server ends, and closes the connections."""
        for one in list(self.attached.values()):
            self._hear(one)  # what it has received, for the position
        for place in self._distribution.places.values():
            for item in place.held.values():
                _stop_using(item)
        for one in self.attached.values():
            with suppress(OSError):  # it is gone, or does not read
                send_packet(one.connection, Packet(Kind.GOODBYE, body=shortened(why).encode()), None)
        self._door.close()
        for one in self.attached.values():
            close_end(one.connection)

    def _let_in(self, guest: Guest) -> None:
        """Adds a consumer, unless it has another version."""
        connection = guest.connection
        try:
            hello = decode(guest.message, Hello)
            ours = library_version()
            if hello.version != ours:
                versions = f"gluonloader {hello.version} here, but {ours} in the server"
                connection.send(encode(Refused(f"{versions}; install the same version for both")))
                raise ValueError("another version")
            connection.send(encode(self._welcome))
        except (OSError, ValueError):
            close_end(connection)
            return
        number = connection.fileno()
        self.attached[number] = Attached(connection, guest.pid)
        self.poll.register(connection, select.POLLIN)
        self._distribution.attach(number)

    def _hear(self, one: Attached) -> None:
        """Reads the instructions of a consumer until there are no more; it is gone if the connection has ended."""
        while (data := self._instructions(one)) is not None:
            try:
                instructions = list(decode_instructions(data))
            except ValueError:  # it is no consumer
                data = b""
            if not data:
                self._forget(one)
                return
            for instruction in instructions:
                self._obey(one, instruction)

    def _instructions(self, one: Attached) -> bytes | None:
        """The next message of a consumer; b"" if it is gone, None if there is none."""
        try:
            return receive_instructions(one.connection)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _forget(self, one: Attached) -> None:
        number = one.connection.fileno()
        for item in self._distribution.places[number].held.values():
            _stop_using(item)  # it has died, and a forked child of it may still read them
        del self.attached[number]
        self._distribution.detach(number)
        self.poll.unregister(one.connection)
        close_end(one.connection)

    def _obey(self, one: Attached, instruction: Instruction) -> None:
        distribution, consumer = self._distribution, one.connection.fileno()
        if instruction.ask is Ask.ACKNOWLEDGE:
            distribution.acknowledge(consumer, instruction.number)
        elif instruction.ask is Ask.RELEASE:
            distribution.release(consumer, instruction.number)
        elif instruction.ask is Ask.KEEP:
            _stop_using(distribution.places[consumer].held.get(instruction.number))
            distribution.release(consumer, instruction.number)
        elif instruction.ask is Ask.SKIP:
            distribution.skip(consumer, instruction.number)
        elif instruction.ask is Ask.AGAIN:
            one.generation = instruction.number
            one.known.clear()
            answers = [packet for packet in one.pending if isinstance(packet, Packet)]
            one.pending = deque([*distribution.again(consumer), *answers])
        elif instruction.ask is Ask.FACTS:
            one.pending.extend(facts_packets(instruction.number, self._facts(consumer)))

    def _send_pending(self, one: Attached) -> None:
        """Sends what the consumer's queue takes; the rest is sent when it has read."""
        full = False
        try:
            self._send_all(one)
        except OSError as error:
            if error.errno not in FULL:
                one.pending.clear()  # it is gone; `_hear` reads its last instructions
            else:
                full = True
        if full != one.writes:
            one.writes = full
            self.poll.modify(one.connection, select.POLLIN | (select.POLLOUT if full else 0))

    def _send_all(self, one: Attached) -> None:  # see NOTE [loops and try] in interrupts.py
        while one.pending:
            self._send(one, one.pending[0])
            one.pending.popleft()

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
        packet.offset, packet.length, packet.tail = parcel.head.offset, parcel.head.length, parcel.head.tail
        size = parcel.slab.size
        packet.scarce = parcel.scarce
        packet.brings = one.known.get(parcel.number, 0) < parcel.size
        if not packet.brings:
            send_packet(one.connection, packet, None)
            return
        with _read_only(parcel.slab.fd) as descriptor:
            send_packet(one.connection, packet, descriptor)
        one.known[parcel.number] = size


@contextmanager
def _read_only(fd: int) -> Iterator[int]:
    """Within the block, a descriptor of the same memory that can neither write to it nor make it smaller."""
    try:
        descriptor = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
    except OSError:  # there is no /proc, or too many files are open
        yield fd
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _stop_using(item: Item | None) -> None:
    """Lets nobody use the memory of a batch again; see NOTE [kept memory] in mapping.py."""
    if item is not None:
        item.content.slab.inherited = True


def _owner(address: str) -> str:
    """Says who has an address."""
    try:
        connection = connect(address, 0)
    except OtherUser as error:
        return f"a process of another user ({error}) has it"
    except NoRoom:
        return "a process that accepts no connection has it"
    if connection is not None:
        close_end(connection)
    return "a server of this name runs already; end it"


def _listen(name: str) -> socket.socket:
    listener = listen(address_of(name), _QUEUE)
    if listener is None:
        raise bad_argument("name", name, f"{_owner(address_of(name))}; choose another name")
    return listener
