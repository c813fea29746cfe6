"""`Door`: lets processes of the same user in, and reads the first message of each.

a process connects --> Door.handle --> a guest;  it says something --> Door.handle returns the guest
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from dataclasses import dataclass
from typing import Final

from ..forks import no_fork
from .ends import close_end, track_end
from .names import peer

RETRY_S: Final = 1.0  # how long to wait before a connection is accepted again if there were too many open files
_MOST_GUESTS: Final = 64  # that have said nothing; a process that means to speak does so at once


@dataclass(frozen=True, slots=True)
class Guest:
    """A process that has connected and sent its first message."""

    connection: socket.socket  # not blocking
    pid: int
    message: bytes


class Door:
    """Accepts connections; pauses while this process has too many open files.

    If too many processes have connected and said nothing, the first of them is dropped.

    Args:
        listener: the socket that listens.
        poll: watches it, except during a pause, and the guests that have said nothing.
        nbytes: the most bytes of a first message.
    """

    def __init__(self, listener: socket.socket, poll: select.poll, nbytes: int) -> None:
        listener.setblocking(False)
        self._listener, self._poll, self._nbytes = listener, poll, nbytes
        self._silent: dict[int, socket.socket] = {}  # by descriptor, in the order in which they came
        self._paused_until: float | None = None
        poll.register(listener, select.POLLIN)

    @property
    def connections(self) -> list[socket.socket]:
        """Those to guests that have said nothing yet."""
        return list(self._silent.values())

    @property
    def paused(self) -> bool:
        return self._paused_until is not None

    def watches(self, descriptor: int) -> bool:
        """Whether `handle` has to handle the events of a descriptor."""
        return descriptor == self._listener.fileno() or descriptor in self._silent

    def handle(self, descriptor: int) -> Guest | None:
        """Lets a process in, or reads its first message; returns the guest once it has said something."""
        if descriptor == self._listener.fileno():
            self._accept()
            return None
        connection = self._silent.pop(descriptor)
        self._poll.unregister(connection)
        try:
            guest = Guest(connection, peer(connection).pid, connection.recv(self._nbytes))
        except OSError:
            close_end(connection)
            return None
        return guest

    def resume(self) -> None:
        """Ends the pause if it has lasted long enough."""
        if self._paused_until is not None and time.monotonic() >= self._paused_until:
            self._paused_until = None
            self._poll.register(self._listener, select.POLLIN)

    def close(self) -> None:
        close_end(self._listener)
        for connection in self._silent.values():
            close_end(connection)

    def _accept(self) -> None:
        try:
            with no_fork:
                connection = track_end(self._listener.accept()[0])
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                self._poll.unregister(self._listener)
                self._paused_until = time.monotonic() + RETRY_S
            return
        connection.setblocking(False)
        if peer(connection).uid != os.geteuid():
            close_end(connection)
            return
        self._silent[connection.fileno()] = connection
        self._poll.register(connection, select.POLLIN)
        if len(self._silent) > _MOST_GUESTS:
            first = self._silent.pop(next(iter(self._silent)))
            self._poll.unregister(first)
            close_end(first)
