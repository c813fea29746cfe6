"""The workers of one executor: how they start, and what happens if a worker cannot start or dies.

    supervisor.requested --> start_requested --> Lane --HELLO--> worker --READY--> lane.ready
    end-of-file on a lane, or an ended process --> bury --> Death: its cause, and the attempts that were under way

The executor calls every method with its lock held, in the thread that waits for batches.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
from multiprocessing.process import BaseProcess
from typing import Final

from ...errors import WorkerStartError, text_of
from ...interrupts import Uninterrupted
from ...limits import oom_kills
from ...memory.slab import Slab, anonymous_file
from ...work.task import Job
from ..lanes.lane import Death
from ..lanes.messages import Request, Verb
from ..lanes.remote import cannot_start, decode_error
from .death import describe_exit, reap
from .inheritance import Inheritance
from .mapped_job import MappedJob
from .socket_lane import ProcessLane
from .supervisor import LaneProcess, Supervisor

_FAILED_STARTS: Final = 3  # in a row, before an error is raised: probably the job itself makes its workers exit
_KILLED_STARTS: Final = 100  # the limit if something outside killed the workers, which may not happen again
_TOO_MANY_FILES: Final = (
    "Too many open files: a worker cannot start; raise the limit with `ulimit -n`, or pass a smaller num_workers"
)
_FROM_OUTSIDE: Final = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, None)  # exit codes; None: unknown


class ProcessCrew:
    """The worker processes of one executor, each with its lane.

    Args:
        mapped: the job in a file; None under fork, because workers inherit the job.
        inheritance: what the workers inherit besides that file.
        waker: a byte sent through this socket wakes the thread that waits.

    Attributes:
        watched: the lanes by their own descriptors and by those of their processes; see NOTE [pidfd] in supervisor.py.
        lanes, poll, error, requested: see `Crew`.
    """

    def __init__(
        self,
        job: Job,
        start_method: str,
        mapped: MappedJob | None,
        inheritance: Inheritance,
        waker: socket.socket,
    ) -> None:
        self.lanes: dict[int, ProcessLane[LaneProcess]] = {}
        self.poll = select.poll()
        self.error: WorkerStartError | None = None
        self.watched: dict[int, ProcessLane[LaneProcess]] = {}
        self._num_workers = job.num_workers
        self._mapped, self._inheritance = mapped, inheritance
        self._failed_starts = 0
        self._hangs_up = False
        self._oom_kills = oom_kills()
        forked = job if mapped is None else None
        self._supervisor = Supervisor(job.num_workers, start_method, forked, inheritance.objects, waker)
        self.requested = self._supervisor.requested

    @property
    def forks(self) -> bool:
        """Whether workers inherit this process's memory."""
        return self._mapped is None

    def start_requested(self, epoch: int) -> None:
        """Starts the processes that the Pool has requested; see NOTE [who forks] in supervisor.py.

        Raises:
            OSError: there are too many processes or descriptors. The next call tries again.
        """
        requested = self.requested
        # A dead worker's number is free only after its lane was closed.
        while requested and self.error is None and len(self.lanes) < self._num_workers:
            with Uninterrupted():
                process = requested.popleft()
                try:
                    self._start(process, epoch)
                except OSError as error:
                    requested.appendleft(process)
                    if error.errno == errno.EMFILE:
                        raise OSError(errno.EMFILE, _TOO_MANY_FILES) from error
                    raise

    def _start(self, process: LaneProcess, epoch: int) -> None:
        taken = {lane.worker for lane in self.lanes.values()}
        worker = next(worker for worker in range(self._num_workers) if worker not in taken)
        log = anonymous_file()
        try:
            end = self._supervisor.start(process, worker)
        except BaseException:
            os.close(log)
            raise
        lane = self.lanes[end.fileno()] = self.watched[end.fileno()] = ProcessLane(process, self.forks, end, log)
        self.poll.register(end, select.POLLIN)
        if process.pidfd is not None:
            self.watched[process.pidfd.fileno()] = lane
            self.poll.register(process.pidfd, select.POLLIN)
        if self._hangs_up:
            lane.hang_up()
        mapped = self._mapped
        if mapped is None:
            lane.send(Request(Verb.HELLO, ticket=epoch), (lane.log,))
        else:
            hello = Request(Verb.HELLO, ticket=epoch, size=mapped.size, length=mapped.length)
            lane.send(hello, (lane.log, mapped.fd))

    @property
    def processes(self) -> list[BaseProcess]:
        """The processes of the workers that run now, by the numbers of the workers."""
        return [lane.process for lane in sorted(self.lanes.values(), key=lambda lane: lane.worker)]

    def hear(self, descriptor: int) -> None:
        """Does nothing: each descriptor belongs to a lane, which may have been closed just before."""

    def has_answered(self) -> None:
        self._failed_starts = 0

    def has_failed(self, descriptor: int, size: int) -> None:
        """The worker wrote an error of `size` bytes to its log, instead of starting or before it ends."""
        lane = self.watched[descriptor]
        error = decode_error(os.pread(lane.log, size, 0))
        if lane.ready:
            lane.error = error
            return
        self.error = cannot_start(f"worker {lane.worker} (pid {lane.process.pid})", error)

    def bury(self, descriptor: int) -> Death[Slab]:
        """Closes the lane of a dead worker, after making sure that the process can write no more."""
        with Uninterrupted():
            return self._bury(self.watched[descriptor])

    def _bury(self, lane: ProcessLane[LaneProcess]) -> Death[Slab]:
        del self.lanes[lane.socket.fileno()]
        for watched in (lane.socket, lane.process.pidfd):
            if watched is not None:
                self.poll.unregister(watched)
                del self.watched[watched.fileno()]
        lane.close()
        code, attempts = reap(lane.process), list(lane.attempts.values())
        self._supervisor.look()
        how = describe_exit(code, self._oom_kills)
        if lane.answered or any(attempt.started for attempt in attempts):
            self._failed_starts = 0
        else:
            self._failed_starts += 1
            limit = _KILLED_STARTS if code in _FROM_OUTSIDE else _FAILED_STARTS
            if self._failed_starts >= limit and self.error is None:
                self.error = self._start_error(lane, how)
        return Death(lane.process.pid, how, attempts)

    def _start_error(self, lane: ProcessLane[LaneProcess], how: str) -> WorkerStartError:
        """The error after too many workers in a row that ended before they started on a batch."""
        if lane.ready:
            when = "after worker_init_fn and before they started on a batch"
            why = (
                "check whether worker_init_fn uses up the file descriptors or the memory of the worker, "
                "or starts a thread that ends the worker"
            )
        else:
            earlier = "" if self.forks else "the main script, unpickling the dataset or "
            when = "while they started"
            why = f"probable cause: {earlier}worker_init_fn ends them; use num_workers=0 to see why"
        text = f"{self._failed_starts} workers in a row ended {when}, the last worker {how}"
        if lane.error is not None:
            text += f", because of {type(lane.error).__name__}: {text_of(lane.error)}"
        error = WorkerStartError(f"{text}; {why}")
        error.__cause__ = lane.error
        return error

    def hang_up(self) -> None:
        """Tells all workers to end; may be called from any thread and in a signal handler, without the lock."""
        self._hangs_up = True
        for lane in list(self.lanes.values()):
            lane.hang_up()

    def shut(self) -> None:
        """Waits until all workers have ended. Called after `hang_up`, without the lock."""
        self._supervisor.shut()

    def close(self) -> None:
        """Closes the lanes and the pickled job. Called after `shut`."""
        for lane in self.lanes.values():
            lane.close()
        self.lanes.clear()
        self.watched.clear()
        if self._mapped is not None:
            os.close(self._mapped.fd)
        self._inheritance.close()
