"""How a worker makes one batch: it reads the samples and calls batchify_fn.

Task(indices) -> a reader of reading.py -> batchify_fn -> batch
Task(Chunk)   -> the worker's streams   -> batchify_fn -> ShardBatch, or ShardEnd: the shard has ended
Task(Samples) ->                           batchify_fn -> batch

A worker has one `BatchMaker`. If bulk reads run side by side, each thread has a `BesideMaker`, which uses it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..batchify import Gathered
from ..dataset.iterable import seeded_parts
from ..dataset.opening import NewestIterators
from ..declared import draws
from ..errors import BatchifyError, logger
from ..indices import Keys
from ..locks import Lock
from ..memory import for_samples
from ..randomness import (
    Draws,
    Held,
    batch_seed,
    current_batch,
    find_generators,
    seed_also,
    set_current_batch,
    set_current_seed,
)
from .caught import NO_PRECAUTIONS, Precautions
from .info import RunningAs, WorkerInfo
from .reading import reader_of, side_by_side
from .task import Chunk, Job, OnRow, Samples, Task, located, with_index
from .tolerance import Tolerance, Tolerated, part
from .usage import Resources, Timer, Usage, thread_resources

if TYPE_CHECKING:
    from .streams import ShardBatch, ShardEnd, Streams

_DREW: Final = (
    "samples drew random numbers from %s, which several threads share because of concurrency=%s: these numbers differ "
    "from run to run; draw from gluonloader.get_rng() instead"
)


def may_draw(job: Job) -> bool:
    """Whether making a batch may draw random numbers; False only if the dataset and batchify_fn cannot."""
    return draws(job.dataset) or draws(job.batchify_fn)


def held_by(job: Job) -> list[Held]:
    """The generators that the dataset and batchify_fn hold."""
    return find_generators(*(seeded_parts(job.dataset) if job.iterable else (job.dataset,)), job.batchify_fn)


class Maker:
    """Makes batches in one thread of a worker, one after another.

    Args:
        info: what `get_worker_info` returns there.
        resources: measures the resources that are used there.

    Attributes:
        worker: number of the worker.
        timer: measures the batches of this maker.
    """

    def __init__(self, info: WorkerInfo, resources: Callable[[], Resources]) -> None:
        self.worker, self.timer, self._info = info.id, Timer(resources), info

    def running(self) -> RunningAs:
        """Within the `with` block, this thread is the worker."""
        return RunningAs(self._info)

    @property
    def notes_rows(self) -> bool:
        """Whether each row should be noted, since a sample that kills its worker is left out of its batch."""
        raise NotImplementedError

    def make(self, task: Task, precautions: Precautions = NO_PRECAUTIONS, streams: Streams | None = None) -> Any:
        """Reads the samples of a task and makes one batch of them; an error of user code gets a note, see `located`.

        Args:
            streams: from which chunks are read; None for a map-style dataset.
        """
        raise NotImplementedError

    def measured(self, make: Callable[..., Any], task: Task, usage: Usage, streams: Streams | None) -> Any:
        """Calls `make`, a method that makes a batch with this maker, and reports the time that it takes."""
        self.timer.start()
        try:
            return make(task, streams=streams)
        finally:
            usage.add(self.worker, self.timer.stop(task.epoch, task.batch))


class BatchMaker(Maker):
    """Makes the batches of one worker.

    Args:
        job: the dataset, the functions and the options.
        worker: the worker's number.
        seed: a function that seeds the random generators, see NOTE [batch seeds] in randomness/seeds.py.
        resources: measures the resources that the worker has used.

    Attributes:
        held: the generators that are seeded for each batch, besides the global ones.
        may_draw: if False, random generators are not seeded, since seeding takes as long as making a small batch.
        reads_streams: the dataset is iterable; see `new_streams`.
        side_by_side: how many threads of the worker should make batches at the same time; see `beside`.
    """

    def __init__(
        self,
        job: Job,
        worker: int,
        seed: Callable[[int], None],
        resources: Callable[[], Resources] = thread_resources,
    ) -> None:
        super().__init__(_info_of(job, worker), resources)
        self._job, self._seed = job, seed
        self.held: list[Held] = []
        self._tolerates = job.reading.on_error != "raise"
        self.may_draw = may_draw(job) or self._tolerates
        self._tolerance = Tolerance(job) if self._tolerates and not job.iterable else None
        self._reader = self._tolerance.reader if self._tolerance else reader_of(job.dataset, job, self.may_draw)
        self._notes_rows = self._tolerance is not None and job.reading.concurrency == 1
        self.side_by_side = side_by_side(job)
        self._lock = Lock()  # held by the thread that runs batchify_fn, if several threads make batches
        # Looks for draws from generators that are seeded for each batch, but that several threads share now.
        shares = job.reading.concurrency > 1 and self.may_draw and not job.iterable and seed is not set_current_seed
        self._draws = Draws(self.held) if shares else None
        self.reads_streams, self._newest = job.iterable, NewestIterators()

    @property
    def notes_rows(self) -> bool:
        return self._notes_rows

    def close(self) -> None:
        """Ends the threads that read samples. No batch is made any more."""
        self._reader.close()

    def new_streams(self) -> Streams:
        """Streams over an iterable dataset. Whoever reads them keeps them, and drops them when nobody reads them."""
        if self._job.streams is not None:
            own: Streams = self._job.streams
            return own
        from .streams import Streams

        return Streams(self._job.dataset, self._job.reading.on_error, self._newest)

    def start(self, epoch: int) -> None:
        self._info.epoch = epoch
        if self._job.worker_init_fn is not None:
            self._job.worker_init_fn(self._info)

    def find_generators(self) -> None:
        """Finds generators in the dataset and batchify_fn, and seeds them for each batch from now on."""
        if self._job.reading.reseed_generators and self.may_draw:
            self.held += held_by(self._job)
            self._seed = seed_also(self.held, self._seed)

    def beside(self) -> BesideMaker:
        """A maker for another thread of this worker, after `start`; bulk reads of these makers run at the same time."""
        return BesideMaker(self, copy.copy(self._info))

    def make(self, task: Task, precautions: Precautions = NO_PRECAUTIONS, streams: Streams | None = None) -> Any:
        self._info.epoch = task.epoch
        work = task.work
        if isinstance(work, Chunk):
            assert streams is not None
            return self._make_chunk(task, work, precautions.on_row, streams)
        if self.may_draw:
            self._seed_for(task)
        if isinstance(work, Samples):
            self.timer.note_read()
            return self.batchify(task, work.samples)
        draws = self._draws if self.side_by_side == 1 else None
        if draws is not None:
            draws.mark()
        samples = self.read(task, work, precautions)
        self.timer.note_read()
        if draws is not None:
            self._warn_of_draws(draws.found())
        return self.batchify(task, samples)

    def _make_chunk(self, task: Task, chunk: Chunk, on_row: OnRow | None, streams: Streams) -> ShardBatch | ShardEnd:
        with for_samples():
            read = streams.read(chunk, lambda number: self._seed(batch_seed(chunk.seed, chunk.epoch, number)), on_row)
        self.timer.note_read()
        if len(read.samples) < chunk.size:
            return read.as_end()
        return read.with_batch(self.batchify(task, read.samples))

    def read(self, task: Task, keys: Keys, precautions: Precautions) -> Sequence[Any] | Gathered:
        """The samples of a map-style dataset."""
        if self._tolerance is None:
            return self._reader.read(task, keys, precautions.on_row)
        return self._tolerance.read(task, keys, precautions, partial(self._seed_for, task))

    def _seed_for(self, task: Task) -> None:
        if self._draws is not None:
            self._draws.forget()
        self._seed(batch_seed(task.seed, task.epoch, task.batch))

    def _warn_of_draws(self, names: list[str]) -> None:
        if names:
            logger().warning(_DREW, " and ".join(names), self._job.reading.concurrency)

    def batchify(self, task: Task, samples: Sequence[Any] | Gathered) -> Any:
        """The batch of these samples, or a `Tolerated`."""
        parted = part(task, samples) if self._tolerates else None
        if parted is None:
            return self._batch_of(task, samples, None)
        batch = self._batch_of(task, parted.samples, parted.rows) if parted.samples else None
        return Tolerated(batch, parted.errors, is_empty=not parted.samples)

    def _batch_of(self, task: Task, samples: Sequence[Any] | Gathered, rows: Sequence[int] | None) -> Any:
        try:
            return samples.batch() if isinstance(samples, Gathered) else self._job.batchify_fn(samples)
        except BatchifyError as error:
            raise with_index(error, task, rows) from error.__cause__
        except BaseException as error:
            error = located(error, "batchify_fn", f"batchify_fn, {task}")
            raise error

    @contextmanager
    def alone(self, task: Task) -> Iterator[None]:
        """Within the block, a `BesideMaker` makes the batch of the samples that it has read.

        Only one thread at a time runs `batchify_fn` and draws from the global generators.
        """
        batch = current_batch()
        with self._lock:
            if self._draws is not None:
                self._warn_of_draws(self._draws.found())
            if self.may_draw:
                self._seed_for(task)
                set_current_batch(batch)  # its generator continues after the numbers that the read drew
            try:
                yield
            finally:
                if self._draws is not None:
                    self._draws.mark()


class BesideMaker(Maker):
    """Makes batches in one thread of a worker, side by side with other threads of this worker."""

    def __init__(self, worker: BatchMaker, info: WorkerInfo) -> None:
        super().__init__(info, thread_resources)
        self._worker = worker

    @property
    def notes_rows(self) -> bool:
        return self._worker.notes_rows

    def make(self, task: Task, precautions: Precautions = NO_PRECAUTIONS, streams: Streams | None = None) -> Any:
        self._info.epoch = task.epoch
        assert not isinstance(task.work, (Chunk, Samples)), "only bulk reads run side by side"
        set_current_seed(batch_seed(task.seed, task.epoch, task.batch))
        samples = self._worker.read(task, task.work, precautions)
        with self._worker.alone(task):
            self.timer.note_read()
            return self._worker.batchify(task, samples)


def _info_of(job: Job, worker: int) -> WorkerInfo:
    info = WorkerInfo(worker)
    info.num_workers, info.seed, info.epoch = job.num_workers, batch_seed(job.seed, worker), 0
    info.dataset = job.dataset
    info.payload = job.payloads[worker] if job.payloads else None
    return info
