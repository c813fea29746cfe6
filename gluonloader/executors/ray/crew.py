"""The Ray actors of one executor: how they start, and what happens if an actor cannot start or dies.

    requested --> start_requested --> actor, RayLane --start--> Worker --READY--> lane.ready
    an actor dies --> its call `watch` fails --> bury --> Death, and the number of the worker goes back to `requested`

Ray's own retries are off: it neither starts an actor again nor repeats a call. A worker that dies with its node is
started on another node, or on the same node when it is back.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from concurrent import futures
from functools import partial
from typing import Any, Final

from ...describe import counted
from ...errors import WorkerStartError
from ...interrupts import Uninterrupted
from ...memory.slab import ROW, STARTED
from ...wire.ends import ring
from ...work.reading import side_by_side
from ...work.task import Job
from ..lanes.lane import Death
from ..lanes.remote import cannot_start, decode_error
from .actor_lane import RayLane
from .connection import RayConnection, import_ray
from .notes import Notes
from .objects import ObjectMemory, StoredBatch
from .stored_job import pickle_for_store
from .worker import WATCH, Worker

_FAILED_STARTS: Final = 10  # in a row, before an error is raised; many, because Ray does not say why an actor ended
_WATCHING: Final = 4  # threads of an actor for calls other than `make`; `watch` occupies one of them
_DEFAULTS: Final = {"num_cpus": 1, "scheduling_strategy": "SPREAD"}  # of an actor; `Ray` overrides them
_OWNER_DIED: Final = "its owner has died"  # in what Ray says of the death of an actor; the owner is this program
_CLOSING_S: Final = 1.0  # how long close() waits for a busy worker before it kills it


class RayCrew:
    """The actors of one executor, each with its lane; for the attributes see `Crew`.

    Args:
        options: the options of each actor, see `gluonloader.options.Ray`.
        waker: a byte sent through it wakes the thread that waits for a batch.
    """

    def __init__(self, job: Job, options: dict[str, Any], memory: ObjectMemory, waker: socket.socket) -> None:
        self.lanes: dict[int, RayLane] = {}
        self.watched = self.lanes
        self.poll = select.poll()
        self.requested: deque[int] = deque(range(job.num_workers))  # numbers of workers
        self._memory = memory
        self._failed_starts, self._hangs_up = 0, False
        self._error: WorkerStartError | None = None
        import_ray()
        stored = pickle_for_store(job)
        self._ray = RayConnection(partial(ring, waker))
        try:
            self._side_by_side, self._notes = side_by_side(job), Notes(self._ray)
            self._stored = self._ray.put(stored)
            self._class = self._ray.module.remote(concurrency_groups={WATCH: _WATCHING})(Worker)
            self._options = {**_DEFAULTS, **options}
        except BaseException:
            self._ray.close()
            raise

    @property
    def error(self) -> WorkerStartError | None:
        return self._error or (None if self._hangs_up else self._ray.error)

    def start_requested(self, epoch: int) -> None:
        while self.requested and not self._hangs_up:
            with Uninterrupted():
                worker = self.requested.popleft()
                try:
                    self._start(worker, epoch)
                except BaseException:
                    self.requested.appendleft(worker)
                    raise

    def _start(self, worker: int, epoch: int) -> None:
        if self._ray.error is not None:  # a call would start another Ray
            raise self._ray.error
        fixed = {"max_restarts": 0, "max_task_retries": 0, "max_concurrency": self._side_by_side}
        actor = self._class.options(**self._options, **fixed).remote(worker)
        lane = RayLane(self._ray, actor, worker, self._side_by_side, self._notes, self._memory)
        lane.start(self._stored, epoch)
        self.lanes[lane.bell.fileno()] = lane
        self.poll.register(lane.bell, select.POLLIN)

    def hear(self, descriptor: int) -> None:
        """Does nothing: each descriptor belongs to a lane, which may have been closed just before."""

    def has_answered(self) -> None:
        self._failed_starts = 0

    def has_failed(self, descriptor: int, size: int) -> None:
        lane = self.lanes[descriptor]
        self._error = cannot_start(f"worker {lane.worker}", decode_error(lane.error))

    def bury(self, descriptor: int) -> Death[StoredBatch]:
        with Uninterrupted():
            return self._bury(self.lanes[descriptor])

    def _bury(self, lane: RayLane) -> Death[StoredBatch]:
        self.poll.unregister(lane.bell)
        del self.lanes[lane.bell.fileno()]
        attempts, reason = list(lane.attempts.values()), _reason(lane.death)
        if _OWNER_DIED in reason:  # `ray.shutdown` ends the actors before `ray.is_initialized` becomes false
            self._ray.leave()
        is_guiltless = lane.was_killed or self._ray.is_unreachable(lane.death) or "its node has died" in reason
        for attempt in attempts:
            if is_guiltless:
                attempt.slab.control[STARTED] = 0  # no sample is to blame
            elif attempt.started and attempt.request.careful:
                row = self._notes.row_of(attempt.ticket)
                attempt.slab.control[ROW] = 0 if row is None else row + 1
        if lane.answered or is_guiltless or any(attempt.started for attempt in attempts):
            self._failed_starts = 0
        else:
            self._failed_starts += 1
            is_final = self._failed_starts >= _FAILED_STARTS or not self._ray.is_death(lane.death)
            if is_final and self._error is None:
                text = counted(self._failed_starts, "time", "times in a row")
                self._error = WorkerStartError(
                    f"a worker ended before it started on a batch, {text}; Ray says: {reason}; use num_workers=0 to "
                    "see the errors of the dataset"
                )
                self._error.__cause__ = lane.death
        lane.close()
        self.requested.append(lane.worker)
        return Death(lane.pid, f"({reason})", attempts)

    def hang_up(self) -> None:
        self._hangs_up = True

    def shut(self) -> None:
        with Uninterrupted():
            if self._ray.error is None:
                ends = [lane.stop() for lane in list(self.lanes.values())]
                futures.wait(ends, _CLOSING_S)

    def close(self) -> None:
        for lane in self.lanes.values():
            lane.close()
        self.lanes.clear()
        self._notes.close()
        self._stored = None  # Ray deletes the job
        self._ray.close()


def _reason(error: BaseException | None) -> str:
    """The reason that Ray gives for the death of an actor, as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = next((line for line in lines[1:] if line.startswith("The actor ")), lines[0] if lines else "no reason")
    return reason.partition(" Some common causes")[0]
