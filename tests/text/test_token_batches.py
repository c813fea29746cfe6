"""Batches with a limited number of tokens: none above the budget, each document once, the same for all ranks."""

import json
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from order_positions import position, resumed

from gluonloader import DataLoader, ShardedSampler
from gluonloader.text import TokenBatchSampler

LENGTHS = st.lists(st.integers(0, 30), max_size=60)
BUDGETS = st.fixed_dictionaries(
    {
        "max_tokens": st.integers(64, 200),
        "max_samples": st.none() | st.integers(1, 5),
        "padded": st.booleans(),
        "quadratic": st.none() | st.just(32.0),
        "window": st.integers(1, 70),
        "multiple": st.sampled_from([1, 4]),
        "shuffle": st.booleans(),
    }
)


def cost(lengths, arguments):
    rounded = [-(-max(length, 1) // arguments["multiple"]) * arguments["multiple"] for length in lengths]
    costs = [n + n * n / arguments["quadratic"] if arguments["quadratic"] else n for n in rounded]
    return len(costs) * max(costs) if arguments["padded"] else sum(costs)


@given(lengths=LENGTHS, arguments=BUDGETS)
def test_each_document_is_in_one_batch_and_no_batch_exceeds_the_budget(lengths, arguments):
    sampler = TokenBatchSampler(lengths, seed=0, **arguments)
    count = sampler.count()
    batches = list(sampler)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    assert all(batches)
    costs = [cost([lengths[index] for index in batch], arguments) for batch in batches]
    assert all(each <= arguments["max_tokens"] for each in costs)
    assert all(len(batch) <= (arguments["max_samples"] or 60) for batch in batches)
    stats = sampler.stats()
    assert (
        (stats.batches, stats.documents, stats.dropped) == (count, len(lengths), 0) == (len(batches), len(lengths), 0)
    )
    assert stats.cost == pytest.approx(sum(costs))


@given(lengths=LENGTHS, arguments=BUDGETS, ranks=st.integers(1, 5), even=st.sampled_from(["pad", "drop"]))
def test_ranks_get_equal_numbers_of_batches_and_none_is_empty(lengths, arguments, ranks, even):
    shares = [
        list(ShardedSampler(TokenBatchSampler(lengths, seed=0, **arguments), ranks, rank, even))
        for rank in range(ranks)
    ]
    assert len(set(map(len, shares))) == 1
    assert all(batch for share in shares for batch in share)
    batches = list(TokenBatchSampler(lengths, seed=0, **arguments))
    steps = -(-len(batches) // ranks) if even == "pad" else len(batches) // ranks
    together = [batch for step in range(steps) for batch in (share[step] for share in shares)]
    assert together[: len(batches)] == batches[: len(together)]


def test_batches_that_follow_each_other_have_similar_costs():
    lengths = np.random.default_rng(0).integers(1, 1000, 20_000)
    sampler = TokenBatchSampler(lengths, 8000, window=20_000, seed=0)
    longest = [max(lengths[batch]) for batch in sampler]
    differences = np.abs(np.diff(longest))
    assert np.median(differences) < 60
    assert longest != sorted(longest)
    assert sampler.stats().use > 0.95


def test_long_documents():
    with pytest.raises(ValueError, match="document 1 costs 9 tokens, more than max_tokens=8; pass long='drop'"):
        list(TokenBatchSampler([1, 9], 8, seed=0))
    sampler = TokenBatchSampler([1, 9, 2], 8, long="drop", seed=0)
    assert sorted(index for batch in sampler for index in batch) == [0, 2]
    assert sampler.stats().dropped == 1


@given(lengths=LENGTHS, arguments=BUDGETS, drawn=st.integers(0, 20))
def test_a_position_continues_at_the_next_batch(lengths, arguments, drawn):
    whole = list(TokenBatchSampler(lengths, seed=3, **arguments))
    sampler = TokenBatchSampler(lengths, seed=3, **arguments)
    drawn = min(drawn, len(whole))
    list(islice(iter(sampler), drawn))
    fresh = TokenBatchSampler(lengths, seed=3, **arguments)
    assert list(resumed(fresh, position(sampler, 0, drawn), drawn)) == whole[drawn:]


def test_a_loader_reads_the_batches_and_resumes():
    lengths = np.random.default_rng(0).integers(1, 30, 500)
    data = np.arange(500)

    def make():
        sampler = TokenBatchSampler(lengths, 100, window=50, seed=3)
        return DataLoader(data, batch_sampler=sampler, num_workers=2, thread_pool=True, seed=0)

    with make() as loader, make() as resumed:
        batches = [batch.tolist() for batch in loader]
        iterator = iter(loader)
        second = [next(iterator).tolist() for _ in range(30)]
        resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        second += [batch.tolist() for batch in resumed]
        assert second != batches
        assert sorted(sum(second, [])) == sorted(sum(batches, [])) == list(range(500))
        assert [loader.indices(0, number) for number in (0, 7)] == [batches[0], batches[7]]
        with pytest.raises(TypeError, match="the number of batches of an epoch is known only"):
            len(loader)


@pytest.mark.parametrize("quadratic", [32, np.float32(32), np.int64(32)])
def test_a_position_does_not_depend_on_the_type_of_a_number(quadratic):
    loaders = [
        DataLoader(range(100), batch_sampler=TokenBatchSampler([5] * 100, 40, quadratic=number, seed=0))
        for number in (32.0, quadratic)
    ]
    first, second = loaders
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    first.load_state_dict(json.loads(json.dumps(second.state_dict())))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"max_tokens": 0}, "max_tokens=0: must be an int >= 1"),
        ({"max_samples": 0}, "max_samples=0: must be an int >= 1"),
        ({"quadratic": 0}, "quadratic=0: must be a number > 0"),
        ({"long": "split"}, "long='split': must be 'drop' or 'error'"),
        ({"padded": "no"}, "padded='no': must be True or False"),
        ({"multiple": 0}, "multiple=0: must be an int >= 1"),
    ],
)
def test_mistakes(arguments, text):
    with pytest.raises(ValueError, match=text):
        TokenBatchSampler(**{"lengths": [1], "max_tokens": 8, "seed": 0, **arguments})
