"""The worker's end of a lane: the requests that have arrived, and the slabs that came with them.

NOTE [forgotten slabs]: a worker of many ranks could get more slabs than the number of files that it may open. So it
forgets the slabs that it has not used for longest. It answers a request for such a slab by `Status.LOST`, and the main
program tries the batch again. The descriptor of the slab comes with the next request that needs it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from ...memory.slab import Slab
from ...wire.descriptors import receive, too_many_files
from ..lanes.messages import Reply, Request, RequestReader

if TYPE_CHECKING:
    from ...work.streams import Streams

_RECORDS_BYTES: Final = 4096
_MOST_DESCRIPTORS: Final = 8


class LaneClosed(Exception):
    """The loader was closed, or its process is gone."""


def _nothing() -> None:
    pass


class WorkerSlabs:
    """The slabs that a worker has mapped, of all its lanes.

    Args:
        most: how many it keeps; see NOTE [forgotten slabs].

    Attributes:
        settle: waits until no other thread makes a batch; may be set. It is called before a slab is closed that a batch
            may be made in.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.settle: Callable[[], None] = _nothing
        self._slabs: dict[tuple[LaneEnd, int], Slab] = {}  # by lane and number, the one that was used last at the end

    def add(self, lane: LaneEnd, slab: Slab) -> None:
        self._slabs[lane, slab.number] = slab
        if len(self._slabs) > self._most:
            self.settle()
            self.forget(*next(iter(self._slabs)))

    def use(self, lane: LaneEnd, number: int) -> Slab | None:
        """The slab; None if it was forgotten."""
        slab = self._slabs.pop((lane, number), None)
        if slab is not None:
            self._slabs[lane, number] = slab
        return slab

    def forget(self, lane: LaneEnd, number: int) -> None:
        """Closes a slab; does nothing if it was forgotten."""
        slab = self._slabs.pop((lane, number), None)
        if slab is not None:
            slab.close()

    def forget_all(self, lane: LaneEnd) -> None:
        for of, number in list(self._slabs):
            if of is lane:
                self.forget(lane, number)


class LaneEnd:
    """Reads requests from a lane and sends replies.

    Args:
        slabs: those of all lanes of the worker.

    Attributes:
        lane: its socket.
        requests: received and not served, the next one last.
        descriptors: received, in order; each belongs to the next message that needs one.
        streams: what the worker reads of an iterable dataset for this lane; may be set.
    """

    def __init__(self, lane: socket.socket, slabs: WorkerSlabs) -> None:
        lane.setblocking(True)  # the program may have set another default
        self.lane = lane
        self.requests: list[Request] = []
        self.descriptors: list[int] = []
        self.streams: Streams | None = None
        self._reader = RequestReader()
        self._slabs = slabs

    def next(self) -> Request:
        """The next request; raises LaneClosed if there will be none."""
        while not self.requests:
            self.receive()
        return self.requests.pop()

    def receive(self) -> None:
        """Waits for requests. Called only if all earlier ones were served."""
        received = receive(self.lane, _RECORDS_BYTES, _MOST_DESCRIPTORS)
        if not received.data:
            raise LaneClosed
        if received.incomplete:
            raise too_many_files("no descriptor is left for the memory of a batch")
        self.descriptors += received.descriptors
        self.requests = list(self._reader.read(received.data))[::-1]

    def reply(self, reply: Reply) -> None:
        self.lane.sendall(reply.encode())

    def slab(self, request: Request) -> Slab | None:
        """The slab of a request, mapped as far as the request says; None if it was forgotten."""
        if request.new:
            self.forget(request.slab)  # the parent was interrupted before it noted that the descriptor was sent
            fd = self.descriptors.pop(0)
            self._slabs.add(self, Slab(request.slab, fd, request.size, populate=True))
        slab = self._slabs.use(self, request.slab)
        if slab is None:
            return None
        slab.size = request.size  # another worker, or the parent, may have changed it; see NOTE [slab growth]
        if slab.mapped < slab.size:
            slab.map(slab.size)
        return slab

    def end_streams(self, iterations: Collection[int] | None = None) -> None:
        """Closes the streams of these iterations, or all streams."""
        if self.streams is not None:
            self.streams.close(iterations)

    def forget(self, number: int) -> None:
        """Closes a slab that the main program has closed."""
        self._slabs.forget(self, number)

    def close(self) -> None:
        """Closes the lane and its slabs, whose memory is freed if the main program is gone."""
        self.end_streams()
        self.lane.close()
        self._slabs.forget_all(self)
