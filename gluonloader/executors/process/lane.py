"""A lane: one worker's own channel, and the trips of batches on it.

NOTE [tickets]: every trip of a batch to a lane has a ticket, and its slab's TICKET word repeats it. A worker that
picks up a request whose slab says otherwise skips it. So taking a batch back (from a slow lane, or when its iterator
was broken off) is one write to shared memory; if the worker was faster, its reply finds the trip recalled and only
frees the slab. The second trip of a batch always has another slab.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from ...memory.slab import HEADER, ROW, STARTED, TICKET, Slab
from ...work.task import Task
from ..base import Inbox
from .records import Reply, ReplyReader, Request, Verb
from .supervisor import LaneProcess

__all__ = ["Lane", "Order", "Trip"]


@dataclass(slots=True, eq=False)
class Order:
    """One batch that somebody waits for."""

    task: Task
    inbox: Inbox
    number: int  # in the order of submission
    deaths: int = 0  # workers that died while they made it


@dataclass(slots=True, eq=False)
class Trip:
    """One attempt at an order; see NOTE [tickets]."""

    order: Order
    slab: Slab
    ticket: int
    recalled: bool = False

    @property
    def started(self) -> bool:
        """Whether the worker has begun with it."""
        return self.slab.control[STARTED] == self.ticket

    @property
    def position(self) -> int | None:
        """In careful mode: the position of the sample that was begun last."""
        return self.slab.control[ROW] - 1 if self.slab.control[ROW] else None

    def recall(self) -> None:
        """Takes the batch back; the worker skips it, or its reply is ignored."""
        self.recalled = True
        self.slab.control[TICKET] = 0


@dataclass(slots=True, eq=False)
class Lane:
    """One worker's channel, the parent's side."""

    process: LaneProcess
    socket: socket.socket
    notes: int  # descriptor of the file for stacks and start-up errors
    busy_since: float = field(default_factory=time.monotonic)  # with the trip that it is on now
    ready: bool = False
    trips: dict[int, Trip] = field(default_factory=dict)  # by ticket, oldest first
    _reader: ReplyReader = field(default_factory=ReplyReader)
    _known: set[int] = field(default_factory=set)  # slabs whose descriptor the worker has

    def give(self, order: Order, slab: Slab, ticket: int, payload: bytes) -> None:
        """Sends an order on a trip, its task written into the slab."""
        length = len(payload)
        slab.memory[HEADER : HEADER + length] = payload
        slab.control[TICKET], slab.control[STARTED], slab.control[ROW] = ticket, 0, 0
        if not self.trips:
            self.busy_since = time.monotonic()
        self.trips[ticket] = Trip(order, slab, ticket)
        self._send_slab(
            Request(Verb.MAKE, False, order.deaths > 0, slab.number, ticket, slab.size, slab.allowance, length), slab
        )

    def _send_slab(self, request: Request, slab: Slab) -> None:
        """Sends a record about a slab, with its descriptor if the worker does not have it yet."""
        request.new = slab.number not in self._known
        if request.new:
            self._known.add(slab.number)
        self.send(request, (slab.fd,) if request.new else ())

    def drop(self, slab: int) -> None:
        """Has the worker let go of a slab that is closed."""
        if slab in self._known:
            self._known.discard(slab)
            self.send(Request(Verb.DROP, slab=slab))

    def send(self, request: Request, descriptors: Iterable[int] = ()) -> None:
        """Sends a record; it never blocks, since a lane has only so many trips at once."""
        try:
            if descriptors:
                socket.send_fds(self.socket, [request.encode()], list(descriptors))
            else:
                self.socket.send(request.encode())
        except (BrokenPipeError, ConnectionResetError):
            pass  # the worker is dead; the end-of-file on its lane says so next

    def receive(self) -> Iterable[Reply] | None:
        """The replies that have arrived; None when the worker is dead."""
        try:
            data = self.socket.recv(65536)
        except ConnectionResetError:
            return None
        if not data:
            return None
        self.busy_since = time.monotonic()
        return self._reader.read(data)
