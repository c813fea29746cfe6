"""One epoch while it is read: keeps the window full, and delivers the batches that have arrived, in order.

plan --Task--> window --> executor --Outcome--> inbox --> window --> plan --> batch --> convert --> user
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from ..errors import LoaderClosed, WorkerStartError
from ..executors.base import Executor, Inbox, Outcome
from ..work.task import Task
from .plan import NOTHING, Plan
from .stats import Tally

_STARTING: Final = 16  # this many first batches of an epoch are not measured, since workers have no lead yet


T = TypeVar("T")


class Window(Generic[T]):
    """The batches (at most `size`) that are drawn from the sampler and not delivered.

    Args:
        size: most batches in flight, at least 1.
        in_order: deliver batches in the order in which they were added; otherwise in the order in which they complete.

    >>> window = Window(2, in_order=True)
    >>> window.add(0); window.add(1); window.has_room
    False
    >>> window.complete(1, "b"); window.ready
    False
    >>> window.complete(0, "a"); window.deliver(), window.deliver()
    ('a', 'b')
    """

    __slots__ = ("_completed", "_in_flight", "_in_order", "size")

    def __init__(self, size: int, in_order: bool) -> None:
        self.size = size
        self._in_order = in_order
        self._in_flight: dict[int, None] = {}  # in the order in which they were added
        self._completed: dict[int, T] = {}  # the completed batches of those, in the order of completion

    @property
    def has_room(self) -> bool:
        return len(self._in_flight) < self.size

    @property
    def empty(self) -> bool:
        return not self._in_flight

    @property
    def oldest(self) -> int:
        return next(number for number in self._in_flight if number not in self._completed)

    @property
    def ready(self) -> bool:
        return bool(self._completed) and (not self._in_order or next(iter(self._in_flight)) in self._completed)

    def add(self, number: int) -> None:
        """Adds a batch; only if `has_room`."""
        self._in_flight[number] = None

    def complete(self, number: int, item: T) -> None:
        self._completed[number] = item

    def deliver(self) -> T:
        """Removes and returns the next batch; only if `ready`."""
        number = next(iter(self._in_flight if self._in_order else self._completed))
        del self._in_flight[number]
        return self._completed.pop(number)

    def drop(self, number: int) -> None:
        del self._in_flight[number]

    def clear(self) -> list[T]:
        """Empties the window for good and returns what has completed; `has_room` stays False."""
        completed = list(self._completed.values())
        self._completed, self._in_flight, self.size = {}, {}, 0
        return completed


@dataclass(frozen=True, slots=True)
class Delivery:
    """How batches are delivered; see the arguments of `DataLoader`."""

    in_order: bool
    timeout: float | None
    convert: Callable[[Any], Any] | None  # to the arrays of `output`, and to pinned memory


class Epoch:
    """The batches of one epoch, for one thread at a time.

    Attributes:
        ended: the last batch was delivered, or the epoch was closed.
        workers_failed: the executor's workers cannot start.
    """

    def __init__(self, executor: Executor, plan: Plan, delivery: Delivery, tally: Tally) -> None:
        self.plan, self._executor, self._delivery, self._tally = plan, executor, delivery, tally
        self._start()

    def _start(self) -> None:
        self._window: Window[Outcome] = Window(self._executor.window, self._delivery.in_order)
        self._tasks: dict[int, Task] = {}
        self._inbox = Inbox()
        self._delivered, self._made_s = 0, 0.0  # batches; seconds that the last one took to make
        self._not_measured = min(self._executor.window, _STARTING)
        self._drawn = False  # the plan has given out everything
        self.ended = self.workers_failed = False
        self._complete = True  # no batch was lost because the loader was closed
        self._sampler_error: Exception | None = None
        self._fill()

    def next(self) -> Any:
        """The next batch.

        Raises:
            StopIteration: the epoch has no more batches.
            Exception: the error of the batch; the following batch can still be read.
        """
        batch, start = NOTHING, time.perf_counter()
        while batch is NOTHING:
            batch = self._next()
        self._delivered += 1
        tally, waited_s = self._tally, time.perf_counter() - start
        tally.batches += 1
        tally.waited_s += waited_s
        tally.made_s += self._made_s
        if self._delivered > self._not_measured:
            tally.waits.append(waited_s)
            tally.makes.append(self._made_s)
        convert = self._delivery.convert
        return batch if convert is None else convert(batch)

    def rewind(self) -> None:
        """Discards all batches that were not delivered and draws them again."""
        with self.plan.lock:
            self.plan.rewind()
        self._cancel()
        self._start()

    def replace(self, executor: Executor, plan: Plan) -> None:
        self._cancel()
        self.plan, self._executor = plan, executor
        self._start()

    def close(self) -> None:
        """Discards all batches that were not delivered. Takes no lock; see NOTE [cancelled] in executors/base.py."""
        ended, self._drawn, self.ended = self.ended, True, True
        self._cancel()
        if not ended:
            self._executor.wake()

    def __del__(self) -> None:
        if hasattr(self, "_inbox"):
            self.close()

    def _cancel(self) -> None:
        self._inbox.cancel()
        for outcome in self._window.clear():
            outcome.discard()

    def _next(self) -> Any:
        """The next batch, or NOTHING if the plan has no batch for the user now."""
        if not self._window.ready:
            self._fill()
            if self._window.empty:
                self._end()
                error, self._sampler_error = self._sampler_error, None
                raise error or StopIteration
        while not self._window.ready:
            if self._window.empty:
                return NOTHING
            self._wait()
        outcome = self._window.deliver()
        task = self._tasks.pop(outcome.task.batch)
        self._fill()  # first, so that a worker is busy while this thread rebuilds the batch
        try:
            self._made_s = outcome.made_s
            result = outcome.take()
            with self.plan.lock:
                return self.plan.deliver(task, result)
        except LoaderClosed:  # the batch counts as not delivered
            self._complete = False
            raise
        except Exception as error:
            with self.plan.lock:
                raised = self.plan.fail(task, error)
            if raised:
                raise
            return NOTHING
        finally:
            if self._window.empty:
                self._fill()
                if self._window.empty:
                    self._end()

    def _fill(self) -> None:
        """Submits tasks until the window is full. An error of a sampler is raised after the batches before it."""
        if self._drawn:
            return
        self._window.size = self._executor.window
        while self._window.has_room and not self._drawn:
            try:
                with self.plan.lock:
                    task = self.plan.next()
            except StopIteration:
                self._drawn = True
                return
            except Exception as error:
                self._drawn, self._sampler_error = True, error
                return
            if task is None:
                return
            self._window.add(task.batch)
            self._tasks[task.batch] = task
            self._executor.submit(task, self._inbox)

    def _wait(self) -> None:
        """Waits until one more batch has arrived."""
        timeout = self._delivery.timeout
        try:
            outcome = self._executor.wait(self._inbox, timeout)
        except WorkerStartError:
            self.workers_failed = True
            raise
        if self._inbox.cancelled:  # another thread has closed the epoch
            if outcome is not None:
                outcome.discard()
            self._cancel()  # the tasks that this thread has submitted meanwhile
        elif outcome is None:
            self._time_out(timeout or 0)
        elif self._tasks.get(outcome.task.batch) is outcome.task:
            self._window.complete(outcome.task.batch, outcome)
        else:  # it had timed out
            outcome.discard()

    def _time_out(self, timeout: float) -> None:
        """The oldest batch took too long: its outcome is an error, and work on the other batches continues."""
        number = self._window.oldest
        task = self._tasks.pop(number)
        self._window.drop(number)
        error = self._executor.time_out(task, timeout)
        with self.plan.lock:
            raised = self.plan.fail(task, error)
        self._fill()
        if raised:
            raise error

    def _end(self) -> None:
        """The last batch was delivered."""
        if self.ended:
            return
        self.ended = True
        # Otherwise no samples move to the next epoch, as if the epoch had been closed.
        if self._sampler_error is None and self._complete:
            with self.plan.lock:
                self.plan.finish()
