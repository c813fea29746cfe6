"""Clients of a server: who is let in, and what a slow one gets."""

from __future__ import annotations

import contextlib
import os
import select
import time
from itertools import count

import pytest

from gluonloader.wire.clients import Client, Clients
from gluonloader.wire.ends import close_end
from gluonloader.wire.greeting import Hello, Refused, Welcome, greet, library_version
from gluonloader.wire.names import connect, listen

pytestmark = pytest.mark.numpy_only

numbers = count()


class Numbers(Clients[Client]):
    """Sends numbers as messages; a client that says something is forgotten."""

    def __init__(self):
        self.address = f"\0gluonloader-test-clients-{os.getpid()}-{next(numbers)}"
        super().__init__(listen(self.address, 5), Welcome(7), Hello)

    def admit(self, connection, pid, hello):
        return Client(connection, pid)

    def joined(self, client):
        client.pending.extend(range(2000))

    def hear(self, client):
        self.forget(client)
        close_end(client.connection)

    def send(self, client, what):
        client.connection.send(b"%d" % what)

    def advance(self, ms=0):
        """Handles the events that there are, and sends; returns after how many seconds to do this again."""
        for descriptor, _ in self.poll.poll(ms):
            self.handle(descriptor)
        return self.send_pending()

    def advance_until(self, is_done):
        deadline = time.monotonic() + 30
        while not is_done():
            assert time.monotonic() < deadline
            self.advance(10)


@pytest.fixture
def server():
    server = Numbers()
    yield server
    server.close()


@contextlib.contextmanager
def connected(server):
    connection = connect(server.address, 1)
    try:
        yield connection
    finally:
        close_end(connection)


def greeted(server, connection, version):
    return greet(connection, Hello(version), lambda one: server.advance_until(lambda: is_readable(one)), Welcome)


def is_readable(connection):
    return bool(select.select([connection], [], [], 0)[0])


def test_a_client_that_reads_late_gets_all_messages_in_order(server):
    with connected(server) as late, connected(server) as other:
        assert greeted(server, late, library_version()) == Welcome(7)
        assert server.advance() is not None  # more than its queue takes is pending
        assert greeted(server, other, library_version()) == Welcome(7)
        for connection in (other, late):
            received = []
            while len(received) < 2000:
                server.advance_until(lambda: is_readable(connection))  # noqa: B023  # it is called at once
                received.append(int(connection.recv(100)))
            assert received == list(range(2000))
        assert server.advance() is None


def test_a_client_that_ends_with_messages_pending_is_forgotten(server):
    with connected(server) as connection:
        greeted(server, connection, library_version())
        assert len(server.clients) == 1
    server.advance_until(lambda: not server.clients)
    assert server.advance() is None


def test_another_version_is_refused(server):
    with connected(server) as connection:
        answer = greeted(server, connection, "0.0")
        assert isinstance(answer, Refused)
        assert "gluonloader 0.0 here, but" in answer.why
        assert not server.clients
        assert connection.fileno() < 0


def test_what_is_no_message_is_dropped(server):
    with connected(server) as connection:
        connection.send(b'["Hello", {}]')
        server.advance_until(lambda: is_readable(connection))
        assert connection.recv(100) == b""
        assert not server.clients
