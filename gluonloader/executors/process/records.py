"""What goes through a lane: fixed-size requests and replies, everything larger lies in the slab that they name.

The messages are dataclasses that nobody changes, but not frozen ones: those take 0.1 us a field to make, and some are
made for every batch on both sides.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from ...memory.reduce import Head

__all__ = ["Reply", "ReplyReader", "Request", "RequestReader", "Status", "Verb"]

_REQUEST: Final = struct.Struct("<BBIQQQQ")
_REPLY: Final = struct.Struct("<BIQQQQQ")


class Verb(IntEnum):
    """What a request asks for."""

    HELLO = 0  # first on a lane: two descriptors come with it, the lane's notes and the pickled job
    MAKE = 1  # make a batch
    DROP = 2  # forget a slab
    SHOW = 3  # look at a slab that a later request reads from


class Status(IntEnum):
    """What a reply says."""

    READY = 0  # the worker has started
    BROKEN = 1  # the worker could not start; the error lies in the lane's notes
    MADE = 2  # a batch lies in the slab
    FAILED = 3  # an exception lies in the slab
    SKIPPED = 4  # the ticket had been taken back
    NO_ROOM = 5  # the batch needs `size` bytes, more than was allowed


_VERBS: Final = tuple(Verb)  # by number; a look-up costs less than calling the class
_STATUSES: Final = tuple(Status)


@dataclass(slots=True)
class Request:
    """Parent to worker.

    Attributes:
        verb: what is asked for.
        new: the slab's descriptor comes with this record.
        slab, ticket: see NOTE [tickets] in executors/lane.py; for HELLO `ticket` is the epoch.
        size: the slab's size in bytes.
        allowance: size in bytes to which it may grow.
        length: bytes of the pickled task at the slab's start; for HELLO, of the pickled job.
        careful: mark each sample before it is read, since this batch has killed a worker.
    """

    verb: Verb
    new: bool = False
    careful: bool = False
    slab: int = 0
    ticket: int = 0
    size: int = 0
    allowance: int = 0
    length: int = 0

    def encode(self) -> bytes:
        flags = self.new | self.careful << 1
        return _REQUEST.pack(self.verb, flags, self.slab, self.ticket, self.size, self.allowance, self.length)


@dataclass(slots=True)
class Reply:
    """Worker to parent; `size` is the slab's size now, `head` where the batch's (or the error's) head lies."""

    status: Status
    slab: int = 0
    ticket: int = 0
    size: int = 0
    head: Head = field(default_factory=lambda: Head(0, 0, 0))

    def encode(self) -> bytes:
        head = self.head
        return _REPLY.pack(self.status, self.slab, self.ticket, self.size, head.offset, head.length, head.spans)


class RecordReader:
    """Cuts a stream of bytes into whole records; keeps a last one that is not whole yet."""

    def __init__(self, record: struct.Struct) -> None:
        self._record, self._rest = record, b""

    def feed(self, data: bytes) -> Iterator[tuple[Any, ...]]:
        data = self._rest + data
        whole = len(data) - len(data) % self._record.size
        self._rest = data[whole:]
        return self._record.iter_unpack(data[:whole])


class RequestReader(RecordReader):
    """Bytes -> requests."""

    def __init__(self) -> None:
        super().__init__(_REQUEST)

    def read(self, data: bytes) -> Iterator[Request]:
        for verb, flags, slab, ticket, size, allowance, length in self.feed(data):
            yield Request(_VERBS[verb], bool(flags & 1), bool(flags & 2), slab, ticket, size, allowance, length)


class ReplyReader(RecordReader):
    """Bytes -> replies."""

    def __init__(self) -> None:
        super().__init__(_REPLY)

    def read(self, data: bytes) -> Iterator[Reply]:
        for status, slab, ticket, size, offset, length, spans in self.feed(data):
            yield Reply(_STATUSES[status], slab, ticket, size, Head(offset, length, spans))
