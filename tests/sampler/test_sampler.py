"""Samplers: which indices they yield in which order, and how these are cut into batches, compared with a model."""

import random
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_models import batches_of

from gluonloader import (
    BatchSampler,
    DataLoader,
    FilterSampler,
    IntervalSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
)
from gluonloader.buckets import FixedBucketSampler, SortedBucketSampler, SplitSampler
from gluonloader.sampler.base import iterate

LENGTHS = [index % 17 for index in range(50)]

sizes = st.integers(min_value=1, max_value=7)
lengths = st.integers(min_value=0, max_value=25)
last_batches = st.sampled_from(["keep", "discard", "rollover"])


class Relabelled:
    """A sampler whose indices name the pass that drew them, so that carried indices are visible."""

    def __init__(self, length):
        self.length, self.passes = length, 0

    def indices(self, number):
        return [(number, i) for i in range(self.length)]

    def __iter__(self):
        self.passes += 1
        return iter(self.indices(self.passes - 1))

    def __len__(self):
        return self.length


@given(length=lengths, size=sizes, last_batch=last_batches, stops=st.lists(st.integers(0, 30), max_size=5))
def test_a_pass_that_stops_early_does_not_change_the_carried_indices(length, size, last_batch, stops):
    sampler = Relabelled(length)
    batches, carry = BatchSampler(sampler, size, last_batch), []
    for stop in stops:
        number = sampler.passes
        expected, after = batches_of(sampler.indices(number), size, last_batch, carry)
        assert len(batches) == len(expected)
        got = list(islice(iter(batches), stop))
        assert got == expected[:stop]
        if stop > len(expected):  # the pass ended
            carry = after


@given(length=lengths, size=sizes, last_batch=last_batches)
def test_a_loaders_pass_carries_over_only_when_it_is_committed(length, size, last_batch):
    sampler = Relabelled(length)
    batches = BatchSampler(sampler, size, last_batch)
    first, carry = batches_of(sampler.indices(0), size, last_batch, [])
    drawn = iterate(batches)
    assert list(drawn) == first
    assert len(batches) == len(first), "not delivered yet, so the next pass would start afresh"
    drawn.commit()
    second, _ = batches_of(sampler.indices(1), size, last_batch, carry)
    assert len(batches) == len(second)
    assert list(batches) == second


def test_what_was_carried_over_comes_once_if_later_passes_carry_nothing_over():
    batches = BatchSampler(range(5), 3, "rollover")
    assert list(batches) == [[0, 1, 2]]
    batches.last_batch = "keep"
    assert list(batches) == [[3, 4, 0], [1, 2, 3], [4]]
    assert list(batches) == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize("size", [1, 2])
def test_a_new_batch_size_that_is_too_small_for_what_was_carried_over_is_refused(size):
    loader = DataLoader(range(5), 3, last_batch="rollover", batchify_fn=list)
    assert list(loader) == [[0, 1, 2]]
    loader.batch_sampler.batch_size = size
    for _ in range(2):
        with pytest.raises(ValueError, match=f"batch_size={size}: .* carried over 2 indices, so it must be an int > 2"):
            iter(loader)
    loader.batch_sampler.batch_size = 4
    assert list(loader) == [[3, 4, 0, 1]]


@given(size=sizes, lengths=st.lists(lengths, min_size=1, max_size=5))
def test_rollover_loses_and_doubles_nothing_even_if_the_sampler_changes_its_length(size, lengths):
    sampler = Relabelled(0)
    batches = BatchSampler(sampler, size, "rollover")
    drawn, given_out = [], []
    for number, length in enumerate(lengths):
        sampler.length = length
        drawn += sampler.indices(number)
        assert len(batches) == len(given := list(batches))
        given_out += [index for batch in given for index in batch]
    assert given_out == drawn[: len(given_out)]
    assert len(drawn) - len(given_out) < size


def test_a_finished_pass_stays_finished():
    batches = iterate(BatchSampler(range(3), 2, "rollover"))
    assert [list(batches), list(batches), next(batches, "end")] == [[[0, 1]], [], "end"]


def test_two_passes_of_one_batch_sampler_are_independent():
    batches = BatchSampler(range(5), 2, "rollover")
    with pytest.warns(RuntimeWarning, match="the other has lost 1 sample"):
        pairs = list(zip(batches, batches, strict=True))
    assert pairs == [([0, 1], [0, 1]), ([2, 3], [2, 3])]


def test_keys_of_any_type_are_batched():
    assert list(BatchSampler(["a", (1, 2), None], 2)) == [["a", (1, 2)], [None]]


def test_any_other_batch_sampler_is_only_iterated():
    class Doubled(BatchSampler):
        def __iter__(self):
            for batch in super().__iter__():
                yield batch * 2

    assert list(iterate([[1], [2]])) == [[1], [2]]
    assert list(iterate(Doubled(range(2), 1))) == [[0, 0], [1, 1]]


def test_a_numpy_integer_is_a_batch_size():
    assert list(BatchSampler(range(3), np.int64(2))) == [[0, 1], [2]]


@given(length=lengths, start=st.integers(-10, 10))
def test_sequential_sampler_yields_indices_in_order(length, start):
    sampler = SequentialSampler(length, start)
    assert list(sampler) == list(sampler) == [start + i for i in range(length)]
    assert len(sampler) == length


SEEDED = {
    "random": lambda **seed: RandomSampler(50, **seed),
    "bijection": lambda **seed: RandomSampler(50, method="bijection", **seed),
    "fixed buckets": lambda **seed: FixedBucketSampler(LENGTHS, 4, num_buckets=3, shuffle=True, **seed),
    "fixed buckets of pairs": lambda **seed: FixedBucketSampler(
        [(x, 20 - x) for x in LENGTHS], 4, num_buckets=3, ratio=1, shuffle=True, **seed
    ),
    "sorted buckets": lambda **seed: SortedBucketSampler(LENGTHS, 4, mult=3, shuffle=True, **seed),
    "split": lambda **seed: SplitSampler(50, 3, 1, **seed),
    "split, repeated": lambda **seed: SplitSampler(50, 3, 2, even_size=True, repeat=2, **seed),
}
seeded = pytest.mark.parametrize("make", SEEDED.values(), ids=SEEDED)


@seeded
def test_the_order_is_a_function_of_seed_and_epoch_alone(make):
    one, again, other = (make(seed=seed) for seed in (7, np.int64(7), 8))
    epochs = [list(one) for _ in range(4)]
    assert [list(again) for _ in range(4)] == epochs
    assert len(set(map(str, epochs))) == 4, "each epoch has an order of its own"
    assert list(other) != epochs[0]
    for epoch in (2, 0, 3):  # in any order, since no epoch depends on another
        again.set_epoch(np.int64(epoch))
        assert list(again) == epochs[epoch]


@seeded
def test_the_order_is_fixed_when_the_pass_starts(make):
    sampler = make(seed=7)
    begun, after = iter(sampler), iter(sampler)
    sampler.set_epoch(5)
    assert next(after) is not None
    assert list(begun) == list(make(seed=7))


@seeded
def test_without_a_seed_numpys_seed_makes_the_order_repeat(make):
    state = np.random.get_state()
    try:
        orders = []
        for seed in (0, 0, 1):
            np.random.seed(seed)
            orders.append(list(make()))
        assert orders[0] == orders[1] != orders[2]
        assert list(make()) != list(make()), "two samplers draw two seeds"
    finally:
        np.random.set_state(state)


@pytest.mark.parametrize(
    "make",
    [
        *SEEDED.values(),
        lambda seed: FixedBucketSampler(LENGTHS, 2),
        lambda seed: SortedBucketSampler(LENGTHS, 2),
        lambda seed: SplitSampler(5, 2, 0, shuffle=False),
    ],
)
def test_global_generators_do_not_change(make):
    (_, state, place, *_), python = np.random.get_state(), random.getstate()
    list(make(seed=3))
    assert np.random.get_state()[1].tolist() == state.tolist()
    assert np.random.get_state()[2] == place
    assert random.getstate() == python


def test_random_sampler_with_more_indices_than_are_read_at_once():
    assert sorted(RandomSampler(10_000, 3)) == list(range(10_000))


@given(st.lists(st.integers(-5, 5)))
def test_filter_sampler_yields_the_indices_of_matching_samples(values):
    sampler = FilterSampler(lambda x: x > 0, values)
    assert list(sampler) == list(sampler) == [i for i, x in enumerate(values) if x > 0]
    assert len(sampler) == len(list(sampler))


def test_filter_sampler_reads_each_sample_once_and_none_past_the_length():
    class Endless:
        reads = 0

        def __len__(self):
            return 4

        def __getitem__(self, index):
            self.reads += 1
            return index

    data = Endless()
    sampler = FilterSampler(lambda x: x % 2, data)
    assert list(sampler) == list(sampler) == [1, 3]
    assert data.reads == 4


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))), st.booleans())
def test_interval_sampler_yields_every_nth_index(length_and_interval, rollover):
    length, interval = length_and_interval
    sampler = IntervalSampler(length, interval, rollover)
    order = list(sampler)
    assert len(sampler) == len(order)
    assert order[: len(range(0, length, interval))] == list(range(0, length, interval))
    if rollover:
        assert sorted(order) == list(range(length))
        steps = [(i % interval, i) for i in order]
        assert steps == sorted(steps)
    else:
        assert order == list(range(0, length, interval))


def test_repr_shows_how_many_indices_a_sampler_yields():
    assert repr(RandomSampler(10)) == "RandomSampler(10)"
    assert repr(RandomSampler(60_000)) == "RandomSampler(60,000)"
    assert repr(FilterSampler(bool, [0, 1])) == "FilterSampler(1)"
    assert repr(BatchSampler(RandomSampler(10), 4)) == "BatchSampler(RandomSampler(10), batch_size=4)"
    assert repr(BatchSampler([5, 6], 1, "discard")) == "BatchSampler(list(2), batch_size=1, last_batch='discard')"


def test_the_base_class_names_the_missing_method():
    class Unfinished(Sampler):
        pass

    with pytest.raises(NotImplementedError, match="Unfinished must define __iter__"):
        iter(Unfinished())
    with pytest.raises(NotImplementedError, match="Unfinished must define __len__"):
        len(Unfinished())
