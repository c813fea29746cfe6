"""The worker in a Ray actor: it makes batches in its own memory, and returns them as objects of Ray's store.

    make(request, task) --> answer: the batch in a slab of the worker --> Answer: the reply, and the bytes of the slab

Ray runs `make` and `end_streams` in the actor's default group of threads and everything else in the group WATCH, so
that the main program can inspect or stop a busy worker. This module does not import Ray, so `RayLane` names the group
in each call.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from os import getpid
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ... import frameworks
from ...memory.slab import HEADER, ROW, SINCE, Slab, anonymous_file, reserve
from ...memory.warm import LARGEST_IN_WORKER, keep_freed_memory
from ...messages import message
from ...randomness import seed_all
from ...work.maker import BatchMaker, Maker
from ...work.usage import process_resources
from ..lanes.answer import answer, note_row
from ..lanes.messages import Reply, Request, Status
from ..lanes.remote import encode_error
from .stored_job import fetch_job

if TYPE_CHECKING:
    from ...work.streams import Streams

WATCH: Final = "watch"  # the group of threads for all calls but `make`

Note = Callable[[int, int], object]  # takes ticket and row


@message(frozen=True, slots=True)
class Answer:
    """What `make` returns."""

    reply: Reply
    data: NDArray[np.uint8]  # the start of the slab, with the batch or the error


@message(frozen=True, slots=True)
class Sight:
    """What a worker is doing now."""

    row: int  # the word ROW of its slab
    busy_s: float  # seconds since it started on that sample or, if the sample is not known, on the batch
    stack: str


class Worker:
    """One worker; the main program calls its methods through Ray.

    Args:
        number: the number of the worker in its loader.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._who = f"in worker {number} (pid {getpid()})"
        self._ready, self._stopped = threading.Event(), threading.Event()
        self._cancelled: set[int] = set()  # tickets
        self._maker: BatchMaker | None = None
        self._streams: Streams | None = None  # of an iterable dataset
        self._desks: dict[int, _Desk] = {}  # by thread
        self._turns = _Turns()

    def pid(self) -> int:
        return getpid()

    def start(self, stored: list[Any], epoch: int) -> bytes:
        """Unpacks the job and runs `worker_init_fn`; returns b"", or an encoded error if the worker cannot start.

        Args:
            stored: a list of one item, the reference of the `StoredJob`.
        """
        try:
            keep_freed_memory(LARGEST_IN_WORKER)
            job = fetch_job(stored[0])
            frameworks.enter_worker()  # only now: unpickling the job may have imported a framework
            maker = BatchMaker(job, self._number, seed_all, process_resources)
            with maker.running():
                maker.start(epoch)
                maker.find_generators()  # after worker_init_fn, which may have replaced some
        except BaseException as error:
            return encode_error(error, f"worker {self._number} (pid {getpid()}), while starting")
        self._maker, self._streams = maker, maker.new_streams() if maker.reads_streams else None
        self._ready.set()
        return b""

    def make(self, request: Request, task: bytes, note: Note | None) -> Answer:
        """Makes a batch. `note` is called with each row of a careful attempt, before the sample is read."""
        self._ready.wait()
        with self._turns.take(alone=request.careful):
            if self._stopped.is_set() or request.ticket in self._cancelled:
                self._cancelled.discard(request.ticket)
                return Answer(Reply(Status.SKIPPED, request.slab, request.ticket), np.empty(0, np.uint8))
            desk = self._desk()
            with desk.maker.running(), desk.reading(request, task) as slab:
                on_row = partial(_note_twice, slab, partial(note, request.ticket)) if note else partial(note_row, slab)
                reply = answer(desk.maker, request, slab, on_row, self._who, self._streams)
        used = HEADER if reply.status is Status.NO_ROOM else reply.head.offset + reply.head.length
        reply.slab, reply.size = request.slab, used
        # A view on memory of this thread: Ray copies it before the thread runs the next call.
        return Answer(reply, np.ndarray((used,), np.uint8, slab.memory))

    def _desk(self) -> _Desk:
        """The maker and the memory of the calling thread."""
        desk = self._desks.get(threading.get_ident())
        if desk is None:
            assert self._maker is not None
            maker = self._maker.beside() if self._maker.side_by_side > 1 else self._maker
            desk = self._desks[threading.get_ident()] = _Desk(maker)
        return desk

    def end_streams(self, iteration: int | None) -> None:
        """Closes the streams of an iteration, or all; runs in the thread of `make`, after the calls before it."""
        streams = self._streams
        if streams is not None and self._maker is not None:
            with self._maker.running():
                streams.close(None if iteration is None else [iteration])

    def cancel(self, ticket: int) -> None:
        """Makes the worker skip a request that it has not started on."""
        self._cancelled.add(ticket)

    def look(self) -> Sight:
        """Describes the thread that has been busy for the longest time: its sample and its stack."""
        frames = sys._current_frames()
        busy = [(desk.slab.control[SINCE], thread, desk) for thread, desk in list(self._desks.items()) if desk.is_busy]
        if self._maker is None or not busy:
            state = "starting" if self._maker is None else "not making a batch"
            return Sight(0, 0.0, f"  (the worker is {state})\n")
        since, thread, desk = min(busy, key=lambda item: item[0])
        stack = traceback.extract_stack(frames.get(thread))
        own = [number for number, frame in enumerate(stack) if frame.filename == answer.__code__.co_filename]
        shown = "".join(traceback.format_list(stack[own[-1] + 1 if own else 0 :]))
        return Sight(desk.slab.control[ROW], time.monotonic() - since * 1e-9, shown)

    def watch(self) -> None:
        """Returns when the worker is stopped. Until then Ray reports the death of the worker as this call's error."""
        self._stopped.wait()

    def stop(self) -> None:
        """Makes the worker finish its current batch and skip all further requests."""
        self._stopped.set()
        self._ready.set()
        if self._maker is not None:
            self._maker.close()


class _Desk:
    """The maker and the slab of one thread. The slab stays in this process, so it need not be shared."""

    def __init__(self, maker: Maker) -> None:
        self.maker, self.is_busy = maker, False
        fd = anonymous_file()
        reserve(fd, HEADER)
        self.slab = Slab(0, fd, HEADER, populate=True)

    @contextmanager
    def reading(self, request: Request, task: bytes) -> Iterator[Slab]:
        """Writes a task into the slab, and counts this thread as busy within the `with` block."""
        slab, used = self.slab, HEADER + len(task)
        if slab.size < used:
            slab.grow(used, request.allowance)
        slab.memory[HEADER:used] = task  # type: ignore[assignment]
        slab.control[ROW], slab.control[SINCE] = 0, time.monotonic_ns()
        self.is_busy = True
        try:
            yield slab
        finally:
            self.is_busy = False


class _Turns:
    """Lets threads make batches at the same time, except that a careful batch is made alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy, self._alone = 0, False

    @contextmanager
    def take(self, alone: bool) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._alone = alone
            self._changed.wait_for(lambda: not (alone and self._busy))
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._alone = self._alone and not alone
                self._changed.notify_all()


def _note_twice(slab: Slab, note: Callable[[int], object], row: int) -> None:
    """Notes a row in the slab, where `look` finds it, and in the `Board`, which outlives the worker."""
    note_row(slab, row)
    note(row)
