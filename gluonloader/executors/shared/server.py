"""The server: the process that starts the workers of a node, and gives each rank a lane to each of them.

    rank 0 --Hello--> server --Verb.JOIN, one end of a lane--> worker
    rank 0 <--NewLane, the other end-- server
    rank 0 ==requests, replies, slabs==> worker            the server takes no part in batches

The first rank that makes the loader starts the server, and it ends with the last rank. The server is its own process,
since a rank that computes could not replace a dead worker for the other ranks.

NOTE [one server]: the name of an abstract socket belongs to one process at a time, and is free again when this process
has ended, in whatever way. So of several ranks that find no server, one gets the name and starts the server, and the
others wait in the queue of its socket until it answers. No worker keeps the socket open.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import select
import signal
import socket
import stat
import struct
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from ... import frameworks
from ...memory.slab import anonymous_file
from ...work.task import Job
from ..lanes.ends import close_end, open_pair, track_end
from ..lanes.messages import Request, RequestReader, Status, Verb
from ..lanes.remote import encode_error
from ..process.crew import ProcessCrew
from ..process.main_script import explain_missing, import_main
from ..process.mapped_job import MappedJob, read_job
from ..process.socket_lane import ProcessLane
from ..process.supervisor import LaneProcess
from .dataset_in_server import DatasetInServer
from .messages import (
    CONTENT,
    MESSAGE_BYTES,
    Broken,
    Ended,
    Facts,
    Hello,
    Message,
    NewLane,
    Refused,
    Together,
    Welcome,
    decode_hello,
    send,
)

_RETRY_MS: Final = 1000  # how long to wait before starting workers again, if there were too many processes or files
_GPUS: Final = "/dev/nvidia"


def serve(job: Job | None, version: str, facts: Facts) -> None:
    """Runs in the server process, which does nothing else.

    Args:
        job: the inherited job; None if it comes through the lane.
        version, facts: what the `Hello` of each rank must contain.
    """
    process: Any = multiprocessing.current_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the ranks end, and the server ends with them
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # SIGTERM ends the server, also if the first rank has a handler
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.setsid()  # so that signals to the process group of the first rank do not reach the server
    starter: socket.socket = process.lane
    if job is not None:
        _replace_connections(keep=starter.fileno())
        frameworks.enter_worker()
    data, descriptors, _, _ = socket.recv_fds(starter, MESSAGE_BYTES, 2)
    if not data:  # the first rank is gone
        raise SystemExit(1)
    (hello,) = RequestReader().read(data)
    listener = track_end(socket.socket(fileno=descriptors.pop(0)))
    server, watch = None, _Watch(starter)
    try:
        if job is None:
            job = _read_job(MappedJob(descriptors.pop(0), hello.size, hello.length), process.main)
        job, length = _build(job)
        watch.built = True
        server = Server(job, listener, starter, Welcome(os.getpid(), length), version, facts)
        server.run()
    except BaseException as error:
        _tell_of(error, listener, [] if server is None else server.ranks)
        raise SystemExit(1) from None
    finally:
        if server is not None:
            server.close()


def _read_job(mapped: MappedJob, main: Mapping[str, str]) -> Job:
    """The job that the first rank has pickled; `main` is its main script, see main_script.py."""
    if main:
        import_main(main)
    try:
        return read_job(mapped)
    except AttributeError as error:
        explain_missing(error)
        raise
    finally:
        os.close(mapped.fd)


class _Watch:
    """Ends the server if its starter goes away while the dataset is built; a rank that waits then starts another one.

    Attributes:
        built: the dataset is built, so the server notices by itself; may be set.
    """

    def __init__(self, starter: socket.socket) -> None:
        self.built = False
        threading.Thread(target=self._wait, args=(starter.fileno(),), name="gluonloader-watch", daemon=True).start()

    def _wait(self, starter: int) -> None:
        poll = select.poll()
        poll.register(starter, 0)  # hang-up is reported even if no event is requested
        poll.poll()
        if not self.built:
            os._exit(1)


def _replace_connections(keep: int) -> None:
    """Replaces the sockets and GPUs of the first rank, which are inherited, by /dev/null.

    The rank's peers would not notice its end as long as the server holds its connections, and the memory of a GPU would
    stay in use. They are not closed: Python objects still refer to these descriptors and may close them, and the number
    could belong to another file then.
    """
    with open(os.devnull, "rb") as null:
        for name in os.listdir("/proc/self/fd"):
            descriptor = int(name)
            try:
                is_socket = stat.S_ISSOCK(os.fstat(descriptor).st_mode)
                if descriptor > 2 and descriptor != keep and (is_socket or _is_gpu(descriptor)):
                    os.dup2(null.fileno(), descriptor, inheritable=False)
            except OSError:  # the descriptor of the folder that is listed here
                pass


def _is_gpu(descriptor: int) -> bool:
    return os.readlink(f"/proc/self/fd/{descriptor}").startswith(_GPUS)


def _build(job: Job) -> tuple[Job, int | None]:
    """The job with its dataset, and the length of the dataset if it was built here."""
    if not isinstance(job.dataset, DatasetInServer):
        return job, None
    dataset = job.dataset.build()
    length = len(dataset)
    reading = replace(job.reading, replace_from=length if job.reading.replace_from else 0)
    return replace(job, dataset=dataset, reading=reading), length


def _tell_of(error: BaseException, listener: socket.socket, ranks: Iterable[socket.socket]) -> None:
    """Tells all ranks of the error with which the server ends, also those that wait for an answer."""
    connections = list(ranks)
    listener.setblocking(False)
    while True:
        try:
            connections.append(listener.accept()[0])
        except OSError:
            break
    file = anonymous_file()
    os.pwrite(file, encode_error(error, f"the server of the workers (pid {os.getpid()})"), 0)
    for connection in connections:
        _try_to_send(connection, Broken(f"the server of the workers (pid {os.getpid()})"), [file])


def _try_to_send(connection: socket.socket, message: Message, descriptors: list[int]) -> bool:
    """Sends a message; returns False if the rank is gone, or is stopped and has not read many messages."""
    try:
        send(connection, message, descriptors)
    except OSError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank that uses the workers."""

    index: int
    pid: int


class Server:
    """Starts the workers, and tells the ranks of them.

    Args:
        starter: a connection to the rank that has started the server; it closes once that rank has joined or died.
        welcome: the answer to each rank that may use the workers.

    Attributes:
        ranks: the ranks, by their connections.
    """

    def __init__(
        self,
        job: Job,
        listener: socket.socket,
        starter: socket.socket,
        welcome: Welcome,
        version: str,
        facts: Facts,
    ) -> None:
        self._job, self._listener, self._welcome, self._version, self._facts = job, listener, welcome, version, facts
        self._starter: socket.socket | None = starter
        self._guests: set[socket.socket] = set()  # connected, but no Hello received
        self.ranks: dict[socket.socket, Rank] = {}
        self._connections: dict[int, socket.socket] = {}  # guests and ranks, by descriptor
        self._cores: set[int] = set()  # on which any rank may run
        self._woken, self._waker = open_pair()
        self._woken.setblocking(False)
        self._listener.setblocking(False)
        self._crew = ProcessCrew(job, "fork", None, self._waker)
        for one in (self._woken, listener, starter):
            self._crew.poll.register(one, select.POLLIN)

    def run(self) -> None:
        """Serves until no rank is left. Raises the error if the workers cannot start."""
        while self.ranks or self._starter is not None:
            try:
                self._crew.start_requested(self._job.epoch)
            except OSError:  # too many processes or descriptors now
                pass
            if self._crew.error is not None:
                raise self._crew.error
            for descriptor, _ in self._crew.poll.poll(_RETRY_MS if self._crew.requested else None):
                self._handle(descriptor)

    def _handle(self, descriptor: int) -> None:
        lane, connection = self._crew.watched.get(descriptor), self._connections.get(descriptor)
        if lane is not None:
            self._hear_worker(descriptor, lane)
        elif connection is not None:
            self._hear(connection)
        elif descriptor == self._listener.fileno():
            self._accept()
        elif descriptor == self._woken.fileno():
            self._woken.recv(4096)
        elif self._starter is not None and descriptor == self._starter.fileno():
            self._crew.poll.unregister(self._starter)
            close_end(self._starter)
            self._starter = None

    def _hear_worker(self, descriptor: int, lane: ProcessLane[LaneProcess]) -> None:
        replies = lane.replies()
        if replies is None:
            death = self._crew.bury(descriptor)
            for rank in list(self.ranks):
                self._tell(rank, Ended(death.pid or 0, death.how))
            return
        for reply in replies:
            if reply.status is Status.READY:
                lane.ready = True
                for rank in list(self.ranks):
                    self._join(rank, lane)
            elif reply.status is Status.BROKEN:
                self._crew.has_failed(descriptor, reply.size)
        lane.remove(replies)

    def _accept(self) -> None:
        try:
            connection = track_end(self._listener.accept()[0])
        except OSError:  # the client has disconnected, or there is no descriptor left
            return
        connection.setblocking(False)
        if peer(connection).uid != os.geteuid():
            close_end(connection)
            return
        self._guests.add(connection)
        self._connections[connection.fileno()] = connection
        self._crew.poll.register(connection, select.POLLIN)

    def _hear(self, connection: socket.socket) -> None:
        """Reads what a guest says. A rank says nothing more, so its connection is readable when it leaves."""
        is_guest = connection in self._guests
        try:
            data = connection.recv(MESSAGE_BYTES) if is_guest else b""
            hello = decode_hello(data)
        except (OSError, ValueError):
            self._leave(connection)
            return
        self._guests.discard(connection)
        why = self._reason_against(hello, peer(connection).pid)
        if why:
            self._tell(connection, Refused(why))
            self._drop(connection)
            return
        self.ranks[connection] = Rank(hello.rank, peer(connection).pid)
        self._tell(connection, self._welcome)
        self._use_cores(hello.cores)
        for lane in list(self._crew.lanes.values()):
            if lane.ready and connection in self.ranks:
                self._join(connection, lane)
        self._tell_count()

    def _reason_against(self, hello: Hello, pid: int) -> str:
        """Why a rank may not use the workers; "" if it may."""
        if hello.version != self._version:
            return f"gluonloader {hello.version} on this rank, but {self._version} on the rank that started the workers"
        for name in [*self._facts, *hello.facts]:
            ours, theirs = self._facts.get(name), hello.facts.get(name)
            if ours != theirs:
                here, there = f"{name}={theirs!s:.200}", f"{name}={ours!s:.200}"
                if name == CONTENT:
                    here, there = "this dataset, or what its function refers to,", "another content"
                what = f"{here} on this rank, but {there} on the rank that has started the workers"
                return f"{what}; pass the same on all ranks, or give each loader a name, e.g. share='node:validation'"
        for rank in self.ranks.values():
            if rank.index == hello.rank and rank.pid != pid:
                what = f"rank {rank.index} is connected already (pid {rank.pid}), so two programs use this name"
                return f"{what}; set the environment variable GLUONLOADER_PROGRAM to another text for each of them"
        return ""

    def _use_cores(self, cores: Iterable[int]) -> None:
        """Lets the workers run on the cores of all ranks: launchers may bind each rank to cores of its own."""
        more = self._cores | set(cores)
        if more == self._cores:
            return
        self._cores = more
        for pid in (os.getpid(), *(lane.process.pid or 0 for lane in self._crew.lanes.values())):
            try:
                os.sched_setaffinity(pid, more)
            except OSError:  # the process has ended, or a container forbids it
                pass

    def _tell_count(self) -> None:
        for rank in list(self.ranks):
            self._tell(rank, Together(len(self.ranks)))

    def _join(self, rank: socket.socket, lane: ProcessLane[LaneProcess]) -> None:
        """Connects a rank with a worker."""
        one, other = socket.socketpair()
        with one, other:
            lane.send(Request(Verb.JOIN), (other.fileno(),))
            pidfd = lane.process.pidfd
            if pidfd is None:
                raise OSError(errno.EMFILE, "too many open files: no descriptor is left for a worker process")
            self._tell(rank, NewLane(lane.worker, lane.process.pid or 0), [one.fileno(), lane.log, pidfd.fileno()])

    def _tell(self, rank: socket.socket, message: Message, descriptors: list[int] | None = None) -> None:
        if not _try_to_send(rank, message, descriptors or []):
            self._drop(rank)

    def _leave(self, connection: socket.socket) -> None:
        """Lets a rank or a guest go. The last rank's connection stays open until the server has ended, see `close`."""
        if list(self.ranks) != [connection] or self._starter is not None:
            self._drop(connection)
            self._tell_count()
        else:
            self.ranks.clear()

    def _drop(self, connection: socket.socket) -> None:
        if self._connections.pop(connection.fileno(), None) is not None:
            self._crew.poll.unregister(connection)
            self._guests.discard(connection)
            self.ranks.pop(connection, None)
            close_end(connection)

    def close(self) -> None:
        """Ends the workers.

        The connections stay open. The system closes them when this process has ended, so the rank that leaves last
        knows then that nothing is left.
        """
        close_end(self._listener)  # first, so that a rank that comes now starts another server
        self._crew.hang_up()
        self._crew.shut()
        self._crew.close()


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a connection."""

    pid: int
    uid: int


def peer(connection: socket.socket) -> Peer:
    """The process that has connected or, for one that has connected itself, that listens."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _ = struct.unpack("3i", credentials)
    return Peer(pid, uid)
