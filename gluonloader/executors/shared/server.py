"""The server: starts the workers of a node, and gives each rank a lane to each of them.

    rank 0 --Hello--> server --Verb.JOIN, one end of a lane--> worker
    rank 0 <--NewLane, the other end-- server
    rank 0 ==requests, replies, slabs==> worker            the server takes no part in batches

The first rank that makes the loader starts the server, and it ends with the last rank. The server is a process of its
own, since a rank that computes could not replace a dead worker for the other ranks.

NOTE [one server]: the name of an abstract socket is free again when no process has the socket open any more, in
whatever way they have ended. So of several ranks that find no server, one gets the name and starts the server, and the
others wait in the queue of its socket until it answers. The rank closes the socket as soon as it has sent it to the
server, and no child of either process keeps it open.

NOTE [slow ranks]: a rank reads its messages only while it waits for a batch. A message that its queue does not take
waits here, and the server tries again later. So a rank that computes for long, or is stopped, costs the others nothing.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ...wire.descriptors import FULL
from ...wire.door import RETRY_S, Door, Guest
from ...wire.ends import close_end, is_ready, open_pair
from ...work.task import Job
from ..lanes.messages import Request, Status, Verb
from ..process.crew import ProcessCrew
from ..process.inheritance import Inheritance
from ..process.socket_lane import ProcessLane
from ..process.supervisor import LaneProcess
from .messages import (
    CONTENT,
    MESSAGE_BYTES,
    Ended,
    Facts,
    Goodbye,
    Hello,
    Message,
    NewLane,
    Refused,
    Together,
    Welcome,
    decode_hello,
    send,
)
from .program import OWN_NAME

_PENDING_S: Final = 0.1  # the same if a rank has not read its messages
_NO_WORKER_S: Final = 10.0  # how long no worker at all can start, before that is an error

Lane = ProcessLane[LaneProcess]


@dataclass(eq=False, slots=True)
class Rank:
    """A rank that uses the workers.

    Attributes:
        index, pid: which rank and which process it is.
        pending: what it has to be told, in order; for a lane to a worker, the worker's lane to the server.
        workers: the pids of the workers to which it has got a lane.
        told: how many ranks there are, as it was told last.
    """

    index: int
    pid: int
    connection: socket.socket
    pending: deque[Message | Lane] = field(default_factory=deque)
    workers: set[int] = field(default_factory=set)
    told: int = 0


class Server:
    """Starts the workers, and tells the ranks of them.

    Args:
        starter: a connection to the rank that has started the server; it closes once that rank has joined or died.
        welcome: the answer to each rank that may use the workers.
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
        self._job, self._welcome, self._version, self._facts = job, welcome, version, facts
        self._starter: socket.socket | None = starter
        self._ranks: dict[int, Rank] = {}  # by descriptor
        self._last: socket.socket | None = None  # the connection of the rank that has left last
        self._cores: set[int] = set()  # on which any rank may run
        self._stuck_since: float | None = None  # since when no worker can start
        self._woken, self._waker = open_pair()
        self._woken.setblocking(False)
        self._crew = ProcessCrew(job, "fork", None, Inheritance(), self._waker)
        self._door = Door(listener, self._crew.poll, MESSAGE_BYTES)
        for one in (self._woken, starter):
            self._crew.poll.register(one, select.POLLIN)

    @property
    def connections(self) -> list[socket.socket]:
        """Those to all ranks, and to processes that have connected and said nothing yet."""
        return [*self._door.connections, *(rank.connection for rank in self._ranks.values())]

    def run(self) -> None:
        """Serves until no rank is left. Raises the error if the workers cannot start."""
        while True:
            self._start_workers()
            if self._crew.error is not None:
                raise self._crew.error
            for rank in list(self._ranks.values()):
                self._send_pending(rank)  # the last rank may be found gone here
            if not self._ranks and self._starter is None:
                return
            self._door.resume()
            for descriptor, _ in self._crew.poll.poll(self._timeout_ms()):
                self._handle(descriptor)

    def _start_workers(self) -> None:
        try:
            self._crew.start_requested(self._job.epoch)
        except OSError:  # too many processes or open files now
            now = time.monotonic()
            self._stuck_since = self._stuck_since or now
            if not self._crew.lanes and now - self._stuck_since > _NO_WORKER_S:
                raise
        else:
            self._stuck_since = None

    def _timeout_ms(self) -> float | None:
        """How long to wait for events before something is tried again."""
        if any(rank.pending or rank.told != len(self._ranks) for rank in self._ranks.values()):
            return 1000 * _PENDING_S
        return 1000 * RETRY_S if self._crew.requested or self._door.paused else None

    def _handle(self, descriptor: int) -> None:
        lane, rank = self._crew.watched.get(descriptor), self._ranks.get(descriptor)
        if lane is not None:
            self._hear_worker(descriptor, lane)
        elif rank is not None:  # it says nothing after its Hello, so it leaves
            self._let_go(rank)
        elif self._door.watches(descriptor):
            if (guest := self._door.handle(descriptor)) is not None:
                self._let_in(guest)
        elif descriptor == self._woken.fileno():
            self._woken.recv(4096)
        elif self._starter is not None and descriptor == self._starter.fileno():
            self._crew.poll.unregister(self._starter)
            close_end(self._starter)
            self._starter = None

    # -- workers ------------------------------------------------------------------------------------------------------

    def _hear_worker(self, descriptor: int, lane: Lane) -> None:
        replies = lane.replies()
        if replies is None:
            death = self._crew.bury(descriptor)
            for rank in self._ranks.values():
                if death.pid in rank.workers:
                    rank.workers.discard(death.pid)
                    rank.pending.append(Ended(death.pid, death.how))
            return
        for reply in replies:
            if reply.status is Status.READY:
                lane.ready = True
                for rank in self._ranks.values():
                    rank.pending.append(lane)
            elif reply.status is Status.BROKEN:
                self._crew.has_failed(descriptor, reply.size)
            else:  # it has answered a rank for the first time
                lane.answered = True
                self._crew.has_answered()
        lane.remove(replies)

    def _use_cores(self, cores: Iterable[int]) -> None:
        """Lets the workers run on the cores of all ranks: launchers may bind each rank to cores of its own."""
        more = self._cores | set(cores)
        if more == self._cores:
            return
        self._cores = more
        workers = [lane.process.pid for lane in self._crew.lanes.values() if not lane.process.ended]
        for pid in (os.getpid(), *workers):
            with suppress(OSError):  # the process has ended, or a container forbids it
                for thread in os.listdir(f"/proc/{pid}/task"):
                    os.sched_setaffinity(int(thread), more)

    # -- ranks --------------------------------------------------------------------------------------------------------

    def _let_in(self, guest: Guest) -> None:
        """Adds a rank, or tells it why it may not use the workers."""
        connection = guest.connection
        try:
            hello = decode_hello(guest.message)
        except ValueError:
            close_end(connection)
            return
        if why := self._reason_against(hello, guest.pid):
            with suppress(OSError):  # it is gone
                send(connection, Refused(why))
            close_end(connection)
            return
        rank = self._ranks[connection.fileno()] = Rank(hello.rank, guest.pid, connection)
        self._crew.poll.register(connection, select.POLLIN)
        ready = [lane for lane in self._crew.lanes.values() if lane.ready]
        rank.pending.extend([self._welcome, *ready])
        self._use_cores(hello.cores)

    def _reason_against(self, hello: Hello, pid: int) -> str:
        """Why a rank may not use the workers; "" if it may."""
        if hello.version != self._version:
            return f"gluonloader {hello.version} on this rank, but {self._version} on the rank that started the workers"
        for name in [*self._facts, *hello.facts]:
            ours, theirs = self._facts.get(name), hello.facts.get(name)
            if ours != theirs:
                here, there = f"{name}={theirs!s:.200}", f"{name}={ours!s:.200}"
                cure = "pass the same on all ranks, or give each loader a name, e.g. share='node:validation'"
                if name == CONTENT and isinstance(ours, dict) and isinstance(theirs, dict):
                    part = min(part for part in {**ours, **theirs} if ours.get(part) != theirs.get(part))
                    here, there = f"{part} has one content", "another one"
                    cure += "; or pass a function that returns the dataset"
                return f"{here} on this rank, but {there} on the rank that has started the workers; {cure}"
        for rank in self._ranks.values():
            if rank.index == hello.rank and rank.pid != pid:
                what = f"rank {rank.index} is connected already (pid {rank.pid}), so two programs use this name"
                return f"{what}; set the environment variable {OWN_NAME} to another text for each of them"
        return ""

    def _send_pending(self, rank: Rank) -> None:
        """Tells a rank what it has to know, as far as its queue takes it; see NOTE [slow ranks]."""
        try:
            self._send_all(rank)
        except OSError as error:
            if error.errno not in FULL:
                self._let_go(rank)

    def _send_all(self, rank: Rank) -> None:
        while rank.pending:
            self._send(rank, rank.pending[0])
            rank.pending.popleft()
        if rank.told != len(self._ranks):
            send(rank.connection, Together(len(self._ranks)))
            rank.told = len(self._ranks)

    def _send(self, rank: Rank, item: Message | Lane) -> None:
        """Sends a message, or connects the rank with a worker; raises OSError if that is not possible now."""
        if not isinstance(item, ProcessLane):
            send(rank.connection, item)
            return
        process = item.process
        if item.socket.fileno() not in self._crew.lanes or process.pid is None or process.pidfd is None:
            return  # it has ended
        if not is_ready(rank.connection, select.POLLOUT, 0):
            raise BlockingIOError(errno.EAGAIN, "the rank has not read its messages")
        one, other = socket.socketpair()
        with one, other:
            item.send(Request(Verb.JOIN), (other.fileno(),))  # if the rank does not get its end, the worker sees that
            send(rank.connection, NewLane(item.worker, process.pid), [one.fileno(), item.log, process.pidfd.fileno()])
        rank.workers.add(process.pid)

    def _let_go(self, rank: Rank) -> None:
        """A rank leaves. The connection of the last one stays open until the server has ended, see `close`."""
        del self._ranks[rank.connection.fileno()]
        if self._ranks or self._starter is not None:
            with suppress(OSError):  # it is gone
                send(rank.connection, Goodbye())
            self._crew.poll.unregister(rank.connection)
            close_end(rank.connection)
        else:
            self._crew.poll.unregister(rank.connection)
            self._last = rank.connection

    def close(self) -> None:
        """Ends the workers.

        The connections to ranks stay open. The system closes them when this process has ended, so the rank that leaves
        last knows then that nothing is left.
        """
        self._door.close()  # first, so that a rank that comes now starts another server
        self._crew.hang_up()
        self._crew.shut()
        self._crew.close()
        for end in (self._woken, self._waker):
            close_end(end)
        for connection in (self._last, *(rank.connection for rank in self._ranks.values())):
            if connection is not None:
                connection.detach()
