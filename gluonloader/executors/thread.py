"""The thread executor: a persistent ThreadPool whose threads serve one queue.

    submit --> queue --> thread 0..n-1: BatchMaker.make --> Outcome --> the submission's window

All threads share one queue. Only for an iterable dataset, whose shards belong to threads, each thread has a queue. If
bulk reads run side by side (`concurrency`), each worker has several threads.

The pool's initializer is the worker: it serves its queue until it reads None. The pool's own task loop, which is
slower, never gets a task.
"""

from __future__ import annotations

import math
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from multiprocessing.pool import Pool, ThreadPool
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from ..errors import BatchTimeout, LoaderClosed, WorkerStartError, as_exception, forget_variables, text_of
from ..interrupts import Uninterrupted
from ..locks import join
from ..memory.buffers import BatchMemory, BufferPool
from ..memory.warm import LARGEST_IN_PROGRAM, keep_freed_memory
from ..randomness import Draws, set_current_seed
from ..work.maker import BatchMaker, Maker
from ..work.reading import side_by_side
from ..work.task import Chunk, Job, Task
from ..work.usage import Usage
from .base import CLOSED, Failed, Made, Outcome, Submission, Window
from .ended import Iterations
from .pool_context import PoolContext, release

if TYPE_CHECKING:
    from ..work.streams import Streams

_LOOK_S: Final = 0.5  # a thread that waits for a batch checks this often whether the loader was closed
_CLOSING_S: Final = 0.5  # how long close() waits for threads: a busy thread cannot be killed, it ends after its batch


class _EndStreams:
    """In a queue: the thread closes the streams that nobody reads any more."""


_Queue = SimpleQueue["Submission | _EndStreams | None"]  # None ends one thread


class _Pool(ThreadPool):
    def __init__(self, processes: int, initializer: Callable[..., object], initargs: Iterable[Any]) -> None:
        Pool.__init__(self, processes, initializer, initargs, context=PoolContext())


class ThreadExecutor:
    """Makes batches in `job.num_workers` threads, for code that releases the GIL, or without a GIL.

    Args:
        draws: finds out whether threads draw from generators that they share, while the program waits; None if nobody
            asks.
    """

    makes_ahead = True

    def __init__(self, job: Job, window: int, draws: Draws | None = None) -> None:
        self.window, self._draws = window, draws
        self._job, self._buffers, self.usage = job, BufferPool(window), Usage()
        self.keeps_streams, self._iterations = job.iterable, Iterations()
        self._shared: _Queue = SimpleQueue()
        self._own: list[_Queue] = [SimpleQueue() for _ in range(job.num_workers)]
        self._running: dict[int, Task] = {}  # by thread
        self._makers: list[BatchMaker] = []
        self._threads: list[threading.Thread] = []
        self._start_error: WorkerStartError | None = None
        self._closed = self._shut = False  # `close` was called; `close` came to its end
        keep_freed_memory(LARGEST_IN_PROGRAM)
        numbers: SimpleQueue[int] = SimpleQueue()
        for worker in range(job.num_workers):
            numbers.put(worker)
        try:
            with Uninterrupted():  # until `close` can end the threads
                self._pool = _Pool(job.num_workers, self._serve, (numbers,))
        except BaseException:
            if hasattr(self, "_pool"):  # a signal handler has raised
                self.close()
            raise

    def submit(self, task: Task, window: Window) -> None:
        queue = self._shared if task.worker is None else self._own[task.worker]
        if isinstance(task.work, Chunk):
            self._iterations.note(task.work, window)
        queue.put(Submission(task, window))
        if self._closed:
            self._refuse(queue)

    def resubmit(self, window: Window) -> None:
        for task in window.missing:  # a task that is still in the queue, or is being made, is skipped the second time
            self.submit(task, window)

    def wait(self, window: Window, timeout: float | None) -> None:
        if self._draws is None or window.ready is not None:
            self._wait(window, timeout)
            return
        self._draws.mark()
        self._wait(window, timeout)
        if names := self._draws.found():
            raise RuntimeError(
                f"threads made batches, and numbers were drawn from {' and '.join(names)}, which all threads share, so "
                "batches cannot be made again: draw from gluonloader.get_rng(), or pass executor='process'"
            )

    def _wait(self, window: Window, timeout: float | None) -> None:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while window.ready is None and not window.cancelled:
            if self._start_error is not None:
                raise self._start_error
            if self._closed:
                raise LoaderClosed(CLOSED)
            left = deadline - time.monotonic()
            if left <= 0:
                return
            window.wait(min(left, _LOOK_S))

    def wake(self) -> None:
        pass  # each thread waits at its own window

    def end_streams(self) -> None:
        for queue in self._own:
            queue.put(_EndStreams())

    def time_out(self, task: Task, timeout: float) -> BatchTimeout:
        frames = sys._current_frames()
        thread = next((thread for thread, running in self._running.items() if running is task), None)
        if thread is None or thread not in frames:
            text = "no thread has started this batch: all threads are busy with other batches\n"
        else:
            text = f"the stack of the thread that made it was\n{''.join(traceback.format_stack(frames[thread]))}"
        error = BatchTimeout(f"{task} took more than timeout={timeout} seconds; {text}")
        if self._job.iterable:
            raise error  # the thread needs the samples of this batch to go on, and nothing can stop it: it will arrive
        return error

    def memory(self) -> None:
        return None

    def close(self) -> None:
        self._closed = True
        if self._shut:
            return
        for queue in (self._shared, *self._own):
            self._refuse(queue)
        for own in self._own:
            for _ in range(side_by_side(self._job)):
                (own if self._job.iterable else self._shared).put(None)
        self._pool.close()
        for maker in self._makers:
            maker.close()
        deadline = time.monotonic() + _CLOSING_S
        for thread in self._threads:
            join(thread, max(0.0, deadline - time.monotonic()))
        with Uninterrupted():
            release(self._pool)
        self._buffers.close()
        self._shut = True

    def _refuse(self, queue: _Queue) -> None:
        """Answers every submission in the queue with LoaderClosed."""
        while True:
            try:
                submission = queue.get_nowait()
            except Empty:
                return
            if submission is None:
                queue.put(None)  # None ends a thread
                return
            if isinstance(submission, Submission):
                submission.window.put(Failed(submission.task, LoaderClosed(CLOSED)))

    def _serve(self, numbers: SimpleQueue[int]) -> None:
        """What one thread does, from its start to its end."""
        worker = numbers.get()
        maker = BatchMaker(self._job, worker, set_current_seed)
        self._makers.append(maker)
        if self._closed:  # `close` may have looked at the makers before
            maker.close()
        self._threads.append(threading.current_thread())
        with maker.running():
            try:
                maker.start(self._job.epoch)
            except BaseException as error:
                text = f"worker_init_fn({worker}) raised {type(error).__name__}: {text_of(error)}"
                self._start_error = WorkerStartError(text)
                self._start_error.__cause__ = error
            makers: list[Maker] = [maker]
            if maker.side_by_side > 1:
                makers = [maker.beside() for _ in range(maker.side_by_side)]
            for other in makers[1:]:
                thread = threading.Thread(target=self._serve_beside, args=(other,), daemon=True)
                thread.start()
                self._threads.append(thread)  # only now, since `close` may join it from now on
            with makers[0].running():
                if self._job.iterable:
                    self._serve_streams(maker, self._own[worker])
                else:
                    self._serve_queue(makers[0], self._shared)

    def _serve_beside(self, maker: Maker) -> None:
        """What each additional thread of a worker does, so that bulk reads of several batches run side by side."""
        with maker.running():
            self._serve_queue(maker, self._shared)

    def _serve_streams(self, maker: BatchMaker, queue: _Queue) -> None:
        streams = maker.new_streams()
        try:
            self._serve_queue(maker, queue, streams)
        finally:
            streams.close()

    def _serve_queue(self, maker: Maker, queue: _Queue, streams: Streams | None = None) -> None:
        ident, memory = threading.get_ident(), BatchMemory(self._buffers)
        while (submission := queue.get()) is not None:
            if isinstance(submission, _EndStreams):
                if streams is not None:
                    streams.close(streams.iterations - self._iterations.live())
                continue
            task, window = submission.task, submission.window
            if self._start_error is None and window.wants(task) and not self._runs(task):
                self._running[ident] = task
                window.put(self._make(maker, memory, task, streams))
                del self._running[ident]
            if self._start_error is not None:
                window.ring()
            del submission, task, window  # or this thread would keep the batch in memory until its next batch

    def _runs(self, task: Task) -> bool:
        """Whether a thread makes this batch now."""
        return any(running is task for running in list(self._running.values()))

    def _make(self, maker: Maker, memory: BatchMemory, task: Task, streams: Streams | None) -> Outcome:
        try:
            with memory:
                batch = maker.measured(maker.make, task, self.usage, streams)
                return Made(task, batch, made_s=maker.timer.took * 1e-9, worker=maker.worker)
        except BaseException as error:  # no signal handler runs in this thread, so it is an error of the batch
            forget_variables(error)  # now, since the program may never read this batch
            return Failed(task, as_exception(error, str(task)))
