"""How long a thread has waited for a core, as the scheduler of Linux counts it, and how it leaves a core to others.

A thread that could compute waits for a core while other threads and programs use all of them. This is neither CPU time
nor waiting for data.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ..interrupts import Uninterrupted, from_signal_handler

_STATISTICS: Final = "/proc/thread-self/schedstat"  # CPU time, time of waiting for a core, number of time slices
_MOST_BYTES: Final = 64  # of the file


def core_wait_ns() -> int:
    """Nanoseconds that the calling thread has waited for a core since its start; always 0 if the system does not say.

    A call takes about 3 us.
    """
    opened = _local.opened
    # A forked child inherits the file, which still shows the statistics of a thread of its parent.
    if opened is None or opened.thread != threading.get_native_id():
        opened = _local.opened = _Statistics()
    return opened.core_wait_ns()


def give_way() -> None:
    """Makes sure that the training thread keeps its core when the calling thread wakes; see NOTE [spinning]."""
    try:
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    except (AttributeError, OSError):
        pass  # not Linux, or forbidden; it only matters for speed


def close_statistics() -> None:
    """Closes the file of the calling thread, which would otherwise stay open until the thread ends."""
    _local.opened = None


class _Statistics:
    """The statistics of the thread that makes this object.

    The file stays open as long as the object lives, since to open it takes ten times as long as to read it.
    """

    _fd = -1  # for `__del__`, if a signal handler raises before `__init__` has set it

    def __init__(self) -> None:
        self.thread = threading.get_native_id()
        with Uninterrupted(), suppress(OSError):  # there is no such file on other systems and in some kernels
            self._fd = os.open(_STATISTICS, os.O_RDONLY)

    def core_wait_ns(self) -> int:
        if self._fd < 0:
            return 0
        try:
            return int(os.pread(self._fd, _MOST_BYTES, 0).split()[1])
        except (OSError, ValueError, IndexError) as error:
            if from_signal_handler(error):
                raise
            self._fd = -1  # the program has closed all descriptors, so this number may belong to another file now
            return 0

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:  # see NOTE [exit] in interrupts.py
        if self._fd >= 0 and not ends():
            with suppress(OSError):
                os.close(self._fd)


class _Local(threading.local):
    opened: _Statistics | None = None


_local: Final = _Local()
