"""The workers of one executor: how they start, and what happens if a worker cannot start or dies.

    supervisor.requested --> start_requested --> Lane --HELLO--> worker --READY--> lane.ready
    end-of-file on a lane --> bury --> Death: its cause, and the attempts that were under way

The executor calls every method with its lock held, in the thread that waits for batches.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from dataclasses import dataclass
from typing import Final

from ...errors import WorkerStartError, text_of
from ...limits import oom_kills
from ...memory.slab import anonymous_file
from ...work.task import Job
from .death import describe_exit, reap
from .lane import Attempt, Lane
from .packed_job import PackedJob
from .records import Request, Verb
from .remote import decode_error
from .supervisor import Supervisor

_FAILED_STARTS: Final = 3  # in a row, before an error is raised: probably the job itself makes its workers exit
_KILLED_STARTS: Final = 100  # the same for workers killed by SIGKILL: it comes from outside, perhaps not again


@dataclass(frozen=True, slots=True)
class Death:
    """The death of a worker."""

    pid: int | None
    how: str  # its exit code or signal, in words
    attempts: list[Attempt]  # that were under way on its lane


class Crew:
    """The worker processes of one executor, each with its lane.

    Args:
        packed: the pickled job; None under fork, because workers inherit the job.
        waker: a byte sent through this socket wakes the thread that waits.

    Attributes:
        lanes: the lanes of live workers, by file descriptor; a worker that died gets one when its replacement starts.
        poll: reports the descriptors of lanes with something to read.
        error: the error to raise if workers cannot start; otherwise None.
        requested: processes that are still to be started, by `start_requested`.
    """

    def __init__(self, job: Job, start_method: str, packed: PackedJob | None, waker: socket.socket) -> None:
        self.lanes: dict[int, Lane] = {}
        self.poll = select.poll()
        self.error: WorkerStartError | None = None
        self._num_workers = job.num_workers
        self._packed = packed
        self._failed_starts = 0
        self._oom_kills = oom_kills()
        self._supervisor = Supervisor(job.num_workers, start_method, job if packed is None else None, waker)
        self.requested = self._supervisor.requested

    @property
    def forks(self) -> bool:
        """Whether workers inherit this process's memory."""
        return self._packed is None

    @property
    def busy(self) -> bool:
        """Whether any worker has a batch to make."""
        return any(lane.attempts for lane in self.lanes.values())

    def start_requested(self, epoch: int) -> None:
        """Starts the processes that the Pool has requested; see NOTE [who forks] in supervisor.py.

        Raises:
            OSError: there are too many processes or descriptors. The next call tries again.
        """
        requested = self.requested
        # A dead worker's number is free only after its lane was closed.
        while requested and self.error is None and len(self.lanes) < self._num_workers:
            process = requested.popleft()
            taken = {lane.worker for lane in self.lanes.values()}
            worker = next(worker for worker in range(self._num_workers) if worker not in taken)
            try:
                end = self._supervisor.start(process, worker)
            except OSError:
                requested.appendleft(process)
                raise
            lane = Lane(process, end, anonymous_file())
            self.lanes[end.fileno()] = lane
            self.poll.register(end, select.POLLIN)
            packed = self._packed
            if packed is None:
                lane.send(Request(Verb.HELLO, ticket=epoch), (lane.log,))
            else:
                hello = Request(Verb.HELLO, ticket=epoch, size=packed.size, length=packed.length)
                lane.send(hello, (lane.log, packed.fd))

    def has_started(self, lane: Lane) -> None:
        """The worker has run `worker_init_fn` and waits for tasks."""
        lane.ready, self._failed_starts = True, 0

    def could_not_start(self, lane: Lane, size: int) -> None:
        """The worker wrote an error of `size` bytes to its log instead of starting."""
        error = decode_error(os.pread(lane.log, size, 0))
        self.error = WorkerStartError(
            f"worker {lane.worker} (pid {lane.process.pid}) could not start: {type(error).__name__}: {text_of(error)}"
        )
        self.error.__cause__ = error

    def bury(self, lane: Lane) -> Death:
        """Closes the lane of a dead worker, after making sure that the process can write no more."""
        fd = lane.socket.fileno()
        self.poll.unregister(fd)
        del self.lanes[fd]
        lane.close()
        code = reap(lane.process)
        how = describe_exit(code, self._oom_kills)
        if not lane.ready and self.error is None:
            self._failed_starts += 1
            if self._failed_starts >= (_KILLED_STARTS if code == -signal.SIGKILL else _FAILED_STARTS):
                guard = "" if self.forks else "`if __name__ == '__main__':` is missing, or unpickling the dataset or "
                text = f"{self._failed_starts} workers in a row ended while they started, the last worker {how}"
                self.error = WorkerStartError(f"{text}; {guard}worker_init_fn ended them; use num_workers=0 to see why")
        return Death(lane.process.pid, how, list(lane.attempts.values()))

    def wake(self) -> None:
        """Wakes the thread that waits; may be called from any thread, without the lock."""
        self._supervisor.wake()

    def close_lanes(self) -> None:
        for lane in self.lanes.values():
            lane.close()

    def shut(self) -> None:
        """Waits until all workers have ended. Called after `close_lanes`, without the lock."""
        self._supervisor.shut()

    def close(self) -> None:
        """Forgets the lanes and the pickled job. Called after `shut`."""
        self.lanes.clear()
        if self._packed is not None:
            os.close(self._packed.fd)
