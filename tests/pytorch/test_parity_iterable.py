"""Iterable datasets: each worker reads its own copy, and makes its own batches."""

import math

import pytest

from .sides import epoch, epochs, same, samples, torch

data = torch.utils.data


class Stream(data.IterableDataset):
    """Numbers; with `split`, each worker reads its own part of them."""

    def __init__(self, start=0, end=11, split=True):
        self.start, self.end, self.split = start, end, split

    def __iter__(self):
        info = data.get_worker_info()
        if info is None or not self.split:
            return iter(range(self.start, self.end))
        each = math.ceil((self.end - self.start) / info.num_workers)
        first = self.start + info.id * each
        return iter(range(first, min(first + each, self.end)))


class Sized(Stream):
    def __init__(self, length, **options):
        super().__init__(**options)
        self.length = length

    def __len__(self):
        return self.length


class Uneven(data.IterableDataset):
    """Worker number i reads `lengths[i]` samples."""

    def __init__(self, *lengths):
        self.lengths = lengths

    def __iter__(self):
        info = data.get_worker_info()
        number = info.id if info else 0
        for i in range(self.lengths[number]):
            yield number, i


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
@pytest.mark.parametrize("split", [True, False])
def test_streams_split_by_worker_info_and_streams_that_are_not(num_workers, split):
    same(lambda L: epochs(L(Stream(split=split), 3, num_workers=num_workers)))


@pytest.mark.parametrize("batch_size", [2, None])
@pytest.mark.parametrize("lengths", [(5, 2), (0, 4), (4, 0), (0, 0), (1, 9), (8, 8)], ids=str)
def test_uneven_parts(batch_size, lengths):
    same(lambda L: epoch(L(Uneven(*lengths), batch_size, num_workers=2)))


def test_uneven_parts_of_three_workers():
    same(lambda L: epoch(L(Uneven(7, 0, 3), 2, num_workers=3)))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("lengths", [(5, 2), (3, 1), (4, 6)], ids=str)
def test_drop_last_drops_in_each_worker(num_workers, lengths):
    same(lambda L: epochs(L(Uneven(*lengths), 2, drop_last=True, num_workers=num_workers)))


def test_a_generator_function_as_iter(workers):
    class Lines(data.IterableDataset):
        def __iter__(self):
            for word in "a few words of text".split():
                yield {"text": word, "length": len(word)}

    same(lambda L: epochs(L(Lines(), 2, num_workers=workers)))


def test_a_dataset_that_is_its_own_iterator():
    """It ends at the end of the first epoch without workers; workers get a copy of it."""

    class Once(data.IterableDataset):
        def __init__(self):
            self.numbers = iter(range(5))

        def __iter__(self):
            return self

        def __next__(self):
            return next(self.numbers)

    def pipeline(L):
        return epochs(L(Once(), 2))

    same(pipeline)
    same(lambda L: epochs(L(Once(), 2, num_workers=1)))


def test_an_iterator_that_goes_on_after_its_end():
    class Restarts(data.IterableDataset):
        def __iter__(self):
            return Endless()

    class Endless:
        count = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.count += 1
            if self.count % 4 == 0:
                raise StopIteration
            return self.count

    same(lambda L: epochs(L(Restarts(), 2)))
    same(lambda L: epochs(L(Restarts(), 2, num_workers=1)))


def test_chains(workers):
    same(lambda L: epochs(L(data.ChainDataset([Stream(0, 5), Stream(20, 23)]), 3, num_workers=workers)))
    same(lambda L: epochs(L(Stream(0, 3) + Stream(5, 9), 2, num_workers=workers)))


def test_the_dataset_is_sharded_in_worker_init_fn():
    same(lambda L: epochs(L(Stream(split=False), 2, num_workers=2, worker_init_fn=shard)))


def shard(worker):
    dataset = data.get_worker_info().dataset
    each = math.ceil((dataset.end - dataset.start) / data.get_worker_info().num_workers)
    dataset.start += worker * each
    dataset.end = min(dataset.start + each, dataset.end)


def test_persistent_workers():
    same(lambda L: epochs(L(Stream(), 2, num_workers=2, persistent_workers=True), 3))


class Counting(data.IterableDataset):
    """Counts its epochs in the worker."""

    epoch = 0

    def __iter__(self):
        self.epoch += 1
        return iter([self.epoch] * 3)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_dataset_that_counts_its_epochs(persistent):
    same(lambda L: epochs(L(Counting(), 2, num_workers=2, persistent_workers=persistent), 3))


def test_a_dataset_that_counts_its_epochs_without_workers():
    same(lambda L: epochs(L(Counting(), 2), 3))


@pytest.mark.parametrize("length", [11, 12, 20, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_length_of_a_loader(length, drop_last):
    same(lambda L: len(L(Sized(length), 4, drop_last=drop_last)))
    same(lambda L: len(L(Sized(length), None)))


def test_more_batches_than_len_are_a_warning():
    def pipeline(L):
        loader = L(Sized(3), 2, num_workers=2)
        return len(loader), epoch(loader), epoch(loader)

    same(pipeline, warns=True)


def test_fewer_batches_than_len_are_no_warning(workers):
    def pipeline(L):
        loader = L(Sized(40), 2, num_workers=workers)
        return len(loader), epoch(loader)

    same(pipeline)


def test_more_batches_than_len_are_no_warning_if_nobody_asked_for_it(workers):
    same(lambda L: epoch(L(Sized(1), 2, num_workers=workers)))


def test_collate_fn(workers):
    same(lambda L: epoch(L(Stream(), 3, collate_fn=list, num_workers=workers)))
    same(lambda L: epoch(L(Stream(), None, collate_fn=str, num_workers=workers)))


def test_several_iterators_of_a_stream(workers):
    def pipeline(L):
        loader = L(Stream(), 2, num_workers=workers)
        return list(zip(loader, loader))

    same(pipeline)


def test_an_endless_stream_and_break(workers):
    def pipeline(L):
        loader, seen = L(Stream(end=10**9), 4, num_workers=workers), []
        for _ in range(2):
            for batch in loader:
                seen.append(batch)
                if len(seen) % 5 == 0:
                    break
        return seen

    same(pipeline)


def test_without_workers_samples_are_read_when_they_are_needed():
    class Reading(data.IterableDataset):
        read = 0

        def __iter__(self):
            for i in range(20):
                self.read += 1
                yield i

    def pipeline(L):
        dataset = Reading()
        seen = []
        for _ in L(dataset, 3):
            seen.append(dataset.read)
        return seen

    same(pipeline)


def test_prefetched_batches_of_a_worker():
    """Batches come in turns from the workers, whatever is prefetched."""
    for factor in (1, 4):
        same(lambda L, factor=factor: samples(L(Stream(), 2, num_workers=2, prefetch_factor=factor)))


def test_in_order_false():
    same(lambda L: sorted(samples(L(Stream(), 2, num_workers=2, in_order=False))))
