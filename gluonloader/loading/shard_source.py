"""The source of tasks for an iterable dataset: the chunks of its shards, and how many batches each rank delivers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ..checks import check_int
from ..dataset.iterable import filters, makes_shards, unwrap
from ..dataset.opening import part_of
from ..describe import class_name, counted, describe
from ..errors import bad_argument, warn
from ..lengths import length_if_known
from ..position import shards as position
from ..position.shards import Leftover, Shards
from ..ranks import Ranks
from ..sampler.passes import warn_of_overlap
from ..state import State
from .plan import Plan
from .plan.quota import Lengths, Quota, check_stop
from .plan.shards import ShardPlan

T = TypeVar("T")


class ShardSource:
    """Chunks of the shards of an iterable dataset; for the methods see `IndexSource`.

    Args:
        stated: the length of each shard, if the user has passed them.
    """

    loader = "a DataLoader"
    sampler = fixed_length = None
    draws_late = False

    def __init__(self, shards: Shards, stated: Lengths | None = None, quota: Quota | None = None) -> None:
        self.shards, self._stated, self._quota = shards, stated, quota
        self._carried: list[Leftover] = []
        self._iteration = 0

    def length(self, dataset: Any) -> int | None:
        return length_if_known(dataset)

    def batches(self, dataset: Any, copied_length: int | None) -> int:
        if self._quota is not None:
            return self._quota.batches(self.shards)
        shards = self.shards
        if self._stated is not None:
            own = sum(self._stated[shard] for shard in shards.owned)
        elif shards.ranks == 1:
            own = len(dataset) if copied_length is None else copied_length
        else:
            own = sum(lengths_of(dataset, shards, shards.owned).values())
        return shards.batches(own + sum(leftover.stop - leftover.start for leftover in self._carried))

    def plan(self, epoch: int, seed: int, loaded: State | None) -> Plan:
        self._iteration += 1
        return ShardPlan(self.shards, epoch, seed, self._iteration, self._carried, loaded, self._quota)

    def other_plan(self, epoch: int, seed: int, carried: list[Leftover], loaded: State | None = None) -> ShardPlan:
        """A plan that is no epoch of the loader: of a fresh state, or for workers that the loader does not use."""
        return ShardPlan(self.shards, epoch, seed, -1, carried, loaded, self._quota)

    def fresh_state(self, epoch: int, seed: int) -> dict[str, Any]:
        return self.other_plan(epoch, seed, self._carried).state()

    def fit(self, fields: State, new_batch_size: bool) -> State:
        if new_batch_size:
            right = "the positions of an iterable dataset count batches in each shard; load it with the same batch_size"
            raise bad_argument("new_batch_size", new_batch_size, right)
        position.check(self.shards, fields)
        if "stop" in fields:
            check_stop(self._quota, self.shards, fields)
        return fields

    def load(self, fields: State, load_rest: Callable[[], T], new_batch_size: bool) -> T:
        result = load_rest()
        self._carried = position.carried_of(self.shards, fields)
        return result

    def warn_of_reading(self, dataset: Any, fields: State) -> None:
        """Warns if samples before this position are read again."""
        if skipped := self.other_plan(fields["epoch"], fields["seed"], [], fields).chunks_to_skip():
            batches = counted(skipped, "batch", "batches")
            warn(
                f"resuming {class_name(dataset)} reads the samples of about {batches} again, to skip them; "
                "a dataset with state_dict() and load_state_dict() resumes without reading them again",
            )

    def set_epoch(self, number: int, loaded: bool = False) -> bool:
        return False

    def leave_epochs(self) -> None:
        pass

    def move_on(self, number: int) -> None:
        pass

    def finish(self, plan: Plan) -> None:
        if not isinstance(plan, ShardPlan) or not plan.finished or plan.outdated or plan.carried_before is None:
            return
        if plan.carried_before is not self._carried:
            warn_of_overlap(sum(leftover.stop - leftover.start for leftover in self._carried))
        self._carried, plan.carried_before = plan.carried_over, None


def quota_of(dataset: Any, shards: Shards, ranks: Ranks, stated: Lengths | None) -> Quota | None:
    """The quota of this rank; None if each rank delivers its own samples.

    Args:
        stated: as for `ShardSource`.

    Raises:
        ValueError: the policy needs lengths, and they are not known.
    """
    if ranks.policy == "uneven" or ranks.count == 1:
        return None
    if shards.last_batch == "rollover":
        right = "with last_batch='rollover' the samples of an epoch depend on earlier ones; pass 'keep' or 'discard'"
        raise bad_argument("policy", ranks.policy, right)
    if stated is not None:
        return Quota(ranks, stated)
    needed = shards.owned if ranks.gather else range(shards.num_shards)
    try:
        return Quota(ranks, lengths_of(dataset, shards, needed))
    except TypeError:
        right = (
            f"it needs the length of each shard, and {describe(dataset)} does not say it; pass "
            'Ranks(..., shard_lengths=[...]), define __len__, or pass policy="uneven"'
        )
        raise bad_argument("policy", ranks.policy, right) from None


def stated_lengths(lengths: Sequence[int] | None, shards: Shards) -> Lengths | None:
    """The argument `shard_lengths` of `Ranks`, by shard."""
    if lengths is None:
        return None
    if len(lengths) != shards.num_shards:
        right = f"there are num_shards={shards.num_shards} shards; pass one length for each"
        raise bad_argument("shard_lengths", lengths, right)
    return {shard: check_int("shard_lengths", length) for shard, length in enumerate(lengths)}


def lengths_of(dataset: Any, shards: Shards, needed: Iterable[int]) -> dict[int, int]:
    """The length of each shard; TypeError if it is not known."""
    source, steps = unwrap(dataset)
    if makes_shards(source, steps):
        if filters(steps):
            raise TypeError("a filter drops an unknown number of samples")
        parts = {shard: part_of(source, shards.num_shards, shard) for shard in needed}
        return {shard: len(range(part.start, len(part.dataset), part.stride)) for shard, part in parts.items()}
    total = len(dataset)
    return {shard: len(range(shard, total, shards.num_shards)) for shard in needed}
