"""The process executor, in the loader's process: threads wait for batches, and one of these threads reads the lanes.

    submit --> dispatcher --> lanes --> workers                      (dispatch.py, lane.py, worker.py)
    wait   <-- inbox <-- dispatcher <-- lanes <-- poll               a worker has ended --> its lane is buried (crew.py)

NOTE [one leader]: one of the waiting threads, the leader, polls the lanes without the lock, and handles all replies for
all threads. The other threads wait on the condition. Each poll includes all lanes, so each wait notices each death
(P3).

NOTE [spinning]: waking a thread that sleeps costs the waker 8 us and takes another 15 us, as much as a small batch. So
the leader, whose thread has nothing else to do, polls a few times before it sleeps. It polls less often if nothing
arrived, or if a poll took long because a worker needed the core. Workers never spin, since other threads may need their
cores. They run as SCHED_BATCH, so a worker that wakes does not push the training thread off its core.
"""

from __future__ import annotations

import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from ...errors import BatchTimeout, LoaderClosed
from ...memory.slabs import SlabPool
from ...work.task import Job, Task
from ..base import Inbox, Outcome
from .crew import Crew
from .death import kill_stuck
from .dispatch import STALL_S, Dispatcher
from .lane import Lane
from .packed_job import pack_job
from .records import Status
from .supervisor import track_end

_SMALL: Final = 1 << 20  # bytes; sending such a batch takes about as long as making it, so more batches are in flight
_MOST_SPINS: Final = 100
_LEAST_SPINS: Final = 2
_SPIN_S: Final = 100e-6  # if a poll takes longer, another thread needed the core

_Events = list[tuple[int, int]]  # what poll returns: descriptor and event

_yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))


class ProcessExecutor:
    """Makes batches in `job.num_workers` processes, its `crew`; the other arguments are those of `DataLoader`.

    Raises:
        TransportError: the job has to be pickled and cannot be.
    """

    def __init__(
        self,
        job: Job,
        start_method: str,
        prefetch: int | None,
        max_retries: int,
        memory_limit: int | None,
        max_per_worker: int | None = None,
    ) -> None:
        packed = None if start_method == "fork" else pack_job(job, start_method)
        self._prefetch, self._num_workers, self._epoch = prefetch, job.num_workers, job.epoch
        self._lock = threading.RLock()  # `close` asks whether its own thread holds it
        self._changed = threading.Condition(self._lock)
        self._leading = self._closed = False
        self._spins = _MOST_SPINS
        self._woken, waker = map(track_end, socket.socketpair())
        self._waker = waker
        self._woken.setblocking(False)
        waker.setblocking(False)
        self._slabs = SlabPool(2 * job.num_workers if prefetch is None else prefetch, memory_limit)
        self.crew = Crew(job, start_method, packed, waker)
        self.crew.poll.register(self._woken, select.POLLIN)
        self._dispatcher = Dispatcher(self._lock, self.crew, self._slabs, max_retries, max_per_worker, job.iterable)
        try:
            self.crew.start_requested(self._epoch)
        except BaseException:
            self.close()
            raise

    @property
    def window(self) -> int:
        """Batches to have in flight: `prefetch`, or `2 * num_workers`, and twice as many while they are small."""
        if self._prefetch is not None:
            return self._prefetch
        self._slabs.window = size = (4 if 0 < self._slabs.largest <= _SMALL else 2) * self._num_workers
        return size

    def submit(self, task: Task, inbox: Inbox) -> None:
        with self._lock:
            self._epoch = task.epoch
            self._dispatcher.submit(task, inbox)

    def wait(self, inbox: Inbox, timeout: float | None) -> Outcome | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while (outcome := inbox.get()) is None:
                if self.crew.error is not None:
                    raise self.crew.error
                if inbox.cancelled:
                    return None
                if self._closed:
                    raise LoaderClosed("the loader was closed while this thread waited for a batch")
                if self.crew.requested:
                    self.crew.start_requested(self._epoch)
                self._dispatcher.dispatch(inbox)
                if not inbox.empty:
                    continue
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                if self._leading:
                    self._changed.wait(left)
                else:
                    self._lead(left)
            return outcome

    def wake(self) -> None:
        self.crew.wake()

    def time_out(self, task: Task, timeout: float) -> BatchTimeout:
        text = f"{task} took more than timeout={timeout} seconds; "
        with self._lock:
            lane = self._dispatcher.give_up(task)
            if lane is None:
                return BatchTimeout(f"{text}no worker has started it: all are starting or busy, or memory is short")
            return BatchTimeout(text + kill_stuck(lane, self.crew.forks))  # the Pool requests another worker

    def close(self) -> None:
        if self._lock._is_owned():  # type: ignore[attr-defined]
            # This is a signal handler that interrupted one of these methods. That method must release the lock first.
            threading.Thread(target=self.close, name="gluonloader-close").start()
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.crew.wake()
            self.crew.close_lanes()
            self._changed.notify_all()
        self.crew.shut()
        with self._lock:
            self._dispatcher.close()
            self.crew.close()
            self._woken.close()
            self._waker.close()

    # -- reading the lanes --------------------------------------------------------------------------------------------

    def _lead(self, timeout: float | None) -> None:
        """Polls without the lock until something arrives, and handles what arrived; see NOTE [one leader]."""
        self._leading = True
        stalled = False
        try:
            events = self._unlocked(self._spin)
            if not events:
                stalled = self._dispatcher.stalled
                pause = min(timeout or STALL_S, STALL_S) if stalled else timeout
                pause_ms = None if pause is None else max(1, math.ceil(pause * 1000))
                events = self._unlocked(self.crew.poll.poll, pause_ms)
        finally:
            self._leading = False
            self._changed.notify_all()
        if self._closed:
            return
        for fd, _ in events:
            lane = self.crew.lane_of(fd)
            if lane is not None:
                self._receive(lane)
            elif fd == self._woken.fileno():
                self._woken.recv(4096)  # the Pool has requested a worker, or an inbox was cancelled
        if stalled:
            self._dispatcher.relieve_stalled()

    def _spin(self) -> _Events:
        """Polls a few times before the thread sleeps; see NOTE [spinning]."""
        until = time.perf_counter() + _SPIN_S
        for _ in range(self._spins):
            events = self.crew.poll.poll(0)
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
            self._dispatcher.handle_death(self.crew.bury(lane))
            return
        for reply in replies:
            if reply.status is Status.READY:
                lane.ready = True
            elif reply.status is Status.BROKEN:
                self.crew.has_failed(lane, reply.size)
            else:
                if not lane.answered:
                    self.crew.has_answered(lane)
                self._dispatcher.handle(lane, reply)
