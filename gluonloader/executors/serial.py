"""The serial executor: each batch is made in the thread that asks for it."""

from __future__ import annotations

from typing import NoReturn

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


class SerialExecutor:
    """Makes batches one at a time, in the thread that waits for them."""

    window, makes_ahead = 1, False

    def __init__(self, job: Job) -> None:
        self._maker, self.usage = BatchMaker(job, 0, seed_restorable), Usage()
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
        while window.ready is None and not window.cancelled and (task := window.next_missing) is not None:
            if not self._closed:
                outcome = self._make(task)
            if self._closed:  # perhaps by a signal handler while the batch was made
                raise LoaderClosed("the loader was closed while this thread waited for a batch")
            window.put(outcome)

    def wake(self) -> None:
        pass  # no thread waits for another

    def time_out(self, task: Task, timeout: float) -> NoReturn:
        raise AssertionError("wait() of the serial executor never times out")

    def memory(self) -> None:
        return None

    def close(self) -> None:
        self._closed = True
        self._maker.close()
        self._buffers.close()
        close_statistics()

    def _make(self, task: Task) -> Outcome:
        if not self._started:
            self._start(task)
        if not self._maker.may_draw:  # then no user code asks for the worker info, either
            return self._made(task)
        running, generators = self._maker.running(), PreservedGenerators(self._maker.held)
        try:
            with running, generators:
                return self._made(task)
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

    def _made(self, task: Task) -> Outcome:
        with self._memory:
            try:
                batch = self._maker.make_measured(task, self.usage)
                return Made(task, batch, made_s=self._maker.timer.took * 1e-9)
            except Exception as error:
                if from_signal_handler(error):
                    raise  # the batch is still missing, so it is made again
                return Failed(task, error)
