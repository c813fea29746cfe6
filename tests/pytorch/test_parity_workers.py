"""What code sees in a worker: `get_worker_info`, seeds, threads; and in which order and state epochs run."""

import os
import random

import numpy as np
import pytest

from .sides import Numbers, epoch, epochs, same, samples, torch

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


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_get_worker_info_in_a_dataset(num_workers):
    same(lambda L: epoch(L(Information(), 2, collate_fn=list, num_workers=num_workers)))


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
def test_get_worker_info_in_a_stream(num_workers):
    """Also its seed, which is drawn from torch's generator."""
    same(lambda L: epochs(L(Streamed(), None, collate_fn=list, num_workers=num_workers)))


def test_get_worker_info_is_none_in_the_main_program(workers):
    def pipeline(L):
        seen = []
        for _ in L(Numbers(), 4, num_workers=workers):
            seen.append(data.get_worker_info())
        return seen, data.get_worker_info()

    same(pipeline)


class Kept(data.Dataset):
    """What worker_init_fn wrote into the dataset."""

    seen = None

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return self.seen


def keep_information(worker):
    info = data.get_worker_info()
    torch_threads = torch.get_num_threads()
    numbers = random.random(), torch.rand(1).item(), np.random.rand()
    info.dataset.seen = worker, info.id, info.num_workers, info.seed, torch.initial_seed(), torch_threads, numbers


@pytest.mark.parametrize("num_workers", [1, 2])
def test_get_worker_info_seeds_and_threads_in_worker_init_fn(num_workers):
    """A worker's generators are seeded by its number when it starts, as with torch."""

    def pipeline(L):
        loader = L(Kept(), 1, collate_fn=list, num_workers=num_workers, worker_init_fn=keep_information)
        return [sorted({batch[0] for batch in loader})[0] for _ in range(2)] if num_workers == 1 else len(loader)

    same(pipeline)


def test_worker_init_fn_of_a_stream_and_generator():
    class Stream(data.IterableDataset):
        seen = None

        def __iter__(self):
            yield self.seen

    def pipeline(L):
        generator = torch.Generator().manual_seed(8)
        arguments = {"worker_init_fn": keep_information, "generator": generator, "num_workers": 2}
        return epochs(L(Stream(), None, collate_fn=list, **arguments))

    same(pipeline)


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("own", [False, True], ids=["global", "generator"])
def test_the_order_and_the_generators_after_each_epoch(num_workers, persistent, own):
    """The order depends on the seed only; torch's generators draw the same numbers afterwards."""

    def pipeline(L):
        generator = torch.Generator().manual_seed(3) if own else None
        more = {"persistent_workers": persistent} if num_workers else {}
        loader, seen = L(Numbers(), 3, True, generator=generator, num_workers=num_workers, **more), []
        for number in range(3):
            seen.append((epoch(loader), torch.rand(2), generator.get_state() if own else None))
            if number == 1:
                torch.manual_seed(9)
        return seen

    same(pipeline)


def test_samplers_draw_from_the_global_generator_as_the_program_does(workers):
    """The program draws between iter and next, and inside the loop."""

    def pipeline(L):
        loader, seen = L(Numbers(), 3, shuffle=True, num_workers=workers), []
        for _ in range(2):
            batches = iter(loader)
            seen.append(torch.rand(1))
            for batch in batches:
                seen.append((batch, torch.rand(1)))
        return seen

    same(pipeline)


@pytest.mark.parametrize("persistent", [False, True])
def test_break_and_start_again(workers, persistent):
    def pipeline(L):
        more = {"persistent_workers": True} if persistent and workers else {}
        loader, seen = L(Numbers(20), 2, shuffle=True, num_workers=workers, **more), []
        for stop in (1, 4, 10, 2):
            for number, (_, labels) in enumerate(loader, 1):
                seen.append(labels)
                if number == stop:
                    break
        return seen

    same(pipeline)


def test_zip_of_two_loaders(workers):
    """Both passes are started before the first batch of either."""

    def pipeline(L):
        one = L(Numbers(), 2, shuffle=True, num_workers=workers)
        other = L(range(30), 3, shuffle=True, num_workers=workers)
        return [list(zip(one, other)) for _ in range(2)]

    same(pipeline)


def test_zip_of_a_loader_with_itself(workers):
    def pipeline(L):
        loader = L(Numbers(), 2, shuffle=True, num_workers=workers)
        return list(zip(loader, loader))

    same(pipeline)


def test_nested_loops(workers):
    def pipeline(L):
        loader = L(range(6), 2, shuffle=True, num_workers=workers)
        return [(outer, list(loader)) for outer in loader]

    same(pipeline)


def test_next_of_iter(workers):
    def pipeline(L):
        loader = L(Numbers(), 3, shuffle=True, num_workers=workers)
        return [next(iter(loader)) for _ in range(3)]

    same(pipeline)


def test_an_iterator_is_its_own_iterator_and_ends_for_good(workers):
    def pipeline(L):
        batches = iter(L(Numbers(), 6, num_workers=workers))
        first = iter(batches) is batches, next(batches)
        return first, list(batches), list(batches), next(batches, "end"), next(batches, "end")

    same(pipeline)


def test_an_iterator_outlives_its_loader(workers):
    def pipeline(L):
        return list(iter(L(Numbers(), 3, num_workers=workers)))

    same(pipeline)


def test_infinite_loops_over_a_loader(workers):
    """The usual function that starts the next epoch at the end of each."""

    def forever(loader):
        while True:
            yield from loader

    def pipeline(L):
        batches = forever(L(Numbers(), 4, shuffle=True, num_workers=workers))
        return [next(batches) for _ in range(8)]

    same(pipeline)


def test_list_tuple_enumerate_and_map(workers):
    def pipeline(L):
        loader = L(Numbers(), 4, num_workers=workers)
        return tuple(loader), list(enumerate(loader)), [labels for _, labels in map(tuple, loader)]

    same(pipeline)


def test_random_numbers_in_samples_differ_between_samples_and_epochs(workers):
    def pipeline(L):
        class Random(data.Dataset):
            def __len__(self):
                return 8

            def __getitem__(self, index):
                return random.random(), torch.rand(()).item(), np.random.rand()

        loader = L(Random(), 2, num_workers=workers)
        numbers = [number for _ in range(2) for batch in loader for column in batch for number in column.tolist()]
        return len(numbers), workers == 0 or len(set(numbers)) >= 32

    same(pipeline, state=False)


class Identity(data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return os.getpid()


def test_samples_are_read_in_other_processes():
    def pipeline(L):
        main = [os.getpid()] * 6
        return [samples(L(Identity(), 2, num_workers=n)) == main for n in (0, 2)]

    assert same(pipeline)[1] == [True, False]


def test_workers_end_with_the_iterator():
    """Neither an epoch that has ended nor an iterator that was deleted leaves processes."""
    from conftest import children, eventually

    def pipeline(L):
        before = children()
        loader = L(Numbers(), 2, num_workers=2)
        epoch(loader)
        ended = eventually(lambda: children() <= before)
        batches = iter(loader)
        next(batches)
        running = len(children() - before)
        del batches
        return ended, running, eventually(lambda: children() <= before)

    same(pipeline)


def test_persistent_workers_are_the_same_processes():
    def pipeline(L):
        loader = L(Identity(), 1, num_workers=1, persistent_workers=True)
        return len({pid for _ in range(3) for pid in samples(loader)})

    assert same(pipeline) == 1


def test_workers_are_new_processes_at_each_epoch():
    def pipeline(L):
        loader = L(Identity(), 1, num_workers=1)
        return len({pid for _ in range(3) for pid in samples(loader)})

    assert same(pipeline) == 3
