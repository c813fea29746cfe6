"""What a server and a consumer send each other after the greeting.

    consumer <--Packet-- server              a batch, an error, the end of an epoch, or facts
    consumer --instructions--> server        numbers only, see `Ask`

The server reads a Hello as JSON, and instructions as numbers, and takes no descriptors. So nothing that a consumer
sends can run code in the server. A consumer unpickles what the server sends, after it has seen that both belong to one
user.
"""

from __future__ import annotations

import os
import pickle
import re
import socket
import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from ..errors import bad_argument
from ..memory.slab import Head
from ..messages import message
from ..wire.descriptors import first_byte, rights
from ..wire.greeting import Welcome

BODY_BYTES: Final = 32 * 1024  # the largest body of a packet

_PREFIX: Final = "\0gluonloader-serve-"
_NAME: Final = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_PACKET: Final = struct.Struct("<BQQQqQQQI?")
_BRINGS: Final = 0x80  # in the first byte of a packet: a descriptor comes with it
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


@message(frozen=True, slots=True)
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


class Packet(NamedTuple):
    """A message to a consumer.

    Attributes:
        generation: how often the consumer has sent `AGAIN`; packets of earlier generations are void.
        number: of the item; each item is acknowledged by its number. Of facts: the number of the question.
        epoch, batch: which batch it is. Of facts, `batch` says how many parts follow.
        slab: the number of the slab that contains the batch.
        offset, length, tail: where the head lies in the slab, see `Head`.
        scarce: the server has little room left, so the consumer copies the batch; see NOTE [last room] in parcel.py.
        body: the pickled error or facts, or a text.
    """

    kind: Kind
    generation: int = 0
    number: int = 0
    epoch: int = 0
    batch: int = -1
    slab: int = 0
    offset: int = 0
    length: int = 0
    tail: int = 0
    scarce: bool = False
    body: bytes = b""

    @property
    def head(self) -> Head:
        return Head(self.offset, self.length, self.tail)


def decode_packet(data: bytes) -> Packet:
    kind, *numbers = _PACKET.unpack_from(data)
    return Packet._make([Kind(kind & ~_BRINGS), *numbers, data[_PACKET.size :]])


def brings_descriptor(connection: socket.socket) -> bool:
    """Whether a descriptor comes with the next packet; raises BlockingIOError if none has arrived."""
    first = first_byte(connection)
    return first is not None and first & _BRINGS != 0


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
    """Sends a packet, with the descriptor of its slab if the consumer needs one; raises OSError as `sendmsg`."""
    kind, *numbers, body = packet
    if descriptor is None:
        connection.sendmsg([_PACKET.pack(kind, *numbers), body])
    else:
        connection.sendmsg([_PACKET.pack(kind | _BRINGS, *numbers), body], rights([descriptor]))


def facts_packets(question: int, facts: Mapping[str, Any]) -> list[Packet]:
    """The packets of an answer, whose bodies together are a pickle; a position may need several."""
    data = pickle.dumps(facts)
    parts = [data[start : start + BODY_BYTES] for start in range(0, len(data), BODY_BYTES)]
    left = range(len(parts) - 1, -1, -1)
    return [Packet(Kind.FACTS, number=question, batch=more, body=part) for part, more in zip(parts, left, strict=True)]
