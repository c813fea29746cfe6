"""The lock that code of the main thread may hold, and how the end of a thread is awaited.

An exception of a signal handler never leaves the lock locked.

NOTE [locks]: Python 3.14 may run signal handlers between the call of `__enter__` and the `with` block. If a handler
raises there, `__exit__` is not called, and a lock of the standard library stays locked (cpython gh-148874). No code of
this package that runs in the main thread holds such a lock: it holds a `Lock`. Threads of the package run no handlers.
"""

from __future__ import annotations

import sys
import threading
from _thread import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info[:2] != (3, 14):
    Lock = RLock
else:

    class Lock(RLock):
        """A reentrant lock.

        Handlers do not run when a function in Python returns, so `__enter__` itself sees what a handler has raised.
        """

        __slots__ = ()

        def __enter__(self) -> bool:
            depth = self._recursion_count()
            try:
                self.acquire()
            except BaseException:
                if self._recursion_count() > depth:
                    self.release()
                raise
            return True


def release_held(lock: Any) -> None:
    """Releases a lock of another library if this thread still holds it after its `with` block; see NOTE [locks]."""
    if getattr(lock, "_recursion_count", int)():
        lock.release()


def join(thread: threading.Thread, seconds: float) -> None:
    """Waits for the end of a thread, unless it is this one: the last reference to its owner may end in the thread."""
    if thread is not threading.current_thread():
        thread.join(seconds)
