"""Sockets by which threads and processes wake each other, and which a forked child must not keep open."""

from __future__ import annotations

import os
import select
import socket
import threading
import weakref
from multiprocessing.connection import Connection
from typing import Final, TypeVar

from ..forks import no_fork
from ..interrupts import from_signal_handler

_MOST_S: Final = 1e6  # the system takes no wait of more than 24 days; longer ones have no limit

End = TypeVar("End", socket.socket, Connection)

_ends: Final[weakref.WeakSet[socket.socket | Connection]] = weakref.WeakSet()

starting: Final = threading.local()  # its `lane` is the end that belongs to the child which is being forked


def track_end(end: End) -> End:
    """Makes forked children close this socket or pidfd; see NOTE [lane ends] in process/supervisor.py.

    Call it in the `no_fork` block that opens the end; see NOTE [no fork] in forks.py.
    """
    _ends.add(end)
    return end


def open_pair() -> tuple[socket.socket, socket.socket]:
    """Returns two sockets that are connected to each other; forked children close both."""
    with no_fork:
        one, other = socket.socketpair()
        return track_end(one), track_end(other)


def close_end(end: socket.socket | Connection) -> None:
    """Closes a socket or pidfd that forked children would close; see NOTE [no fork]."""
    with no_fork:
        end.close()


def shut_down(end: socket.socket, how: int) -> None:
    """Tells the other side of a connection that it ends; does nothing if the other side is gone."""
    try:
        end.shutdown(how)
    except OSError as error:
        if from_signal_handler(error):
            raise


def is_ready(end: socket.socket, event: int, seconds: float) -> bool:
    """Whether an event of `select.poll`, or the end of the connection, comes within some seconds."""
    poll = select.poll()  # `select.select` takes no descriptors above 1023
    poll.register(end, event)
    return bool(poll.poll(1000 * seconds if seconds < _MOST_S else None))


def ring(waker: socket.socket) -> None:
    """Wakes the thread that polls the other end of this socket; may be called from any thread, without a lock."""
    try:
        waker.send(b"!")
    except OSError as error:
        if from_signal_handler(error):
            raise
        # A full socket wakes the thread anyway; if the socket is closed, nobody waits.


def _close_ends_in_child() -> None:
    for end in list(_ends):
        if end is not getattr(starting, "lane", None):
            end.close()
    _ends.clear()


os.register_at_fork(after_in_child=_close_ends_in_child)
