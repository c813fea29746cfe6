"""What a server and the ranks tell each other: short messages as JSON, with descriptors.

    rank --Hello--> server
    rank <--Welcome, or Refused-- server
    rank <--NewLane, Ended, Broken-- server           each time that a worker has started, has ended, or cannot start

A rank sends nothing after its `Hello`. The server reads it as JSON, checks each value, and takes no descriptors. So
nothing that a rank sends can run code in the server.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

Facts = Mapping[str, Any]  # the arguments of a loader that have to be the same on all ranks, by name

MESSAGE_BYTES: Final = 65536
_DESCRIPTORS_BYTES: Final = socket.CMSG_SPACE(4 * 4)


@dataclass(frozen=True, slots=True)
class Hello:
    """A rank wants to use the workers."""

    version: str  # of the library
    facts: Facts


@dataclass(frozen=True, slots=True)
class Welcome:
    """The rank may use the workers of the server."""

    pid: int  # of the server
    length: int | None  # of the dataset, if the server has built it


@dataclass(frozen=True, slots=True)
class Refused:
    """The rank may not use them."""

    why: str


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
    """The workers cannot start, or the server cannot; the descriptor of a file with the pickled error comes with it."""

    who: str


Message = Hello | Welcome | Refused | NewLane | Ended | Broken

_KINDS: Final[dict[str, Any]] = {kind.__name__: kind for kind in (Hello, Welcome, Refused, NewLane, Ended, Broken)}


def encode(message: Message) -> bytes:
    return json.dumps([type(message).__name__, asdict(message)]).encode()


def decode(data: bytes) -> Message:
    """The message that `encode` has encoded; raises ValueError for anything else."""
    try:
        kind, fields = json.loads(data)
        message: Message = _KINDS[kind](**fields)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("this is no message of gluonloader") from None
    return message


def decode_hello(data: bytes) -> Hello:
    """The `Hello` of a rank, which may be anything; raises ValueError unless it is one."""
    hello = decode(data)
    if not isinstance(hello, Hello) or not isinstance(hello.version, str) or not isinstance(hello.facts, dict):
        raise ValueError("this is no Hello")
    return hello


def send(connection: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Sends a message; raises OSError if the other side is gone, or reads nothing for a long time."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
    connection.sendmsg([encode(message)], rights)


def receive(connection: socket.socket) -> tuple[Message, list[int]] | None:
    """A message of the server, and its descriptors; None if the server has ended, or has ended the connection.

    Raises:
        BlockingIOError: none has arrived, and the socket does not wait.
        OSError: this process may open no more files.
    """
    try:
        data, ancillary, flags, _ = connection.recvmsg(MESSAGE_BYTES, _DESCRIPTORS_BYTES, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None
    descriptors = array("i")
    for _, _, some in ancillary:
        descriptors.frombytes(some[: len(some) - len(some) % descriptors.itemsize])
    if flags & socket.MSG_CTRUNC:
        for descriptor in descriptors:
            os.close(descriptor)
        raise OSError(errno.EMFILE, "too many open files: no descriptor is left for the lane to a worker")
    return (decode(data), list(descriptors)) if data else None


def read_file(descriptor: int) -> bytes:
    """The bytes of a file in memory, which is closed."""
    try:
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)
