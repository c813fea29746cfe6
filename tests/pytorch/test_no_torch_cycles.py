"""No reference cycle keeps what a loader of torch refers to; see tests/test_no_cycles.py."""

import gc
import weakref

import pytest
from conftest import eventually, mapped_slabs

from .sides import OURS, torch

samplers = torch.utils.data
LENGTH, BAD = 24, 9


class BadSample(ValueError):
    pass


class Images(samplers.Dataset):
    """Pairs of a large tensor and a number; one sample raises an error if `fails`."""

    def __init__(self, fails):
        self.fails = fails

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        if self.fails and index == BAD:
            raise BadSample(index)
        return torch.full((30_000,), float(index)), index


class Stream(samplers.IterableDataset):
    def __init__(self, fails):
        self.images = Images(fails)

    def __iter__(self):
        return map(self.images.__getitem__, range(LENGTH))


KINDS = {
    "plain": lambda data: {"batch_size": 4},
    "shuffle": lambda data: {"batch_size": 4, "shuffle": True},
    "sampler": lambda data: {"batch_size": 4, "sampler": samplers.SubsetRandomSampler(range(LENGTH))},
    "batch sampler": lambda data: {"batch_sampler": samplers.BatchSampler(samplers.RandomSampler(data), 4, False)},
    "no batches": lambda data: {"batch_size": None},
    "ranks": lambda data: {"batch_size": 4, "sampler": samplers.DistributedSampler(data, num_replicas=2, rank=0)},
    "stream": lambda data: {"batch_size": 4},
}
WAYS = {"serial": {}, "workers": {"num_workers": 2}, "persistent": {"num_workers": 2, "persistent_workers": True}}


def read(loader, leave):
    met = []
    try:
        for number, (batch, _) in enumerate(loader):
            met.append(weakref.ref(batch))
            if leave == "break" and number == 1:
                break
    except BadSample:
        pass
    if leave == "whole":
        loader.state_dict()
    return met


@pytest.mark.parametrize("leave", ["whole", "break", "error"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_everything_is_gone_with_the_loader(way, kind, leave):
    gc.collect()
    gc.disable()
    try:
        dataset = (Stream if kind == "stream" else Images)(leave == "error")
        loader = OURS(dataset, **KINDS[kind](dataset), **WAYS[way])
        parts = dataset, loader, loader.sampler, loader.batch_sampler
        met = [weakref.ref(part) for part in parts if part is not None] + read(loader, leave)
        del dataset, loader, parts
        assert eventually(lambda: all(reference() is None for reference in met))
        assert mapped_slabs() == 0
    finally:
        gc.enable()
