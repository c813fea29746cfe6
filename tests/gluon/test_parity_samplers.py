"""Samplers, one by one and over all small numbers; and that each side takes the other's."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import outcome

from .sides import GLUON, OURS, WAYS, epoch, interval_sampler, mx


def calls_of_a_filter(gdata):
    seen = []
    sampler = gdata.FilterSampler(lambda x: seen.append(x) or x > 10, gdata.SimpleDataset([8, 12, 3, 11]))
    return list(seen), list(sampler), list(sampler), len(sampler), len(seen)


def copies(gdata):
    samplers = gdata.SequentialSampler(5), gdata.BatchSampler(gdata.SequentialSampler(5), 2, "discard")
    return [list(pickle.loads(pickle.dumps(sampler))) for sampler in samplers]


CALLS = {
    "base class": lambda g: [outcome(use, g.Sampler()) for use in (len, iter)],
    "sequential": lambda g: (list(g.SequentialSampler(4)), len(g.SequentialSampler(0))),
    "sequential from a start": lambda g: (list(g.SequentialSampler(3, 5)), len(g.SequentialSampler(3, 5))),
    "sequential by name": lambda g: list(g.SequentialSampler(length=2, start=-1)),
    "filter": calls_of_a_filter,
    "filter of pairs": lambda g: list(g.FilterSampler(lambda pair: pair[1], g.ArrayDataset([1, 2, 3], [0, 1, 0]))),
    "interval": lambda g: len(interval_sampler(g)(7, 3)),
    "interval that is too large": lambda g: isinstance(outcome(interval_sampler(g), 3, 4), str),
    "batches of texts": lambda g: list(g.BatchSampler("abc", batch_size=2, last_batch="keep")),
    "copies": copies,
}


@pytest.mark.parametrize("kind", CALLS)
def test_the_samplers_of_both_agree(kind):
    assert CALLS[kind](OURS) == CALLS[kind](GLUON)


def test_random_gives_each_index_once_in_a_new_order_each_pass_and_follows_numpys_seed(gdata):
    orders = []
    for seed in (3, 3, 4):
        np.random.seed(seed)
        sampler = gdata.RandomSampler(50)
        orders.append([list(sampler), list(sampler)])
        assert len(sampler) == 50
        assert all(isinstance(i, (int, np.integer)) for i in orders[-1][0])
        assert [sorted(order) for order in orders[-1]] == [list(range(50))] * 2
    assert orders[0] == orders[1] != orders[2]
    assert orders[0][0] != orders[0][1]
    assert list(gdata.RandomSampler(0)) == []


def test_a_sampler_of_ones_own(gdata, way):
    class Backwards(gdata.Sampler):
        def __init__(self, length):
            self._length = length

        def __iter__(self):
            return iter(range(self._length - 1, -1, -1))

        def __len__(self):
            return self._length

    assert isinstance(Backwards(3), mx.gluon.data.Sampler)
    assert epoch(gdata.DataLoader(range(5), 2, sampler=Backwards(5), **WAYS[way])) == [[4, 3], [2, 1], [0]]
    batches = gdata.BatchSampler(Backwards(5), 2, "rollover")
    assert epoch(gdata.DataLoader(range(5), batch_sampler=batches, **WAYS[way])) == [[4, 3], [2, 1]]
    assert [list(gdata.SimpleDataset("abcde").sample(Backwards(3)))] == [["c", "b", "a"]]


def test_a_subclass_of_a_sampler_of_the_library(gdata):
    class Even(gdata.SequentialSampler):
        def __iter__(self):
            return (i for i in super().__iter__() if i % 2 == 0)

    class Doubled(gdata.BatchSampler):
        def __iter__(self):
            for batch in super().__iter__():
                yield batch + batch

    assert list(Even(5)) == [0, 2, 4]
    loader = gdata.DataLoader(range(5), batch_sampler=Doubled(Even(5), 2))
    assert [epoch(loader) for _ in range(2)] == [[[0, 2, 0, 2], [4, 4]]] * 2


def test_each_side_takes_the_samplers_of_the_other(gdata):
    for other in (GLUON, OURS):
        sampler = other.SequentialSampler(3, 2)
        assert epoch(gdata.DataLoader(range(9), 2, sampler=sampler)) == [[2, 3], [4]]
        assert list(gdata.BatchSampler(sampler, 2)) == [[2, 3], [4]]
        assert list(gdata.SimpleDataset("abcdef").sample(sampler)) == ["c", "d", "e"]
        batches = other.BatchSampler(gdata.SequentialSampler(3, 2), 2, "rollover")
        loader = gdata.DataLoader(range(9), batch_sampler=batches)
        assert [epoch(loader) for _ in range(2)] == [[[2, 3]], [[4, 2], [3, 4]]]


@pytest.mark.filterwarnings("ignore:last_batch='discard' drops all:RuntimeWarning")
@settings(max_examples=100)
@given(st.integers(0, 25), st.integers(1, 9), st.sampled_from(["keep", "discard", "rollover"]))
def test_batches_agree_for_all_numbers(length, size, last_batch):
    theirs = GLUON.BatchSampler(GLUON.SequentialSampler(length), size, last_batch)
    ours = OURS.BatchSampler(OURS.SequentialSampler(length), size, last_batch)
    for _ in range(4):
        assert len(theirs) == len(ours)
        assert list(theirs) == list(ours)
    loaders = [side.DataLoader(range(length), size, last_batch=last_batch) for side in (GLUON, OURS)]
    for _ in range(4):
        assert len(loaders[0]) == len(loaders[1])
        assert epoch(loaders[0]) == epoch(loaders[1])


@settings(max_examples=60)
@given(st.integers(1, 25), st.integers(1, 25), st.booleans())
def test_intervals_agree_for_all_numbers(length, interval, rollover):
    interval = min(length, interval)
    theirs, ours = (interval_sampler(side)(length, interval=interval, rollover=rollover) for side in (GLUON, OURS))
    assert list(theirs) == list(ours)


def test_the_program_sets_the_epoch_of_its_own_sampler(gdata):
    """`gluonloader.DataLoader` counts epochs itself."""

    class Epochal:
        epoch = 0

        def set_epoch(self, number):
            self.epoch = number

        def __len__(self):
            return 4

        def __iter__(self):
            return iter(np.roll(range(4), self.epoch).tolist())

    sampler = Epochal()
    loader = gdata.DataLoader(np.arange(4), 4, sampler=sampler)
    assert [epoch(loader) for _ in range(3)] == [[[0, 1, 2, 3]]] * 3
    sampler.set_epoch(1)
    assert [epoch(loader) for _ in range(2)] == [[[3, 0, 1, 2]]] * 2
