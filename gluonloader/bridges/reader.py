"""The thread of a bridge: it reads the source ahead, one epoch (`BridgeEpoch`) after the other.

iter(bridge)
|  BridgeEpoch: one epoch, with `prefetch` permits
v
thread: opens the source
|  takes a permit before each batch
v
next(source) --> convert --> ready --> next(iterator) --> user
|  each delivery returns a permit
v
thread: reads on

Permits and ready batches travel in a SimpleQueue: even the garbage collector may call its `put`, so an iterator that is
deleted stops its epoch without a lock.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, Final

from ..errors import BatchTimeout, LoaderClosed, add_note, bad_state
from ..interrupts import Uninterrupted
from ..locks import join
from ..work.usage import Timer, Usage, thread_resources
from .source import BridgeSource, OpenedSource, state_of

_CLOSING_S: Final = 0.5  # how long `close` waits for the thread


@dataclass(frozen=True, slots=True)
class Position:
    """Where a bridge stands, or where its next iteration starts."""

    epoch: int = 0
    batch: int = 0  # how many batches the source had read when the last one was delivered
    source: Any = None  # the source's state at that moment; see `state_of`
    load: bool = False  # whether the position was loaded, so that the source must move to it


@dataclass(frozen=True, slots=True)
class Result:
    """One result of the thread: a batch, an error or the end; error and end together if the epoch could not start."""

    batch: Any = None
    position: Position | None = None  # after this result is delivered
    error: BaseException | None = None
    ended: bool = False
    made_s: float = 0.0  # seconds that the source and the conversion took


class BridgeEpoch:
    """One epoch from the position `start` on, shared by the thread and the iterator."""

    def __init__(self, start: Position, prefetch: int) -> None:
        self.start = start
        self.permits: SimpleQueue[bool] = SimpleQueue()
        self.ready: SimpleQueue[Result | None] = SimpleQueue()
        self.number = 0  # how many batches the source has read
        self.stopped = ""  # the reason why nobody wants the batches any more
        for _ in range(prefetch):
            self.permits.put(True)

    def stop(self, why: str) -> None:
        """Ends the epoch, and wakes the thread and the iterator if they wait for each other."""
        self.stopped = self.stopped or why
        self.permits.put(False)
        self.ready.put(None)

    def __str__(self) -> str:
        return f"batch {self.number} of epoch {self.start.epoch}"


class ReaderThread:
    """Reads a source in a thread that starts with the first epoch.

    Attributes:
        usage: how the thread spends its time.
    """

    def __init__(self, source: BridgeSource, convert: Callable[[Any], Any]) -> None:
        self._source, self._convert = source, convert
        self._epochs: SimpleQueue[BridgeEpoch | None] = SimpleQueue()
        self._current: BridgeEpoch | None = None
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._closed = False
        self.usage = Usage()

    def start(self, position: Position, prefetch: int) -> BridgeEpoch:
        self.check_process()
        if self._closed:
            raise LoaderClosed("this Bridge is closed; make a new one, or iterate inside its `with` block")
        if self._current is not None:
            self._current.stop("a newer iteration of this Bridge has started; to run two at a time, make two bridges")
        if self._thread is None:
            self._pid = os.getpid()
            with Uninterrupted():
                self._thread = threading.Thread(target=self._serve, name="gluonloader-bridge", daemon=True)
                self._thread.start()
        self._current = epoch = BridgeEpoch(position, prefetch)
        self._epochs.put(epoch)
        return epoch

    def take(self, epoch: BridgeEpoch, timeout: float | None) -> Result:
        """Waits for the next result; while batches are skipped, `timeout` applies to each of them."""
        self.check_process()
        while not epoch.stopped:
            number = epoch.number
            try:
                result = epoch.ready.get(timeout=timeout)
            except Empty:
                if epoch.number == number:
                    raise self._overdue(epoch, timeout) from None
                continue
            if result is not None and not epoch.stopped:
                return result
        raise LoaderClosed(epoch.stopped)

    def check_process(self) -> None:
        if self._thread is not None and os.getpid() != self._pid:
            raise RuntimeError("this Bridge is in use in the parent process; make a new one in the forked child")

    def close(self) -> None:
        """Ends the thread, and waits up to half a second for its end: a thread that is stuck cannot be killed."""
        self._closed = True
        if self._current is not None:
            self._current.stop("this Bridge is closed")
        self._epochs.put(None)
        if self._thread is not None:
            join(self._thread, _CLOSING_S)

    def _overdue(self, epoch: BridgeEpoch, timeout: float | None) -> BatchTimeout:
        frame = sys._current_frames().get(getattr(self._thread, "ident", None) or 0)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "the thread has ended\n"
        late = f"{epoch} of {self._source.name} took more than timeout={timeout} seconds"
        return BatchTimeout(f"{late}; the stack of its thread is\n{stack}")

    # -- in the thread ----------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        self._timer = Timer(thread_resources)
        while (epoch := self._epochs.get()) is not None:
            if not epoch.stopped:
                self._read(epoch)
            del epoch

    def _read(self, epoch: BridgeEpoch) -> None:
        """Reads one epoch, until it ends or is stopped."""
        start = epoch.start
        try:
            opened = self._source.open(start.epoch, start.source if start.load else None)
        except BaseException as error:
            epoch.ready.put(Result(error=_noted(error, epoch), ended=True))
            return
        if start.source is not None:
            epoch.number = start.batch
        while self._wait_for_permit(epoch):
            skips = epoch.number < start.batch
            result = self._next(epoch, opened, skips)
            if skips and result.error is None:
                epoch.permits.put(True)
                continue
            epoch.ready.put(result)
            if result.ended:
                return
            del result  # only the user keeps the batch alive

    def _wait_for_permit(self, epoch: BridgeEpoch) -> bool:
        return epoch.permits.get() and not epoch.stopped

    def _next(self, epoch: BridgeEpoch, opened: OpenedSource, skips: bool) -> Result:
        """Reads the next batch, and converts it unless it is to be skipped."""
        self._timer.start()
        try:
            batch = next(opened.batches)
        except StopIteration:
            return self._end(epoch, opened, skips)
        except BaseException as error:
            return Result(error=_noted(error, epoch))
        try:
            result = Result()
            if not skips:
                batch = self._convert(batch)
                result = Result(batch, Position(epoch.start.epoch, epoch.number + 1, state_of(opened.stateful)))
        except BaseException as error:
            result = Result(error=_noted(error, epoch))
        epoch.number += 1
        self.usage.add(0, self._timer.stop(epoch.start.epoch, epoch.number))
        return replace(result, made_s=self._timer.took * 1e-9)

    def _end(self, epoch: BridgeEpoch, opened: OpenedSource, skips: bool) -> Result:
        if skips:
            missing = bad_state("batch", epoch.start.batch, f"this source ended after {epoch.number} batches")
            return Result(error=missing, ended=True)
        # If the next epoch reads a new object, that starts at its first batch, so no state is needed.
        state = state_of(opened.stateful) if opened.lasts else None
        return Result(position=Position(epoch.start.epoch + 1, 0, state), ended=True)


def _noted(error: BaseException, epoch: BridgeEpoch) -> BaseException:
    """The error with a note on the batch; a StopIteration, which would end the iteration, becomes a RuntimeError."""
    if isinstance(error, StopIteration):
        stop, error = error, RuntimeError("a bridge's source or output raised StopIteration outside of next()")
        error.__cause__ = stop
    add_note(error, f"gluonloader: in the source of a bridge, {epoch}")
    return error
