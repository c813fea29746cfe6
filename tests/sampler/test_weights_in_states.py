"""The weights of a `WeightedSampler` in the state of a loader."""

import json

import numpy as np
import pytest

from gluonloader import DataLoader, ShardedSampler, WeightedSampler


def make(replacement=True, length=50, ranks=None):
    sampler = WeightedSampler(np.ones(length), 40, replacement, seed=1)
    sampler = sampler if ranks is None else ShardedSampler(sampler, *ranks)
    return DataLoader(range(length), 4, sampler=sampler, seed=2)


def weighted_in(loader):
    return getattr(loader.sampler, "sampler", loader.sampler)


def changed(length=50):
    return np.random.default_rng(3).random(length) ** 4


def rest(loader, epochs=2):
    return [[batch.tolist() for batch in loader] for _ in range(epochs)]


@pytest.mark.parametrize("ranks", [None, (2, 1)])
@pytest.mark.parametrize("replacement", [True, False])
def test_changed_weights_are_in_the_state(replacement, ranks):
    """A curriculum goes on as it was: in the epoch that runs and, without replacement, in the epoch after it."""
    loader = make(replacement, ranks=ranks)
    iterator = iter(loader)
    next(iterator)
    weighted_in(loader).weights = changed()
    iterator.flush()
    next(iterator)
    text = json.dumps(loader.state_dict())
    expected = [[batch.tolist() for batch in iterator], *rest(loader)]
    other = make(replacement, ranks=ranks)
    other.load_state_dict(text)
    assert json.dumps(other.state_dict()) == text
    assert rest(other, 3) == expected
    np.testing.assert_array_equal(weighted_in(other).weights, changed())


def test_a_state_after_a_resume_contains_the_weights_too():
    loader = make()
    iterator = iter(loader)
    loader.sampler.weights = changed()
    next(iterator)
    for _ in range(3):
        state, loader = json.dumps(loader.state_dict()), make()
        loader.load_state_dict(state)
        next(iter(loader))
    np.testing.assert_array_equal(loader.sampler.weights, changed())


def test_a_state_from_before_the_weights_were_changed_restores_the_first_weights():
    loader = make()
    state = loader.state_dict()
    expected = rest(loader)
    loader.sampler.weights = changed()
    loader.load_state_dict(state)
    assert rest(loader) == expected


def test_weights_that_were_not_changed_are_a_checksum_and_large_ones_are_refused():
    loader = make(length=100_000)
    assert len(json.dumps(loader.state_dict())) < 500
    loader.sampler.weights = changed(100_000)  # random numbers cannot be compressed
    state = loader.state_dict()
    assert len(json.dumps(state)) < 500
    other = make(length=100_000)
    with pytest.raises(ValueError, match="set the saved weights first.*64 kB.*save others beside the state"):
        other.load_state_dict(state)
    other.sampler.weights = changed(100_000)
    other.load_state_dict(state)
    assert rest(other) == rest(loader)
    loader.sampler.weights = np.arange(100_000) < 3  # these can be compressed
    other.load_state_dict(loader.state_dict())
    np.testing.assert_array_equal(other.sampler.weights, loader.sampler.weights)
