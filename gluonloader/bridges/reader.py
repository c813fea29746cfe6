"""The thread of a bridge, and what it alone does: it reads the source ahead, one run after the other.

iter(bridge)
|  Run: one epoch, with `prefetch` permits
v
thread: opens the source
|  spends a permit for each batch
v
next(source) --> convert --> ready --> next(iterator) --> user
|  each delivery gives its permit back

Both queues are SimpleQueues: their `put` may be called anywhere, by the garbage collector too, so an iterator that dies
ends its run without a lock.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import perf_counter
from typing import Any, Final

from ..errors import BatchTimeout, LoaderClosed, add_note, bad_state
from .source import Opened, Source, state_of

__all__ = ["Came", "Position", "Reader", "Run"]

_CLOSING_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Position:
    """Where a bridge stands, or is to begin.

    Attributes:
        epoch: its number.
        batch: how many batches the source had given when the last one was delivered.
        source: the source's own state then, as JSON; None if it has none; the exception that it raised instead.
        load: it was loaded, so the source has to be put there.
    """

    epoch: int = 0
    batch: int = 0
    source: Any = None
    load: bool = False


@dataclass(frozen=True, slots=True)
class Came:
    """What the thread got: a batch; an error; the end; or, with both, an epoch that could not begin."""

    batch: Any = None
    position: Position | None = None  # after it
    error: BaseException | None = None
    ended: bool = False


class Run:
    """One epoch, as the thread and the iterator share it.

    Attributes:
        number: how many batches the source has given.
        stopped: why nobody wants its batches any more; "" as long as somebody does.
    """

    def __init__(self, begin: Position, prefetch: int) -> None:
        self.begin = begin
        self.permits: SimpleQueue[bool] = SimpleQueue()
        self.ready: SimpleQueue[Came | None] = SimpleQueue()
        self.number = 0
        self.stopped = ""
        for _ in range(prefetch):
            self.permits.put(True)

    def stop(self, why: str) -> None:
        """Ends it, and wakes who waits for it."""
        self.stopped = self.stopped or why
        self.permits.put(False)
        self.ready.put(None)

    def __str__(self) -> str:
        return f"batch {self.number} of epoch {self.begin.epoch}"


class Reader:
    """Reads a source in a thread, which starts with the first run.

    Attributes:
        made_s: seconds that batches took to make.
        idle_s: seconds that the thread waited for a permit.
    """

    def __init__(self, source: Source, convert: Callable[[Any], Any]) -> None:
        self._source, self._convert = source, convert
        self._runs: SimpleQueue[Run | None] = SimpleQueue()
        self._run: Run | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._closed = False
        self.made_s = self.idle_s = 0.0

    def begin(self, position: Position, prefetch: int) -> Run:
        """Ends the run before, and begins another one."""
        self.check_process()
        if self._closed:
            raise LoaderClosed("this Bridge is closed; make a new one, or iterate inside its `with` block")
        if self._run is not None:
            self._run.stop("a newer iteration of this Bridge has begun; for two at a time, make two bridges")
        if self._thread is None:
            self._pid = os.getpid()
            self._thread = threading.Thread(target=self._serve, name="gluonloader-bridge", daemon=True)
            self._thread.start()
        self._run = run = Run(position, prefetch)
        self._runs.put(run)
        return run

    def take(self, run: Run, timeout: float | None) -> Came:
        """What comes next; while batches are skipped, `timeout` is for each of them.

        Raises:
            BatchTimeout: it takes longer.
            LoaderClosed: the run was stopped.
        """
        self.check_process()
        while not run.stopped:
            number = run.number
            try:
                came = run.ready.get(timeout=timeout)
            except Empty:
                if run.number == number:
                    raise self._overdue(run, timeout) from None
                continue
            if came is not None and not run.stopped:
                return came
        raise LoaderClosed(run.stopped)

    def check_process(self) -> None:
        if self._thread is not None and os.getpid() != self._pid:
            raise RuntimeError("this Bridge is in use in the parent process; make a new one in the forked child")

    def close(self) -> None:
        """Ends the thread, and waits until it has ended, unless the source is stuck."""
        self._closed = True
        if self._run is not None:
            self._run.stop("this Bridge is closed")
        self._runs.put(None)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_CLOSING_S)  # a thread cannot be killed

    def _overdue(self, run: Run, timeout: float | None) -> BatchTimeout:
        frame = sys._current_frames().get(self._thread.ident or 0) if self._thread is not None else None
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "its end\n"
        return BatchTimeout(f"{run} of {self._source.name} took more than timeout={timeout} seconds; it is at\n{stack}")

    # -- in the thread ----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while (run := self._runs.get()) is not None:
            if not run.stopped:
                self._read(run)
            del run

    def _read(self, run: Run) -> None:
        """One epoch, until its end or until it is stopped."""
        begin = run.begin
        try:
            opened = self._source.open(begin.epoch, begin.source if begin.load else None)
        except BaseException as error:
            run.ready.put(Came(error=_noted(error, run), ended=True))
            return
        if begin.source is not None:
            run.number = begin.batch
        while self._permitted(run):
            skips = run.number < begin.batch
            came = self._next(run, opened, skips)
            if skips and came.error is None:
                run.permits.put(True)
                continue
            run.ready.put(came)
            if came.ended:
                return
            del came  # the batch is its user's alone

    def _permitted(self, run: Run) -> bool:
        began = perf_counter()
        permitted = run.permits.get()
        self.idle_s += perf_counter() - began
        return permitted and not run.stopped

    def _next(self, run: Run, opened: Opened, skips: bool) -> Came:
        """What the source gives next; nothing is done to a batch that is to be skipped."""
        began = perf_counter()
        try:
            batch = next(opened.batches)
        except StopIteration:
            return self._end(run, opened, skips)
        except BaseException as error:
            return Came(error=_noted(error, run))
        try:
            came = Came() if skips else Came(self._convert(batch), self._after(run, opened))
        except BaseException as error:
            came = Came(error=_noted(error, run))
        run.number += 1
        self.made_s += perf_counter() - began
        return came

    def _after(self, run: Run, opened: Opened) -> Position:
        return Position(run.begin.epoch, run.number + 1, state_of(opened.stateful))

    def _end(self, run: Run, opened: Opened, skips: bool) -> Came:
        if skips:
            missing = bad_state("batch", run.begin.batch, f"the source has ended after {run.number} batches")
            return Came(error=missing, ended=True)
        # What is made anew for the next epoch stands at its start.
        state = state_of(opened.stateful) if opened.lasts else None
        return Came(position=Position(run.begin.epoch + 1, 0, state), ended=True)


def _noted(error: BaseException, run: Run) -> BaseException:
    """The error with a note that says where; one that would end the iteration unnoticed is another one."""
    if isinstance(error, StopIteration):
        unnoticed, error = error, RuntimeError("a bridge's source or output raised StopIteration outside of next()")
        error.__cause__ = unnoticed
    add_note(error, f"gluonloader: in the source of a bridge, at {run}")
    return error
