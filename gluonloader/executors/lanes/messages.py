"""The messages that go through a lane: requests and replies of fixed size. All larger data lies in a slab."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import numpy as np

from ...memory.slab import Head
from ...work.caught import GivenUp
from ...work.task import Task

_REQUEST: Final = struct.Struct("<BBIQQQQ")
_REPLY: Final = struct.Struct("<BIQQQQQ")
REPLY_BYTES: Final = _REPLY.size


class Verb(IntEnum):
    """What a request asks for."""

    HELLO = 0  # start; the descriptors of the lane's log and of the pickled job come with it
    MAKE = 1  # make a batch
    DROP = 2  # forget a slab
    JOIN = 3  # serve the lane of one more rank, whose descriptor comes with this message
    END_STREAMS = 4  # close the streams of the iteration whose number is in `ticket`


class Status(IntEnum):
    """What a reply says."""

    READY = 0  # the worker has started
    BROKEN = 1  # the worker could not start, or is about to end; the error lies in the lane's log
    MADE = 2  # a batch lies in the slab
    FAILED = 3  # an exception lies in the slab
    SKIPPED = 4  # the attempt had been cancelled
    NO_ROOM = 5  # the batch needs `size` bytes, more than the slab was allowed
    LOST = 6  # the batch has not arrived, or the worker does not have the slab


_VERBS: Final = tuple(Verb)  # indexing a tuple costs less than calling the class
_STATUSES: Final = tuple(Status)


@dataclass(slots=True)
class Request:
    """From the main program to a worker."""

    verb: Verb
    new: bool = False  # the slab's descriptor comes with this message
    careful: bool = False  # note each sample in the slab before it is read, since the last worker died
    slab: int = 0  # its number
    ticket: int = 0  # of the attempt, see NOTE [tickets] in process/socket_lane.py; with HELLO the epoch
    size: int = 0  # bytes of the slab; with HELLO those of the file of the pickled job
    allowance: int = 0  # bytes to which the slab may grow
    length: int = 0  # bytes of the encoded task at the slab's start; with HELLO those of the pickles in the job's file

    def encode(self) -> bytes:
        flags = self.new | self.careful << 1
        return _REQUEST.pack(self.verb, flags, self.slab, self.ticket, self.size, self.allowance, self.length)


@dataclass(slots=True)
class Reply:
    """From a worker to the main program; slab and ticket are those of the request."""

    status: Status
    slab: int = 0
    ticket: int = 0
    size: int = 0  # bytes of the slab now
    head: Head = field(default_factory=lambda: Head(0, 0, 0))  # where the batch's head, or the pickled error, lies

    def encode(self) -> bytes:
        head = self.head
        return _REPLY.pack(self.status, self.slab, self.ticket, self.size, head.offset, head.length, head.tail)


class RequestReader:
    """Cuts a stream of bytes into requests; an incomplete last request is completed by the next bytes."""

    _rest = b""

    def read(self, data: bytes) -> Iterator[Request]:
        data = self._rest + data
        complete = len(data) - len(data) % _REQUEST.size
        self._rest = data[complete:]
        for verb, flags, slab, ticket, size, allowance, length in _REQUEST.iter_unpack(data[:complete]):
            yield Request(_VERBS[verb], bool(flags & 1), bool(flags & 2), slab, ticket, size, allowance, length)


def read_replies(data: bytes) -> list[Reply]:
    """The complete replies at the start of `data`."""
    complete = len(data) - len(data) % REPLY_BYTES
    return [
        Reply(_STATUSES[status], slab, ticket, size, Head(offset, length, tail))
        for status, slab, ticket, size, offset, length, tail in _REPLY.iter_unpack(data[:complete])
    ]


def encode_task(task: Task, given_up: GivenUp | None = None) -> bytes:
    """A task as bytes for the start of its slab; an array of indices is encoded as bytes, which pickle faster."""
    work = task.work.tobytes() if isinstance(task.work, np.ndarray) else task.work
    return pickle.dumps((task.epoch, task.batch, task.seed, work, given_up), protocol=5)


def decode_task(data: bytes) -> tuple[Task, GivenUp | None]:
    """The task that `encode_task` encoded, without its `worker`, and the samples that are given up."""
    epoch, batch, seed, work, given_up = pickle.loads(data)
    return Task(epoch, batch, seed, np.frombuffer(work, np.int64) if isinstance(work, bytes) else work), given_up
