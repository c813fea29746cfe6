"""The job that workers get when they start, the tasks that they get for batches, and the note on errors in a task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

from ..checks import ErrorAction
from ..errors import BatchifyError, add_note, as_exception
from ..indices import Keys, as_list
from ..interrupts import from_signal_handler
from ..messages import message

OnRow = Callable[[int], None]  # is called with the row of a sample before that sample is read


@message(frozen=True, slots=True)
class Reading:
    """How samples are read; see the arguments of `DataLoader` with these names."""

    concurrency: int = 1
    on_error: ErrorAction = "raise"
    replaces_from_all: bool = False  # "replace" takes any sample of the dataset; otherwise only samples of the batch
    reseed_generators: bool = True


@message(frozen=True, slots=True)
class Job:
    """How the batches of a loader are made; for fields without a comment see the arguments of `DataLoader`."""

    dataset: Any
    batchify_fn: Callable[[Any], Any]
    worker_init_fn: Callable[[Any], object] | None
    num_workers: int
    seed: int
    iterable: bool = False  # the dataset is read in shards, each by one worker
    streams: Any = None  # the only worker reads an iterable dataset through these `Streams`; None: each has its own
    payloads: tuple[Any, ...] = ()  # `WorkerInfo.payload` of each worker; empty without `worker_payload`
    epoch: int = 0  # the epoch that the first workers start for
    reading: Reading = field(default_factory=Reading)


@message(frozen=True, slots=True)
class Hint:
    """A point in a source from which a worker can read without reading what comes before it."""

    group: int  # number of the group that comes next; see NOTE [streams] in streams.py
    state: Any  # the state of the source there, as JSON; None at group 0


@message(frozen=True, slots=True)
class Chunk:
    """The samples of one shard that make one batch."""

    shard: int
    num_shards: int
    number: int  # t, for the samples [t * size, (t + 1) * size) of the shard
    size: int  # number of samples
    epoch: int
    seed: int  # the loader's
    iteration: int  # differs between the iterators of a loader, so that they do not share streams
    buffer: int  # size of the shuffle buffer in samples; 0 for no shuffling
    hint: Hint | None  # where a worker that needs a new stream starts to read; None for the start of the shard

    def __len__(self) -> int:
        return self.size


@message(frozen=True, slots=True)
class Samples:
    """Samples that workers have read before (leftovers of shards), to be combined into one batch."""

    samples: list[Any]

    def __len__(self) -> int:
        return len(self.samples)


@message(frozen=True, slots=True, eq=False)
class Task:
    """One batch to make."""

    epoch: int
    batch: int  # number of the batch in its epoch, from 0; negative for a leftover that is read again
    seed: int  # of the loader or its rank; see NOTE [batch seeds] in randomness/seeds.py
    work: Keys | Chunk | Samples  # the keys of samples in a map-style dataset, or what to read of an iterable one
    worker: int | None = None  # the worker that has to make it; None for any

    def __str__(self) -> str:
        if self.batch < 0 and isinstance(self.work, Chunk):
            return f"the leftover of shard {self.work.shard} in epoch {self.work.epoch}, read again,"
        return f"batch {self.batch} of epoch {self.epoch}"

    def sample(self, row: int) -> str:
        """The name of a sample in error texts, from its row in the batch."""
        if isinstance(self.work, Chunk):
            return f"sample {self.work.number * self.work.size + row} of shard {self.work.shard}"
        return f"leftover sample {row}" if self.indices is None else f"dataset[{self.indices[row]!r}]"

    @property
    def indices(self) -> list[Any] | None:
        """The indices of its samples; None for an iterable dataset."""
        return None if isinstance(self.work, (Chunk, Samples)) else as_list(self.work)


def located(error: BaseException, raiser: str, place: str) -> Exception:
    """The user's error with a note on the place; replaced by a RuntimeError if it would end a loop or the program.

    If a signal handler has raised the error, it is raised again unchanged: nothing is wrong with that place.
    """
    if from_signal_handler(error):
        raise error
    exception = as_exception(error, raiser)
    add_note(exception, f"gluonloader: in {place}")
    return exception


def located_sample(error: BaseException, dataset: Any, index: Any, task: Task) -> Exception:
    """The error of a sample, with a note; see `located`."""
    call = f"dataset[{index!r}]"
    count = ""
    if isinstance(error, IndexError):
        with suppress(TypeError):  # it has no length
            count = f" of {len(dataset)} samples"
    return located(error, call, f"{call}{count}, {task}")


def located_bulk(error: BaseException, keys: Keys, task: Task) -> Exception:
    """The error of a bulk read, with a note; see `located`."""
    listed = f"{str(as_list(keys[:8]))[:-1]}{', ...' if len(keys) > 8 else ''}]"
    return located(error, call := f"dataset.__getitems__({listed})", f"{call}, {task}")


def with_index(error: BatchifyError, task: Task, rows: Sequence[int] | None) -> BatchifyError:
    """The same error, naming the sample by its index in the dataset; `rows` if samples were left out."""
    indices, row = task.indices, error.row
    if row is None or (indices is not None and row >= len(indices if rows is None else rows)):
        return error
    drawn = row if rows is None else rows[row]
    name = task.sample(drawn) if indices is None else f"sample {indices[drawn]!r}"
    named = BatchifyError(error.reason, row, error.path, f"{name} (row {row} of batch {task.batch})")
    return named.with_traceback(error.__traceback__)
