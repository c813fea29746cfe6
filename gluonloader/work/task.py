"""What workers are given: one job when they start, then one task for each batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..indices import Keys, as_list
from .chunk import Chunk


@dataclass(frozen=True, slots=True)
class Job:
    """How to make any batch of a loader.

    Attributes:
        dataset, batchify_fn, worker_init_fn, num_workers: as given to `DataLoader`.
        seed: the loader's seed.
        iterable: the dataset is read in shards, each by one worker.
        payloads: for each worker, the `payload` of its `WorkerInfo`; empty without `worker_payload`.
        epoch: the epoch that the first workers start for.
    """

    dataset: Any
    batchify_fn: Callable[[Any], Any]
    worker_init_fn: Callable[[Any], object] | None
    num_workers: int
    seed: int
    iterable: bool = False
    payloads: tuple[Any, ...] = ()
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples that workers read before, the leftovers of shards, to be made one batch."""

    samples: list[Any]


@dataclass(slots=True, eq=False)  # not frozen: a frozen dataclass takes 0.1 us more for each field
class Task:
    """One batch to make. Nobody changes a task.

    Attributes:
        epoch: number of the epoch.
        batch: number of the batch in its epoch, from 0; negative for a leftover that is read again.
        seed: of the loader, or of its rank; see NOTE [batch seeds] in randomness.
        work: keys of a map-style dataset, a chunk of a shard, or samples that were read before.
        worker: the worker that has to make it; None for any.
    """

    epoch: int
    batch: int
    seed: int
    work: Keys | Chunk | Samples
    worker: int | None = None

    def __str__(self) -> str:
        if self.batch < 0 and isinstance(self.work, Chunk):
            return f"the leftover of shard {self.work.shard} in epoch {self.work.epoch}, read again,"
        return f"batch {self.batch} of epoch {self.epoch}"

    def sample(self, row: int) -> str:
        """The name of a sample in texts, by its number in the batch."""
        if isinstance(self.work, Chunk):
            return f"sample {self.work.number * self.work.size + row} of shard {self.work.shard}"
        return f"leftover sample {row}" if self.indices is None else f"dataset[{self.indices[row]!r}]"

    @property
    def indices(self) -> list[Any] | None:
        """The indices of its samples; None for an iterable dataset."""
        return None if isinstance(self.work, (Chunk, Samples)) else as_list(self.work)
