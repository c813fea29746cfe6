"""`merge_states`: the positions of all ranks as one position, for any other number of ranks.

For an iterable dataset; merging_orders.py does the same for other datasets:

    state of rank 0 --+
    state of rank 1 --+--> the state of one process that reads all shards --> each new rank takes its shards
    state of rank 2 --+

A chunk has the same number on every rank (see loading/plan/shards.py), and each shard belongs to one rank. So a chunk
is settled if the rank that owns its shard has settled it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from ..checks import check_last_batch
from ..errors import bad_state
from ..state import (
    add_checksum,
    check_same,
    field,
    int_field,
    parse_state,
    ranges_field,
    save_ranges,
    seed_field,
    to_ranges,
)
from .merging_orders import merge_orders
from .shards import ShardEnds, Shards, check, in_leftovers, rest_of_leftovers

_OWN: Final = ("batch", "ahead", "ended", "hints", "leftovers", "errors", "rank", "ranks", "stop", "epoch", "check")
_MOST_SHARDS: Final = 2**18  # the merged state may contain a few bytes for each
_MOST_AHEAD: Final = 2**18  # chunks that some ranks have delivered, and others have not reached


def merge_states(states: Iterable[Any]) -> dict[str, Any]:
    """Returns one state for the states of all ranks; see `docs/processes.md`.

    Load the result on every rank, with any number of ranks, or in a single process. Then each sample that no rank has
    delivered before comes exactly once. For a dataset with `__getitem__`, all ranks have to have delivered the same
    number of batches, or all their batches of the epoch. The state of a single process is returned as it is, and so is
    a merged state that all ranks have loaded.

    Args:
        states: for each rank what `state_dict()` of its loader returned, or the same as JSON text, in any order.

    Raises:
        ValueError: a state is missing, comes twice, or does not fit the other states; the text says which.
    """
    if isinstance(states, (str, bytes, Mapping)):
        raise ValueError("states: it is a single state; pass a list with the state of each rank")
    given = [parse_state(state) for state in states]
    if given and not _is_of_rank(given[0]) and all(state == given[0] for state in given):
        return given[0]  # a single process has saved it, or it is merged already, and all ranks have loaded it
    if given and "sampler" in given[0]:
        return merge_orders(given)
    parsed = _checked(given)
    epoch = min(state["epoch"] for state in parsed)
    ranks = [_Rank(state, epoch) for state in parsed]
    reading = [rank for rank in ranks if not rank.reads_leftovers]
    num_shards = parsed[0]["num_shards"]
    ended = sorted([shard, chunk] for rank in ranks for shard, chunk in rank.ended.items())
    if reading:
        batch = min(rank.batch for rank in reading)
        settled = {number for rank in ranks for number in rank.settled_from(batch)}
        while batch in settled:  # a rank may have stopped at a number of another rank
            batch += 1
        ahead = sorted(number for number in settled if number > batch)
    else:
        batch, ahead = num_shards, []
    merged = {name: value for name, value in parsed[0].items() if name not in _OWN}
    if "errors" in parsed[0]:
        merged["errors"] = sum(int_field(state, "errors") for state in parsed if state["epoch"] == epoch)
    return add_checksum(
        {
            **merged,
            "epoch": epoch,
            "batch": batch,
            "ahead": save_ranges(to_ranges(ahead)),
            "ended": ended,
            "hints": [hint for rank in ranks for hint in rank.hints],
            "leftovers": [leftover for rank in ranks for leftover in rank.leftovers()],
        }
    )


def _is_of_rank(state: Mapping[str, Any]) -> bool:
    """Whether it is the state of one of several ranks."""
    return bool(state.get("ranks", 1) != 1)


def _checked(states: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The states in the order of the ranks."""
    if not states:
        raise ValueError("states: there is none; pass the states of all ranks")
    by_rank: dict[int, Mapping[str, Any]] = {}
    for state in states:
        if "ranks" not in state:
            right = "it was saved by a loader without `ranks`, or is merged already; load it without merge_states"
            raise ValueError(f"states: one of them is not the state of a rank: {right}")
        check(_shards_of(state), state)
        seed_field(state)
        if by_rank.setdefault(rank := state["rank"], state) is not state:
            raise ValueError(f"states: rank {rank} comes twice; pass one state for each rank")
        for name in [*(name for name in states[0] if name not in _OWN), "ranks"]:
            check_same(state, name, field(states[0], name), f"rank {states[0]['rank']}")
    if (count := states[0]["ranks"]) > len(by_rank):
        missing = [rank for rank in range(min(count, len(by_rank) + 10)) if rank not in by_rank]
        more = " and others" if count - len(by_rank) > len(missing) else ""
        raise ValueError(f"states: those of ranks {missing}{more} are missing; pass the states of all ranks")
    return [by_rank[rank] for rank in sorted(by_rank)]


def _shards_of(state: Mapping[str, Any]) -> Shards:
    count, num_shards = int_field(state, "ranks", 1), int_field(state, "num_shards", 1)
    if not count <= num_shards <= _MOST_SHARDS:
        raise bad_state("num_shards", num_shards, f"must be from ranks={count} to {_MOST_SHARDS}")
    if int_field(state, "rank") >= count:
        raise bad_state("rank", state["rank"], f"must be less than ranks={count}")
    try:
        last_batch = check_last_batch(field(state, "last_batch"))
    except ValueError as error:
        raise ValueError(f"state: {error}") from None
    sizes = num_shards, int_field(state, "batch_size", 1), last_batch, int_field(state, "shuffle_buffer")
    return Shards(*sizes, 1, state["rank"], count)


class _Rank:
    """The position of one rank in an epoch, which it may have finished.

    Attributes:
        ended: the last chunk of each of its shards that has ended.
        batch: the first number that is not settled.
        reads_leftovers: whether all chunks of its shards are settled.
    """

    def __init__(self, state: Mapping[str, Any], epoch: int) -> None:
        self._state, self._shards = state, _shards_of(state)
        self.batch: int = state["batch"]
        self._ahead = ranges_field(state, "ahead")
        self._finished = state["epoch"] > epoch
        ends = ShardEnds(self._shards, dict(state["ended"]))
        if self._finished and (state["epoch"] > epoch + 1 or self.batch or self._ahead or ends.last_chunks):
            right = f"while other ranks are in epoch {epoch}; save the states of all ranks at the same time"
            raise bad_state("epoch", state["epoch"], f"rank {state['rank']} has read a part of it, {right}")
        self.reads_leftovers = self._finished or in_leftovers(ends, self.batch)
        # If all chunks are settled, it does not matter where the shards end.
        self.ended = dict.fromkeys(self._shards.owned, 0) if self.reads_leftovers else ends.last_chunks

    def settled_from(self, first: int) -> list[int]:
        """The numbers, from `first` on, of those chunks of its shards that exist and are settled.

        Raises:
            ValueError: there are too many.
        """
        owned, step, found, left = self._shards.owned, self._shards.num_shards, list[int](), _MOST_AHEAD
        for part in self._settled:
            part = range(max(part.start, first), part.stop)
            few = len(part) < len(owned)
            shards = [number % step for number in part if self._shards.owns(number % step)] if few else owned
            chunks = [self._chunks_in(part, shard) for shard in shards]
            left -= min(len(part), len(owned)) + sum(map(len, chunks))
            if left < 0:
                right = f"is too far ahead of batch={first} of another rank; save the states of all ranks together"
                raise bad_state("batch", self.batch, f"rank {self._shards.rank} {right}")
            found += chain.from_iterable(chunks)
        return found

    def _chunks_in(self, part: range, shard: int) -> range:
        """Those numbers in `part` that are numbers of chunks of a shard."""
        step = self._shards.num_shards
        stop = self.ended[shard] * step + shard + 1 if shard in self.ended else part.stop
        return range(part.start + (shard - part.start) % step, min(part.stop, stop), step)

    @property
    def _settled(self) -> list[range]:
        if self.reads_leftovers:  # then no chunk of its shards is left; `ended` says that each has one
            return [range(self._shards.num_shards)]
        return [range(self.batch), *self._ahead]

    @property
    def hints(self) -> list[Any]:
        own = [hint for hint in self._state["hints"] if self._shards.owns(hint["shard"])]
        return [] if self._finished else own

    def leftovers(self) -> list[dict[str, Any]]:
        """Those parts of the leftovers that are not in a settled batch."""
        return list(self._state["leftovers"]) if self._finished else rest_of_leftovers(self._shards, self._state)
