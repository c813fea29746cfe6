"""How an iterable dataset is cut into batches, and which samples its shards leave over; both as fields of a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...checks import LastBatch
from ...errors import bad_state
from ...state import check_same, field, int_field, ranges_field
from ...work.task import Chunk, Hint
from .errors import count_in


@dataclass(frozen=True, slots=True)
class Shards:
    """How an iterable dataset is cut into shards and batches; see the arguments of `DataLoader`."""

    num_shards: int
    batch_size: int
    last_batch: LastBatch
    shuffle_buffer: int  # samples; 0 for no shuffling
    workers: int

    def batches(self, samples: int) -> int:
        """The number of batches in an epoch that has this number of samples."""
        return -(-samples // self.batch_size) if self.last_batch == "keep" else samples // self.batch_size

    def first_chunk(self, epoch: int, seed: int, iteration: int) -> Chunk:
        """Chunk 0 of shard 0 in an epoch; `replace` makes all other chunks from it."""
        return Chunk(0, self.num_shards, 0, self.batch_size, epoch, seed, iteration, self.shuffle_buffer, None)

    def state(self) -> dict[str, Any]:
        """The fields that must be equal when a position is loaded."""
        return {name: value for name, value in asdict(self).items() if name != "workers"}


@dataclass(slots=True)
class ShardEnds:
    """The known ends of shards. Chunk t of shard s has number t * num_shards + s."""

    num_shards: int
    last_chunks: dict[int, int]  # by shard, the number t of its last chunk

    def add(self, chunk: Chunk) -> None:
        """Ends a shard with this chunk, unless the shard has ended with an earlier chunk."""
        self.last_chunks[chunk.shard] = min(chunk.number, self.last_chunks.get(chunk.shard, chunk.number))

    def is_beyond(self, number: int) -> bool:
        """Whether the chunk with this number is known to lie beyond the end of its shard."""
        chunk, shard = divmod(number, self.num_shards)
        return chunk > self.last_chunks.get(shard, chunk)

    def full_chunks(self, number: int) -> int:
        """How many chunks before chunk `number` are full; a shard whose end is unknown counts as endless."""
        chunks = [len(range(shard, number, self.num_shards)) for shard in range(self.num_shards)]
        return sum(min(count, self.last_chunks.get(shard, count)) for shard, count in enumerate(chunks))

    @property
    def all_known(self) -> bool:
        return len(self.last_chunks) == self.num_shards

    @property
    def first_leftover_batch(self) -> int:
        """The number of the first batch that is made from leftovers, once all shards have ended."""
        return (max(self.last_chunks.values(), default=0) + 1) * self.num_shards


@dataclass(slots=True)
class Leftover:
    """Samples at the end of a shard that are too few for a batch: from `start` to `stop` of its last chunk."""

    chunk: Chunk
    start: int
    stop: int
    samples: list[Any] | None  # None after a resume, until a worker has read them again; see NOTE [streams]

    def is_of(self, chunk: Chunk) -> bool:
        """Whether these are the samples of this chunk."""
        ours = self.chunk
        return (ours.epoch, ours.shard, ours.number) == (chunk.epoch, chunk.shard, chunk.number)

    def state(self) -> dict[str, Any]:
        """The numbers of the samples as JSON; the samples themselves are not saved."""
        chunk, hint = self.chunk, save_hint(self.chunk.hint)
        where = {"epoch": chunk.epoch, "shard": chunk.shard, "chunk": chunk.number, "hint": hint}
        return {**where, "start": self.start, "stop": self.stop}


def load_leftover(first_chunk: Chunk, saved: Mapping[str, Any]) -> Leftover:
    hint = load_hint(saved["hint"])
    chunk = replace(first_chunk, epoch=saved["epoch"], shard=saved["shard"], number=saved["chunk"], hint=hint)
    return Leftover(chunk, saved["start"], saved["stop"], None)


def carried_of(shards: Shards, state: Mapping[str, Any]) -> list[Leftover]:
    """The leftovers that the epoch of a position took over from earlier epochs."""
    first_chunk = shards.first_chunk(state["epoch"], state["seed"], -1)
    saved = [saved for saved in state["leftovers"] if saved["epoch"] != state["epoch"]]
    return [load_leftover(first_chunk, leftover) for leftover in saved]


def carried_over(leftovers: Sequence[Leftover], size: int) -> list[Leftover]:
    """The leftovers for the next epoch (rollover): the last samples, which are too few for a batch of `size`."""
    missing = sum(len(leftover.samples or ()) for leftover in leftovers) % size
    carried: list[Leftover] = []
    for leftover in reversed(leftovers):
        samples = leftover.samples or []
        count = min(missing, len(samples))
        if count:
            carried.insert(0, Leftover(leftover.chunk, leftover.stop - count, leftover.stop, samples[-count:]))
        missing -= count
    return carried


def save_hint(hint: Hint | None) -> dict[str, Any] | None:
    return None if hint is None else {"group": hint.group, "state": hint.state}


def load_hint(saved: Any) -> Hint | None:
    return None if saved is None else Hint(saved["group"], saved["state"])


def check(shards: Shards, state: Mapping[str, Any]) -> None:
    """Checks each field of a position.

    Raises:
        ValueError: the state does not fit.
    """
    int_field(state, "batch")
    ranges_field(state, "ahead")
    count_in(state)
    for name, ours in shards.state().items():
        check_same(state, name, ours, "this loader")
    for pair in _list_field(state, "ended"):
        if not isinstance(pair, list) or len(pair) != 2 or not all(type(part) is int for part in pair):
            raise bad_state("ended", pair, "must be two ints, the number of a shard and the number of its last chunk")
    for hint in _list_field(state, "hints", shards.num_shards):
        _check_hint(hint, "hints.")
    for leftover in _list_field(state, "leftovers"):
        for name in ("epoch", "shard", "chunk", "start", "stop"):
            int_field(leftover, name, path="leftovers.")
        _check_hint(field(leftover, "hint", "leftovers."), "leftovers.hint.")


def _list_field(state: Mapping[str, Any], name: str, length: int | None = None) -> list[Any]:
    value = field(state, name)
    if not isinstance(value, list) or length not in (None, len(value)):
        raise bad_state(name, value, "must be a list" + (f" of {length} items" if length else ""))
    return value


def _check_hint(saved: Any, path: str) -> None:
    if saved is not None:
        int_field(saved, "group", path=path)
        field(saved, "state", path)
