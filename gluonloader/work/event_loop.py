"""`EventLoop`: an event loop in a separate thread, which awaits the samples of datasets with `async def` methods.

    any thread: run(start) --> call_soon_threadsafe --> task of `await start()` --> result, back to that thread

The thread makes it work where the calling thread has a running event loop already, as in a notebook.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, Final

from ..current import bind_to_task
from ..errors import LoaderClosed
from ..interrupts import Uninterrupted
from ..locks import Lock, join

_LOOK_S: Final = 0.5  # a thread that waits for a result checks this often whether the loop has ended
_CLOSING_S: Final = 0.5  # how long close() waits; a task may take longer to end after it was cancelled

Start = Callable[[], Coroutine[Any, Any, Any]]


class EventLoop:
    """An event loop in a thread, which starts at the first `run` and ends with `close`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = Lock()
        self._closed = False

    def run(self, start: Start) -> Any:
        """Awaits `start()` in the loop and returns its result; cancels it if this thread is interrupted.

        `get_rng` and `get_worker_info` return the same there as here.
        """
        call, loop, context = _Call(start), self._started(), copy_context()
        context.run(bind_to_task)
        try:
            loop.call_soon_threadsafe(call.begin, context=context)
            return self._result(call)
        except BaseException:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(call.cancel)
            raise

    def _result(self, call: _Call) -> Any:
        done = None
        while done is None and not self._closed:
            with suppress(Empty):
                done = call.done.get(timeout=_LOOK_S)
        if done is None or self._closed:
            raise LoaderClosed("the loader was closed while samples were awaited")
        result, error = done
        try:
            if error is not None:
                raise error
            return result
        finally:
            del done, error  # the traceback of the error refers to this frame

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            with Uninterrupted(), self._lock:
                if self._loop is None and not self._closed:
                    loop = asyncio.new_event_loop()
                    thread = threading.Thread(target=self._serve, args=(loop,), daemon=True)
                    thread.name = "gluonloader-loop"
                    thread.start()
                    self._thread = thread
                    self._loop = loop
        if self._loop is None or self._closed:
            self.close()  # again, since the loop may have started after another thread had called `close`
            raise LoaderClosed("the loader was closed")
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            self._run_until_closed(loop)
            _cancel_all(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()

    def _run_until_closed(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._closed:
            with suppress(SystemExit, KeyboardInterrupt):  # of a task of the dataset
                loop.run_forever()

    def close(self) -> None:
        """Cancels everything that is awaited, and ends the thread."""
        self._closed = True
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            with suppress(RuntimeError):  # the loop has ended already
                loop.call_soon_threadsafe(loop.stop)
            join(thread, _CLOSING_S)


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    while tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks))


class _Call:
    """A coroutine, and the queue that receives its result, or its error.

    Only the loop's thread refers to the task: Python runs code of asyncio when a task is deleted, and would drop an
    exception that a signal handler raises there.
    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self._task: asyncio.Task[Any] | None = None
        self.done: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()

    def begin(self) -> None:
        # Only here, in the loop's thread, is the coroutine made: so it is always awaited.
        self._task = asyncio.get_running_loop().create_task(self._start())
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[Any]) -> None:
        self._task = None
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self.done.put((task.result() if error is None else None, error))

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
