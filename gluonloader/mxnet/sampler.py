"""Gluon's samplers: ours by behaviour, and instances of Gluon's classes, so that MXNet's own code takes them."""

from __future__ import annotations

from typing import Any

from .. import sampler as core
from .gluon import sampler as _gluon

__all__ = ["BatchSampler", "FilterSampler", "IntervalSampler", "RandomSampler", "Sampler", "SequentialSampler"]


def __getattr__(name: str) -> Any:
    return getattr(_gluon, name)


class Sampler(core.Sampler, _gluon.Sampler):
    """Base of samplers: `__iter__` yields indices, `__len__` says how many."""


class SequentialSampler(core.SequentialSampler, Sampler, _gluon.SequentialSampler):
    """Indices `start`, `start + 1`, ..., `start + length - 1`."""


class RandomSampler(core.RandomSampler, Sampler, _gluon.RandomSampler):
    """Every index of `range(length)` once, in an order that is new each epoch."""


class FilterSampler(core.FilterSampler, Sampler, _gluon.FilterSampler):
    """Indices of the samples for which `fn(sample)` is true; `fn` runs over the whole dataset once, now."""


class IntervalSampler(core.IntervalSampler, Sampler):
    """Every `interval`-th index; with `rollover` then again from 1, from 2, ... until every index came once."""


class BatchSampler(core.BatchSampler, Sampler, _gluon.BatchSampler):
    """Cuts a sampler into lists of `batch_size` indices; `last_batch` is 'keep', 'discard' or 'rollover'."""
