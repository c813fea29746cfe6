"""DataLoader: order, epochs, lengths, samplers, several iterators, prefetch, auto_reload."""

import numpy as np
import pytest

from .differences import differs
from .sides import WAYS, epoch, lists, mx


class Drawn:
    """Batches of one index, and how many of them were drawn."""

    def __init__(self, length):
        self.length, self.drawn = length, 0

    def __iter__(self):
        for i in range(self.length):
            self.drawn += 1
            yield [i]

    def __len__(self):
        return self.length


def test_batches_come_in_order_in_every_epoch(gdata, way):
    loader = gdata.DataLoader(range(10), 4, **WAYS[way])
    for _ in range(3):
        assert epoch(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


@pytest.mark.parametrize(
    "dataset",
    [
        list(range(5)),
        tuple(range(5)),
        range(5),
        np.arange(5),
        mx.nd.arange(5).reshape((5, 1)),
    ],
    ids=["list", "tuple", "range", "numpy", "NDArray"],
)
def test_anything_with_length_and_items_is_a_dataset(gdata, way, dataset):
    batches = epoch(gdata.DataLoader(dataset, 3, **WAYS[way]))
    assert np.concatenate([np.ravel(batch) for batch in batches]).tolist() == [0, 1, 2, 3, 4]
    assert [len(batch) for batch in batches] == [3, 2]


def test_an_empty_dataset_gives_no_batches(gdata, way):
    loader = gdata.DataLoader([], 3, **WAYS[way])
    assert len(loader) == 0
    assert epoch(loader) == []


def test_last_batch_keep_and_discard(gdata, way):
    for last_batch, batches in (("keep", 3), (None, 3), ("discard", 2)):
        loader = gdata.DataLoader(range(10), 4, last_batch=last_batch, **WAYS[way])
        for _ in range(2):
            assert len(loader) == batches
            assert epoch(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]][:batches]
        assert len(loader) == batches


def test_last_batch_rollover_starts_the_next_epoch(gdata, way):
    loader = gdata.DataLoader(range(10), 4, last_batch="rollover", **WAYS[way])
    assert len(loader) == 2
    assert epoch(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(loader) == 3
    assert epoch(loader) == [[8, 9, 0, 1], [2, 3, 4, 5], [6, 7, 8, 9]]
    assert len(loader) == 2
    assert epoch(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_rollover_of_less_than_a_batch(gdata):
    loader = gdata.DataLoader(range(3), 5, last_batch="rollover")
    assert [epoch(loader) for _ in range(4)] == [[], [[0, 1, 2, 0, 1]], [], [[2, 0, 1, 2, 0]]]


@differs("rollover-kept")
def test_an_epoch_that_is_broken_off_keeps_its_rollover(gdata):
    loader = gdata.DataLoader(range(10), 4, last_batch="rollover")
    epoch(loader)
    for _ in loader:
        break
    assert epoch(loader)[0] == [8, 9, 0, 1]


@differs("rollover-length")
def test_the_length_stays_that_of_the_epoch_until_its_last_batch(gdata):
    loader = gdata.DataLoader(range(10), 4, last_batch="rollover")
    epoch(loader)
    batches = iter(loader)
    assert [(lists(next(batches))[0], len(loader)) for _ in range(2)] == [(8, 3), (2, 3)]
    assert len(epoch(batches)) == 1
    assert len(loader) == 2


@pytest.mark.parametrize("kind", ["list", "range", "numpy", "Sampler", "Gluon's Sampler"])
def test_samplers(gdata, way, kind):
    sampler = {
        "list": [4, 2, 0, 2],
        "range": range(4, -1, -2),
        "numpy": np.array([4, 2, 0]),
        "Sampler": gdata.SequentialSampler(3, 2),
        "Gluon's Sampler": mx.gluon.data.SequentialSampler(3, 2),
    }[kind]
    loader = gdata.DataLoader([10, 11, 12, 13, 14], 2, sampler=sampler, **WAYS[way])
    wanted = [10 + i for i in sampler]
    assert len(loader) == -(-len(wanted) // 2)
    for _ in range(2):
        assert sum(epoch(loader), []) == wanted


@pytest.mark.parametrize("kind", ["lists", "tuples", "numpy", "BatchSampler", "Gluon's BatchSampler"])
def test_batch_samplers(gdata, way, kind):
    batch_sampler = {
        "lists": [[4, 3], [0]],
        "tuples": ((4, 3), (0,)),
        "numpy": np.array([[4, 3], [0, 1]]),
        "BatchSampler": gdata.BatchSampler([4, 3, 0], 2),
        "Gluon's BatchSampler": mx.gluon.data.BatchSampler(mx.gluon.data.SequentialSampler(3), 2, "rollover"),
    }[kind]
    wanted = {
        "numpy": [[[14, 13], [10, 11]]] * 2,
        "Gluon's BatchSampler": [[[10, 11]], [[12, 10], [11, 12]]],
    }.get(kind, [[[14, 13], [10]]] * 2)
    loader = gdata.DataLoader([10, 11, 12, 13, 14], batch_sampler=batch_sampler, **WAYS[way])
    for batches in wanted:
        assert len(loader) == len(batches)
        assert epoch(loader) == batches


def test_a_sampler_alone_needs_no_length_of_the_dataset(gdata):
    class Endless:
        def __getitem__(self, index):
            return index

    assert epoch(gdata.DataLoader(Endless(), 2, sampler=[7, 8, 9])) == [[7, 8], [9]]
    assert epoch(gdata.DataLoader(Endless(), batch_sampler=[[7, 8], [9]])) == [[7, 8], [9]]


def test_a_sampler_needs_a_length_for_that_of_the_loader_only(gdata, way):
    class Unsized:
        def __iter__(self):
            return iter([3, 1, 2])

    loader = gdata.DataLoader(range(5), 2, sampler=Unsized(), **WAYS[way])
    assert [epoch(loader) for _ in range(2)] == [[[3, 1], [2]]] * 2
    with pytest.raises(TypeError):
        len(loader)


def test_a_sampler_may_yield_any_key(gdata, way):
    loader = gdata.DataLoader({"a": 1, "b": 2, "c": 3}, 2, sampler=["c", "a"], **WAYS[way])
    assert epoch(loader) == [[3, 1]]


@differs("one-shot-samplers", raises=pytest.fail.Exception)
@pytest.mark.parametrize("argument", ["sampler", "batch_sampler"])
def test_a_sampler_that_serves_one_epoch_only_is_refused(gdata, argument):
    indices = iter([[0], [1]] if argument == "batch_sampler" else [0, 1])
    size = {} if argument == "batch_sampler" else {"batch_size": 1}
    with pytest.raises(ValueError, match="once"):
        gdata.DataLoader(range(4), **{argument: indices}, **size)


def test_shuffle_gives_each_sample_once_and_a_new_order_each_epoch(gdata, way):
    loader = gdata.DataLoader(range(64), 10, shuffle=True, **WAYS[way])
    orders = [sum(epoch(loader), []) for _ in range(2)]
    assert [sorted(order) for order in orders] == [list(range(64))] * 2
    assert orders[0] != orders[1] != list(range(64))


def test_a_seed_of_numpy_repeats_the_whole_run(gdata, way):
    runs = []
    for _ in range(2):
        np.random.seed(7)
        loader = gdata.DataLoader(range(20), 6, shuffle=True, last_batch="rollover", **WAYS[way])
        runs.append([epoch(loader) for _ in range(3)])
    assert runs[0] == runs[1]


@differs("shuffle-order")
def test_random_numbers_drawn_elsewhere_do_not_change_the_order(gdata):
    orders = []
    for others in (0, 5):
        np.random.seed(7)
        loader = gdata.DataLoader(range(20), 20, shuffle=True)
        np.random.random(others)
        orders.append(epoch(loader))
    assert orders[0] == orders[1]


def test_iterators_of_one_loader_are_independent(gdata, way):
    loader = gdata.DataLoader(range(4), 1, **WAYS[way])
    first, second = iter(loader), iter(loader)
    seen = [lists(next(it)) for it in (first, first, second, first, second, second, first, second)]
    assert seen == [[0], [1], [0], [2], [1], [2], [3], [3]]
    assert list(zip(epoch(loader), epoch(loader))) == [([i], [i]) for i in range(4)]
    assert [(lists(a), lists(b)) for a, b in zip(loader, loader)] == [([i], [i]) for i in range(4)]
    assert next(first, None) is next(second, None) is None


def test_two_loaders_do_not_mix(gdata, way):
    first = gdata.DataLoader(range(4), 2, **WAYS[way])
    second = gdata.DataLoader(range(10, 14), 2, **WAYS[way])
    assert [(lists(a), lists(b)) for a, b in zip(first, second)] == [([0, 1], [10, 11]), ([2, 3], [12, 13])]


def test_an_epoch_can_be_broken_off(gdata, way):
    loader = gdata.DataLoader(range(6), 2, **WAYS[way])
    broken = iter(loader)
    assert lists(next(broken)) == [0, 1]
    assert epoch(loader) == [[0, 1], [2, 3], [4, 5]]
    assert epoch(broken) == [[2, 3], [4, 5]]  # to its end: Gluon may hang when it is deleted with work in flight


def test_an_iterator_keeps_its_loader_alive(gdata, way):
    batches = iter(gdata.DataLoader(range(6), 2, **WAYS[way]))
    assert epoch(batches) == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("prefetch", [None, 0, 1, 7])
def test_prefetch_changes_nothing_but_speed(gdata, way, prefetch):
    loader = gdata.DataLoader(range(10), 3, prefetch=prefetch, **WAYS[way])
    assert [epoch(loader) for _ in range(2)] == [[[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]] * 2


@pytest.mark.parametrize(("prefetch", "ahead"), [(None, 4), (1, 1), (3, 3)])
def test_prefetch_counts_the_batches_in_flight(gdata, prefetch, ahead):
    drawn = Drawn(8)
    loader = gdata.DataLoader(range(8), batch_sampler=drawn, prefetch=prefetch, **WAYS["threads"])
    batches = iter(loader)
    next(batches)
    assert drawn.drawn == ahead + 1
    next(batches)
    assert drawn.drawn == ahead + 2
    assert len(epoch(batches)) == 6


@differs("eager-iterators")
def test_an_iterator_starts_work_before_the_first_next(gdata):
    drawn = Drawn(8)
    loader = gdata.DataLoader(range(8), batch_sampler=drawn, prefetch=3, **WAYS["threads"])
    batches = iter(loader)
    assert drawn.drawn == 3
    assert len(epoch(batches)) == 8


def test_auto_reload_starts_the_next_epoch_early(gdata, way):
    drawn = Drawn(6)
    loader = gdata.DataLoader(range(6), batch_sampler=drawn, auto_reload=True, prefetch=2, **WAYS[way])
    if way == "serial":
        assert epoch(loader) == epoch(loader) == [[i] for i in range(6)]
        return
    assert drawn.drawn > 0
    for number in (1, 2, 3):
        assert epoch(loader) == [[i] for i in range(6)]
        assert drawn.drawn > 6 * number
    assert loader.auto_reload is True
    assert epoch(loader) == [[i] for i in range(6)]


def test_without_auto_reload_no_epoch_starts_early(gdata, way):
    drawn = Drawn(6)
    loader = gdata.DataLoader(range(6), batch_sampler=drawn, **WAYS[way])
    assert drawn.drawn == 0
    assert epoch(loader) == [[i] for i in range(6)]
    assert drawn.drawn == 6
    assert loader.auto_reload is False


def test_refresh_and_clean_leave_whole_epochs(gdata, way):
    if way == "serial":
        pytest.skip("Gluon's refresh needs workers")
    if way == "processes" and gdata is mx.gluon.data:
        pytest.skip("Gluon drops batches in flight, and may hang then on a busy machine")
    loader = gdata.DataLoader(range(6), 2, auto_reload=True, **WAYS[way])
    for step in (loader.refresh, loader.clean, loader.refresh):
        step()
        assert epoch(loader) == [[0, 1], [2, 3], [4, 5]]


def test_workers_see_the_dataset_as_it_was(gdata):
    data = [1, 2, 3]
    loader = gdata.DataLoader(data, 3, **WAYS["processes"])
    data[0] = 9
    assert epoch(loader) == [[1, 2, 3]]


def test_a_loader_in_a_loader(gdata):
    """A dataset that loads its samples with a loader of its own."""

    class Inner:
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return sum(sum(epoch(gdata.DataLoader(range(index + 1), 2)), []))

    assert epoch(gdata.DataLoader(Inner(), 2, num_workers=1)) == [[0, 1], [3]]
