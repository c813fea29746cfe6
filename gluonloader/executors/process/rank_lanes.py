"""The lanes of a worker that several ranks share: one to the server that has started it, and one to each rank.

    server --Verb.JOIN, with the lane of a rank--> RankLanes
    rank 0 --requests--+
    rank 1 --requests--+--> one request of each rank in turn --> the worker

So no rank waits for more than one batch of each other rank. A rank that closes its loader, or dies, costs the worker
only the lane of this rank.
"""

from __future__ import annotations

import select
import socket
from collections import deque

from ..lanes.messages import Request
from .lane_end import LaneClosed, LaneEnd, WorkerSlabs


class RankLanes:
    """Yields the requests of the ranks in turn.

    Args:
        server: the lane to the server; if it closes, the worker ends.
        slabs: those of all lanes.
    """

    def __init__(self, server: LaneEnd, slabs: WorkerSlabs) -> None:
        self._server, self._slabs = server, slabs
        self._ranks: deque[LaneEnd] = deque()  # the one whose turn comes next first
        self._by_descriptor: dict[int, LaneEnd] = {}
        self._poll = select.poll()
        self._poll.register(server.lane, select.POLLIN)

    def add(self, descriptor: int) -> None:
        """Adds the lane of a rank."""
        lane = LaneEnd(socket.socket(fileno=descriptor), self._slabs)
        self._ranks.append(lane)
        self._by_descriptor[descriptor] = lane
        self._poll.register(descriptor, select.POLLIN)

    def drop(self, lane: LaneEnd) -> None:
        """Closes the lane of a rank; a second call does nothing."""
        if lane in self._ranks:
            self._slabs.settle()
            self._poll.unregister(lane.lane)
            del self._by_descriptor[lane.lane.fileno()]
            self._ranks.remove(lane)
            lane.close()

    def close(self) -> None:
        """Closes all lanes of ranks, when the worker ends."""
        for lane in self._ranks:
            lane.end_streams()
            lane.lane.close()

    def next(self) -> tuple[LaneEnd, Request]:
        """The next request, and its lane; raises LaneClosed if the server is gone."""
        while True:
            if self._server.requests:
                return self._server, self._server.next()
            self._look(0 if any(lane.requests for lane in self._ranks) else None)
            for _ in range(len(self._ranks)):
                lane = self._ranks[0]
                self._ranks.rotate(-1)
                if lane.requests:
                    return lane, lane.next()

    def _look(self, timeout: int | None) -> None:
        """Receives what has arrived, after it has waited for something unless `timeout` is 0."""
        for descriptor, event in self._poll.poll(timeout):
            rank = self._by_descriptor.get(descriptor)
            if rank is None:
                self._server.receive()
            elif event & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                self.drop(rank)  # also its requests, since nobody waits for their batches
            elif not rank.requests:
                self._receive(rank)

    def _receive(self, rank: LaneEnd) -> None:
        try:
            rank.receive()
        except (LaneClosed, ConnectionResetError):
            self.drop(rank)
