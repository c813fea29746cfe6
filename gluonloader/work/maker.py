"""How a worker makes one batch: it reads the samples and calls batchify_fn.

Task(indices) -> a reader of reading.py -> batchify_fn -> batch
Task(Chunk)   -> the worker's streams   -> batchify_fn -> ShardBatch, or ShardEnd: the shard has ended
Task(Samples) ->                           batchify_fn -> batch
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from ..batchify import Gathered
from ..declared import draws
from ..errors import BatchifyError
from ..randomness import Held, batch_seed, find_generators, seed_also
from .info import WorkerInfo, running_as
from .reading import reader_of
from .streams import Streams, seeded_parts
from .task import Chunk, Hint, Job, OnRow, Samples, Task, located
from .tolerance import GivenUp, Tolerance, Tolerated, part


@dataclass(frozen=True, slots=True)
class ShardBatch:
    """A batch of one shard of an iterable dataset; for `hint` and `first` see `ChunkSamples`."""

    batch: Any
    hint: Hint | None
    first: int = 0


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """The last samples of a shard, too few for a batch, perhaps none; for `first` see `ChunkSamples`."""

    samples: list[Any]
    first: int = 0


def may_draw(job: Job) -> bool:
    """Whether making a batch may draw random numbers; False only if the dataset and batchify_fn cannot."""
    return draws(job.dataset) or draws(job.batchify_fn)


class BatchMaker:
    """Makes the batches of one worker.

    Args:
        job: the dataset, the functions and the options.
        worker: the worker's number.
        seed: a function that seeds the random generators, see NOTE [batch seeds] in randomness.
    """

    def __init__(self, job: Job, worker: int, seed: Callable[[int], None]) -> None:
        self._job, self._seed = job, seed
        self.held: list[Held] = []  # the generators that are seeded for each batch, besides the global ones
        # If False, random generators are not seeded, since seeding takes as long as making a small batch.
        tolerates = job.reading.on_error != "raise"
        self.may_draw = may_draw(job) or tolerates
        self._tolerance = Tolerance(job) if tolerates and not job.iterable else None
        self._reader = self._tolerance.reader if self._tolerance else reader_of(job.dataset, job, self.may_draw)
        # Whether `make` should always get `on_row`, since a sample that kills its worker is left out of its batch.
        self.notes_rows = self._tolerance is not None and job.reading.concurrency == 1
        self._streams = Streams(job.dataset, job.reading.on_error) if job.iterable else None
        self._info = info = WorkerInfo(worker)
        info.num_workers, info.seed, info.epoch = job.num_workers, batch_seed(job.seed, worker), 0
        info.dataset = job.dataset
        info.payload = job.payloads[worker] if job.payloads else None

    def running(self) -> AbstractContextManager[None]:
        return running_as(self._info)

    def start(self, epoch: int) -> None:
        self._info.epoch = epoch
        if self._job.worker_init_fn is not None:
            self._job.worker_init_fn(self._info)

    def find_generators(self) -> None:
        """Finds generators in the dataset and batchify_fn, and seeds them for each batch from now on."""
        job = self._job
        if job.reading.reseed_generators and self.may_draw:
            roots = seeded_parts(job.dataset) if job.iterable else (job.dataset,)
            self.held = find_generators(*roots, job.batchify_fn)
            self._seed = seed_also(self.held, self._seed)

    def make(
        self, task: Task, on_row: OnRow | None = None, careful: bool = False, given_up: GivenUp | None = None
    ) -> Any:
        """Reads the samples of a task and makes one batch of them; an error of user code gets a note, see `located`.

        Unless the samples are read in bulk, `on_row` is called with the row of each sample before it is read. For
        `careful` and `given_up`, which apply only with `on_error`, see `Tolerance.read`.
        """
        self._info.epoch = task.epoch
        work = task.work
        if isinstance(work, Chunk):
            return self._make_chunk(task, work, on_row)

        def seed() -> None:
            self._seed(batch_seed(task.seed, task.epoch, task.batch))

        if self.may_draw:
            seed()
        if isinstance(work, Samples):
            return self._batchify(task, work.samples)
        if self._tolerance is None:
            return self._batchify(task, self._reader.read(task, work, on_row))
        return self._batchify(task, self._tolerance.read(task, work, on_row, careful, given_up or {}, seed))

    def _make_chunk(self, task: Task, chunk: Chunk, on_row: OnRow | None) -> ShardBatch | ShardEnd:
        assert self._streams is not None
        read = self._streams.read(chunk, lambda number: self._seed(batch_seed(chunk.seed, chunk.epoch, number)), on_row)
        if len(read.samples) < chunk.size:
            return ShardEnd(read.samples, read.first)
        return ShardBatch(self._batchify(task, read.samples), read.hint, read.first)

    def _batchify(self, task: Task, samples: Sequence[Any] | Gathered) -> Any:
        parted = part(task, samples)
        if parted is None:
            return self._batch_of(task, samples, None)
        batch = self._batch_of(task, parted.samples, parted.rows) if parted.samples else None
        return Tolerated(batch, parted.errors, is_empty=not parted.samples)

    def _batch_of(self, task: Task, samples: Sequence[Any] | Gathered, rows: Sequence[int] | None) -> Any:
        try:
            return samples.batch() if isinstance(samples, Gathered) else self._job.batchify_fn(samples)
        except BatchifyError as error:
            raise _with_index(error, task, rows) from error.__cause__
        except (Exception, SystemExit) as error:
            error = located(error, "batchify_fn", f"batchify_fn, {task}")
            raise error


def _with_index(error: BatchifyError, task: Task, rows: Sequence[int] | None) -> BatchifyError:
    """The same error, naming the sample by its index in the dataset; `rows` if samples were left out."""
    indices, row = task.indices, error.row
    if row is None or (indices is not None and row >= len(indices if rows is None else rows)):
        return error
    drawn = row if rows is None else rows[row]
    name = task.sample(drawn) if indices is None else f"sample {indices[drawn]!r}"
    with_index = BatchifyError(error.reason, row, error.path, f"{name} (row {row} of batch {task.batch})")
    return with_index.with_traceback(error.__traceback__)
