"""`Meeting`: how the ranks of a node find the server of their workers, or start it.

    join --> is the name in use? --yes--> connect --Hello--> wait for the answer of the server
                  |                          ^
                  +--no--> take the name, start the server

The name contains the user, the program and the loader, so only ranks of the same program find each other, and only for
the same loader. See NOTE [one server] in server.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import sys
import time
import weakref
from collections import Counter
from dataclasses import dataclass
from multiprocessing.process import current_process
from pathlib import Path
from typing import Any, Final

from ...errors import WorkerStartError, bad_argument
from ...forks import no_fork
from ...interrupts import Uninterrupted
from ...work.task import Job
from ..lanes.ends import close_end, track_end
from ..lanes.messages import Request, Verb
from ..lanes.remote import cannot_start, decode_error
from ..process.mapped_job import MappedJob, pickle_for, write_job
from ..process.supervisor import LaneProcess, new_process, open_pidfd, outlives_program
from .messages import Broken, Facts, Hello, Refused, Welcome, read_file, receive, send
from .server import peer, serve

# What tells programs on a machine apart: variables that launchers set for all processes of a program.
_OF_PROGRAM: Final = (
    *("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
    *("SLURM_JOB_ID", "SLURM_STEP_ID", "PMIX_NAMESPACE"),
)
_OWN_NAME: Final = "GLUONLOADER_PROGRAM"  # a user's own name for a program that no launcher has started
# How many processes of the program run on this machine, according to the launcher.
_LOCAL_RANKS: Final = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
_OF_NODES: Final = "SLURM_STEP_TASKS_PER_NODE"  # the same for each node of Slurm, such as "8(x2),4"
_FAILED_STARTS: Final = 3  # give up after so many servers of this process have ended while they started
_PAUSE_S: Final = 0.002  # between two tries to find or to start a server
_QUEUE: Final = 1024  # ranks that wait for the server
_ENDING_S: Final = 5.0  # how long the server may take to end its workers when the last rank leaves

_EXAMPLE: Final = "e.g. share='node:validation'"

_open: weakref.WeakValueDictionary[str, Meeting] = weakref.WeakValueDictionary()  # those of open loaders, by name
_made: Final[Counter[str]] = Counter()  # how many loaders of each name this process has made
_started: Final[list[LaneProcess]] = []  # servers that this process has started, and that may still run


@dataclass(frozen=True, slots=True)
class Joined:
    """A connection to a server that has welcomed this rank."""

    connection: socket.socket
    welcome: Welcome


class Meeting:
    """How the ranks of a node meet whose loaders share workers.

    Args:
        name: tells the loaders of a program apart.
        dataset: what is read. Two open loaders of one process that read different datasets need different names.
        rank: the number of this rank.
        version: of the library.
        facts: the arguments that have to be the same on all ranks.
        start_method: how the server starts; its workers are forked from it.

    Raises:
        ValueError: sharing is not possible here, or the name is in use.
    """

    _name = ""  # until the constructor has checked everything
    _joined: Joined | None = None  # before it is needed

    def __init__(self, name: str, dataset: Any, rank: int, version: str, facts: Facts, start_method: str) -> None:
        _check_system(name)
        other = _open.get(name)
        if other is not None and other._dataset is not dataset:
            right = f"another open loader of this process has it, too; close that loader, or pass a name, {_EXAMPLE}"
            raise bad_argument("share", name, right)
        self._dataset: Any = dataset
        self._name, self._rank, self._version, self._start_method = name, rank, version, start_method
        self._facts = json.loads(json.dumps(facts))
        meeting = [os.geteuid(), _program(), name, _made[name]]
        self._address = "\0gluonloader-" + hashlib.sha256(json.dumps(meeting).encode()).hexdigest()[:32]
        self._pid = os.getpid()  # the process that has joined
        _made[name] += 1
        _open[name] = self

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
        if _open.get(self._name) is self:
            del _open[self._name]

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
            f"share: the process that starts the workers has ended {failed} times while it started; probable cause: "
            "the main script or the dataset ends it; remove share to see why"
        )

    def _start(self, job: Job) -> socket.socket | None:
        """Starts the server; returns a socket, while which is open the server waits for ranks.

        Returns None if another process has the name now.
        """
        forks = self._start_method == "fork"
        pickled = None if forks else pickle_for(self._start_method, job)
        listener = _listen(self._address)
        if listener is None:
            return None
        try:
            process = new_process(self._start_method, serve, job if forks else None, self._version, self._facts)
            starter = process.start_as(0)
            outlives_program(process)
            _started.append(process)
            _send_start(starter, listener, None if pickled is None else write_job(pickled))
        finally:
            close_end(listener)
        return starter

    def _enter(self, connection: socket.socket) -> Welcome | None:
        """The answer of the server; None if it has ended without an answer."""
        try:
            send(connection, Hello(self._version, self._facts, self._rank, sorted(os.sched_getaffinity(0))))
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
        raise ValueError(f"share: {message.why}")
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
        uid = peer(connection).uid
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
    with no_fork:
        listener = track_end(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    try:
        listener.bind(address)
        listener.listen(_QUEUE)
    except OSError:
        close_end(listener)
        return None
    return listener


def _send_start(starter: socket.socket, listener: socket.socket, mapped: MappedJob | None) -> None:
    """Sends the server the socket with the name, which no child inherits, and the job unless it inherits that."""
    hello, descriptors = Request(Verb.HELLO), [listener.fileno()]
    if mapped is not None:
        hello = Request(Verb.HELLO, size=mapped.size, length=mapped.length)
        descriptors.append(mapped.fd)
    try:
        socket.send_fds(starter, [hello.encode()], descriptors)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server has ended
    finally:
        if mapped is not None:
            os.close(mapped.fd)


def await_end(connection: socket.socket) -> None:
    """Waits until the server has closed the connection; if this was the last rank, nothing of the server is left then."""
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
    if current_process().daemon:
        right = "this process is daemonic, so it cannot start workers; start it with daemon=False, or remove share"
        raise bad_argument("share", name, right)
    if sys.platform != "linux" or (own := open_pidfd(os.getpid())) is None:
        raise bad_argument("share", name, "it needs Linux 5.3 or newer, which may call pidfd_open; remove share")
    close_end(own)


def _program() -> list[str]:
    """Identifies this program among the programs of this machine."""
    if _OWN_NAME in os.environ:
        return [os.environ[_OWN_NAME]]
    found = [f"{variable}={os.environ[variable]}" for variable in _OF_PROGRAM if variable in os.environ]
    return found or [f"child of {os.getppid()}, which has started at {_start_of(os.getppid())}", *sys.argv]


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
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get(_OF_NODES, ""))
    of_nodes = [int(tasks) for tasks, nodes in groups for _ in range(int(nodes or 1))]
    node = os.environ.get("SLURM_NODEID", "")
    return of_nodes[int(node)] if node.isdecimal() and int(node) < len(of_nodes) else otherwise


def _forget_in_child() -> None:
    _started.clear()  # they are children of the parent


os.register_at_fork(after_in_child=_forget_in_child)
