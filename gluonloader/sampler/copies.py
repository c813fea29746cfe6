"""Copies of samplers for any epoch, so that an order can be drawn again while the samplers stay as they are.

computed    samplers of gluonloader: the order of any epoch is computed, and its end is read without the rest
other       a user's samplers: a copy draws the order, and has to draw the same order each time
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from ..errors import bad_argument
from ..indices import as_list
from ..randomness import seed_restorable
from .base import BatchSampler, OrderedSampler, Sampler, SeededSampler, iterate, iterating_class, start_pass
from .epochs import set_epoch
from .passes import cut, length_of, skip
from .saved import FIXED, chain_of
from .sharded import ShardedSampler
from .weighted import WeightedSampler

_COMPARED: Final = 64  # keys; orders of so many keys are equal by chance only if the sampler does not shuffle
_MOST_COMPARED: Final = 100_000


def is_computed(sampler: Any) -> bool:
    """Whether the order of any epoch can be computed: this is a sampler of gluonloader, and so are those in it."""
    if type(sampler) in FIXED:
        return True
    kind = iterating_class(sampler)
    return kind is OrderedSampler or (kind in (BatchSampler, ShardedSampler) and is_computed(sampler.sampler))


def check_orders_documents(name: str, sampler: Any) -> None:
    """Checks an argument that sets the order of documents, which has to stay the same while an epoch runs.

    Raises:
        ValueError: its order cannot be computed part by part, or may change.
    """
    if type(sampler) not in FIXED and iterating_class(sampler) is not OrderedSampler:
        right = "it must be a sampler of gluonloader, or a list, range or array of indices"
        if isinstance(sampler, (BatchSampler, ShardedSampler)):
            right += "; to divide samples among ranks, pass ranks to the loader instead"
        raise bad_argument(name, sampler, right)
    if isinstance(sampler, WeightedSampler) and sampler.draws_by_current_weights:
        right = "its weights may change while an epoch runs; pass replacement=False to it, or use a MixtureSampler"
        raise bad_argument(name, sampler, right)


def unseeded(batch_sampler: Any) -> Any:
    """The sampler that has drawn its seed at random, if there is one."""
    return next((sampler for sampler in chain_of(batch_sampler) if getattr(sampler, "adopts", False)), None)


def changes_of(batch_sampler: Any) -> int:
    """How often the user has changed what the order depends on, such as weights; see `WeightedSampler.changes`."""
    return sum(getattr(sampler, "changes", 0) for sampler in chain_of(batch_sampler))


def computed_copy(sampler: Any, shift: int | None = None) -> Any:
    """A copy of a computed sampler, at the start of the epoch that comes `shift` epochs later than its next epoch.

    If `shift` is None, the next pass of the copy is that of the original.

    Raises:
        ValueError: that epoch is negative.
    """
    if type(sampler) in FIXED:
        return sampler
    new = copy.copy(sampler)
    if hasattr(new, "sampler"):
        new.sampler = computed_copy(new.sampler, shift)
    if shift is None:
        return new
    if isinstance(new, SeededSampler):
        new._epoch += shift
        if new._epoch < 0:
            name = type(sampler).__name__
            raise ValueError(
                f"the next epoch of this {name} is {sampler._epoch}, but the loader has started more epochs; "
                f"the {name} was changed outside of the loader, so make a new loader with a new {name}"
            )
    new._forget_position()
    return new


def pass_length(sampler: Any, state: Mapping[str, Any]) -> int | None:
    """How many keys or batches a pass of a computed sampler has, at most; `state` describes the pass, and fits.

    None if only planning the whole pass would tell.
    """
    if length_of(sampler) is None:
        return None
    if isinstance(sampler, BatchSampler):
        inner = pass_length(sampler.sampler, state["sampler"])
        assert inner is not None, "otherwise the batch sampler has no length either"
        keys = len(state["carried"]) + inner - int(state.get("start", 0))
        size = int(state["batch_size"])
        return -(-keys // size) if state["last_batch"] == "keep" else keys // size
    if isinstance(sampler, ShardedSampler):
        return -(-int(state["length"] - state["start"]) // int(state["num_shards"]))
    return len(sampler)


def users_copy(batch_sampler: Any, shared: Any) -> Any:
    """A copy of any other batch sampler, at the start of a pass; it refers to the same object `shared`."""
    new = copy.deepcopy(batch_sampler, {id(shared): shared})
    for sampler in chain_of(new):
        if isinstance(sampler, Sampler):
            sampler._forget_position()
    return new


def last_keys(sampler: Any, count: int) -> list[Any]:
    """The last keys of the next pass of a computed sampler, which moves on to its next epoch."""
    indices = start_pass(sampler)
    skip(indices, len(sampler) - count)
    return as_list(cut(indices, count))


def repeats(batch_sampler: Any, epoch: int, users: Sequence[int]) -> bool:
    """Whether each pass of this copy yields the same order, whatever the global generators draw; this seeds them.

    Args:
        users: the epochs of the user's samplers in it.
    """
    first: list[Any] | None = None
    compared = passes = 0
    while passes < 2 or (0 < compared < _COMPARED):
        seed_restorable(passes)
        set_epoch(batch_sampler, epoch, users)
        order = list(islice(_keys(batch_sampler), _MOST_COMPARED))
        first = order if first is None else first
        if order != first:
            return False
        compared, passes = compared + len(order), passes + 1
    return True


def _keys(batch_sampler: Any) -> Iterable[Any]:
    for batch in iterate(batch_sampler):
        yield from as_list(batch)
