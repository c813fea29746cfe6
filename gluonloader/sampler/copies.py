"""Copies of a user's samplers, to draw an order again while the samplers stay as they are; and checks of samplers.

A copy draws the order of an epoch, and has to draw the same order each time.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from ..errors import bad_argument
from ..indices import as_list
from ..randomness import seed_restorable
from .base import BatchSampler, OrderedSampler, iterate, iterating_class
from .epochs import set_epoch
from .saved import FIXED, chain_of
from .sharded import ShardedSampler
from .weighted import WeightedSampler

_COMPARED: Final = 64  # keys; orders of so many keys are equal by chance only if the sampler does not shuffle
_MOST_COMPARED: Final = 100_000


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


def users_copy(batch_sampler: Any, shared: Any) -> Any:
    """A copy of any other batch sampler, at the start of a pass; it refers to the same object `shared`."""
    new = copy.deepcopy(batch_sampler, {id(shared): shared})
    if isinstance(new, BatchSampler):
        new.carried = []
    return new


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
