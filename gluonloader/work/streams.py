"""How a worker reads the shards of an iterable dataset, chunk by chunk.

    source --groups--> fill of the shuffle buffer, permuted --chunks--> transforms --> samples

NOTE [streams]: chunk t of a shard is its samples [t * size, (t + 1) * size). A worker keeps a stream for each shard
that it reads. If the stream has not passed chunk t, it reads on to chunk t. Otherwise the worker opens the source
again, at a hint or at the start, and skips the samples before the chunk. So a chunk always has the same samples,
whichever worker reads it and however often, and each sample comes exactly once.

The source is read in groups of `size` samples. The groups that fit in the shuffle buffer (one group without shuffling)
are called a fill, and are permuted together. The permutation depends only on seed, epoch, shard and the number of the
fill. Each chunk that is taken from a fill makes room for one group of the next fill. So a hint always lies before the
first group of a fill.

The random generators are seeded before the source is opened and before each group is read, even if the group is
skipped, since the samples may depend on them. Shards that are cut out of the same source get the same seeds, since all
must see the same order. The generators are seeded again before and after a chunk is transformed. So random numbers
never depend on what was read before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from ..checks import ErrorAction
from ..dataset.iterable import Transform, split_steps, unwrap
from ..dataset.opening import NewestIterators, drop_unused_iterators
from ..describe import class_name
from ..messages import message
from ..randomness import batch_seed
from .open_shard import OpenShard
from .task import Chunk, Hint, OnRow, located
from .tolerant_steps import tolerant_steps

_STREAMS_PER_SHARD: Final = 2  # for the epoch, and for another iteration that was abandoned or runs at the same time
_CHUNKS_PER_STREAM: Final = 2  # chunks that stay in memory: if a batch does not fit in its slab, it is made again

Seed = Callable[[int], None]


@message(frozen=True, slots=True)
class ShardBatch:
    """A batch of one shard of an iterable dataset; for `hint` and `first` see `ChunkSamples`."""

    batch: Any
    hint: Hint | None
    first: int = 0


@message(frozen=True, slots=True)
class ShardEnd:
    """The last samples of a shard, too few for a batch, perhaps none; for `first` and `end` see `ChunkSamples`."""

    samples: list[Any]
    first: int = 0
    end: int | None = None


@message(frozen=True, slots=True)
class ChunkSamples:
    """The samples that a worker has read for a chunk."""

    samples: list[Any]  # fewer than the chunk's `size` if the shard has ended
    hint: Hint | None  # where to read the next chunk from; None if the dataset has no state
    first: int  # a hash of the first sample of the whole source; 0 if it is not needed
    end: int | None = None  # the chunk in which the shard has ended; None if it has not, or if that is not known

    def with_batch(self, batch: Any) -> ShardBatch:
        return ShardBatch(batch, self.hint, self.first)

    def as_end(self) -> ShardEnd:
        return ShardEnd(self.samples, self.first, self.end)


class Streams:
    """The open streams of one worker over an iterable dataset; see NOTE [streams].

    Args:
        newest: the newest iterator of each shard; other `Streams` over the same dataset have the same object.
    """

    def __init__(self, dataset: Any, on_error: ErrorAction = "raise", newest: NewestIterators | None = None) -> None:
        self._dataset, self._on_error, self._newest = dataset, on_error, newest or NewestIterators()
        # By shard, then by iteration and epoch; the most recently used stream of a shard comes last.
        self._streams: dict[int, dict[tuple[int, int], _Stream]] = {}

    def read(self, chunk: Chunk, seed_group: Seed, on_row: OnRow | None = None) -> ChunkSamples:
        """The samples of a chunk; a chunk can be read again, unless an error has lost it.

        `seed_group` seeds the random generators with a hash of the loader's seed, the epoch and its argument, which may
        be negative. When this returns, the state of the generators depends only on the chunk.
        """
        streams, key = self._streams.setdefault(chunk.shard, {}), (chunk.iteration, chunk.epoch)
        stream = streams.pop(key, None)  # if an interrupt ends this call, the stream is dropped
        if stream is None or not stream.reaches(chunk.number):
            stream = _Stream(self._dataset, chunk, self._newest, self._on_error)
        result = stream.read(chunk.number, seed_group, on_row)
        streams[key] = stream
        for other in list(streams)[:-_STREAMS_PER_SHARD]:
            del streams[other]
        if isinstance(result, Exception):
            raise result
        return result

    @property
    def iterations(self) -> set[int]:
        """The iterations of which streams are here."""
        return {iteration for streams in list(self._streams.values()) for iteration, _ in list(streams)}

    def close(self, iterations: Collection[int] | None = None) -> None:
        """Drops the streams of iterations that are over, or of all, which closes the iterators of the dataset."""
        for shard, streams in list(self._streams.items()):
            for key in [key for key in list(streams) if iterations is None or key[0] in iterations]:
                if (stream := streams.pop(key, None)) is not None:
                    stream.close()
            if not streams:
                self._streams.pop(shard, None)
        drop_unused_iterators()


@dataclass(slots=True)
class _Fill:
    """Groups that are permuted together."""

    hint: Hint | None  # before its first group
    samples: list[Any] = field(default_factory=list)  # chunks are taken from the end
    errors: list[Exception] = field(default_factory=list)  # of lost groups; each error replaces one chunk
    groups: int = 0
    last: bool = False  # the source has ended in it

    def is_empty(self, size: int) -> bool:
        return len(self.samples) < size and not self.errors and not self.last


class _Stream:
    """Reads one shard in one epoch, from the hint of a chunk on, and adds its iterator to those of the other shards."""

    def __init__(self, dataset: Any, chunk: Chunk, newest: NewestIterators, on_error: ErrorAction) -> None:
        self._chunk, self._size, self._newest = chunk, chunk.size, newest
        self._dataset, self._steps = unwrap(dataset)
        steps, transforms = split_steps(self._steps)
        self._steps = tuple(tolerant_steps(steps, on_error))
        self._transforms: list[Transform] = tolerant_steps(transforms, on_error)  # only for the requested chunk
        self._groups_per_fill = max(1, chunk.buffer // chunk.size)
        hint = chunk.hint
        if hint is None or hint.group > chunk.number or hint.group % self._groups_per_fill:
            hint = Hint(0, None)
        self._next_chunk = self._next_group = hint.group
        self._fill, self._next_fill = _Fill(None), _Fill(hint)
        self._kept: deque[tuple[int, ChunkSamples]] = deque(maxlen=_CHUNKS_PER_STREAM)
        self._source: OpenShard | None = None
        self._opened = self._ended = False
        self._end: int | None = None
        self._first = 0

    def close(self) -> None:
        """Drops the source, and the errors of samples, whose tracebacks refer to it."""
        self._source, self._ended = None, True
        self._fill, self._next_fill = _Fill(None), _Fill(None)
        self._kept.clear()

    def reaches(self, number: int) -> bool:
        """Whether the stream can read this chunk without opening its source again."""
        return number >= self._next_chunk or number in dict(self._kept)

    def read(self, number: int, seed: Seed, on_row: OnRow | None) -> ChunkSamples | Exception:
        """The samples of a chunk, or the error that has lost it."""
        result: ChunkSamples | Exception | None = dict(self._kept).get(number)
        try:
            if result is None:
                self._open(seed)
                result = self._read(number, seed, on_row)
            seed(-2 - 2 * self._unique(number))
        except BaseException as error:  # of opening or seeding; it ends the shard, or each chunk would fail
            error = self._located(error, "", number)
            self._source, self._ended = None, True
            return error
        if isinstance(result, Exception):
            return result
        return replace(result, samples=list(result.samples), first=self._first)

    def _unique(self, number: int) -> int:
        """A number for a group or chunk that differs between shards."""
        return number * self._chunk.num_shards + self._chunk.shard

    def _open(self, seed: Seed) -> None:
        if self._source is not None:
            self._source.check_alone()
        if not self._opened:
            self._opened = True
            seed(0)  # the same for all shards: opening may shuffle the source that the shards are cut out of
            self._source = OpenShard(self._dataset, self._steps, self._chunk, self._next_fill.hint)
            self._source.check_new(self._newest, self._chunk.shard)
            self._next_fill.hint = self._next_fill.hint if self._source.stateful else None

    def _read(self, number: int, seed: Seed, on_row: OnRow | None) -> ChunkSamples | Exception:
        lost: Exception | None = None
        while self._next_chunk < number and not self._ended:
            skipped = self._take(number, seed, on_row)
            if isinstance(skipped, Exception):
                lost = skipped  # this error was reported for the skipped chunk
            elif len(skipped) == self._size:
                lost = None
        is_beyond = self._ended
        samples = [] if is_beyond else self._take(number, seed, on_row)
        if lost is not None and not samples and not is_beyond:
            # The error ended the source, and is reported again with the end: perhaps no other worker saw it.
            return lost
        if not isinstance(samples, Exception):
            samples = self._transform(number, samples, seed, on_row)
        if isinstance(samples, Exception):
            return samples
        hint = (self._next_fill if self._fill.is_empty(self._size) else self._fill).hint
        result = ChunkSamples(samples, None if self._ended else hint, self._first, self._end)
        self._kept.append((number, result))
        return result

    def _take(self, wanted: int, seed: Seed, on_row: OnRow | None) -> list[Any] | Exception:
        """The samples of the next chunk before transforms, or the error that has lost it."""
        if self._fill.is_empty(self._size):
            self._finish_next_fill(wanted, seed, on_row)
        fill = self._fill
        self._next_chunk += 1
        if len(fill.samples) < self._size and fill.errors:
            return fill.errors.pop(0)
        samples = fill.samples[-self._size :]
        del fill.samples[-self._size :]
        if len(samples) < self._size:
            self._ended, self._end = True, self._next_chunk - 1
        if self._chunk.buffer and self._next_fill.groups < self._groups_per_fill:
            self._read_group(wanted, seed, on_row)
        return samples

    def _finish_next_fill(self, wanted: int, seed: Seed, on_row: OnRow | None) -> None:
        """Reads the rest of the next fill and permutes the fill; the next chunks are taken from it."""
        fill, chunk = self._next_fill, self._chunk
        while fill.groups < self._groups_per_fill and self._source is not None:
            self._read_group(wanted, seed, on_row)
        if chunk.buffer:
            key = batch_seed(chunk.shard, (self._next_group - 1) // self._groups_per_fill)
            rng = np.random.default_rng(batch_seed(chunk.seed, chunk.epoch, key))
            fill.samples = [fill.samples[i] for i in rng.permutation(len(fill.samples))]
        self._fill = fill
        hint = fill.hint if self._source is None else self._source.hint(self._next_group, fill.hint)
        self._next_fill = _Fill(hint)

    def _read_group(self, wanted: int, seed: Seed, on_row: OnRow | None) -> None:
        """Reads one more group of the next fill, unless the source has ended."""
        if self._source is None:
            return
        fill, start = self._next_fill, (self._next_group - wanted) * self._size
        samples: list[Any] = []
        # If shards are cut out of the same source, its random numbers must be the same for all of them.
        seed(self._next_group * self._chunk.num_shards if self._source.cut else self._unique(self._next_group))
        try:
            for row in range(start, start + self._size):
                if on_row is not None and row >= 0:
                    on_row(row)
                samples.append(self._source.next())
                self._first = self._source.first or 0
        except StopIteration:
            fill.last, self._source = True, None
        except BaseException as error:
            number = self._next_group * self._size + len(samples)
            fill.errors.append(self._located(error, f"sample {number} of ", self._next_group))
            samples = []
        if fill.last:  # and the error that refers to the iterator is gone
            self._newest.drop_unused(self._chunk.shard)
        fill.samples += samples
        fill.groups += 1
        self._next_group += 1

    def _transform(self, number: int, samples: list[Any], seed: Seed, on_row: OnRow | None) -> list[Any] | Exception:
        """The samples of a chunk after transforms, or the error of a transform."""
        if not self._transforms:
            return samples
        seed(-1 - 2 * self._unique(number))
        row = 0
        try:
            for row in range(len(samples)):
                if on_row is not None:
                    on_row(row)
                for transform in self._transforms:
                    samples[row] = transform(samples[row])
        except BaseException as error:
            return self._located(error, f"transform, of sample {number * self._size + row} of ", number)
        return samples

    def _located(self, error: BaseException, sample: str, number: int) -> Exception:
        """The error with a note on the shard, and on the sample if it is known."""
        chunk, name = self._chunk, class_name(self._dataset)
        shard = f"shard {chunk.shard} of {chunk.num_shards} (chunk {number})"
        return located(error, name, f"{sample}{shard}, iterable dataset {name}")
