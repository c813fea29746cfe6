"""Positions in the order of a sampler, without a loader."""

import json

from gluonloader.indices import as_list
from gluonloader.sampler.base import order_of, start_pass
from gluonloader.sampler.passes import skip
from gluonloader.sampler.saved import loading_order, saved_order


def position(sampler, epoch=0, drawn=0):
    """The position in an epoch after so many keys, as JSON that was read again."""
    return json.loads(json.dumps(saved_order(sampler, epoch, order_of(sampler, epoch), drawn)))


def resumed(sampler, state, drawn):
    """A pass over a fresh sampler, from a position on."""
    loading_order(sampler, state)()
    keys = start_pass(sampler)
    skip(keys, drawn)
    return keys


def part(sampler, epoch, start, stop):
    """The keys at these places of an epoch."""
    return as_list(order_of(sampler, epoch)[start:stop])
