"""Bucket and split samplers: each sample once, and GluonNLP's figures; sampler/test_sampler.py tests their seeds."""

import ast
import re
from itertools import chain

import numpy as np
import pytest
from conftest import FORK, SERIAL
from hypothesis import given
from hypothesis import strategies as st

from gluonloader import DataLoader, Pad, RandomSampler
from gluonloader.buckets import (
    ConstWidthBucket,
    ExpWidthBucket,
    FixedBucketSampler,
    LinearWidthBucket,
    SortedBucketSampler,
    SortedSampler,
    SplitSampler,
)

LENGTHS = [1, 5, 3, 9, 10, 2, 2, 7, 8, 4, 6, 10]
PAIRS = [(1, 2), (5, 3), (3, 9), (10, 1), (2, 2), (7, 7)]

sizes = st.integers(1, 9)
lengths = st.one_of(
    st.lists(st.integers(0, 40), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=40),
)
schemes = st.sampled_from([None, ConstWidthBucket(), LinearWidthBucket(), ExpWidthBucket(), ExpWidthBucket(2)])


def axes(length):
    return length if isinstance(length, tuple) else (length,)


def stat(sampler, name):
    """The value of one line of `stats()`."""
    return ast.literal_eval(re.search(rf"{name}=(\[.*\])", sampler.stats())[1])


def flat(batches):
    return list(chain.from_iterable(batches))


# -- Bucket schemes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "most", "least", "number", "keys"),
    [
        (ConstWidthBucket(), 10, 1, 3, [4, 7, 10]),
        (ConstWidthBucket(), 100, 1, 7, [16, 30, 44, 58, 72, 86, 100]),
        (ConstWidthBucket(), 99, 3, 10, [18, 27, 36, 45, 54, 63, 72, 81, 90, 99]),
        (ConstWidthBucket(), 5, 1, 7, [1, 1, 1, 2, 3, 4, 5]),
        (ConstWidthBucket(), (10, 20), (1, 2), 3, [(4, 8), (7, 14), (10, 20)]),
        (LinearWidthBucket(), 10, 1, 3, [3, 6, 10]),
        (LinearWidthBucket(), 100, 1, 10, [4, 8, 14, 21, 30, 41, 53, 67, 83, 100]),
        (LinearWidthBucket(), 251, 37, 5, [52, 81, 124, 180, 251]),
        (LinearWidthBucket(), (10, 20), (1, 2), 4, [(2, 4), (4, 8), (7, 13), (10, 20)]),
        (ExpWidthBucket(), 10, 1, 3, [4, 7, 10]),
        (ExpWidthBucket(), 100, 1, 10, [7, 14, 22, 30, 39, 49, 60, 72, 85, 100]),
        (ExpWidthBucket(2), 100, 1, 10, [1, 1, 2, 2, 4, 7, 13, 26, 50, 100]),
        (ExpWidthBucket(0.5), 50, 10, 4, [31, 42, 47, 50]),
        (ExpWidthBucket(), (5, 100), (5, 1), 4, [(5, 22), (5, 46), (5, 72), (5, 100)]),
    ],
)
def test_bucket_keys_equal_gluonnlps(scheme, most, least, number, keys):
    assert scheme(most, least, number) == keys


@given(least=st.integers(0, 60), range_=st.integers(0, 300), number=st.integers(1, 20), step=st.floats(0.3, 3))
def test_keys_stay_in_the_range_and_reach_its_end(least, range_, number, step):
    for scheme in (ConstWidthBucket(), LinearWidthBucket(), ExpWidthBucket(step)):
        keys = scheme(least + range_, least, number)
        assert len(keys) == number
        assert all(type(key) is int and least <= key <= least + range_ for key in keys)
        assert keys[-1] == least + range_
        if range_ >= number:
            assert keys == sorted(keys)


def test_a_factor_of_one_makes_buckets_of_equal_width():
    assert ExpWidthBucket(1)(100, 0, 5) == [20, 40, 60, 80, 100]


# -- FixedBucketSampler -----------------------------------------------------------------------------------------------


@given(lengths=lengths, size=sizes, number=st.integers(1, 12), scheme=schemes, ratio=st.sampled_from([0, 0.5, 2]),
       shuffle=st.booleans(), average=st.booleans())  # fmt: skip
def test_each_sample_comes_once_in_the_smallest_bucket_that_holds_it(
    lengths, size, number, scheme, ratio, shuffle, average
):
    sampler = FixedBucketSampler(lengths, size, number, None, 0 if average else ratio, shuffle, average, scheme)
    keys, limits = stat(sampler, "key"), stat(sampler, "batch_size")

    def bucket(length):
        fits = [key for key in keys if all(a <= b for a, b in zip(axes(length), axes(key), strict=True))]
        return keys.index(min(fits, key=lambda key: (sum(axes(key)), key)))

    assert stat(sampler, "cnt") == np.bincount(list(map(bucket, lengths))).tolist(), "and none is empty"
    for _ in range(2):
        batches = list(sampler)
        assert len(batches) == len(sampler)
        assert sorted(flat(batches)) == list(range(len(lengths)))
        assert all(type(batch) is list and set(map(type, batch)) == {int} for batch in batches)
        for batch in batches:
            (number,) = {bucket(lengths[i]) for i in batch}
            assert 1 <= len(batch) <= limits[number]


@given(lengths=lengths, size=sizes)
def test_without_shuffling_the_longest_bucket_comes_first_with_samples_in_order(lengths, size):
    sampler = FixedBucketSampler(lengths, size, 4)
    batches = list(sampler)
    assert list(sampler) == batches
    assert stat(sampler, "key") == sorted(stat(sampler, "key"))
    order, end, longest = flat(batches), 0, []
    for count in reversed(stat(sampler, "cnt")):
        bucket, end = order[end : end + count], end + count
        assert bucket == sorted(bucket)
        longest.append(max(lengths[i] for i in bucket))
    assert isinstance(lengths[0], tuple) or longest == sorted(set(longest), reverse=True)


@pytest.mark.parametrize(
    ("lengths", "size", "arguments", "key", "cnt", "batch_size", "batches"),
    [
        (LENGTHS, 3, {"num_buckets": 3}, [4, 7, 10], [5, 3, 4], [3, 3, 3],
         [[3, 4, 8], [11], [1, 7, 10], [0, 2, 5], [6, 9]]),
        (LENGTHS, 3, {"num_buckets": 3, "ratio": 1}, [4, 7, 10], [5, 3, 4], [7, 4, 3],
         [[3, 4, 8], [11], [1, 7, 10], [0, 2, 5, 6, 9]]),
        (LENGTHS, 12, {"num_buckets": 3, "use_average_length": True}, [4, 7, 10], [5, 3, 4], [3, 1, 1],
         [[3], [4], [8], [11], [1], [7], [10], [0, 2, 5], [6, 9]]),
        (LENGTHS, 2, {"bucket_keys": [12, 4, 2, 4]}, [2, 4, 12], [3, 2, 7], [2, 2, 2],
         [[1, 3], [4, 7], [8, 10], [11], [2, 9], [0, 5], [6]]),
        (LENGTHS, 4, {"bucket_keys": [4, 12, 100], "ratio": 0.5}, [4, 12], [5, 7], [6, 4],
         [[1, 3, 4, 7], [8, 10, 11], [0, 2, 5, 6, 9]]),
        (PAIRS, 2, {"num_buckets": 3, "ratio": 0.7}, [(4, 3), (7, 6), (10, 9)], [2, 1, 3], [3, 2, 2],
         [[2, 3], [5], [1], [0, 4]]),
        (PAIRS, 12, {"num_buckets": 3, "use_average_length": True}, [(4, 3), (7, 6), (10, 9)], [2, 1, 3], [5, 2, 1],
         [[2], [3], [5], [1], [0, 4]]),
        (PAIRS, 2, {"bucket_keys": [(5, 9), (10, 3), (10, 10)]}, [(5, 9), (10, 3), (10, 10)], [1, 4, 1], [2, 2, 2],
         [[5], [0, 1], [3, 4], [2]]),
        ([2, 1, 2], 2, {}, [1, 2], [1, 2], [2, 2], [[0, 2], [1]]),
    ],
)  # fmt: skip
def test_fixed_buckets_equal_gluonnlps(lengths, size, arguments, key, cnt, batch_size, batches):
    sampler = FixedBucketSampler(lengths, size, **arguments)
    assert sampler.stats() == (
        f"FixedBucketSampler:\n  sample_num={len(lengths)}, batch_num={len(batches)}\n"
        f"  key={key}\n  cnt={cnt}\n  batch_size={batch_size}"
    )
    assert list(sampler) == batches


@pytest.mark.parametrize("lengths", [LENGTHS, PAIRS])
def test_ratio_is_ignored_if_the_average_length_sets_the_batch_size(lengths):
    wanted = FixedBucketSampler(lengths, 12, 3, use_average_length=True)
    sampler = FixedBucketSampler(lengths, 12, 3, ratio=0.7, use_average_length=True)
    assert list(sampler) == list(wanted)
    assert sampler.stats() == wanted.stats()


@pytest.mark.parametrize("scheme", [ConstWidthBucket(), LinearWidthBucket(), ExpWidthBucket()])
def test_a_scheme_returns_plain_ints_for_ints_of_any_kind(scheme):
    wanted = scheme(40, 2, 5)
    for most, least in ((np.int32(40), np.uint8(2)), (np.array(40), np.array(2))):
        assert scheme(most, least, 5) == wanted
        assert {type(key) for key in scheme(most, least, 5)} == {int}
    for most, least in (([40, 9], [2, 1]), (np.int32([40, 9]), np.int64([2, 1]))):
        keys = scheme(most, least, 5)
        assert keys == scheme((40, 9), (2, 1), 5)
        assert {(type(key), *map(type, key)) for key in keys} == {(tuple, int, int)}
    with pytest.raises(TypeError):
        scheme(4.5, 1, 2)


@pytest.mark.parametrize(
    ("plain", "lengths"),
    [
        *[(LENGTHS, same) for same in (tuple(LENGTHS), np.array(LENGTHS), np.uint8(LENGTHS), list(np.int32(LENGTHS)))],
        *[(PAIRS, same) for same in (list(map(list, PAIRS)), np.array(PAIRS))],
    ],
)
def test_lengths_are_ints_of_any_kind_in_any_sequence(plain, lengths):
    sampler, expected = FixedBucketSampler(lengths, 3, num_buckets=3), FixedBucketSampler(plain, 3, num_buckets=3)
    assert list(sampler) == list(expected)
    assert sampler.stats() == expected.stats()


def test_shuffling_mixes_samples_within_buckets_and_batches_across_buckets():
    data = [1] * 20 + [9] * 20
    batches = list(FixedBucketSampler(data, 2, num_buckets=2, shuffle=True, seed=0))
    long = [data[batch[0]] == 9 for batch in batches]
    assert long != sorted(long, reverse=True)
    assert any(abs(first - second) > 1 for first, second in batches)


def test_a_scheme_may_be_any_function():
    sampler = FixedBucketSampler(LENGTHS, 2, 5, bucket_scheme=lambda most, least, number: [most, least, number])
    assert stat(sampler, "key") == [1, 5, 10]


# -- SortedSampler and SortedBucketSampler ----------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9)), st.booleans())
def test_sorted_sampler_yields_indices_by_their_keys(keys, reverse):
    sampler = SortedSampler(keys, reverse)
    order = sorted(range(len(keys)), key=lambda i: (-keys[i] if reverse else keys[i], i))
    assert list(sampler) == list(sampler) == order
    assert len(sampler) == len(keys)


def test_sort_keys_may_be_anything_that_can_be_compared():
    assert list(SortedSampler([(1, 2), (0, 9), (1, 3)])) == [2, 0, 1]
    assert list(SortedSampler(np.array([0.5, 2.5, 1.5]), reverse=False)) == [0, 2, 1]
    assert list(SortedBucketSampler(["b", "c", "a"], 2)) == [[1, 0], [2]]


def test_sort_keys_of_pandas_are_in_their_order_not_found_by_labels():
    keys = pytest.importorskip("pandas").Series([3, 1, 2], index=[2, 1, 0])
    assert list(SortedSampler(keys)) == [0, 2, 1]
    assert list(SortedBucketSampler(keys, 2)) == [[0, 2], [1]]


KEYS = [5, 3, 8, 1, 9, 2, 7, 4, 6, 0]


@pytest.mark.parametrize(
    ("size", "arguments", "batches"),
    [
        (2, {"mult": 2}, [[2, 0], [1, 3], [4, 6], [7, 5], [8, 9]]),
        (2, {"mult": 2, "reverse": False}, [[3, 1], [0, 2], [5, 7], [6, 4], [9, 8]]),
        (4, {"mult": 1.5}, [[4, 2, 0, 1], [5, 3], [6, 8, 7, 9]]),
        (3, {"mult": 1.9}, [[4, 2, 0], [1, 3], [6, 8, 7], [5, 9]]),
        (3, {}, [[4, 2, 6], [8, 0, 7], [1, 5, 3], [9]]),
        (20, {}, [[4, 2, 6, 8, 0, 7, 1, 5, 3, 9]]),
    ],
)
def test_sorted_buckets_equal_gluonnlps(size, arguments, batches):
    sampler = SortedBucketSampler(KEYS, size, **arguments)
    assert list(sampler) == batches
    assert len(sampler) == len(batches)


@given(keys=st.lists(st.integers(0, 9), max_size=50), size=sizes, mult=st.sampled_from([1, 2, 2.5, 100]),
       reverse=st.booleans(), shuffle=st.booleans())  # fmt: skip
def test_sorted_buckets_hold_each_sample_once(keys, size, mult, reverse, shuffle):
    sampler = SortedBucketSampler(keys, size, mult, reverse, shuffle)
    for _ in range(2):
        batches = list(sampler)
        assert len(batches) == len(sampler)
        assert sorted(flat(batches)) == list(range(len(keys)))
        assert all(type(i) is int for i in flat(batches))
        for batch in batches:
            values = [keys[i] for i in batch]
            assert values == sorted(values, reverse=reverse)
            assert len(batch) <= size
        buckets = len(range(0, len(keys), int(mult * size)))
        assert sum(len(batch) < size for batch in batches) <= buckets


def test_the_batches_of_one_bucket_follow_each_other_and_do_not_overlap():
    sampler = SortedBucketSampler(range(40), 2, mult=5, shuffle=True, seed=3)
    batches = list(sampler)
    for at in range(0, 20, 5):
        bucket = sorted(map(sorted, batches[at : at + 5]))
        spans = sorted((min(batch), max(batch)) for batch in bucket)
        assert all(before[1] < after[0] for before, after in zip(spans, spans[1:]))
    assert any(flat(batches[at : at + 5]) != sorted(flat(batches[at : at + 5]), reverse=True) for at in (0, 5, 10, 15))


# -- SplitSampler -----------------------------------------------------------------------------------------------------


def parts_of(length, parts, *args, seeds=None, **kwargs):
    seeds = seeds or [0] * parts
    return [SplitSampler(length, parts, i, *args, seed=seed, **kwargs) for i, seed in enumerate(seeds)]


@given(length=st.integers(0, 40), seeds=st.lists(st.integers(0, 3), min_size=1, max_size=7), shuffle=st.booleans(),
       repeat=st.integers(1, 3))  # fmt: skip
def test_parts_are_disjoint_and_complete_whatever_their_seeds(length, seeds, shuffle, repeat):
    samplers = parts_of(length, len(seeds), False, repeat, shuffle, seeds=seeds)
    for _ in range(2):
        parts = [list(sampler) for sampler in samplers]
        assert sorted(flat(parts)) == sorted(list(range(length)) * repeat)
        assert list(map(len, parts)) == list(map(len, samplers))
        assert all(type(i) is int for i in flat(parts))
        assert {len(part) // repeat for part in parts} <= {length // len(parts), length // len(parts) + 1}


@given(length=st.integers(1, 40), parts=st.integers(1, 7), seed=st.integers(0, 3), shuffle=st.booleans(),
       repeat=st.integers(1, 3))  # fmt: skip
def test_even_size_fills_short_parts_with_samples_of_other_parts(length, parts, seed, shuffle, repeat):
    short = parts_of(length, parts, False, 1, False)
    size = -(-length // parts)
    for part, own in zip(parts_of(length, parts, True, repeat, shuffle, seeds=[seed] * parts), short, strict=True):
        indices = list(part)
        assert len(indices) == len(part) == size * repeat
        for at in range(0, len(indices), size):
            once = indices[at : at + size]
            assert set(own) <= set(once) <= set(range(length))
            assert len(set(once)) == size, "the extra one is not one of its own"


@pytest.mark.parametrize(
    ("length", "parts", "repeat", "expected"),
    [
        (10, 3, 1, [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]),
        (10, 4, 1, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        (5, 2, 2, [[0, 1, 2, 0, 1, 2], [3, 4, 3, 4]]),
    ],
)
def test_parts_equal_gluonnlps(length, parts, repeat, expected):
    assert [list(part) for part in parts_of(length, parts, False, repeat, False)] == expected


def test_all_parts_follow_the_same_permutation():
    samplers, whole = parts_of(50, 3, seeds=[7] * 3), RandomSampler(50, seed=7)
    for _ in range(3):
        order = list(whole)
        for part in map(list, samplers):
            assert part == [i for i in order if i in part]


def test_each_repetition_has_another_order():
    part = list(SplitSampler(60, 2, 0, repeat=3, seed=1))
    assert len({tuple(part[at : at + 30]) for at in (0, 30, 60)}) == 3


def test_the_extra_samples_change_even_without_shuffling():
    sampler = SplitSampler(101, 2, 1, even_size=True, shuffle=False, seed=0)
    epochs = [list(sampler) for _ in range(10)]
    assert all(epoch[:-1] == list(range(51, 101)) for epoch in epochs)
    assert len({epoch[-1] for epoch in epochs}) > 3


def test_repr_shows_the_number_of_batches():
    assert repr(FixedBucketSampler(LENGTHS, 3, num_buckets=3)) == "FixedBucketSampler(5 batches)"
    assert repr(SortedBucketSampler([1], 1)) == "SortedBucketSampler(1 batch)"
    assert repr(SortedSampler(KEYS)) == f"SortedSampler({len(KEYS)})"


# -- In a loader ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_a_loader_accepts_bucket_samplers_and_sets_their_epoch(way):
    data = [list(range(length)) for length in LENGTHS]
    expected = [list(epoch) for epoch in [FixedBucketSampler(LENGTHS, 3, 3, shuffle=True, seed=1)] * 2]
    sampler = FixedBucketSampler(LENGTHS, 3, 3, shuffle=True, seed=1)
    with way.loader(data, batch_sampler=sampler, batchify_fn=Pad(-1, np.int64, ret_length=True)) as loader:
        assert len(loader) == len(expected[0])
        for epoch in (0, 1, 0):
            loader.set_epoch(epoch)
            for (batch, lengths), indices in zip(loader, expected[epoch], strict=True):
                assert lengths.tolist() == [LENGTHS[i] for i in indices]
                assert batch.shape == (len(indices), max(lengths))


def test_a_state_of_a_larger_part_with_as_many_indices_is_refused():
    three, four = (
        DataLoader(range(9), 1, sampler=SplitSampler(9, parts, 1, even_size=True, seed=0)) for parts in (3, 4)
    )
    assert len(three) == len(four)  # three samples of its own, or two and one of another part
    with pytest.raises(ValueError, match=r"end=6; it must be the same"):
        three.load_state_dict(four.state_dict())
