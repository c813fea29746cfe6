"""How a worker reads the samples of one task from a map-style dataset: one by one, at the same time, or in bulk.

task, keys --> Bulk:        dataset.__getitems__(keys)           --> samples
               OneByOne:    dataset[key] for each row of the batch --> samples, or a Gathered
               InThreads:   the same, for several rows at a time   --> samples
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..batchify import Gathered, default_batchify, holds_large_array
from ..dataset.bulk import read_by
from ..indices import Keys, as_list
from ..randomness import CurrentBatch, current_batch, set_current_batch
from .side_by_side import SharedRead, Threads
from .task import Job, OnRow, Task, located


class Reader(Protocol):
    """Reads the samples of tasks.

    Attributes:
        side_by_side: how many threads should each read a task at the same time.
    """

    side_by_side: int

    def read(self, task: Task, keys: Keys, on_row: OnRow | None) -> Sequence[Any] | Gathered:
        """The samples in the order of their keys; an error of user code gets a note, see `located`.

        Unless the samples are read in bulk, `on_row` is called with the row of each sample before it is read. Then the
        samples are read one by one, in this thread.
        """

    def close(self) -> None:
        """Ends the threads of the reader. Nothing is read any more."""


def reader_of(dataset: Any, job: Job, may_draw: bool) -> Reader:
    """The reader for a dataset; `may_draw`: `get_rng` may be called while a sample is read."""
    concurrency, bulk = job.reading.concurrency, getattr(dataset, "__getitems__", None)
    if bulk is not None:
        return Bulk(bulk, concurrency)
    one_by_one = OneByOne(dataset, job, may_draw)
    return one_by_one if concurrency == 1 else InThreads(dataset, one_by_one, concurrency, may_draw)


class Bulk:
    """Reads all samples of a task with one call."""

    def __init__(self, bulk: Callable[[Any], Sequence[Any]], concurrency: int) -> None:
        self._bulk, self.side_by_side = bulk, concurrency

    def read(self, task: Task, keys: Keys, on_row: OnRow | None) -> Sequence[Any]:
        try:
            return read_by(self._bulk, keys)
        except (Exception, SystemExit) as error:
            listed = f"{str(as_list(keys[:8]))[:-1]}{', ...' if len(keys) > 8 else ''}]"
            error = located(error, call := f"dataset.__getitems__({listed})", f"{call}, {task}")
            raise error

    def close(self) -> None:
        pass


class OneByOne:
    """Reads one sample after another."""

    side_by_side = 1

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
        return self._read_as(CurrentBatch(0), task, keys, on_row)

    def _read_as(self, batch: CurrentBatch, task: Task, keys: Keys, on_row: OnRow | None) -> list[Any] | Gathered:
        before = current_batch()
        try:
            set_current_batch(batch)
            return self._read(task, keys, on_row, batch)
        finally:
            set_current_batch(before)

    def _read(self, task: Task, keys: Keys, on_row: OnRow | None, batch: CurrentBatch) -> list[Any] | Gathered:
        dataset, indices, batching = self._dataset, as_list(keys), False
        index = indices[0]
        try:
            batch.row = 0
            if on_row is not None:
                on_row(0)
            first = dataset[index]
            batching = True  # `Gathered` allocates the batch's arrays
            gathers = self._gathers and len(indices) > 1 and holds_large_array(first)
            samples: list[Any] | Gathered = Gathered(first, len(indices)) if gathers else [first]
            batching = False
            del first  # so that the next sample can use its memory
            if isinstance(samples, list) and on_row is None and not self._needs_rows:
                samples += [dataset[index := key] for key in indices[1:]]
                return samples
            for row, index in enumerate(indices[1:], 1):
                batch.row = row
                if on_row is not None:
                    on_row(row)
                samples.append(dataset[index])
        except (Exception, SystemExit) as error:
            if not batching:
                error = located_sample(error, dataset, index, task)
                raise error
            error = located(error, "batchify_fn", f"batchify_fn, {task}")
            raise error
        batch.row = None
        return samples

    def close(self) -> None:
        pass


class InThreads:
    """Reads up to `concurrency` samples of a batch at the same time, in the calling thread and in others."""

    side_by_side = 1

    def __init__(self, dataset: Any, one_by_one: OneByOne, concurrency: int, may_draw: bool) -> None:
        self._dataset, self._one_by_one = dataset, one_by_one
        self._others, self._may_draw = concurrency - 1, may_draw
        self._threads = Threads("gluonloader-read")

    def read(self, task: Task, keys: Keys, on_row: OnRow | None) -> list[Any] | Gathered:
        indices, batch = as_list(keys), current_batch()
        if on_row is not None or len(indices) == 1:
            return self._one_by_one.read(task, keys, on_row)
        seed = batch.seed if batch is not None and self._may_draw else 0
        shared = SharedRead(self._dataset, indices, seed)
        try:
            self._threads.run(shared.run, min(self._others, len(indices) - 1))
            shared.run()
            shared.wait()
        finally:
            shared.stopped = True  # an interrupt has ended this read; the other threads finish only their samples
        if (failed := shared.first_error()) is not None:
            row, error = failed
            if isinstance(error, (Exception, SystemExit)):
                error = located_sample(error, self._dataset, indices[row], task)
            raise error
        return shared.samples

    def close(self) -> None:
        self._threads.close()


def located_sample(error: BaseException, dataset: Any, index: Any, task: Task) -> Exception:
    """The error of a sample with a note; see `located`."""
    call = f"dataset[{index!r}]"
    beyond = isinstance(error, IndexError) and hasattr(dataset, "__len__")
    return located(error, call, f"{call}{f' of {len(dataset)} samples' if beyond else ''}, {task}")
