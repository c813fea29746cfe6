"""No reference cycle keeps what a loader of torch refers to; see tests/test_no_cycles.py."""

import gc
import weakref

import pytest
from conftest import eventually, mapped_slabs

torch = pytest.importorskip("torch")

import gluonloader.torch  # noqa: E402

LENGTH, BAD = 24, 9


class BadSample(ValueError):
    pass


def sample(index, fails):
    if fails and index == BAD:
        raise BadSample(index)
    return torch.full((30_000,), float(index)), index


class Images(torch.utils.data.Dataset):
    def __init__(self, fails):
        self.fails = fails

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        return sample(index, self.fails)


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, fails):
        self.fails = fails

    def __iter__(self):
        return (sample(index, self.fails) for index in range(LENGTH))


def batches_of(data):
    return torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(data), 4, drop_last=False)


KINDS = {
    "plain": (Images, lambda data: {"batch_size": 4}),
    "shuffle": (Images, lambda data: {"batch_size": 4, "shuffle": True}),
    "sampler": (Images, lambda data: {"batch_size": 4, "sampler": torch.utils.data.SubsetRandomSampler(range(LENGTH))}),
    "batch sampler": (Images, lambda data: {"batch_sampler": batches_of(data)}),
    "no batches": (Images, lambda data: {"batch_size": None}),
    "ranks": (
        Images,
        lambda data: {"batch_size": 4, "sampler": torch.utils.data.DistributedSampler(data, num_replicas=2, rank=0)},
    ),
    "stream": (Stream, lambda data: {"batch_size": 4}),
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
    make, arguments = KINDS[kind]
    gc.collect()
    gc.disable()
    try:
        dataset = make(leave == "error")
        loader = gluonloader.torch.DataLoader(dataset, **arguments(dataset), **WAYS[way])
        met = [
            weakref.ref(part) for part in (dataset, loader, loader.sampler, loader.batch_sampler) if part is not None
        ]
        met += read(loader, leave)
        del dataset, loader
        assert eventually(lambda: not [left for reference in met if (left := reference()) is not None])
        assert mapped_slabs() == 0
    finally:
        gc.enable()
