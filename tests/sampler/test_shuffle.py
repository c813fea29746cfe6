"""Samplers that shuffle: complete, fair, and the same on every machine. Seeds are fixed; bounds are five sigmas."""

import itertools
import math
import pickle
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from order_positions import position, resumed

from gluonloader import (
    BatchSampler,
    BlockShuffleSampler,
    DataLoader,
    MixtureSampler,
    RandomSampler,
    Ranks,
    SubsetSampler,
    WeightedSampler,
)
from gluonloader.sampler.base import iterate
from gluonloader.sampler.bijection import Bijection, hashes
from gluonloader.sampler.weighted import WeightTable

pytestmark = pytest.mark.numpy_only

SIGMAS = 5


def whole(length, key):
    return Bijection(length, key)[0:length]


def excess(counts, expected=None):
    """Chi-square of counts that should be even, or as expected, in standard deviations from its mean."""
    counts = np.asarray(counts, float)
    expected = np.full(counts.shape, counts.mean()) if expected is None else np.asarray(expected, float)
    freedom = counts.size - 1
    return (((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)


def correlation(one, other):
    """The correlation, in standard deviations from zero."""
    return np.corrcoef(one, other)[0, 1] * math.sqrt(len(one))


# -- The bijection ----------------------------------------------------------------------------------------------------


def test_every_small_length_is_mapped_one_to_one():
    for length in range(301):
        for key in (0, 1, 2**64 - 1):
            assert sorted(whole(length, key).tolist()) == list(range(length))


@settings(max_examples=40)
@given(length=st.integers(1, 200_000), key=st.integers(0, 2**64 - 1))
def test_any_length_is_mapped_one_to_one(length, key):
    assert (np.bincount(whole(length, key), minlength=length) == 1).all()


@settings(max_examples=60)
@given(length=st.integers(1, 2**62), key=st.integers(0, 2**64 - 1), data=st.data())
def test_any_slice_of_an_order_of_any_length_is_a_part_of_it(length, key, data):
    start = data.draw(st.integers(0, length - 1))
    order, stop = Bijection(length, key), min(start + 50, length)
    block = order[start:stop]
    assert block.dtype == np.int64
    assert block.min() >= 0
    assert block.max() < length
    assert len(set(block.tolist())) == stop - start
    assert [order[at : at + 1].tolist()[0] for at in range(start, stop, 7)] == block[::7].tolist()
    assert order[start:stop:7].tolist() == block[::7].tolist()


@pytest.mark.parametrize(
    ("length", "key", "first", "last"),
    [
        (10, 0, [9, 4, 3], [1, 5, 7]),
        (64, 1, [44, 22, 6], [45, 54, 32]),
        (65, 1, [17, 43, 1], [3, 26, 20]),
        (300, 2, [192, 100, 140], [72, 226, 235]),
        (10**6, 3, [736883, 942740, 562217], [201650, 698541, 665462]),
        (10**9, 4, [927450827, 424576610, 293660445], [294279610, 559526536, 801006171]),
        (2**40 + 1, 5, [882975503107, 106315614445, 198264125207], [1051638693027, 670626217341, 295519265368]),
        (2**62, 6, [1492653167797081073, 2215898600906086984, 2402123462505872509],
         [3827491857453462918, 3902155577380960502, 929745753475284421]),
    ],
)  # fmt: skip
def test_orders_are_the_same_on_every_machine(length, key, first, last):
    order = Bijection(length, key)
    assert order[0:3].tolist() == first
    assert order[length - 3 : length].tolist() == last
    assert hashes(7, np.arange(2)).tolist() == [1309590317320109573, 8360190925849210119]


def test_all_orders_of_a_few_indices_are_equally_likely():
    for length in (2, 3, 4, 5):
        orders = list(itertools.permutations(range(length)))
        counts = Counter(tuple(whole(length, key).tolist()) for key in range(len(orders) * 50))
        assert abs(excess([counts[order] for order in orders])) < SIGMAS


@pytest.mark.slow
@pytest.mark.parametrize("length", [65, 73, 100])
def test_over_many_seeds_each_offset_has_each_index_and_each_pair_equally_often(length):
    rows = np.array([whole(length, key) for key in range(8000)])
    apart = ~np.eye(length, dtype=bool)
    for one, other in ((0, 1), (0, length - 1), (length // 2, length // 2 + math.isqrt(length)), (7, 3)):
        assert abs(excess(np.bincount(rows[:, one], minlength=length))) < SIGMAS
        pairs = np.bincount(rows[:, one] * length + rows[:, other], minlength=length**2).reshape(length, length)
        assert abs(excess(pairs[apart])) < SIGMAS


@pytest.mark.parametrize("key", [0, 1, 2**63])
@pytest.mark.parametrize("length", [10_007, 2**17, 300_000])
def test_within_one_order_indices_do_not_depend_on_their_offset(length, key):
    order, places = whole(length, key), np.arange(length)
    far = (order - places) % length
    assert abs(excess(np.bincount(far * 100 // length, minlength=100))) < SIGMAS, "how far indices are moved"
    step = np.diff(order) % length
    assert abs(excess(np.bincount(step * 100 // length, minlength=100))) < SIGMAS, "from one index to the next"
    pairs = order[:-1] * 20 // length * 20 + order[1:] * 20 // length
    assert abs(excess(np.bincount(pairs, minlength=400))) < SIGMAS, "pairs of successive indices"
    blocks = places * 20 // length * 20 + order * 20 // length
    assert abs(excess(np.bincount(blocks, minlength=400))) < SIGMAS, "which part of the range, in which part of it"
    side = math.isqrt(length - 1) + 1
    for lag in (1, 2, 3, 7, side - 1, side, -(-length // side)):
        assert abs(correlation(order[lag:], order[:-lag])) < SIGMAS
    assert (order == places).sum() < 12, "as many stay where they are as by chance, that is one"


def test_orders_of_neighbouring_seeds_lengths_and_epochs_are_independent():
    length = 100_000
    for one, other in [(whole(length, 5), whole(length, 6)), (whole(length, 5), whole(length + 1, 5)[:length])]:
        assert abs(correlation(one, other)) < SIGMAS
        assert (one == other).sum() < 12
    orders = []
    for seed in (1, 2):
        sampler = RandomSampler(length, seed, "bijection")
        orders += [np.array(list(sampler)) for _ in range(2)]
    for one, other in itertools.combinations(orders, 2):
        assert abs(correlation(one, other)) < SIGMAS
        assert (one == other).sum() < 12


def test_indices_far_in_a_huge_order_are_as_random():
    length = 10**15 + 7
    block = Bijection(length, 3)[length - 100_000 : length]
    assert abs(excess(np.bincount(block * 100 // length, minlength=100))) < SIGMAS
    assert abs(correlation(block[1:], block[:-1])) < SIGMAS
    for modulus in (2, 7, 64):
        assert abs(excess(np.bincount(block % modulus, minlength=modulus))) < SIGMAS


# -- RandomSampler ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "method"), [(2**20, "permutation"), (2**20 + 1, "bijection")])
def test_the_default_method_depends_on_the_length(length, method):
    assert RandomSampler(length, 1).identity()["method"] == method
    default, given_ = (BatchSampler(RandomSampler(length, 1, way), 5).begin() for way in (None, method))
    assert next(default) == next(given_)


@pytest.mark.parametrize("method", ["permutation", "bijection"])
@given(length=st.integers(0, 300), seed=st.integers(0, 2**63))
def test_a_random_sampler_yields_each_index_once_as_a_python_int(method, length, seed):
    sampler = RandomSampler(length, seed, method)
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(length)) == list(range(len(sampler)))
    assert all(type(index) is int for index in first)
    sampler.set_epoch(0)
    assert list(sampler) == first


def test_a_billion_samples_need_no_table():
    tracemalloc.start()
    try:
        sampler = RandomSampler(10**9, seed=0)
        state = position(sampler)
        first = next(iterate(BatchSampler(sampler, 1000)))
        late = resumed(RandomSampler(10**9, seed=0), state, 900_000_000).cut(1000).tolist()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5e6
    assert len({*first, *late}) == 2000


# -- SubsetSampler ----------------------------------------------------------------------------------------------------


@given(indices=st.lists(st.integers(-(2**40), 2**40)), seed=st.integers(0, 9))
def test_a_subset_comes_in_the_given_order_or_shuffled(indices, seed):
    assert list(SubsetSampler(indices)) == indices
    shuffled = SubsetSampler(indices, shuffle=True, seed=seed)
    first, second = list(shuffled), list(shuffled)
    assert sorted(first) == sorted(second) == sorted(indices)
    assert len(shuffled) == len(indices)
    assert len(set(indices)) < 12 or first != second
    assert all(type(index) is int for index in first)


def test_a_subset_of_other_indices_refuses_a_position():
    state = position(SubsetSampler([1, 2, 3]))
    with pytest.raises(ValueError, match=r"state: sampler\.indices="):
        resumed(SubsetSampler([1, 2, 4]), state, 0)


# -- BlockShuffleSampler ----------------------------------------------------------------------------------------------


@given(blocks=st.lists(st.integers(0, 9), max_size=20), buffer=st.integers(1, 5), seed=st.integers(0, 9))
def test_each_block_is_in_use_once_and_at_most_buffer_blocks_at_a_time(blocks, buffer, seed):
    sampler = BlockShuffleSampler(blocks, buffer, seed)
    block_of = np.repeat(np.arange(len(blocks)), blocks)
    for _ in range(2):
        order = list(sampler)
        assert len(order) == len(sampler)
        assert sorted(order) == list(range(sum(blocks)))
        at, needed = 0, block_of[order].tolist()
        seen = set()
        while at < len(order):
            # The next samples, as many as the blocks of one group have, are exactly those of these blocks.
            group, size = set(), 0
            while at + size < len(order) and (size == 0 or size < sum(blocks[b] for b in group)):
                group.add(needed[at + size])
                size += 1
            assert len(group) <= buffer
            assert size == sum(blocks[b] for b in group)
            assert not group & seen
            seen |= group
            at += size


def test_blocks_and_their_indices_have_another_order_each_epoch():
    sampler = BlockShuffleSampler.of_size(1000, 100, buffer=3, seed=0)
    epochs = [list(sampler) for _ in range(2)]
    assert epochs[0] != epochs[1]
    for order in epochs:
        blocks = [index // 100 for index in order]
        assert len(set(blocks[:300])) == 3
        assert blocks[:100] != sorted(blocks[:100]), "a buffer is mixed"
        changes = sum(one != other for one, other in itertools.pairwise(blocks[:300]))
        assert changes > 150


def test_blocks_of_one_size():
    sampler = BlockShuffleSampler.of_size(10, 4, buffer=1, seed=0)
    assert sampler.identity() == BlockShuffleSampler([4, 4, 2], 1, 0).identity()
    assert list(sampler) == list(BlockShuffleSampler([4, 4, 2], 1, 0))
    assert len(BlockShuffleSampler.of_size(8, 4)) == 8
    assert list(BlockShuffleSampler.of_size(0, 4)) == list(BlockShuffleSampler([])) == []


def loader_of_rank(rank, ranks=4, **options):
    sampler = BlockShuffleSampler([40] * 10, seed=1, nodes=2, **options)
    return DataLoader(range(400), 4, sampler=sampler, ranks=Ranks(rank, ranks))


def test_each_node_reads_a_fixed_share_of_the_blocks():
    shares = []
    for epoch in range(2):
        loaders = [loader_of_rank(rank, ranks_per_node=2) for rank in range(4)]
        orders = [[key for batch in range(25) for key in loader.indices(epoch, batch)] for loader in loaders]
        assert sorted(itertools.chain.from_iterable(orders)) == [*range(400)]
        shares.append([{key // 40 for key in order} for order in orders])
    one, same, other, last = shares[0]
    assert shares[0] == shares[1]
    assert (one, other) == (same, last)
    assert not one & other


def test_ranks_for_which_the_blocks_were_not_divided_are_a_warning():
    with pytest.warns(RuntimeWarning, match="nodes=2 and ranks_per_node=1 are for 2 ranks, but 4 divide the order"):
        loader_of_rank(0)
    DataLoader(range(40), 4, sampler=BlockShuffleSampler([4] * 10, seed=1, nodes=2))  # a single process may look at it


# -- WeightedSampler --------------------------------------------------------------------------------------------------

WEIGHTS = [0, 1, 0, 2, 3.5, 0.5, 0]


@pytest.mark.slow
def test_indices_come_in_proportion_to_their_weights():
    counts = np.bincount(list(WeightedSampler(WEIGHTS, 70_000, seed=0)), minlength=len(WEIGHTS))
    assert counts[[0, 2, 6]].tolist() == [0, 0, 0], "never one without weight"
    expected = np.array(WEIGHTS) * 10_000
    assert abs(excess(counts[expected > 0], expected[expected > 0])) < SIGMAS


@pytest.mark.slow
def test_successive_draws_are_independent():
    draws = np.array(list(WeightedSampler(np.ones(20), 100_000, seed=1)))
    assert abs(excess(np.bincount(draws[:-1] * 20 + draws[1:], minlength=400))) < SIGMAS
    assert abs(correlation(draws[1:], draws[:-1])) < SIGMAS
    sampler = WeightedSampler(np.ones(20), 100_000, seed=1)
    assert list(sampler) == draws.tolist()
    assert abs(correlation(list(sampler), draws)) < SIGMAS, "the next epoch"


@pytest.mark.slow
def test_without_replacement_the_first_are_drawn_by_weight_and_the_next_from_the_rest():
    sampler = WeightedSampler([1, 2, 3], 2, replacement=False, seed=0)
    counts = Counter(tuple(sampler) for _ in range(20_000))
    pairs = list(itertools.permutations(range(3), 2))
    expected = [20_000 * (a + 1) / 6 * (b + 1) / (6 - (a + 1)) for a, b in pairs]
    assert abs(excess([counts[pair] for pair in pairs], expected)) < SIGMAS


@given(weights=st.lists(st.sampled_from([0, 1e-300, 1, 1e200]), min_size=1), seed=st.integers(0, 9), data=st.data())
def test_without_replacement_no_index_comes_twice(weights, seed, data):
    possible = sum(weight > 0 for weight in weights)
    if not possible:
        return
    count = data.draw(st.integers(0, possible))
    order = list(WeightedSampler(weights, count, replacement=False, seed=seed))
    assert len(set(order)) == len(order) == count
    assert all(weights[index] for index in order)


def test_new_weights_apply_to_the_next_index():
    sampler = WeightedSampler([1, 1, 0, 0], 1000, seed=0)
    keys = iter(sampler)
    assert set(keys.cut(100)) == {0, 1}
    assert next(keys) in (0, 1)
    sampler.weights = [0, 0, 1, 0]
    assert [next(keys), *keys.cut(9)] == [2] * 10
    sampler.weights = np.array([0, 0, 0, 5])
    assert next(keys) == 3
    assert set(keys.cut(2000)) == {3}


def test_a_draw_depends_only_on_its_number_and_the_current_weights():
    plain, changed = (WeightedSampler([1, 2, 3, 4], 5000, seed=3) for _ in range(2))
    expected, keys = list(plain), iter(changed)
    assert list(keys.cut(1000)) == expected[:1000]
    changed.weights = [4, 3, 2, 1]
    other = list(keys.cut(1000))
    assert other != expected[1000:2000]
    changed.weights = [1, 2, 3, 4]
    assert list(keys.cut(3000)) == expected[2000:]
    keys.seek(1000)
    changed.weights = [4, 3, 2, 1]
    assert list(keys.cut(1000)) == other


def test_without_replacement_new_weights_apply_to_the_next_pass():
    sampler = WeightedSampler([1, 1, 0, 0], 2, replacement=False, seed=0)
    keys = iter(sampler)
    sampler.weights = [0, 0, 1, 1]
    assert sorted(keys) == [0, 1]
    assert sorted(sampler) == [2, 3]


def test_weights_are_read_only_and_wrong_weights_are_refused():
    given_ = np.array([1.0, 2.0])
    sampler = WeightedSampler(given_, seed=0)
    given_[0] = 100
    assert sampler.weights.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        sampler.weights[0] = 3
    for wrong, text in [
        ([1, 2, 3], "the number of weights must stay 2, not 3"),
        ([0, 0], "their sum is 0"),
        ([1, -1], "-1"),
    ]:
        with pytest.raises(ValueError, match=f"weights: .*{text}"):
            sampler.weights = wrong
    assert sampler.weights.tolist() == [1, 2]
    assert len(sampler) == 2


def test_the_largest_random_number_chooses_the_last_possible_index():
    picked = WeightTable(np.array([0.1] * 10 + [0])).pick(np.array([2.0**-53, 1 - 2.0**-53, 1.0]))
    assert picked.tolist() == [0, 9, 9]


def test_a_position_saved_with_other_weights_is_refused():
    source = WeightedSampler([1, 2, 3], 100, seed=0)
    state = position(source)
    fresh = WeightedSampler([3, 2, 1], 100, seed=0)
    text = r"state: sampler\.weights=.*: it was saved with other weights than this WeightedSampler has; set the saved"
    with pytest.raises(ValueError, match=text):
        resumed(fresh, state, 5)
    fresh.weights = [1, 2, 3]
    assert list(resumed(fresh, state, 5)) == list(source)[5:]


def test_samplers_can_be_pickled():
    for sampler in (
        WeightedSampler([1, 2, 3], 100, seed=0), RandomSampler(2**21, 1), BlockShuffleSampler([3, 4], 1, 0),
        SubsetSampler([4, 7, 1], True, 0), MixtureSampler([50, 20], [1, 2], num_samples=60, seed=1),
    ):  # fmt: skip
        iter(sampler)
        copy = pickle.loads(pickle.dumps(sampler))
        assert position(copy, copy.epoch) == position(sampler, sampler.epoch)
        assert list(iter(copy).cut(50)) == list(iter(sampler).cut(50))
