"""Gluon's samplers: gluonloader's classes that also derive from Gluon's, so that code of MXNet accepts them."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from ..sampler import base, ordered, shuffled
from .gluon import sampler as _gluon

__all__ = ["BatchSampler", "FilterSampler", "IntervalSampler", "RandomSampler", "Sampler", "SequentialSampler"]


def __getattr__(name: str) -> Any:
    return getattr(_gluon, name)


class Sampler(base.Sampler, _gluon.Sampler):
    """Base class of samplers; in a subclass, `__iter__` yields indices and `__len__` returns their number."""


class SequentialSampler(ordered.SequentialSampler, Sampler, _gluon.SequentialSampler):
    """Yields the indices `start`, `start + 1`, ..., `start + length - 1`."""


class RandomSampler(shuffled.RandomSampler, Sampler, _gluon.RandomSampler):
    """Yields each index of `range(length)` once, in a new random order each epoch."""


class FilterSampler(ordered.FilterSampler, Sampler, _gluon.FilterSampler):
    """Yields the indices of the samples for which `fn(sample)` is true; the constructor calls `fn` on every sample."""


class IntervalSampler(ordered.IntervalSampler, Sampler):
    """Yields every `interval`-th index from 0; with `rollover`, then from 1, from 2, ... until each index came once."""


def _renamed(name: str) -> Any:
    """A property that reads and sets the attribute `name`."""
    return property(attrgetter(name), lambda self, value: setattr(self, name, value))


class BatchSampler(base.BatchSampler, Sampler, _gluon.BatchSampler):
    """Cuts the indices of a sampler into lists of `batch_size`; `last_batch` is 'keep', 'discard' or 'rollover'."""

    # Gluon's names for the attributes of this class; subclasses also set them:
    _sampler, _batch_size, _last_batch, _prev = map(_renamed, ("sampler", "batch_size", "last_batch", "carried"))


def with_gluons_names(batch_sampler: Any) -> Any:
    """A batch sampler that the loader has made, with Gluon's class and names; both objects share their attributes."""
    if type(batch_sampler) is not base.BatchSampler:
        return batch_sampler
    shown = object.__new__(BatchSampler)
    shown.__dict__ = batch_sampler.__dict__
    return shown
