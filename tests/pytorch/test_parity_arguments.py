"""Every argument of the constructor: the batches of two epochs are the same as torch's."""

import itertools
from collections import deque

import numpy as np
import pytest
from parity import Drawn

from .sides import OURS, Numbers, compared, epoch, epochs, same, torch

data = torch.utils.data


class Typed(data.Dataset):
    """The index, and the type that the sampler gave it."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return int(index), type(index).__name__


class Zigzag(data.Sampler):
    """A user's sampler."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        for i in range(self.length):
            yield i if i % 2 else self.length - 1 - i

    def __len__(self):
        return self.length


class Pairs:
    """A user's batch sampler, which is no subclass of torch's."""

    def __init__(self, kind):
        self.kind = kind

    def __iter__(self):
        return map(self.kind, ([4, 3], [0], [1, 2, 5]))

    def __len__(self):
        return 3


LOADERS = {
    "default batch size": lambda L, n: L(Numbers(), num_workers=n),
    **{
        f"batch_size={size}, drop_last={drop}": lambda L, n, size=size, drop=drop: L(
            Numbers(), size, drop_last=drop, num_workers=n
        )
        for size in (1, 3, 11, 12)
        for drop in (False, True)
    },
    "sampler and drop_last": lambda L, n: L(Typed(), 3, sampler=Zigzag(8), drop_last=True, num_workers=n),
    "texts as keys": lambda L, n: L({"a": 1, "b": 2, "c": 3}, 2, sampler=["c", "a", "a"], num_workers=n),
    "tuples as keys": lambda L, n: L({(0, 1): 1, (2, 3): 2}, 2, sampler=[(2, 3), (0, 1)], num_workers=n),
    "iterator as batch_sampler": lambda L, n: L(range(6), batch_sampler=iter([[1, 2], [3]]), num_workers=n),
    # With one worker, since with several any of them may make a batch.
    "worker_init_fn": lambda L, n: L(Length(8), 1, worker_init_fn=remember, num_workers=min(n, 1)),
    "a bool as num_workers": lambda L, n: L(Numbers(), 3, num_workers=n > 0),
    "timeout": lambda L, n: L(Numbers(), 4, timeout=50 if n else 0, num_workers=n),
    "context": lambda L, n: L(Numbers(), 3, num_workers=1, multiprocessing_context=CONTEXT),
    "positions": lambda L, n: L(
        Numbers(), 4, None, range(7), None, 2, list, False, True, 30, print_nothing, "fork", None
    ),
}
CONTEXT = torch.multiprocessing.get_context("fork")


def print_nothing(worker):
    pass


def remember(worker):
    data.get_worker_info().dataset.length = 100 + worker


class Length(Numbers):
    def __getitem__(self, index):
        return index, self.length


@pytest.mark.parametrize("kind", LOADERS)
@compared
def test_two_epochs(L, workers, kind):
    return epochs(LOADERS[kind](L, workers))


SAMPLERS = {
    "list": lambda: [4, 2, 0, 2],
    "range": lambda: range(7, 0, -2),
    "tuple": lambda: (1, 1, 1),
    "numpy": lambda: np.array([4, 2, 0]),
    "tensor": lambda: torch.tensor([4, 2, 0]),
    "user": lambda: Zigzag(8),
    "sequential": lambda: data.SequentialSampler(range(6)),
    "random": lambda: data.RandomSampler(range(8)),
    "random-generator": lambda: data.RandomSampler(range(8), generator=torch.Generator().manual_seed(3)),
    "random-few": lambda: data.RandomSampler(range(8), num_samples=3),
    "random-many": lambda: data.RandomSampler(range(8), num_samples=21),
    "random-replacement": lambda: data.RandomSampler(range(8), replacement=True, num_samples=50),
    "subset": lambda: data.SubsetRandomSampler([1, 3, 5, 7]),
    "subset-tensor": lambda: data.SubsetRandomSampler(torch.tensor([1, 3, 5, 7])),
    "weighted": lambda: data.WeightedRandomSampler([0.1, 0.5, 2.0, 0, 1, 0, 0, 3.0], 9),
    "weighted-once": lambda: data.WeightedRandomSampler([0.1, 0.5, 2.0, 0, 1], 4, replacement=False),
    "distributed": lambda: data.DistributedSampler(range(7), num_replicas=2, rank=1),
    "distributed-drop": lambda: data.DistributedSampler(range(7), num_replicas=2, rank=0, drop_last=True),
    "distributed-order": lambda: data.DistributedSampler(range(7), num_replicas=3, rank=2, shuffle=False),
}


@pytest.mark.parametrize("kind", SAMPLERS)
@compared
def test_samplers(L, workers, kind):
    return epochs(L(Typed(), 3, sampler=SAMPLERS[kind](), num_workers=min(workers, 1)))


@compared
def test_a_sampler_that_is_changed_between_epochs(L, workers):
    loader = L(range(100), 2, sampler=[1, 2, 3], num_workers=workers)
    before = epoch(loader)
    loader.sampler.append(50)
    return before, epoch(loader), len(loader)


BATCH_SAMPLERS = {
    "lists": lambda: [[4, 3], [0]],
    "tuples": lambda: ((4, 3), (0,)),
    "numpy": lambda: np.array([[4, 3], [0, 1]]),
    "tensor": lambda: torch.tensor([[4, 3], [0, 1]]),
    "user-list": lambda: Pairs(list),
    "user-tuple": lambda: Pairs(tuple),
    "user-range": lambda: [range(3), range(3, 5)],
    "user-tensor": lambda: Pairs(torch.tensor),
    "user-generator": lambda: Pairs(iter),
    "user-set": lambda: Pairs(set),
    "sequential": lambda: data.BatchSampler(data.SequentialSampler(range(7)), 3, False),
    "random": lambda: data.BatchSampler(data.RandomSampler(range(8)), 3, True),
    "weighted": lambda: data.BatchSampler(data.WeightedRandomSampler([1.0, 2.0, 3.0], 8), 3, False),
    "empty": lambda: [],
}


@pytest.mark.parametrize("kind", BATCH_SAMPLERS)
@compared
def test_batch_samplers(L, workers, kind):
    workers = 0 if kind == "user-generator" else min(workers, 1)  # torch cannot pickle a batch
    return epochs(L(Typed(), batch_sampler=BATCH_SAMPLERS[kind](), num_workers=workers))


def join(samples):
    return "+".join(str(index) for _, index in samples)


COLLATES = {
    "function": join,
    "lambda": lambda samples: samples[::-1],
    "list": list,
    "none": lambda samples: None,
    "convert": data.default_convert,
    "default": data.default_collate,
    "tuple": lambda samples: tuple(zip(*samples)),
    "wrapped": lambda samples: {"x": data.default_collate(samples), "n": len(samples)},
    "stack": lambda samples: torch.stack([x for x, _ in samples]),
    "numpy": lambda samples: np.stack([x.numpy() for x, _ in samples]),
    "pad": lambda samples: torch.nn.utils.rnn.pad_sequence([torch.ones(n) for _, n in samples], batch_first=True),
}


@pytest.mark.parametrize("kind", COLLATES)
@compared
def test_collate_fn(L, workers, kind):
    return epochs(L(Numbers(), 3, collate_fn=COLLATES[kind], num_workers=min(workers, 1)))


class Pinnable:
    def __init__(self, pinned=False):
        self.pinned = pinned

    def pin_memory(self):
        return Pinnable(True)


def test_pinned_batches_call_pin_memory_of_their_objects(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    made = {"deque": deque([Pinnable()]), "own": Pinnable()}
    batch = next(iter(OURS(Numbers(), 4, collate_fn=lambda samples: made, pin_memory=True)))
    assert type(batch["deque"]) is deque
    assert batch["deque"][0].pinned
    assert batch["own"].pinned


def test_pin_memory_without_an_accelerator(workers):
    if torch.accelerator.is_available():
        pytest.skip("there is an accelerator")
    same(lambda L: epoch(L(Numbers(), 4, pin_memory=True, num_workers=workers)), warns=None)


@pytest.mark.parametrize(
    ("context", "persistent"),
    [
        ("fork", False),
        pytest.param("forkserver", False, marks=pytest.mark.spawn),
        pytest.param("spawn", True, marks=pytest.mark.spawn),
    ],
)
@compared
def test_multiprocessing_context(L, context, persistent):
    """With one worker, since each worker of torch's imports torch anew."""
    loader = L(Numbers(), 3, True, num_workers=1, multiprocessing_context=context, persistent_workers=persistent)
    return epochs(loader, 2 if persistent else 1), loader.multiprocessing_context.get_start_method()


@pytest.mark.parametrize(("num_workers", "factor"), [(0, None), *itertools.product([1, 2], [1, 2, 5])])
@compared
def test_how_many_batches_are_drawn_ahead(L, num_workers, factor):
    sampler = Drawn(20)
    loader = L(range(20), batch_sampler=sampler, num_workers=num_workers, prefetch_factor=factor)
    batches, drawn = iter(loader), [sampler.drawn]
    for _ in range(4):
        next(batches)
        drawn.append(sampler.drawn)
    return drawn


@pytest.mark.parametrize("in_order", [False, True])
@compared
def test_in_order(L, workers, in_order):
    loader = L(Numbers(), 2, shuffle=True, num_workers=workers, in_order=in_order)
    return sorted(labels.tolist() for _, labels in loader)
