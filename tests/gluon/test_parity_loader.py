"""DataLoader: order, epochs, lengths, samplers, prefetch, auto_reload, errors."""

import functools

import numpy as np
import pytest
from parity import Custom, Drawn, Spoiled, outcome

from .sides import WAYS, epoch, mx


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
    "list": ({"dataset": list(range(5)), "batch_size": 3}, [FIVE]),
    "tuple": ({"dataset": tuple(range(5)), "batch_size": 3}, [FIVE]),
    "numpy": ({"dataset": np.arange(5), "batch_size": 3}, [FIVE]),
    "NDArray": ({"dataset": mx.nd.arange(4).reshape((2, 2)), "batch_size": 1}, [[[[0, 1]], [[2, 3]]]]),
    "empty": ({"dataset": [], "batch_size": 3}, [[], []]),
    "keep": ({"batch_size": 4, "last_batch": "keep"}, [TEN, TEN]),
    "None": ({"batch_size": 4, "last_batch": None}, [TEN, TEN]),
    "discard": ({"batch_size": 4, "last_batch": "discard"}, [WHOLE, WHOLE]),
    "rollover": (
        {"batch_size": 4, "last_batch": "rollover"},
        [WHOLE, [[8, 9, 0, 1], [2, 3, 4, 5], [6, 7, 8, 9]], WHOLE],
    ),
    "sampler": ({"batch_size": 2, "sampler": [4, 2, 0]}, [ODD, ODD]),
    "range as sampler": ({"batch_size": 2, "sampler": range(4, -1, -2)}, [ODD, ODD]),
    "numpy as sampler": ({"batch_size": 2, "sampler": np.array([4, 2, 0])}, [ODD, ODD]),
    "keys": ({"dataset": {"a": 1, "b": 2}, "batch_size": 2, "sampler": ["b", "a"]}, [[[2, 1]]]),
    "endless": ({"dataset": Endless(), "batch_size": 2, "sampler": [7, 8, 9]}, [[[7, 8], [9]]]),
    "unsized": ({"batch_size": 2, "sampler": Unsized()}, [[[3, 1], [2]]] * 2),
    "batch_sampler": ({"batch_sampler": [[4, 2], [0]]}, [ODD, ODD]),
    "tuples as batch_sampler": ({"batch_sampler": ((4, 2), (0,))}, [ODD, ODD]),
    "numpy as batch_sampler": ({"batch_sampler": np.array([[4, 3], [0, 1]])}, [[[4, 3], [0, 1]]] * 2),
    "no prefetch": ({"batch_size": 4, "prefetch": 0}, [TEN, TEN]),
    "little prefetch": ({"batch_size": 4, "prefetch": 1}, [TEN, TEN]),
    "much prefetch": ({"batch_size": 4, "prefetch": 7}, [TEN, TEN]),
    "negative prefetch": ({"batch_size": 4, "prefetch": -3}, [TEN]),
    "negative num_workers": ({"batch_size": 4, "num_workers": -3}, [TEN]),
    "numpy as batch_size": ({"batch_size": np.int64(4)}, [TEN]),
    "shuffle=None": ({"batch_size": 4, "shuffle": None}, [TEN]),
}


@pytest.mark.parametrize("kind", LOADERS)
def test_epochs_and_lengths(gdata, way, kind):
    arguments, epochs = LOADERS[kind]
    loader = gdata.DataLoader(**{"dataset": range(10), **WAYS[way], **arguments})
    for batches in epochs:
        assert outcome(len, loader) == ("TypeError" if kind == "unsized" else len(batches))
        assert epoch(loader) == batches


def test_each_epoch_has_a_new_order_and_a_seed_of_numpy_repeats_them(gdata, way):
    runs = []
    for _ in range(2):
        np.random.seed(7)
        loader = gdata.DataLoader(range(64), 10, shuffle=True, **WAYS[way])
        runs.append([sum(epoch(loader), []) for _ in range(2)])
    assert runs[0] == runs[1]
    first, second = runs[0]
    assert sorted(first) == sorted(second) == list(range(64))
    assert first != second != list(range(64)) != first


def test_an_iterator_keeps_its_loader_alive(gdata, way):
    batches = iter(gdata.DataLoader(range(9, 12), 2, **WAYS[way]))
    assert epoch(batches) == [[9, 10], [11]]


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


def fail(error, samples):
    raise error


@pytest.mark.parametrize("error", [OSError("no file"), KeyError("k"), Custom("mine")], ids=repr)
def test_an_error_of_a_dataset_or_a_batchify_fn_keeps_its_type(gdata, way, error):
    for dataset, batchify_fn in ((Spoiled(2, 1, error), None), ([1, 2], functools.partial(fail, error))):
        with pytest.raises(type(error)) as raised:
            list(gdata.DataLoader(dataset, 2, batchify_fn=batchify_fn, **WAYS[way]))
        assert raised.value.args == error.args


def test_stop_iteration_in_a_dataset_without_workers_is_an_error(gdata):
    with pytest.raises(RuntimeError):
        epoch(gdata.DataLoader(Spoiled(6, 3, StopIteration()), 1))


def test_workers_see_the_dataset_as_it_was(gdata):
    data = [1, 2, 3]
    loader = gdata.DataLoader(data, 3, **WAYS["processes"])
    data[0] = 9
    assert epoch(loader) == [[1, 2, 3]]
