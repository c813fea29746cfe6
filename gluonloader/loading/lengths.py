"""How many samples the shards of an iterable dataset have, as far as that is stated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..checks import check_int
from ..dataset.iterable import Filter, Take, length_of, unwrap
from ..dataset.opening import has_shard, part_of
from ..errors import bad_argument
from ..ranks import Ranks
from .plan import Shards
from .plan.quota import Quota


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
            f"it needs the length of each shard, and {type(dataset).__name__} does not say it; pass "
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
    if has_shard(source) and not any(isinstance(step, Take) for step in steps):
        parts = {shard: part_of(source, shards.num_shards, shard) for shard in needed}
        return {shard: len(range(part.start, len(part.dataset), part.stride)) for shard, part in parts.items()}
    total = length_of(source, steps)
    return {shard: len(range(shard, total, shards.num_shards)) for shard in needed}
