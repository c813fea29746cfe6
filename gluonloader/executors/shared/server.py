"""The server: starts the workers of a node, and gives each rank a lane to each of them.

    rank 0 --RankHello--> server --Verb.JOIN, one end of a lane--> worker
    rank 0 <--NewLane, the other end-- server
    rank 0 ==requests, replies, slabs==> worker            the server takes no part in batches

The first rank that makes the loader starts the server, and it ends with the last rank. The server is a process of its
own, since a rank that computes could not replace a dead worker for the other ranks.

NOTE [one server]: the name of an abstract socket is free again when no process has the socket open any more, in
whatever way they have ended. So of several ranks that find no server, one gets the name and starts the server, and the
others wait in the queue of its socket until it answers. The rank closes the socket as soon as it has sent it to the
server, and no child of either process keeps it open.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from ...wire.clients import Client, Clients
from ...wire.ends import close_end, is_ready
from ...wire.greeting import Refused
from ...work.task import Job
from ..lanes.messages import Request, Status, Verb
from ..process.crew import ProcessCrew
from ..process.inheritance import Inheritance
from ..process.socket_lane import ProcessLane
from ..process.supervisor import LaneProcess
from .messages import CONTENT, Ended, Facts, Goodbye, Message, NewLane, RankHello, RankWelcome, Together, send
from .program import OWN_NAME

_RETRY_S: Final = 1.0  # how long to wait before a worker is started again
_NO_WORKER_S: Final = 10.0  # how long no worker at all can start, before that is an error

Lane = ProcessLane[LaneProcess]


@dataclass(eq=False, slots=True)
class Rank(Client):
    """A rank that uses the workers. Messages are pending; for a lane to a worker, the worker's lane to the server.

    Attributes:
        hello: what it has said.
        workers: the pids of the workers to which it has got a lane.
    """

    hello: RankHello = field(kw_only=True)
    workers: set[int] = field(default_factory=set)


class WorkerServer(Clients[Rank]):
    """Starts the workers, and tells the ranks of them.

    Args:
        starter: a connection to the rank that has started the server; it closes once that rank has joined or died.
        welcome: the answer to each rank that may use the workers.
    """

    def __init__(
        self, job: Job, listener: socket.socket, starter: socket.socket, welcome: RankWelcome, facts: Facts
    ) -> None:
        self._job, self._facts = job, facts
        self._starter: socket.socket | None = starter
        self._left: list[socket.socket] = []  # the connections of ranks that have left just now
        self._cores: set[int] = set()  # on which any rank may run
        self._stuck_since: float | None = None  # since when no worker can start
        super().__init__(listener, welcome, RankHello)
        self._crew = ProcessCrew(job, "fork", None, Inheritance(), self.waker)
        self._crew.poll = self.poll  # so that one call waits for workers and ranks
        self.poll.register(starter, select.POLLIN)

    def run(self) -> None:
        """Serves until no rank is left. Raises the error if the workers cannot start."""
        while True:
            self._start_workers()
            if self._crew.error is not None:
                raise self._crew.error
            if not self.clients and self._starter is None:
                return  # the connection of the last one stays open, see `close`
            self._part()
            retry_s = self.send_pending()
            if retry_s is None and self._crew.requested:
                retry_s = _RETRY_S
            for descriptor, _ in self.poll.poll(None if retry_s is None else 1000 * retry_s):
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

    def _handle(self, descriptor: int) -> None:
        lane = self._crew.watched.get(descriptor)
        if lane is not None:
            self._hear_worker(descriptor, lane)
        elif not self.handle(descriptor) and self._starter is not None and descriptor == self._starter.fileno():
            self.poll.unregister(self._starter)
            close_end(self._starter)
            self._starter = None

    # -- workers ------------------------------------------------------------------------------------------------------

    def _hear_worker(self, descriptor: int, lane: Lane) -> None:
        replies = lane.replies()
        if replies is None:
            death = self._crew.bury(descriptor)
            for rank in self.clients.values():
                if death.pid in rank.workers:
                    rank.workers.discard(death.pid)
                    rank.pending.append(Ended(death.pid, death.how))
            return
        for reply in replies:
            if reply.status is Status.READY:
                lane.ready = True
                self._tell_all(lane)
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

    def admit(self, connection: socket.socket, pid: int, hello: RankHello) -> Rank | Refused:
        why = self._reason_against(hello, pid)
        return Refused(why) if why else Rank(connection, pid, hello=hello)

    def joined(self, rank: Rank) -> None:
        rank.pending.extend(lane for lane in self._crew.lanes.values() if lane.ready)
        self._tell_all(Together(len(self.clients)))
        self._use_cores(rank.hello.cores)

    def hear(self, rank: Rank) -> None:
        """A rank leaves: it says nothing after its `RankHello`."""
        self.forget(rank)
        self._left.append(rank.connection)
        self._tell_all(Together(len(self.clients)))

    def _part(self) -> None:
        """Tells the ranks that have left that the server goes on."""
        for connection in self._left:
            with suppress(OSError):  # it is gone
                send(connection, Goodbye())
            close_end(connection)
        self._left.clear()

    def _tell_all(self, what: Message | Lane) -> None:
        for rank in self.clients.values():
            rank.pending.append(what)

    def _reason_against(self, hello: RankHello, pid: int) -> str:
        """Why a rank may not use the workers; "" if it may."""
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
        for rank in self.clients.values():
            if rank.hello.rank == hello.rank and rank.pid != pid:
                what = f"rank {hello.rank} is connected already (pid {rank.pid}), so two programs use this name"
                return f"{what}; set the environment variable {OWN_NAME} to another text for each of them"
        return ""

    def send(self, rank: Rank, item: Message | Lane) -> None:
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

    def close(self) -> None:
        """Ends the workers.

        The connections to ranks stay open. The system closes them when this process has ended, so the rank that leaves
        last knows then that nothing is left.
        """
        self.door.close()  # first, so that a rank that comes now starts another server
        self._crew.hang_up()
        self._crew.shut()
        self._crew.close()
        for connection in (*self._left, *(rank.connection for rank in self.clients.values())):
            connection.detach()
