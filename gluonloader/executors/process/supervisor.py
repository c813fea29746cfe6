"""The persistent Pool behind the process executor: it sees a worker die, reaps it and orders the next one.

    Pool (its own thread)   worker dead -> reap -> LaneProcess() .start() -> `ordered` + wake
    consumer's thread       wake -> begin(process, slot): socket pair, fork or spawn, close the worker's end

NOTE [who forks]: a Pool replaces the dead from a thread of its own. A fork there copies whatever the user's thread is
doing, locks included; while MXNet computes it hangs that thread. So `start()` of our processes only orders one, and
the thread that asks for batches begins it, under every start method. It also means that workers which die while
starting are not replaced in a loop that nobody watches.

NOTE [lane ends]: a worker's death is an end-of-file on its lane, at once, only if nobody else holds the worker's end;
the parent's death likewise. So the parent closes the worker's end right after the start, and a forked child closes
every end in the process but its own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import context, forkserver
from multiprocessing.pool import Pool
from multiprocessing.process import BaseProcess
from typing import Any, Final

from .worker import serve_lane

__all__ = ["LaneProcess", "Supervisor", "track_end"]

_CLOSING_S: Final = 1.0  # a worker that is busy at close has this long before it is killed

_ends: weakref.WeakSet[socket.socket] = weakref.WeakSet()


class _Beginning(threading.local):
    lane: socket.socket | None = None  # the end that the child which is being forked keeps


_beginning = _Beginning()


def track_end(end: socket.socket) -> socket.socket:
    """Has forked children close this socket; see NOTE [lane ends]."""
    _ends.add(end)
    return end


def _close_ends_in_child() -> None:
    for end in list(_ends):
        if end is not _beginning.lane:
            end.close()
    _ends.clear()


os.register_at_fork(after_in_child=_close_ends_in_child)


def _poll_one_at_a_time(popen: Any) -> None:
    """Lets one thread at a time ask whether a process has ended.

    The Pool's thread and the consumer's both do, and only the first to read the answer gets it: under forkserver the
    other would note exit code 255 over it.
    """
    lock, poll, weak = threading.Lock(), type(popen).poll, weakref.ref(popen)

    def locked_poll(flag: int = os.WNOHANG) -> int | None:
        with lock:
            code: int | None = poll(weak(), flag)
            return code

    popen.poll = locked_poll


class LaneProcess(BaseProcess):
    """A process that a Pool may start, but that begins later; see NOTE [who forks].

    Until it has begun it looks to the Pool like one that runs: no exit code, no sentinel, nothing to join.
    """

    lane: socket.socket | None = None
    slot: int = -1
    _order: Callable[[LaneProcess], None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_order": None}  # spawn pickles the process; the supervisor stays here

    def start(self) -> None:
        assert self._order is not None
        self._order(self)

    def begin(self, slot: int) -> socket.socket:
        """Starts the process as worker `slot`; returns the parent's end of its lane."""
        mine, theirs = map(track_end, socket.socketpair())
        self.lane, self.slot, _beginning.lane = theirs, slot, theirs
        try:
            with _quiet_fork(self):
                super().start()
            _poll_one_at_a_time(self._popen)  # type: ignore[attr-defined]
        except BaseException:
            mine.close()
            raise
        finally:
            self.lane = _beginning.lane = None
            theirs.close()
        mine.setblocking(False)
        return mine

    @property
    def begun(self) -> bool:
        return self._popen is not None  # type: ignore[attr-defined]

    @property
    def sentinel(self) -> int:
        if not self.begun:
            raise AttributeError("not begun")  # the Pool asks with hasattr
        return super().sentinel

    def join(self, timeout: float | None = None) -> None:
        if self.begun:
            super().join(timeout)

    def terminate(self) -> None:
        if self.begun:
            super().terminate()


class _ForkLane(LaneProcess, context.ForkProcess):
    pass


class _SpawnLane(LaneProcess, context.SpawnProcess):
    pass


class _ForkServerLane(LaneProcess, context.ForkServerProcess):
    pass


_CLASSES: Final[dict[str, type[LaneProcess]]] = {
    "fork": _ForkLane,
    "spawn": _SpawnLane,
    "forkserver": _ForkServerLane,
}


@contextmanager
def _quiet_fork(process: LaneProcess) -> Iterator[None]:
    """Starts without the noise: no Ctrl-C before the worker ignores it, no warning about threads it does not use."""
    if isinstance(process, _ForkServerLane):  # its workers inherit from the server, not from this thread
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with warnings.catch_warnings():
            # Python (3.12) warns of any fork beside another thread; the Pool always has three, which hold no lock.
            warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
            # JAX warns of any fork; a worker does not use it unless the dataset does (frameworks/jax.py).
            warnings.filterwarnings("ignore", ".*JAX is multithreaded", RuntimeWarning)
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Supervisor(Pool):
    """A `multiprocessing.Pool` of workers that serve lanes.

    Args:
        workers: how many.
        start_method: "fork", "spawn" or "forkserver".
        job: what workers inherit; None if it comes through the lane.
        wake: a socket whose other end the consumer waits for.
    """

    def __init__(self, workers: int, start_method: str, job: object, wake: socket.socket) -> None:
        self.ordered: deque[LaneProcess] = deque()
        self.begun: list[LaneProcess] = []
        self._waker = wake
        self._class = _CLASSES[start_method]
        if start_method == "forkserver":
            _preload_numpy()
        super().__init__(workers, serve_lane, (job,), context=multiprocessing.get_context(start_method))

    def Process(self, ctx: object, *args: Any, **kwds: Any) -> LaneProcess:  # type: ignore[override]  # noqa: N802
        """Where the Pool makes a process."""
        process = self._class(*args, **kwds)
        process._order = self._take_order
        return process

    def _take_order(self, process: LaneProcess) -> None:
        self.ordered.append(process)
        self.wake()

    def wake(self) -> None:
        """Has the consumer look, if it waits."""
        try:
            self._waker.send(b"!")
        except OSError:
            pass  # full: it will look anyway; closed: nobody is to look

    def begin(self, process: LaneProcess, slot: int) -> socket.socket:
        """Begins an ordered process; only in the consumer's thread."""
        lane = process.begin(slot)
        process._order = None
        self.begun = [other for other in self.begun if other.is_alive()] + [process]
        self._change_notifier.put(None)  # type: ignore[attr-defined]  # the Pool now has one more to watch
        return lane

    def shut(self) -> None:
        """Ends all workers, whose lanes are closed already, and the Pool's threads.

        NOTE [closing]: never `terminate()` with work about, which can hang (a worker stopped while it holds a queue's
        lock). Workers end by themselves when their lane closes; one that is busy is killed after a second. They never
        touch the Pool's queues, so nothing of the Pool's can be held by the dead.
        """
        self.close()
        deadline = time.monotonic() + _CLOSING_S
        for process in self.begun:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
        self.join()
        self.terminate()  # only to let the Pool forget itself: no worker and no task is left
        for queue in (self._inqueue, self._outqueue, self._change_notifier):  # type: ignore[attr-defined]
            queue.close()
        for process in self.ordered:
            process._order = None
        for process in self.begun:
            process.join()
            process.close()  # its descriptors, now: the Pool is a cycle of objects, which may be collected much later
        self.ordered.clear()
        self.begun.clear()


def _preload_numpy() -> None:
    """Has the fork server import NumPy once, so that its workers start in milliseconds."""
    server: Any = forkserver._forkserver
    if server._preload_modules == ["__main__"]:  # a list of the user's own is left alone
        forkserver.set_forkserver_preload(["__main__", "gluonloader.executors.process.worker"])
