"""Samples of one batch that are read at the same time, by several threads.

row 0, 1, 2, ... --> the next thread that is free --> samples[row], or errors[row] --> `wait`
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from ..interrupts import Uninterrupted, from_signal_handler
from ..locks import Lock
from ..memory import for_samples
from ..randomness import CurrentBatch, current_batch, set_current_batch
from .info import RunningAs, get_worker_info


class SharedRead:
    """The samples of one batch, while several threads read them.

    Rows are taken in their order. If a sample raises an error, no sample after it is read any more. All samples before
    it are read, so the error of the lowest row is the error that reading one by one raises.

    Attributes:
        samples: the samples by row; None if a sample was not read.
    """

    def __init__(self, dataset: Any, indices: list[Any], seed: int) -> None:
        self._dataset, self._indices, self._seed = dataset, indices, seed
        self._info = get_worker_info()
        self._rows = deque(range(len(indices)))
        self._errors: dict[int, BaseException] = {}
        self._finished: SimpleQueue[int] = SimpleQueue()
        self.samples: list[Any] = [None] * len(indices)
        self._end = len(indices)  # samples from this row on are not read any more
        self._lock = Lock()  # while a failure is noted

    def run(self) -> None:
        """Reads samples in this thread until all were taken."""
        before, batch = current_batch(), CurrentBatch(self._seed)
        try:
            set_current_batch(batch)
            with RunningAs(self._info), for_samples():
                self._read_rows(batch)
        finally:
            set_current_batch(before)

    def _read_rows(self, batch: CurrentBatch) -> None:
        while (row := self.take()) is not None:
            batch.row = row
            try:
                if self.wants(row):
                    self.samples[row] = self.read(row)
            except BaseException as error:
                if from_signal_handler(error):
                    raise
                self.fail(row, error)
            self._finished.put(row)

    def read(self, row: int) -> Any:
        return self._dataset[self._indices[row]]

    def take(self) -> int | None:
        """The next row to read; None if all were taken."""
        try:
            return self._rows.popleft()
        except IndexError:
            return None

    def wants(self, row: int) -> bool:
        return row < self._end

    def fail(self, row: int, error: BaseException) -> None:
        with self._lock:
            self._errors[row] = error
            self._end = min(self._end, row)

    def stop(self) -> None:
        """Called if nobody waits for the samples any more: each thread finishes its sample, and reads no other."""
        self._end = 0

    def wait(self) -> None:
        """Waits until each sample was read or skipped."""
        for _ in self._indices:
            self._finished.get()

    def first_error(self) -> tuple[int, BaseException] | None:
        """The error of the lowest row that has failed, with that row."""
        row = min(self._errors, default=None)
        error = None if row is None else self._errors[row]
        self._errors.clear()  # the traceback of an error refers to this object
        return None if row is None or error is None else (row, error)


class ReadingThreads:
    """Threads that run functions, until `close`.

    They are daemons, so a read that hangs does not keep the program from ending.
    """

    def __init__(self, name: str) -> None:
        self._name, self._started = name, 0
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

    def start(self, count: int) -> None:
        """Makes sure that there are at least `count` threads."""
        while self._started < count:
            with Uninterrupted():
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
                self._started += 1

    def run(self, function: Callable[[], object], times: int = 1) -> None:
        """Runs a function in `times` threads; it must not raise. If all threads are busy, it runs later."""
        for _ in range(times):
            self._queue.put(function)

    def _serve(self) -> None:
        while (function := self._queue.get()) is not None:
            function()
            del function  # it refers to the samples of a batch
        self._queue.put(None)  # for the next thread

    def close(self) -> None:
        """Ends the threads, each after what it runs now."""
        self._queue.put(None)
