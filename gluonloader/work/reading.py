"""How a worker reads the samples of one task from a map-style dataset.

    task, keys ---> Bulk:      dataset.__getitems__(keys)                ---> samples
                +-> OneByOne:  dataset[key] for each row of the batch    ---> samples, or a Gathered
                +-> InThreads: dataset[key] for several rows at a time   ---> samples
                +-> the readers of awaiting.py, for `async def` methods  ---> samples

`reader_of` chooses the reader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..batchify import Gathered, default_batchify, holds_large_array
from ..dataset.arrays import StackDataset
from ..dataset.bulk import bulk_read, read, read_by
from ..declared import is_async
from ..guests.torch_data import tensors_of
from ..indices import Keys, as_list
from ..memory import set_allocator
from ..randomness import CurrentBatch, current_batch, set_current_batch
from .side_by_side import ReadingThreads, SharedRead
from .task import Job, OnRow, Task, located, located_bulk, located_sample

if TYPE_CHECKING:
    from .event_loop import EventLoop

_MOST_SIDE_BY_SIDE: Final = 32  # bulk reads of one worker; each needs a batch in flight


class Reader(Protocol):
    """Reads the samples of tasks; several threads may read one task each."""

    def read(self, task: Task, keys: Keys, on_row: OnRow | None) -> Sequence[Any] | Gathered:
        """The samples in the order of their keys; an error of user code gets a note, see `located`.

        Unless the samples are read in bulk, `on_row` is called with the row of each sample before it is read, and the
        samples are read one by one.
        """

    def close(self) -> None:
        """Ends the threads of the reader. Nothing is read any more."""


def side_by_side(job: Job) -> int:
    """How many tasks each worker reads at the same time: one call of `__getitems__` reads a whole task."""
    in_bulk = not job.iterable and hasattr(job.dataset, "__getitems__")
    return min(job.reading.concurrency, _MOST_SIDE_BY_SIDE) if in_bulk else 1


def reader_of(dataset: Any, job: Job, may_draw: bool, event_loop: EventLoop | None = None) -> Reader:
    """The reader for a dataset.

    Args:
        may_draw: `get_rng` may be called while a sample is read.
        event_loop: where the methods of an async dataset are awaited; None for a new event loop.
    """
    concurrency, bulk = job.reading.concurrency, getattr(dataset, "__getitems__", None)
    if bulk is None and job.batchify_fn is default_batchify and tensors_of(dataset) is not None:
        bulk = TensorRows(dataset).__getitems__
    if is_async(dataset):
        from .awaiting import AwaitedBulk, AwaitedSamples  # importing asyncio takes 50 ms

        return AwaitedSamples(dataset, concurrency, event_loop) if bulk is None else AwaitedBulk(bulk, event_loop)
    if bulk is not None:
        return Bulk(bulk)
    one_by_one = OneByOne(dataset, job, may_draw)
    return one_by_one if concurrency == 1 else InThreads(dataset, one_by_one, concurrency, may_draw)


class Bulk:
    """Reads all samples of a task with one call."""

    def __init__(self, bulk: Callable[[Any], Sequence[Any]]) -> None:
        self._bulk = bulk

    def read(self, task: Task, keys: Keys, on_row: OnRow | None) -> Sequence[Any]:
        try:
            return read_by(self._bulk, keys)
        except BaseException as error:
            error = located_bulk(error, keys, task)
            raise error

    def close(self) -> None:
        pass


class TensorRows:
    """Reads samples of a `TensorDataset` of torch, which has no bulk read, as `Rows`.

    Functions of the user get a list of samples, since they were written for one.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._tensors: Any = None
        self._columns: Any = None

    @bulk_read(lambda self: True)
    def __getitems__(self, keys: Any) -> Any:
        tensors: Any = tensors_of(self._dataset)
        if tensors is not self._tensors:  # at first, and if the user has set others
            self._tensors, self._columns = tensors, StackDataset(*tensors)
        return read(self._columns, keys)


class OneByOne:
    """Reads one sample after another."""

    def __init__(self, dataset: Any, job: Job, may_draw: bool) -> None:
        self._dataset, self._may_draw = dataset, may_draw
        self._needs_rows = may_draw or job.reading.on_error != "raise"
        # default_batchify does not refer to samples later, so large arrays can be copied while the samples are read.
        self._gathers = job.batchify_fn is default_batchify

    def read(self, task: Task, keys: Keys, on_row: OnRow | None) -> list[Any] | Gathered:
        batch = current_batch()
        if batch is not None and self._may_draw:
            return self._read(task, keys, on_row, batch)
        # Nothing was seeded for this batch, so the current batch belongs to a loader whose sample uses this loader.
        if not self._needs_rows:
            return self._read(task, keys, on_row, CurrentBatch(0))
        try:
            set_current_batch(own := CurrentBatch(0))
            return self._read(task, keys, on_row, own)
        finally:
            set_current_batch(batch)

    def _read(self, task: Task, keys: Keys, on_row: OnRow | None, batch: CurrentBatch) -> list[Any] | Gathered:
        dataset, batching = self._dataset, False
        indices = keys if isinstance(keys, list) else keys.tolist()
        batch.row = 0
        allocate = set_allocator(None)  # as `for_samples`, which takes longer
        try:
            if on_row is not None:
                on_row(0)
            first = dataset[indices[0]]
            batching = True  # `Gathered` allocates the batch's arrays
            samples: list[Any] | Gathered = [first]
            if self._gathers and len(indices) > 1 and holds_large_array(first):
                set_allocator(allocate)
                samples = Gathered(first, len(indices))
                set_allocator(None)
            batching = False
            del first  # so that the next sample can use its memory
            rest = enumerate(indices[1:], 1)
            if isinstance(samples, list) and on_row is None:
                samples += [dataset[index] for batch.row, index in rest]
            else:
                for batch.row, index in rest:
                    if on_row is not None:
                        on_row(batch.row)
                    samples.append(dataset[index])
        except BaseException as error:
            if batching:
                error = located(error, "batchify_fn", f"batchify_fn, {task}")
            else:
                error = located_sample(error, dataset, indices[batch.row], task)
            raise error
        finally:
            set_allocator(allocate)
        batch.row = None
        return samples

    def close(self) -> None:
        pass


class InThreads:
    """Reads up to `concurrency` samples of a batch at the same time, in the calling thread and in others."""

    def __init__(self, dataset: Any, one_by_one: OneByOne, concurrency: int, may_draw: bool) -> None:
        self._dataset, self._one_by_one = dataset, one_by_one
        self._others, self._may_draw = concurrency - 1, may_draw
        self._threads = ReadingThreads("gluonloader-read")

    def read(self, task: Task, keys: Keys, on_row: OnRow | None) -> list[Any] | Gathered:
        indices, batch = as_list(keys), current_batch()
        if on_row is not None or len(indices) == 1:
            return self._one_by_one.read(task, keys, on_row)
        shared = SharedRead(self._dataset, indices, batch.seed if batch is not None and self._may_draw else 0)
        try:
            self._threads.start(others := min(self._others, len(indices) - 1))
            self._threads.run(shared.run, others)
            shared.run()
            shared.wait()
        finally:
            shared.stop()  # if an interrupt has ended this read
        if (failed := shared.first_error()) is not None:
            row, error = failed
            raise located_sample(error, self._dataset, indices[row], task)
        return shared.samples

    def close(self) -> None:
        self._threads.close()
