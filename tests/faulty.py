"""Datasets with samples that raise errors, kill their worker or never end; light to import, for workers that spawn."""

import asyncio
import os
import threading

import numpy as np

import gluonloader as gl
from gluonloader.options import OnError


def load(way, dataset, *args, on_error="raise", **kwargs):
    """The batches of a loader, in which all samples may raise errors unless `on_error` has a limit."""
    if on_error != "raise" and not isinstance(on_error, OnError):
        on_error = OnError(on_error, 1.0)
    with way.loader(dataset, *args, on_error=on_error, **kwargs) as loader:
        return [batch.tolist() for batch in loader]


class Faulty:
    """Samples show their index and a random number; one of `every`, or those in `bad`, raise an error."""

    def __init__(self, size=100, every=10, width=2, bad=()):
        self.size, self.width = size, width
        self.bad = bad or range(3, size, every)

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index in self.bad:
            raise OSError(f"cannot read {index}")
        sample = np.zeros(self.width, np.int64)
        sample[:2] = index, gl.get_rng().integers(1000)
        return sample


def read_in_bulk(dataset, indices):
    number = gl.get_rng().integers(1000)
    samples = [Faulty.__getitem__(dataset, index) for index in indices]
    for sample in samples:
        sample[1] = number
    return samples


class FaultyInBulk(Faulty):
    def __getitems__(self, indices):
        return read_in_bulk(self, indices)


class AsyncFaulty(Faulty):
    async def __getitem__(self, index):
        await asyncio.sleep(0)
        return Faulty.__getitem__(self, index)


class AsyncFaultyInBulk(AsyncFaulty):
    async def __getitems__(self, indices):
        await asyncio.sleep(0)
        return read_in_bulk(self, indices)


def negative(error, index):
    assert str(error) == f"cannot read {index}"
    return np.array([-index, gl.get_rng().integers(1000)])


def negative_or_skip(error, index):
    return gl.SKIP if index > 50 else negative(error, index)


class Dangerous:
    """Some samples kill their worker, some never end, and some raise an error; the others show a random number."""

    def __init__(self, size=60, kills=(), hangs=(), raises=()):
        self.size, self.kills, self.hangs, self.raises = size, set(kills), set(hangs), set(raises)

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if index in self.kills:
            os._exit(3)
        if index in self.hangs:
            threading.Event().wait(3600)
        if index in self.raises:
            raise OSError(f"cannot read {index}")
        return np.array([index, gl.get_rng().integers(1000)])

    def good(self):
        return sorted(set(range(self.size)) - self.kills - self.hangs - self.raises)


class DangerousInBulk(Dangerous):
    def __getitems__(self, indices):
        number = gl.get_rng().integers(1000)
        return [np.array([self[index][0], number]) for index in indices]


class AsyncDangerous(Dangerous):
    async def __getitem__(self, index):
        await asyncio.sleep(0)
        return Dangerous.__getitem__(self, index)


class AsyncDangerousInBulk(AsyncDangerous):
    async def __getitems__(self, indices):
        number = gl.get_rng().integers(1000)
        return [np.array([(await self[index])[0], number]) for index in indices]


class Explosive:
    def __call__(self, samples):
        if 5 in [index for index, _ in samples]:
            os._exit(3)
        return np.stack(samples)
