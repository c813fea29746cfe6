"""Rows of documents, planned by their lengths: complete, full, and the same however they are read."""

import json
import pickle
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from order_positions import position, resumed

from gluonloader import BatchSampler, MixtureSampler, RandomSampler, ShardedSampler, SubsetSampler, WeightedSampler
from gluonloader.text import PackingSampler

METHODS = st.sampled_from(["best_fit", "in_order", "split"])


LENGTHS = st.lists(st.integers(0, 40), max_size=60)


def tokens_of(rows):
    """Each token of the rows, as (document, offset)."""
    return [
        (document, offset)
        for row in rows
        for document, start, stop in zip(row.documents, row.starts, row.stops, strict=True)
        for offset in range(start, stop)
    ]


def of_documents(lengths):
    return [(document, offset) for document, length in enumerate(lengths) for offset in range(length)]


@settings(max_examples=examples(200))
@given(
    lengths=LENGTHS,
    size=st.integers(1, 20),
    method=METHODS,
    window=st.integers(1, 70),
    shuffle=st.booleans(),
    long=st.sampled_from(["split", "truncate", "drop"]),
)
def test_each_token_is_in_one_row(lengths, size, method, window, shuffle, long):
    long = "split" if method == "split" else long
    sampler = PackingSampler(lengths, size, method=method, window=window, shuffle=shuffle, long=long, seed=0)
    count = sampler.count()
    rows = list(sampler)
    kept = {
        "split": lengths,
        "truncate": [min(length, size) for length in lengths],
        "drop": [length if length <= size else 0 for length in lengths],
    }[long]
    assert Counter(tokens_of(rows)) == Counter(of_documents(kept))
    assert all(0 < sum(row.lengths) <= size for row in rows)
    assert all(length > 0 for row in rows for length in row.lengths)
    assert len(rows) == count
    if method == "split":
        assert all(sum(row.lengths) == size for row in rows[:-1])
    else:  # documents that fit are whole
        pieces = Counter(document for row in rows for document in row.documents)
        assert pieces == {document: -(-length // size) for document, length in enumerate(kept) if length}
    stats = sampler.stats()
    assert (stats.documents, stats.rows, stats.tokens) == (len(lengths), len(rows), sum(kept))
    assert stats.dropped == kept.count(0)
    assert stats.fill == (sum(kept) / (len(rows) * size) if rows else 0)
    if long == "truncate":
        assert stats.cut == sum(length > size for length in lengths)


@given(
    lengths=LENGTHS, rows=st.integers(1, 5), align=st.integers(1, 8), method=st.sampled_from(["best_fit", "in_order"])
)
def test_aligned_documents_fit_into_their_row(lengths, rows, align, method):
    sampler = PackingSampler(lengths, rows * align, method=method, align=align, seed=0)
    for row in sampler:
        assert sum(-(-length // align) * align for length in row.lengths) <= row.size
        assert row.align == align


def test_best_fit_leaves_little_padding():
    rng = np.random.default_rng(0)
    lengths = np.minimum(np.exp(rng.normal(np.log(269), 0.95, 20_000)).astype(int) + 1, 2048)
    sampler = PackingSampler(lengths, 2048, seed=0)
    list(sampler)
    assert sampler.stats().fill > 0.998


def test_rows_of_a_window_are_not_sorted_by_length():
    lengths = list(range(1, 101))
    first = [max(row.lengths) for row in PackingSampler(lengths, 100, seed=0)]
    assert first != sorted(first)
    assert first != sorted(first, reverse=True)


def test_the_order_depends_on_seed_and_epoch():
    lengths = np.random.default_rng(0).integers(1, 30, 200)
    one, same, other = (PackingSampler(lengths, 64, window=50, seed=seed) for seed in (1, 1, 2))
    first = list(one)
    assert first == list(same)
    assert first != list(other)
    assert list(one) == list(same) != first
    same.set_epoch(0)
    assert list(same) == first


def test_an_order_of_the_documents_may_be_passed():
    rows = list(PackingSampler([5, 5, 5, 5], 5, sampler=[2, 0, 2], method="in_order", shuffle=False))
    assert [row.documents for row in rows] == [(2,), (0,), (2,)]
    sampler = PackingSampler([5] * 10, 10, sampler=RandomSampler(10, seed=3), method="in_order", shuffle=False)
    order = list(RandomSampler(10, seed=3))
    assert [document for row in sampler for document in row.documents] == order


def test_it_can_be_pickled_while_an_epoch_runs():
    sampler = PackingSampler([5, 3, 9, 4], 10, sampler=SubsetSampler([0, 2, 3], shuffle=True, seed=1), seed=2)
    next(iter(sampler))
    again = pickle.loads(pickle.dumps(sampler))
    assert list(again) == list(sampler)


# -- Positions -----------------------------------------------------------------------------------------------------


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=80),
    size=st.integers(5, 20),
    method=METHODS,
    window=st.integers(1, 30),
    ranks=st.integers(1, 4),
    even=st.sampled_from(["pad", "drop", "keep"]),
)
def test_shares_take_the_rows_in_turn(lengths, size, method, window, ranks, even):
    def make():
        return PackingSampler(lengths, size, method=method, window=window, seed=5)

    rows = list(make())
    length = len(rows)
    if even == "pad" and length:
        expected = [(rows * ranks)[rank : -(-length // ranks) * ranks : ranks] for rank in range(ranks)]
    elif even == "drop":
        expected = [rows[rank : length // ranks * ranks : ranks] for rank in range(ranks)]
    else:
        expected = [rows[rank::ranks] for rank in range(ranks)]
    assert [list(ShardedSampler(make(), ranks, rank, even)) for rank in range(ranks)] == expected


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=80),
    method=METHODS,
    window=st.integers(1, 30),
    drawn=st.integers(0, 30),
)
def test_a_position_continues_at_the_next_row(lengths, method, window, drawn):
    def make():
        return PackingSampler(lengths, 12, method=method, window=window, seed=5)

    rows = list(make())
    sampler, drawn = make(), min(drawn, len(rows))
    list(islice(iter(sampler), drawn))
    assert list(resumed(make(), position(sampler, 0, drawn), drawn)) == rows[drawn:]


def test_windows_that_were_discarded_are_not_counted():
    mixture = MixtureSampler([500, 500], weights=[1, 0], num_samples=400, seed=1)
    sampler = PackingSampler(np.full(1000, 4), 8, mixture, window=20, seed=1)
    rows = iter(sampler)
    rows.cut(95)
    mixture.weights = [0, 1]
    rows.seek(33)  # as `flush` does
    rows.cut(1000)
    assert (sampler.stats().documents, sampler.stats().rows) == (400, 200)
    rows.seek(33)  # nothing has changed since then
    rows.cut(1000)
    assert sampler.stats().documents == 400


class CountsReads(np.ndarray):
    """Lengths that count how often some of them are read."""

    reads = 0

    def __getitem__(self, documents):
        self.reads += 1
        return super().__getitem__(documents).view(np.ndarray)


def test_a_position_contains_the_last_window_that_was_read():
    lengths = np.full(1000, 4)
    sampler = PackingSampler(lengths, 8, window=100, seed=0)
    list(islice(sampler, 260))
    state = position(sampler, 0, 220)
    assert state["checkpoint"] == [4, 200]
    assert len(json.dumps(state)) < 500
    counted = lengths.view(CountsReads)
    fresh = PackingSampler(counted, 8, window=100, seed=0)
    counted.reads = 0
    resumed(fresh, state, 220).cut(4)
    assert counted.reads == 1


def test_an_epoch_that_starts_again_after_a_resume_plans_each_window_once():
    source = PackingSampler(np.full(1000, 4), 8, window=100, seed=0)
    whole = list(source)
    counted = np.full(1000, 4).view(CountsReads)
    fresh = PackingSampler(counted, 8, window=100, seed=0)
    resumed(fresh, position(source, 0, 220), 220).cut(4)
    fresh.set_epoch(0)
    counted.reads = 0
    assert list(fresh) == whole
    assert counted.reads == 10


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("checkpoint", [0]),
        ("checkpoint", [-1, 0]),
        ("checkpoint", ["a", 0]),
        ("size", 9),
        ("window", 9),
        ("documents", 3),
        ("lengths", "abc"),
        ("seed", 1),
        ("sampler", {}),
    ],
)
def test_a_position_of_another_sampler_is_refused(field, value):
    sampler = PackingSampler([4] * 10, 8, seed=0)
    state = {**position(sampler), field: value}
    with pytest.raises(ValueError, match="state: sampler"):
        resumed(sampler, state, 0)


def test_memory_does_not_grow_with_the_number_of_documents():
    lengths = np.broadcast_to(np.int32(100), 10**9)  # as large as a mapped file, but without its pages
    sampler = PackingSampler(lengths, 2048, seed=0)
    first = next(iter(sampler))
    assert len(first.documents) == 20
    state = {**position(sampler), "checkpoint": [100_000, 20_000_000]}
    assert len(next(resumed(sampler, state, 20_000_001)).documents) > 0


# -- Mistakes ------------------------------------------------------------------------------------------------------


def test_the_length_is_not_known():
    sampler = PackingSampler([1, 2], 4, seed=0)
    with pytest.raises(TypeError, match=r"known only when the whole epoch was planned.*sampler\.count\(\) plans"):
        len(sampler)
    with pytest.raises(TypeError, match="the number of rows"):
        len(BatchSampler(sampler, 2))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"size": 0}, "size=0: must be an int >= 1"),
        ({"method": "first_fit"}, "method='first_fit': must be one of 'best_fit'"),
        ({"long": "keep"}, "long='keep': must be one of"),
        ({"method": "split", "long": "drop"}, "long='drop': method='split' cuts all documents"),
        ({"align": 3}, "align=3: it must divide size=8"),
        ({"method": "split", "align": 2}, "align=2: method='split' leaves no gaps"),
        ({"window": 0}, "window=0: must be an int >= 1"),
        ({"lengths": "abc"}, "pass the number of tokens of each document"),
        ({"sampler": iter([1])}, "it must be a sampler of gluonloader"),
        (
            {"sampler": WeightedSampler([1, 2], seed=0)},
            "its weights may change while an epoch runs; pass replacement=F",
        ),
        ({"sampler": ShardedSampler(range(2), 2, 0)}, "pass ranks to the loader instead"),
        ({"shuffle": "yes"}, "shuffle='yes': must be True or False"),
    ],
)
def test_mistakes(arguments, text):
    with pytest.raises(ValueError, match=text):
        PackingSampler(**{"lengths": [1, 2], "size": 8, "seed": 0, **arguments})


@pytest.mark.parametrize(
    ("lengths", "arguments", "error", "text"),
    [
        (
            [3, 9],
            {"long": "error"},
            ValueError,
            "document 1 has 9 tokens, but a row has only size=8; pass long='split'",
        ),
        ([1, -2], {}, ValueError, r"lengths\[1\]=-2: a length must be >= 0"),
        ([1, 2], {"sampler": [0, 2]}, ValueError, "it yields the index 2, but there are lengths of 2 documents"),
        ([1, 2], {"sampler": [-1]}, ValueError, "it yields the index -1, but there are lengths of 2 documents"),
        ([1, 2], {"sampler": ["a"]}, TypeError, "the indices of documents must be ints, not 'a'"),
    ],
)
def test_wrong_documents_are_named_while_rows_are_planned(lengths, arguments, error, text):
    sampler = PackingSampler(lengths, 8, seed=0, **arguments)
    with pytest.raises(error, match=text):
        list(sampler)


@pytest.mark.parametrize("count", [3000, 600_000])
def test_a_position_is_refused_if_a_length_is_another_one(count):
    lengths = np.random.default_rng(0).integers(1, 9, count)
    state = position(PackingSampler(lengths, 16, seed=0))
    lengths[1234] += 1
    with pytest.raises(ValueError, match=r"sampler\.lengths=.*it must be the same as in the state"):
        resumed(PackingSampler(lengths, 16, seed=0), state, 0)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_position_of_another_shuffle_is_refused_by_that_name(shuffle):
    state = position(PackingSampler([5, 3, 9, 4], 10, shuffle=shuffle, seed=0))
    with pytest.raises(ValueError, match=rf"sampler\.shuffle={shuffle}: .* has shuffle={not shuffle}"):
        resumed(PackingSampler([5, 3, 9, 4], 10, shuffle=not shuffle, seed=0), state, 0)
