"""Sockets that a forked child must not keep open, since their other end waits for an end-of-file."""

from __future__ import annotations

import os
import socket
import threading
import weakref
from multiprocessing.connection import Connection
from typing import Final, TypeVar

End = TypeVar("End", socket.socket, Connection)

_ends: Final[weakref.WeakSet[socket.socket | Connection]] = weakref.WeakSet()

starting: Final = threading.local()  # its `lane` is the end that belongs to the child which is being forked


def track_end(end: End) -> End:
    """Makes forked children close this socket or pidfd; see NOTE [lane ends] in process/supervisor.py."""
    _ends.add(end)
    return end


def _close_ends_in_child() -> None:
    for end in list(_ends):
        if end is not getattr(starting, "lane", None):
            end.close()
    _ends.clear()


os.register_at_fork(after_in_child=_close_ends_in_child)
