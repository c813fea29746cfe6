"""How a program finds a server, and what it hears if the process with that name is no server, or is stopped."""

import contextlib
import itertools
import os
import signal
import socket
import sys
import threading
import traceback

import pytest
from conftest import eventually, in_child
from served import Served, new_server_name
from sharing import full_queue

import gluonloader as gl
from gluonloader.errors import BatchTimeout, LoaderClosed
from gluonloader.executors.lanes.remote import encode_error
from gluonloader.serving.messages import ConsumerWelcome, Kind, Packet, address_of, send_packet
from gluonloader.wire.greeting import encode

pytestmark = pytest.mark.numpy_only


def test_a_name_whose_owner_accepts_nobody_is_an_error():
    """Its queue is full, and a connection that blocks would wait for ever."""
    name = new_server_name()
    with full_queue(address_of(name)):
        with pytest.raises(
            ConnectionRefusedError, match=f"'{name}': the process with this name accepts no connections"
        ):
            gl.attach(name, wait=0.2)


def test_a_name_whose_owner_says_nothing_is_an_error():
    name = new_server_name()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent:
        silent.bind(address_of(name))
        silent.listen()
        with pytest.raises(ConnectionRefusedError, match="does not answer; .*pass wait="):
            gl.attach(name, wait=0.2)


def test_a_server_that_is_stopped_is_an_error_and_answers_afterwards():
    name = new_server_name()
    with Served(lambda: gl.DataLoader(range(4), 2), name) as server:
        os.kill(server.pid, signal.SIGSTOP)
        os.waitpid(server.pid, os.WUNTRACED)  # until it has stopped
        try:
            with pytest.raises(ConnectionRefusedError, match="does not answer; it is suspended"):
                gl.attach(name, wait=0.2)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        with gl.attach(name) as loader:
            assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]


def send_errors(listener, ended):
    """Welcomes a consumer and sends it errors as batches, as long as it reads; never reads what the consumer says."""
    connection, _ = listener.accept()
    with connection:
        connection.send(encode(ConsumerWelcome(os.getpid(), None, None)))
        error = encode_error(LookupError("a damaged sample"), "the server")
        with contextlib.suppress(OSError):
            for number in itertools.count():
                send_packet(connection, Packet(Kind.ERROR, number=number, batch=number, body=error), None)
        ended.wait()


def read_errors(iterator, count):
    for _ in range(count):
        with contextlib.suppress(LookupError):
            next(iterator)


@contextlib.contextmanager
def deaf_server():
    """The name of a server that reads nothing: at some time, the queue of what a consumer says is full."""
    name = new_server_name()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address_of(name))
        listener.listen()
        ended = threading.Event()
        thread = threading.Thread(target=send_errors, args=(listener, ended), daemon=True)
        thread.start()
        try:
            yield name
        finally:
            ended.set()
            thread.join()


def test_a_server_that_reads_nothing_is_an_error_after_the_timeout():
    with deaf_server() as name, gl.attach(name, timeout=0.1) as loader:
        iterator = iter(loader)
        with pytest.raises(BatchTimeout, match="has not answered within 0.1 s; it is suspended"):
            read_errors(iterator, 5000)


def functions_of(thread):
    """The names of the functions that a thread runs, the innermost first."""
    return [frame.f_code.co_name for frame, _ in traceback.walk_stack(sys._current_frames()[thread.ident])]


def test_close_ends_the_wait_of_a_thread_for_a_server_that_reads_nothing():
    with deaf_server() as name:
        loader, errors = gl.attach(name, timeout=None), []

        def read():
            try:
                read_errors(iter(loader), 5000)
            except LoaderClosed as error:
                errors.append(str(error))

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        with contextlib.suppress(BlockingIOError):
            while True:
                loader._connection._socket.send(b"more")
        assert eventually(lambda: functions_of(thread)[:2] == ["is_ready", "_wait"])
        closing = threading.Thread(target=loader.close, daemon=True)
        closing.start()
        closing.join(30)
        assert not closing.is_alive()
        thread.join()
    assert errors == ["this loader is closed; call attach again"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_name_of_another_user_is_an_error_that_says_so():
    name = new_server_name()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as taken:
        taken.bind(address_of(name))

        def listen():
            os.setuid(12345)
            taken.listen()  # the system keeps the user who does this
            return "listens"

        assert in_child(listen) == "listens"
        with pytest.raises(ConnectionRefusedError, match=r"a process of another user \(12345\) has this name; choose"):
            gl.attach(name, wait=0.2)
        with pytest.raises(ValueError, match=f"name='{name}': a process of another user"):
            gl.serve(gl.DataLoader(range(4), 2), name)
