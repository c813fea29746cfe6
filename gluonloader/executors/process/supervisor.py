"""The persistent Pool behind the process executor: it notices the death of a worker, reaps it and requests a
replacement.

    the Pool's own thread   worker dead -> reap -> LaneProcess().start() -> `requested` + wake
    the caller's thread   wake -> start(process, worker): socket pair, fork or spawn, pidfd, close the worker's end

NOTE [who forks]: a Pool replaces dead workers from its own thread. A fork in that thread would also copy the locks that
the user's thread holds at this moment; if the user's thread computes with MXNet, the fork hangs that thread. So
`start()` of our processes only adds them to a list, and the thread that asks for batches starts the processes, under
every start method. That thread also notices if workers die again and again while they start.

NOTE [lane ends]: the death of a worker causes an end-of-file on its lane only if no other process has the worker's end
of the socket pair open; the same is true for the death of the parent. So the parent closes the worker's end right after
the start, a forked worker closes all ends except its own, and a process that the dataset forks closes that end, too.

NOTE [pidfd]: a death is noticed even without an end-of-file. A pidfd is a descriptor for a process, which can be read
as soon as the process has ended, no matter who reaps it and which processes it leaves behind. The program may reap our
children itself: it ignores SIGCHLD, or another thread waits for all children. Then the system has forgotten the exit
code, and the process counts as ended with UNKNOWN_EXIT. The same happens if the fork server does not report the exit
code: a server that was started while SIGCHLD was blocked never notices that a worker has ended.
"""

from __future__ import annotations

import multiprocessing.process
import os
import signal
import socket
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import context, forkserver, popen_forkserver, popen_spawn_posix, util
from multiprocessing.connection import Connection, wait
from multiprocessing.pool import Pool
from multiprocessing.process import BaseProcess, current_process
from types import MappingProxyType
from typing import Any, Final

from ...errors import TransportError
from ...forks import no_fork
from ...interrupts import Uninterrupted
from ...locks import Lock
from ...wire.ends import close_end, open_pair, ring, starting, track_end
from ..pool_context import PoolContext, release
from .main_script import main_script, without_main
from .native_threads import warn_of_native_threads
from .worker import serve_lane

UNKNOWN_EXIT: Final = 256  # no process ends with this exit code; see NOTE [pidfd]
_CLOSING_S: Final = 1.0  # how long close() waits for a busy worker before it kills it
_REPORT_S: Final = 1.0  # how long a fork server may take to report the exit code of a worker that has ended


def _poll_in_one_thread_at_a_time(popen: Any, pidfd: Connection | None) -> None:
    """Lets one thread at a time ask whether a process has ended.

    The Pool's thread and the caller's thread both ask, but the system reports an exit code only once. Under
    forkserver the second thread would replace the exit code by 255.
    """
    lock, weak = Lock(), weakref.ref(popen)
    from_server = popen.method == "forkserver"  # a fork server reaps its own children

    def locked_poll(flag: int = os.WNOHANG) -> int | None:
        with lock:
            return _poll_server(weak(), flag, pidfd) if from_server else _poll_child(weak(), flag)

    popen.poll = locked_poll


def _poll_child(popen: Any, flag: int) -> int | None:
    """Does what `Popen.poll` does, but also notices that the program has reaped the process; see NOTE [pidfd]."""
    if popen.returncode is None:
        try:
            pid, status = os.waitpid(popen.pid, flag)
        except ChildProcessError:
            popen.returncode = UNKNOWN_EXIT
        else:
            popen.returncode = os.waitstatus_to_exitcode(status) if pid else None
    code: int | None = popen.returncode
    return code


def _poll_server(popen: Any, flag: int, pidfd: Connection | None) -> int | None:
    """Does what `Popen.poll` does, but notices that the fork server reports no exit codes; see NOTE [pidfd]."""
    if popen.returncode is None and pidfd is not None:
        wait([pidfd], 0 if flag == os.WNOHANG else None)
        if pidfd.poll() and not wait([popen.sentinel], _REPORT_S):
            popen.returncode = UNKNOWN_EXIT
    code: int | None = type(popen).poll(popen, flag)
    return code


class LaneProcess(BaseProcess):
    """A worker process that the Pool creates and the caller's thread starts later; see NOTE [who forks].

    Until it starts, it looks to the Pool like a running process: it has no exit code and no sentinel.

    Attributes:
        lane: in the worker, its end of the socket pair.
        worker: the worker's number.
        main: what the worker imports as main script; see main_script.py.
        environment: of the program when the worker starts; None if the worker has it already.
        pidfd: in the parent, see NOTE [pidfd]; None if the system has no pidfds, or no free descriptor.
        inherited: what the job needs besides its pickle; see inheritance.py.
    """

    inherited: Sequence[Any] = ()
    lane: socket.socket | None = None
    worker: int = -1
    main: Mapping[str, str] = MappingProxyType({})
    environment: Mapping[str, str] | None = None
    pidfd: Connection | None = None
    _request: Callable[[LaneProcess], None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_request": None}  # spawn pickles the process, but not the supervisor

    def start(self) -> None:
        assert self._request is not None
        self._request(self)

    def start_as(self, worker: int) -> socket.socket:
        """Starts the process as worker number `worker`; returns the parent's end of its lane."""
        mine, theirs = open_pair()
        self.lane, self.worker, starting.lane = theirs, worker, theirs
        try:
            with _quiet_fork(self):
                super().start()
            popen: Any = self._popen  # type: ignore[attr-defined]
            self.pidfd = open_pidfd(popen.pid)
            _poll_in_one_thread_at_a_time(popen, self.pidfd)
            if self.pidfd is not None and popen.method != "forkserver":
                popen.sentinel = self.pidfd.fileno()  # other processes can hold the pipe that it replaces
        except BaseException:
            close_end(mine)
            raise
        finally:
            self.lane = starting.lane = None
            close_end(theirs)
        mine.setblocking(False)
        return mine

    @property
    def started(self) -> bool:
        return self._popen is not None  # type: ignore[attr-defined]

    @property
    def sentinel(self) -> int:
        if not self.started:
            raise AttributeError("not started")  # the Pool asks with hasattr
        sentinel: int = self._popen.sentinel  # type: ignore[attr-defined]
        return sentinel

    @property
    def ended(self) -> bool:
        """Whether the process has ended; true even if its exit code is unknown."""
        return self.exitcode is not None if self.pidfd is None else self.pidfd.poll()

    def run(self) -> None:
        assert self.lane is not None
        starting.lane = None
        self.lane.set_inheritable(False)
        track_end(self.lane)  # a process that the dataset forks would keep the lane open
        if self.environment is not None:
            os.environ.clear()
            os.environ.update(self.environment)
        super().run()

    def send_signal(self, number: int) -> None:
        """Sends a signal to the process.

        Raises:
            ProcessLookupError: the process has ended. Its pid may belong to another process now.
        """
        if self.pidfd is not None:
            signal.pidfd_send_signal(self.pidfd.fileno(), number)
        elif self.exitcode is None and self.pid is not None:
            os.kill(self.pid, number)
        else:
            raise ProcessLookupError(f"process {self.pid} has ended")

    def kill(self) -> None:
        try:
            self.send_signal(signal.SIGKILL)
        except ProcessLookupError:
            pass

    def close(self) -> None:
        super().close()
        if self.pidfd is not None:
            close_end(self.pidfd)

    def is_alive(self) -> bool:
        return self.started and super().is_alive()  # False, not an error, if the loader was closed

    def join(self, timeout: float | None = None) -> None:
        if self.started:
            super().join(timeout)

    def terminate(self) -> None:
        if self.started:
            super().terminate()


def open_pidfd(pid: int) -> Connection | None:
    """The pidfd of a process, see NOTE [pidfd]; None if that is not possible."""
    try:
        with no_fork:
            pidfd = track_end(Connection(os.pidfd_open(pid), writable=False))  # a Connection closes its descriptor
        signal.pidfd_send_signal(pidfd.fileno(), 0)  # some sandboxes forbid it
        return pidfd
    except (AttributeError, OSError):  # no pidfds here, no free descriptor, or the process has ended and was reaped
        return None


class _ForkLane(LaneProcess, context.ForkProcess):
    pass


class _SpawnLane(LaneProcess, context.SpawnProcess):
    _Popen = without_main(popen_spawn_posix.Popen)

    def start_as(self, worker: int) -> socket.socket:
        self.main = main_script()
        return super().start_as(worker)


class _ForkServerLane(LaneProcess, context.ForkServerProcess):
    _Popen = without_main(popen_forkserver.Popen)

    def start_as(self, worker: int) -> socket.socket:
        self.main = main_script()
        self.environment = dict(os.environ)  # that of the fork server is as old as the server
        try:
            return super().start_as(worker)
        except ValueError as error:  # of multiprocessing: "too many fds"
            raise TransportError(
                "start_method='forkserver' passes at most 250 open files to a worker, but the dataset contains "
                f"{len(self.inherited)} pipes, sockets, locks and shared tensors; store the tensors as one, or use "
                "start_method='spawn'"
            ) from error


_CLASSES: Final[dict[str, type[LaneProcess]]] = {
    "fork": _ForkLane,
    "spawn": _SpawnLane,
    "forkserver": _ForkServerLane,
}


def new_process(start_method: str, target: Callable[..., None], *args: Any) -> LaneProcess:
    """A process that serves a lane with `target(*args)`; `start_as` starts it."""
    _prepare(start_method)
    return _CLASSES[start_method](target=target, args=args)


def outlives_program(process: LaneProcess) -> None:
    """Makes `multiprocessing` not await a process when this program exits."""
    _children_of_program().discard(process)


def _children_of_program() -> set[BaseProcess]:
    """The processes that `multiprocessing` awaits at exit; a process that it has started gets a new set."""
    children: set[BaseProcess] = multiprocessing.process._children  # type: ignore[attr-defined]
    return children


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
        job: the job that forked workers inherit; None if the job comes through the lane.
        inherited: what other workers inherit; see inheritance.py.
        waker: a socket; a byte sent through it wakes the caller.

    Attributes:
        requested: processes that the Pool asked for, and that are not started yet.
    """

    _state: str | None = None  # Pool.__del__ reads it, also if the fork server could not start

    def __init__(
        self, workers: int, start_method: str, job: object, inherited: Sequence[Any], waker: socket.socket
    ) -> None:
        self.requested: deque[LaneProcess] = deque()
        self._started: list[LaneProcess] = []
        self._waker = waker
        self._class = _CLASSES[start_method]
        self._job, self._inherited = job, inherited
        _prepare(start_method)
        super().__init__(workers, context=PoolContext())

    def Process(self, *args: Any, **kwds: Any) -> LaneProcess:  # type: ignore[override]  # noqa: N802
        """Called by the Pool for each process that it needs; the Pool's own arguments are its queues."""
        process = self._class(target=serve_lane, args=(self._job,))
        process._request, process.inherited = self._take_request, self._inherited
        return process

    def _take_request(self, process: LaneProcess) -> None:
        self.requested.append(process)
        ring(self._waker)

    def start(self, process: LaneProcess, worker: int) -> socket.socket:
        """Starts a requested process; only in the caller's thread."""
        lane = process.start_as(worker)
        process._request = None
        self._started = [other for other in self._started if other.is_alive()] + [process]
        self.look()  # the Pool watches the new process from now on
        if self._class is _ForkLane:
            warn_of_native_threads()
        return lane

    def look(self) -> None:
        """Makes the Pool check which workers have ended."""
        self._change_notifier.put(None)  # type: ignore[attr-defined]

    def shut(self) -> None:
        """Ends all workers, which were told to end already, and the Pool's threads. May be repeated if interrupted.

        NOTE [closing]: `terminate()` can hang if workers are busy, because it may stop a worker that holds the lock of
        a queue. So workers end by themselves when their lane closes, and a worker that stays busy is killed after a
        second. Workers never use the Pool's queues, so a killed worker holds no lock of the Pool.
        """
        with Uninterrupted():
            self.close()
        deadline = time.monotonic() + _CLOSING_S
        for process in self._started:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
        handlers = self._worker_handler, self._task_handler, self._result_handler  # type: ignore[attr-defined]
        if threading.current_thread() in handlers:
            # The garbage collector has deleted the loader in a thread of its own Pool, which cannot wait for itself.
            threading.Thread(target=self._release, daemon=True).start()
            return
        with Uninterrupted():
            self._release()

    def _release(self) -> None:
        self.join()
        release(self)
        for process in self.requested:
            process._request = None
        for process in self._started:
            process.join()
            process.close()  # frees its descriptors now: the Pool is a reference cycle, which may be freed late
        self.requested.clear()
        self._started.clear()


def _prepare(start_method: str) -> None:
    """Starts what processes of a start method need."""
    if start_method == "forkserver":
        _preload()
        _start_own_fork_server()


def _preload() -> None:
    """Makes the fork server import NumPy once, so that its workers start in milliseconds; and torch, if it is loaded.

    It takes a second to import torch. If the program has imported it, the workers usually need it, too: they import the
    main script.

    The server does not import the main script, although that is the default of `multiprocessing`: an error of the
    script would end the server. Python 3.10 and 3.11 never import it there, in spite of the default.
    """
    server: Any = forkserver._forkserver
    if server._preload_modules == ["__main__"]:  # the default; a list that the user has set stays unchanged
        slow = [name for name in ("torch", "gluonloader.torch") if name in sys.modules]
        forkserver.set_forkserver_preload(["gluonloader.executors.process.fork_server", *slow])


def _start_own_fork_server() -> None:
    """Starts the fork server, if it does not run; a forked child gets its own server and its own temporary folder."""
    finalizers = [vars(item) for item in list(util._finalizer_registry.values())]  # type: ignore[attr-defined]
    removers = [item for item in finalizers if item["_callback"] is vars(util)["_remove_temp_dir"]]
    if os.getpid() not in [item["_pid"] for item in removers]:  # an inherited folder belongs to the parent
        # The server removes the folder of its socket when this process has ended, but the parent may still need it.
        current_process()._config["tempdir"] = None  # type: ignore[attr-defined]
    try:
        forkserver.ensure_running()
    except ChildProcessError:  # multiprocessing in a forked child takes the parent's fork server for a child
        server: Any = forkserver._forkserver
        os.close(server._forkserver_alive_fd)
        server._forkserver_pid = None


def _forget_workers_in_child() -> None:
    """Makes `multiprocessing`, when a forked child exits, not end and await the workers of the parent."""
    for process in list(_children_of_program()):
        if isinstance(process, LaneProcess):
            _children_of_program().discard(process)


os.register_at_fork(after_in_child=_forget_workers_in_child)
