"""`Clients`: the processes that a server has let in, what they say, and what they have to be told.

    a process connects --> door --Hello--> admit --Welcome--> a client, until `forget`
    client --> hear                            pending --send--> client

NOTE [slow clients]: a client may be stopped, or read its messages late: a rank does so only while it waits for a batch.
A message that the queue of a client does not take stays in `pending`, and is tried again later. So a slow client costs
the others nothing.
"""

from __future__ import annotations

import os
import select
import socket
from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from .descriptors import FULL
from .door import Door
from .ends import close_end, open_pair, ring
from .greeting import Hello, Refused, Welcome, decode, encode, library_version
from .names import peer

_RETRY_S: Final = 0.02  # how long to wait before a pending message is tried again


@dataclass(eq=False, slots=True)
class Client:
    """A process that was let in.

    Attributes:
        pending: what it has to be told, in order.
    """

    connection: socket.socket
    pid: int
    pending: deque[Any] = field(default_factory=deque)


G = TypeVar("G", bound=Client)


class Clients(ABC, Generic[G]):
    """The clients of a server; the server derives from this class, and decides.

    Args:
        listener: the socket that has the server's name.
        welcome: the answer to each process that is let in.
        hello: what a process has to say first.

    Attributes:
        poll: watches all connections.
        clients: by descriptor.
        waker: a byte sent through this socket wakes the thread that polls.
    """

    def __init__(self, listener: socket.socket, welcome: Welcome, hello: type[Hello]) -> None:
        self.clients: dict[int, G] = {}
        self.poll = select.poll()
        self.door = Door(listener, self.poll)
        self._woken, self.waker = open_pair()
        for end in (self._woken, self.waker):
            end.setblocking(False)
        self.poll.register(self._woken, select.POLLIN)
        self._welcome, self._hello, self._version = welcome, hello, library_version()

    @abstractmethod
    def admit(self, connection: socket.socket, pid: int, hello: Any) -> G | Refused:
        """The client that a process becomes; or why it may not use the server."""

    @abstractmethod
    def joined(self, client: G) -> None:
        """The client was welcomed."""

    @abstractmethod
    def hear(self, client: G) -> None:
        """Reads what a client has said; it may have left or died, and `forget` is to be called then."""

    @abstractmethod
    def send(self, client: G, what: Any) -> None:
        """Sends something that was pending; raises OSError if that is not possible now, or the client is gone."""

    @property
    def connections(self) -> list[socket.socket]:
        """Those to all clients, and to processes that have connected and said nothing yet."""
        return [*self.door.connections, *(client.connection for client in self.clients.values())]

    def handle(self, descriptor: int) -> bool:
        """Handles an event of a descriptor; returns False if it belongs to no client, nor to `waker`."""
        if descriptor == self._woken.fileno():
            self._woken.recv(4096)
        elif (client := self.clients.get(descriptor)) is not None:
            self.hear(client)
        elif not self.door.watches(descriptor):
            return False
        elif (newcomer := self.door.handle(descriptor)) is not None:
            self._let_in(*newcomer)
        return True

    def send_pending(self) -> float | None:
        """Sends what is pending; returns after how many seconds to call this again, None for never."""
        for client in self.clients.values():
            try:
                self._send_all(client)
            except OSError as error:
                if error.errno not in FULL:
                    client.pending.clear()  # it is gone; `poll` reports that, too
        retry_s = self.door.resume()
        return _RETRY_S if any(client.pending for client in self.clients.values()) else retry_s

    def forget(self, client: G) -> None:
        """A client has left or died; the caller closes its connection."""
        del self.clients[client.connection.fileno()]
        self.poll.unregister(client.connection)

    def close(self) -> None:
        """Lets nobody in any more, and closes all connections."""
        self.door.close()
        for client in self.clients.values():
            close_end(client.connection)
        for end in (self._woken, self.waker):
            close_end(end)

    def wake(self) -> None:
        """Wakes the thread that polls; may be called from any thread."""
        ring(self.waker)

    def _send_all(self, client: G) -> None:  # see NOTE [loops and try] in interrupts.py
        while client.pending:
            self.send(client, client.pending[0])
            client.pending.popleft()

    def _let_in(self, connection: socket.socket, message: bytes) -> None:
        try:
            answer = self._answer(connection, message)
            connection.send(encode(answer if isinstance(answer, Refused) else self._welcome))
        except (OSError, ValueError):  # it is gone, or no process of this library
            answer = Refused("")
        if isinstance(answer, Refused):
            close_end(connection)
            return
        self.clients[connection.fileno()] = answer
        self.poll.register(connection, select.POLLIN)
        self.joined(answer)

    def _answer(self, connection: socket.socket, message: bytes) -> G | Refused:
        hello = decode(message, self._hello)
        if hello.version == self._version:
            return self.admit(connection, peer(connection).pid, hello)
        versions = f"gluonloader {hello.version} here, but {self._version} in the server (pid {os.getpid()})"
        return Refused(f"{versions}; install the same version for both")
