"""The persistent Pool behind the process executor: it notices the death of a worker, reaps it and requests a
replacement.

    the Pool's own thread   worker dead -> reap -> LaneProcess().start() -> `requested` + wake
    the consumer's thread   wake -> start(process, worker): socket pair, fork or spawn, close the worker's end

NOTE [who forks]: a Pool replaces dead workers from its own thread. A fork in that thread would also copy the locks that
the user's thread holds at this moment; if the user's thread computes with MXNet, the fork hangs that thread. So
`start()` of our processes only adds them to a list, and the thread that asks for batches starts the processes, under
every start method. That thread also notices if workers die again and again while they start.

NOTE [lane ends]: the death of a worker causes an end-of-file on its lane only if no other process has the worker's end
of the socket pair open; the same is true for the death of the parent. So the parent closes the worker's end right after
the start, and a forked child closes all ends except its own.
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

from .native_threads import warn_of_native_threads
from .worker import serve_lane

_CLOSING_S: Final = 1.0  # how long close() waits for a busy worker before it kills it

_ends: weakref.WeakSet[socket.socket] = weakref.WeakSet()


_starting = threading.local()  # its `lane` is the end that belongs to the child which is being forked


def track_end(end: socket.socket) -> socket.socket:
    """Makes forked children close this socket; see NOTE [lane ends]."""
    _ends.add(end)
    return end


def _close_ends_in_child() -> None:
    for end in list(_ends):
        if end is not getattr(_starting, "lane", None):
            end.close()
    _ends.clear()


os.register_at_fork(after_in_child=_close_ends_in_child)


def _poll_in_one_thread_at_a_time(popen: Any) -> None:
    """Lets one thread at a time ask whether a process has ended.

    The Pool's thread and the consumer's thread both ask, but the system reports an exit code only once. Under
    forkserver the second thread would replace the exit code by 255.
    """
    lock, poll, weak = threading.Lock(), type(popen).poll, weakref.ref(popen)

    def locked_poll(flag: int = os.WNOHANG) -> int | None:
        with lock:
            code: int | None = poll(weak(), flag)
            return code

    popen.poll = locked_poll


class LaneProcess(BaseProcess):
    """A worker process that the Pool creates and the consumer's thread starts later; see NOTE [who forks].

    Until it starts, it looks to the Pool like a running process: it has no exit code and no sentinel.

    Attributes:
        lane: in the worker, its end of the socket pair.
        worker: the worker's number.
    """

    lane: socket.socket | None = None
    worker: int = -1
    _request: Callable[[LaneProcess], None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_request": None}  # spawn pickles the process, but not the supervisor

    def start(self) -> None:
        assert self._request is not None
        self._request(self)

    def start_as(self, worker: int) -> socket.socket:
        """Starts the process as worker number `worker`; returns the parent's end of its lane."""
        mine, theirs = map(track_end, socket.socketpair())
        self.lane, self.worker, _starting.lane = theirs, worker, theirs
        try:
            with _quiet_fork(self):
                super().start()
            _poll_in_one_thread_at_a_time(self._popen)  # type: ignore[attr-defined]
        except BaseException:
            mine.close()
            raise
        finally:
            self.lane = _starting.lane = None
            theirs.close()
        mine.setblocking(False)
        return mine

    @property
    def started(self) -> bool:
        return self._popen is not None  # type: ignore[attr-defined]

    @property
    def sentinel(self) -> int:
        if not self.started:
            raise AttributeError("not started")  # the Pool asks with hasattr
        return super().sentinel

    def join(self, timeout: float | None = None) -> None:
        if self.started:
            super().join(timeout)

    def terminate(self) -> None:
        if self.started:
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
    """Delays Ctrl-C until the worker ignores it, and silences warnings about threads that the worker does not use."""
    if isinstance(process, _ForkServerLane):  # its workers inherit nothing from this thread
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of any fork beside another thread; the Pool always has three, which hold no lock.
            warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
            # JAX warns of any fork; a worker does not use JAX unless the dataset does (frameworks/jax.py).
            warnings.filterwarnings("ignore", ".*JAX is multithreaded", RuntimeWarning)
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class Supervisor(Pool):
    """A `multiprocessing.Pool` whose workers serve lanes.

    Args:
        job: the job that workers inherit; None if the job comes through the lane.
        waker: a socket; a byte sent through it wakes the consumer.

    Attributes:
        requested: processes that the Pool asked for, and that are not started yet.
    """

    def __init__(self, workers: int, start_method: str, job: object, waker: socket.socket) -> None:
        self.requested: deque[LaneProcess] = deque()
        self._started: list[LaneProcess] = []
        self._waker = waker
        self._class = _CLASSES[start_method]
        if start_method == "forkserver":
            _preload_numpy()
        super().__init__(workers, serve_lane, (job,), context=multiprocessing.get_context(start_method))

    def Process(self, ctx: object, *args: Any, **kwds: Any) -> LaneProcess:  # type: ignore[override]  # noqa: N802
        """Called by the Pool for each process that it needs."""
        process = self._class(*args, **kwds)
        process._request = self._take_request
        return process

    def _take_request(self, process: LaneProcess) -> None:
        self.requested.append(process)
        self.wake()

    def wake(self) -> None:
        """Wakes the consumer if it waits; may be called from any thread."""
        try:
            self._waker.send(b"!")
        except OSError:
            pass  # a full socket wakes the consumer anyway; if it is closed, nobody waits

    def start(self, process: LaneProcess, worker: int) -> socket.socket:
        """Starts a requested process; only in the consumer's thread."""
        lane = process.start_as(worker)
        process._request = None
        self._started = [other for other in self._started if other.is_alive()] + [process]
        self._change_notifier.put(None)  # type: ignore[attr-defined]  # makes the Pool watch the new process
        if self._class is _ForkLane:
            warn_of_native_threads()
        return lane

    def shut(self) -> None:
        """Ends all workers, whose lanes are closed already, and the Pool's threads.

        NOTE [closing]: `terminate()` can hang if workers are busy, because it may stop a worker that holds the lock of
        a queue. So workers end by themselves when their lane closes, and a worker that stays busy is killed after a
        second. Workers never use the Pool's queues, so a killed worker holds no lock of the Pool.
        """
        self.close()
        deadline = time.monotonic() + _CLOSING_S
        for process in self._started:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
        self.join()
        self.terminate()  # releases the Pool's own resources; no worker and no task is left
        for queue in (self._inqueue, self._outqueue, self._change_notifier):  # type: ignore[attr-defined]
            queue.close()
        for process in self.requested:
            process._request = None
        for process in self._started:
            process.join()
            process.close()  # frees its descriptors now: the Pool is a reference cycle, which may be freed late
        self.requested.clear()
        self._started.clear()


def _preload_numpy() -> None:
    """Makes the fork server import NumPy once, so that its workers start in milliseconds."""
    server: Any = forkserver._forkserver
    if server._preload_modules == ["__main__"]:  # the default; a list that the user has set stays unchanged
        forkserver.set_forkserver_preload(["__main__", "gluonloader.executors.process.worker"])
