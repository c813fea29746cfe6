"""How an order becomes the batches of a rank, in numbers: offsets in the order of all ranks, and numbers of batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..messages import message
from ..sampler.base import BatchSampler, is_computed, iterating_class
from ..sampler.passes import length_of
from ..sampler.sharded import ShardedSampler


@message(frozen=True, slots=True)
class Cut:
    """How an order becomes the batches of this rank.

    Attributes:
        order: the sampler whose keys a position counts.
        size: the number of these keys in a batch; None if the keys are batches.
        last_batch: what happens to a last batch that is too short.
        computed: whether the order of any epoch can be computed.
        length: the number of keys in the order; None if it is not known.
        share: what divides the order, or its batches, among the ranks; None if nothing does.
        batches: what cuts the keys of this rank; None if a key is a batch, or if ranks divide batches.
    """

    order: Any
    size: int | None
    last_batch: str
    computed: bool
    length: int | None
    share: ShardedSampler | None
    batches: BatchSampler | None

    @property
    def divides(self) -> str:
        """What the ranks divide."""
        return "batches" if self.batches is None else "samples"

    @property
    def ranks(self) -> int:
        return 1 if self.share is None else self.share.num_shards

    @property
    def rank(self) -> int:
        return 0 if self.share is None else self.share.index

    def offset_after(self, batches: int, start: int, carried: int) -> int:
        """The offset after so many batches of each rank, of which the first contains `carried` keys of its own."""
        offset = start + max(batches * (self.size or 1) - carried, 0) * self.ranks
        return offset if self.length is None else min(offset, self.length)

    def batches_left(self, offset: int, carried: int) -> int | None:
        """How many batches of this rank follow an offset; None if it is not known."""
        if self.length is None:
            return None
        share = (lambda count: count) if self.share is None else self.share.count
        return batches_of(self.length - offset, carried, self.divides, self.size, self.last_batch, share)


def batches_of(
    keys: int, carried: int, divides: str, size: int | None, last_batch: str, share: Callable[[int], int]
) -> int:
    """How many batches of a rank the last keys of an order make.

    Args:
        keys: how many are left for all ranks.
        carried: how many keys of its own the rank has besides.
        divides, size, last_batch: see `Cut`.
        share: how many of so many keys or batches belong to the rank.
    """
    own = share(keys) + carried if divides == "samples" else keys
    batches = -(-own // (size or 1)) if last_batch == "keep" else own // (size or 1)
    return batches if divides == "samples" else share(batches)


def cut_of(batch_sampler: Any) -> Cut:
    """How the order of any batch sampler is divided and cut."""
    batches = batch_sampler if iterating_class(batch_sampler) is BatchSampler else None
    order = batch_sampler if batches is None else batches.sampler
    share = order if iterating_class(order) is ShardedSampler else None
    order = order if share is None else share.sampler
    cuts = batches
    if batches is None and share is not None:
        inner = share.sampler
        if iterating_class(inner) is BatchSampler and inner.last_batch != "rollover":
            cuts, order = inner, inner.sampler
    size, last_batch = (None, "keep") if cuts is None else (cuts.batch_size, cuts.last_batch)
    computed = is_computed(order)
    length = length_of(order) if share is not None or computed else None
    return Cut(order, size, last_batch, computed, length, share, batches)
