"""Iterable datasets: each worker reads its own copy, and makes its own batches."""

import math
import pickle

import numpy as np
import pytest

from .sides import OURS, compared, continued, epoch, epochs, left_after, lists, same, samples, torch

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


class Lines(data.IterableDataset):
    """A generator function as `__iter__`."""

    def __iter__(self):
        for word in "a few words of text".split():
            yield {"text": word, "length": len(word)}


class Alike(data.IterableDataset):
    """A shuffle buffer. Workers draw the same order if they are seeded alike, and each yields its part."""

    def __iter__(self):
        info, numbers, count = data.get_worker_info(), list(range(40)), 0
        while numbers:
            number = numbers.pop(np.random.randint(len(numbers)) if info else 0)
            if info is None or count % info.num_workers == info.id:
                yield number
            count += 1


def seed_alike(worker):
    np.random.seed(7)


class Once(data.IterableDataset):
    """Its own iterator. It ends at the end of the first epoch without workers; workers get a copy of it."""

    def __init__(self):
        self.numbers = iter(range(5))

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.numbers)


class Endless:
    """An iterator that goes on after its end."""

    count = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.count += 1
        if self.count % 4 == 0:
            raise StopIteration
        return self.count


class Restarts(data.IterableDataset):
    def __iter__(self):
        return Endless()


class Counting(data.IterableDataset):
    """Counts its epochs and the samples that were read, where it is read."""

    epoch = read = 0

    def __iter__(self):
        self.epoch += 1
        for _ in range(4):
            self.read += 1
            yield self.epoch, self.read


def shard(worker):
    dataset = data.get_worker_info().dataset
    each = math.ceil((dataset.end - dataset.start) / data.get_worker_info().num_workers)
    dataset.start += worker * each
    dataset.end = min(dataset.start + each, dataset.end)


LOADERS = {
    "split": lambda L, n: L(Stream(), 3, num_workers=n),
    "not split": lambda L, n: L(Stream(split=False), 3, num_workers=n),
    "split in worker_init_fn": lambda L, n: L(
        Stream(split=False), 2, num_workers=n, worker_init_fn=shard if n else None
    ),
    "generator": lambda L, n: L(Lines(), 2, num_workers=n),
    "seeded alike": lambda L, n: L(Alike(), 3, num_workers=n, worker_init_fn=seed_alike if n else None),
    "own iterator": lambda L, n: L(Once(), 2, num_workers=n),
    "goes on after its end": lambda L, n: L(Restarts(), 2, num_workers=n),
    "chain": lambda L, n: L(data.ChainDataset([Stream(0, 5), Stream(20, 23)]), 3, num_workers=n),
    "sum": lambda L, n: L(Stream(0, 3) + Stream(5, 9), 2, num_workers=n),
    "counting": lambda L, n: L(Counting(), 2, num_workers=n),
    "persistent": lambda L, n: L(Counting(), 2, num_workers=n, persistent_workers=n > 0),
    "collate_fn": lambda L, n: L(Stream(), 3, collate_fn=list, num_workers=n),
    "collate_fn without batches": lambda L, n: L(Stream(), None, collate_fn=str, num_workers=n),
    "little prefetch": lambda L, n: L(Stream(), 2, num_workers=n, prefetch_factor=1 if n else None),
    "much prefetch": lambda L, n: L(Stream(), 2, num_workers=n, prefetch_factor=4 if n else None),
}


@pytest.mark.parametrize("num_workers", [0, 1, 3])
@pytest.mark.parametrize("kind", LOADERS)
@compared
def test_three_epochs(L, num_workers, kind):
    return epochs(LOADERS[kind](L, num_workers), 3)


@pytest.mark.parametrize("batch_size", [2, None])
@pytest.mark.parametrize("lengths", [(5, 2), (0, 4), (4, 0), (0, 0), (1, 9), (8, 8), (7, 0, 3)], ids=str)
@compared
def test_uneven_parts(L, batch_size, lengths):
    return epoch(L(Uneven(*lengths), batch_size, num_workers=len(lengths)))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("lengths", [(5, 2), (3, 1), (4, 6)], ids=str)
@compared
def test_drop_last_drops_in_each_worker(L, num_workers, lengths):
    return epochs(L(Uneven(*lengths), 2, drop_last=True, num_workers=num_workers))


@pytest.mark.parametrize("length", [11, 12, 20, 2])
@pytest.mark.parametrize("arguments", [{"batch_size": 4}, {"batch_size": 4, "drop_last": True}, {"batch_size": None}])
@compared
def test_the_length_of_a_loader(L, length, arguments):
    return len(L(Sized(length), **arguments))


@pytest.mark.parametrize(("length", "warns"), [(3, True), (40, False)])
def test_more_batches_than_len_are_a_warning(length, warns, workers):
    def pipeline(L):
        loader = L(Sized(length), 2, num_workers=workers)
        return len(loader), epoch(loader), epoch(loader)

    same(pipeline, warns=warns)


@compared
def test_more_batches_than_len_are_no_warning_if_nobody_asked_for_it(L, workers):
    return epoch(L(Sized(1), 2, num_workers=workers))


@compared
def test_several_iterators_of_a_stream(L, workers):
    loader = L(Stream(), 2, num_workers=workers)
    return list(zip(loader, loader))


@compared
def test_an_endless_stream_and_break(L, workers):
    loader, seen = L(Stream(end=10**9), 4, num_workers=workers), []
    for _ in range(2):
        for batch in loader:
            seen.append(batch)
            if len(seen) % 5 == 0:
                break
    return seen


@compared
def test_without_workers_samples_are_read_when_they_are_needed(L):
    dataset = Counting()
    return [dataset.read for _ in L(dataset, 3)]


@compared
def test_in_order_false(L):
    return sorted(samples(L(Stream(), 2, num_workers=2, in_order=False)))


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_that_are_seeded_alike_divide_one_order(loader_class, persistent):
    loader = loader_class(Alike(), 3, num_workers=2, worker_init_fn=seed_alike, persistent_workers=persistent)
    found = [[number for batch in lists(loader) for number in batch] for _ in range(3)]
    assert all(sorted(numbers) == list(range(40)) for numbers in found)
    assert (found[1] == found[0]) != persistent


@pytest.mark.filterwarnings("ignore:resuming Alike reads")
def test_an_order_of_seeded_workers_goes_on_after_a_resume():
    def make():
        return OURS(Alike(), 3, num_workers=2, worker_init_fn=seed_alike, persistent_workers=True)

    whole, resumed = make(), make()
    first, second = lists(whole), lists(whole)
    state, _ = left_after(make(), 4)
    assert [continued(resumed, pickle.loads(pickle.dumps(state))), lists(resumed)] == [first[4:], second]


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, False), (1, True)])
@pytest.mark.filterwarnings("ignore:resuming .* reads")  # a shuffle buffer is not in the state
@pytest.mark.parametrize("buffer", [0, 5])
def test_epochs_after_a_resume_of_a_stream_of_hugging_face(workers, persistent, buffer):
    datasets = pytest.importorskip("datasets")

    def make():
        stream = datasets.Dataset.from_dict({"x": list(range(11))}).to_iterable_dataset(num_shards=2)
        stream = stream.shuffle(seed=1, buffer_size=buffer) if buffer else stream
        return OURS(stream, 2, collate_fn=pick, num_workers=workers, persistent_workers=persistent)

    def pick(rows):
        return [row["x"] for row in rows]

    def numbers(batches):
        return [number for batch in batches for number in batch]

    saving, resumed, later = make(), make(), make()
    batches = iter(saving)
    first = next(batches)
    resumed.load_state_dict(saving.state_dict())
    rest = numbers(batches)
    assert numbers(resumed) == rest
    assert sorted(first + rest) == list(range(11))
    later.load_state_dict(resumed.state_dict())
    for loader in (resumed, later):
        assert sorted(numbers(loader)) == list(range(11))
