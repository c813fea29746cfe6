"""How many batches each rank delivers, so that all deliver the same number; see the policies of `Ranks`.

    lengths of shards, position --> batches left on each rank --> fewest or most --> number at which this rank stops

With known lengths, the numbers of all batches are known before anything is read; see plan/shards.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import bad_state
from ...messages import message
from ...position.shards import Shards, rest_of_leftovers
from ...ranks import Ranks
from ...state import State, ranges_field
from ...work.task import Chunk

Lengths = Mapping[int, int]  # samples by shard


@message(frozen=True, slots=True)
class Stop:
    """Where a rank stops: before the chunk with a number, or after some batches that do not come from full chunks."""

    chunk: int | None  # None: not before all its chunks were read
    others: int  # batches of leftovers and repeated batches

    @staticmethod
    def load(saved: Any) -> Stop | None:
        return None if saved is None else Stop(saved["chunk"], saved["others"])


class Quota:
    """For policies other than "uneven".

    Args:
        lengths: those of the shards of this rank, or of all shards if no `gather` was passed.
    """

    def __init__(self, ranks: Ranks, lengths: Lengths) -> None:
        self.lengths, self._ranks = lengths, ranks
        self._whole: int | None = None  # the number of batches of a whole epoch, once it is known

    def batches(self, shards: Shards) -> int:
        """The number of batches of a whole epoch, on each rank; the first call may call `gather`."""
        if self._whole is None:
            self._whole = self._target(shards, _Left(shards, self.lengths, None), None)
        return self._whole

    def stop(self, shards: Shards, state: State | None) -> Stop:
        """Where this rank stops.

        Args:
            state: a position that is shared with other ranks; None for the start of an epoch.
        """
        own = _Left(shards, self.lengths, state)
        return own.stop_after(self.batches(shards) if state is None else self._target(shards, own, state))

    def check_length(self, chunk: Chunk, count: int) -> None:
        """Raises a ValueError if a chunk with `count` samples shows that the stated length of its shard is wrong."""
        stated, read = self.lengths[chunk.shard], chunk.number * chunk.size + count
        if read > stated if count == chunk.size else read != stated if count else read < stated:
            how = "exactly" if 0 < count < chunk.size else "at least" if count else "at most"
            what = f"shard {chunk.shard} has {how} {read:,} samples"
            right = "so the ranks would deliver different numbers of batches; state the right lengths"
            raise ValueError(f"ranks: {what}, but its stated length is {stated:,}, {right}")

    def _target(self, shards: Shards, own: _Left, state: State | None) -> int:
        if self._ranks.gather is None:
            counts = [_Left(replace(shards, rank=rank), self.lengths, state).batches for rank in range(shards.ranks)]
        else:
            counts = self._ranks.gathered(own.batches)
        target = min(counts) if self._ranks.policy == "drop" else max(counts)
        if target > own.batches and not any(full_chunks(shards, self.lengths).values()):
            what = f"rank {shards.rank} has no full batch that it could repeat"
            right = "since each of its shards is smaller than a batch; pass fewer shards or policy='drop'"
            raise ValueError(f"ranks: {what}, {right}")
        return target


def full_chunks(shards: Shards, lengths: Lengths) -> dict[int, int]:
    """How many chunks of each shard of this process are full."""
    return {shard: lengths[shard] // shards.batch_size for shard in shards.owned}


def chunk_at(shards: Shards, lengths: Lengths, position: int) -> int:
    """The number of the full chunk at this position of the epoch, which starts again after the last full chunk."""
    full = full_chunks(shards, lengths)
    chunks = range((max(full.values()) + 1) * shards.num_shards)
    wanted = position % sum(full.values()) + 1
    return bisect_left(chunks, wanted, key=lambda number: _before(shards, full, number + 1))


def _before(shards: Shards, full: Mapping[int, int], number: int) -> int:
    """How many chunks before chunk `number` are full."""
    return sum(min(count, len(range(shard, number, shards.num_shards))) for shard, count in full.items())


def check_stop(quota: Quota | None, shards: Shards, state: State) -> None:
    """Raises a ValueError if this rank cannot stop where a position says."""
    stop = state["stop"]
    if quota is None:
        right = "the loader that was saved had a policy for ranks; pass the same policy: Ranks(..., policy=...)"
        raise bad_state("stop", stop, right)
    if stop is None or any(full_chunks(shards, quota.lengths).values()):
        return
    most = shards.batches(sum(quota.lengths[shard] % shards.batch_size for shard in shards.owned))
    if stop["others"] > most:
        raise bad_state("stop.others", stop["others"], f"must be at most {most}: there is no full batch to repeat")


class _Left:
    """The batches that are left of an epoch for one rank.

    Attributes:
        batches: how many.
    """

    def __init__(self, shards: Shards, lengths: Lengths, state: State | None) -> None:
        self._shards = shards
        size, full = shards.batch_size, full_chunks(shards, lengths)
        samples = sum(lengths[shard] % size for shard in full)
        self._first, self._ahead = 0, list[range]()
        if state is not None:
            ended = {shard: chunk for shard, chunk in state["ended"] if shard in full}
            samples = sum(lengths[shard] % size for shard in full.keys() - ended.keys())
            whole = replace(shards, rank=0, ranks=1)
            rest = [part for part in rest_of_leftovers(whole, state) if part["shard"] in full]
            samples += sum(part["stop"] - part["start"] for part in rest)
            full.update(ended)
            self._first = state["batch"]
            self._ahead = ranges_field(state, "ahead")
        self._full = full
        self._in_chunks = self._unsettled(self._first_leftover)
        self.batches = self._in_chunks + shards.batches(samples)

    @property
    def _first_leftover(self) -> int:
        return (max(self._full.values(), default=0) + 1) * self._shards.num_shards

    def _unsettled(self, number: int) -> int:
        """How many full chunks before chunk `number` are not settled."""
        settled = [range(self._first), *self._ahead]
        return self._full_in(range(number)) - sum(
            self._full_in(range(part.start, min(part.stop, number))) for part in settled if part.start < number
        )

    def _full_in(self, numbers: range) -> int:
        """How many full chunks have one of these numbers."""
        before, until = (_before(self._shards, self._full, number) for number in (numbers.start, numbers.stop))
        return until - before

    def stop_after(self, count: int) -> Stop:
        if count >= self._in_chunks:
            return Stop(None, count - self._in_chunks)
        return Stop(bisect_left(range(self._first_leftover), count, key=self._unsettled), 0)
