"""`Door`: accepts processes of the same user, and reads the first message of each.

a process connects --> Door.handle --> it is silent;  it says something --> Door.handle returns what it says
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from typing import Final

from ..forks import no_fork
from .ends import close_end, track_end
from .greeting import MESSAGE_BYTES
from .names import peer

_RETRY_S: Final = 1.0  # how long to wait before a connection is accepted again if there were too many open files
_MOST_SILENT: Final = 64  # that have said nothing; a process that means to speak does so at once


class Door:
    """Accepts connections; pauses while this process has too many open files.

    If too many processes have connected and said nothing, the first of them is dropped.

    Args:
        listener: the socket that listens.
        poll: watches it, except during a pause, and the processes that have said nothing.
    """

    def __init__(self, listener: socket.socket, poll: select.poll) -> None:
        listener.setblocking(False)
        self._listener, self._poll = listener, poll
        self._silent: dict[int, socket.socket] = {}  # by descriptor, in the order in which they came
        self._paused_until: float | None = None
        poll.register(listener, select.POLLIN)

    @property
    def connections(self) -> list[socket.socket]:
        """Those to processes that have said nothing yet."""
        return list(self._silent.values())

    def watches(self, descriptor: int) -> bool:
        """Whether `handle` has to handle the events of a descriptor."""
        return descriptor == self._listener.fileno() or descriptor in self._silent

    def handle(self, descriptor: int) -> tuple[socket.socket, bytes] | None:
        """Accepts a process; or reads its first message, and returns its connection and the message."""
        if descriptor == self._listener.fileno():
            self._accept()
            return None
        connection = self._silent.pop(descriptor)
        self._poll.unregister(connection)
        try:
            return connection, connection.recv(MESSAGE_BYTES)
        except OSError:
            close_end(connection)
            return None

    def resume(self) -> float | None:
        """Ends the pause if it has lasted long enough; returns how many seconds are left, None without a pause."""
        if self._paused_until is None:
            return None
        if (left := self._paused_until - time.monotonic()) > 0:
            return left
        self._paused_until = None
        self._poll.register(self._listener, select.POLLIN)
        return None

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
                self._paused_until = time.monotonic() + _RETRY_S
            return
        connection.setblocking(False)
        if peer(connection).uid != os.geteuid():
            close_end(connection)
            return
        self._silent[connection.fileno()] = connection
        self._poll.register(connection, select.POLLIN)
        if len(self._silent) > _MOST_SILENT:
            first = self._silent.pop(next(iter(self._silent)))
            self._poll.unregister(first)
            close_end(first)
