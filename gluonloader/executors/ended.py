"""Tells executors that an epoch has ended, so that workers close the streams that they have opened for it.

    epoch deleted --weak reference--> SimpleQueue.put --> a thread of this module --> executor.end_streams()
    epoch closed  --> tell ---------> SimpleQueue.put

Deleting an iterator runs no code of ours, see NOTE [cancelled] in base.py: `SimpleQueue.put` is not written in Python.
"""

from __future__ import annotations

import os
import threading
import weakref
from queue import SimpleQueue
from typing import Any

from ..errors import logger
from ..interrupts import Uninterrupted
from ..work.task import Chunk
from .base import Executor, Window

_Reference = weakref.ref[Any]


class Iterations:
    """The iterations of iterable datasets for which workers may have streams open."""

    def __init__(self) -> None:
        self._windows: dict[int, weakref.ref[Window]] = {}

    def note(self, chunk: Chunk, window: Window) -> None:
        """Called before a worker gets a chunk."""
        self._windows[chunk.iteration] = weakref.ref(window)

    def live(self) -> set[int]:
        """Those of which somebody still reads the batches."""
        for iteration, reference in list(self._windows.items()):
            window = reference()
            if window is None or window.cancelled:
                self._windows.pop(iteration, None)
        return set(self._windows)


class _Messenger:
    """The thread, which starts at its first use and ends with the program."""

    def __init__(self) -> None:
        self._ended: SimpleQueue[_Reference] = SimpleQueue()  # references to epochs, and to executors
        # By the identity of the reference to the epoch, with that reference: a reference that is lost calls nothing.
        self._watched: dict[int, tuple[_Reference, _Reference]] = {}
        self._thread: threading.Thread | None = None

    def watch(self, epoch: object, executor: Executor) -> None:
        reference = weakref.ref(epoch, self._ended.put)
        self._watched[id(reference)] = reference, weakref.ref(executor)
        if self._thread is None:
            with Uninterrupted():
                self._thread = threading.Thread(target=self._run, name="gluonloader-ended", daemon=True)
                self._thread.start()

    def tell(self, executor: Executor) -> None:
        self._ended.put(weakref.ref(executor))

    def _run(self) -> None:
        while True:
            self._tell_of(self._ended.get())

    def _tell_of(self, ended: _Reference) -> None:
        _, reference = self._watched.pop(id(ended), (None, ended))
        executor: Executor | None = reference()
        if executor is not None:
            try:
                executor.end_streams()
            except Exception:
                logger().exception("a loader could not close the streams of an iterator that has ended")


_messenger = _Messenger()


def watch(epoch: object, executor: Executor) -> None:
    """Makes the executor close the streams of an epoch when this is deleted."""
    _messenger.watch(epoch, executor)


def tell(executor: Executor) -> None:
    """Makes the executor close the streams of epochs that were closed; takes no lock."""
    _messenger.tell(executor)


def _forget_in_child() -> None:
    global _messenger
    _messenger = _Messenger()  # the thread is not there, and workers belong to the parent


os.register_at_fork(after_in_child=_forget_in_child)
