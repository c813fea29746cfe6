"""Makes any batch of an iterable dataset again, which means to read the samples before it; see NOTE [replay].

number of a chunk      read one shard up to that chunk
number of leftovers    read the whole epoch; with rollover also all epochs before it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..dataset.iterable import unwrap
from ..describe import class_name
from ..errors import bad_argument
from ..executors.serial import SerialExecutor
from ..interrupts import from_signal_handler
from ..position.shards import Leftover
from ..statistics.tally import Tally
from ..work.maker import BatchMaker
from ..work.task import Job
from .epoch import Delivered, Delivery, Epoch
from .plan import NOTHING
from .shard_source import ShardSource

_Result = tuple[Any, Delivered] | Exception  # a batch, or its error


def check_read(source: ShardSource, dataset: Any, batch: int, read: bool) -> None:
    """Raises a ValueError unless the samples before a batch may be read."""
    if hasattr(unwrap(dataset)[0], "__next__"):
        right = "it is a single iterator, which an iteration may be reading now; pass a function that makes an iterator"
        raise ValueError(f"dataset: {class_name(dataset)} cannot be read again: {right}, as IterableDataset(make)")
    if not read:
        chunk, shard = divmod(batch, source.shards.num_shards)
        samples = (chunk + 1) * source.shards.batch_size
        right = f"this reads at least {samples:,} samples, shard {shard} up to this batch; pass read=True to read them"
        raise bad_argument("read", read, f"to make batch {batch} of {class_name(dataset)} again, {right}")


def make(source: ShardSource, job: Job, maker: BatchMaker, epoch: int, batch: int) -> Any:
    """The batch with a number; ValueError if there is none."""
    # A batch of leftovers may have the same number as a chunk of another rank.
    if source.shards.owns(batch % source.shards.num_shards):
        made = _make_chunk(source, job, maker, epoch, batch)
        if made is not NOTHING:
            return made
    _, made = _read_to(_start_reading(source, job, epoch), batch)
    if isinstance(made, Exception):
        raise made
    return made[0]


def _make_chunk(source: ShardSource, job: Job, maker: BatchMaker, epoch: int, number: int) -> Any:
    plan = source.other_plan(epoch, job.seed, [])
    task, streams = plan.chunk_task(number), maker.new_streams()
    try:
        return plan.accept(task, maker.make(task, streams=streams))
    finally:
        streams.close()


def position(source: ShardSource, job: Job, epoch: int, batch: int) -> dict[str, Any]:
    """The position before the batch with a number; ValueError if there is none."""
    reading = _start_reading(source, replace(job, batchify_fn=_nothing), epoch)
    return _read_to(reading, batch)[0] if batch else reading.plan.state()


def _read_to(reading: Epoch, batch: int) -> tuple[dict[str, Any], _Result]:
    """The position before a batch, and that batch or its error."""
    while True:
        before, made = reading.plan.state(), _next(reading)
        if made is None:
            count = reading.plan.position
            raise bad_argument("batch", batch, f"epoch {reading.plan.epoch} has only {count} batches")
        if isinstance(made, Exception):
            if reading.plan.state()["batch"] > batch:
                return before, made
        elif (number := made[1].task.batch) == batch:
            return before, made
        elif number > batch:
            why = "its shard has ended before, or all its samples raised errors and were skipped"
            right = f"epoch {reading.plan.epoch} has no batch with this number: {why}; the next number is {number}"
            raise bad_argument("batch", batch, right)


def _start_reading(source: ShardSource, job: Job, epoch: int) -> Epoch:
    """An epoch in the calling thread that is no epoch of the loader."""
    job = replace(job, worker_init_fn=None, reading=replace(job.reading, concurrency=1))  # it was called before
    executor, delivery = SerialExecutor(job), Delivery(in_order=True, timeout=None, convert=None)
    carried: list[Leftover] = []
    for earlier in range(epoch if source.shards.last_batch == "rollover" else 0):
        plan = source.other_plan(earlier, job.seed, carried)
        _read_all(Epoch(executor, plan, delivery, Tally()))
        carried = plan.carried_over
    return Epoch(executor, source.other_plan(epoch, job.seed, carried), delivery, Tally())


def _read_all(reading: Epoch) -> None:
    while _next(reading) is not None:
        pass


def _next(reading: Epoch) -> _Result | None:
    """The next batch, or its error; None at the end."""
    try:
        return reading.next()
    except StopIteration:
        return None
    except Exception as error:
        if from_signal_handler(error):
            raise
        return error


def _nothing(samples: Sequence[Any]) -> None:
    pass
