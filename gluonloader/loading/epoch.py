"""One epoch while it is read: keeps the window full, and delivers the batches that have arrived, in order.

plan --Task--> window --> executor --Outcome--> window --> plan --> batch --> convert --> user
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import LoaderClosed, WorkerStartError
from ..executors import ended
from ..executors.base import CalledInHandler, Executor, Failed, Outcome, Window
from ..interrupts import from_signal_handler
from ..messages import message
from ..statistics.tally import Tally
from ..work.info import BadSample
from ..work.task import Task
from .plan import NOTHING, Plan

if TYPE_CHECKING:
    from .ahead import Ahead, Standby


@message(frozen=True, slots=True)
class Delivery:
    """How batches are delivered; see the arguments of `DataLoader`.

    Attributes:
        convert: to the arrays of `output`, and to pinned memory.
        max_errors: how many samples of an epoch may raise an error; None unless samples may do so (`on_error`).
        draws_ahead: whether the indices of the next batch are drawn before a batch is delivered, so that the last batch
            ends the epoch. Otherwise they are drawn when they are needed.
        samples_in: counts the samples of a task, in its batch; None if each key of the task is one.
    """

    in_order: bool
    timeout: float | None
    convert: Callable[[Any], Any] | None
    max_errors: int | None = None
    draws_ahead: bool = True
    samples_in: Callable[[Task, Any], int] | None = None


@message(frozen=True, slots=True, eq=False)
class Delivered:
    """How a batch was made."""

    task: Task
    worker: int | None
    made_s: float
    waited_s: float
    errors: tuple[BadSample, ...]
    samples: int


class Epoch:
    """The batches of one epoch, for one thread at a time.

    Args:
        look_ahead: returns what tells caches of the next batches of a plan; None if there are no caches.

    Attributes:
        ended: the last batch was delivered, or the epoch was closed.
        draws_ahead: see `Delivery`.
        workers_failed: the executor's workers cannot start.
    """

    def __init__(
        self,
        executor: Executor,
        plan: Plan,
        delivery: Delivery,
        tally: Tally,
        look_ahead: Callable[[Plan], Ahead | Standby | None] | None = None,
    ) -> None:
        self.plan, self._executor, self._delivery, self._tally = plan, executor, delivery, tally
        self._look_ahead = look_ahead
        self.draws_ahead = delivery.draws_ahead
        self._watch()
        self._start(executor.makes_ahead)

    def _start(self, draws: bool) -> None:
        self._interrupted = True  # until the end of a method; see NOTE [interrupts] in executors/base.py
        self._window = Window(self.plan.in_flight, self._delivery.in_order, self)
        self._counts = self._tally.start(self.plan.epoch)
        self._asked = 0.0  # when `next` was called last, as `time.perf_counter()`
        self._drawn = False  # the plan has given out everything
        self.ended = self.workers_failed = False
        self._complete = True  # no batch was lost because the loader was closed
        self._final_error: Exception | None = None  # of the sampler or of too many samples; ends the epoch
        self._ahead = None if self._look_ahead is None else self._look_ahead(self.plan)
        if draws:
            self._submit()
        self._interrupted = False

    def draw_ahead(self) -> None:
        """Draws the first indices, also if the executor makes batches only when the user asks for them."""
        before, self._interrupted = self._interrupted, True
        self._submit()
        self._interrupted = before

    def next(self) -> tuple[Any, Delivered]:
        """The next batch, and how it was made.

        Raises:
            StopIteration: the epoch has no more batches.
            Exception: the error of the batch; the following batch can still be read.
        """
        # It is cancelled if the garbage collector deletes a reference cycle with this epoch, and a `__del__` in the
        # cycle calls `next`: before that, the collector clears the window's reference to its owner.
        if self._interrupted or self._window.cancelled:
            self._repair()
        self._interrupted = True
        start = self._asked = time.perf_counter()
        ready = len(self._window.arrived)
        while True:
            outcome = self._wait_for_next()
            if self.draws_ahead:
                self._submit(1)  # first, so that a worker is busy while this batch is taken
            if (batch := self._accept(outcome)) is not NOTHING:
                break
            del outcome  # so that no error keeps the memory of the batch
        task = outcome.task
        if self._delivery.convert is not None:
            batch = self._converted(task, batch)
        errors = () if self.plan.errors.limit is None else self.plan.errors.of(task)
        samples_in = self._delivery.samples_in
        samples = len(task.work) if samples_in is None else samples_in(task, batch)
        if errors:
            samples -= sum(bad.skipped for bad in errors)
        waited_s = self._count(outcome, batch, samples, start, ready)
        delivered = Delivered(task, outcome.worker, outcome.made_s, waited_s, errors, samples)
        if self._ahead is not None:
            self._ahead.move()
        self._settle(task)
        return batch, delivered

    def rewind(self) -> None:
        """Discards all batches that were not delivered and draws them again."""
        if self._interrupted:
            self._repair()
        self._interrupted = True
        with self.plan.lock:
            self.plan.rewind()
        self._window.cancel()
        self._start(draws=True)  # so that a change to the sampler applies here, with any executor

    def replace(self, executor: Executor, plan: Plan) -> None:
        self._interrupted = True
        self._window.cancel()
        self._end_streams()
        self.plan, self._executor = plan, executor
        self._watch()
        self._start(executor.makes_ahead)

    def close(self) -> None:
        """Discards all batches that were not delivered. Takes no lock; see NOTE [cancelled] in executors/base.py."""
        had_ended, self._drawn, self.ended = self.ended, True, True
        self._window.cancel()
        if not had_ended:
            self._executor.wake()
            self._end_streams()

    def _watch(self) -> None:
        """Makes workers close the streams of this epoch when it is deleted."""
        if self._executor.keeps_streams:
            ended.watch(self, self._executor)

    def _end_streams(self) -> None:
        """Makes workers close the streams of this epoch, since its window was cancelled."""
        if self._executor.keeps_streams:
            ended.tell(self._executor)

    def _repair(self) -> None:
        """Makes plan, window and executor agree again after an exception; see NOTE [interrupts]."""
        if self.ended:
            return
        with self.plan.lock:
            self.plan.resume()
        if self._window.cancelled:
            self.plan.in_flight.renew()  # workers may still make the old tasks, for the cancelled window
            self._window = Window(self.plan.in_flight, self._delivery.in_order, self)
        self._window.drop_unwanted()
        self._drawn = self._final_error is not None  # otherwise `_submit` asks the plan again for tasks
        self._executor.resubmit(self._window)
        if self._look_ahead is not None:
            self._ahead = self._look_ahead(self.plan)

    def _wait_for_next(self) -> Outcome:
        """Waits for the outcome of the next batch; raises the final error or StopIteration if there is none."""
        window = self._window
        while not self.ended:
            number = window.ready
            if number is not None:
                outcome = window.arrived.get(number)
                if outcome is not None:  # it is None if another thread has closed the epoch just now
                    return outcome
            self._submit()
            if not window.in_flight:
                self.end_if_drawn()
            elif (outcome := self._wait()) is not None:
                return outcome
        error, self._final_error = self._final_error, None
        self._interrupted = False
        raise error or StopIteration

    def _accept(self, outcome: Outcome) -> Any:
        """The batch of an outcome, or NOTHING if there is no batch for the user; then its task is settled."""
        task = outcome.task
        try:
            result = outcome.take()
            with self.plan.lock:
                batch = self.plan.accept(task, result)
        except LoaderClosed:  # the batch counts as not delivered
            self._complete = False
            if self.ended:  # another thread has closed this epoch
                raise StopIteration from None
            raise
        except Exception as error:
            refused = isinstance(error, CalledInHandler) and not isinstance(outcome, Failed)
            if refused or from_signal_handler(error):
                raise
            self._fail(task, error)
            batch = NOTHING
        else:
            if self.plan.errors.limit is not None and not self._tolerates_errors(task):
                batch = NOTHING
        if batch is NOTHING and not self.ended:  # it has ended if too many samples raised errors
            self._settle(task)
            self._interrupted = True
        return batch

    def _tolerates_errors(self, task: Task) -> bool:
        """Logs and counts the samples of a batch that raised an error; ends the epoch if there are too many."""
        with self.plan.lock:
            errors, excess = self.plan.errors.of(task), self.plan.errors.excess(task)
        if excess is None:
            self._tally.note(errors)
            return True
        self._final_error = excess
        self.close()
        return False

    def _converted(self, task: Task, batch: Any) -> Any:
        convert = self._delivery.convert
        assert convert is not None
        # If a signal handler interrupts `convert`, which may write to the batch, the batch is made again.
        self._window.arrived.pop(task.batch, None)
        try:
            return convert(batch)
        except Exception as error:
            if not from_signal_handler(error):
                self._count_failed(task)
                self._settle(task)
            raise

    def _fail(self, task: Task, error: BaseException) -> None:
        """Notes that a task failed. Raises the error and settles the task, if the error is for the user."""
        with self.plan.lock:
            raised = self.plan.fail(task, error)
        if raised:
            self._count_failed(task)
            self._settle(task)
            raise error

    def _settle(self, task: Task) -> None:
        """Settles a task. This is the last step: from now on the batch counts as delivered."""
        in_flight = self.plan.in_flight
        self._window.arrived.pop(task.batch, None)
        is_last = self._drawn and not self.ended and len(in_flight) == 1
        if is_last and self._final_error is None and self._complete:
            self.plan.finish()
        in_flight.settle(task)
        self._interrupted = False  # no handler runs between the change of the dict and this statement

    def _submit(self, spare: int = 0) -> None:
        """Submits tasks until the window is full. An error of a sampler is raised after the batches before it.

        Args:
            spare: number of batches in the window that are about to leave it.
        """
        plan, executor = self.plan, self._executor
        size = 0 if self._drawn else executor.window + spare
        while len(plan.in_flight) < size and not self._drawn:
            try:
                with plan.lock:
                    task = plan.next()
            except StopIteration:
                self._drawn = True
                return
            except Exception as error:
                if from_signal_handler(error):
                    raise
                self._drawn, self._final_error = True, error
                return
            if task is None:
                return
            if self._tally.trace is not None:
                self._tally.trace.drew(task, time.perf_counter())
            executor.submit(task, self._window)

    def _wait(self) -> Outcome | None:
        """Waits for the next batch. If that takes longer than the timeout, its task fails; other tasks continue.

        Returns the outcome if the executor has made the batch in this thread.
        """
        timeout, window = self._delivery.timeout, self._window
        try:
            made = self._executor.wait(window, timeout)
        except WorkerStartError:
            self.workers_failed = True
            raise
        if made is not None or window.ready is not None:
            return made
        task = window.next_missing
        if task is not None and window.wants(task):
            error = self._executor.time_out(task, timeout or 0)
            if error is not None:
                self._fail(task, error)
                self._settle(task)
                self._interrupted = True
        return None

    def _count(self, outcome: Outcome, batch: Any, samples: int, start: float, ready: int) -> float:
        """Counts a batch; returns the seconds since `start`, when `ready` batches had arrived."""
        task = outcome.task
        now = self._counts.count(batch, task.batch, samples, outcome.made_s, start)
        self._counts.ready += ready
        if self._tally.trace is not None:
            self._tally.trace.delivered(task, start, now, ready, len(self._window.in_flight))
        return now - start

    def _count_failed(self, task: Task) -> None:
        """Counts a batch whose error `next` is about to raise."""
        self._tally.failed += 1
        now = self._counts.wait(self._asked)
        if self._tally.trace is not None:
            self._tally.trace.failed(task, self._asked, now)

    def end_if_drawn(self) -> None:
        """Ends the epoch if the last batch was delivered."""
        before, self._interrupted = self._interrupted, True
        self._submit()
        if self._drawn and not self.plan.in_flight and not self.ended:
            # If a batch was lost or the sampler failed, no samples move to the next epoch.
            if self._final_error is None and self._complete:
                self.plan.finish()
            self.ended = True
            self._window.cancel()
            self._end_streams()
        self._interrupted = before
