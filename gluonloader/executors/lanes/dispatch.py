"""Which worker makes which batch: the backlog, the attempts on lanes, and how replies and deaths change them.

    submit --> backlog --> least loaded lane --Request--> worker
                 ^         a slab carries the task there and the batch back
                 |                                           |
                 +-- no room, death -- attempt <----Reply----+
                                          |
                                          +--> Outcome --> window

The executor calls every method with its lock held, except those of `MadeInSlab`.

NOTE [exactly once]: promise P2. A submission leaves the backlog only for a lane. Its attempt leaves the lane in exactly
one of two ways: with its reply, or with the death of its worker, after which the submission returns to the backlog. A
worker writes the ticket to STARTED before it starts on a batch, so a death counts only against the batch that was being
made. A batch whose worker died is made again in careful mode, which notes the sample that is read. With `on_error`, a
sample that is to blame for a death or a hang is given up: the submission keeps it in `given_up`, and returns to the
backlog like after any death. So the batch is still made once, and the number of its attempts is limited by the number
of its samples. After an interrupted call, `repair` computes the backlog and the slabs in use from the windows and the
lanes; see NOTE [interrupts] in executors/base.py. If a submission gets lost there, its bad samples are found again.
"""

from __future__ import annotations

import copy
import errno
import time
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic

from ...errors import LoaderClosed, SharedMemoryError, add_note
from ...interrupts import from_signal_handler
from ...locks import Lock
from ...memory.loans import BatchBytes, Loan
from ...memory.reduce import rebuild
from ...memory.slab import REPORT, TOOK, Head, Slab
from ...messages import message
from ...work.streams import ShardEnd
from ...work.task import Chunk, Task
from ...work.usage import Usage
from ..base import CLOSED, Failed, Outcome, Submission, Window, check_not_inside
from ..ended import Iterations
from .blame import blame, worker_died
from .lane import Attempt, Death, Lane, Memory, S, is_busy
from .messages import Reply, Status, encode_task
from .remote import decode_error

_LANE_DEPTH: Final = 32  # requests on one lane; so few that the socket is never full and neither side blocks
_MEASURED: Final = Status.MADE, Status.FAILED, Status.NO_ROOM  # replies with a report
STALL_S: Final = 0.005  # idle workers take over batches that wait behind a batch that takes longer


@message(frozen=True, slots=True)
class WholeBatch:
    """A delivered batch that lies in a slab as a whole, so that other processes can map it.

    Attributes:
        loan: nobody uses the slab again as long as this object lives.
    """

    batch: Any
    loan: Loan
    slab: Slab
    head: Head


@dataclass(slots=True, eq=False)
class MadeInSlab(Outcome, Generic[S]):
    """A batch that lies in a slab, not delivered yet.

    Attributes:
        source: the memory of the batch, once it was lent to the user or copied out of its slab.
    """

    dispatcher: Dispatcher[S]
    slab: S
    head: Head
    source: BatchBytes | None = None

    @property
    def size(self) -> int:
        """Bytes of the slab that the batch uses."""
        return self.head.end

    def take(self) -> Any:
        check_not_inside(self.dispatcher.lock)
        try:
            with self.dispatcher.lock:
                source = self.dispatcher.lend(self)
            batch = rebuild(source, self.head)
            if isinstance(batch, ShardEnd):
                # Leftovers stay alive to the end of the epoch. They are copied, so that batches can use their slabs.
                return copy.deepcopy(batch)
            if isinstance(source, Loan) and (slab := source.whole_slab) is not None:
                self.dispatcher.whole = WholeBatch(batch, source, slab, self.head)
            return batch
        except LoaderClosed:
            raise
        except Exception as error:
            if not from_signal_handler(error):
                add_note(error, f"gluonloader: while rebuilding {self.task}")
            raise

    def discard(self) -> None:
        self.dispatcher.discarded.append(self)  # without the lock: see NOTE [cancelled] in executors/base.py


class Dispatcher(Generic[S]):
    """Gives submissions to lanes.

    Args:
        lock: the executor's.
        max_retries, max_per_worker: the arguments of `DataLoader`.
        sharded: each task names its worker, so no other worker may take it over.
        tolerates: a batch is made without the samples that kill or stop their workers; see `on_error`.

    Attributes:
        discarded: batches that nobody wants, whose slabs are still to be freed; appended to without the lock.
        usage: what workers report about their time.
        whole: the batch that was delivered last, if it lies in a slab as a whole; see `LaneExecutor.deliver_whole`.
        changing: `begin` was called, and the change has not ended; the executor sets it to False.
    """

    def __init__(
        self,
        lock: Lock,
        lanes: Mapping[int, Lane[S]],
        slabs: Memory[S],
        max_retries: int,
        max_per_worker: int | None,
        sharded: bool,
        tolerates: bool,
    ) -> None:
        self.lock = lock
        self.discarded: deque[MadeInSlab[S]] = deque()
        self.whole: WholeBatch | None = None
        self._lanes, self._slabs = lanes, slabs
        self._max_retries, self._sharded, self.tolerates = max_retries, sharded, tolerates
        self._depth = min(max_per_worker or _LANE_DEPTH, _LANE_DEPTH)
        self._backlog: deque[Submission] = deque()
        self._undelivered: dict[int, MadeInSlab[S]] = {}  # by slab
        self._windows: list[weakref.ref[Window]] = []  # windows with submissions, the most recent last
        self._submitted, self._tickets, self._closed = 0, 0, False
        self._made_s = 0.0  # seconds that the last batch took
        self.usage, self._iterations = Usage(), Iterations()
        self.changing = False

    def begin(self) -> None:
        """Called before a change of lanes or slabs; see NOTE [interrupts] in executors/base.py."""
        if self.changing:
            self.repair()
        self.changing = True

    def repair(self) -> None:
        """Computes the backlog and the slabs in use again, since an exception has left a change unfinished."""
        windows = _live(self._windows)
        arrived = [outcome for window in windows for outcome in list(window.arrived.values())]
        self._undelivered = {
            made.slab.number: made for made in arrived if isinstance(made, MadeInSlab) and made.source is None
        }
        in_use, sent = set(self._undelivered), set()
        for lane in self._lanes.values():
            for ticket, attempt in list(lane.attempts.items()):
                if attempt.slab.number in self._undelivered:  # its reply was handled
                    del lane.attempts[ticket]
                    continue
                in_use.add(attempt.slab.number)
                if not attempt.cancelled:
                    sent.add(attempt.submission.task)
            lane.send_rest()
        self._slabs.recount(in_use)
        known = {submission.task: submission for submission in self._backlog}
        missing = [(task, window) for window in windows for task in window.missing if task not in sent]
        self._backlog = deque(known.get(task) or Submission(task, window) for task, window in missing)

    def submit(self, task: Task, window: Window) -> None:
        """Adds a task to the backlog, and sends as much of the backlog as possible."""
        if not self._windows or self._windows[-1]() is not window:
            self.add(window)
        self._submitted += 1
        self._backlog.append(Submission(task, window, self._submitted))
        self.dispatch()

    def add(self, window: Window) -> None:
        """Called before the first task of a window is submitted."""
        others = [other for other in _live(self._windows) if other is not window]
        self._windows = [weakref.ref(live) for live in (*others, window)]
        self.drop_unwanted()

    def dispatch(self, waiting: Window | None = None) -> None:
        """Sends as much of the backlog as lanes and memory take.

        If the system has no memory left, only the batch that the program waits for fails, and only if no other batch is
        in flight: a batch in flight will free its memory.

        Args:
            waiting: the window for which the calling thread waits; None if it does not wait.
        """
        while self.discarded:
            made = self.discarded.popleft()
            if self._claim(made):
                self._slabs.give_back(made.slab)
        unsent: list[Submission] = []  # they wait for memory, or for a busy or dead worker
        while self._backlog:
            submission = self._backlog.popleft()
            if submission.window.cancelled:
                continue
            lane = self._least_loaded(submission.task.worker)
            try:
                sent = lane is not None and self._send(lane, submission)
            except Exception as error:
                if from_signal_handler(error):
                    raise
                if isinstance(error, OSError):
                    if waiting is None or is_busy(self._lanes):
                        unsent.append(submission)
                        break
                    if submission.window is not waiting:
                        unsent.append(submission)
                        continue
                    waiting = None  # later batches may find memory after the program has handled the error
                submission.window.put(Failed(submission.task, error))  # or an index cannot be pickled
                continue
            if not sent:
                unsent.append(submission)
                if lane is not None or not self._sharded:
                    break
        self._backlog.extendleft(reversed(unsent))
        if self._slabs.retired:
            self._drop_retired()

    def _least_loaded(self, worker: int | None) -> Lane[S] | None:
        """The lane for the next batch (of `worker`, unless None); None if no lane has room."""
        found, least = None, 2 * self._depth
        for lane in self._lanes.values():
            attempts = len(lane.attempts)
            # A worker that has not started gets a batch only if no other worker has room: it may start much later.
            load = attempts if lane.ready else attempts + self._depth
            if attempts < self._depth and load < least and (worker is None or lane.worker == worker):
                found, least = lane, load
        return found

    def _send(self, lane: Lane[S], submission: Submission) -> bool:
        """Starts an attempt; returns False if the memory limit leaves no room for a slab now.

        Raises:
            OSError: the system has no memory or descriptor for a slab.
        """
        task, worker = encode_task(submission.task, submission.given_up or None), lane.worker
        slab = self._slabs.take(len(task), worker, submission.needed) or self._make_room(submission, len(task), worker)
        if slab is None:
            return False
        self._tickets += 1
        try:
            if isinstance(chunk := submission.task.work, Chunk):
                self._iterations.note(chunk, submission.window)
                lane.reading.add(chunk.iteration)
            lane.give(submission, slab, self._tickets, task)
        except OSError:
            if self._tickets not in lane.attempts:
                self._slabs.give_back(slab)
            raise
        return True

    def _make_room(self, submission: Submission, nbytes: int, worker: int) -> S | None:
        """If nothing is in flight, frees slabs by copying batches that wait for delivery out of their slabs.

        Raises:
            SharedMemoryError: the batches that the program keeps leave no room; see NOTE [memory limit].
        """
        if is_busy(self._lanes):
            return None
        self.drop_unwanted()
        for made in list(self._undelivered.values()):
            made.source = self._slabs.copy_out(made.slab, made.size)
            del self._undelivered[made.slab.number]
        slab = self._slabs.take(nbytes, worker, submission.needed, last_room=True)
        if slab is None:
            needs = f"needs {submission.needed:,} bytes" if submission.needed else "does not fit"
            used = f"batches that you keep use {self._slabs.lent:,} of memory_limit={self._slabs.limit:,} bytes"
            cure = "keep fewer batches, make the batches smaller (batch_size), or raise memory_limit"
            raise SharedMemoryError(errno.ENOMEM, f"{submission.task} {needs}, but {used}; {cure}")
        return slab

    def _drop_retired(self) -> None:
        for number in self._slabs.retired:
            for lane in self._lanes.values():
                lane.drop(number)
        self._slabs.retired.clear()

    # -- what comes back ----------------------------------------------------------------------------------------------

    def handle(self, lane: Lane[S], reply: Reply) -> None:
        """Turns a reply about a batch into an outcome."""
        attempt = lane.attempts.get(reply.ticket)
        if attempt is None:
            return  # see NOTE [lane and interrupts] in process/socket_lane.py
        slab, submission = attempt.slab, attempt.submission
        wanted = not attempt.cancelled and not submission.window.cancelled
        if reply.size > slab.size:
            self._slabs.has_grown(slab, reply.size)
        if reply.status in _MEASURED:
            self.usage.add(lane.worker, slab.control[REPORT])
        if wanted and reply.status is Status.MADE:
            made_s = slab.control[TOOK] * 1e-9
            made = MadeInSlab(submission.task, self, slab, reply.head, made_s=made_s, worker=lane.worker)
            self._undelivered[slab.number], self._made_s = made, made.made_s
            submission.window.put(made)
            del lane.attempts[reply.ticket]
            return
        failed = self._failed(submission, slab, reply) if wanted else None
        if failed is not None:
            submission.window.put(failed)
        del lane.attempts[reply.ticket]
        self._slabs.give_back(slab)

    def _failed(self, submission: Submission, slab: S, reply: Reply) -> Outcome | None:
        """The outcome of a reply without a batch; None if the batch is tried again, or if nobody wants it."""
        task, offset, length = submission.task, reply.head.offset, reply.head.length
        if reply.status is Status.NO_ROOM:
            if self._slabs.demand(length):
                submission.needed = length
                self.requeue(submission)
                return None
            text = f"{task} needs {length:,} bytes, but memory_limit={self._slabs.limit:,}"
            cure = "raise memory_limit, or make the batches smaller (batch_size)"
            return Failed(task, SharedMemoryError(errno.ENOMEM, f"{text}; {cure}"))
        if reply.status is Status.FAILED:
            try:
                return Failed(task, decode_error(slab.read(offset, length)))
            except OSError as error:
                if from_signal_handler(error):
                    raise
                return Failed(task, error)
        if reply.status is Status.LOST:
            self.requeue(submission)
        return None

    def handle_death(self, death: Death[S]) -> None:
        """Puts the batches of a dead worker back into the backlog; see NOTE [exactly once]."""
        # If several batches were made side by side, any of them may have killed the worker, so none is lost: each is
        # made again in careful mode, in which a worker makes no other batch.
        self.usage.deaths += 1
        alone = death.alone and sum(attempt.started for attempt in death.attempts) <= 1
        for attempt in death.attempts:
            row, started, submission = attempt.row, attempt.started, attempt.submission
            self._slabs.reclaim(attempt.slab)
            if attempt.cancelled or submission.window.cancelled:
                continue
            submission.deaths += started
            task, deaths = submission.task, submission.deaths
            if self.tolerates:
                lost, deaths = blame(attempt, row, death, self._max_retries) if started else (False, 0)
            else:
                lost = started and alone and deaths > self._max_retries
            if lost:
                error = worker_died(death, task, deaths, row, self.tolerates)
                submission.window.put(Failed(task, error))
            else:
                self.usage.retries += started
                self.requeue(submission)

    def requeue(self, submission: Submission) -> None:
        """Puts a submission back into the backlog, sorted by age: the program waits for the oldest batch."""
        self._backlog = deque(sorted((*self._backlog, submission), key=lambda other: other.number))

    def lend(self, made: MadeInSlab[S]) -> BatchBytes:
        """Returns the memory of a batch that is delivered now."""
        self.begin()
        if made.source is None:
            if self._closed or self._undelivered.get(made.slab.number) is not made:
                raise LoaderClosed(CLOSED)
            made.source = self._slabs.lend(made.slab, made.size)
            del self._undelivered[made.slab.number]
        self.changing = False
        return made.source

    def _claim(self, made: MadeInSlab[S]) -> bool:
        """Removes a batch from the undelivered batches; returns False if its slab is no longer its own."""
        if self._undelivered.get(made.slab.number) is not made:
            return False
        del self._undelivered[made.slab.number]
        return True

    # -- slow batches -------------------------------------------------------------------------------------------------

    @property
    def stalled(self) -> bool:
        """Whether batches wait behind a slow one, or for a worker that starts, while another worker is idle."""
        return self._find_stalled() is not None

    def _find_stalled(self) -> tuple[Lane[S], Attempt[S]] | None:
        """A stalled lane, and its last attempt that has not started."""
        if self._sharded or not any(lane.ready and not lane.attempts for lane in self._lanes.values()):
            return None
        for lane in self._lanes.values():
            waiting = [attempt for attempt in lane.attempts.values() if not attempt.cancelled and not attempt.started]
            if waiting and (len(lane.attempts) > 1 or lane.shared or not lane.ready):
                return lane, waiting[-1]
        return None

    def relieve_stalled(self) -> None:
        """Moves batches that wait behind a slow batch (twice the time of the last batch) to idle workers."""
        while (found := self._find_stalled()) is not None:
            lane, attempt = found
            patience = 1 << attempt.submission.moves  # or batches would move from queue to queue for ever
            if time.monotonic() - lane.busy_since < max(STALL_S, 2 * self._made_s) * patience:
                return
            if not lane.ready:  # it may never start: its memory is needed, too
                attempt.cancel()
                self.requeue(attempt.submission)
                self.dispatch()
                continue
            idle = next(other for other in self._lanes.values() if other.ready and not other.attempts)
            try:
                sent = self._send(idle, attempt.submission)
            except OSError as error:
                if from_signal_handler(error):
                    raise
                sent = False
            if not sent:
                return
            attempt.submission.moves += 1
            attempt.cancel()

    def give_up(self, task: Task) -> Lane[S] | None:
        """Forgets a task that timed out; returns the lane of its attempt, or None if there is no attempt."""
        for lane in self._lanes.values():
            for attempt in lane.attempts.values():
                if attempt.submission.task is task and not attempt.cancelled:
                    attempt.cancel()
                    return lane
        self._backlog = deque(submission for submission in self._backlog if submission.task is not task)
        return None

    def drop_unwanted(self) -> None:
        """Cancels the attempts that nobody waits for any more, and frees the batches of iterators that were deleted.

        Workers close the streams that they have read for these attempts.
        """
        for lane in self._lanes.values():
            for attempt in list(lane.attempts.values()):  # `cancel` may remove it
                if attempt.submission.window.cancelled:
                    attempt.cancel()
        wanted = {outcome for window in _live(self._windows) for outcome in list(window.arrived.values())}
        for made in list(self._undelivered.values()):
            if made not in wanted and self._claim(made):
                self._slabs.give_back(made.slab)
        live = self._iterations.live()
        for lane in self._lanes.values():
            for iteration in lane.reading - live:
                lane.end_streams(iteration)
                lane.reading.discard(iteration)

    def close(self) -> None:
        """Frees all memory; delivered batches stay valid."""
        self._closed = True
        self.discarded.clear()  # it refers to this object, and would keep the slabs until the next garbage collection
        self.whole = None
        self._slabs.close()


def _live(references: list[weakref.ref[Window]]) -> list[Window]:
    """The windows whose batches are still wanted."""
    windows = [reference() for reference in references]
    return [window for window in windows if window is not None and not window.cancelled]
