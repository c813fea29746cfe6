"""The executor over lanes, in the main program: threads wait for batches, and one of these threads reads the lanes.

    submit --> dispatcher --> lanes --> workers                                (dispatch.py, lane.py)
    wait   <-- window <-- dispatcher <-- lanes <-- poll              a worker has ended --> the crew buries its lane

NOTE [one leader]: one of the waiting threads, the leader, polls the lanes without the lock, and handles all replies for
all threads. The other threads wait at their windows. Each poll includes all lanes, so each wait notices each death
(P3). A leader that stops wakes another thread. If an exception stops the leader before that, a waiting thread notices
it within `_LOOK_S` seconds.

NOTE [closing in a handler]: a signal handler may call `close` in the middle of any other method. So `close` first sets
`_closed` and tells the workers to end, which needs no lock. The rest needs the lock. If the current thread holds the
lock already, `close` returns. The interrupted method continues, and the next `wait` calls `close` again, which finishes
closing.

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
from collections import deque
from collections.abc import Callable
from typing import Final, Generic

from ...errors import BatchTimeout, LoaderClosed, logger
from ...interrupts import Uninterrupted
from ...locks import Lock
from ...memory.budget import MemoryStats
from ...wire.ends import close_end, open_pair, ring
from ...work.task import Job, Task
from ..base import CLOSED, LONGEST_WAIT_S, Window, check_not_inside, usual_window
from .blame import describe_death, lanes_of, makes_progress
from .dispatch import STALL_S, Dispatcher, WholeBatch
from .lane import Crew, Lane, Memory, S
from .messages import Status

_SMALL: Final = 1 << 20  # bytes; sending such a batch takes about as long as making it, so more batches are in flight
_MOST_SPINS: Final = 100
_LEAST_SPINS: Final = 2
_LOOK_S: Final = 0.5  # a thread that waits for the leader checks this often that there still is one
_SPIN_S: Final = 100e-6  # if a poll takes longer, another thread needed the core

_Events = list[tuple[int, int]]  # what poll returns: descriptor and event

_yield_core = getattr(os, "sched_yield", lambda: time.sleep(0))


class LaneExecutor(Generic[S]):
    """Makes batches in the `job.num_workers` workers of a crew.

    Args:
        job: what each worker receives when it starts.
        memory: the memory in which the batches travel.
        open_crew: makes the crew. It gets a socket; a byte sent through it wakes the thread that waits.
        prefetch, max_retries, max_per_worker: the arguments of `DataLoader`.
        usual: the number of large batches in flight without `prefetch`.
    """

    makes_ahead = True
    _shut = True  # no workers have to be ended: there are none yet, or `close` came to its end

    def __init__(
        self,
        job: Job,
        memory: Memory[S],
        open_crew: Callable[[socket.socket], Crew[S]],
        prefetch: int | None,
        max_retries: int,
        max_per_worker: int | None,
        usual: int | None = None,
    ) -> None:
        self._prefetch, self._num_workers, self._epoch = prefetch, job.num_workers, job.epoch
        self._usual_window = usual or usual_window(job)
        self._pid = os.getpid()
        self._lock = Lock()
        self._shutting = Lock()  # while `close` waits for the workers
        self._leader: int | None = None  # the thread that polls
        self._followers: set[Window] = set()  # the windows of the threads that wait for the leader
        self._closed = False  # `close` was called
        self._deaths: deque[str] = deque()  # that are not logged yet
        self._spins = _MOST_SPINS
        self._woken, waker = open_pair()
        self._waker = waker
        self._woken.setblocking(False)
        waker.setblocking(False)
        self._memory = memory
        self.keeps_streams = job.iterable
        tolerates = job.reading.on_error != "raise" and not job.iterable
        try:
            with Uninterrupted():  # until `close` can close everything
                self.crew = open_crew(waker)
                self.crew.poll.register(self._woken, select.POLLIN)
                self._dispatcher = Dispatcher(
                    self._lock, self.crew.lanes, memory, max_retries, max_per_worker, job.iterable, tolerates
                )
                self.usage, self._shut = self._dispatcher.usage, False
            self.crew.start_requested(self._epoch)
        except BaseException:
            self.close()
            close_end(self._woken)  # `close` leaves them open if there is no crew
            close_end(waker)
            raise

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:  # at the exit of the program, `os` may be None
        # Usually `close` was called. It was not if a signal handler has raised just when this object was made.
        if not self._shut and self._pid == getpid():  # a forked child must not end the workers of its parent
            with Uninterrupted():
                self.close()

    def memory(self) -> MemoryStats:
        return self._memory.stats()

    def deliver_whole(self) -> None:
        """From now on, no array of a batch is copied, so that other processes can map the whole batch."""
        self._memory.whole = True

    def take_whole(self, batch: object) -> WholeBatch | None:
        """Where the batch lies that was delivered just now; None if it is no batch that lies in a slab as a whole."""
        whole, self._dispatcher.whole = self._dispatcher.whole, None
        return whole if whole is not None and whole.batch is batch else None

    @property
    def window(self) -> int:
        """Batches to have in flight: `prefetch`, or the usual number; while they are small, two more per worker."""
        if self._prefetch is not None:
            return self._prefetch
        more = 2 * self._num_workers if 0 < self._memory.largest <= _SMALL else 0
        self._memory.window = size = self._usual_window + more
        return size

    def submit(self, task: Task, window: Window) -> None:
        check_not_inside(self._lock)
        with self._lock:
            self._dispatcher.begin()
            self._epoch = task.epoch
            self._dispatcher.submit(task, window)
            self._dispatcher.changing = False

    def resubmit(self, window: Window) -> None:
        check_not_inside(self._lock)
        with self._lock:
            self._dispatcher.begin()
            self._dispatcher.add(window)
            self._dispatcher.repair()
            self._dispatcher.changing = False

    def wait(self, window: Window, timeout: float | None) -> None:
        check_not_inside(self._lock)
        try:
            self._lead_or_follow(window, math.inf if timeout is None else time.monotonic() + timeout)
        finally:
            if self._leader == threading.get_ident():
                self._leader = None
            if self._followers:
                self._followers.discard(window)
                self._wake_followers()

    def _lead_or_follow(self, window: Window, deadline: float) -> None:  # see NOTE [loops and try] in interrupts.py
        this_thread = threading.get_ident()
        while window.ready is None and not window.cancelled:
            self._prepare(window)
            left = min(deadline - time.monotonic(), LONGEST_WAIT_S)
            if left <= 0 or window.ready is not None:
                break
            if self._leader == this_thread:
                self._lead(left)
                continue
            self._followers.add(window)
            if self._leader is not None:  # checked again: the leader may have stopped just before
                window.wait(min(left, _LOOK_S))

    def _prepare(self, window: Window) -> None:
        """Starts the workers that were requested, sends tasks, and makes this thread the leader if there is none."""
        if self._closed:
            self.close()
            raise LoaderClosed(CLOSED)
        with self._lock:
            if self.crew.error is not None:
                raise self.crew.error
            self._dispatcher.begin()
            if self.crew.requested:
                self.crew.start_requested(self._epoch)
            self._dispatcher.dispatch(window)
            self._dispatcher.changing = False
            if self._leader is None and window.ready is None:
                self._leader = threading.get_ident()

    def wake(self) -> None:
        ring(self._waker)

    def end_streams(self) -> None:
        with self._lock:
            if not self._closed:
                self._dispatcher.begin()
                self._dispatcher.drop_unwanted()
                self._dispatcher.changing = False

    def time_out(self, task: Task, timeout: float) -> BatchTimeout | None:
        text = f"{task} took more than timeout={timeout} seconds; "
        check_not_inside(self._lock)
        with self._lock:
            self._dispatcher.begin()
            if self._dispatcher.tolerates and self._gives_up_sample(task, timeout):
                self._dispatcher.changing = False
                return None
            lane = self._dispatcher.give_up(task)
            self._dispatcher.changing = False
            if lane is None:
                return BatchTimeout(f"{text}no worker has started it: all are starting or busy, or memory is short")
            return BatchTimeout(text + lane.kill_stuck())  # its crew requests another worker

    def _gives_up_sample(self, task: Task, timeout: float) -> bool:
        """Whether a task will still be made, perhaps without the samples on which workers are stuck."""
        progress = False
        for lane in lanes_of(task, self.crew.lanes.values()):
            goes_on, again = makes_progress(lane, timeout)
            for submission in again:
                self._dispatcher.requeue(submission)
            progress |= goes_on
        return progress

    def close(self) -> None:
        if self._shut:
            return
        self._closed = True
        self.crew.hang_up()
        self.wake()
        self._wake_followers()
        if self._lock._is_owned() or self._shutting._is_owned():  # type: ignore[attr-defined]
            return  # see NOTE [closing in a handler]
        with self._shutting:
            if not self._shut:
                self.crew.shut()
                with self._lock, Uninterrupted():
                    self._dispatcher.close()
                    self.crew.close()
                    close_end(self._woken)
                    close_end(self._waker)
                    self._shut = True

    # -- reading the lanes --------------------------------------------------------------------------------------------

    def _lead(self, timeout: float) -> None:
        """Polls without the lock until something arrives, and handles what arrived; see NOTE [one leader]."""
        events, stalled = self._spin(), False
        if not events:
            with self._lock:
                if self._closed:  # the descriptors may be closed now, too
                    return
                stalled = self._dispatcher.stalled
            pause_s = min(timeout, STALL_S) if stalled else timeout
            events = self.crew.poll.poll(max(1, math.ceil(pause_s * 1000)))
        with self._lock:
            if self._closed:
                return
            self._dispatcher.begin()
            self._handle(events)
            if stalled:
                self._dispatcher.relieve_stalled()
            self._dispatcher.changing = False
        while self._deaths:  # without the lock, since handlers of a log may be slow, or use this loader
            logger().warning("%s; another worker replaces it", self._deaths.popleft())

    def _handle(self, events: _Events) -> None:
        for fd, _ in events:
            lane = self.crew.watched.get(fd)
            if lane is not None:
                self._receive(fd, lane)
            elif fd == self._woken.fileno():
                self._woken.recv(4096)  # the crew has requested a worker, or a window was cancelled
            else:
                self.crew.hear(fd)

    def _wake_followers(self) -> None:
        """Wakes the threads that wait for the leader; one of them becomes the next leader."""
        for window in list(self._followers):
            window.ring()

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

    def _receive(self, fd: int, lane: Lane[S]) -> None:
        replies = lane.replies()
        if replies is None:
            death = self.crew.bury(fd)
            if not lane.was_killed:  # otherwise a BatchTimeout tells of it
                self._deaths.append(describe_death(lane, death))
            self._dispatcher.handle_death(death)
            return
        for reply in replies:
            if reply.status is Status.READY:
                lane.ready = True
            elif reply.status is Status.BROKEN:
                self.crew.has_failed(fd, reply.size)
            else:
                if not lane.answered:
                    self.crew.has_answered()
                    lane.answered = True
                self._dispatcher.handle(lane, reply)
        lane.remove(replies)
