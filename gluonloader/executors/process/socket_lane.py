"""The lane to a worker process: a socket, and the attempts at batches that are under way on it.

NOTE [tickets]: every attempt has a ticket (a number), which is also written to the TICKET word of its slab. A worker
skips a request if its slab contains another ticket. So cancelling an attempt (on a slow lane, or because its iterator
was closed) is one write to shared memory. If the worker has already made the batch, its reply only frees the slab. A
second attempt at a batch always has another slab.

NOTE [lane and interrupts]: an exception of a signal handler can come after any function call. So replies stay in the
socket until they have been handled, and a reply is ignored if its ticket is no longer under way. A request is sent, and
its attempt marked as sent, by one call of a function that is not written in Python.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from ...memory.slab import HEADER, ROW, STARTED, TICKET, Slab
from ...wire.descriptors import rights
from ...wire.ends import close_end, shut_down
from ..base import Submission
from ..lanes.lane import Attempt
from ..lanes.messages import REPLY_BYTES, Reply, Request, Status, Verb, read_replies
from .death import Killable, kill_stuck

_RECEIVED_BYTES = 65536  # more than all replies that can be under way on one lane


P = TypeVar("P", bound=Killable)


@dataclass(slots=True, eq=False)
class ProcessLane(Generic[P]):
    """The end of the channel to one worker in the main program."""

    shared: ClassVar[bool] = False

    process: P
    forked: bool  # the worker inherits the memory of this process
    socket: socket.socket
    log: int  # descriptor of the file to which the worker writes its stack and an error while it starts
    busy_since: float = field(default_factory=time.monotonic)  # when the worker started on its current batch
    ready: bool = False  # the worker has started
    answered: bool = False  # the worker has sent a reply about a batch
    was_killed: bool = False
    error: BaseException | None = None  # why the worker ends
    reading: set[int] = field(default_factory=set)
    attempts: dict[int, Attempt[Slab]] = field(default_factory=dict)  # by ticket, oldest first
    _known: set[int] = field(default_factory=set)  # slabs whose descriptor the worker has

    @property
    def worker(self) -> int:
        return self.process.worker

    def give(self, submission: Submission, slab: Slab, ticket: int, task: bytes) -> None:
        """Starts an attempt: writes the encoded task into the slab and sends a request."""
        length, number = len(task), slab.number
        slab.memory[HEADER : HEADER + length] = task
        slab.control[TICKET], slab.control[STARTED], slab.control[ROW] = ticket, 0, 0
        if not self.attempts:
            self.busy_since = time.monotonic()
        request = Request(Verb.MAKE, False, submission.careful, number, ticket, slab.size, slab.allowance, length)
        attempt = self.attempts[ticket] = Attempt(submission, slab, ticket, request)
        try:
            self._ask(attempt)
        except OSError:
            if not attempt.sent:
                del self.attempts[ticket]
            raise

    def _ask(self, attempt: Attempt[Slab]) -> None:
        slab, request = attempt.slab, attempt.request
        request.new = slab.number not in self._known
        self.send(request, (slab.fd,) if request.new else (), attempt.sent)
        self._known.add(slab.number)

    def send_rest(self) -> None:
        """Sends the requests that an interrupted call has not sent."""
        for attempt in self.attempts.values():
            if not attempt.sent:
                self._ask(attempt)

    def drop(self, slab: int) -> None:
        """Makes the worker forget a slab that is closed."""
        if slab in self._known:
            self.send(Request(Verb.DROP, slab=slab))
            self._known.discard(slab)

    def end_streams(self, iteration: int) -> None:
        """See `Lane`. A lane has at most one such message for each of the few iterations that are read at a time."""
        self.send(Request(Verb.END_STREAMS, ticket=iteration))

    def send(self, request: Request, descriptors: Iterable[int] = (), sent: list[int] | None = None) -> None:
        """Sends a message. This never blocks: a lane has so few attempts at a time that its socket is never full.

        The server of shared workers sends more, one message for each rank: it tries again if this raises an OSError.

        Args:
            sent: gets one item when the message was sent; see NOTE [lane and interrupts].
        """
        data, sent = request.encode(), [] if sent is None else sent
        try:
            if descriptors:
                sent.extend(map(self.socket.sendmsg, ([data],), (rights(descriptors),)))
            else:
                sent.extend(map(self.socket.send, (data,)))
        except (BrokenPipeError, ConnectionResetError):
            pass  # the worker is dead; the end-of-file on its lane comes next

    def replies(self) -> list[Reply] | None:
        """The replies that have arrived; None if the worker is dead. They stay here until `remove` is called."""
        try:
            data = self.socket.recv(_RECEIVED_BYTES, socket.MSG_PEEK)
        except BlockingIOError:  # another process may hold the worker's end open; see NOTE [pidfd] in supervisor.py
            return None if self.process.ended else []
        except ConnectionResetError:
            return None
        if not data:
            return None
        self.busy_since = time.monotonic()
        replies = read_replies(data)
        for reply in replies:
            if reply.status is Status.LOST:  # see NOTE [forgotten slabs] in lane_end.py
                self._known.discard(reply.slab)
        return replies

    def remove(self, replies: list[Reply]) -> None:
        """Removes replies that were handled."""
        self.socket.recv(len(replies) * REPLY_BYTES)

    def look(self) -> None:
        """Does nothing, since the worker writes into the slabs."""

    def kill_stuck(self) -> str:
        """Kills a worker that does not answer; returns a text for an error that shows where the worker was stuck."""
        self.was_killed = True
        return kill_stuck(self.process, self.log, self.ready, self.forked)

    def hang_up(self) -> None:
        """Tells the worker to end; it ends when it has made its current sample."""
        shut_down(self.socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the channel and the log; the worker ends when it notices."""
        close_end(self.socket)
        os.close(self.log)
