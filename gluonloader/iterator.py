"""One epoch of a loader: keeps the window full, hands out what has come in its turn, and stands at a position.

plan --Task--> window --> executor --Outcome--> inbox --> window --> plan --> batch
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from .errors import LoaderClosed, WorkerStartError
from .executors.base import Executor, Inbox, Outcome
from .executors.serial import SerialExecutor
from .loading.plan import NOTHING, Plan
from .loading.stats import Tally
from .loading.window import Window
from .work.task import Task

__all__ = ["LoaderIterator"]

Finish = Callable[[Any], Any] | None

_STARTING: Final = 16  # most batches of an epoch's first window that are left out of what is measured

_here = [os.getpid()]  # to ask the system for it at each batch takes time
os.register_at_fork(after_in_child=lambda: _here.__setitem__(0, os.getpid()))


class Owner(Protocol):
    """The loader, as its iterators know it."""

    def close(self) -> None: ...
    def _reposition(self, state: Any) -> tuple[Plan, Executor]: ...
    def _state_of(self, plan: Plan) -> dict[str, Any]: ...
    def _epoch_is_over(self, plan: Plan) -> None: ...


class LoaderIterator(Iterator[Any]):
    """One epoch of a loader. A class, not a generator: after a batch that raised, the next one still comes."""

    def __init__(
        self,
        executor: Executor,
        plan: Plan,
        window: int,
        in_order: bool,
        timeout: float | None,
        finish: Finish,
        tally: Tally,
    ) -> None:
        self._executor, self._plan, self._timeout, self._finish = executor, plan, timeout, finish
        self._tally = tally
        self._window_size, self._in_order = window, in_order
        self._pid = _here[0]
        self._loader: Owner | None = None  # kept alive by the iteration
        self._lock = threading.RLock()
        self._clear()
        self._fill()

    def _clear(self) -> None:
        self._window: Window[Outcome] = Window(self._window_size, self._in_order)
        self._tasks: dict[int, Task] = {}
        self._inbox = Inbox()
        self._had, self._made_s = 0, 0.0  # batches, and what the last one took to make
        alone = isinstance(self._executor, SerialExecutor)  # nothing is ahead of the program
        self._starting = 0 if alone else min(self._window_size, _STARTING)
        self._drawn = False  # the plan has given all it has
        self._ended = False
        self._sampler_error: Exception | None = None

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Any:
        """The next batch.

        Raises:
            BatchTimeout: it took longer than `timeout`.
            WorkerDied: it killed its workers.
            Exception: whatever dataset or batchify raised, with a note that says where.
        """
        with self._at_home():
            batch, began = NOTHING, time.perf_counter()
            try:
                while batch is NOTHING:
                    batch = self._next()
            except LoaderClosed as error:
                if not self._plan.outdated or error.__cause__ is not None:
                    raise
                text = "a position was loaded since this iterator began, with which the loader took other workers"
                raise LoaderClosed(f"{text}; go on with iter(loader)") from error
            self._had += 1
            self._tally.count(time.perf_counter() - began, self._made_s, self._had > self._starting)
            return batch if self._finish is None else self._finish(batch)

    @property
    def ended(self) -> bool:
        """Whether it was used to its end, or broken off."""
        return self._ended

    @property
    def sampler(self) -> Any:
        """The sampler that this epoch draws from, alive: change it, and `flush()`. None for an iterable dataset."""
        return getattr(self._plan, "sampler", None)

    def flush(self) -> None:
        """Discards all batches that were not delivered, puts the sampler back to just after the last one, draws anew.

        So a change to the sampler, say new weights, takes effect with the very next batch; nothing is lost or doubled.

        Raises:
            TypeError: a sampler of your own cannot be put back, since it has no `state_dict` and `load_state_dict`.
            LoaderClosed: the epoch has come to its end, or was broken off.
        """
        with self._at_home():
            self._owner()
            with self._plan.lock:
                self._plan.rewind()
            self._restart()

    def state_dict(self) -> dict[str, Any]:
        """Where this epoch stands, after the last batch that was delivered; see `DataLoader.state_dict`."""
        with self._lock:
            return self._owner()._state_of(self._plan)

    def load_state_dict(self, state: Any) -> None:
        """Has this iterator go on where `state` was saved; see `DataLoader.load_state_dict`."""
        with self._at_home():
            self._plan, executor = self._owner()._reposition(state)
            self._drop()
            self._executor = executor  # another one if the dataset has a state, which workers have to start with
            self._restart()

    def close(self) -> None:
        """Breaks the epoch off: what is in flight is dropped. Also done when the iterator is deleted.

        A thread that waits in `next` meanwhile gets its StopIteration at once.
        """
        ended, self._drawn, self._ended, self._loader = self._ended, True, True, None
        self._drop()
        if not ended:
            self._executor.wake()

    def __reduce__(self) -> Any:
        with self._lock:
            return _resumed, (self._owner(), self.state_dict())

    def __del__(self) -> None:
        if hasattr(self, "_inbox"):
            self.close()

    def _at_home(self) -> threading.RLock:
        """The lock of what needs the workers."""
        if _here[0] != self._pid:
            raise RuntimeError("this iterator belongs to the parent process; call iter(loader) in the forked child")
        return self._lock

    def _owner(self) -> Owner:
        if self._loader is None:
            raise LoaderClosed("this iterator has come to its end, or was closed; the loader's own state says where")
        return self._loader

    def _restart(self) -> None:
        self._drop()
        self._clear()
        self._fill()

    def _drop(self) -> None:
        self._inbox.withdraw()
        for outcome in self._window.clear():
            outcome.discard()

    def _next(self) -> Any:
        """What comes next: a batch, or NOTHING where the plan has none for the user."""
        if self._window.size < self._window_size or not self._window.ready:  # room was held back, or nothing is there
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
        self._fill(holding=True)  # first, so that a worker is busy while this thread rebuilds
        try:
            self._made_s = outcome.made_s
            result = outcome.take()
            with self._plan.lock:
                return self._plan.deliver(task, result)
        except LoaderClosed:
            raise
        except Exception as error:
            with self._plan.lock:
                tell = self._plan.fail(task, error)
            if tell:
                raise
            return NOTHING
        finally:
            if self._window.empty:  # not before: it may let go of the loader, which closes it
                self._fill()
                if self._window.empty:
                    self._end()

    def _fill(self, holding: bool = False) -> None:
        """Asks the plan until the window is full; an error of a sampler is raised after the batches before it."""
        if not self._drawn:
            self._window.size = self._executor.window(self._window_size, holding)
        while self._window.has_room and not self._drawn:
            try:
                with self._plan.lock:
                    task = self._plan.next()
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
        """Waits until one more batch has come."""
        try:
            outcome = self._executor.wait(self._inbox, self._timeout)
        except WorkerStartError:
            if self._loader is not None:
                self._loader.close()
            raise
        if self._inbox.withdrawn:  # closed by another thread
            if outcome is not None:
                outcome.discard()
            self._drop()  # what this thread drew and asked for meanwhile
            return
        if outcome is None:
            number = self._window.oldest
            task = self._tasks.pop(number)
            self._window.drop(number)
            error = self._executor.overdue(task, self._timeout or 0)
            with self._plan.lock:
                tell = self._plan.fail(task, error)
            self._fill()
            if tell:
                raise error
            return
        if self._tasks.get(outcome.task.batch) is outcome.task:  # and not one that was given up for late
            self._window.complete(outcome.task.batch, outcome)
        else:
            outcome.discard()

    def _end(self) -> None:
        """The last batch has been delivered."""
        if self._ended:
            return
        self._ended = True
        if self._sampler_error is None:  # a pass that failed carries nothing over, as one that is broken off
            with self._plan.lock:
                self._plan.finish()
        if self._loader is not None:
            self._loader._epoch_is_over(self._plan)
            self._loader = None


def _resumed(loader: Any, state: dict[str, Any]) -> Any:
    """An iterator that goes on where another stood, whose loader was pickled with it."""
    loader.load_state_dict(state)
    return iter(loader)
