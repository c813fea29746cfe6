"""Whatever reads an iterable dataset, and however it is split: each epoch has its own order, and can be resumed."""

import json
import warnings
from itertools import islice

import numpy as np
import pytest
from conftest import ANY, FORK, SERIAL, load_or_skip

from gluonloader import IterableDataset, Ranks
from gluonloader.text import PackedStream

NUMBERS = 24
EPOCHS = range(3)


class Streamed:
    """Documents of two tokens, in an order that depends on the epoch; a shard is a new dataset in epoch 0."""

    def __init__(self, numbers=range(NUMBERS)):
        self.numbers, self.epoch = numbers, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def shard(self, num_shards, index):
        return type(self)(self.numbers[index::num_shards])

    def __iter__(self):
        for number in np.random.default_rng(self.epoch).permutation(self.numbers).tolist():
            yield np.array([self.epoch * 100 + number] * 2)


class Generated(Streamed):
    """A shard is a generator, which has no epoch."""

    def shard(self, num_shards, index):
        yield from list(self)[index::num_shards]


class Whole(Streamed):
    """It makes no shards."""

    shard = None


class Positioned(Streamed):
    """The dataset knows where its iterator stands, as those of torchdata do."""

    position = 0

    def __iter__(self):
        for sample in list(super().__iter__())[self.position :]:
            self.position += 1
            yield sample
        self.position = 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


def rows_of(files):
    for file in files:
        for number in range(3):
            yield {"tokens": [file * 3 + number] * 2}


def hugging_face():
    datasets = load_or_skip("datasets")
    files = {"files": list(range(NUMBERS // 3))}
    return datasets.IterableDataset.from_generator(rows_of, gen_kwargs=files).shuffle(seed=0, buffer_size=5)


def tokens(sample):
    return np.asarray(sample["tokens"] if isinstance(sample, dict) else sample)


def documents(make):
    return IterableDataset(make()).transform(tokens)


def packed(source):
    return PackedStream(source, 5, window=4)


SOURCES = {
    "new dataset": Streamed,
    "generator": Generated,
    "cut": Whole,
    "stateful": Positioned,
    "hugging face": hugging_face,
}
READERS = {
    "plain": documents,
    "taken": lambda make: documents(make).take(15),
    "shard": lambda make: documents(make).shard(2, 1),
    "shard of shard": lambda make: documents(make).shard(2, 1).shard(2, 0),
    "joined": lambda make: documents(make) + documents(make),
    "shard of joined": lambda make: (documents(make) + documents(make)).shard(2, 1),
    "packed": lambda make: packed(documents(make)),
    "shard of packed": lambda make: packed(documents(make)).shard(2, 1),
    "packed shard": lambda make: packed(documents(make).shard(2, 1)),
    "packed joined": lambda make: packed(documents(make) + documents(make)),
    "joined packed": lambda make: packed(documents(make)) + packed(documents(make)),
    "transformed packed": lambda make: packed(documents(make)).transform(lambda row: row),
}
PACKS = {"packed", "shard of packed", "packed shard", "packed joined", "joined packed", "transformed packed"}
# A PackedStream cuts no shards.
COMBINATIONS = [
    (source, reader) for source in SOURCES for reader in READERS if (source, reader) != ("cut", "shard of packed")
]
OVER_WORKERS = [  # every source and every reader
    pair for pair in COMBINATIONS if pair[0] == "new dataset" or pair[1] in ("plain", "packed", "shard of joined")
]


def numbers_of(batch):
    """The tokens of the batch, in their order."""
    return np.concatenate([np.concatenate(getattr(sample, "tokens", [sample])) for sample in batch])[::2].tolist()


def loader_of(source, reader, way=SERIAL, num_shards=2, **options):
    if reader == "packed shard" or (source == "cut" and reader in PACKS):
        num_shards = 1
    dataset = READERS[reader](SOURCES[source] if isinstance(source, str) else lambda: source)
    return way.loader(IterableDataset(dataset, num_shards=num_shards), 3, batchify_fn=numbers_of, **options)


def epochs_of(loader):
    return [sum(loader, []) for _ in EPOCHS]


@pytest.fixture(autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that samples are read again
        yield


@pytest.mark.parametrize(
    ("way", "source", "reader"),
    [(way, *pair) for way in ANY for pair in (COMBINATIONS if way is SERIAL else OVER_WORKERS)],
    ids=str,
)
def test_each_epoch_has_its_own_order(way, source, reader):
    with loader_of(source, reader, way) as loader, loader_of(source, reader) as serial:
        epochs = epochs_of(loader)
        assert epochs == epochs_of(serial)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    if source != "hugging face":
        assert [{number // 100 for number in numbers} for numbers in epochs] == [{0}, {1}, {2}]


@pytest.mark.parametrize(("source", "reader"), COMBINATIONS)
def test_a_position_in_a_later_epoch_is_exact(source, reader):
    with loader_of(source, reader) as loader:
        loader.set_epoch(2)
        iterator = iter(loader)
        before = list(islice(iterator, 2))
        state = json.loads(json.dumps(loader.state_dict()))
        after = list(iterator)
    with loader_of(source, reader) as resumed:
        resumed.load_state_dict(state)
        assert list(resumed) == after
        resumed.set_epoch(2)  # nothing stays of the position
        assert list(resumed) == before + after


@pytest.mark.parametrize("source", ["new dataset", "generator", "hugging face"])
@pytest.mark.parametrize("reader", ["plain", "joined", "packed", "packed joined", "shard of packed"])
def test_ranks_divide_each_epoch(source, reader):
    ranks = []
    for rank in range(2):
        with loader_of(source, reader, num_shards=4, ranks=Ranks(rank, 2, "uneven")) as loader:
            ranks.append(epochs_of(loader))
    with loader_of(source, reader, num_shards=4) as loader:
        for first, second, whole in zip(*ranks, epochs_of(loader), strict=True):
            assert sorted(first + second) == sorted(whole)
    assert all(epochs[0] != epochs[1] != epochs[2] for epochs in ranks)


@pytest.mark.parametrize("source", ["new dataset", "stateful", "hugging face"])
@pytest.mark.parametrize("reader", READERS)
def test_two_epochs_at_once_do_not_disturb_each_other(source, reader):
    with loader_of(source, reader, num_shards=1) as loader:
        alone = [list(loader) for _ in range(2)]
        loader.set_epoch(0)
        first, second = iter(loader), iter(loader)
        together = [[], []]
        for batches in zip(first, second, strict=True):
            for number, batch in enumerate(batches):
                together[number].append(batch)
    assert together == alone


@pytest.mark.parametrize("num_shards", [1, 2])
@pytest.mark.parametrize("reader", READERS)
def test_the_dataset_of_the_user_keeps_its_epoch_and_its_position(reader, num_shards):
    dataset = load_or_skip("datasets").IterableDataset.from_generator(rows_of, gen_kwargs={"files": [0, 1, 2, 3]})
    with loader_of(dataset, reader, num_shards=num_shards) as loader:
        loader.set_epoch(2)
        iterator = iter(loader)
        next(iterator)
        loader.load_state_dict(loader.state_dict())
        list(loader)
    assert dataset.epoch == 0
    assert [sample["tokens"][0] for sample in dataset] == list(range(12))


class Noisy:
    """Holds a random generator."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __iter__(self):
        for number in range(NUMBERS):
            yield np.array([number, int(self.rng.integers(1000))])


class NoisyShards(Noisy):
    def shard(self, num_shards, index):
        return islice(self, index, None, num_shards)


class NoisyItems(Noisy):
    __iter__ = None

    def __len__(self):
        return NUMBERS

    def __getitem__(self, index):
        return np.array([index, int(self.rng.integers(1000))])


NOISY = {"packed": Noisy, "packed items": NoisyItems, "shard of joined": NoisyShards, "joined shards": NoisyShards}


@pytest.mark.parametrize("reader", ["shard", "shard of shard", "joined", *NOISY])
def test_random_generators_inside_of_a_dataset_that_passes_on_its_epoch_are_seeded(reader):
    make = NOISY.get(reader, Noisy)
    read = {"packed items": lambda make: packed(make()), "joined shards": READERS["joined"], **READERS}[reader]

    def epochs(way, **options):
        num_shards = 1 if make is Noisy and reader == "packed" else 2
        with way.loader(
            IterableDataset(read(make), num_shards=num_shards), 3, batchify_fn=_as_lists, **options
        ) as loader:
            return [list(loader) for _ in EPOCHS]

    assert epochs(SERIAL) == epochs(FORK) == epochs(FORK, num_workers=1)


def _as_lists(batch):
    return [np.concatenate(getattr(sample, "tokens", [sample])).tolist() for sample in batch]
