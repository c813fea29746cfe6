"""What code sees in a worker: `get_worker_info`, seeds, threads; and in which order and state epochs run."""

import random

import numpy as np
import pytest
from conftest import children, eventually

from .sides import Noise, Numbers, compared, epoch, epochs, torch

data = torch.utils.data


class Information(data.Dataset):
    """What `get_worker_info` says, per sample."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        info = data.get_worker_info()
        if info is None:
            return index, "none"
        of_itself = info.dataset is self
        return index, info.num_workers, of_itself, info.id in range(info.num_workers), info.worker_method, info.rng


class Streamed(data.IterableDataset):
    def __iter__(self):
        info = data.get_worker_info()
        yield "none" if info is None else (info.id, info.num_workers, info.seed, info.dataset is self)


class Stamped(data.IterableDataset):
    """What worker_init_fn wrote into the dataset."""

    seen = None

    def __iter__(self):
        yield self.seen


def with_information(samples):
    info = data.get_worker_info()
    return samples, None if info is None else (info.num_workers, info.dataset is not None)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@compared
def test_get_worker_info_in_a_dataset_in_collate_fn_and_in_the_program(L, num_workers):
    loader = L(Information(), 2, collate_fn=with_information, num_workers=num_workers)
    return [(batch, data.get_worker_info()) for batch in loader]


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
@compared
def test_get_worker_info_in_a_stream(L, num_workers):
    """Also its seed, which is drawn from torch's generator."""
    return epochs(L(Streamed(), None, collate_fn=list, num_workers=num_workers))


def keep_information(worker):
    info = data.get_worker_info()
    numbers = random.random(), torch.rand(1).item(), np.random.rand()
    info.dataset.seen = [worker, info.id, info.num_workers, info.seed, torch.initial_seed(), numbers]
    info.dataset.seen.append(torch.get_num_threads())


@pytest.mark.parametrize(("num_workers", "own"), [(1, False), (2, True)], ids=["global", "generator"])
@compared
def test_get_worker_info_seeds_and_threads_in_worker_init_fn(L, num_workers, own):
    """A worker's generators are seeded by its number when it starts, as with torch."""
    arguments = {"generator": torch.Generator().manual_seed(8) if own else None, "num_workers": num_workers}
    return epochs(L(Stamped(), None, collate_fn=list, worker_init_fn=keep_information, **arguments))


@pytest.mark.parametrize(("num_workers", "persistent"), [(0, False), (1, True), (3, False), (3, True)])
@pytest.mark.parametrize("own", [False, True], ids=["global", "generator"])
@compared
def test_the_order_and_the_generators_after_each_epoch(L, num_workers, persistent, own):
    """The order depends on the seed only; torch's generators draw the same numbers afterwards."""
    generator = torch.Generator().manual_seed(3) if own else None
    options = {"num_workers": num_workers, "persistent_workers": persistent}
    loader, seen = L(Numbers(), 3, True, generator=generator, **options), []
    for number in range(3):
        seen.append((epoch(loader), torch.rand(2), generator.get_state() if own else None))
        if number == 1:
            torch.manual_seed(9)
    return seen


@compared
def test_samplers_draw_from_the_global_generator_as_the_program_does(L, workers):
    """The program draws between iter and next, and inside the loop."""
    loader, seen = L(Numbers(), 3, shuffle=True, num_workers=workers), []
    for _ in range(2):
        batches = iter(loader)
        seen.append(torch.rand(1))
        seen += [(batch, torch.rand(1)) for batch in batches]
    return seen


@pytest.mark.parametrize(("num_workers", "persistent"), [(0, False), (2, False), (2, True)])
@compared
def test_break_and_start_again(L, num_workers, persistent):
    loader, seen = L(Numbers(20), 2, shuffle=True, num_workers=num_workers, persistent_workers=persistent), []
    for stop in (1, 4, 10, 2):
        for number, (_, labels) in enumerate(loader, 1):
            seen.append(labels)
            if number == stop:
                break
    return seen


def forever(loader):
    """The usual function that starts the next epoch at the end of each."""
    while True:
        yield from loader


def end_for_good(batches):
    return iter(batches) is batches, next(batches), list(batches), list(batches), next(batches, "end")


LOOPS = {
    "zip of two loaders": lambda one, other: [list(zip(one, other)) for _ in range(2)],
    "zip with itself": lambda one, _: list(zip(one, one)),
    "nested": lambda one, _: [(outer, list(one)) for outer in one],
    "next of iter": lambda one, _: [next(iter(one)) for _ in range(3)],
    "an iterator that has ended": lambda one, _: end_for_good(iter(one)),
    "infinite": lambda one, _: [batch for batch, _ in zip(forever(one), range(8))],
    "tuple, enumerate and map": lambda one, _: (tuple(one), list(enumerate(one)), list(map(len, one))),
}


@pytest.mark.parametrize("kind", LOOPS)
@compared
def test_loops(L, workers, kind):
    loaders = L(range(11), 3, shuffle=True, num_workers=workers), L(range(30), 8, shuffle=True, num_workers=workers)
    return LOOPS[kind](*loaders)


@compared
def test_an_iterator_outlives_its_loader(L, workers):
    return list(iter(L(Numbers(), 3, num_workers=workers)))


@compared(state=False)
def test_random_numbers_in_samples_differ_between_samples_and_epochs(L, workers):
    loader = L(Noise(), 2, num_workers=workers)
    numbers = [number for _ in range(2) for batch in loader for column in batch for number in column.tolist()]
    return len(numbers), workers == 0 or len(set(numbers)) >= 32


@compared
def test_workers_end_with_the_iterator(L):
    """Neither an epoch that has ended nor an iterator that was deleted leaves processes."""
    before = children()
    loader = L(Numbers(), 2, num_workers=2)
    epoch(loader)
    ended = eventually(lambda: children() <= before)
    batches = iter(loader)
    next(batches)
    running = len(children() - before)
    del batches
    return ended, running, eventually(lambda: children() <= before)
