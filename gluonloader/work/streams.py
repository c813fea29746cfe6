"""How a worker reads the shards of an iterable dataset: by chunks, each of which names its samples by position.

    source --groups--> block of groups, permuted --chunks--> transforms --> samples

NOTE [streams]: chunk t of a shard is samples [t * size, (t + 1) * size) of its sequence. A worker whose stream of the
shard stands there goes on; one that stands before it reads on; any other opens the source again, at a hint or at its
start, and skips. So each sample comes exactly once, whichever worker is asked, in whatever order, how often.

The source is read in groups of `size` samples. A block is as many groups as the shuffle buffer holds (one without
shuffling); its permutation is a function of seed, epoch, shard and the block's number. While the chunks of a block
are handed out, one group of the next block is read for each. A position is therefore that of a block's first group.

The generators are seeded before the source is opened and before each group is read, also of those that are skipped,
since what a source gives may depend on them: alike for all shards that are cut out of one source by position, as they
have to agree on its order. They are seeded again before a chunk is transformed, and after that. So nothing that is
drawn depends on what was read before.
"""

from __future__ import annotations

import copy
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from .. import frameworks
from ..dataset.iterable import Step, Take, Transform, unwrap
from ..errors import add_note
from ..randomness import batch_seed
from ..state import to_json

__all__ = ["Chunk", "Hint", "Piece", "Streams"]

_PER_SHARD: Final = 2  # streams that are kept: of an epoch, and of one that was broken off or goes on beside it
_KEPT: Final = 2  # chunks of each that are kept: one whose batch did not fit its slab is asked for again
_readers: Final[dict[int, object]] = {}  # who reads an iterator that cannot be copied, by its id


@dataclass(frozen=True, slots=True)
class Hint:
    """A position of a source, as JSON: before the first sample of a group. At group 0 `state` is None."""

    group: int
    state: Any


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one task on an iterable dataset is.

    Attributes:
        shard, num_shards: which shard of how many.
        number: t, for the samples [t * size, (t + 1) * size) of the shard's sequence.
        size: samples.
        epoch, seed: of the loader.
        iteration: a number of its own for each living iterator of a loader, so that two do not share streams.
        buffer: samples of the shuffle buffer; 0 for no shuffling.
        hint: from where to read, if the worker does not stand there; None from the start.
    """

    shard: int
    num_shards: int
    number: int
    size: int
    epoch: int
    seed: int
    iteration: int
    buffer: int
    hint: Hint | None


@dataclass(frozen=True, slots=True)
class Piece:
    """What a chunk holds.

    Attributes:
        samples: fewer than `size`: the shard has ended.
        hint: from where the next chunk can be read; None where the dataset has no state of its own.
        first: a hash of the first sample that the source gave, of whatever shard; 0 where that does not matter.
    """

    samples: list[Any]
    hint: Hint | None
    first: int


Seed = Callable[[int], None]
Mark = Callable[[int], None]


class Streams:
    """What one worker has open of an iterable dataset; see NOTE [streams]."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._streams: dict[tuple[int, int, int], _Stream] = {}  # the one that was used last comes last
        self._opened: dict[int, Any] = {}  # the iterator of each shard that was made last

    def read(self, chunk: Chunk, seed_group: Seed, mark: Mark | None = None) -> Piece:
        """The samples of a chunk; they may be asked for again.

        Args:
            chunk: which ones.
            seed_group: seeds the random generators with a hash of the loader's seed, the epoch and the number that it
                is given, which may be negative. After the return they stand where the chunk alone decides.
            mark: called with a sample's position in the chunk before that is read or transformed.

        Raises:
            Exception: the source's or a transform's own, with a note that says which sample of which shard; the
                chunk is lost. `SystemExit` comes as a RuntimeError.
        """
        key = chunk.shard, chunk.iteration, chunk.epoch
        stream = self._streams.pop(key, None)  # it is not put back if this call is broken off
        if stream is None or not stream.reaches(chunk.number):
            stream = _Stream(self._dataset, chunk, self._opened)
        found = stream.read(chunk.number, seed_group, mark)
        self._streams[key] = stream
        for other in [other for other in self._streams if other[0] == chunk.shard][:-_PER_SHARD]:
            del self._streams[other]
        if isinstance(found, Exception):
            raise found
        return found


@dataclass(slots=True)
class _Block:
    """Groups that are permuted together."""

    start: Hint | None
    samples: list[Any] = field(default_factory=list)  # handed out from the end
    errors: list[Exception] = field(default_factory=list)  # of groups that are lost; each takes the place of a chunk
    groups: int = 0
    last: bool = False  # the source has ended in it

    def spent(self, size: int) -> bool:
        return len(self.samples) < size and not self.errors and not self.last


class _Stream:
    """One shard in one epoch, from the hint of a chunk on."""

    def __init__(self, dataset: Any, chunk: Chunk, opened: dict[int, Any]) -> None:
        self._about, self._size, self._iterators = chunk, chunk.size, opened
        self._dataset, steps = unwrap(dataset)
        self._late: list[Transform] = []  # what is done to the samples that are wanted, and to no others
        while steps and isinstance(steps[-1], Transform):
            self._late.insert(0, steps[-1])
            steps = steps[:-1]
        self._early = steps
        self._groups = max(1, chunk.buffer // chunk.size)  # of a block
        hint = chunk.hint
        if hint is None or hint.group > chunk.number or hint.group % self._groups:
            hint = Hint(0, None)
        self._number = self._group = hint.group  # the next chunk to hand out, the next group to read
        self._ready, self._coming = _Block(None), _Block(hint)
        self._kept: deque[tuple[int, Piece]] = deque(maxlen=_KEPT)
        self._source: _Source | None = None
        self._opened = self._ended = False
        self._first = 0

    def reaches(self, number: int) -> bool:
        """Whether it need not be opened again for this chunk."""
        return number >= self._number or any(kept == number for kept, _ in self._kept)

    def read(self, number: int, seed: Seed, mark: Mark | None) -> Piece | Exception:
        found: Piece | Exception | None = next((piece for kept, piece in self._kept if kept == number), None)
        try:
            if found is None:
                self._open(seed)
                found = self._read(number, seed, mark)
            seed(-2 - 2 * self._own(number))
        except (Exception, SystemExit) as error:  # not of a sample: it would come again for each chunk, without end
            self._source, self._ended = None, True
            return self._located(error, "", number)
        return Piece(list(found.samples), found.hint, self._first) if isinstance(found, Piece) else found

    def _own(self, number: int) -> int:
        """A number for a group or chunk that no other shard has."""
        return number * self._about.num_shards + self._about.shard

    def _open(self, seed: Seed) -> None:
        if self._source is not None:
            self._source.check_alone()
        if not self._opened:
            self._opened = True
            seed(0)  # for all shards alike, as what they are cut out of may be put in order now
            self._source = _Source(self._dataset, self._early, self._about, self._coming.start)
            self._source.check_new(self._iterators.values())
            self._iterators[self._about.shard] = self._source.iterator
            self._coming.start = self._coming.start if self._source.stateful else None

    def _read(self, number: int, seed: Seed, mark: Mark | None) -> Piece | Exception:
        lost: Exception | None = None
        while self._number < number and not self._ended:
            skipped = self._take(number, seed, mark)
            if isinstance(skipped, Exception):
                lost = skipped  # it was told when that chunk was asked for
            elif len(skipped) == self._size:
                lost = None
        samples = [] if self._ended else self._take(number, seed, mark)
        if lost is not None and not samples:
            return lost  # it ended the source, which is told again: this worker may be the first that it came to
        if not isinstance(samples, Exception):
            samples = self._transform(number, samples, seed, mark)
        if isinstance(samples, Exception):
            return samples
        start = (self._coming if self._ready.spent(self._size) else self._ready).start
        piece = Piece(samples, None if self._ended else start, self._first)
        self._kept.append((number, piece))
        return piece

    def _take(self, wanted: int, seed: Seed, mark: Mark | None) -> list[Any] | Exception:
        """The next chunk, or why it is lost."""
        if self._ready.spent(self._size):
            self._next_block(wanted, seed, mark)
        ready = self._ready
        self._number += 1
        if len(ready.samples) < self._size and ready.errors:
            return ready.errors.pop(0)
        samples = ready.samples[-self._size :]
        del ready.samples[-self._size :]
        self._ended = len(samples) < self._size
        if self._about.buffer and self._coming.groups < self._groups:
            self._read_group(wanted, seed, mark)
        return samples

    def _next_block(self, wanted: int, seed: Seed, mark: Mark | None) -> None:
        block, about = self._coming, self._about
        while block.groups < self._groups and self._source is not None:
            self._read_group(wanted, seed, mark)
        if about.buffer:
            key = batch_seed(about.shard, (self._group - 1) // self._groups)
            rng = np.random.default_rng(batch_seed(about.seed, about.epoch, key))
            block.samples = [block.samples[i] for i in rng.permutation(len(block.samples))]
        self._ready = block
        self._coming = _Block(block.start if self._source is None else self._source.hint(self._group, block.start))

    def _read_group(self, wanted: int, seed: Seed, mark: Mark | None) -> None:
        """Reads one more group of the next block, unless the source has ended."""
        if self._source is None:
            return
        block, ahead = self._coming, (self._group - wanted) * self._size
        samples: list[Any] = []
        # Shards that are cut out of one source have to agree on what that draws.
        seed(self._group * self._about.num_shards if self._source.cut else self._own(self._group))
        try:
            for position in range(ahead, ahead + self._size):
                if mark is not None and position >= 0:
                    mark(position)
                samples.append(self._source.next())
                self._first = self._source.first or 0
        except StopIteration:
            block.last, self._source = True, None
        except (Exception, SystemExit) as error:
            number = self._group * self._size + len(samples)
            block.errors.append(self._located(error, f"sample {number} of ", self._group))
            samples = []
        block.samples += samples
        block.groups += 1
        self._group += 1

    def _transform(self, number: int, samples: list[Any], seed: Seed, mark: Mark | None) -> list[Any] | Exception:
        if not self._late:
            return samples
        seed(-1 - 2 * self._own(number))
        position = 0
        try:
            for position in range(len(samples)):
                if mark is not None:
                    mark(position)
                for step in self._late:
                    samples[position] = step(samples[position])
        except (Exception, SystemExit) as error:
            return self._located(error, f"transform, of sample {number * self._size + position} of ", number)
        return samples

    def _located(self, error: BaseException, where: str, chunk: int) -> Exception:
        about = self._about
        if not isinstance(error, Exception) or isinstance(error, StopIteration):
            told = RuntimeError(f"{type(self._dataset).__name__} raised {type(error).__name__}({error})")
            told.__cause__ = error
            error = told
        shard = f"shard {about.shard} of {about.num_shards} (chunk {chunk})"
        add_note(error, f"gluonloader: in {where}{shard}, iterable dataset {type(self._dataset).__name__}")
        return error


class _Source:
    """A shard of a dataset, opened at a hint.

    Hugging Face's and torchdata's convention: `set_epoch`, `load_state_dict`, `iter`, in this order; and `state_dict`
    while it is iterated, of the dataset or of the iterator.
    """

    def __init__(self, dataset: Any, steps: tuple[Step, ...], about: Chunk, hint: Hint | None) -> None:
        self._name = type(dataset).__name__
        whole = any(isinstance(step, Take) for step in steps)  # counts the samples of all shards
        own, self.cut = (dataset, True) if whole else _shard(dataset, about.num_shards, about.shard)
        self._before = about.shard if self.cut else 0  # samples of other shards that come before ours, and after it
        self._after = about.num_shards - 1 - about.shard if self.cut else 0
        self._alone = hasattr(own, "__next__")
        if self._alone:
            self._token = _readers[id(own)] = object()
            own.reset()
        elif own is dataset and (hasattr(own, "set_epoch") or hasattr(own, "load_state_dict")):
            own = copy.copy(own)  # other streams read it, too
        if hasattr(own, "set_epoch"):
            own.set_epoch(about.epoch)
        self._own, self.iterator = own, _iterate(own)
        samples = self.iterator
        self._keeper = None if whole else _keeper(samples, own)
        if hint is not None and hint.group:
            samples = self._load(samples, hint.state)
        for step in steps:
            samples = step.over(samples)
        self._samples = samples
        # A hash of the first sample, where several read the same; None: not read yet.
        self.first = None if self.cut and about.num_shards > 1 and not (hint and hint.group) else 0
        self._error: BaseException | None = None  # of the sample before, which was another shard's
        self._ended = False  # seen while passing over

    def _load(self, samples: Iterator[Any], state: Any) -> Iterator[Any]:
        if self._keeper is None:
            raise ValueError(f"state: {self._name} has no state here, but it had one when the position was saved")
        loader = samples if hasattr(samples, "load_state_dict") else self._own
        loader.load_state_dict(copy.deepcopy(state))  # some keep it, and change it
        if loader is samples:
            return samples
        samples = _iterate(self._own)
        self._keeper = _keeper(samples, self._own)
        return samples

    @property
    def stateful(self) -> bool:
        return self._keeper is not None

    def hint(self, group: int, last: Hint | None) -> Hint | None:
        """Where it stands now; where it stood, if it has ended, since what a state says then is no position."""
        if self._keeper is None or self._ended:
            return last
        return Hint(group, to_json(self._name, self._keeper.state_dict()))

    def check_alone(self) -> None:
        """That no other stream has begun to read an iterator that there is only once."""
        if self._alone and _readers.get(id(self._own)) is not self._token:
            raise RuntimeError(
                f"{self._name} is one iterator, and is being read by another shard or iteration in this process; "
                "give the function that makes it: IterableDataset(make)"
            )

    def check_new(self, others: Iterable[Any]) -> None:
        """That the dataset has not given an iterator that it gave before."""
        if not self._alone and any(self.iterator is other for other in others):
            raise RuntimeError(
                f"{self._name}.__iter__ gave the same iterator again, which was read already; let it make a new one "
                "each time, as a generator does"
            )

    def next(self) -> Any:
        """The next sample of this shard; leaves the source where all shards leave it."""
        if not self.cut:
            return next(self._samples)
        self._pass_over(self._before)
        try:
            if self._ended:
                raise StopIteration
            return self._read()
        except StopIteration:
            self._ended = True
            error, self._error = self._error, None
            raise error or StopIteration from None
        finally:
            self._pass_over(self._after)

    def _read(self) -> Any:
        sample, self._error = next(self._samples), None
        if self.first is None:
            self.first = _hash(sample)
        return sample

    def _pass_over(self, samples: int) -> None:
        """Reads samples of other shards. They tell an error there, unless the source ends with it: then we do, too."""
        for _ in range(0 if self._ended else samples):
            try:
                self._read()
            except StopIteration:
                self._ended = True
                return
            except (Exception, SystemExit) as error:
                self._error = error


def _shard(dataset: Any, num_shards: int, index: int) -> tuple[Any, bool]:
    """A shard as the dataset makes it; or the whole, and True: it is to be cut by position.

    One shard of one is made, too, since it is an object of its own.
    """
    if not callable(getattr(dataset, "shard", None)):
        return dataset, True
    most = getattr(dataset, "num_shards", getattr(dataset, "n_shards", None))
    if isinstance(most, int) and most < num_shards:
        return dataset.shard(1, 0), True
    return dataset.shard(num_shards, index), False


def _iterate(dataset: Any) -> Iterator[Any]:
    as_numpy = getattr(dataset, "as_numpy_iterator", None)  # tf.data
    return iter(dataset if as_numpy is None else as_numpy())


def _hash(sample: Any) -> int:
    """The same for the same sample in another process; never 0."""
    return zlib.crc32(b";".join(_bytes(sample))) or 1


def _bytes(value: Any) -> Iterator[bytes]:
    """What of a sample can be compared: numbers, text and arrays; of all else its type."""
    framework = frameworks.owner(type(value))
    value = value if framework is None else framework.to_numpy(value)
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _bytes(part)
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, (int, float, complex, str, bytes, np.generic)):
        yield repr(value).encode()
    else:
        yield type(value).__name__.encode()


def _keeper(samples: Any, dataset: Any) -> Any:
    """Who knows the position: the iterator, the dataset, or nobody."""
    if _forgets(dataset):
        return None
    for keeper in (samples, dataset):
        if hasattr(keeper, "state_dict") and (
            hasattr(keeper, "load_state_dict") or hasattr(dataset, "load_state_dict")
        ):
            return keeper
    return None


def _forgets(dataset: Any) -> bool:
    """Whether there is a shuffle buffer of Hugging Face's in it, whose samples are missing after `load_state_dict`."""
    parts = [getattr(dataset, "_ex_iterable", None)]
    while parts:
        part = parts.pop()
        if type(part).__name__ == "BufferShuffledExamplesIterable":
            return True
        parts += [inner for inner in (getattr(part, "ex_iterable", None), *getattr(part, "ex_iterables", ())) if inner]
    return False
