"""Refuses a random order for a dataset that would read the same parts of its files again and again.

`declared.slow_in_random_order` asks the dataset. An order is judged only if it is known: the orders of gluonloader's
samplers, and those of samplers of torch, MXNet and Accelerate, which are known by the names of their classes.
"""

from __future__ import annotations

from typing import Any, Final

from ..declared import slow_in_random_order
from ..errors import bad_argument
from ..sampler.base import OrderedSampler, iterating_class

_LIBRARIES: Final = ("gluonloader.sampler.", "torch.utils.data.", "mxnet.gluon.data.", "accelerate.")
_WRAP: Final = ("BatchSampler", "ShardedSampler", "BatchSamplerShard")  # they yield the order of the sampler in them
_DRAW: Final = ("RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler")  # from a generator
_SHUFFLE: Final = (*_DRAW, "SeedableRandomSampler")


def check_random_order(dataset: Any, shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
    """Checks the arguments of a loader that set the order of the samples.

    Raises:
        ValueError: the order is random, and the dataset is slow to read in it; the text says what to pass instead.
    """
    right = slow_in_random_order(dataset)
    if not right or not hasattr(dataset, "__len__"):  # if the whole is not slow, no part is
        return
    name, order = ("sampler", sampler) if batch_sampler is None else ("batch_sampler", batch_sampler)
    try:
        whole = range(len(dataset))
    except TypeError:  # the sampler decides what the samples are
        return
    mixed = whole if shuffle else _mixed_by(order, whole)
    if mixed is None:
        return
    if not isinstance(mixed, range) or mixed != whole:
        right = slow_in_random_order(dataset, mixed)
    if right:
        raise bad_argument("shuffle", True, right) if shuffle else bad_argument(name, order, right)


def _mixed_by(order: Any, whole: range) -> Any:
    """The indices that a sampler or batch sampler mixes at random, an array or a range; None if it is not random."""
    while (kind := library_class(order)) in _WRAP:
        order = getattr(order, "sampler", getattr(order, "batch_sampler", None))
    if iterating_class(order) is OrderedSampler:
        return order.random_over
    is_random = kind in _SHUFFLE or (kind == "DistributedSampler" and order.shuffle)
    return getattr(order, "indices", whole) if is_random else None


def draws_unseeded(sampler: Any) -> bool:
    """Whether it is known that a sampler of another library draws its order from a global generator."""
    if isinstance(sampler, OrderedSampler) or library_class(sampler) not in _DRAW:
        return False
    return getattr(sampler, "generator", None) is None


def library_class(sampler: Any) -> str:
    """The name of the class that decides the order of a sampler; "" if it is a class of the user's."""
    owner = iterating_class(sampler) or object
    return owner.__name__ if owner.__module__.startswith(_LIBRARIES) else ""
