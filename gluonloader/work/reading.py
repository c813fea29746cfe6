"""How a worker reads the samples of one task from a map-style dataset: one by one, or in bulk.

task, keys --> Bulk:     dataset.__getitems__(keys)           --> samples
OneByOne: dataset[key] for each row of the batch --> samples, or a Gathered
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..batchify import Gathered, default_batchify, holds_large_array
from ..dataset.bulk import read_by
from ..indices import Keys, as_list
from ..randomness import CurrentBatch, current_batch
from .task import Job, OnRow, Task, located


class Reader(Protocol):
    """Reads the samples of one task at a time."""

    def read(self, task: Task, keys: Keys, on_row: OnRow | None) -> Sequence[Any] | Gathered:
        """The samples in the order of their keys; an error of user code gets a note, see `located`.

        Unless the samples are read in bulk, `on_row` is called with the row of each sample before it is read.
        """


def reader_of(dataset: Any, job: Job, may_draw: bool) -> Reader:
    """The reader for a dataset; `may_draw`: `get_rng` may be called while a sample is read."""
    bulk = getattr(dataset, "__getitems__", None)
    return OneByOne(dataset, job, may_draw) if bulk is None else Bulk(bulk)


class Bulk:
    """Reads all samples of a task with one call."""

    def __init__(self, bulk: Callable[[Any], Sequence[Any]]) -> None:
        self._bulk = bulk

    def read(self, task: Task, keys: Keys, on_row: OnRow | None) -> Sequence[Any]:
        try:
            return read_by(self._bulk, keys)
        except (Exception, SystemExit) as error:
            listed = f"{str(as_list(keys[:8]))[:-1]}{', ...' if len(keys) > 8 else ''}]"
            error = located(error, call := f"dataset.__getitems__({listed})", f"{call}, {task}")
            raise error


class OneByOne:
    """Reads one sample after another."""

    def __init__(self, dataset: Any, job: Job, may_draw: bool) -> None:
        self._dataset, self._may_draw = dataset, may_draw
        # default_batchify does not refer to samples later, so large arrays can be copied while the samples are read.
        self._gathers = job.batchify_fn is default_batchify

    def read(self, task: Task, keys: Keys, on_row: OnRow | None) -> list[Any] | Gathered:
        dataset, indices, batching = self._dataset, as_list(keys), False
        index, batch = indices[0], current_batch() or CurrentBatch(0)
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
            if isinstance(samples, list) and on_row is None and not self._may_draw:
                samples += [dataset[index := key] for key in indices[1:]]
                return samples
            for row, index in enumerate(indices[1:], 1):
                batch.row = row
                if on_row is not None:
                    on_row(row)
                samples.append(dataset[index])
        except (Exception, SystemExit) as error:
            call = "batchify_fn" if batching else f"dataset[{index!r}]"
            beyond = isinstance(error, IndexError) and hasattr(dataset, "__len__") and not batching
            error = located(error, call, f"{call}{f' of {len(dataset)} samples' if beyond else ''}, {task}")
            raise error
        batch.row = None
        return samples
