"""No reference cycle keeps a dataset, an order, a batch or a slab: they are gone without a garbage collection."""

import gc
import weakref

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD, eventually, mapped_slabs

import gluonloader as gl
from gluonloader.options import OnError

LENGTH, BAD = 24, 9

pytestmark = pytest.mark.local


class BadSample(ValueError):
    pass


class Images:
    """Pairs of a large array and a number; one sample raises an error if `fails`."""

    def __init__(self, fails=False):
        self.fails = fails

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        if self.fails and index == BAD:
            raise BadSample(index)
        return np.full(30_000, index, np.float32), index


class InBulk(Images):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Stream(gl.IterableDataset):
    def __init__(self, fails=False):
        self.images = Images(fails)

    def __iter__(self):
        return map(self.images.__getitem__, range(LENGTH))


class Order(gl.Sampler):
    def __len__(self):
        return LENGTH

    def __iter__(self):
        return iter(range(LENGTH))


class Documents(Images):
    """Documents of tokens."""

    def __getitem__(self, index):
        return super().__getitem__(index)[0][:100].astype(np.int32)


def skipped(error, index):
    return gl.SKIP


def failing(image, number):
    if number == BAD:
        raise BadSample(number)
    return image, number


def function_of(dataset):
    return lambda: map(dataset.__getitem__, range(LENGTH))


def packed_stream(documents):
    return gl.text.PackedStream(documents, 64, gl.RandomSampler(LENGTH, seed=1), window=8)


# By name: what reads, and the loader over it.
KINDS = {
    "plain": (Images, lambda way, data: way.loader(data, 4)),
    "shuffle": (Images, lambda way, data: way.loader(data, 4, shuffle=True)),
    "sampler": (Images, lambda way, data: way.loader(data, 4, sampler=Order())),
    "weights": (Images, lambda way, data: way.loader(data, 4, sampler=gl.WeightedSampler(np.ones(LENGTH)))),
    "batch sampler": (Images, lambda way, data: way.loader(data, batch_sampler=gl.BatchSampler(Order(), 4, "keep"))),
    "rollover": (Images, lambda way, data: way.loader(data, 5, last_batch="rollover")),
    "bulk": (InBulk, lambda way, data: way.loader(data, 4)),
    "concurrency": (Images, lambda way, data: way.loader(data, 4, concurrency=2)),
    "ranks": (Images, lambda way, data: way.loader(data, 4, ranks=(1, 2))),
    "memory_limit": (Images, lambda way, data: way.loader(data, 4, memory_limit="20MB")),
    "transform": (Images, lambda way, data: way.loader(gl.SimpleDataset(data).transform(failing), 4)),
    "views": (Images, lambda way, data: way.loader(gl.SimpleDataset(data).take(20).shard(2, 1), 4)),
    "skip": (Images, lambda way, data: way.loader(data, 4, on_error=OnError("skip", 3))),
    "replace": (InBulk, lambda way, data: way.loader(data, 4, on_error=OnError("replace", 3))),
    "on_error": (Images, lambda way, data: way.loader(data, 4, on_error=OnError(skipped, 3))),
    "stream": (Stream, lambda way, data: way.loader(data, 4)),
    "shuffled stream": (Stream, lambda way, data: way.loader(data.transform(failing), 4, shuffle=True)),
    "skip in a stream": (
        Stream,
        lambda way, data: way.loader(data.transform(failing), 4, on_error=OnError("skip", 3)),
    ),
    "packed stream": (
        Documents,
        lambda way, data: way.loader(packed_stream(data), 4, batchify_fn=gl.text.PackRows()),
    ),
    "packed": (
        Documents,
        lambda way, data: way.loader(
            gl.text.PackedDataset(data),
            4,
            sampler=gl.text.PackingSampler([100] * LENGTH, 128, seed=1),
            batchify_fn=gl.text.PackRows(),
        ),
    ),
    "cached": (Images, lambda way, data: gl.RepeatedBatches(way.loader(data, 4))),
    "bridge": (Images, lambda way, data: gl.bridge(function_of(data))),
}  # fmt: skip


def read(loader, leave):
    """Reads an epoch, and returns weak references to what it has met."""
    met = []
    try:
        for number, batch in enumerate(loader):
            met += [weakref.ref(part) for part in batch if isinstance(part, np.ndarray)]
            if leave == "break" and number == 1:
                break
    except BadSample:
        pass
    if leave == "whole":
        state = loader.state_dict() if hasattr(loader, "state_dict") else None
        repr((loader, state))
    return met


@pytest.fixture
def no_collections():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("leave", ["whole", "break", "error"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_everything_is_gone_with_the_loader(no_collections, way, kind, leave):
    make, open_loader = KINDS[kind]
    dataset = make(leave == "error")
    loader = open_loader(way, dataset)
    met = [weakref.ref(dataset), weakref.ref(loader)]
    met += read(loader, leave)
    del dataset, loader
    # Threads may take a moment until they drop what they have read.
    assert eventually(lambda: not [left for reference in met if (left := reference()) is not None])
    assert mapped_slabs() == 0


@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_an_iterator_that_nobody_reads_is_gone(no_collections, way):
    dataset = Images()
    loader = way.loader(dataset, 4)
    iterators = [iter(loader) for _ in range(3)]
    met = [weakref.ref(dataset), *map(weakref.ref, iterators)]
    next(iterators[0])
    del dataset, loader, iterators
    assert eventually(lambda: not [left for reference in met if (left := reference()) is not None])
    assert mapped_slabs() == 0
