"""What the fork server imports before it forks workers: NumPy and the worker's code, so that workers start quickly.

The server listens on a socket that has a file. The program removes the file when it exits. If the program is killed,
the server removes it: it ends after the program and all its workers.

The server inherits the signal mask of the thread that starts it. If SIGCHLD is blocked, the server neither reaps its
workers nor reports their exit codes. So it is unblocked here, not in the program, which may wait for SIGCHLD itself.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import time
from multiprocessing import forkserver
from typing import Final

from . import worker  # noqa: F401

_DYING_S: Final = 1.0  # the longest time between the end of the program's descriptors and its own end


def _remove_socket_file(server: int, program: int) -> None:
    address = forkserver._forkserver._forkserver_address  # type: ignore[attr-defined]
    if os.getpid() != server or not address or not os.path.isabs(address):  # otherwise the socket has no file
        return
    deadline = time.monotonic() + _DYING_S
    while os.getppid() == program and time.monotonic() < deadline:
        time.sleep(0.01)
    if os.getppid() != program:  # otherwise the program has only stopped this server, and still uses the folder
        with contextlib.suppress(OSError):
            os.unlink(address)
            os.rmdir(os.path.dirname(address))


signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
atexit.register(_remove_socket_file, os.getpid(), os.getppid())
