"""A function of the epoch as a sampler: its order is exact on any ranks, after a resume, and in replay."""

import json
from itertools import islice

import numpy as np
import pytest
from conftest import ANY

from gluonloader import DataLoader, IterableDataset, Ranks, merge_states


def order(epoch):
    return np.random.default_rng(epoch).permutation(20)


def loader(size=3, sampler=order, **arguments):
    return DataLoader(range(20), size, sampler=sampler, seed=0, batchify_fn=list, **arguments)


def whole(*epochs):
    return [key for epoch in epochs for key in order(epoch).tolist()]


@pytest.mark.parametrize(
    "make",
    [
        order,
        lambda epoch: order(epoch).tolist(),
        lambda epoch: iter(order(epoch)),
        lambda epoch: range(epoch, 20 + epoch),
    ],
)
def test_each_epoch_has_the_order_that_the_function_returns(make):
    batches = DataLoader(range(30), 20, sampler=make, batchify_fn=list)
    assert [next(iter(batches)) for _ in range(3)] == [[int(key) for key in make(epoch)] for epoch in range(3)]
    batches.set_epoch(7)
    assert next(iter(batches)) == [int(key) for key in make(7)]
    assert len(batches) == 1


@pytest.mark.parametrize("way", ANY, ids=str)
def test_it_resumes_in_the_middle_of_an_epoch(way):
    arguments = {"sampler": order, "last_batch": "rollover", "batchify_fn": list, "seed": 0}
    with way.loader(range(20), 3, **arguments) as first:
        list(first)
        iterator = iter(first)
        next(iterator), next(iterator)
        state = json.dumps(first.state_dict())
        rest = list(iterator)
    with way.loader(range(20), 3, **arguments) as second:
        second.load_state_dict(state)
        assert list(second) == rest
        assert [key for batch in rest for key in batch] == whole(1)[4:19]


def test_ranks_divide_it_and_their_number_may_change():
    ranks = [loader(ranks=Ranks(index, 2)) for index in range(2)]
    first = [key for rank in ranks for key in next(iter(rank))]
    state = merge_states(rank.state_dict() for rank in ranks)
    others = [loader(2, ranks=Ranks(index, 3, "uneven")) for index in range(3)]
    for rank in others:
        rank.load_state_dict(state)
    assert sorted(first + [key for rank in others for batch in rank for key in batch]) == list(range(20))


def test_batches_of_any_epoch_are_known():
    batches = loader()
    assert batches.indices(5, 2) == batches.replay(5, 2) == whole(5)[6:9]
    assert batches.upcoming(30) == whole(0, 1)[:30]


def test_a_function_of_the_epoch_returns_batches():
    def lists(epoch):
        return [[number, epoch] for number in range(4)]

    batches = DataLoader(range(9), batch_sampler=lists, batchify_fn=list, seed=0)
    assert [list(batches) for _ in range(2)] == [lists(0), lists(1)]
    next(iter(batches))
    other = DataLoader(range(9), batch_sampler=lists, batchify_fn=list, seed=0)
    other.load_state_dict(batches.state_dict())
    assert list(other) == lists(2)[1:]


def test_the_function_is_called_once_for_an_epoch():
    calls = []

    def counted(epoch):
        calls.append(epoch)
        return order(epoch)

    batches = loader(sampler=counted)
    assert calls == [0, 0], "the second time to see that it returns the same"
    list(batches), list(batches)
    assert calls == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda epoch: np.random.permutation(20), "it returns another order when it is called again .*default_rng"),
        (lambda epoch: 5, r"sampler=.*it returned 5 for epoch 0; let it return a list or an array"),
        (lambda epoch: "ab", "it returned 'ab' for epoch 0"),
        (np.random.permutation, "it returned no index for epoch 0"),
    ],
)
def test_what_it_returns_is_checked(make, text):
    with pytest.raises(ValueError, match=text):
        loader(sampler=make)


def test_an_epoch_of_another_length_is_an_error():
    batches = loader(sampler=lambda epoch: range(20 - epoch))
    assert len(list(batches)) == 7
    with pytest.raises(ValueError, match="it returned 19 items for epoch 1, but 20 for epoch 0; all epochs must have"):
        list(batches)


def test_a_function_without_an_argument_is_an_error():
    with pytest.raises(ValueError, match="sampler=.*it must accept one argument, the number of the epoch"):
        loader(sampler=lambda: range(5))


def test_an_iterable_dataset_has_its_own_order():
    with pytest.raises(ValueError, match="is an iterable dataset, which sets the order itself; remove sampler"):
        DataLoader(IterableDataset(range(9)), 2, sampler=order)


def test_a_state_of_another_length_is_refused():
    state = loader().state_dict()
    assert list(islice(loader(), 1))
    with pytest.raises(ValueError, match="state: sampler.length=20: this FunctionSampler has length=10"):
        loader(sampler=lambda epoch: range(10)).load_state_dict(state)
