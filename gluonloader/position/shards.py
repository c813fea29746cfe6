"""How an iterable dataset is cut into batches, and which samples its shards leave over; both as fields of a state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from operator import itemgetter
from typing import Any

from ..checks import LastBatch
from ..errors import bad_state
from ..frameworks import state_from_json
from ..messages import message
from ..state import MOST, State, check_same, field, int_field, list_field, range_with, ranges_field
from ..work.in_flight import InFlight
from ..work.task import Chunk, Hint
from .error_count import count_in

_CURES = {"num_shards": "pass IterableDataset(dataset, num_shards=...); the default depends on workers and ranks"}

LeftoverKey = tuple[int, int, int, int]  # epoch, shard, number of the chunk, and number of the first sample in it


@message(frozen=True, slots=True)
class Shards:
    """How an iterable dataset is cut into shards and batches; see the arguments of `DataLoader`."""

    num_shards: int
    batch_size: int
    last_batch: LastBatch
    shuffle_buffer: int  # samples; 0 for no shuffling
    workers: int
    rank: int = 0  # this process reads the shards rank, rank + ranks, rank + 2 * ranks, ...
    ranks: int = 1

    @property
    def owned(self) -> range:
        """The shards that this process reads."""
        return range(self.rank, self.num_shards, self.ranks)

    def owns(self, shard: int) -> bool:
        return shard % self.ranks == self.rank

    def next_owned(self, number: int) -> int:
        """The first number of a chunk of this process that is at least `number`."""
        shard = number % self.num_shards
        following = number + (self.rank - shard) % self.ranks
        row = number - shard + self.num_shards
        return following if following < row else row + self.rank

    def worker_of(self, shard: int) -> int:
        """The worker that reads a shard of this process."""
        return shard // self.ranks % max(self.workers, 1)

    def batches(self, samples: int) -> int:
        """The number of batches in an epoch that has this number of samples."""
        return -(-samples // self.batch_size) if self.last_batch == "keep" else samples // self.batch_size

    def first_chunk(self, epoch: int, seed: int, iteration: int) -> Chunk:
        """Chunk 0 of shard 0 in an epoch; `replace` makes all other chunks from it."""
        return Chunk(0, self.num_shards, 0, self.batch_size, epoch, seed, iteration, self.shuffle_buffer, None)

    def state(self) -> dict[str, Any]:
        """The fields that must be equal when a position is loaded. Without ranks, it is that of a single process."""
        own = ("workers",) if self.ranks > 1 else ("workers", "rank", "ranks")
        return {name: value for name, value in asdict(self).items() if name not in own}


@dataclass(slots=True)
class ShardEnds:
    """The known ends of the shards of this process. Chunk t of shard s has number t * num_shards + s."""

    shards: Shards
    last_chunks: dict[int, int]  # by shard, the number t of its last chunk

    def add(self, chunk: Chunk) -> None:
        """Ends a shard with this chunk, unless the shard has ended with an earlier chunk."""
        self.last_chunks[chunk.shard] = min(chunk.number, self.last_chunks.get(chunk.shard, chunk.number))

    def is_beyond(self, number: int) -> bool:
        """Whether this process has no chunk with this number: the shard ends before it, or belongs to another rank."""
        chunk, shard = divmod(number, self.shards.num_shards)
        return not self.shards.owns(shard) or chunk > self.last_chunks.get(shard, chunk)

    def has_chunk_in(self, numbers: range) -> bool:
        """Whether this process has a chunk with one of these numbers."""
        for shard in self.shards.owned:
            first = numbers.start + (shard - numbers.start) % self.shards.num_shards
            if first < numbers.stop and not self.is_beyond(first):
                return True
        return False

    def full_chunks(self, number: int) -> int:
        """How many chunks before chunk `number` are full; a shard whose end is unknown counts as endless."""
        total = 0
        for shard in self.shards.owned:
            count = len(range(shard, number, self.shards.num_shards))
            total += min(count, self.last_chunks.get(shard, count))
        return total

    @property
    def all_known(self) -> bool:
        return len(self.last_chunks) == len(self.shards.owned)

    @property
    def first_leftover_batch(self) -> int:
        """The number of the first batch that is made from leftovers, once all shards have ended."""
        return (max(self.last_chunks.values(), default=0) + 1) * self.shards.num_shards


@dataclass(slots=True)
class Leftover:
    """Samples at the end of a shard that are too few for a batch: from `start` to `stop` of its last chunk.

    Attributes:
        samples: None after a resume, until a worker has read them again; see NOTE [streams].
        carried: an earlier pass has carried them over, perhaps one of the same epoch, if that is repeated.
    """

    chunk: Chunk
    start: int
    stop: int
    samples: list[Any] | None
    carried: bool = False

    @property
    def key(self) -> LeftoverKey:
        return self.chunk.epoch, self.chunk.shard, self.chunk.number, self.start

    def state(self) -> dict[str, Any]:
        """The numbers of the samples as JSON; the samples themselves are not saved."""
        chunk, hint = self.chunk, save_hint(self.chunk.hint)
        where = {"epoch": chunk.epoch, "shard": chunk.shard, "chunk": chunk.number, "hint": hint}
        return {**where, "start": self.start, "stop": self.stop, "carried": self.carried}


def load_leftover(first_chunk: Chunk, saved: State) -> Leftover:
    hint = load_hint(saved["hint"])
    chunk = replace(first_chunk, epoch=saved["epoch"], shard=saved["shard"], number=saved["chunk"], hint=hint)
    return Leftover(chunk, saved["start"], saved["stop"], None, saved["carried"])


def in_leftovers(ends: ShardEnds, batch: int) -> bool:
    """Whether batch number `batch` is made from leftovers."""
    return ends.all_known and batch >= ends.first_leftover_batch


def rest_of_leftovers(shards: Shards, state: State) -> list[dict[str, Any]]:
    """Those parts of the leftovers of a position, whose shards are `shards`, that are not in a settled batch."""
    saved, ends = state["leftovers"], ShardEnds(shards, dict(state["ended"]))
    if not in_leftovers(ends, state["batch"]):
        return list(saved)
    settled = ranges_field(state, "ahead")
    rest: list[dict[str, Any]] = []
    offset, size, first = 0, shards.batch_size, ends.first_leftover_batch
    # In the order in which `ShardPlan` cuts them into batches.
    for part in sorted(saved, key=lambda part: -1 if part["carried"] else part["shard"]):
        start, stop = part["start"], part["stop"]
        while start < stop:
            number, end = first + offset // size, min(stop, start + size - offset % size)
            if number >= state["batch"] and range_with(settled, number) is None:
                rest.append({**part, "start": start, "stop": end})
            offset, start = offset + end - start, end
    return rest


def carried_of(shards: Shards, state: State) -> list[Leftover]:
    """The leftovers that the epoch of a position took over from earlier epochs."""
    first_chunk = shards.first_chunk(state["epoch"], state["seed"], -1)
    return [load_leftover(first_chunk, saved) for saved in state["leftovers"] if saved["carried"]]


def carried_over(leftovers: Sequence[Leftover], size: int) -> list[Leftover]:
    """The leftovers for the next epoch (rollover): the last samples, which are too few for a batch of `size`."""
    missing = sum(len(leftover.samples or ()) for leftover in leftovers) % size
    carried: list[Leftover] = []
    for leftover in reversed(leftovers):
        samples = leftover.samples or []
        count = min(missing, len(samples))
        if count:
            carried.insert(0, Leftover(leftover.chunk, leftover.stop - count, leftover.stop, samples[-count:], True))
        missing -= count
    return carried


def save_hint(hint: Hint | None) -> dict[str, Any] | None:
    return None if hint is None else {"group": hint.group, "state": hint.state}


def load_hint(saved: Any) -> Hint | None:
    return None if saved is None else Hint(saved["group"], saved["state"])


class Hints:
    """Where a worker that needs a new stream starts to read each shard.

    A hint comes with a batch and counts once the batch is settled: otherwise it may lie beyond a batch that is read
    again.

    Args:
        by_shard: the hints of a loaded position.
    """

    def __init__(self, shards: Shards, in_flight: InFlight, by_shard: dict[int, Hint | None]) -> None:
        self._num_shards, self._in_flight = shards.num_shards, in_flight
        self._by_shard = by_shard
        self._new: dict[int, Hint | None] = {}  # by the number of their batches, which may not be settled

    def of(self, shard: int) -> Hint | None:
        return self._by_shard.get(shard)

    def add(self, number: int, hint: Hint | None) -> None:
        """Adds the hint of the batch with this number."""
        self._new[number] = hint

    def use_settled(self) -> None:
        self._by_shard.update(self._settled())  # not a copy of all hints, since this is called for each task
        self._new = {number: hint for number, hint in self._new.items() if number in self._in_flight}

    def _settled(self) -> dict[int, Hint | None]:
        settled = [(number, hint) for number, hint in list(self._new.items()) if number not in self._in_flight]
        return {number % self._num_shards: hint for number, hint in settled}

    def state(self) -> list[dict[str, Any]]:
        known = {**self._by_shard, **self._settled()}
        hints = [(shard, hint) for shard, hint in sorted(known.items(), key=itemgetter(0)) if hint]
        return [{"shard": shard, "group": hint.group, "state": hint.state} for shard, hint in hints]


def check(shards: Shards, state: State) -> None:
    """Checks each field of a position.

    Raises:
        ValueError: the state does not fit.
    """
    number, ahead = int_field(state, "batch"), ranges_field(state, "ahead")
    if ahead and ahead[0].start <= number:
        raise bad_state("ahead", state["ahead"], f"must be greater than batch={number}")
    count_in(state)
    int_field(state, "epoch")
    of_rank = "rank" in state or "ranks" in state  # otherwise a single process has saved it, or it is merged
    if of_rank and (int_field(state, "rank"), int_field(state, "ranks")) != (shards.rank, shards.ranks):
        what = f"rank {state['rank']} of {state['ranks']} has saved it"
        right = "load the result of gluonloader.merge_states(states of all ranks)"
        raise ValueError(f"state: {what}, but this is rank {shards.rank} of {shards.ranks}; {right}")
    for name, ours in shards.state().items():
        if "ranks" in state or name not in ("rank", "ranks"):
            check_same(state, name, ours, "this loader", cure=_CURES.get(name, ""))
    every = replace(shards, rank=0, ranks=1)
    read = shards if "ranks" in state else every  # the shards that the state describes
    ended = _check_ended(read, state)
    # A rank that had loaded a merged state saved the hints of all ranks in version 0.2.
    hints = [_check_shard(every, hint, "hints.") for hint in list_field(state, "hints")]
    if len(set(hints)) < len(hints):
        raise bad_state("hints", state["hints"], "must have one hint at most for each shard")
    for hint in state["hints"]:
        _check_hint(hint, "hints.")
    _check_leftovers(read, state, ended)
    if state.get("stop") is not None:
        for name in ("chunk", "others"):
            if name == "others" or field(state["stop"], name, "stop.") is not None:
                int_field(state["stop"], name, path="stop.")


def _check_shard(shards: Shards, saved: Any, path: str) -> int:
    """Returns the number of a shard, after checking that these shards contain it."""
    shard = int_field(saved, "shard", path=path)
    if shard >= shards.num_shards or not shards.owns(shard):
        raise bad_state(f"{path}shard", shard, f"must be one of the shards that are read: {shards.owned}")
    return shard


def _check_ended(shards: Shards, state: State) -> dict[int, int]:
    """Returns the last chunks of shards by shard."""
    ended: dict[int, int] = {}
    for pair in list_field(state, "ended"):
        if not isinstance(pair, list) or len(pair) != 2 or not all(type(part) is int for part in pair):
            raise bad_state("ended", pair, "must be two ints, the number of a shard and the number of its last chunk")
        shard, chunk = pair
        if not 0 <= shard < shards.num_shards or not shards.owns(shard) or shard in ended:
            raise bad_state("ended", pair, f"the first int must be one of the shards {shards.owned}, each only once")
        if not 0 <= chunk < MOST // shards.num_shards:
            raise bad_state("ended", pair, f"the second int must be from 0 to 2**62 / num_shards={shards.num_shards}")
        ended[shard] = chunk
    return ended


def _check_leftovers(shards: Shards, state: State, ended: Mapping[int, int]) -> None:
    size, epoch = shards.batch_size, state["epoch"]
    parts: list[tuple[LeftoverKey, int]] = []
    for saved in list_field(state, "leftovers"):
        shard, start = _check_shard(shards, saved, "leftovers."), int_field(saved, "start", path="leftovers.")
        of, chunk = (int_field(saved, name, path="leftovers.") for name in ("epoch", "chunk"))
        stop = int_field(saved, "stop", path="leftovers.")
        if not start < stop < size:
            raise bad_state(
                "leftovers.stop", stop, f"must be from {start + 1} to {size - 1}: these are samples of a batch"
            )
        carried = field(saved, "carried", "leftovers.")
        if type(carried) is not bool or (carried and shards.last_batch != "rollover"):
            right = "must be true or false" if shards.last_batch == "rollover" else "must be false"
            raise bad_state("leftovers.carried", carried, right)
        if not carried and of != epoch:
            raise bad_state("leftovers.epoch", of, f"must be epoch={epoch}")
        if not carried and not ended.get(shard, MOST) <= chunk < MOST // shards.num_shards:
            raise bad_state("leftovers.chunk", chunk, f"must be the last chunk of shard {shard}, as `ended` says")
        _check_hint(field(saved, "hint", "leftovers."), "leftovers.hint.")
        if not carried:  # a pass that is repeated carries the same samples over again
            parts.append(((of, shard, chunk, start), stop))
    for (before, stop), (key, _) in pairwise(sorted(parts, key=itemgetter(0))):
        if before[:3] == key[:3] and stop > key[3]:
            raise bad_state("leftovers", state["leftovers"], f"has samples of shard {key[1]} twice")


def _check_hint(saved: Any, path: str) -> None:
    if saved is not None:
        int_field(saved, "group", path=path)
        state_from_json(field(saved, "state", path))
