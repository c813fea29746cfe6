"""What a task on an iterable dataset asks for, and what a worker reads for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Hint:
    """A point in a source from which a worker can read without reading what comes before it.

    Attributes:
        group: the number of the group that comes next; see NOTE [streams] in streams.py.
        state: the state of the source there, as JSON; None at group 0.
    """

    group: int
    state: Any


@dataclass(frozen=True, slots=True)
class Chunk:
    """The samples of one shard that make one batch.

    Attributes:
        shard, num_shards: number of the shard, and of how many.
        number: t, for the samples [t * size, (t + 1) * size) of the shard.
        size: number of samples.
        epoch, seed: those of the loader.
        iteration: differs between the live iterators of a loader, so that they do not share streams.
        buffer: size of the shuffle buffer in samples; 0 for no shuffling.
        hint: where a worker without a fitting stream starts to read; None for the start of the shard.
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
class ChunkSamples:
    """What a worker read for a chunk.

    Attributes:
        samples: fewer than the chunk's `size` if the shard has ended.
        hint: where to read the next chunk from; None if the dataset has no state.
        first: a hash of the first sample of the source, whichever shard it belongs to; 0 if nothing depends on it.
    """

    samples: list[Any]
    hint: Hint | None
    first: int
