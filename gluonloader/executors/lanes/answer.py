"""How a worker answers a request: it makes the batch in a slab, or writes the error of the batch there.

task, in the slab --> BatchMaker.make, into the slab --> reduce --> Reply: where the batch lies
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from ...errors import SharedMemoryError
from ...memory import set_allocator
from ...memory.allocator import Arena
from ...memory.reduce import reduce
from ...memory.slab import HEADER, REPORT_BYTES, ROW, SINCE, Head, Slab
from ...work.caught import NO_PRECAUTIONS, Precautions
from ...work.maker import Maker
from ...work.task import OnRow
from .messages import Reply, Request, Status, decode_task
from .remote import encode_error, shorten_error

if TYPE_CHECKING:
    from ...work.streams import Streams

_ERROR_BYTES: Final = 32 * 1024  # fits into the smallest slab


def answer(
    maker: Maker, request: Request, slab: Slab, on_row: OnRow, who: str, streams: Streams | None = None
) -> Reply:
    """Makes the batch of the task in the slab.

    Args:
        on_row: called with each row before its sample is read, if the attempt notes rows.
        who: the worker, for the notes of errors.
        streams: those of an iterable dataset.
    """
    maker.timer.start()
    used = HEADER + request.length
    task, given_up = decode_task(slab.memory[HEADER:used])
    arena = Arena(slab, used, request.allowance)
    precautions = NO_PRECAUTIONS
    if request.careful or maker.notes_rows:
        precautions = Precautions(on_row, request.careful, given_up or {})
    try:
        set_allocator(arena.empty)
        batch = maker.make(task, precautions, streams)
        maker.timer.note_made()
        head = reduce(batch, arena)
    except BaseException as error:
        reply = _failed(request, slab, encode_error(error, who))
    else:
        status, head = (Status.MADE, head) if head else (Status.NO_ROOM, Head(0, arena.needed, 0))
        reply = Reply(status, slab.number, request.ticket, slab.size, head)
    slab.memory[REPORT_BYTES] = maker.timer.stop(task.epoch, task.batch)
    return reply


def _failed(request: Request, slab: Slab, error: bytes) -> Reply:
    # The batch is lost, so the error may overwrite it.
    arena = Arena(slab, HEADER + request.length, request.allowance)
    try:
        offset = arena.write(error)
    except SharedMemoryError:
        offset = None
    if offset is None:
        error = shorten_error(error, _ERROR_BYTES)
        offset = Arena(slab, HEADER + request.length, slab.size).write(error) or 0
    return Reply(Status.FAILED, slab.number, request.ticket, slab.size, Head(offset, len(error), 0))


def note_row(slab: Slab, row: int) -> None:
    """Notes a sample in the slab before it is read, so that the sample that kills its worker is known."""
    slab.control[SINCE] = time.monotonic_ns()  # before ROW: a new row with an old time would look slow
    slab.control[ROW] = row + 1
