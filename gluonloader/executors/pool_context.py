"""What both kinds of Pools need: a context for queues that do not use /dev/shm, and an end that leaves nothing open.

/dev/shm may be full or read-only.

The locks of the other contexts are semaphores, which lie in /dev/shm. Our Pools use their queues only in threads of one
process, so locks of `threading` are sufficient.
"""

from __future__ import annotations

from multiprocessing.context import BaseContext
from multiprocessing.pool import Pool
from typing import Any

from ..locks import Lock


class PoolContext(BaseContext):
    """The argument `context` of a Pool that makes its processes itself."""

    def Lock(self) -> Any:  # noqa: N802  # the name in multiprocessing
        return Lock()


def release(pool: Pool) -> None:
    """Ends the threads of a closed Pool that runs no task any more, and closes its queues; may be called again.

    A Pool is a reference cycle. So without this, its descriptors would stay open until the next garbage collection, and
    what its initializer refers to, such as the dataset, would stay in memory.
    """
    pool.terminate()
    parts: Any = pool
    for thread in (parts._worker_handler, parts._task_handler, parts._result_handler):
        thread.join()  # `terminate` does not wait for them if another thread has called it, too
    for queue in (parts._inqueue, parts._outqueue, parts._change_notifier):
        if hasattr(queue, "close"):  # the first two of a ThreadPool have no descriptors
            queue.close()
    parts._initializer, parts._initargs = None, ()
