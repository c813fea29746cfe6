"""How one batch is made, by whichever worker: samples read, one by one or in bulk, and handed to batchify.

Task(indices) -> dataset[i] ..., or dataset.__getitems__ -> batchify -> batch
Task(Chunk)   -> the worker's streams  -> batchify -> ShardBatch, or Remainder: the shard has ended
Task(Samples) ->                          batchify -> batch
Task(Part)    -> dataset[i] ...                    -> list of samples, or Unsplit: NOTE [first batch] in first.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ..batchify import Gathered, default_batchify, gather
from ..dataset.bulk import read_by
from ..declared import draws
from ..errors import BatchifyError, add_note
from ..indices import Keys, as_list
from ..randomness import batch_seed
from .info import AtWork, WorkerInfo
from .streams import Chunk, Hint, Streams
from .task import Job, Part, Samples, Task

__all__ = ["Maker", "Remainder", "ShardBatch", "Unsplit", "may_draw"]

Mark = Callable[[int], None]
S = TypeVar("S", list[Any], "list[Any] | Gathered")


@dataclass(frozen=True, slots=True)
class ShardBatch:
    """A batch of one shard of an iterable dataset; `hint` and `first` are those of its `Piece`."""

    batch: Any
    hint: Hint | None
    first: int = 0


@dataclass(frozen=True, slots=True)
class Remainder:
    """The end of a shard: fewer samples than a batch has, perhaps none; `first` is that of its `Piece`."""

    samples: list[Any]
    first: int = 0


class Unsplit(Exception):
    """A batch is not to be read in parts; see NOTE [first batch] in first.py."""


def may_draw(job: Job) -> bool:
    """Whether making a batch may use random generators, as far as is known."""
    return draws(job.dataset) or draws(job.batchify_fn)


class Maker:
    """Makes the batches of one worker.

    Args:
        job: what is made.
        worker: the worker's number.
        seed: seeds the random generators that this kind of worker may seed; NOTE [batch seeds] in randomness/seeds.py.

    Attributes:
        draws: whether making a batch may use random generators, as far as is known.
        gathers: batches are made by `default_batchify`, which neither keeps nor changes a sample.
    """

    def __init__(self, job: Job, worker: int, seed: Callable[[int], None]) -> None:
        self._job, self._seed = job, seed
        # To seed generators, and in the caller to put them back, takes as long as making a small batch.
        self.draws = may_draw(job)
        self._bulk = getattr(job.dataset, "__getitems__", None)
        self.gathers = job.batchify_fn is default_batchify
        self._streams = Streams(job.dataset) if job.iterable else None
        self._info = info = WorkerInfo(worker)
        info.num_workers, info.seed, info.epoch = job.num_workers, batch_seed(job.seed, worker), 0
        info.dataset = job.dataset
        info.payload = job.payloads[worker] if job.payloads else None

    def at_work(self) -> AbstractContextManager[None]:
        """Within the block this thread is the worker."""
        return AtWork(self._info)

    def start(self, epoch: int) -> None:
        """Runs the user's `worker_init_fn`."""
        self._info.epoch = epoch
        if self._job.worker_init_fn is not None:
            self._job.worker_init_fn(self._info)

    def make(self, task: Task, mark: Mark | None = None) -> Any:
        """Reads the samples of a task and makes them one batch.

        Args:
            task: what to do.
            mark: called with each sample's position before it is read; not where they are read in bulk.

        Raises:
            Exception: the user's own, with a note that says which sample of which batch; `StopIteration` and
                `SystemExit` come as a RuntimeError, since they would end the user's loop or program without a word.
        """
        self._info.epoch = task.epoch
        if isinstance(task.work, Chunk):
            return self._make_chunk(task, task.work, mark)
        if self.draws:
            self._seed(batch_seed(task.seed, task.epoch, task.batch))
        if isinstance(task.work, Samples):
            return self._batchify(task, task.work.samples)
        if isinstance(task.work, Part):
            raise Unsplit("batches are not read in parts")
        if self._bulk is not None:
            return self._batchify(task, self._read_bulk(task, task.work))
        indices = as_list(task.work)
        if self.gathers:
            return self._batchify(task, self._read_into(partial(gather, count=len(indices)), task, indices, mark))
        return self._batchify(task, self._read(task, indices, mark))

    def _make_chunk(self, task: Task, chunk: Chunk, mark: Mark | None) -> ShardBatch | Remainder:
        assert self._streams is not None

        def seed_group(number: int) -> None:
            self._seed(batch_seed(chunk.seed, chunk.epoch, number))

        piece = self._streams.read(chunk, seed_group, mark)
        if len(piece.samples) < chunk.size:
            return Remainder(piece.samples, piece.first)
        return ShardBatch(self._batchify(task, piece.samples), piece.hint, piece.first)

    def _read(self, task: Task, indices: list[Any], mark: Mark | None) -> list[Any]:
        return self._read_into(lambda first: [first], task, indices, mark)

    def _read_into(self, begin: Callable[[Any], S], task: Task, indices: list[Any], mark: Mark | None) -> S:
        """The samples, in what `begin` makes of the first one."""
        dataset, index, batching = self._job.dataset, indices[0], ""
        try:
            if mark is not None:
                mark(0)
            first = dataset[index]
            batching = "batchify_fn"  # whose memory `begin` takes
            samples = begin(first)
            batching = ""
            del first  # its memory serves the next one
            if mark is None and isinstance(samples, list):
                samples += [dataset[index := key] for key in indices[1:]]
                return samples
            for position, index in enumerate(indices[1:], 1):
                if mark is not None:
                    mark(position)
                samples.append(dataset[index])
            return samples
        except (StopIteration, SystemExit) as error:
            raise _ended(error, task, f"dataset[{index!r}]") from error
        except Exception as error:
            beyond = isinstance(error, IndexError) and hasattr(dataset, "__len__")
            _note(error, task, batching or f"dataset[{index!r}]{f' of {len(dataset)} samples' if beyond else ''}")
            raise

    def _read_bulk(self, task: Task, indices: Keys) -> Sequence[Any]:
        try:
            return read_by(self._bulk, indices)  # type: ignore[arg-type]
        except (StopIteration, SystemExit) as error:
            raise _ended(error, task, _bulk_call(indices)) from error
        except Exception as error:
            _note(error, task, _bulk_call(indices))
            raise

    def _batchify(self, task: Task, samples: Sequence[Any] | Gathered) -> Any:
        try:
            return samples.batch() if isinstance(samples, Gathered) else self._job.batchify_fn(samples)
        except BatchifyError as error:
            raise _located(error, task) from error.__cause__
        except (StopIteration, SystemExit) as error:
            raise _ended(error, task, "batchify_fn") from error
        except Exception as error:
            _note(error, task, "batchify_fn")
            raise


def _bulk_call(indices: Keys) -> str:
    return f"dataset.__getitems__({str(as_list(indices[:8]))[:-1]}{', ...' if len(indices) > 8 else ''}])"


def _ended(error: BaseException, task: Task, where: str) -> Exception:
    return _note(RuntimeError(f"{where} raised {type(error).__name__}({error})"), task, where)


def _note(error: Exception, task: Task, where: str) -> Exception:
    add_note(error, f"gluonloader: in {where}, {task}")
    return error


def _located(error: BatchifyError, task: Task) -> BatchifyError:
    """The same error, naming the sample by its index in the dataset."""
    indices, position = task.indices, error.row
    if position is None or (indices is not None and position >= len(indices)):
        return error
    name = task.sample(position) if indices is None else f"sample {indices[position]!r}"
    located = BatchifyError(error.reason, position, error.path, f"{name} (batch {task.batch}, position {position})")
    return located.with_traceback(error.__traceback__)
