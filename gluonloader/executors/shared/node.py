"""`Node`: how the ranks of a node find the server of their workers, or start it.

    join --> is the name in use? --yes--> connect --Hello--> wait for the answer of the server
                  |                          ^
                  +--no--> take the name, start the server

The name contains the user, the program and the loader, so that exactly the ranks of a program meet whose loaders belong
together. See NOTE [one server] in server.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import time
import weakref
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...errors import WorkerStartError, bad_argument
from ...forks import no_fork
from ...interrupts import Uninterrupted
from ...work.task import Job
from ..lanes.ends import close_end, track_end
from ..lanes.messages import Request, Verb
from ..lanes.remote import cannot_start, decode_error
from ..process.mapped_job import pickle_for, write_job
from ..process.supervisor import LaneProcess, new_process, open_pidfd, outlives_program
from .messages import Broken, Facts, Hello, Refused, Welcome, read_file, receive, send
from .server import peer_uid, serve

# What tells programs on a machine apart: variables that launchers set for all processes of a program.
_OF_PROGRAM: Final = (
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    *("SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE"),
)
_OWN_NAME: Final = "GLUONLOADER_PROGRAM"  # a user's own name for a program that no launcher has started
# How many processes of the program run on this machine, as launchers tell it.
_LOCAL_RANKS: Final = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE")
_FAILED_STARTS: Final = 3  # of servers that this process has started
_PAUSE_S: Final = 0.002  # between two tries to find or to start a server
_QUEUE: Final = 1024  # ranks that wait for the server
_ENDING_S: Final = 5.0  # how long the server may take to end its workers when the last rank leaves

_live: weakref.WeakValueDictionary[str, Node] = weakref.WeakValueDictionary()  # by name
_made: Final[Counter[str]] = Counter()  # how many nodes of each name this process has made
_started: Final[list[LaneProcess]] = []  # servers that this process has started, and that may still run


@dataclass(frozen=True, slots=True)
class Joined:
    """A connection to a server that has welcomed this rank."""

    connection: socket.socket
    welcome: Welcome


class Node:
    """How a loader finds the workers that it shares with the same loader of other ranks.

    Args:
        name: tells the loaders of a program apart.
        dataset: what is read. Two loaders of one process that read different datasets need different names.
        version: of the library.
        facts: the arguments that have to be the same on all ranks.
        start_method: how the server starts; its workers are forked from it.

    Raises:
        ValueError: sharing is not possible on this system, or the name is in use.
    """

    _name = ""  # until the constructor has checked everything
    _joined: Joined | None = None  # before it is needed

    def __init__(self, name: str, dataset: Any, version: str, facts: Facts, start_method: str) -> None:
        _check_system(name)
        other = _live.get(name)
        if other is not None and other._dataset is not dataset:
            right = "another loader of this process shares by this name; give each a name, e.g. share='node:validation'"
            raise bad_argument("share", name, right)
        self._dataset: Any = dataset
        self._name, self._version, self._start_method = name, version, start_method
        self._facts = json.loads(json.dumps(facts))
        meeting = [os.geteuid(), _program(), name, _made[name]]
        self._address = "\0gluonloader-" + hashlib.sha256(json.dumps(meeting).encode()).hexdigest()[:32]
        self._pid = os.getpid()  # the process that has joined
        _made[name] += 1
        _live[name] = self

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_joined": None}

    def __del__(self) -> None:
        self.leave()

    def join_ahead(self, job: Job) -> Welcome:
        """Joins the server now, for the next call of `join`."""
        self._joined, self._pid = self._join(job), os.getpid()
        return self._joined.welcome

    def join(self, job: Job) -> Joined:
        """Joins the server; starts it with `job` if there is none.

        Raises:
            ValueError: the rank that has started the server has passed other arguments.
            WorkerStartError: the server cannot start.
            TransportError: the job has to be pickled and cannot be.
        """
        joined, self._joined = self._joined, None
        return joined if joined is not None and self._pid == os.getpid() else self._join(job)

    def leave(self) -> None:
        """The loader is closed: leaves the server if it was joined ahead, and frees the name for another loader."""
        joined, self._joined = self._joined, None
        if joined is not None:
            close_end(joined.connection)
        if _live.get(self._name) is self:
            del _live[self._name]

    def _join(self, job: Job) -> Joined:
        failed = 0
        while failed < _FAILED_STARTS:
            reap()
            connection, starter = _connect(self._address), None
            if connection is None:
                with Uninterrupted():
                    starter = self._start(job)
                failed += starter is not None
                connection = _connect(self._address)
            try:
                welcome = None if connection is None else self._enter(connection)
            finally:
                if starter is not None:
                    close_end(starter)
            if connection is not None and welcome is not None:
                return Joined(connection, welcome)
            time.sleep(_PAUSE_S)  # another process has taken the name just now, or the server ends
        raise WorkerStartError(
            f"{failed} servers of shared workers in a row ended while they started; probable cause: the main script or "
            "the dataset ends them; remove share to see why"
        )

    def _start(self, job: Job) -> socket.socket | None:
        """Starts the server; returns a socket that keeps it waiting. None if another process has the name now."""
        forks = self._start_method == "fork"
        pickled = None if forks else pickle_for(self._start_method, job)
        with no_fork:  # no other child of this process keeps the name
            listener = _listen(self._address)
            if listener is None:
                return None
            with listener:
                arguments = job if forks else None, listener, self._version, self._facts
                process = new_process(self._start_method, serve, *arguments)
                starter = process.start_as(0)
        outlives_program(process)
        _started.append(process)
        if pickled is not None:
            mapped = write_job(pickled)
            hello = Request(Verb.HELLO, size=mapped.size, length=mapped.length)
            try:
                socket.send_fds(starter, [hello.encode()], [mapped.fd])
            except OSError:  # the server has ended
                pass
            os.close(mapped.fd)
        return starter

    def _enter(self, connection: socket.socket) -> Welcome | None:
        """The answer of the server; None if it has ended without an answer."""
        try:
            send(connection, Hello(self._version, self._facts))
            return _answer(connection)
        except BrokenPipeError:
            close_end(connection)
            return None
        except BaseException:
            close_end(connection)
            raise


def _answer(connection: socket.socket) -> Welcome | None:
    """Waits until the server has started, which takes as long as its dataset takes."""
    received = receive(connection)
    if received is None:
        close_end(connection)
        return None
    message, descriptors = received
    if isinstance(message, Broken):
        raise start_error(message, descriptors)
    if isinstance(message, Refused):
        cure = (
            "pass the same arguments in all processes of the node, or give each loader a name: share='node:validation'"
        )
        raise ValueError(
            f"share: this loader differs from the one that it should share workers with: {message.why}; {cure}"
        )
    assert isinstance(message, Welcome)
    return message


def start_error(broken: Broken, descriptors: list[int]) -> WorkerStartError:
    """The error of a server that cannot start, or whose workers cannot."""
    error = decode_error(read_file(descriptors[0]))
    return error if isinstance(error, WorkerStartError) else cannot_start(broken.who, error)


def _connect(address: str) -> socket.socket | None:
    """A connection to the server; None if there is no server.

    Raises:
        ValueError: the name belongs to another user.
    """
    with no_fork:
        connection = track_end(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    try:
        connection.connect(address)
        uid = peer_uid(connection)
    except ConnectionRefusedError:
        close_end(connection)
        return None
    except BaseException:
        close_end(connection)
        raise
    if uid != os.geteuid():
        close_end(connection)
        raise ValueError(f"share: a process of another user ({uid}) uses the name of this loader; pass another name")
    return connection


def _listen(address: str) -> socket.socket | None:
    """A socket with this name; None if another process has it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(address)
        listener.listen(_QUEUE)
    except OSError:
        listener.close()
        return None
    return listener


def await_end(connection: socket.socket) -> None:
    """Waits until the server has let this rank go, which it does when nothing is left that only this rank has used."""
    connection.settimeout(_ENDING_S)
    try:
        while connection.recv(1):
            pass
    except OSError:
        pass
    deadline = time.monotonic() + 1
    while reap() and time.monotonic() < deadline and _has_ended(_started):
        time.sleep(_PAUSE_S)


def _has_ended(processes: list[LaneProcess]) -> bool:
    return any(process.ended for process in processes)


def reap() -> int:
    """Forgets the servers of this process that have ended; returns how many are left."""
    for process in list(_started):
        if process.exitcode is not None:
            process.close()
            _started.remove(process)
    return len(_started)


def _check_system(name: str) -> None:
    if sys.platform != "linux" or (own := open_pidfd(os.getpid())) is None:
        raise bad_argument("share", name, "it needs Linux 5.3 or newer; remove share")
    close_end(own)


def _program() -> list[str]:
    """What is the same for all ranks of this program on this machine, and differs from other programs."""
    known = (_OWN_NAME,) if _OWN_NAME in os.environ else _OF_PROGRAM
    found = [f"{variable}={os.environ[variable]}" for variable in known if variable in os.environ]
    return found or [f"child of {os.getppid()}, which started at {_start_of(os.getppid())}"]


def _start_of(pid: int) -> str:
    """When a process has started, in ticks of the system since its start."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def local_ranks(otherwise: int) -> int:
    """How many processes of this program run on this machine; `otherwise` if no launcher tells it."""
    for variable in _LOCAL_RANKS:
        if (text := os.environ.get(variable, "")).isdecimal():
            return max(1, int(text))
    return otherwise


def _forget_in_child() -> None:
    _started.clear()  # they are children of the parent


os.register_at_fork(after_in_child=_forget_in_child)
