"""How many samples a dataset and the shards of an iterable dataset have, as far as that is stated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..checks import check_int
from ..dataset.iterable import Filter, length_of, makes_shards, unwrap
from ..dataset.opening import part_of
from ..describe import class_name, counted
from ..errors import bad_argument, warn
from ..ranks import Ranks
from .plan import Plan, ShardPlan, Shards
from .plan.quota import Quota


def length_if_known(dataset: Any) -> int | None:
    """The length of a dataset; None if it has none or, as in tf.data, the length is unknown."""
    try:
        return len(dataset)
    except TypeError:
        return None


class LengthCheck:
    """Warns if the length of a dataset is not the number of samples of an epoch; at most once for each cause."""

    def __init__(self) -> None:
        self._compares_start = self._compares_end = True

    def at_start(self, dataset: Any, fixed: int | None, copied: int | None) -> None:
        """Compares the length with the length that counts, if that is fixed.

        Args:
            fixed: see `IndexSource`.
            copied: see `Workers`.
        """
        before = copied if fixed is None else fixed
        if before is None or not self._compares_start:
            return
        length = length_if_known(dataset)
        if length is None or length == before:
            return
        self._compares_start = False
        what = f"{class_name(dataset)} has {counted(length, 'sample', 'samples')} now"
        if fixed is None:
            text = f"{what}, but had {before:,} when the workers started, and they keep the copies that they got then"
        else:
            text = f"{what}, but had {before:,} when the loader was made, and each epoch still reads those"
        warn(f"{text}; to read the dataset as it is now, make a new DataLoader")

    def at_end(self, dataset: Any, plan: Plan) -> None:
        """Compares the length of an iterable dataset with the samples that it has yielded."""
        if not self._compares_end or not isinstance(plan, ShardPlan):
            return
        length = length_if_known(dataset)
        if length is not None and plan.samples_read > length:
            self._compares_end = False
            warn(
                f"{class_name(dataset)} yielded {plan.samples_read:,} samples, but its length is {length:,}, so "
                "len(loader) is too small; return the right number from __len__, or remove __len__",
            )


def quota_of(dataset: Any, shards: Shards, ranks: Ranks) -> Quota | None:
    """The quota of this rank; None if each rank delivers its own samples.

    Raises:
        ValueError: the policy needs lengths, and they are not known.
    """
    if ranks.policy == "uneven" or ranks.count == 1:
        return None
    if shards.last_batch == "rollover":
        right = "with last_batch='rollover' the samples of an epoch depend on earlier ones; pass 'keep' or 'discard'"
        raise bad_argument("policy", ranks.policy, right)
    if ranks.shard_lengths is not None:
        return Quota(ranks, _stated(ranks.shard_lengths, shards))
    needed = shards.owned if ranks.gather else range(shards.num_shards)
    try:
        return Quota(ranks, lengths_of(dataset, shards, needed))
    except TypeError:
        right = (
            f"it needs the length of each shard, and {class_name(dataset)} does not say it; pass "
            'Ranks(..., shard_lengths=[...]), define __len__, or pass policy="uneven"'
        )
        raise bad_argument("policy", ranks.policy, right) from None


def _stated(lengths: Sequence[int], shards: Shards) -> dict[int, int]:
    if len(lengths) != shards.num_shards:
        right = f"there are num_shards={shards.num_shards} shards; pass one length for each"
        raise bad_argument("shard_lengths", lengths, right)
    return {shard: check_int("shard_lengths", length) for shard, length in enumerate(lengths)}


def lengths_of(dataset: Any, shards: Shards, needed: Iterable[int]) -> dict[int, int]:
    """The length of each shard; TypeError if it is not known."""
    source, steps = unwrap(dataset)
    if any(isinstance(step, Filter) for step in steps):
        raise TypeError("a filter drops an unknown number of samples")
    if makes_shards(source, steps):
        parts = {shard: part_of(source, shards.num_shards, shard) for shard in needed}
        return {shard: len(range(part.start, len(part.dataset), part.stride)) for shard, part in parts.items()}
    total = length_of(source, steps)
    return {shard: len(range(shard, total, shards.num_shards)) for shard in needed}
