"""Sockets that have a name in memory, by which processes of one user meet on a machine.

    one process    listen(address) --> Door (door.py) --> a connection to each process that connects
    the others     connect(address)

The name belongs to an abstract socket, so nothing is left of it when the process has ended, in whatever way.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from typing import Final

from ..forks import no_fork
from ..messages import message
from .ends import close_end, track_end

_PAUSE_S: Final = 0.01  # between two tries to connect


class OtherUser(Exception):
    """A process of another user has the name."""

    def __init__(self, uid: int) -> None:
        super().__init__(f"a process of another user ({uid}) has this name")


class NoRoom(Exception):
    """A process has the name, but accepts no connection: it is stopped, or it is another program."""

    def __init__(self) -> None:
        super().__init__("the process with this name accepts no connections")


@message(frozen=True, slots=True)
class Peer:
    """The process at the other end of a connection."""

    pid: int
    uid: int


def peer(connection: socket.socket) -> Peer:
    """The process that has connected or, seen from that process, the one that listens."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", credentials)
    return Peer(pid, uid)


def connect(address: str, seconds: float) -> socket.socket | None:
    """A connection to the process that listens, as a non-blocking socket; None if there is no such process.

    Args:
        seconds: how long to wait while as many connections as it allows have not been accepted.

    Raises:
        OtherUser: it belongs to another user.
        NoRoom: it accepts no connection.
    """
    with no_fork:
        connection = track_end(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    connected = False
    try:
        connection.setblocking(False)  # otherwise `connect` would wait for ever if the queue of the listener is full
        connected = _connect(connection, address, time.monotonic() + seconds)
    finally:
        if not connected:
            close_end(connection)
    return connection if connected else None


def _connect(connection: socket.socket, address: str, deadline: float) -> bool:
    while (error := connection.connect_ex(address)) == errno.EAGAIN:
        if time.monotonic() > deadline:
            raise NoRoom
        time.sleep(_PAUSE_S)
    if error == errno.ECONNREFUSED:
        return False
    if error:
        raise OSError(error, os.strerror(error))
    if (uid := peer(connection).uid) != os.geteuid():
        raise OtherUser(uid)
    return True


def listen(address: str, queue: int) -> socket.socket | None:
    """A socket with this name, for `queue` processes that wait to be accepted; None if another process has the name."""
    with no_fork:
        listener = track_end(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    try:
        listener.bind(address)
        listener.listen(queue)
    except OSError as error:
        close_end(listener)
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return listener
