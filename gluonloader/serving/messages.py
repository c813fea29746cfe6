"""What a server and a consumer send each other after the greeting.

    consumer <--Packet-- server              a batch, an error, the end of an epoch, or facts as JSON
    consumer --instructions--> server        numbers only, see `Ask`

The server reads a Hello as JSON, and instructions as numbers, and takes no descriptors. So nothing that a consumer
sends can run code in the server. A consumer unpickles what the server sends, after it has seen that both belong to one
user.
"""

from __future__ import annotations

import json
import os
import re
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from ..errors import bad_argument
from ..wire.descriptors import receive, rights
from ..wire.greeting import MESSAGE_BYTES, Welcome

INLINE_BYTES: Final = 32 * 1024  # the largest head or error that a packet contains; larger heads lie in the slab

_PREFIX: Final = "\0gluonloader-serve-"
_NAME: Final = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_PACKET: Final = struct.Struct("<BBQQQqQQQQI")
_BRINGS, _SCARCE = 1, 2  # flags of a packet
_INSTRUCTION: Final = struct.Struct("<BQ")


def check_name(name: str) -> None:
    """Raises a ValueError for a text that cannot be the name of a server."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise bad_argument("name", name, "must be 1 to 64 ASCII letters, digits and characters of _.:-")


def address_of(name: str) -> str:
    """The address of the abstract socket of this user's server with this name."""
    return f"{_PREFIX}{os.geteuid()}-{name}"


def running() -> list[str]:
    """The names of the servers of this user that run on this machine."""
    prefix = address_of("").replace("\0", "@")
    try:
        with open("/proc/net/unix", errors="replace") as file:
            found = {line.split(prefix, 1)[1].strip() for line in file if prefix in line}
    except OSError:
        return []
    return sorted(found)


@dataclass(frozen=True, slots=True)
class ConsumerWelcome(Welcome):
    """The consumer is attached.

    Attributes:
        length: the number of batches in an epoch; None if it is not known.
        batch_size: that of the loader.
    """

    length: int | None
    batch_size: int | None


class Kind(IntEnum):
    """What a packet is."""

    BATCH = 1
    ERROR = 2
    END = 3  # of an epoch
    FACTS = 4  # the answer to `Ask.FACTS`
    GOODBYE = 5  # the server ends; the body says why
    RETIRED = 6  # the server does not use this slab any more


@dataclass(slots=True)  # not frozen, because creating a frozen dataclass is slower
class Packet:
    """A message to a consumer.

    Attributes:
        generation: how often the consumer has sent `AGAIN`; packets of earlier generations are void.
        number: of the item; each item is acknowledged by its number. Of facts: the number of the question.
        epoch, batch: which batch it is. Of facts, `batch` says how many parts follow.
        slab, size: the number of the slab that contains the batch, and how many of its bytes to map.
        offset, length, tail: where the head lies in the slab, see `Head`; length 0 if the body is the head.
        brings: whether the descriptor of the slab comes with the packet.
        scarce: the server has little room left, so the consumer copies the batch; see NOTE [last room] in parcel.py.
        body: the head, the pickled error, or JSON.
    """

    kind: Kind
    generation: int = 0
    number: int = 0
    epoch: int = 0
    batch: int = -1
    slab: int = 0
    size: int = 0
    offset: int = 0
    length: int = 0
    tail: int = 0
    brings: bool = False
    scarce: bool = False
    body: bytes = b""

    def encode(self) -> bytes:
        where = self.slab, self.size, self.offset, self.length, self.tail
        flags = _BRINGS * self.brings + _SCARCE * self.scarce
        about = self.kind, flags, self.generation, self.number, self.epoch, self.batch
        return _PACKET.pack(*about, *where) + self.body


def decode_packet(data: bytes) -> Packet:
    kind, flags, *numbers = _PACKET.unpack_from(data)
    packet = Packet(Kind(kind), *numbers)
    packet.brings, packet.scarce, packet.body = bool(flags & _BRINGS), bool(flags & _SCARCE), data[_PACKET.size :]
    return packet


class Ask(IntEnum):
    """What a consumer says; the number that comes with it is named here."""

    ACKNOWLEDGE = 1  # an item: the consumer has received it
    RELEASE = 2  # an item: nothing refers to its memory any more
    KEEP = 3  # an item: its memory must not be used again, see NOTE [kept memory] in mapping.py
    SKIP = 4  # an epoch: the consumer reads nothing more of it
    AGAIN = 5  # a generation: send every item again that is not acknowledged, with the descriptor of its slab
    FACTS = 6  # the number of the question: statistics and the position


def encode_instructions(instructions: Iterable[tuple[Ask, int]]) -> bytes:
    return b"".join([_INSTRUCTION.pack(*instruction) for instruction in instructions])


def decode_instructions(data: bytes) -> list[tuple[Ask, int]]:
    """The instructions; raises ValueError if the bytes are no instructions."""
    if len(data) % _INSTRUCTION.size:
        raise ValueError("not a message of gluonloader")
    return [(Ask(ask), number) for ask, number in _INSTRUCTION.iter_unpack(data)]


def send_packet(connection: socket.socket, packet: Packet, descriptor: int | None) -> None:
    """Sends a packet; raises OSError if the consumer is gone or its queue is full."""
    connection.sendmsg([packet.encode()], rights([] if descriptor is None else [descriptor]))


def receive_packet(connection: socket.socket) -> tuple[bytes, int | None]:
    """A packet, and the descriptor that came with it; b"" if the connection has ended.

    The descriptor is None if there was none, or if this process may open no more files.

    Raises:
        BlockingIOError: no packet has arrived.
    """
    received = receive(connection, MESSAGE_BYTES, most=1)
    return received.data, received.descriptors[0] if received.descriptors else None


def brings_descriptor(connection: socket.socket) -> bool:
    """Whether the next packet brings a descriptor; raises BlockingIOError if no packet has arrived."""
    try:
        start = connection.recv(2, socket.MSG_PEEK)
    except ConnectionResetError:  # see `receive`
        start = connection.recv(2, socket.MSG_PEEK)
    return len(start) > 1 and bool(start[1] & _BRINGS)


def facts_packets(question: int, facts: Mapping[str, Any]) -> list[Packet]:
    """The packets of an answer; a position may need several."""
    data = json.dumps(facts).encode()
    parts = [data[start : start + INLINE_BYTES] for start in range(0, len(data), INLINE_BYTES)]
    left = range(len(parts) - 1, -1, -1)
    return [Packet(Kind.FACTS, number=question, batch=more, body=part) for part, more in zip(parts, left, strict=True)]


def decode_facts(body: bytes) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(body)
    return facts
