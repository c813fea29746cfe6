"""The process executor, parent's side: lanes, tickets, and who makes what.

    submit -> backlog -> least loaded lane --Request--> worker      (executors/worker.py)
                              |  a slab from the pool carries the task there and the batch back
    wait   <- inbox  <- lane <--Reply--- worker                     death = end-of-file on the lane

NOTE [exactly once]: promise P2. A batch leaves the backlog only onto a lane, and a trip leaves its lane by exactly one
of: its reply, or the burial of its worker, after which it is in the backlog again. A worker writes its ticket to
STARTED before it begins, so a death counts only for the batch that was being made. A batch that has killed a worker
runs again in careful mode, where ROW tells the sample.

NOTE [one leader]: of the threads that wait, one polls the lanes, without the lock, and delivers for all; the others
wait for it on the condition. Every poll includes all lanes, so every wait waits for every death (P3).

NOTE [spinning]: to wake a thread that sleeps costs its waker 8 us and another 15 us until it runs, as much as a small
batch. So the leader, whose thread has nothing else to do, looks again a few times before it sleeps; how often goes
down quickly while that is in vain, or takes long because a worker needs the core. Workers, whose cores others may need,
never spin, and run as SCHED_BATCH: waking one does not push the training thread off its core.
"""

from __future__ import annotations

import errno
import math
import os
import select
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ...errors import BatchTimeout, LoaderClosed, SharedMemoryError, TransportError, WorkerStartError
from ...limits import oom_kills
from ...memory.slab import TOOK, Slab, anonymous_file
from ...memory.slabs import SlabPool
from ...work.task import Job, Part, Task
from ..base import Failed, Inbox, Outcome
from .death import bury, describe_exit, kill_stuck, start_hint, worker_died
from .landed import Landed
from .lane import Lane, Order, Trip
from .records import Reply, Request, Status, Verb
from .remote import decode_error, pack_for
from .supervisor import Supervisor, track_end
from .worker import encode_task

__all__ = ["ProcessExecutor"]

_LANE_DEPTH: Final = 32  # requests on one lane; so few that neither side can ever block on a full socket
_STALL_S: Final = 0.005  # a lane busy with one batch for longer gives its queue to idle lanes
_DEEP: Final = 2  # how many times as many batches are in flight where they are small: then their workers sleep less
_MOST_MORE: Final = 16  # and how many more: each needs descriptors
_SMALL: Final = 1 << 20  # bytes
_MOST_SPINS: Final = 100
_LEAST_SPINS: Final = 2
_SPIN_S: Final = 100e-6  # longer, and the core that was yielded is needed by others
_FAILED_STARTS: Final = 3  # in a row, by the job's own doing
_KILLED_STARTS: Final = 100  # in a row, by SIGKILL, which comes from outside and may pass

_Events = list[tuple[int, int]]  # what poll tells: descriptor, event

_yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))


class ProcessExecutor:
    """Makes batches in `job.num_workers` processes.

    Args:
        job: what to do; inherited under fork, else pickled once.
        start_method: "fork", "forkserver" or "spawn".
        window: batches usually in flight.
        max_retries: how often a batch that killed its worker is tried again.
        memory_limit: most bytes of shared memory for batches; None for no limit.
        max_per_worker: most batches that are given to one worker at once; None for as many as its lane holds.
        elastic: more may be in flight while batches are small, and one less where they are large.

    Raises:
        TransportError: the job has to be pickled and cannot be.
    """

    def __init__(
        self,
        job: Job,
        start_method: str,
        window: int,
        max_retries: int,
        memory_limit: int | None,
        max_per_worker: int | None = None,
        elastic: bool = False,
    ) -> None:
        self._packed = None if start_method == "fork" else pack_for(start_method, job)
        self._max_retries, self._memory_limit = max_retries, memory_limit
        self._depth = min(max_per_worker or _LANE_DEPTH, _LANE_DEPTH)
        self._num_workers = self._in_use = job.num_workers
        self._pinned, self._elastic = job.iterable, elastic
        self._epoch = job.epoch
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._leading = self._closed = False
        self._broken: WorkerStartError | None = None
        self._slabs = SlabPool(window, memory_limit)
        self._backlog: deque[Order] = deque()
        self._lanes: dict[int, Lane] = {}  # by descriptor
        self._landed: dict[int, Landed] = {}  # by slab
        self.discarded: deque[Landed] = deque()
        self._last_inbox: Inbox | None = None
        self._submitted = self._tickets = self._failed_starts = 0
        self._spins = _MOST_SPINS
        self._oom_kills = oom_kills()
        self._poll = select.poll()
        self._woken, self._wake = map(track_end, socket.socketpair())
        self._woken.setblocking(False)
        self._wake.setblocking(False)
        self._poll.register(self._woken, select.POLLIN)
        inherited = job if self._packed is None else None
        self._supervisor = Supervisor(job.num_workers, start_method, inherited, self._wake)
        try:
            self._begin_ordered()
        except BaseException:
            self.close()
            raise

    # -- what the loader calls --------------------------------------------------------------------------------------

    def submit(self, task: Task, inbox: Inbox) -> None:
        with self._lock:
            if inbox is not self._last_inbox:
                self._last_inbox = inbox
                self._recall_withdrawn()
            self._submitted, self._epoch = self._submitted + 1, task.epoch
            self._backlog.append(Order(task, inbox, self._submitted))
            self._dispatch()

    def window(self, size: int, holding: bool) -> int:
        if self._elastic and 0 < self._slabs.largest <= _SMALL:
            size = min(_DEEP * size, size + _MOST_MORE)
        self._slabs.window = size
        return size

    def wait(self, inbox: Inbox, timeout: float | None) -> Outcome | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while (outcome := inbox.get()) is None:
                if self._broken is not None:
                    raise self._broken
                if inbox.withdrawn:
                    return None
                if self._closed:
                    raise LoaderClosed("the loader was closed while a batch was waited for")
                self._begin_ordered(inbox)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                if self._leading:
                    self._changed.wait(left)
                else:
                    self._lead(left)
            return outcome

    def wake(self) -> None:
        self._supervisor.wake()

    def overdue(self, task: Task, timeout: float) -> BatchTimeout:
        text = f"{task} took more than timeout={timeout} seconds; "
        with self._lock:
            for lane in self._lanes.values():
                for trip in lane.trips.values():
                    if trip.order.task is task and not trip.recalled:
                        trip.recall()
                        # The Pool orders the next one.
                        return BatchTimeout(text + kill_stuck(lane, self._packed is None))
            self._backlog = deque(order for order in self._backlog if order.task is not task)
        return BatchTimeout(f"{text}no worker has begun it: all are starting or busy, or memory is short")

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._supervisor.wake()
            for lane in self._lanes.values():
                lane.socket.close()
                os.close(lane.notes)
            self._changed.notify_all()
        self._supervisor.shut()
        with self._lock:
            self._lanes.clear()
            self._slabs.close()
            self._woken.close()
            self._wake.close()
            if self._packed is not None:
                os.close(self._packed.fd)

    # -- waiting ----------------------------------------------------------------------------------------------------

    def _lead(self, timeout: float | None) -> None:
        """Polls until something comes, without the lock, and handles it; see NOTE [one leader]."""
        self._leading = True
        stalled = False
        try:
            events = self._unlocked(self._spin)
            if not events:
                stalled = self._stalled() is not None
                pause = min(timeout or _STALL_S, _STALL_S) if stalled else timeout
                events = self._unlocked(self._poll.poll, None if pause is None else max(1, math.ceil(pause * 1000)))
        finally:
            self._leading = False
            self._changed.notify_all()
        if self._closed:
            return
        for fd, _ in events:
            lane = self._lanes.get(fd)
            if lane is not None:
                self._receive(lane)
            elif fd == self._woken.fileno():
                self._woken.recv(4096)  # the Pool has ordered a worker, or the loader is closed
        if stalled:
            self._relieve_stalled()

    def _spin(self) -> _Events:
        """Looks a few times before it sleeps; see NOTE [spinning]."""
        until = time.perf_counter() + _SPIN_S
        for _ in range(self._spins):
            events = self._poll.poll(0)
            late = time.perf_counter() > until
            if events or late:
                break
            _yield_core()
        self._spins = max(self._spins // 2, _LEAST_SPINS) if late or not events else min(2 * self._spins, _MOST_SPINS)
        return events

    def _unlocked(self, look: Callable[..., _Events], *arguments: int | None) -> _Events:
        self._lock.release()
        try:
            return look(*arguments)
        finally:
            self._lock.acquire()

    def _receive(self, lane: Lane) -> None:
        replies = lane.receive()
        if replies is None:
            self._bury(lane)
            return
        for reply in replies:
            self._handle(lane, reply)

    def _handle(self, lane: Lane, reply: Reply) -> None:
        if reply.status is Status.READY:
            lane.ready, self._failed_starts = True, 0
            return
        if reply.status is Status.BROKEN:
            self._break(lane, decode_error(os.pread(lane.notes, reply.size, 0)))
            return
        trip = lane.trips.pop(reply.ticket)
        slab, order = trip.slab, trip.order
        if reply.size > slab.size:
            self._slabs.has_grown(slab, reply.size)
        if reply.status is Status.MADE and not trip.recalled and not order.inbox.withdrawn:
            landed = Landed(order.task, self, slab, reply.head, slab.control[TOOK] * 1e-6)
            self._landed[slab.number] = landed
            order.inbox.put(landed)
            return
        outcome = None if trip.recalled else self._unmade(order, slab, reply)
        self._slabs.give_back(slab)
        if outcome is not None:
            order.inbox.put(outcome)

    def _unmade(self, order: Order, slab: Slab, reply: Reply) -> Outcome | None:
        """What a reply without a batch means for its order; None if it is tried again."""
        offset, length = reply.head.offset, reply.head.length
        if reply.status is Status.NO_ROOM:
            if self._slabs.demand(length):
                self._requeue(order)
                return None
            text = f"{order.task} needs {length:,} bytes, memory_limit={self._memory_limit:,} is less; raise it"
            return Failed(order.task, SharedMemoryError(errno.ENOMEM, text))
        if reply.status is Status.FAILED:
            try:
                return Failed(order.task, decode_error(slab.memory[offset : offset + length]))
            except Exception as error:
                return Failed(order.task, TransportError(f"a worker's exception cannot be unpickled here: {error!r}"))
        return None

    # -- giving out work --------------------------------------------------------------------------------------------

    def _dispatch(self, waited_for: Inbox | None = None) -> None:
        """Sends as much of the backlog as lanes and memory take.

        That the system has no memory is an error only for the batch that a program waits for, and only if none is
        under way.
        """
        while self.discarded:
            landed = self.discarded.popleft()
            if self._claim(landed):
                self._slabs.give_back(landed.slab)
        waiting: list[Order] = []  # for memory, or for a worker of their own, which is busy or being replaced
        while self._backlog:
            order = self._backlog.popleft()
            if order.inbox.withdrawn:
                continue
            lane = self._least_loaded(order.task.worker)
            try:
                sent = lane is not None and self._send(lane, order)
            except OSError as error:
                if waited_for is None or self._under_way:
                    waiting.append(order)
                    break
                if order.inbox is not waited_for:
                    waiting.append(order)
                    continue
                waited_for = None  # the next ones may find memory when it has handled the error
                order.inbox.put(Failed(order.task, error))
                self._supervisor.wake()
                continue
            if not sent:
                waiting.append(order)
                if lane is not None or not self._pinned:
                    break
        self._backlog.extendleft(reversed(waiting))
        if self._slabs.retired:
            self._drop_retired()

    @property
    def _under_way(self) -> bool:
        """Whether a batch is with a worker: when it comes back it may free a slab."""
        return any(lane.trips for lane in self._lanes.values())

    def _requeue(self, order: Order) -> None:
        """Back to its place in the backlog: the oldest batch is the one that is waited for."""
        self._backlog = deque(sorted((*self._backlog, order), key=lambda order: order.number))

    def _least_loaded(self, worker: int | None) -> Lane | None:
        """The lane that takes the next batch, `worker`'s own if it is for that one; None if there is none with room."""
        found, least = None, self._depth
        for lane in self._lanes.values():
            trips, slot = len(lane.trips), lane.process.slot
            if trips < least and (slot < self._in_use if worker is None else slot == worker):
                found, least = lane, trips
        return found

    def use(self, lanes: int) -> None:
        """From now on only so many workers are given batches."""
        with self._lock:
            self._in_use = lanes

    def _send(self, lane: Lane, order: Order) -> bool:
        """Sends an order on a trip; False if the memory limit leaves no room for it now.

        Raises:
            OSError: there is no memory for it, or no descriptor.
        """
        payload, slot = encode_task(order.task), lane.process.slot
        slab = self._slabs.take(len(payload), slot) or self._make_memory(len(payload), slot)
        if slab is None:
            return False
        self._tickets += 1
        lane.give(order, slab, self._tickets, payload)
        return True

    def _make_memory(self, nbytes: int, slot: int) -> Slab | None:
        """When nothing is under way: batches that wait for delivery leave their slabs."""
        if self._under_way:
            return None
        for landed in list(self._landed.values()):
            self._evacuate(landed)
        slab = self._slabs.take(nbytes, slot)
        if slab is None:
            raise SharedMemoryError(
                errno.ENOMEM,
                f"memory_limit={self._memory_limit:,} bytes are held by batches that you keep, and the next one "
                "does not fit beside them; keep fewer or raise the limit",
            )
        return slab

    def _drop_retired(self) -> None:
        for number in self._slabs.retired:
            for lane in self._lanes.values():
                lane.drop(number)
        self._slabs.retired.clear()

    def _recall_withdrawn(self) -> None:
        for lane in self._lanes.values():
            for trip in lane.trips.values():
                if trip.order.inbox.withdrawn:
                    trip.recall()

    def _stalled(self) -> tuple[Lane, Trip] | None:
        """A lane that is held up, or still starting, and the last batch in its queue, if some other lane is idle."""
        if self._pinned or all(lane.trips for lane in self._lanes.values()):
            return None
        for lane in self._lanes.values():
            waiting = [trip for trip in lane.trips.values() if not trip.recalled and not trip.started]
            if waiting and (len(lane.trips) > 1 or not lane.ready):
                return lane, waiting[-1]
        return None

    def _relieve_stalled(self) -> None:
        """Idle lanes take over what queues behind a slow batch."""
        while (stalled := self._stalled()) is not None:
            lane, trip = stalled
            if time.monotonic() - lane.busy_since < _STALL_S:
                return
            idle = min(self._lanes.values(), key=lambda other: (len(other.trips), not other.ready))
            try:
                sent = self._send(idle, trip.order)
            except OSError:
                sent = False
            if not sent:
                return
            trip.recall()

    # -- batches that have come -------------------------------------------------------------------------------------

    def lend(self, landed: Landed) -> Any:
        with self._lock:
            if self._claim(landed):
                if self._closed:
                    raise LoaderClosed("the loader was closed before this batch was delivered")
                return self._slabs.lend(landed.slab, landed.head.offset + landed.head.length)
            return landed.memory

    def _claim(self, landed: Landed) -> bool:
        """Takes a landed batch off the list; False if it had to leave its slab, where another may lie by now."""
        if self._landed.get(landed.slab.number) is not landed:
            return False
        del self._landed[landed.slab.number]
        return True

    def _evacuate(self, landed: Landed) -> None:
        self._claim(landed)
        landed.memory = self._slabs.copy_out(landed.slab, landed.head.offset + landed.head.length)

    # -- life and death of workers ----------------------------------------------------------------------------------

    def _begin_ordered(self, waited_for: Inbox | None = None) -> None:
        """Begins the processes that the Pool has ordered; see NOTE [who forks] in supervisor.py."""
        # While a dead worker's lane is there its number is not free, and its burial comes next.
        while self._supervisor.ordered and self._broken is None and len(self._lanes) < self._num_workers:
            process = self._supervisor.ordered.popleft()
            taken = {lane.process.slot for lane in self._lanes.values()}
            slot = next(slot for slot in range(self._num_workers) if slot not in taken)
            try:
                end = self._supervisor.begin(process, slot)
            except OSError:
                self._supervisor.ordered.appendleft(process)  # too many processes or descriptors: tried again
                raise
            lane = Lane(process, end, anonymous_file())
            self._lanes[end.fileno()] = lane
            self._poll.register(end, select.POLLIN)
            packed = self._packed
            if packed is None:
                lane.send(Request(Verb.HELLO, ticket=self._epoch), (lane.notes,))
            else:
                hello = Request(Verb.HELLO, ticket=self._epoch, size=packed.size, length=packed.length)
                lane.send(hello, (lane.notes, packed.fd))
        self._dispatch(waited_for)

    def _bury(self, lane: Lane) -> None:
        """A worker is dead: its batches go back to the backlog; see NOTE [exactly once]."""
        fd = lane.socket.fileno()
        self._poll.unregister(fd)
        del self._lanes[fd]
        lane.socket.close()
        os.close(lane.notes)
        code = bury(lane.process)
        how = describe_exit(code, self._oom_kills)
        if not lane.ready and self._broken is None:
            self._failed_starts += 1
            if self._failed_starts >= (_KILLED_STARTS if code == -signal.SIGKILL else _FAILED_STARTS):
                text = f"{self._failed_starts} workers in a row ended while starting, the last {how}"
                self._broken = WorkerStartError(f"{text}; {start_hint(self._packed is None)}")
        for trip in lane.trips.values():
            position, started = trip.position, trip.started
            trip.slab.map(os.fstat(trip.slab.fd).st_size)  # it may have grown without a word
            self._slabs.give_back(trip.slab)
            order = trip.order
            if trip.recalled or order.inbox.withdrawn:
                continue
            order.deaths += started
            if order.deaths > (0 if isinstance(order.task.work, Part) else self._max_retries):  # parts: never
                error = worker_died(lane.process.pid, how, order.task, order.deaths, position)
                order.inbox.put(Failed(order.task, error))
            else:
                self._requeue(order)

    def _break(self, lane: Lane, error: BaseException) -> None:
        self._broken = WorkerStartError(
            f"worker {lane.process.slot} (pid {lane.process.pid}) could not start: {type(error).__name__}: {error}"
        )
        self._broken.__cause__ = error
