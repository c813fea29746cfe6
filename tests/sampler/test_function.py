"""A function of the epoch as a sampler: its order is exact on any ranks, after a resume, and in replay."""

from itertools import islice

import numpy as np
import pytest

from gluonloader import DataLoader


def order(epoch):
    return np.random.default_rng(epoch).permutation(20)


def loader(size=3, sampler=order, **arguments):
    return DataLoader(range(20), size, sampler=sampler, seed=0, batchify_fn=list, **arguments)


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


def test_the_function_is_called_once_for_an_epoch():
    calls = []

    def counted(epoch):
        calls.append(epoch)
        return order(epoch)

    batches = loader(sampler=counted)
    assert calls == [0, 0], "the second time to see that it returns the same"
    list(batches), list(batches)
    assert calls == [0, 0, 0, 1]


def test_an_epoch_of_another_length_is_an_error():
    batches = loader(sampler=lambda epoch: range(20 - epoch))
    assert len(list(batches)) == 7
    with pytest.raises(ValueError, match="it returned 19 items for epoch 1, but 20 for epoch 0; all epochs must have"):
        list(batches)


def test_a_state_of_another_length_is_refused():
    state = loader().state_dict()
    assert list(islice(loader(), 1))
    with pytest.raises(ValueError, match="state: sampler.length=20: this FunctionSampler has length=10"):
        loader(sampler=lambda epoch: range(10)).load_state_dict(state)
