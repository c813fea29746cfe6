"""The messages between a server and the ranks: short, as JSON, with descriptors.

    rank --Hello--> server
    rank <--Welcome, or Refused-- server
    rank <--NewLane, Ended, Broken-- server           each time that a worker has started, has ended, or cannot start
    rank <--Together-- server                         each time that a rank has joined or left
    rank <--Goodbye-- server                          when it leaves, unless it is the last one

A rank sends nothing after its `Hello`. The server reads it as JSON and takes no descriptors. So nothing that a rank
sends can run code in the server.
"""

from __future__ import annotations

import base64
import errno
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from ...wire import descriptors, greeting
from ...wire.greeting import Refused
from ...wire.names import read_last

Facts = Mapping[str, Any]  # the arguments of a loader that have to be the same on all ranks, by name
CONTENT: Final = "content"  # the fact that consists of the fingerprints of the dataset

MESSAGE_BYTES: Final = 65536
_MOST_CORES: Final = 1 << 20  # a sane limit for numbers of ranks and cores
_MOST_DESCRIPTORS: Final = 4  # of a message


@dataclass(frozen=True, slots=True)
class Hello:
    """A rank wants to use the workers."""

    version: str  # of the library
    facts: Facts
    rank: int
    cores: list[int]  # on which it may run


@dataclass(frozen=True, slots=True)
class Built:
    """What ranks know of a dataset that the server has built."""

    length: int
    content: int  # its fingerprint


@dataclass(frozen=True, slots=True)
class Welcome:
    """The rank may use the workers of the server."""

    pid: int  # of the server
    built: Built | None  # the dataset, if the server has built it


@dataclass(frozen=True, slots=True)
class NewLane:
    """A worker has started; the descriptors of its lane, of its log and of its process come with this message."""

    worker: int
    pid: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A worker has ended, and writes no more into any slab."""

    pid: int
    how: str  # its exit code or signal, in words


@dataclass(frozen=True, slots=True)
class Broken:
    """The server or its workers cannot start."""

    who: str
    error: str  # pickled, as base64

    @classmethod
    def of(cls, who: str, error: bytes) -> Broken:
        return cls(who, base64.b64encode(error).decode())

    @property
    def data(self) -> bytes:
        """The pickled error."""
        return base64.b64decode(self.error)


@dataclass(frozen=True, slots=True)
class Together:
    """How many ranks use the workers now."""

    ranks: int


@dataclass(frozen=True, slots=True)
class Goodbye:
    """The rank has left, and the server goes on with other ranks."""


Message = Hello | Welcome | Refused | NewLane | Ended | Broken | Together | Goodbye


def decode(data: bytes) -> Message:
    """The message that was encoded; raises ValueError for anything else."""
    message: Message = greeting.decode(data, *get_args(Message))
    if isinstance(message, Welcome) and isinstance(message.built, dict):
        message = Welcome(message.pid, Built(**message.built))
    return message


def decode_hello(data: bytes) -> Hello:
    """Decodes and checks the first message of a rank; raises ValueError if it is not a `Hello`."""
    hello = decode(data)
    if not isinstance(hello, Hello) or not isinstance(hello.facts, dict) or not isinstance(hello.cores, list):
        raise ValueError("not a Hello")
    if not all(type(number) is int and 0 <= number < _MOST_CORES for number in (hello.rank, *hello.cores)):
        raise ValueError("not the Hello of a rank")
    return hello


def send(connection: socket.socket, message: Message, files: Sequence[int] = ()) -> None:
    """Sends a message with descriptors; raises OSError if the other side is gone, or reads nothing for a long time."""
    connection.sendmsg([greeting.encode(message)], descriptors.rights(files))


def receive(connection: socket.socket) -> tuple[Message, list[int]] | None:
    """A message of the server, and its descriptors; None if the connection is closed.

    Raises:
        BlockingIOError: no message has arrived on a non-blocking socket.
        OSError: this process has too many open files.
    """
    received = read_last(lambda: descriptors.receive(connection, MESSAGE_BYTES, _MOST_DESCRIPTORS))
    if received.incomplete:
        for descriptor in received.descriptors:
            os.close(descriptor)
        raise OSError(errno.EMFILE, "too many open files: no descriptor is left for the lane to a worker")
    return (decode(received.data), received.descriptors) if received.data else None
