"""The connection of a consumer to a server: what has arrived, what is mapped, and what the server must know.

    server --Packet--> inbox --> batch over mapped memory        server <--instructions-- what was received and released

NOTE [again]: Ctrl-C can end `next` at any place. If it comes while a packet is read, or the descriptor of a slab is
lost, the consumer sends `AGAIN`, and the server sends once more all items that are not acknowledged. What is released
is computed from what was delivered and is not lent, so that a call which was interrupted can be repeated. A repeated
instruction does nothing.
"""

from __future__ import annotations

import errno
import math
import os
import pickle
import select
import socket
import time
from collections import deque
from contextlib import suppress
from typing import Any, Final, NoReturn

from ..errors import BatchTimeout, LoaderClosed
from ..interrupts import Uninterrupted
from ..memory.loans import BatchBytes
from ..wire.descriptors import Incoming, receive, receive_bytes, too_many_files
from ..wire.ends import close_end, is_ready, shut_down
from ..wire.greeting import MESSAGE_BYTES, Hello, Refused, greet, library_version
from ..wire.names import NoRoom, OtherUser, connect
from .mapping import Mappings
from .messages import (
    Ask,
    ConsumerWelcome,
    Kind,
    Packet,
    address_of,
    brings_descriptor,
    decode_packet,
    encode_instructions,
    running,
)

_LOOK_S: Final = 0.05  # how often `connect` looks whether the server runs
_FACTS_S: Final = 1.0  # how long the server may take to answer what the text of a timeout needs
_SILENT: Final = "it is suspended, or its dataset holds the GIL"  # why a server may not answer
_LEAST_S: Final = 1.0  # the least that a server which runs gets to answer


class Connection:
    """A connection to a server; for one thread at a time.

    Args:
        wait: how many seconds to wait until the server runs and answers.
        timeout: how many seconds each later wait may take; None for no limit.

    Attributes:
        welcome: what the server has said of itself.
        ending: why the connection has ended; None if it has not.
    """

    def __init__(self, name: str, wait: float, timeout: float | None) -> None:
        self._name, self._timeout = name, math.inf if timeout is None else timeout
        self._socket, self.welcome = _enter(name, wait)
        self.ending: str | None = None
        self._mappings = Mappings()
        self._inbox: deque[Packet] = deque()
        self._generation = 0
        self._asks_again = False  # the server has to be told to send all items again, see NOTE [again]
        self._lacks = False  # a descriptor was lost, since this process may open no more files
        self._question = 0  # the number of the newest question
        self._parts: list[bytes] = []  # of its answer
        self._facts: dict[str, Any] | None = None
        self._leaving: str | None = None  # why another thread closes the connection
        self._delivered: set[int] = set()  # batches that are acknowledged and not released, by number of the item

    # -- items --------------------------------------------------------------------------------------------------------

    def first(self) -> Packet:
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
        deadline = time.monotonic() + self._timeout
        while not self._inbox:
            if not self._read() and not self._wait(select.POLLIN, deadline):
                raise BatchTimeout(self._timeout_text())
        return self._inbox[0]

    def lend(self, packet: Packet) -> BatchBytes | None:
        """The memory of a batch; None if it has to be sent again, which this call asks for."""
        source = self._mappings.lend(packet.number, packet.slab, packet.head.end, packet.scarce)
        if source is None:
            self.again()
        return source

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
        unused = self._delivered - self._mappings.lent
        return [(Ask.KEEP if item in self._mappings.inherited else Ask.RELEASE, item) for item in unused]

    def again(self) -> None:
        """Forgets all slabs, and asks again for all items that are not acknowledged, with their descriptors.

        Raises:
            OSError: the memory of a batch could not be mapped, and no memory of other batches can be unmapped.
        """
        lacks, self._lacks = self._lacks, False
        self._asks_again = True
        self._generation += 1
        self._inbox.clear()
        self.tell((Ask.AGAIN, self._generation))
        self._asks_again = False
        if not self._mappings.forget() and lacks:
            raise too_many_files("the memory of a batch cannot be mapped")

    # -- facts --------------------------------------------------------------------------------------------------------

    def ask_facts(self, seconds: float | None = None) -> dict[str, Any]:
        """What the server knows; raises BatchTimeout if it does not answer in so many seconds, or within `timeout`."""
        seconds = self._timeout if seconds is None else seconds
        self._question, self._parts, self._facts = self._question + 1, [], None
        self._tell_released([*self._released(), (Ask.FACTS, self._question)])
        deadline = time.monotonic() + seconds
        while self._facts is None:
            if not self._read() and not self._wait(select.POLLIN, deadline):
                raise self._no_answer(seconds)
        return self._facts

    def _no_answer(self, seconds: float) -> BatchTimeout:
        return BatchTimeout(f"{self._who} has not answered within {seconds:g} s; {_SILENT}")

    @property
    def _who(self) -> str:
        return f"the server {self._name!r} (pid {self.welcome.pid})"

    def _timeout_text(self) -> str:
        text = f"no batch came from {self._who} within {self._timeout:g} s"
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
        """Sends instructions; raises LoaderClosed if the server has ended, BatchTimeout if it reads none."""
        if self.ending is not None:
            raise LoaderClosed(self.ending)
        data, deadline = encode_instructions(instructions), time.monotonic() + self._timeout
        while not self._send(data):  # the server is stopped, or very busy
            if self._leaving is not None:
                self._lost()
            if not self._wait(select.POLLOUT | select.POLLRDHUP, deadline):  # `interrupt` causes POLLRDHUP
                raise self._no_answer(self._timeout)

    def _send(self, data: bytes) -> bool:
        """Sends a message; returns False if the queue is full."""
        try:
            self._socket.send(data)
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError):
            self._find_ending()
        return True

    def _wait(self, event: int, deadline: float) -> bool:
        """Waits for an event; returns False after the deadline."""
        left = deadline - time.monotonic()
        return left > 0 and is_ready(self._socket, event, left)

    def _read(self) -> bool:
        """Reads a packet; returns False if none has arrived."""
        if self.ending is not None:
            raise LoaderClosed(self.ending)
        if self._asks_again:
            self.again()
        self._asks_again = True  # if this method is interrupted
        try:
            if brings_descriptor(self._socket):
                with Uninterrupted():  # otherwise the descriptor could stay open
                    self._take(receive(self._socket, MESSAGE_BYTES, most=1))
            else:
                self._take(Incoming(receive_bytes(self._socket, MESSAGE_BYTES)))
        except BlockingIOError:
            self._asks_again = False
            return False
        self._asks_again = False
        return True

    def _take(self, received: Incoming) -> None:
        if not received.data:
            self._lost()
        packet = decode_packet(received.data)
        if packet.kind is Kind.GOODBYE:
            self._lost(packet.body.decode())
        elif packet.kind is Kind.FACTS:
            self._take_facts(packet)
        elif packet.kind is Kind.RETIRED:
            self._mappings.drop(packet.slab)
        elif packet.generation == self._generation:
            self._lacks |= received.incomplete
            for descriptor in received.descriptors:
                self._map(packet.slab, descriptor)
            self._inbox.append(packet)
        else:  # it comes again
            for descriptor in received.descriptors:
                os.close(descriptor)

    def _map(self, slab: int, descriptor: int) -> None:
        try:
            self._mappings.add(slab, descriptor)
        except OSError:
            self._lacks = True

    def _take_facts(self, packet: Packet) -> None:
        if packet.number == self._question:
            self._parts.append(packet.body)
            if not packet.batch:
                self._facts = pickle.loads(b"".join(self._parts))

    def is_open(self) -> bool:
        """Whether the server still runs, as far as it has said; reads what has arrived."""
        with suppress(LoaderClosed):
            self._read_all()
        return self.ending is None

    def _read_all(self) -> None:  # see NOTE [loops and try] in interrupts.py
        while self._read():
            pass

    def _find_ending(self) -> NoReturn:
        """Reads what the server has said before it ended; raises LoaderClosed."""
        self._asks_again = False  # nobody hears it any more
        self._read_all()
        self._lost()

    def _lost(self, why: str = "it sent no message, so it was probably killed") -> NoReturn:
        if self._leaving is not None:
            self.close(self._leaving)
            raise LoaderClosed(self._leaving)
        what = f"{self._who} has ended: {why}"
        self.close(f"{what}; start it again from its last state, and call reconnect() on this loader")
        raise LoaderClosed(str(self.ending))

    def interrupt(self, why: str) -> None:
        """Lets a thread that waits raise LoaderClosed; may be called by any thread."""
        if self.ending is None:
            self._leaving = why
            shut_down(self._socket, socket.SHUT_RD)

    def close(self, why: str) -> None:
        """Ends the connection; a second call does nothing. See NOTE [kept memory] in mapping.py."""
        if self.ending is None:
            with suppress(OSError):  # the server has ended, or is stopped
                self._socket.send(encode_instructions(self._released()))
            self.ending = why
            close_end(self._socket)
            self._mappings.forget()
            self._inbox.clear()


def _enter(name: str, wait: float) -> tuple[socket.socket, ConsumerWelcome]:
    """A connection to the server; waits for the server to start."""
    deadline = time.monotonic() + wait
    while True:
        try:
            entered = _try_to_enter(name, deadline)
        except (OtherUser, NoRoom) as error:
            raise _refused(f"the server {name!r}: {error}; choose another name for serve and attach") from None
        if entered is not None:
            return entered
        if time.monotonic() > deadline:
            others = ", ".join(map(repr, running())) or "none"
            what = f"no server {name!r} of this user runs on this machine (running: {others})"
            raise _refused(f"{what}; start it with gluonloader.serve(loader, {name!r})")
        time.sleep(_LOOK_S)


def _try_to_enter(name: str, deadline: float) -> tuple[socket.socket, ConsumerWelcome] | None:
    """The same; None if there is no server, or it ends just now."""

    def seconds() -> float:
        return max(_LEAST_S, deadline - time.monotonic())

    def await_answer(connection: socket.socket) -> None:
        if not is_ready(connection, select.POLLIN, seconds()):
            why = f"it does not answer; {_SILENT}; to wait for longer, pass wait=... to attach"
            raise _refused(f"the server {name!r}: {why}")

    connection = connect(address_of(name), seconds())
    if connection is None:
        return None
    answer = greet(connection, Hello(library_version()), await_answer, ConsumerWelcome)
    if isinstance(answer, Refused):
        raise _refused(f"the server {name!r}: {answer.why}")
    return None if answer is None else (connection, answer)


def _refused(text: str) -> ConnectionRefusedError:
    return ConnectionRefusedError(errno.ECONNREFUSED, text)
