"""States of the user's own datasets and samplers: what `state_dict` returned comes to `load_state_dict` again."""

import json
import random

import numpy as np
import pytest
from conftest import FORK, SERIAL

from gluonloader import DataLoader, IterableDataset

LENGTH = 20


def resumed(make, batches):
    """The batches of a run that was saved after this many batches, and then continued in a new loader."""
    with make() as loader:
        iterator = iter(loader)
        seen = [next(iterator).tolist() for _ in range(batches)]
        text = json.dumps(loader.state_dict())
    with make() as loader:
        loader.load_state_dict(json.loads(text))
        return seen + [batch.tolist() for batch in loader]


def whole(make):
    with make() as loader:
        return [batch.tolist() for batch in loader]


class Drawn:
    """A sampler that draws from generators whose states JSON cannot store."""

    def __init__(self):
        self.python, self.legacy, self.left = random.Random(1), np.random.RandomState(2), np.arange(LENGTH)
        self.counts = dict.fromkeys(range(LENGTH), 0)

    def __len__(self):
        return LENGTH

    def __iter__(self):
        while len(self.left):
            at = self.python.randrange(len(self.left)) if self.legacy.randint(2) else 0
            index = int(self.left[at])
            self.left = np.delete(self.left, at)
            self.counts[index] += 1
            yield index

    def state_dict(self):
        return {
            "python": self.python.getstate(),
            "legacy": self.legacy.get_state(),
            "left": self.left,
            "counts": self.counts,
        }

    def load_state_dict(self, state):
        self.python.setstate(state["python"])
        self.legacy.set_state(state["legacy"])
        self.left, self.counts = state["left"], state["counts"]
        assert set(self.counts) == set(range(LENGTH))


@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_a_sampler_gets_back_the_generators_arrays_and_keys_that_it_saved(way):
    def make():
        return way.loader(range(LENGTH), 2, sampler=Drawn())

    expected = whole(make)
    assert sorted(sum(expected, [])) == list(range(LENGTH))
    assert resumed(make, 3) == expected


def test_flush_restores_a_sampler_whose_state_has_arrays():
    with FORK.loader(range(LENGTH), 2, sampler=Drawn()) as loader:
        iterator = iter(loader)
        batches = [next(iterator).tolist() for _ in range(2)]
        iterator.flush()
        assert sorted(sum(batches + [batch.tolist() for batch in iterator], [])) == list(range(LENGTH))


class Weighted:
    """A dataset whose samples depend on arrays in its state."""

    def __init__(self):
        self.factors = np.ones(LENGTH, "f4")

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        return index * self.factors[index]

    def state_dict(self):
        return {"factors": self.factors}

    def load_state_dict(self, state):
        assert state["factors"].dtype == np.float32
        self.factors = state["factors"]


@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_a_dataset_gets_back_the_arrays_that_it_saved(way):
    dataset = Weighted()
    dataset.factors[:] = 3
    state = json.dumps(way.loader(dataset, 5).state_dict())
    dataset = Weighted()
    with way.loader(dataset, 5) as loader:
        loader.load_state_dict(state)
        assert [batch.tolist() for batch in loader][1] == [15, 18, 21, 24, 27]
        assert dataset.factors.tolist() == [3] * LENGTH


class Streamed:
    """An iterable dataset whose state has tuples and an array."""

    def __init__(self):
        self.rng, self.seen = random.Random(4), np.zeros(0, "i8")

    def __iter__(self):
        while len(self.seen) < LENGTH:
            self.seen = np.append(self.seen, len(self.seen))
            yield len(self.seen) * 100 + self.rng.randrange(100)
        self.__init__()

    def state_dict(self):
        return {"rng": self.rng.getstate(), "seen": self.seen}

    def load_state_dict(self, state):
        self.rng = random.Random()
        self.rng.setstate(state["rng"])
        self.seen = state["seen"]


@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_an_iterable_dataset_gets_back_what_it_saved(way):
    def make():
        return way.loader(Streamed(), 2, num_shards=1)

    assert resumed(make, 4) == whole(make)


def test_a_state_that_could_not_come_back_is_refused_when_it_is_saved():
    class Odd(Weighted):
        def state_dict(self):
            return {"factors": {1.0, 2.0}}

    with pytest.raises(TypeError, match=r"Odd\.state_dict\(\) .* JSON cannot store \(an object of type set\)"):
        DataLoader(Odd(), 5).state_dict()


def test_a_hint_of_an_iterable_dataset_that_cannot_come_back_fails_its_batch():
    class Odd(Streamed):
        def state_dict(self):
            return {"rng": self.rng}

    with pytest.raises(TypeError, match=r"Odd\.state_dict\(\) .* JSON cannot store \(an object of type Random\)"):
        next(iter(DataLoader(IterableDataset(Odd()), 5)))
