"""A context for the queues inside a `multiprocessing` Pool that does not use /dev/shm, which may be full or read-only.

The locks of the other contexts are semaphores, which lie in /dev/shm. Our Pools use their queues only in threads of one
process, so locks of `threading` are sufficient.
"""

from __future__ import annotations

import threading
from multiprocessing.context import BaseContext
from typing import Any


class PoolContext(BaseContext):
    """The argument `context` of a Pool that makes its processes itself."""

    def Lock(self) -> Any:  # noqa: N802  # the name in multiprocessing
        return threading.Lock()
