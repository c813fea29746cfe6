"""The serial executor: each batch is made in the thread that asks for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakSet

from ..errors import LoaderClosed, WorkerStartError, text_of
from ..interrupts import from_signal_handler
from ..locks import Lock
from ..memory.buffers import BatchMemory, BufferPool
from ..randomness import PreservedGenerators, SparedGenerators
from ..work.core_wait import close_statistics
from ..work.maker import BatchMaker, held_by
from ..work.task import Job, Task
from ..work.usage import Usage
from .base import CLOSED, Failed, Made, Outcome, Window

if TYPE_CHECKING:
    from ..work.streams import Streams


class SerialExecutor:
    """Makes batches one at a time, in the thread that waits for them."""

    window, makes_ahead, keeps_streams = 1, False, False

    def __init__(self, job: Job) -> None:
        self._job, self.usage, self._generators = job, Usage(), SparedGenerators()
        self._maker = BatchMaker(job, 0, self._generators.seed)
        self._running = self._maker.running()
        self._iterable, self._readings = job.iterable, WeakSet[_Reading]()
        self._buffers = BufferPool(window=1)
        self._memory = BatchMemory(self._buffers)
        self._started = self._closed = False
        self._lock = Lock()  # without workers, users expect that only one thread at a time reads the dataset

    def submit(self, task: Task, window: Window) -> None:
        pass  # `wait` makes what is missing

    def resubmit(self, window: Window) -> None:
        pass

    def wait(self, window: Window, timeout: float | None) -> Outcome | None:
        with self._lock:
            return self._next_of(window)

    def _next_of(self, window: Window) -> Outcome | None:
        """Makes the next batch; None if the window was cancelled, perhaps meanwhile."""
        # This variable keeps the streams open if another thread cancels the window while a batch is made.
        reading = self._reading_of(window) if self._iterable else None
        task = None if window.cancelled else window.next_missing
        if task is None:
            window.reading = None
            return None
        if not self._closed:
            outcome = self._make(task, None if reading is None else reading.streams)
        if self._closed:  # perhaps by a signal handler while the batch was made
            self._close_readings()
            raise LoaderClosed(CLOSED)
        return outcome

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
        # Otherwise a batch is made now, and `_next_of` closes them afterwards.
        self._maker.close()
        self._buffers.close()
        close_statistics()

    def _make(self, task: Task, streams: Streams | None) -> Outcome:
        if not self._started:
            self._start(task)
        with self._memory:
            try:
                batch = self._maker.measured(self._batch_of, task, self.usage, streams)
                return Made(task, batch, made_s=self._maker.timer.took * 1e-9)
            except Exception as error:
                return Failed(task, error)

    def _batch_of(self, task: Task, streams: Streams | None) -> Any:
        if not self._maker.may_draw:  # then no user code asks for the worker info, either
            return self._maker.make(task, streams=streams)
        error = batch = None
        try:
            with self._running, self._generators:
                try:
                    batch = self._maker.make(task, streams=streams)
                except Exception as raised:  # perhaps since it drew other numbers than it should
                    if from_signal_handler(raised):
                        raise  # not hidden by a batch that is made again
                    error = raised
        finally:
            self._running.restore()
            self._generators.restore()
        if self._generators.missed:  # see NOTE [spared generators]
            return self._batch_of(task, streams)
        if error is not None:
            raise error
        return batch

    def _start(self, task: Task) -> None:
        running, generators = self._maker.running(), PreservedGenerators()
        try:
            with running:
                with generators:  # worker_init_fn may seed them
                    self._maker.start(task.epoch)
                self._maker.find_generators()
                reading = self._job.reading
                held = self._maker.held if reading.reseed_generators else held_by(self._job)
                can_repeat = not self._iterable and reading.on_error == "raise" and not held
                self._generators.begin(self._maker.held, can_repeat)
        except Exception as error:
            if from_signal_handler(error):
                raise
            raise WorkerStartError(f"worker_init_fn(0) raised {type(error).__name__}: {text_of(error)}") from error
        finally:
            running.restore()
            generators.restore()
        self._started = True


class _Reading:
    """The streams that the caller reads for one window. They are closed when this object is dropped."""

    def __init__(self, maker: BatchMaker) -> None:
        self._maker, self.streams = maker, maker.new_streams()

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:  # see NOTE [exit] in interrupts.py
        if not ends() and "streams" in vars(self):  # a signal handler may have raised in the constructor
            copy_context().run(self.close)  # see NOTE [finalizers] in current.py

    def close(self) -> None:
        """Closes the streams, as worker 0 would; the random generators of the caller stay as they are."""
        running, generators = self._maker.running(), PreservedGenerators(self._maker.held)
        try:
            with running, generators:
                self.streams.close()
        finally:
            running.restore()
            generators.restore()
