"""The worker's end of a lane: the requests that have arrived, and the slabs that came with them."""

from __future__ import annotations

import errno
import socket
from array import array
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from ...memory.slab import Slab
from ..lanes.messages import Reply, Request, RequestReader

if TYPE_CHECKING:
    from ...work.streams import Streams

_RECORDS_BYTES: Final = 4096
_DESCRIPTORS_BYTES: Final = socket.CMSG_SPACE(8 * 4)
_CLOEXEC: Final[int] = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class LaneClosed(Exception):
    """The loader was closed, or its process is gone."""


class LaneEnd:
    """Reads requests from a lane and sends replies.

    Attributes:
        lane: its socket.
        requests: received and not served, the next one last.
        descriptors: received, in order; each belongs to the next message that needs one.
        streams: what the worker reads of an iterable dataset for this lane; may be set.
    """

    def __init__(self, lane: socket.socket) -> None:
        lane.setblocking(True)  # the program may have set another default
        self.lane = lane
        self.requests: list[Request] = []
        self.descriptors: list[int] = []
        self.streams: Streams | None = None
        self._reader = RequestReader()
        self._slabs: dict[int, Slab] = {}

    def next(self) -> Request:
        """The next request; raises LaneClosed if there will be none."""
        while not self.requests:
            self.receive()
        return self.requests.pop()

    def receive(self) -> None:
        """Waits for requests. Called only if all earlier ones were served."""
        data, ancillary, flags, _ = self.lane.recvmsg(_RECORDS_BYTES, _DESCRIPTORS_BYTES, _CLOEXEC)
        if not data:
            raise LaneClosed
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, "too many open files: no descriptor is left for the memory of a batch")
        for _, _, descriptors in ancillary:
            self.descriptors += array("i", descriptors)
        self.requests = list(self._reader.read(data))[::-1]

    def reply(self, reply: Reply) -> None:
        self.lane.sendall(reply.encode())

    def slab(self, request: Request) -> Slab:
        """The slab of a request, mapped as far as the request says."""
        if request.new:
            self.forget(request.slab)  # the parent was interrupted before it noted that the descriptor was sent
            fd = self.descriptors.pop(0)
            self._slabs[request.slab] = Slab(request.slab, fd, request.size, populate=True)
        slab = self._slabs[request.slab]
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
        slab = self._slabs.pop(number, None)
        if slab is not None:
            slab.close()

    def close(self) -> None:
        """Closes the lane and its slabs, whose memory is freed if the main program is gone."""
        self.end_streams()
        self.lane.close()
        for number in list(self._slabs):
            self.forget(number)
