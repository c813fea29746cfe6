"""The serial executor: each batch is made in the thread that asks for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn
from weakref import WeakSet

from ..errors import LoaderClosed, WorkerStartError, text_of
from ..interrupts import from_signal_handler
from ..locks import Lock
from ..memory.buffers import BatchMemory, BufferPool
from ..randomness import PreservedGenerators, seed_restorable
from ..work.core_wait import close_statistics
from ..work.maker import BatchMaker
from ..work.task import Job, Task
from ..work.usage import Usage
from .base import Failed, Made, Outcome, Window

if TYPE_CHECKING:
    from ..work.streams import Streams


class SerialExecutor:
    """Makes batches one at a time, in the thread that waits for them."""

    window, makes_ahead, keeps_streams = 1, False, False

    def __init__(self, job: Job) -> None:
        self._maker, self.usage = BatchMaker(job, 0, seed_restorable), Usage()
        self._iterable, self._readings = job.iterable, WeakSet[_Reading]()
        self._buffers = BufferPool(window=1)
        self._memory = BatchMemory(self._buffers)
        self._started = self._closed = False
        self._lock = Lock()  # without workers, users expect that only one thread at a time reads the dataset

    def submit(self, task: Task, window: Window) -> None:
        pass  # `wait` makes what is missing

    def resubmit(self, window: Window) -> None:
        pass

    def wait(self, window: Window, timeout: float | None) -> None:
        with self._lock:
            self._make_until_ready(window)

    def _make_until_ready(self, window: Window) -> None:  # see NOTE [loops and try] in interrupts.py
        # This variable keeps the streams open if another thread cancels the window while a batch is made.
        reading = self._reading_of(window) if self._iterable else None
        while window.ready is None and not window.cancelled and (task := window.next_missing) is not None:
            if not self._closed:
                outcome = self._make(task, None if reading is None else reading.streams)
            if self._closed:  # perhaps by a signal handler while the batch was made
                self._close_readings()
                raise LoaderClosed("the loader was closed while this thread waited for a batch")
            window.put(outcome)
        if window.cancelled:
            window.reading = None

    def _reading_of(self, window: Window) -> _Reading:
        reading: _Reading | None = window.reading
        if reading is None:
            window.reading = reading = _Reading(self._maker)
            self._readings.add(reading)
        return reading

    def _close_readings(self) -> None:
        for reading in list(self._readings):
            reading.close()

    def wake(self) -> None:
        pass  # no thread waits for another

    def end_streams(self) -> None:
        pass  # they end with their window

    def time_out(self, task: Task, timeout: float) -> NoReturn:
        raise AssertionError("wait() of the serial executor never times out")

    def memory(self) -> None:
        return None

    def close(self) -> None:
        self._closed = True
        if not self._lock._is_owned() and self._lock.acquire(blocking=False):  # type: ignore[attr-defined]
            try:
                self._close_readings()
            finally:
                self._lock.release()
        # Otherwise a batch is made now, and `_make_until_ready` closes them afterwards.
        self._maker.close()
        self._buffers.close()
        close_statistics()

    def _make(self, task: Task, streams: Streams | None) -> Outcome:
        if not self._started:
            self._start(task)
        if not self._maker.may_draw:  # then no user code asks for the worker info, either
            return self._made(task, streams)
        running, generators = self._maker.running(), PreservedGenerators(self._maker.held)
        try:
            with running, generators:
                return self._made(task, streams)
        finally:
            running.restore()
            generators.restore()

    def _start(self, task: Task) -> None:
        running = self._maker.running()
        try:
            with running:
                self._maker.start(task.epoch)
                self._maker.find_generators()
        except Exception as error:
            if from_signal_handler(error):
                raise
            raise WorkerStartError(f"worker_init_fn(0) raised {type(error).__name__}: {text_of(error)}") from error
        finally:
            running.restore()
        self._started = True

    def _made(self, task: Task, streams: Streams | None) -> Outcome:
        with self._memory:
            try:
                batch = self._maker.make_measured(task, self.usage, streams)
                return Made(task, batch, made_s=self._maker.timer.took * 1e-9)
            except Exception as error:
                if from_signal_handler(error):
                    raise  # the batch is still missing, so it is made again
                return Failed(task, error)


class _Reading:
    """The streams that the caller reads for one window. They are closed when this object is dropped."""

    def __init__(self, maker: BatchMaker) -> None:
        self._maker, self.streams = maker, maker.new_streams()

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:  # see NOTE [exit] in interrupts.py
        if not ends():
            self.close()

    def close(self) -> None:
        """Closes the streams, as worker 0 would; the random generators of the caller stay as they are."""
        running, generators = self._maker.running(), PreservedGenerators(self._maker.held)
        try:
            with running, generators:
                self.streams.close()
        finally:
            running.restore()
            generators.restore()
