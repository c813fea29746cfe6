"""The crew of a rank: the workers of the node, which the server has started.

server --NewLane--> a lane to a worker
       --Ended----> how a worker has ended          a lane closes --> bury: waits until the server has told this
the server has ended --> the rank joins another server, or starts it; its batches are made again there
"""

from __future__ import annotations

import select
import signal
import socket
import time
from collections.abc import Sized
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Final

from ...errors import WorkerStartError, logger, text_of
from ...forks import no_fork
from ...interrupts import Uninterrupted, from_signal_handler
from ...memory.slab import STARTED, Slab
from ...wire.ends import close_end, is_ready, shut_down, track_end
from ...work.task import Job
from ..lanes.lane import Death
from ..process.socket_lane import ProcessLane
from .meeting import Joined, Meeting, await_end, start_error
from .messages import Broken, Ended, NewLane, Together, receive

_ENDED: Final = (
    "the process that starts the shared workers (pid %s) has ended; another one starts, and the batches in flight are "
    "made again; if this repeats, look for the OOM killer in dmesg"
)
_REAPING_S: Final = 1.0  # how long a worker whose lane has closed may take to end before it is killed
_TELLING_S: Final = 1.0  # how long to wait for the message of the server about a dead worker


class SharedWorker:
    """A worker process that `server` has started; for its other methods see `Killable`."""

    def __init__(self, worker: int, pid: int, pidfd: Connection, server: Joined) -> None:
        self.worker, self.pid, self._pidfd, self.server = worker, pid, pidfd, server

    @property
    def ended(self) -> bool:
        return self._pidfd.poll()

    def send_signal(self, number: int) -> None:
        signal.pidfd_send_signal(self._pidfd.fileno(), number)

    def kill(self) -> None:
        try:
            self.send_signal(signal.SIGKILL)
        except OSError as error:  # it has ended, or this process may not kill it
            if from_signal_handler(error):
                raise

    def end(self) -> bool:
        """Waits until the process has ended, and kills it if necessary; returns whether it has ended."""
        if not self._pidfd.poll(_REAPING_S):
            self.kill()
        return self._pidfd.poll(_REAPING_S)

    def close(self) -> None:
        close_end(self._pidfd)


class SharedLane(ProcessLane[SharedWorker]):
    """The lane of a rank to a worker that makes batches of other ranks, too."""

    shared = True

    def kill_stuck(self) -> str:
        """See `ProcessLane`; the worker is not killed while it makes a batch of another rank."""
        if any(attempt.started for attempt in self.attempts.values()):
            return super().kill_stuck()
        return f"its worker (pid {self.process.pid}) still makes batches of other ranks; pass a larger timeout"


class SharedCrew:
    """The workers of a node, each with its lane to this rank.

    Args:
        job: for the server, if this rank starts it.

    Attributes:
        ranks: how many ranks use the workers, as far as is known.
        watched, lanes, poll, error, requested: see `Crew`.
    """

    def __init__(self, meeting: Meeting, job: Job) -> None:
        self.lanes: dict[int, SharedLane] = {}
        self.watched = self.lanes
        self.poll = select.poll()
        self.error: WorkerStartError | None = None
        self.ranks = 1
        self._meeting, self._job = meeting, job
        self._server: Joined | None = None
        self._endings: dict[int, str] = {}  # how workers have ended, by pid
        self._hangs_up = False

    @property
    def requested(self) -> Sized:
        return () if self._server is not None or self._hangs_up else (self._meeting,)

    def start_requested(self, epoch: int) -> None:
        """Joins the server, or starts it."""
        if self.requested:
            server = self._meeting.join(replace(self._job, epoch=epoch), lambda: self._hangs_up)
            with Uninterrupted():
                self._server = server
                self.poll.register(server.connection, select.POLLIN)

    def hear(self, descriptor: int) -> None:
        """Reads what the server has sent."""
        server = self._server
        if server is None or descriptor != server.connection.fileno() or self._read(server):
            return
        with Uninterrupted():
            if self.error is None:
                logger().warning(_ENDED, server.welcome.pid)
            self.poll.unregister(server.connection)
            close_end(server.connection)
            self._server = None

    def _read(self, server: Joined) -> bool:
        """Handles all messages that have arrived; returns False if the server has ended."""
        with Uninterrupted():
            return self._read_all(server)

    def _read_all(self, server: Joined) -> bool:  # see NOTE [loops and try] in interrupts.py
        while True:
            try:
                is_open = self._read_one(server)
            except BlockingIOError:
                return True
            except OSError as error:
                self.error = WorkerStartError(f"share: {text_of(error)}")
                self.error.__cause__ = error
                return True
            if not is_open:
                return False

    def _read_one(self, server: Joined) -> bool:
        with no_fork:
            received = receive(server.connection)
            if received is None:
                return False
            message, descriptors = received
            if isinstance(message, NewLane):
                self._add(message, server, *descriptors)
        if isinstance(message, Ended):
            self._endings[message.pid] = message.how
        elif isinstance(message, Together):
            self.ranks = message.ranks
        elif isinstance(message, Broken):
            self.error = start_error(message)
        return True

    def _add(self, new: NewLane, server: Joined, end: int, log: int, pidfd: int) -> None:
        """Adds the lane of a worker that has started; see NOTE [no fork] in forks.py."""
        connection = track_end(socket.socket(fileno=end))
        process = SharedWorker(new.worker, new.pid, track_end(Connection(pidfd, writable=False)), server)
        connection.setblocking(False)
        lane = self.lanes[end] = SharedLane(process, False, connection, log, ready=True)
        self.poll.register(end, select.POLLIN)
        if self._hangs_up:
            lane.hang_up()

    def has_answered(self) -> None:
        """Does nothing: a worker tells the server that it has answered."""

    def has_failed(self, descriptor: int, size: int) -> None:
        """Does nothing: workers report to the server."""

    def bury(self, descriptor: int) -> Death[Slab]:
        """Closes the lane of a dead worker, after it has made sure that the worker can write no more."""
        with Uninterrupted():
            return self._bury(descriptor)

    def _bury(self, descriptor: int) -> Death[Slab]:
        lane = self.lanes[descriptor]
        process, attempts = lane.process, list(lane.attempts.values())
        has_ended, how = process.end(), self._how_ended(process)
        for attempt in attempts:
            if how is None:  # the worker has ended because its server has, so no sample is to blame
                attempt.slab.control[STARTED] = 0
            if not has_ended:  # it may still write
                attempt.slab.inherited = True
        del self.lanes[descriptor]
        self.poll.unregister(lane.socket)
        lane.close()
        process.close()
        # Batches of other ranks may have been made side by side with those of this one.
        alone = self._job.reading.concurrency == 1
        return Death(process.pid, how or "because the process that starts the workers has ended", attempts, alone)

    def _how_ended(self, worker: SharedWorker) -> str | None:
        """How a worker has ended, as its server tells it; None if that server has ended, too."""
        pid, server, deadline = worker.pid, worker.server, time.monotonic() + _TELLING_S
        while pid not in self._endings:
            if server is not self._server or not self._read(server):
                return None
            left = deadline - time.monotonic()
            if pid not in self._endings and not (left > 0 and is_ready(server.connection, select.POLLIN, left)):
                return "without an exit code"
        return self._endings.pop(pid)

    def hang_up(self) -> None:
        self._hangs_up = True
        for lane in list(self.lanes.values()):
            lane.hang_up()
        server = self._server
        if server is not None:
            shut_down(server.connection, socket.SHUT_WR)

    def shut(self) -> None:
        """Waits until the server has let this rank go."""
        server = self._server
        if server is not None:
            await_end(server, alone=self.ranks == 1)

    def close(self) -> None:
        for lane in self.lanes.values():
            lane.close()
            lane.process.close()
        self.lanes.clear()
        if self._server is not None:
            close_end(self._server.connection)
            self._server = None
