"""Samples that draw from `get_rng`, read one by one, in bulk, or awaited; and what turns their batches into numbers."""

import asyncio

import numpy as np
from samples import Numbered

import gluonloader as gl
from gluonloader import get_rng


def noise(index):
    return index, get_rng().random(), get_rng().random(), gl.get_worker_info().epoch


class Noisy(Numbered):
    def __getitem__(self, index):
        return noise(index)


class NoisyBulk(Numbered):
    def __getitems__(self, indices):
        return list(map(noise, indices))


class AsyncNoisy(Numbered):
    async def __getitem__(self, index):
        await asyncio.sleep(0)
        return noise(index)


class AsyncNoisyBulk(AsyncNoisy):
    async def __getitems__(self, indices):
        await asyncio.sleep(0)
        return list(map(noise, indices))


def add_noise(*sample):
    """A transform that draws one more number."""
    return *sample, get_rng().random()


async def add_noise_later(*sample):
    await asyncio.sleep(0)
    return add_noise(*sample)


def and_noise(samples):
    """A batchify function that draws one more number, for the whole batch."""
    return gl.default_batchify(samples), get_rng().random()


def numbers(loader):
    """The batches of `and_noise` as lists, to be compared by ==."""
    return [[*[np.asarray(column).tolist() for column in batch], noise] for batch, noise in loader]
