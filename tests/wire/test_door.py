"""The door lets processes in, also after a time with too many open files; and messages with descriptors."""

from __future__ import annotations

import os
import select
import socket

import pytest
from conftest import eventually, in_child, scarce_descriptors

from gluonloader.executors.process.lane_end import LaneEnd, WorkerSlabs
from gluonloader.executors.shared.messages import NewLane, send
from gluonloader.executors.shared.messages import receive as receive_from_server
from gluonloader.wire.descriptors import receive, rights
from gluonloader.wire.door import Door
from gluonloader.wire.names import connect, listen, peer

pytestmark = pytest.mark.numpy_only


def let_in_later():
    address, poll = f"\0gluonloader-test-door-{os.getpid()}", select.poll()
    door = Door(listen(address, 5), poll)
    first = connect(address, 1)
    first.send(b"hello")
    ((descriptor, _),) = poll.poll(10_000)
    with scarce_descriptors(1, left=0):
        assert door.handle(descriptor) is None
    assert door.resume() is not None
    assert poll.poll(0) == []
    assert eventually(lambda: door.resume() is None)
    assert door.handle(poll.poll(10_000)[0][0]) is None  # it is accepted
    connection, message = door.handle(poll.poll(10_000)[0][0])
    return f"{message.decode()} {peer(connection).pid == os.getpid()}"


def test_a_process_is_let_in_when_there_are_free_descriptors_again():
    assert in_child(let_in_later) == "hello True"


def receive_without_room():
    one, other = socket.socketpair()
    one.sendmsg([b"two"], rights([0, 1]))
    with scarce_descriptors(1, left=0):
        received = receive(other, 100, 2)
    one.sendmsg([b"two"], rights([0, 1]))
    later = receive(other, 100, 2)
    return f"{received.data.decode()} {received.incomplete} {later.incomplete} {len(later.descriptors)}"


def test_a_message_says_if_descriptors_are_missing():
    assert in_child(receive_without_room) == "two True False 2"


def lane_without_room():
    server, rank = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    send(server, NewLane(0, os.getpid()), [0])
    with scarce_descriptors(1, left=0), pytest.raises(OSError) as caught:
        receive_from_server(rank)
    return str(caught.value)


def slab_without_room():
    program, worker = socket.socketpair()
    program.sendmsg([b"request"], rights([0]))
    end = LaneEnd(worker, WorkerSlabs(1))
    with scarce_descriptors(1, left=0), pytest.raises(OSError) as caught:
        end.receive()
    return str(caught.value)


@pytest.mark.parametrize("without_room", [lane_without_room, slab_without_room])
def test_an_error_about_missing_descriptors_says_how_to_raise_the_limit(without_room):
    text = in_child(without_room)
    assert "too many open files: no descriptor is left" in text
    assert text.endswith("close files, or raise the limit with `ulimit -n`")
