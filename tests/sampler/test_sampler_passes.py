"""Passes: after any skip, seek or resume, a pass continues with the same keys as one that ran from its start."""

import json
from functools import partial
from itertools import islice

import numpy as np
import pytest
from golden.samplers import SAMPLERS
from hypothesis import given
from hypothesis import strategies as st
from order_positions import position, resumed
from rank_models import Foreign
from samples import Keys

from gluonloader import (
    BatchSampler,
    BlockShuffleSampler,
    DataLoader,
    IntervalSampler,
    RandomSampler,
    SequentialSampler,
    ShardedSampler,
    SubsetSampler,
    WeightedSampler,
)
from gluonloader.buckets import FixedBucketSampler, SortedBucketSampler, SplitSampler
from gluonloader.indices import as_list
from gluonloader.sampler.base import iterate, order_of
from gluonloader.sampler.passes import Pass, cut, skip
from gluonloader.state import add_checksum

N = 23
LENGTHS = [i * 5 % 7 for i in range(N)]

MORE = {
    "part of a sequence": lambda: SequentialSampler(N, 3),
    "interval once": lambda: IntervalSampler(N, 5, rollover=False),
    "split into equal parts": lambda: SplitSampler(N, 3, 1, even_size=True, repeat=3, seed=1),
    "fixed buckets": lambda: FixedBucketSampler(LENGTHS, 2, 3, shuffle=True, seed=1),
    "fixed buckets in order": lambda: FixedBucketSampler(LENGTHS, 2, 3),
    "sorted buckets": lambda: SortedBucketSampler(LENGTHS, 2, 3, shuffle=True, seed=1),
    "sorted buckets in order": lambda: SortedBucketSampler(LENGTHS, 2, 3),
    "weighted once": lambda: WeightedSampler(range(N), 15, replacement=False, seed=1),
    "shard": lambda: ShardedSampler(RandomSampler(2 * N, seed=1), 2, 1),
    "shard of blocks": lambda: ShardedSampler(BlockShuffleSampler([20, 9, 30], seed=1), 2, 1, "keep"),
    "shard of weighted": lambda: ShardedSampler(WeightedSampler(range(1, N), seed=1), 2, 1, "drop"),
    "shard of a list": lambda: ShardedSampler(list("abcdefg"), 2, 1),
}
EACH = {name: partial(make, N, 1) for name, make in SAMPLERS.items()} | MORE

every_sampler = pytest.mark.parametrize("make", EACH.values(), ids=EACH)
small = st.integers(0, 30)


class Plain:
    """A sampler with `__iter__` and `__len__` only."""

    def __init__(self, length):
        self.length, self.given = length, 0

    def __iter__(self):
        for index in range(self.length):
            self.given += 1
            yield index

    def __len__(self):
        return self.length


def through_json(state):
    return json.loads(json.dumps(state))


# -- Passes -----------------------------------------------------------------------------------------------------------


def take(keys, count):
    return as_list(cut(keys, count))


moves = st.lists(st.tuples(st.sampled_from(["next", "take", "skip", "seek"]), small), max_size=12)


@given(length=small, ahead=st.sampled_from([0, 1, 3, 100]), moves=moves)
def test_a_pass_continues_at_the_offset_that_it_was_moved_to(length, ahead, moves):
    keys, at = Pass(range(length), length, ahead), 0
    for move, count in moves:
        if move == "next":
            assert next(keys, None) == (at if at < length else None)
            at = min(at + 1, length)
        elif move == "take":
            assert take(keys, count) == list(range(length))[at : at + count]
            at = min(at + count, length)
        elif move == "skip":
            keys.skip(count)
            at = min(at + count, length)
        else:
            keys.seek(count)
            at = min(count, length)
    assert list(keys) == list(range(at, length))
    assert next(keys, "end") == "end"


@every_sampler
def test_a_pass_of_each_sampler_skips_and_seeks_without_reading(make):
    whole = list(make())
    assert len(make()) == len(whole) > 0
    for at in range(len(whole) + 1):
        keys = iter(make())
        assert isinstance(keys, Pass)
        skip(keys, at)
        assert take(keys, 4) == whole[at : at + 4]
        keys.seek(at)
        assert list(keys) == whole[at:]
    assert not any(isinstance(key, np.generic) for key in whole)


@pytest.mark.parametrize("part", [slice(0, 9), slice(3, 20, 4), slice(7, 8), slice(5, 5), slice(2, 1000, 9)], ids=str)
@every_sampler
def test_a_slice_of_an_order_equals_that_of_the_whole_list(make, part):
    whole, one = list(make()), order_of(make(), 0)[slice(*part.indices(len(make())))]
    assert list(map(str, one)) == list(map(str, whole[part]))


@every_sampler
def test_to_read_an_order_changes_nothing(make):
    sampler = make()
    orders = [as_list(order_of(sampler, epoch)[0 : len(sampler)]) for epoch in (2, 0, 1)]
    assert [list(sampler) for _ in range(3)] == [orders[1], orders[2], orders[0]]


def test_an_order_is_read_ahead_unless_that_is_switched_off():
    class Order:
        def __init__(self):
            self.read = []

        def __getitem__(self, part):
            self.read.append((part.start, part.stop))
            return range(part.start, part.stop)

    ahead, exact = Order(), Order()
    assert list(Pass(ahead, 10_000)) == list(range(10_000))
    keys = Pass(exact, 10_000, 0)
    take(keys, 3), next(keys), keys.skip(5), take(keys, 2)
    assert ahead.read == [(0, 4096), (4096, 8192), (8192, 10_000)]
    assert exact.read == [(0, 3), (3, 4), (9, 11)]


def test_cut_and_skip_work_on_any_iterator():
    keys = iter("abcdefg")
    skip(keys, 0)
    assert take(keys, 2) == ["a", "b"]
    skip(keys, 3)
    assert [take(keys, 9), take(keys, 9)] == [["f", "g"], []]


# -- Passes over batches ----------------------------------------------------------------------------------------------

inner = st.sampled_from([range, lambda n: list(range(n)), SequentialSampler, lambda n: RandomSampler(n, 2), Plain])
last_batches = st.sampled_from(["keep", "discard", "rollover"])


@given(
    make=inner, length=small, size=st.integers(1, 7), last_batch=last_batches, carried=st.integers(0, 6), data=st.data()
)
def test_skipping_batches_leaves_the_following_batches_unchanged(make, length, size, last_batch, carried, data):
    def begun():
        batches = BatchSampler(make(length), size, last_batch)
        batches.carried = [-1 - i for i in range(carried % size)] if last_batch == "rollover" else []
        return batches, iterate(batches)

    before, keys = begun()
    whole = list(keys)
    keys.commit()
    at = data.draw(st.integers(0, len(whole)))
    first = data.draw(st.integers(0, at))
    after, keys = begun()
    keys.skip(first)
    assert keys.drawn == first
    assert list(islice(keys, 1)) == whole[first : first + 1]
    keys.skip(max(at - first - 1, 0))
    assert list(keys) == whole[max(at, min(first + 1, len(whole))) :]
    assert keys.drawn == len(whole)
    keys.commit()
    assert after.carried == before.carried


@given(length=small, size=st.integers(1, 7), last_batch=last_batches, stops=st.lists(small, max_size=4))
def test_a_pass_over_batches_can_seek_back_any_number_of_times(length, size, last_batch, stops):
    batches = BatchSampler(SequentialSampler(length), size, last_batch)
    list(batches)  # so that something may be carried
    whole = list(batches.begin())
    keys = batches.begin()
    for stop in stops:
        list(islice(keys, stop))
        keys.seek(min(stop, len(whole)) // 2)
        assert keys.drawn == min(stop, len(whole)) // 2
    keys.seek(0)
    assert list(keys) == whole


def test_skipping_reads_no_keys_of_an_order_and_draws_from_other_samplers():
    plain = Plain(100)
    BatchSampler(plain, 10).begin().skip(7)
    assert plain.given == 70
    far = BatchSampler(RandomSampler(2**60, seed=1), 1024).begin()
    far.skip(2**49)
    assert far.drawn == 2**49
    assert len(next(far)) == 1024


def test_a_sampler_that_only_iterates_cannot_go_back():
    keys = BatchSampler(Plain(9), 2).begin()
    with pytest.raises(TypeError, match="a Plain cannot return to an earlier index; add state_dict"):
        keys.seek(0)


# -- Positions --------------------------------------------------------------------------------------------------------


@every_sampler
def test_a_position_is_loaded_into_a_fresh_sampler(make):
    for epoch in range(3):
        source = make()
        for _ in range(epoch):
            list(source)
        state = position(source, epoch)
        of_sources = state.get("orders")  # a mixture names the sampler of each source
        assert len(json.dumps(state)) - len(json.dumps(of_sources)) < 400
        whole, after = list(source), list(source)
        for drawn in (0, 1, len(whole) // 2, len(whole)):
            fresh = make()
            assert list(resumed(fresh, state, drawn)) == whole[drawn:]
            assert list(fresh) == after


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: RandomSampler(N, seed),
        lambda seed: SubsetSampler(range(N), True, seed),
        lambda seed: BlockShuffleSampler([5, 9], 1, seed),
        lambda seed: WeightedSampler(range(N), seed=seed),
        lambda seed: SplitSampler(N, 3, 1, seed=seed),
        lambda seed: FixedBucketSampler(LENGTHS, 2, shuffle=True, seed=seed),
        lambda seed: SortedBucketSampler(LENGTHS, 2, shuffle=True, seed=seed),
    ],
)
def test_a_seed_that_was_given_is_checked_and_one_that_was_drawn_is_replaced(make):
    source = make(7)
    state = position(source)
    drawn, given_, other = make(None), make(7), make(8)
    assert (drawn.adopts, given_.adopts) == (True, False)
    assert list(resumed(drawn, state, 0)) == list(resumed(given_, state, 0)) == list(source)
    assert list(drawn) == list(source), "and so the next epoch"
    before = position(other)
    with pytest.raises(ValueError, match=r"state: sampler\.seed=7: .* has seed=8"):
        resumed(other, state, 0)
    assert position(other) == before


def changes(value):
    """Wrong values for a field: another one of the same type, and some of other types."""
    if isinstance(value, bool):
        return [not value, 1, None]
    if isinstance(value, int):
        return [value + 1, -1, str(value), None, float(value), True]
    if isinstance(value, str):
        return [value + "x", 3, None]
    return [3, "a"] + [None] * (value is not None)


@every_sampler
def test_every_field_of_a_position_is_checked(make):
    state = position(make())

    def check(changed, name, outer):
        target = make()
        before = position(target)
        with pytest.raises(ValueError, match=rf"state: sampler\.({name}\b|{outer}\b.*\b{name}\b)"):
            resumed(target, changed, 0)
        assert position(target) == before

    def walk(part, put, outer=None):
        for name, value in part.items():
            check(put({key: kept for key, kept in part.items() if key != name}), name, outer or name)
            for other in changes(value):
                if not (name == "epoch" and type(other) is int and other >= 1):
                    check(put({**part, name: other}), name, outer or name)
            if isinstance(value, dict):
                walk(value, lambda new, name=name: put({**part, name: new}), outer or name)

    walk(state, lambda new: new)


def loader_of(sampler, size, last_batch="rollover"):
    return DataLoader(range(30), size, sampler=sampler, last_batch=last_batch, batchify_fn=list)


@pytest.mark.parametrize("carried", [[1, 2, 3, 4], [[1]], "ab", None, {}, [{}]])
def test_carried_indices_in_a_state_are_checked(carried):
    state = add_checksum({**loader_of(range(9), 4).state_dict(), "carried": carried})
    with pytest.raises(ValueError, match=r"state: carried=.*list of at most 3 indices"):
        loader_of(range(9), 4).load_state_dict(state)


def test_carried_numpy_scalars_are_saved_as_json():
    keys = [np.int64(3), "a", 2.5, None, np.True_, np.str_("b")]
    loader = DataLoader(Keys(30), 4, sampler=keys, last_batch="rollover", batchify_fn=list)
    list(loader)
    assert through_json(loader.state_dict())["carried"] == [True, "b"]


@pytest.mark.parametrize(
    "make", [lambda: Plain(10), lambda: Foreign(10), lambda: range(10), lambda: list("abcdefghij")]
)
def test_other_samplers_are_drawn_from_again(make):
    source = make()
    if isinstance(source, Foreign):
        source.set_epoch(4)
    assert list(resumed(make(), position(source), 6)) == list(source)[6:]


@pytest.mark.parametrize(
    ("sampler", "other", "text"),
    [
        (range(10), range(11), "length=10: this sampler has length=11"),
        (range(10), list(range(10)), "kind='range'"),
        (Foreign(5), Plain(5), "kind='Foreign'"),
    ],
)
def test_other_samplers_are_checked_as_far_as_they_can_be(sampler, other, text):
    with pytest.raises(ValueError, match=rf"state: sampler\.{text}"):
        resumed(other, position(sampler), 2)


def test_a_subclass_that_overrides_iter_is_iterated():
    class Reversed(SequentialSampler):
        def __iter__(self):
            return reversed(list(super().__iter__()))

    class Backwards:
        def __iter__(self):
            return reversed(list(super().__iter__()))

    class Mixed(Backwards, SequentialSampler):
        pass

    for kind in (Reversed, Mixed):
        assert list(BatchSampler(kind(5), 2)) == [[4, 3], [2, 1], [0]]
        assert list(ShardedSampler(kind(5), 2, 0)) == [4, 2, 0]


def test_a_position_contains_the_weights_that_apply_there():
    shared = ShardedSampler(WeightedSampler([1, 2], seed=0), 2, 0)
    before = position(shared)
    list(shared)
    shared.sampler.weights = [3, 4]
    now = position(shared)
    assert now["sampler"]["weights"] != before["sampler"]["weights"]
    now["sampler"]["weights"] = before["sampler"]["weights"]
    assert now == before
    once = WeightedSampler([1, 2], replacement=False, seed=0)
    before = position(once)
    iter(once)
    once.weights = [3, 4]
    now = position(once)
    assert now.pop("next_weights"), "the new weights, which apply from the next epoch on"
    assert now == before, "this epoch keeps the weights with which it started"


@pytest.mark.parametrize("sampler", [[3, 1, 4, 1, 5], (0, 2, 4, 1, 3), range(5)], ids=["list", "tuple", "range"])
def test_indices_carried_over_from_plain_sequences_are_loaded(sampler):
    loader, other = loader_of(sampler, 2), loader_of(sampler, 2)
    list(loader)
    other.load_state_dict(through_json(loader.state_dict()))
    assert list(other) == list(loader) == [[sampler[4], sampler[0]], list(sampler[1:3]), list(sampler[3:5])]


def test_indices_may_be_of_any_size():
    large = range(2**70, 2**70 + 5)
    assert list(BatchSampler(large, 2)) == [[2**70, 2**70 + 1], [2**70 + 2, 2**70 + 3], [2**70 + 4]]
