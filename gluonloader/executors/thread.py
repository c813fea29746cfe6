"""The thread executor: a persistent ThreadPool whose threads serve one queue.

    submit --> queue --> thread 0..n-1: Maker.make --> Outcome --> the submitter's inbox

There is one queue for all; for an iterable dataset, whose shards stay with their threads, one for each.

NOTE [a pool that serves]: as in the process executor, the pool's initializer is the worker: it serves until it is
told to end, and never returns to the pool's own task loop, which costs more per task and loses tasks with a worker.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing.pool import ThreadPool
from queue import Empty, SimpleQueue
from typing import Final

from ..errors import BatchTimeout, LoaderClosed, WorkerStartError
from ..memory.buffers import BatchMemory, BufferPool
from ..randomness import set_current_seed
from ..work.maker import Maker
from ..work.task import Job, Task
from .base import Failed, Inbox, Made, Outcome

__all__ = ["ThreadExecutor"]

_CLOSING_S: Final = 0.5


@dataclass(slots=True, eq=False)  # not frozen: see records.py
class _Request:
    task: Task
    inbox: Inbox


class ThreadExecutor:
    """Makes batches in `num_workers` threads: for datasets that leave the GIL (decoding, file reads, large arrays)."""

    def __init__(self, job: Job, window: int) -> None:
        self._job, self._buffers = job, BufferPool(window)
        self._shared: SimpleQueue[_Request | None] = SimpleQueue()
        self._own: list[SimpleQueue[_Request | None]] = [SimpleQueue() for _ in range(job.num_workers)]
        self._running: dict[int, Task] = {}  # by thread
        self._threads: list[threading.Thread] = []
        self._start_error: WorkerStartError | None = None
        self._closed = False
        numbers: SimpleQueue[int] = SimpleQueue()
        for worker in range(job.num_workers):
            numbers.put(worker)
        self._pool = ThreadPool(job.num_workers, initializer=_Server(self), initargs=(numbers,))

    def submit(self, task: Task, inbox: Inbox) -> None:
        queue = self._shared if task.worker is None else self._own[task.worker]
        queue.put(_Request(task, inbox))
        if self._closed:
            self._refuse(queue)

    def window(self, size: int, holding: bool) -> int:
        return size

    def wait(self, inbox: Inbox, timeout: float | None) -> Outcome | None:
        outcome = inbox.get(timeout)
        if self._start_error is not None:
            raise self._start_error
        return outcome

    def wake(self) -> None:
        pass  # each waits at its inbox

    def overdue(self, task: Task, timeout: float) -> BatchTimeout:
        frames = sys._current_frames()
        thread = next((thread for thread, running in self._running.items() if running is task), None)
        if thread is None or thread not in frames:
            text = "it has not been started: all threads are busy with other batches\n"
        else:
            text = f"the thread that makes it is at\n{''.join(traceback.format_stack(frames[thread]))}"
        return BatchTimeout(f"{task} took more than timeout={timeout} seconds; {text}")

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for queue in (self._shared, *self._own):
            self._refuse(queue)
        for own in self._own:
            (own if self._job.iterable else self._shared).put(None)
        self._pool.close()
        deadline = time.monotonic() + _CLOSING_S  # a thread cannot be killed; a busy one ends with its batch
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._buffers.close()

    def _refuse(self, queue: SimpleQueue[_Request | None]) -> None:
        """Answers what will not be made."""
        while True:
            try:
                request = queue.get_nowait()
            except Empty:
                return
            if request is None:
                queue.put(None)  # a thread's own sign
                return
            request.inbox.put(Failed(request.task, LoaderClosed("the loader was closed while a batch was waited for")))

    def serve(self, worker: int) -> None:
        """The life of one thread."""
        me, maker = threading.get_ident(), Maker(self._job, worker, set_current_seed)
        memory = BatchMemory(self._buffers)
        requests = self._own[worker] if self._job.iterable else self._shared
        self._threads.append(threading.current_thread())
        with maker.at_work():
            try:
                maker.start(self._job.epoch)
            except BaseException as error:
                self._start_error = WorkerStartError(f"worker_init_fn({worker}) raised {type(error).__name__}: {error}")
                self._start_error.__cause__ = error
            while (request := requests.get()) is not None:
                self._running[me] = request.task
                outcome = self._make(maker, memory, request)
                del self._running[me]
                request.inbox.put(outcome)
                del request, outcome

    def _make(self, maker: Maker, memory: BatchMemory, request: _Request) -> Outcome:
        task = request.task
        if request.inbox.withdrawn or self._start_error is not None:
            return Made(task, None)
        try:
            with memory:
                began = time.perf_counter()
                return Made(task, maker.make(task), time.perf_counter() - began)
        except BaseException as error:
            return Failed(task, error)


class _Server:
    """The pool's initializer: a thread that serves; see NOTE [a pool that serves]."""

    def __init__(self, executor: ThreadExecutor) -> None:
        self._executor = executor

    def __call__(self, numbers: SimpleQueue[int]) -> None:
        self._executor.serve(numbers.get())
