"""What the fork server imports before it forks workers: NumPy and the worker's code, so that workers start quickly.

The server listens on a socket that has a file. The program removes the file when it exits. If the program is killed,
the server removes it: the server ends after the program and all its workers.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from multiprocessing import forkserver

from . import worker  # noqa: F401


def _remove_socket_file(server: int) -> None:
    address = forkserver._forkserver._forkserver_address  # type: ignore[attr-defined]
    if os.getpid() == server and address and os.path.isabs(address):  # otherwise the socket has no file
        with contextlib.suppress(OSError):
            os.unlink(address)
            os.rmdir(os.path.dirname(address))


atexit.register(_remove_socket_file, os.getpid())
