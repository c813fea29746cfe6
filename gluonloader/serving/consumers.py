"""The consumers of a server: who is attached, what each of them says and gets.

    consumer --instructions--> distribution --Item--> pending --Packet--> consumer

It belongs to the thread "serve"; see server.py.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import bad_argument, shortened
from ..wire.clients import Client, Clients
from ..wire.descriptors import receive_bytes
from ..wire.ends import close_end
from ..wire.greeting import MESSAGE_BYTES, Hello
from ..wire.names import NoRoom, OtherUser, connect, listen
from .distribution import Distribution, Item
from .messages import (
    Ask,
    ConsumerWelcome,
    Kind,
    Packet,
    address_of,
    decode_instructions,
    facts_packets,
    send_packet,
)
from .parcel import Parcel

_QUEUE: Final = 256  # consumers that wait until they are accepted


@dataclass(eq=False, slots=True)
class Consumer(Client):
    """A program that reads the batches of the server; items and packets are pending.

    Attributes:
        generation: see `Packet`.
        known: how many bytes of each slab the consumer can map with the descriptor that it has got, by number.
    """

    generation: int = 0
    known: dict[int, int] = field(default_factory=dict)


class Consumers(Clients[Consumer]):
    """The consumers of a server; each has the number of its descriptor.

    Args:
        distribution: what the consumers read.
        welcome: what a new consumer has to know.
        facts: returns what a consumer may ask for; its argument is the number of the consumer.
    """

    def __init__(
        self, name: str, distribution: Distribution, welcome: ConsumerWelcome, facts: Callable[[int], dict[str, Any]]
    ) -> None:
        super().__init__(_listen(name), welcome, Hello)
        self._distribution, self._facts = distribution, facts

    def send_due(self) -> float | None:
        """Sends what is due; returns after how many seconds this has to be called again, None for never."""
        for consumer, item in self._distribution.due():
            self.clients[consumer].pending.append(item)
        return self.send_pending()

    def retire(self, slab: int) -> None:
        """Tells the consumers that they may unmap a slab."""
        for one in self.clients.values():
            if one.known.pop(slab, None) is not None:
                one.pending.append(Packet(Kind.RETIRED, slab=slab))

    def end(self, why: str) -> None:
        """Tells all consumers that the server ends, and closes the connections."""
        for one in list(self.clients.values()):
            self.hear(one)  # what it has received, for the position
        for place in self._distribution.places.values():
            for item in place.held.values():
                _stop_using(item)
        for one in self.clients.values():
            with suppress(OSError):  # it is gone, or does not read
                send_packet(one.connection, Packet(Kind.GOODBYE, body=shortened(why).encode()), None)
        self.close()

    def admit(self, connection: socket.socket, pid: int, hello: Hello) -> Consumer:
        return Consumer(connection, pid)

    def joined(self, one: Consumer) -> None:
        self._distribution.attach(one.connection.fileno())

    def hear(self, one: Consumer) -> None:
        """Reads the instructions of a consumer until there are no more; it is gone if the connection has ended."""
        while (instructions := self._instructions(one)) is not None:
            for ask, number in instructions:
                self._obey(one, ask, number)
            if not instructions:
                self.forget(one)
                return

    def _instructions(self, one: Consumer) -> list[tuple[Ask, int]] | None:
        """The next message of a consumer; empty if it is gone, None if there is none."""
        try:
            return decode_instructions(receive_bytes(one.connection, MESSAGE_BYTES))
        except BlockingIOError:
            return None
        except (OSError, ValueError):  # or it is no consumer
            return []

    def forget(self, one: Consumer) -> None:
        number = one.connection.fileno()
        for item in self._distribution.places[number].held.values():
            _stop_using(item)  # it has died, and a forked child of it may still read them
        self._distribution.detach(number)
        super().forget(one)
        close_end(one.connection)

    def _obey(self, one: Consumer, ask: Ask, number: int) -> None:
        distribution, consumer = self._distribution, one.connection.fileno()
        if ask is Ask.ACKNOWLEDGE:
            distribution.acknowledge(consumer, number)
        elif ask is Ask.RELEASE:
            distribution.release(consumer, number)
        elif ask is Ask.KEEP:
            _stop_using(distribution.places[consumer].held.get(number))
            distribution.release(consumer, number)
        elif ask is Ask.SKIP:
            distribution.skip(consumer, number)
        elif ask is Ask.AGAIN:
            one.generation = number
            one.known.clear()
            answers = [packet for packet in one.pending if isinstance(packet, Packet)]
            one.pending = deque([*distribution.again(consumer), *answers])
        elif ask is Ask.FACTS:
            one.pending.extend(facts_packets(number, self._facts(consumer)))

    def send(self, one: Consumer, what: Item | Packet) -> None:
        if isinstance(what, Packet):
            send_packet(one.connection, what, None)
            return
        about = what.kind, one.generation, what.number, what.epoch, what.batch
        if what.kind is not Kind.BATCH:
            send_packet(one.connection, Packet(*about, body=what.content or b""), None)
            return
        parcel: Parcel = what.content
        head, size = parcel.head, parcel.slab.size
        packet = Packet(*about, parcel.number, head.offset, head.length, head.tail, parcel.scarce)
        if one.known.get(parcel.number, 0) >= head.end:
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


def _listen(name: str) -> socket.socket:
    address = address_of(name)
    listener = listen(address, _QUEUE)
    if listener is None:
        raise bad_argument("name", name, f"{_owner(address)}; choose another name")
    return listener


def _owner(address: str) -> str:
    """Says who has an address."""
    try:
        connection = connect(address, 0)
    except (OtherUser, NoRoom) as error:
        return str(error)
    if connection is not None:
        close_end(connection)
    return "a server of this name runs already; end it"
