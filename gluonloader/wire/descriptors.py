"""Messages that bring descriptors of open files with them."""

from __future__ import annotations

import errno
import socket
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

R = TypeVar("R")

# Errors of a message that cannot be sent now, but may be sent later.
FULL: Final = (errno.EAGAIN, errno.ETOOMANYREFS, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_CLOEXEC: Final[int] = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


@dataclass(slots=True, eq=False)
class Incoming:
    """What `receive` has read."""

    data: bytes  # b"" if the connection has ended
    descriptors: list[int] = field(default_factory=list)
    incomplete: bool = False  # descriptors are missing, since this process may open no more files


def too_many_files(what: str) -> OSError:
    """Returns the error for descriptors that have not arrived; `what` says what they are missing for."""
    cure = "close files, or raise the limit with `ulimit -n`"
    return OSError(errno.EMFILE, f"too many open files: {what}; {cure}")


def rights(descriptors: Iterable[int]) -> list[tuple[int, int, array[int]]]:
    """The second argument of `sendmsg`, which sends these descriptors."""
    numbers = array("i", descriptors)
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)] if numbers else []


def receive(connection: socket.socket, nbytes: int, most: int) -> Incoming:
    """Reads a message of at most `nbytes` bytes with at most `most` descriptors; raises OSError as `recvmsg`."""
    data, ancillary, flags, _ = _last(connection.recvmsg, nbytes, socket.CMSG_SPACE(most * 4), _CLOEXEC)
    if not ancillary and not flags & socket.MSG_CTRUNC:
        return Incoming(data)
    numbers = array("i")
    for _, _, some in ancillary:
        numbers.frombytes(some[: len(some) - len(some) % numbers.itemsize])
    return Incoming(data, list(numbers), bool(flags & socket.MSG_CTRUNC))


def receive_bytes(connection: socket.socket, nbytes: int) -> bytes:
    """Reads a message without descriptors, in less time than `receive`; the system closes those that come with it."""
    return _last(connection.recv, nbytes)


def first_byte(connection: socket.socket) -> int | None:
    """The first byte of the next message, which stays there; None if the connection has ended. Raises OSError."""
    start = _last(connection.recv, 1, socket.MSG_PEEK)
    return start[0] if start else None


def _last(read: Callable[..., R], *arguments: int) -> R:
    """Reads what has arrived. If the other side has ended without reading our messages, its last message may be there.

    The system reports that end first, and once.
    """
    try:
        return read(*arguments)
    except ConnectionResetError:
        return read(*arguments)
