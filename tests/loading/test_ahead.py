"""Which blocks of caches the next batches need, over the end of an epoch, as the caches are told of them."""

import signal
from collections import Counter
from contextlib import suppress
from itertools import chain, count, islice, pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from interrupting import SignalAt
from rank_models import Restarting

from gluonloader import ConcatDataset, DataLoader, RandomSampler, Subset
from gluonloader.loading import ahead
from gluonloader.loading.ahead import Ahead
from gluonloader.stores.cache import Needed
from gluonloader.stores.objects import Block, Remote
from gluonloader.text import PackedDataset, PackingSampler

SIZE = 4000  # of a block, which occupies 4096 bytes
REMOTE = Remote("s3://bucket/object", 4096 * 1000, "tag")


class Cache:
    """As much of a cache as is looked at."""

    def __init__(self, room, block=SIZE):
        self.room, self.options = room, SimpleNamespace(block=block, limit=4096 * room, requests=16)
        self.fetched_ns = count().__next__  # it always fetches something

    def __repr__(self):
        return f"Cache({self.room})"


class Numbers:
    """A dataset that reads its samples from a cache; each block contains `per_block` samples."""

    _parts = ()

    def __init__(self, length, cache, per_block=1):
        self.length, self.cache, self.per_block = length, cache, per_block

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return np.array([index])

    def needed_blocks(self, indices):
        places = np.unique(np.asarray(indices, np.intp) // self.per_block).tolist()
        blocks = [Block(REMOTE.key, SIZE * place, SIZE * (place + 1)) for place in places]
        return [Needed(self.cache, {REMOTE.key: REMOTE}, blocks)]


@pytest.fixture
def told(monkeypatch):
    """What caches were told: the places of the blocks, for each call."""
    found = []

    def tell(cache, loader, blocks, remotes):
        assert loader is not None
        assert set(remotes) == {block.key for block in blocks}
        found.append([block.start // SIZE for block in blocks])

    monkeypatch.setattr(ahead, "tell", tell)
    return found


def tasks_of(batches):
    return (SimpleNamespace(indices=np.array(batch)) for batch in batches)


def test_blocks_of_the_next_batches_are_told_in_their_order(told):
    data = Numbers(1000, Cache(100))
    batches = [[number] for number in range(200)]
    window = Ahead(tasks_of(batches), data, in_flight=2, loader="one")
    assert told == [list(range(24))]  # twice the 8 batches that are looked at together, and 8 more
    for _ in range(7):
        window.move()
    assert len(told) == 1
    window.move()
    assert told[1:] == [list(range(8, 32))]
    for _ in range(192):
        window.move()
    assert all(first[8:] == second[: len(first) - 8] for first, second in pairwise(told))
    assert told[-1] == []


def test_a_block_is_needed_as_long_as_any_of_the_batches_needs_it(told):
    batches = [[0, number] for number in range(1, 100)]
    window = Ahead(tasks_of(batches), Numbers(1000, Cache(100)), in_flight=1, loader="one")
    for _ in range(80):
        window.move()
    assert all(0 in blocks for blocks in told)
    assert told[-1] == sorted(set(told[-1]))


def test_the_window_has_at_most_half_of_the_room_unless_the_first_batches_need_more(told):
    Ahead(tasks_of([[number] for number in range(200)]), Numbers(1000, Cache(40)), in_flight=1, loader="one")
    assert len(told[0]) == 24
    Ahead(tasks_of([[number] for number in range(200)]), Numbers(1000, Cache(30)), in_flight=1, loader="one")
    assert len(told[1]) == 24  # the first two steps need 16, and one more step is looked at
    Ahead(tasks_of([[number] for number in range(200)]), Numbers(1000, Cache(12)), in_flight=1, loader="one")
    assert len(told[2]) == 16
    Ahead(tasks_of([[number] for number in range(200)]), Numbers(1000, Cache(200)), in_flight=20, loader="one")
    assert len(told[3]) == 60


def test_of_small_files_no_more_are_told_than_requests_need(told):
    few, many = ([[number] for number in range(count)] for count in (200, 2000))
    Ahead(tasks_of(few), Numbers(1000, Cache(10_000, block=100 * SIZE)), in_flight=1, loader="one")
    assert len(told[0]) == 4 * 16
    Ahead(tasks_of(many), Numbers(2000, Cache(10_000, block=100 * SIZE)), in_flight=100, loader="one")
    assert len(told[1]) == 200  # two steps


@pytest.mark.parametrize("room", [7, 8])
def test_a_cache_without_room_for_the_first_batches_is_an_error(told, room):
    text = (
        f"cache=Cache({room}): the next 8 batches need 32 kB, and its limit is {4 * room} kB; pass at least 64 kB as "
        "limit, a smaller batch_size, or a smaller buffer to BlockShuffleSampler"
    )
    with pytest.raises(ValueError, match="need 32 kB") as caught:
        Ahead(tasks_of([[number] for number in range(20)]), Numbers(20, Cache(room)), in_flight=1, loader="one")
    assert str(caught.value) == text
    Ahead(tasks_of([[number] for number in range(20)]), Numbers(20, Cache(9)), in_flight=1, loader="one")


def read(loader, epochs=1):
    return [[int(sample[0]) for batch in loader for sample in batch] for _ in range(epochs)]


def test_the_window_goes_over_the_end_of_the_epoch(told):
    loader = DataLoader(Numbers(40, Cache(100)), 2, sampler=RandomSampler(40, seed=5), batchify_fn=list)
    first, second = read(loader, epochs=2)
    assert first != second
    assert {tuple(sorted(epoch)) for epoch in (first, second)} == {tuple(range(40))}
    steps = [sorted(set(samples)) for samples in (first[:16], first[16:32], [*first[32:], *second[:8]])]
    assert told[0] == list(dict.fromkeys(chain(*steps)))


def test_an_epoch_that_is_resumed_needs_what_comes_next(told):
    def make():
        return DataLoader(Numbers(40, Cache(100)), 2, sampler=RandomSampler(40, seed=5), batchify_fn=list)

    loader = make()
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    told.clear()
    (rest,) = read(resumed)
    assert told[0][:16] == sorted(rest[:16])


# Python itself swallows an exception of a signal handler that runs in `__del__`.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_after_an_interrupt_the_blocks_of_each_batch_are_told_before_it_is_made(told):
    data = Numbers(100, Cache(100))
    for point in count(0, 5):
        iterator = iter(DataLoader(data, 2, batchify_fn=list))
        list(islice(iterator, 7))  # when the 8th batch is delivered, the next ones are looked at
        with suppress(KeyboardInterrupt), SignalAt(point, signal.SIGINT) as interrupt:
            next(iterator)
        if interrupt.where:
            next(iterator)
        known = set(told[-1])
        for batch in iterator:
            assert {int(sample[0]) for sample in batch} <= known
            known = set(told[-1])
        if not interrupt.where:
            break


def test_the_rows_of_a_packed_dataset_need_the_blocks_of_their_documents(told):
    lengths = [3] * 64
    documents = Numbers(64, Cache(100), per_block=4)
    documents.lengths = np.array(lengths)
    loader = DataLoader(
        PackedDataset(documents),
        2,
        sampler=PackingSampler(lengths, size=6, shuffle=False),
        batchify_fn=list,
    )
    rows = [loader.indices(0, number) for number in range(8)]
    needed = {document // 4 for batch in rows for row in batch for document in row.documents}
    told.clear()
    iter(loader)
    assert set(told[0][: len(needed)]) == needed


def test_parts_of_a_dataset_need_their_own_blocks(told):
    cache = Cache(1000)
    data = ConcatDataset(Subset(Numbers(100, cache), range(50, 100)), [np.array([0])] * 10, Numbers(20, cache))
    loader = DataLoader(data, 10, batchify_fn=list)
    list(loader)
    assert Counter(told[0]) == Counter({*range(50, 100), *range(20)})


@pytest.mark.parametrize("sampler", [[-1, -2, 3], [0, 50, 1]])
def test_keys_that_are_no_indices_need_no_blocks(told, sampler):
    data = ConcatDataset(Numbers(5, Cache(100)), [np.array([0])])
    loader = DataLoader(data, 1, sampler=sampler, batchify_fn=list, on_error="skip")
    assert len(list(loader)) == sum(-6 <= key < 6 for key in sampler)
    assert set(told[0]) == {key % 6 for key in sampler if -6 <= key < 6} - {5}


def test_an_order_that_is_not_known_needs_no_blocks(told):
    loader = DataLoader(Numbers(5, Cache(100)), 1, sampler=Restarting([3, 1]), batchify_fn=list)
    assert read(loader) == [[3, 1]]
    assert told == []


def test_rows_that_are_carried_over_need_no_blocks_until_they_are_read(told):
    lengths = [1] * 5
    loader = DataLoader(
        PackedDataset(Numbers(5, Cache(100))),
        2,
        sampler=PackingSampler(lengths, size=1, shuffle=False),
        batchify_fn=len,
        last_batch="rollover",
    )
    assert [len(list(loader)) for _ in range(2)] == [2, 3]


def test_a_cache_that_had_all_blocks_of_an_epoch_is_told_nothing_until_it_fetches_something(told):
    cache = Cache(1000)
    cache.fetched_ns = lambda: fetched
    with DataLoader(Numbers(100, cache), 5, shuffle=True, seed=1) as loader:
        fetched = 1
        batches = iter(loader)
        next(batches)
        fetched = 2
        for _ in range(2):  # the first of these epochs has fetched something
            before = len(told)
            list(batches)
            batches = iter(loader)
            next(batches)
            assert len(told) > before
        list(batches)
        before = len(told)
        batches = iter(loader)
        list(islice(batches, 12))
        assert len(told) == before
        fetched = 3
        list(islice(batches, 8))
        assert len(told) > before
        before = len(told)
        next(iter(loader))
        assert len(told) > before
