"""The lane to a Ray actor: calls of its methods, and the replies that Ray's threads bring.

    give --> Worker.make --> future --Ray's thread--> inbox + a byte through the bell --> poll --> replies

NOTE [bell]: a thread of Ray first appends to the inbox, then sends one byte through the socket. `remove` first receives
as many bytes as it removes items, at least one. So each item that is left has a byte in the socket, or its byte comes
later; also if an exception of a signal handler comes in between. If a byte comes after its item was removed, a `remove`
without items receives it. An item that is handled twice has no effect the second time, since its attempt is gone.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from ...interrupts import Uninterrupted
from ...memory.slab import HEADER, ROW, SINCE, STARTED, TICKET, Head
from ...messages import message
from ...wire.ends import close_end, open_pair, ring
from ..base import Submission
from ..lanes.lane import Attempt
from ..lanes.messages import Reply, Request, Status, Verb
from ..lanes.remote import encode_error
from .connection import RayConnection
from .notes import Notes
from .objects import ObjectMemory, StoredBatch
from .worker import WATCH, Answer, Sight

_LOOK_S: Final = 2.0  # how long a worker may take to tell where it is stuck


@dataclass(slots=True, eq=False)
class RayAttempt(Attempt[StoredBatch]):
    """An attempt on the lane of an actor."""

    lane: RayLane = field(kw_only=True)

    def cancel(self) -> None:
        if self.cancelled:  # the worker knows: each message takes longer than a small batch
            return
        with Uninterrupted():
            Attempt.cancel(self)  # not `super()`, which does not work in a dataclass with slots
            self.lane.has_cancelled(self)


@message(frozen=True, slots=True)
class _Received:
    reply: Reply | None  # None: the worker has died
    answer: Answer | None = None


class RayLane:
    """The lane to one actor.

    Attributes:
        attempts, ready, answered, reading, busy_since: see `Lane`.
        pid: of the actor's process; None until it is known.
        error: why the worker could not start.
        death: the exception by which Ray reports that the worker has died.
        was_killed: the loader itself has ended the worker, which was stuck or had not started in time.
    """

    def __init__(
        self, ray: RayConnection, actor: Any, worker: int, side_by_side: int, notes: Notes, memory: ObjectMemory
    ) -> None:
        self._ray, self.actor, self.worker, self._notes, self._memory = ray, actor, worker, notes, memory
        self._side_by_side = side_by_side
        self.attempts: dict[int, Attempt[StoredBatch]] = {}
        self.reading: set[int] = set()
        self.ready = self.answered = self.shared = False
        self.busy_since = time.monotonic()
        self.pid: int | None = None
        self.error = b""
        self.death: BaseException | None = None
        self.was_killed = False
        self._inbox: deque[_Received] = deque()
        self.bell, self._ringer = open_pair()
        self.bell.setblocking(False)
        self._ringer.setblocking(False)

    def start(self, stored: Any, epoch: int) -> None:
        """Starts the worker; `stored` is the reference of the `StoredJob`."""
        watch = self._call("watch")
        self._call("pid", self._note_pid)
        # `start` runs in the thread of `make`, so that `worker_init_fn` can set thread-local state. If `make` has many
        # threads, `start` runs in another one, since calls of `make` could occupy all of them and wait for `start`. The
        # reference is in a list, or Ray would fetch the job before it calls `start`.
        start = self.actor.start if self._side_by_side == 1 else self.actor.start.options(concurrency_group=WATCH)
        self._ray.future(start.remote([stored], epoch)).add_done_callback(self._has_started)
        watch.add_done_callback(self._has_ended)

    def _call(self, method: str, then: Any = None) -> Future[Any]:
        future: Future[Any] = self._ray.future(getattr(self.actor, method).options(concurrency_group=WATCH).remote())
        if then is not None:
            future.add_done_callback(then)
        return future

    # -- in threads of Ray --------------------------------------------------------------------------------------------

    def _note_pid(self, future: Future[int]) -> None:
        if future.exception() is None:
            self.pid = future.result()

    def _has_started(self, future: Future[bytes]) -> None:
        error = future.exception()
        if error is not None and self._ray.is_death(error):
            self._die(error)
            return
        self.error = future.result() if error is None else encode_error(error, f"worker {self.worker}, while starting")
        status = Status.BROKEN if self.error else Status.READY
        self._deliver(_Received(Reply(status, size=len(self.error))))

    def _has_ended(self, future: Future[None]) -> None:
        self._die(future.exception() or ChildProcessError("the worker was stopped"))

    def _die(self, error: BaseException) -> None:
        if self.death is None:
            self.death = error
            self._deliver(_Received(None))

    def _has_answered(self, ticket: int, future: Future[Answer]) -> None:
        error = future.exception()
        if error is None:
            answer = future.result()
        elif self._ray.is_death(error):
            self._die(error)
            return
        elif self._ray.is_loss(error):
            self._deliver(_Received(Reply(Status.LOST, ticket=ticket)))
            return
        else:  # Ray could not store the batch, for example
            data = encode_error(error, f"in worker {self.worker} (pid {self.pid})")
            reply = Reply(Status.FAILED, ticket=ticket, size=HEADER + len(data), head=Head(HEADER, len(data), 0))
            answer = Answer(reply, np.frombuffer(bytes(HEADER) + data, np.uint8))
        self._deliver(_Received(answer.reply, answer))

    def _deliver(self, *received: _Received) -> None:
        self._inbox.extend(received)
        ring(self._ringer)  # see NOTE [bell]

    # -- in the thread that waits for batches -------------------------------------------------------------------------

    def give(self, submission: Submission, slab: StoredBatch, ticket: int, task: bytes) -> None:
        if self._ray.error is not None:  # a call would start another Ray
            raise self._ray.error
        request = Request(Verb.MAKE, False, submission.careful, slab.number, ticket, 0, slab.allowance, len(task))
        note = self._notes.note() if submission.careful else None
        with Uninterrupted():
            attempt = RayAttempt(submission, slab, ticket, request, sent=[1], lane=self)
            slab.control[TICKET] = ticket
            future: Future[Answer] = self._ray.future(self.actor.make.remote(request, task, note))
            self.attempts[ticket] = attempt
            self._note_started()
            future.add_done_callback(partial(self._has_answered, ticket))

    def has_cancelled(self, attempt: Attempt[StoredBatch]) -> None:
        """Tells the worker. A worker that has not started may never answer, so the attempt is gone at once."""
        if not self.ready:
            self.attempts.pop(attempt.ticket, None)
            self._memory.give_back(attempt.slab)
        if self._ray.error is None:
            self.actor.cancel.options(concurrency_group=WATCH).remote(attempt.ticket)

    def _note_started(self) -> None:
        """Notes which attempts the worker makes now: it makes them in order, `side_by_side` at a time."""
        if not self.ready:
            return
        for attempt in list(self.attempts.values())[: self._side_by_side]:
            if not attempt.started:
                attempt.slab.control[STARTED], attempt.slab.control[SINCE] = attempt.ticket, time.monotonic_ns()

    def send_rest(self) -> None:
        """Does nothing: `give` is not interrupted."""

    def drop(self, slab: int) -> None:
        """Does nothing: no object is used for a second batch."""

    def end_streams(self, iteration: int | None) -> None:
        """See `Lane`; None for all iterations."""
        if self._ray.error is None:
            self.actor.end_streams.remote(iteration)

    def replies(self) -> list[Reply] | None:
        found: list[Reply] = []
        for item in list(self._inbox):
            if item.reply is None:  # reported only after the replies before it were removed
                return found or None
            attempt = self.attempts.get(item.reply.ticket)
            if item.answer is not None and attempt is not None:
                attempt.slab.arrive(item.answer.data)
            found.append(item.reply)
        self.busy_since = time.monotonic()
        return found

    def remove(self, replies: list[Reply]) -> None:
        if self.death is not None:
            self._deliver()  # one more byte: an interrupted call may have received that of the death
        try:
            self.bell.recv(max(1, len(replies)))  # see NOTE [bell]
        except BlockingIOError:
            pass
        for _ in replies:
            self._inbox.popleft()
        self._note_started()

    def look(self) -> None:
        sight = self._sight()
        attempt = next((attempt for attempt in self.attempts.values() if attempt.started), None)
        if sight is not None and attempt is not None and sight.row:
            attempt.slab.control[SINCE] = int((time.monotonic() - sight.busy_s) * 1e9)
            attempt.slab.control[ROW] = sight.row

    def _sight(self) -> Sight | None:
        """What the worker is doing; None if it does not answer."""
        if self._ray.error is not None:
            return None
        try:
            sight: Sight = self._call("look").result(_LOOK_S)
            return sight
        except Exception:  # an error of Ray, or no answer in time
            return None

    def kill_stuck(self) -> str:
        sight, where = self._sight(), f"worker (pid {self.pid})"
        self.was_killed = True
        self._ray.kill(self.actor)
        if sight is None and self.pid is None:
            return f"its worker has not started yet: {self._ray.shortage()}"
        stack = "  (the worker does not answer)\n" if sight is None else sight.stack
        return f"its {where} was replaced; the stack of that worker was\n{stack}"

    def stop(self) -> Future[Any]:
        """Makes the worker end after its current batch; returns a future that completes when it has ended."""
        self._call("stop")
        if self.reading:
            self.end_streams(None)
        future: Future[Any] = self._ray.future(self.actor.__ray_terminate__.remote())
        return future

    def close(self) -> None:
        self._ray.kill(self.actor)
        close_end(self.bell)
        self._ringer.close()
        self._inbox.clear()
