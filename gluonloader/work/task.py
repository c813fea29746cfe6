"""What a worker is told: the job, once, and then one task for each batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..indices import Keys, as_list
from .streams import Chunk

__all__ = ["Job", "Part", "Samples", "Task"]


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is given once: how to make any batch of a loader."""

    dataset: Any
    batchify_fn: Callable[[Any], Any]
    worker_init_fn: Callable[[Any], object] | None
    num_workers: int
    seed: int
    iterable: bool = False  # the dataset is read in shards, each by one worker
    payloads: tuple[Any, ...] = ()  # of each worker, for its `WorkerInfo`
    epoch: int = 0  # that the first workers start for


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples that were read before, to be made a batch: what shards left over, or the parts of a first batch."""

    samples: list[Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a batch, whose samples are to be read only; see NOTE [first batch] in first.py."""

    number: int  # in its batch, from 0
    keys: Keys


@dataclass(slots=True, eq=False)  # not frozen: see records.py
class Task:
    """One batch to make."""

    epoch: int
    batch: int  # number in its epoch, from 0
    seed: int  # of the loader, or of its rank: NOTE [batch seeds] in randomness/seeds.py
    work: Keys | Chunk | Samples | Part  # keys: indices of a map-style dataset
    worker: int | None = None  # the worker that has to make it; None: any

    def __str__(self) -> str:
        if self.batch < 0 and isinstance(self.work, Chunk):
            return f"what shard {self.work.shard} left over in epoch {self.work.epoch}, read again,"
        return f"batch {self.batch} of epoch {self.epoch}"

    def sample(self, position: int) -> str:
        """What to call the sample at a position of the batch."""
        if isinstance(self.work, Chunk):
            return f"sample {self.work.number * self.work.size + position} of shard {self.work.shard}"
        return f"leftover sample {position}" if self.indices is None else f"dataset[{self.indices[position]!r}]"

    @property
    def indices(self) -> list[Any] | None:
        """The indices that it reads, if it is one of a map-style dataset."""
        work = self.work.keys if isinstance(self.work, Part) else self.work
        return None if isinstance(work, (Chunk, Samples)) else as_list(work)
