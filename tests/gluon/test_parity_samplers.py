"""Samplers, one by one and over all small numbers; and that each side takes the other's."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .differences import differs
from .sides import GLUON, OURS, WAYS, epoch, mx


def interval_sampler(gdata):
    """Gluon 1.9 has it under another name."""
    return getattr(gdata, "IntervalSampler", mx.gluon.contrib.data.IntervalSampler)


def test_the_base_class_defines_nothing(gdata):
    for use in (len, iter):
        with pytest.raises(NotImplementedError):
            use(gdata.Sampler())


def test_sequential(gdata):
    assert list(gdata.SequentialSampler(4)) == [0, 1, 2, 3]
    assert list(gdata.SequentialSampler(3, 5)) == list(gdata.SequentialSampler(length=3, start=5)) == [5, 6, 7]
    assert list(gdata.SequentialSampler(2, -1)) == [-1, 0]
    assert (len(gdata.SequentialSampler(3, 5)), len(gdata.SequentialSampler(0))) == (3, 0)


def test_random_gives_each_index_once_in_a_new_order_each_pass(gdata):
    sampler = gdata.RandomSampler(50)
    first, second = list(sampler), list(sampler)
    assert len(sampler) == 50
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second
    assert list(gdata.RandomSampler(0)) == []


def test_random_follows_numpys_seed(gdata):
    orders = []
    for seed in (3, 3, 4):
        np.random.seed(seed)
        orders.append(list(gdata.RandomSampler(50)))
    assert orders[0] == orders[1] != orders[2]


def test_random_indices_are_ints(gdata):
    assert all(isinstance(i, (int, np.integer)) for i in gdata.RandomSampler(5))


def test_filter(gdata):
    calls = []
    sampler = gdata.FilterSampler(lambda x: calls.append(x) or x > 10, gdata.SimpleDataset([8, 12, 3, 11]))
    assert calls == [8, 12, 3, 11]
    assert list(sampler) == list(sampler) == [1, 3]
    assert len(sampler) == 2
    pairs = gdata.ArrayDataset([1, 2, 3], [0, 1, 0])
    assert list(gdata.FilterSampler(lambda pair: pair[1], pairs)) == [1]


def test_interval(gdata):
    assert list(interval_sampler(gdata)(7, 3)) == [0, 3, 6, 1, 4, 2, 5]
    assert list(interval_sampler(gdata)(7, interval=3, rollover=False)) == [0, 3, 6]
    assert len(interval_sampler(gdata)(7, 3)) == 7
    with pytest.raises((AssertionError, ValueError)):
        interval_sampler(gdata)(3, 4)


@differs("interval-length")
def test_the_length_of_interval_without_rollover_is_what_it_gives(gdata):
    sampler = interval_sampler(gdata)(10, 3, rollover=False)
    assert len(sampler) == len(list(sampler)) == 4


@pytest.mark.parametrize(
    ("last_batch", "passes", "lengths"),
    [
        ("keep", [[[0, 1, 2], [3, 4]]] * 2, [2, 2, 2]),
        ("discard", [[[0, 1, 2]]] * 2, [1, 1, 1]),
        ("rollover", [[[0, 1, 2]], [[3, 4, 0], [1, 2, 3]]], [1, 2, 2]),
    ],
)
def test_batches(gdata, last_batch, passes, lengths):
    sampler = gdata.BatchSampler(gdata.SequentialSampler(5), 3, last_batch)
    seen = [len(sampler)]
    for batches in passes:
        assert list(sampler) == batches
        seen.append(len(sampler))
    assert seen == lengths


def test_batches_keep_the_last_one_by_default_and_take_any_indices(gdata):
    assert list(gdata.BatchSampler(range(3), 2)) == [[0, 1], [2]]
    assert list(gdata.BatchSampler("abc", batch_size=2, last_batch="keep")) == [["a", "b"], ["c"]]
    assert list(gdata.BatchSampler([], 2)) == []
    assert all(type(batch) is list for batch in gdata.BatchSampler((0, 1), 1))


@differs("rollover-kept")
def test_a_pass_that_is_broken_off_keeps_its_rollover(gdata):
    sampler = gdata.BatchSampler(range(5), 3, "rollover")
    list(sampler)
    for _ in sampler:
        break
    assert list(sampler) == [[3, 4, 0], [1, 2, 3]]


@differs("arguments-checked", raises=pytest.fail.Exception)
def test_wrong_arguments_of_batches_fail_in_the_constructor(gdata):
    for arguments in ((0, "keep"), (2, "drop")):
        with pytest.raises(ValueError):
            gdata.BatchSampler(range(4), *arguments)


def test_samplers_can_be_pickled(gdata):
    for sampler in (gdata.SequentialSampler(5), gdata.BatchSampler(gdata.SequentialSampler(5), 2, "discard")):
        assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)


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


def test_both_sides_agree_on_what_a_loader_keeps(gdata):
    loader = gdata.DataLoader(range(5), 2, sampler=[0, 1, 2, 3, 4], last_batch="discard")
    assert (len(loader), epoch(loader)) == (2, [[0, 1], [2, 3]])


@settings(max_examples=100)
@given(st.integers(0, 25), st.integers(1, 9), st.sampled_from(["keep", "discard", "rollover"]))
def test_batches_agree_for_all_numbers(length, size, last_batch):
    theirs = GLUON.BatchSampler(GLUON.SequentialSampler(length), size, last_batch)
    ours = OURS.BatchSampler(OURS.SequentialSampler(length), size, last_batch)
    for _ in range(4):
        assert len(theirs) == len(ours)
        assert list(theirs) == list(ours)


@settings(max_examples=60)
@given(st.integers(1, 25), st.integers(1, 25), st.booleans())
def test_intervals_agree_for_all_numbers(length, interval, rollover):
    interval = min(length, interval)
    theirs, ours = (interval_sampler(side)(length, interval, rollover) for side in (GLUON, OURS))
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
