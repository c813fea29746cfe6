"""The connection of a consumer to a server: what has arrived, what is mapped, and what the server must know.

    server --Packet--> inbox --> batch over mapped memory        server <--instructions-- what was received and released

NOTE [again]: Ctrl-C can end `next` at any place. If that happens while a packet is read, the packet may be lost. So
`_reading` is true meanwhile; the next call then sends `AGAIN`, and the server sends once more all items that are not
acknowledged. What is released is computed from what was delivered and is not lent, so that a call which was interrupted
can be repeated. A repeated instruction does nothing.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections import deque
from contextlib import suppress
from typing import Any, Final

from ..errors import BatchTimeout, LoaderClosed
from ..interrupts import Uninterrupted
from ..memory.loans import BatchBytes
from ..wire.ends import close_end, is_ready, shut_down
from ..wire.greeting import Refused, decode, encode
from ..wire.names import NoRoom, OtherUser, connect
from .mapping import Mappings
from .messages import (
    MESSAGE_BYTES,
    Ask,
    Hello,
    Kind,
    Packet,
    Welcome,
    address_of,
    brings_descriptor,
    decode_facts,
    decode_packet,
    encode_instructions,
    receive_packet,
    running,
)

_LOOK_S: Final = 0.05  # how often `connect` looks whether the server runs
_ANSWER_S: Final = 30.0  # how long the answer of a server may take
_FACTS_S: Final = 1.0  # the same for the text of a timeout
_SILENT: Final = "it is suspended, or its dataset holds the GIL"  # why a server may not answer
_LEAST_S: Final = 1.0  # the least that a server which runs gets to answer
_OTHER: Final = "choose another name for serve and attach"
_LONG_S: Final = 3600.0  # a wait without limit is made of waits of this length


class Connection:
    """A connection to a server; for one thread at a time.

    Attributes:
        welcome: what the server has said of itself.
        ending: why the connection has ended; None if it has not.
    """

    def __init__(self, name: str, hello: Hello, wait: float) -> None:
        self._name = name
        self._socket, self.welcome = _enter(name, hello, wait)
        self.ending: str | None = None
        self._mappings = Mappings()
        self._inbox: deque[Packet] = deque()
        self._generation = 0
        self._reading = False  # see NOTE [again]
        self._lacks = False  # a descriptor was lost, since this process may open no more files
        self._question = 0  # the number of the newest question
        self._parts: list[bytes] = []  # of its answer
        self._facts: dict[str, Any] | None = None
        self._leaving: str | None = None  # why another thread closes the connection
        self._delivered: set[int] = set()  # batches that are acknowledged and not released, by number of the item

    # -- items --------------------------------------------------------------------------------------------------------

    def first(self, timeout: float | None) -> Packet:
        """The next item, which stays the first one until `acknowledge`; waits for it.

        Raises:
            BatchTimeout: it takes too long.
            LoaderClosed: the server has ended.
            OSError: see `again`.
        """
        if not self._inbox:
            self._read()
        if not self._inbox:
            self._tell_released(self._released())  # before it waits, it gives memory back
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._inbox:
            if not self._read() and not self._wait(deadline):
                raise BatchTimeout(self._timeout_text(timeout or 0.0))
        return self._inbox[0]

    def lend(self, packet: Packet) -> BatchBytes | None:
        """The memory of a batch; None if it has to be sent again, which this call asks for."""
        if self._mappings.has(packet.slab, packet.size):
            return self._mappings.lend(packet.number, packet.slab, packet.size, packet.scarce)
        self.again()
        return None

    def acknowledge(self, number: int) -> None:
        """Tells the server that an item was received, and which batches are not used any more."""
        self._delivered.add(number)
        self._tell_released([(Ask.ACKNOWLEDGE, number), *self._released()])
        if self._inbox and self._inbox[0].number == number:
            self._inbox.popleft()

    def _tell_released(self, instructions: list[tuple[Ask, int]]) -> None:
        if instructions:
            self.tell(*instructions)
            self._delivered.difference_update(item for ask, item in instructions if ask in (Ask.RELEASE, Ask.KEEP))

    def _released(self) -> list[tuple[Ask, int]]:
        mappings = self._mappings
        mappings.forget_ended()
        return [
            (Ask.KEEP if mappings.is_inherited(item) else Ask.RELEASE, item)
            for item in self._delivered
            if not mappings.is_lent(item)
        ]

    def again(self) -> None:
        """Forgets all slabs, and asks again for all items that are not acknowledged, with their descriptors.

        Raises:
            OSError: the memory of a batch could not be mapped, and no memory of other batches can be unmapped.
        """
        lacks, self._lacks = self._lacks, False
        self._generation += 1
        self._inbox.clear()
        self.tell((Ask.AGAIN, self._generation))
        self._reading = False
        if not self._mappings.forget() and lacks:
            cure = "close files, or raise the limit with `ulimit -n`"
            raise OSError(errno.EMFILE, f"too many open files: the memory of a batch cannot be mapped; {cure}")

    # -- facts --------------------------------------------------------------------------------------------------------

    def ask_facts(self, seconds: float = _ANSWER_S) -> dict[str, Any]:
        """What the server knows; raises BatchTimeout if it does not answer in so many seconds."""
        self._question, self._parts, self._facts = self._question + 1, [], None
        self._tell_released([*self._released(), (Ask.FACTS, self._question)])
        deadline = time.monotonic() + seconds
        while self._facts is None:
            if not self._read() and not self._wait(deadline):
                who = f"the server {self._name!r} (pid {self.welcome.pid})"
                raise BatchTimeout(f"{who} has not answered within {seconds:g} s; {_SILENT}")
        return self._facts

    def _timeout_text(self, timeout: float) -> str:
        text = f"no batch came from the server {self._name!r} (pid {self.welcome.pid}) within {timeout:g} s"
        try:
            facts = self.ask_facts(_FACTS_S)
        except BatchTimeout:
            return f"{text}, and it does not answer; {_SILENT}"
        if slow := facts["slow"]:
            who = f"the consumer with pid {slow[0]}"
            if slow[0] == os.getpid():
                who = "another loader of this program, which attach has returned, too"
            return f"{text}, since it waits for {who}; {facts['cure']}"
        why = "its loader is slow, or it waits until as many consumers are attached as serve(consumers=...) says"
        return f"{text}; {why}; pass a larger timeout to attach"

    # -- the socket ---------------------------------------------------------------------------------------------------

    def tell(self, *instructions: tuple[Ask, int]) -> None:
        """Sends instructions; raises LoaderClosed if the server has ended."""
        if self.ending is not None:
            raise LoaderClosed(self.ending)
        try:
            self._send(encode_instructions(instructions))
        except (BrokenPipeError, ConnectionResetError):
            self._find_ending()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except BlockingIOError:  # the server is stopped, or very busy
            is_ready(self._socket, select.POLLOUT, _ANSWER_S)
            self._socket.send(data)

    def _wait(self, deadline: float | None) -> bool:
        """Waits for a packet; returns False after the deadline."""
        left = _LONG_S if deadline is None else deadline - time.monotonic()
        return left > 0 and (is_ready(self._socket, select.POLLIN, left) or deadline is None)

    def _read(self) -> bool:
        """Reads a packet into the inbox; returns False if none has arrived. See NOTE [again]."""
        if self.ending is not None:
            raise LoaderClosed(self.ending)
        if self._reading:
            self.again()
        self._reading = True
        try:
            data = self._read_bytes()
        except BlockingIOError:
            self._reading = False
            return False
        except ConnectionResetError:
            data = b""
        if not data:
            self._lost()
        packet = decode_packet(data)
        if packet.kind is Kind.GOODBYE:
            self._lost(packet.body.decode())
        elif packet.kind is Kind.FACTS:
            self._take_facts(packet)
        elif packet.kind is Kind.RETIRED:
            self._mappings.drop(packet.slab)
        elif packet.generation == self._generation:
            self._inbox.append(packet)
        self._reading = False
        return True

    def _take_facts(self, packet: Packet) -> None:
        if packet.number == self._question:
            self._parts.append(packet.body)
            if not packet.batch:
                self._facts = decode_facts(b"".join(self._parts))

    def _read_bytes(self) -> bytes:
        if not brings_descriptor(self._socket):
            return receive_packet(self._socket)[0]
        with Uninterrupted():  # otherwise the descriptor could stay open
            data, descriptor = receive_packet(self._socket)
            self._map(data, descriptor)
        return data

    def _map(self, data: bytes, descriptor: int | None) -> None:
        if not data:
            return
        packet = decode_packet(data)
        try:
            if descriptor is None:
                raise OSError(errno.EMFILE, "too many open files")
            if packet.generation == self._generation:
                self._mappings.add(packet.slab, descriptor)
            else:  # it comes again
                os.close(descriptor)
        except OSError:
            self._lacks = True

    def is_open(self) -> bool:
        """Whether the server still runs, as far as it has said; reads what has arrived."""
        with suppress(LoaderClosed):
            self._read_all()
        return self.ending is None

    def _read_all(self) -> None:  # see NOTE [loops and try] in interrupts.py
        while self._read():
            pass

    def _find_ending(self) -> None:
        """Reads what the server has said before it ended; raises LoaderClosed."""
        self._read_all()
        self._lost()

    def _lost(self, why: str = "it sent no message, so it was probably killed") -> None:
        if self._leaving is not None:
            self.close(self._leaving)
            raise LoaderClosed(self._leaving)
        who = f"the server {self._name!r} (pid {self.welcome.pid}) has ended: {why}"
        self.close(f"{who}; start it again from its last state, and call reconnect() on this loader")
        raise LoaderClosed(str(self.ending))

    def interrupt(self, why: str) -> None:
        """Lets a thread that waits raise LoaderClosed; may be called by any thread."""
        if self.ending is None:
            self._leaving = why
            shut_down(self._socket, socket.SHUT_RD)

    def close(self, why: str) -> None:
        """Ends the connection; a second call does nothing. See NOTE [kept memory] in mapping.py."""
        if self.ending is None:
            with suppress(OSError):  # the server has ended, too
                self._send(
                    encode_instructions([*self._released(), *((Ask.KEEP, item) for item in self._mappings.lent)])
                )
            self.ending = why
            close_end(self._socket)
            self._mappings.forget()
            self._inbox.clear()


def _enter(name: str, hello: Hello, wait: float) -> tuple[socket.socket, Welcome]:
    """A connection to the server; waits for the server to start."""
    deadline = time.monotonic() + wait
    while True:
        connection = _connect(name, deadline)
        welcome = None if connection is None else _welcomed(name, connection, hello, deadline)
        if connection is not None and welcome is not None:
            return connection, welcome
        if time.monotonic() > deadline:
            others = ", ".join(map(repr, running())) or "none"
            what = f"no server {name!r} of this user runs on this machine (running: {others})"
            raise _refused(f"{what}; start it with gluonloader.serve(loader, {name!r})")
        time.sleep(_LOOK_S)


def _welcomed(name: str, connection: socket.socket, hello: Hello, deadline: float) -> Welcome | None:
    """The answer of the server; None, and the connection is closed, if the server ends just now."""
    answer = None
    try:
        with suppress(BrokenPipeError, ConnectionResetError):
            answer = _answer(connection, hello, deadline)
    finally:
        if not isinstance(answer, Welcome):
            close_end(connection)
    if isinstance(answer, Refused):
        raise _refused(f"the server {name!r}: {answer.why}")
    return answer


def _answer(connection: socket.socket, hello: Hello, deadline: float) -> Welcome | Refused | None:
    connection.send(encode(hello))
    if not is_ready(connection, select.POLLIN, max(_LEAST_S, deadline - time.monotonic())):
        return Refused(f"it does not answer; {_SILENT}; to wait for longer, pass wait=... to attach")
    data = connection.recv(MESSAGE_BYTES)
    return decode(data, Welcome, Refused) if data else None


def _refused(text: str) -> ConnectionRefusedError:
    return ConnectionRefusedError(errno.ECONNREFUSED, text)


def _connect(name: str, deadline: float) -> socket.socket | None:
    """A connection to the server of this name; None if there is none."""
    try:
        return connect(address_of(name), max(_LEAST_S, deadline - time.monotonic()))
    except OtherUser as error:
        raise _refused(f"the server {name!r}: a process of another user ({error}) has this name; {_OTHER}") from None
    except NoRoom:
        raise _refused(f"the server {name!r}: the process with this name accepts no consumers; {_OTHER}") from None
