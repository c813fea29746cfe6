"""`Meeting`: how the ranks of a node find the server of their workers, or start it.

    join --> is the name in use? --yes--> connect --RankHello--> wait for the answer of the server
                  |                          ^
                  +--no--> take the name, start the server

The name contains the user, the program and the loader, so only ranks of the same program find each other, and only for
the same loader. See NOTE [one server] in server.py.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import select
import signal
import socket
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.process import current_process
from pathlib import Path
from typing import Any, Final

from ...errors import LoaderClosed, WorkerStartError, bad_argument
from ...interrupts import Uninterrupted
from ...locks import Lock
from ...messages import message
from ...wire.ends import close_end, is_ready
from ...wire.greeting import Refused, greet, library_version
from ...wire.names import NoRoom, OtherUser, connect, listen, peer
from ...work.task import Job
from ..lanes.messages import Request, Verb
from ..lanes.remote import cannot_start, decode_error
from ..process.mapped_job import MappedJob, pickle_for, write_job
from ..process.supervisor import LaneProcess, new_process, open_pidfd, outlives_program
from .messages import Broken, Facts, Goodbye, RankHello, RankWelcome, receive
from .program import program
from .server_process import QUEUE, serve

_FAILED_STARTS: Final = 3  # give up after so many servers of this process have ended while they started
_LOOKING_S: Final = 10.0  # how long another process may have the name without listening
_PAUSE_S: Final = 0.002  # between two tries to find or to start a server
_LOOK_S: Final = 0.2  # a thread that waits for the server looks this often whether the loader was closed
_REAPING_S: Final = 1.0  # how long the exit code of a server that has ended may take
_ENDING_S: Final = 5.0  # how long the server may take to end its workers when the last rank leaves

_EXAMPLE: Final = "e.g. share='node:validation'"
_SILENT: Final = (
    "share: another process has taken the name of this loader, and does not answer: it is stopped, or it is no loader; "
    f"end it, or pass another name, {_EXAMPLE}"
)

_open: weakref.WeakValueDictionary[str, Meeting] = weakref.WeakValueDictionary()  # those of open loaders, by name
_made: Final[Counter[str]] = Counter()  # how many loaders of each name this process has made
_started: Final[list[LaneProcess]] = []  # servers that this process has started, and that may still run
_reaping: Final = Lock()


@message(frozen=True, slots=True)
class Joined:
    """A connection to a server that has welcomed this rank."""

    connection: socket.socket
    welcome: RankWelcome


class Meeting:
    """How the ranks of a node meet whose loaders share workers.

    Args:
        name: tells the loaders of a program apart.
        dataset: what is read. Two open loaders of one process that read different datasets need different names.
        rank, ranks: the number of this rank, and how many there are.
        facts: the arguments that have to be the same on all ranks.
        start_method: how the server starts; its workers are forked from it.
        timeout: how many seconds to wait for a server that is stopped, None for no limit; and at most so long for a
            process that has the name and accepts no connection.

    Raises:
        ValueError: sharing is not possible here, or the name is in use.
    """

    _name = ""  # until the constructor has checked everything
    _joined: Joined | None = None  # before it is needed

    def __init__(
        self,
        name: str,
        dataset: Any,
        rank: int,
        ranks: int,
        facts: Facts,
        start_method: str,
        timeout: float | None = None,
    ) -> None:
        _check_system(name)
        other = _open.get(name)
        if other is not None and other._dataset is not dataset:
            right = f"another open loader of this process has it, too; close that loader, or pass a name, {_EXAMPLE}"
            raise bad_argument("share", name, right)
        self._dataset: Any = dataset
        self._name, self._rank, self._start_method = name, rank, start_method
        self._facts, self._timeout = facts, math.inf if timeout is None else timeout
        self._looking_s = min(self._timeout, _LOOKING_S)
        self._made_by = os.getpid()
        meeting = [os.geteuid(), os.readlink("/proc/self/ns/pid"), program(rank, ranks), name, _made[name]]
        self._address = "\0gluonloader-" + hashlib.sha256(json.dumps(meeting).encode()).hexdigest()[:32]
        self._built: tuple[int | None, int | None] | None = None  # the dataset of the first server

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_joined": None}

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:  # see NOTE [exit] in interrupts.py
        if not ends():
            with Uninterrupted():
                self.leave()

    def join_ahead(self, job: Job) -> RankWelcome:
        """Joins the server now, for the next call of `join`."""
        self._joined = self._join(job, is_closed=lambda: False)
        return self._joined.welcome

    def join(self, job: Job, is_closed: Callable[[], bool]) -> Joined:
        """Joins the server; starts it with `job` if there is none.

        Args:
            is_closed: whether the loader was closed meanwhile.

        Raises:
            ValueError: the rank that has started the server has passed other arguments.
            WorkerStartError: the server cannot start.
            TransportError: the job has to be pickled and cannot be.
            LoaderClosed: see `is_closed`.
        """
        if os.getpid() == self._made_by and _open.get(self._name) is not self:
            _made[self._name] += 1
            _open[self._name] = self
        joined, self._joined = self._joined, None
        inherited = joined is not None and joined.connection.fileno() < 0  # a forked child has closed it
        return self._join(job, is_closed) if joined is None or inherited else joined

    def leave(self) -> None:
        """The loader is closed: leaves the server if it was joined ahead, and frees the name for another loader."""
        joined, self._joined = self._joined, None
        if joined is not None:
            close_end(joined.connection)
        if _open.get(self._name) is self:
            del _open[self._name]

    @property
    def address(self) -> str:
        """The name of the server's socket. A copy of the loader in another process has workers of its own."""
        return self._address if os.getpid() == self._made_by else f"{self._address}-{os.getpid()}"

    def _join(self, job: Job, is_closed: Callable[[], bool]) -> Joined:
        failed, since = 0, time.monotonic()
        while failed < _FAILED_STARTS and time.monotonic() - since < self._looking_s:
            reap()
            connection, starter, pickled = self._connect(), None, None
            try:
                if connection is None:
                    pickled = self._pickled(job)
                    with Uninterrupted():
                        starter = self._start(job, pickled)
                    failed += starter is not None
                    connection = self._connect()
                welcome = None if connection is None else self._enter(connection, is_closed)
            finally:
                if starter is not None:
                    close_end(starter)
                if pickled is not None:
                    os.close(pickled.fd)
            if connection is not None and welcome is not None:
                return Joined(connection, welcome)
            since = time.monotonic() if connection is not None else since
            time.sleep(_PAUSE_S)  # another process has taken the name just now, or the server ends
        raise WorkerStartError(
            f"share: the process that starts the workers has ended {failed} times while it started; probable cause: "
            "the main script or the dataset ends it; remove share to see why"
            if failed
            else _SILENT
        )

    def _connect(self) -> socket.socket | None:
        """A connection to the server; None if there is no server.

        Raises:
            ValueError: the name belongs to another user.
            WorkerStartError: the process that has the name accepts no connections.
        """
        try:
            return connect(self.address, self._looking_s)
        except OtherUser as error:
            raise ValueError(f"share: {error}; pass another name, {_EXAMPLE}") from None
        except NoRoom:
            raise WorkerStartError(_SILENT) from None

    def _pickled(self, job: Job) -> MappedJob | None:
        """The job for a server that does not inherit it."""
        return None if self._start_method == "fork" else write_job(pickle_for(self._start_method, job))

    def _start(self, job: Job, pickled: MappedJob | None) -> socket.socket | None:
        """Starts the server. It waits for ranks as long as the returned socket is open.

        Returns None if another process has the name now.
        """
        listener = listen(self.address, QUEUE)
        if listener is None:
            return None
        try:
            inherited = job if pickled is None else None
            process = new_process(self._start_method, serve, inherited, self._facts)
            starter = process.start_as(0)
            outlives_program(process)
            _started.append(process)
            _send_start(starter, listener, pickled)
        finally:
            close_end(listener)
        return starter

    def _enter(self, connection: socket.socket, is_closed: Callable[[], bool]) -> RankWelcome | None:
        """The answer of the server; None if it has ended without an answer."""

        # The server starts as slowly as its dataset is built, so only the time while it is stopped counts.
        def await_answer(connection: socket.socket) -> None:
            pid, since = peer(connection).pid, time.monotonic()
            while not is_ready(connection, select.POLLIN, _LOOK_S):
                if is_closed():
                    raise LoaderClosed("the loader was closed while this thread waited for the workers")
                since = since if _is_stopped(pid) else time.monotonic()
                if time.monotonic() - since > self._timeout:
                    raise WorkerStartError(
                        f"share: the process that starts the workers (pid {pid}) is stopped, and has not answered for "
                        f"timeout={self._timeout} seconds; let it go on by kill -CONT {pid}, or end it by "
                        f"kill -KILL {pid}, and make a new loader"
                    )

        hello = RankHello(library_version(), self._facts, self._rank, sorted(os.sched_getaffinity(0)))
        answer: RankWelcome | Refused | Broken | None = greet(connection, hello, await_answer, RankWelcome, Broken)
        if isinstance(answer, Broken):
            raise start_error(answer)
        if isinstance(answer, Refused):
            raise ValueError(f"share: {answer.why}")
        if answer is not None:
            self._check_built(answer, connection)
        return answer

    def _check_built(self, welcome: RankWelcome, connection: socket.socket) -> None:
        """A dataset that was built again must equal the first one: positions count its samples."""
        built = welcome.length, welcome.content
        if self._built not in (None, built):
            close_end(connection)
            raise WorkerStartError(
                "share: the process that starts the workers has ended, and when the dataset was built again, its "
                "length or its content had changed; let the function return the same dataset at each call"
            )
        self._built = built


def _is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal such as SIGSTOP."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:  # it has ended
        return False


def start_error(broken: Broken) -> WorkerStartError:
    """The error of a server that cannot start, or whose workers cannot."""
    error = decode_error(base64.b64decode(broken.error))
    return error if isinstance(error, WorkerStartError) else cannot_start(broken.who, error)


def _send_start(starter: socket.socket, listener: socket.socket, pickled: MappedJob | None) -> None:
    """Sends the server the socket with the name, which no child inherits, and the job unless it inherits that."""
    hello, descriptors = Request(Verb.HELLO), [listener.fileno()]
    if pickled is not None:
        hello = Request(Verb.HELLO, size=pickled.size, length=pickled.length)
        descriptors.append(pickled.fd)
    with suppress(BrokenPipeError, ConnectionResetError):  # the server has ended
        socket.send_fds(starter, [hello.encode()], descriptors)


def await_end(joined: Joined, alone: bool) -> None:
    """Waits until the server has let this rank go; if this was the last rank, until the server has ended.

    Args:
        alone: whether this is the last rank, as far as it knows: then it ends a server that does not answer.
    """
    connection, deadline = joined.connection, time.monotonic() + _ENDING_S
    while (left := deadline - time.monotonic()) > 0:
        try:
            received = receive(connection)
        except BlockingIOError:
            is_ready(connection, select.POLLIN, left)
            continue
        except OSError:  # there is no descriptor left for the lane to a worker, which nobody needs now
            continue
        if received is None:
            break
        message, descriptors = received
        for descriptor in descriptors:
            os.close(descriptor)
        if isinstance(message, Goodbye):
            return
    pidfd = open_pidfd(joined.welcome.pid)
    if pidfd is not None:  # otherwise somebody has reaped the server
        if not pidfd.poll(_REAPING_S) and alone:
            with suppress(OSError):  # it has ended
                signal.pidfd_send_signal(pidfd.fileno(), signal.SIGKILL)
            pidfd.poll(_REAPING_S)
        close_end(pidfd)
    deadline = time.monotonic() + _REAPING_S
    while reap() and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)


def reap() -> bool:
    """Forgets the servers of this process whose exit codes are known; returns whether another one has ended."""
    with _reaping:
        return _reap()


def _reap() -> bool:  # see NOTE [loops and try] in interrupts.py
    for process in list(_started):
        if process.exitcode is not None:
            process.close()
            _started.remove(process)
    return any(process.ended for process in _started)


def _check_system(name: str) -> None:
    if current_process().daemon:
        right = "this process is daemonic, so it cannot start workers; start it with daemon=False, or remove share"
        raise bad_argument("share", name, right)
    if sys.platform != "linux" or (own := open_pidfd(os.getpid())) is None:
        raise bad_argument("share", name, "it needs Linux 5.3 or newer, which may call pidfd_open; remove share")
    close_end(own)


def _forget_in_child() -> None:
    _started.clear()  # they are children of the parent
    _open.clear()  # so are these loaders


os.register_at_fork(after_in_child=_forget_in_child)
