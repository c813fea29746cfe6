"""How a worker makes one batch: it reads the samples and calls batchify_fn.

Task(indices) -> a reader of reading.py -> batchify_fn -> batch
Task(Chunk)   -> the worker's streams   -> batchify_fn -> ShardBatch, or ShardEnd: the shard has ended
Task(Samples) ->                           batchify_fn -> batch
"""

from __future__ import annotations

import copy
import logging
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from ..batchify import Gathered
from ..declared import draws
from ..errors import BatchifyError
from ..indices import Keys
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
from .caught import GivenUp
from .info import WorkerInfo, running_as
from .reading import reader_of, side_by_side
from .streams import ShardBatch, ShardEnd, Streams, seeded_parts
from .task import Chunk, Job, OnRow, Samples, Task, located, with_index
from .tolerance import Tolerance, Tolerated, part
from .usage import Resources, Usage, thread_resources

_log = logging.getLogger("gluonloader")

_LONG_NS: Final = 1_000_000  # `getrusage` takes up to 2 us, so it is called only if batches take longer than this
_REPORT: Final = struct.Struct("=8q")
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


class Timer:
    """Measures the batches of one worker, one after another; see work/usage.py.

    A batch counts as computed without waiting and page faults if the batch before it took less than 1 ms.

    Args:
        resources: measures the resources that the worker has used.

    Attributes:
        took: nanoseconds that the last batch took.
    """

    def __init__(self, resources: Callable[[], Resources]) -> None:
        self._resources, self._before, self._is_long = resources, resources(), True
        self.took = 0
        self._start = self._end = time.perf_counter_ns()
        self._read = self._made = 0  # times that were noted since `start`

    def start(self) -> None:
        if self._is_long:
            self._before = self._resources()
        self._read = self._made = 0
        self._start = time.perf_counter_ns()

    def note_read(self) -> None:
        """The samples were read."""
        self._read = time.perf_counter_ns()

    def note_made(self) -> None:
        """`batchify_fn` has returned; what follows is transport."""
        self._made = time.perf_counter_ns()

    def stop(self, epoch: int, batch: int) -> bytes:
        """Returns the report on a batch, from the numbers of its epoch and in its epoch."""
        start, last, self._end = self._start, self._end, time.perf_counter_ns()
        cpu = self.took = self._end - start
        faults = 0
        if self._is_long:
            now = self._resources()
            cpu, faults = min(cpu, now.cpu_ns - self._before.cpu_ns), now.page_faults - self._before.page_faults
        self._is_long = self.took > _LONG_NS
        read = self._read or self._end  # the end if the batch has failed before
        key = (epoch & 0x7FFFFFFF) << 32 | batch & 0xFFFFFFFF
        batchify = (self._made or self._end) - read
        return _REPORT.pack(self._end, start - last, self.took, read - start, batchify, cpu, faults, key)


class BatchMaker:
    """Makes the batches of one worker.

    Args:
        job: the dataset, the functions and the options.
        worker: the worker's number; also an attribute.
        seed: a function that seeds the random generators, see NOTE [batch seeds] in randomness.
        resources: measures the resources that the worker has used.

    Attributes:
        side_by_side: how many threads of the worker should make batches at the same time; see `beside`.
        timer: measures the batches of this maker.
    """

    def __init__(
        self,
        job: Job,
        worker: int,
        seed: Callable[[int], None],
        resources: Callable[[], Resources] = thread_resources,
    ) -> None:
        self._job, self._seed, self.worker, self.timer = job, seed, worker, Timer(resources)
        self.held: list[Held] = []  # the generators that are seeded for each batch, besides the global ones
        # If False, random generators are not seeded, since seeding takes as long as making a small batch.
        self._tolerates = job.reading.on_error != "raise"
        self.may_draw = may_draw(job) or self._tolerates
        self._tolerance = Tolerance(job) if self._tolerates and not job.iterable else None
        self._reader = self._tolerance.reader if self._tolerance else reader_of(job.dataset, job, self.may_draw)
        # Whether `make` should always get `on_row`, since a sample that kills its worker is left out of its batch.
        self.notes_rows = self._tolerance is not None and job.reading.concurrency == 1
        self.side_by_side = side_by_side(job)
        self._lock = threading.Lock()  # held by the thread that runs batchify_fn, if several threads make batches
        self._is_beside = False
        # Looks for draws from generators that are seeded for each batch, but that several threads share now.
        shares = job.reading.concurrency > 1 and self.may_draw and not job.iterable and seed is not set_current_seed
        self._draws = Draws(self.held) if shares else None
        self._streams = Streams(job.dataset, job.reading.on_error) if job.iterable else None
        self._info = info = WorkerInfo(worker)
        info.num_workers, info.seed, info.epoch = job.num_workers, batch_seed(job.seed, worker), 0
        info.dataset = job.dataset
        info.payload = job.payloads[worker] if job.payloads else None

    def close(self) -> None:
        """Ends the threads that read samples. No batch is made any more."""
        self._reader.close()

    def running(self) -> AbstractContextManager[None]:
        return running_as(self._info)

    def start(self, epoch: int) -> None:
        self._info.epoch = epoch
        if self._job.worker_init_fn is not None:
            self._job.worker_init_fn(self._info)

    def find_generators(self) -> None:
        """Finds generators in the dataset and batchify_fn, and seeds them for each batch from now on."""
        if self._job.reading.reseed_generators and self.may_draw:
            self.held += held_by(self._job)
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
        if self._is_beside and not isinstance(work, Samples):
            return self._make_beside(task, work)
        if self.may_draw:
            self._seed_for(task)
        if isinstance(work, Samples):
            return self._batchify(task, work.samples)
        draws = self._draws if self.side_by_side == 1 else None
        if draws is not None:
            draws.mark()
        samples = self._read(task, work, on_row, careful, given_up)
        if draws is not None:
            self._warn_of_draws(draws.found())
        return self._batchify(task, samples)

    def make_measured(self, task: Task, usage: Usage) -> Any:
        """Calls `make`, and reports the time that it takes."""
        self.timer.start()
        try:
            return self.make(task)
        finally:
            usage.add(self.worker, self.timer.stop(task.epoch, task.batch))

    def _read(
        self, task: Task, keys: Keys, on_row: OnRow | None, careful: bool, given_up: GivenUp | None
    ) -> Sequence[Any] | Gathered:
        if self._tolerance is None:
            return self._reader.read(task, keys, on_row)
        return self._tolerance.read(task, keys, on_row, careful, given_up or {}, partial(self._seed_for, task))

    def _seed_for(self, task: Task) -> None:
        if self._draws is not None:
            self._draws.forget()
        self._seed(batch_seed(task.seed, task.epoch, task.batch))

    def _warn_of_draws(self, names: list[str]) -> None:
        if names:
            _log.warning(_DREW, " and ".join(names), self._job.reading.concurrency)

    def beside(self) -> BatchMaker:
        """A maker for another thread of this worker, after `start`; bulk reads of these makers run at the same time."""
        other = copy.copy(self)
        other._info, other.timer, other._is_beside = copy.copy(self._info), Timer(thread_resources), True
        return other

    def _make_beside(self, task: Task, keys: Keys) -> Any:
        """Only one thread at a time runs `batchify_fn` and draws from the global generators."""
        set_current_seed(batch_seed(task.seed, task.epoch, task.batch))
        samples = self._read(task, keys, None, False, None)
        batch = current_batch()
        with self._lock:
            if self._draws is not None:
                self._warn_of_draws(self._draws.found())
            if self.may_draw:
                self._seed_for(task)
                set_current_batch(batch)  # its generator continues after the numbers that the read drew
            try:
                return self._batchify(task, samples)
            finally:
                if self._draws is not None:
                    self._draws.mark()

    def _make_chunk(self, task: Task, chunk: Chunk, on_row: OnRow | None) -> ShardBatch | ShardEnd:
        assert self._streams is not None
        read = self._streams.read(chunk, lambda number: self._seed(batch_seed(chunk.seed, chunk.epoch, number)), on_row)
        if len(read.samples) < chunk.size:
            self.timer.note_read()
            return ShardEnd(read.samples, read.first)
        return ShardBatch(self._batchify(task, read.samples), read.hint, read.first)

    def _batchify(self, task: Task, samples: Sequence[Any] | Gathered) -> Any:
        self.timer.note_read()
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
        except (Exception, SystemExit) as error:
            error = located(error, "batchify_fn", f"batchify_fn, {task}")
            raise error
