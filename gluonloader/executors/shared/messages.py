"""The messages between a server and the ranks: short, as JSON, with descriptors.

    rank --RankHello--> server
    rank <--RankWelcome, or Refused-- server
    rank <--NewLane, Ended, Broken-- server           each time that a worker has started, has ended, or cannot start
    rank <--Together-- server                         each time that a rank has joined or left
    rank <--Goodbye-- server                          when it leaves, unless it is the last one

A rank sends nothing after its `RankHello`. The server reads it as JSON and takes no descriptors. So nothing that a rank
sends can run code in the server.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from ...messages import message
from ...wire import descriptors, greeting
from ...wire.greeting import MESSAGE_BYTES, Hello, Welcome

Facts = Mapping[str, Any]  # the arguments of a loader that have to be the same on all ranks, by name
CONTENT: Final = "content"  # the fact that consists of the fingerprints of the dataset

_MOST_CORES: Final = 1 << 20  # a sane limit for numbers of ranks and cores
_MOST_DESCRIPTORS: Final = 4  # of a message


@message(frozen=True, slots=True)
class RankHello(Hello):
    """A rank wants to use the workers; raises ValueError for what no rank says."""

    facts: Facts
    rank: int
    cores: list[int]  # on which it may run

    def __post_init__(self) -> None:
        if not isinstance(self.facts, dict) or not isinstance(self.cores, list):
            raise ValueError("not a RankHello")
        if not all(type(number) is int and 0 <= number < _MOST_CORES for number in (self.rank, *self.cores)):
            raise ValueError("not the RankHello of a rank")


@message(frozen=True, slots=True)
class RankWelcome(Welcome):
    """The rank may use the workers of the server."""

    length: int | None = None  # of the dataset, if the server has built it
    content: int | None = None  # the fingerprint of this dataset


@message(frozen=True, slots=True)
class NewLane:
    """A worker has started; the descriptors of its lane, of its log and of its process come with this message."""

    worker: int
    pid: int


@message(frozen=True, slots=True)
class Ended:
    """A worker has ended, and writes no more into any slab."""

    pid: int
    how: str  # its exit code or signal, in words


@message(frozen=True, slots=True)
class Broken:
    """The server or its workers cannot start."""

    who: str
    error: str  # pickled, as base64


@message(frozen=True, slots=True)
class Together:
    """How many ranks use the workers now."""

    ranks: int


@message(frozen=True, slots=True)
class Goodbye:
    """The rank has left, and the server goes on with other ranks."""


Message = NewLane | Ended | Broken | Together | Goodbye  # after the greeting; Broken may also come instead of a welcome


def send(connection: socket.socket, message: Message, files: Sequence[int] = ()) -> None:
    """Sends a message with descriptors; raises OSError if the other side is gone, or reads nothing for a long time."""
    connection.sendmsg([greeting.encode(message)], descriptors.rights(files))


def receive(connection: socket.socket) -> tuple[Message, list[int]] | None:
    """A message of the server, and its descriptors; None if the connection is closed.

    Raises:
        BlockingIOError: no message has arrived on a non-blocking socket.
        OSError: this process has too many open files.
    """
    received = descriptors.receive(connection, MESSAGE_BYTES, _MOST_DESCRIPTORS)
    if received.incomplete:
        for descriptor in received.descriptors:
            os.close(descriptor)
        raise descriptors.too_many_files("no descriptor is left for the lane to a worker")
    if not received.data:
        return None
    return greeting.decode(received.data, *get_args(Message)), received.descriptors
