"""DataLoader: order, epochs, lengths, samplers, several iterators, prefetch, auto_reload."""

import numpy as np
import pytest
from parity import Drawn, outcome

from .sides import WAYS, epoch, lists, mx


class Endless:
    """A dataset without a length."""

    def __getitem__(self, index):
        return index


class Unsized:
    """A sampler without a length."""

    def __iter__(self):
        return iter([3, 1, 2])


FIVE, WHOLE, ODD = [[0, 1, 2], [3, 4]], [[0, 1, 2, 3], [4, 5, 6, 7]], [[4, 2], [0]]
TEN = [*WHOLE, [8, 9]]
# Arguments of a loader, and the batches of each of its epochs.
LOADERS = {
    "list": lambda gdata: ({"dataset": list(range(5)), "batch_size": 3}, [FIVE]),
    "tuple": lambda gdata: ({"dataset": tuple(range(5)), "batch_size": 3}, [FIVE]),
    "numpy": lambda gdata: ({"dataset": np.arange(5), "batch_size": 3}, [FIVE]),
    "NDArray": lambda gdata: ({"dataset": mx.nd.arange(4).reshape((2, 2)), "batch_size": 1}, [[[[0, 1]], [[2, 3]]]]),
    "empty": lambda gdata: ({"dataset": [], "batch_size": 3}, [[], []]),
    "keep": lambda gdata: ({"batch_size": 4, "last_batch": "keep"}, [TEN, TEN]),
    "None": lambda gdata: ({"batch_size": 4, "last_batch": None}, [TEN, TEN]),
    "discard": lambda gdata: ({"batch_size": 4, "last_batch": "discard"}, [WHOLE, WHOLE]),
    "rollover": lambda gdata: (
        {"batch_size": 4, "last_batch": "rollover"},
        [WHOLE, [[8, 9, 0, 1], [2, 3, 4, 5], [6, 7, 8, 9]], WHOLE],
    ),
    "sampler": lambda gdata: ({"batch_size": 2, "sampler": [4, 2, 0]}, [ODD, ODD]),
    "range as sampler": lambda gdata: ({"batch_size": 2, "sampler": range(4, -1, -2)}, [ODD, ODD]),
    "numpy as sampler": lambda gdata: ({"batch_size": 2, "sampler": np.array([4, 2, 0])}, [ODD, ODD]),
    "keys": lambda gdata: ({"dataset": {"a": 1, "b": 2}, "batch_size": 2, "sampler": ["b", "a"]}, [[[2, 1]]]),
    "endless": lambda gdata: ({"dataset": Endless(), "batch_size": 2, "sampler": [7, 8, 9]}, [[[7, 8], [9]]]),
    "unsized": lambda gdata: ({"batch_size": 2, "sampler": Unsized()}, [[[3, 1], [2]]] * 2),
    "batch_sampler": lambda gdata: ({"batch_sampler": [[4, 2], [0]]}, [ODD, ODD]),
    "tuples as batch_sampler": lambda gdata: ({"batch_sampler": ((4, 2), (0,))}, [ODD, ODD]),
    "numpy as batch_sampler": lambda gdata: ({"batch_sampler": np.array([[4, 3], [0, 1]])}, [[[4, 3], [0, 1]]] * 2),
    "BatchSampler": lambda gdata: ({"batch_sampler": gdata.BatchSampler([4, 2, 0], 2)}, [ODD, ODD]),
    "no prefetch": lambda gdata: ({"batch_size": 4, "prefetch": 0}, [TEN, TEN]),
    "little prefetch": lambda gdata: ({"batch_size": 4, "prefetch": 1}, [TEN, TEN]),
    "much prefetch": lambda gdata: ({"batch_size": 4, "prefetch": 7}, [TEN, TEN]),
    "negative prefetch": lambda gdata: ({"batch_size": 4, "prefetch": -3}, [TEN]),
    "negative num_workers": lambda gdata: ({"batch_size": 4, "num_workers": -3}, [TEN]),
    "numpy as batch_size": lambda gdata: ({"batch_size": np.int64(4)}, [TEN]),
    "shuffle=None": lambda gdata: ({"batch_size": 4, "shuffle": None}, [TEN]),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_epochs_and_lengths(gdata, way, kind):
    arguments, epochs = LOADERS[kind](gdata)
    loader = gdata.DataLoader(**{"dataset": range(10), **WAYS[way], **arguments})
    for batches in epochs:
        assert outcome(len, loader) == ("TypeError" if kind == "unsized" else len(batches))
        assert epoch(loader) == batches


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


def test_iterators_of_one_loader_are_independent(gdata, way):
    loader = gdata.DataLoader(range(4), 1, **WAYS[way])
    first, second = iter(loader), iter(loader)
    seen = [lists(next(it)) for it in (first, first, second, first, second, second, first, second)]
    assert seen == [[0], [1], [0], [2], [1], [2], [3], [3]]
    assert list(zip(epoch(loader), epoch(loader))) == [([i], [i]) for i in range(4)]
    assert [(lists(a), lists(b)) for a, b in zip(loader, loader)] == [([i], [i]) for i in range(4)]
    assert next(first, None) is next(second, None) is None


def test_an_epoch_can_be_broken_off_and_an_iterator_keeps_its_loader_alive(gdata, way):
    loader, other = gdata.DataLoader(range(6), 2, **WAYS[way]), gdata.DataLoader(range(9, 12), 2, **WAYS[way])
    broken, left = iter(loader), iter(other)
    del other
    assert lists(next(broken)) == [0, 1]
    assert epoch(loader) == [[0, 1], [2, 3], [4, 5]]
    assert epoch(left) == [[9, 10], [11]]
    assert epoch(broken) == [[2, 3], [4, 5]]  # to its end: Gluon may hang when it is deleted with work in flight


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


@pytest.mark.parametrize("auto_reload", [False, True])
def test_auto_reload_starts_the_next_epoch_early(gdata, way, auto_reload):
    drawn = Drawn(6)
    loader = gdata.DataLoader(range(6), batch_sampler=drawn, auto_reload=auto_reload, prefetch=2, **WAYS[way])
    for number in range(3):
        if way != "serial" or not auto_reload:
            assert (drawn.drawn > 6 * number) == auto_reload
        assert epoch(loader) == [[i] for i in range(6)]
    assert loader.auto_reload is auto_reload
    assert epoch(loader) == [[i] for i in range(6)]


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

    def inner(index):
        return sum(sum(epoch(gdata.DataLoader(range(index + 1), 2)), []))

    dataset = gdata.SimpleDataset(range(3)).transform(inner)
    assert epoch(gdata.DataLoader(dataset, 2, num_workers=1)) == [[0, 1], [3]]
