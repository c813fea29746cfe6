"""The lane to a Ray actor, with an actor that does nothing: the test brings its replies. It needs no Ray."""

from __future__ import annotations

import select
from concurrent.futures import Future
from types import SimpleNamespace
from unittest.mock import MagicMock

from gluonloader.executors.lanes.messages import Status
from gluonloader.executors.ray.actor_lane import RayLane
from gluonloader.wire.ends import is_ready


def test_a_reply_that_comes_while_another_is_handled_is_not_forgotten():
    futures = []

    def call(reference):
        futures.append(Future())
        return futures[-1]

    lane = RayLane(SimpleNamespace(future=call, kill=MagicMock()), MagicMock(), 0, 1, MagicMock(), MagicMock())
    lane.start(None, 0)
    end, pid, started = futures
    started.set_result(b"")
    replies = lane.replies()
    assert [reply.status for reply in replies] == [Status.READY]
    end.set_exception(ChildProcessError("it was stopped"))
    lane.remove(replies)
    assert is_ready(lane.bell, select.POLLIN, 0)
    assert lane.replies() is None
    lane.close()
