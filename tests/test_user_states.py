"""States of the user's own datasets and samplers: what `state_dict` returned comes to `load_state_dict` again."""

import json
import random
import tracemalloc

import numpy as np
import pytest
from conftest import FORK, SERIAL

from gluonloader import ConcatDataset, DataLoader, IterableDataset, SimpleDataset, Subset

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


def test_flush_restores_a_sampler_whose_state_has_arrays():
    with FORK.loader(range(LENGTH), 2, sampler=Drawn()) as loader:
        iterator = iter(loader)
        batches = [next(iterator).tolist() for _ in range(2)]
        iterator.flush()
        assert sorted(sum(batches + [batch.tolist() for batch in iterator], [])) == list(range(LENGTH))


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
@pytest.mark.parametrize(
    "arguments",
    [
        lambda: {"dataset": range(LENGTH), "sampler": Drawn()},
        lambda: {"dataset": IterableDataset(Streamed(), num_shards=1)},
    ],
    ids=["sampler", "iterable dataset"],
)
def test_generators_arrays_and_keys_of_a_state_come_back(way, arguments):
    def make():
        return way.loader(batch_size=2, **arguments())

    expected = whole(make)
    assert len(set(sum(expected, []))) == LENGTH
    assert resumed(make, 3) == expected


def test_a_state_that_could_not_come_back_is_refused_when_it_is_saved():
    class Odd(Counted):
        def state_dict(self):
            return {"seen": {1.0, 2.0}}

    with pytest.raises(TypeError, match=r"Odd\.state_dict\(\) .* JSON cannot store \(an object of type set\)"):
        DataLoader(Odd(), 5).state_dict()


def test_a_hint_of_an_iterable_dataset_that_cannot_come_back_fails_its_batch():
    class Odd(Streamed):
        def state_dict(self):
            return {"rng": self.rng}

    with pytest.raises(TypeError, match=r"Odd\.state_dict\(\) .* JSON cannot store \(an object of type Random\)"):
        next(iter(DataLoader(IterableDataset(Odd()), 5)))


# -- a dataset whose state contains the state of a global generator ----------------------------------------------------


class Global:
    """A global random generator: seeds it, draws an order from it, and saves and restores it."""

    def __init__(self, name):
        if name == "torch":
            torch = pytest.importorskip("torch")
            self.seed, self.save, self.restore = torch.manual_seed, torch.get_rng_state, torch.set_rng_state
            self.order = lambda: iter(torch.utils.data.RandomSampler(range(LENGTH)))
        elif name == "numpy":
            self.seed, self.save, self.restore = np.random.seed, np.random.get_state, np.random.set_state
            self.order = lambda: iter(np.random.permutation(LENGTH))
        else:
            self.seed, self.save, self.restore = random.seed, random.getstate, random.setstate
            self.order = lambda: iter(random.sample(range(LENGTH), LENGTH))


class Ordered:
    def __init__(self, generator):
        self.generator = generator

    def __len__(self):
        return LENGTH

    def __iter__(self):
        yield from self.generator.order()


class Numbers:
    def __init__(self, generator):
        self.generator = generator

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        return index

    def state_dict(self):
        return {"generator": self.generator.save()}

    def load_state_dict(self, state):
        self.generator.restore(state["generator"])


@pytest.mark.parametrize("moment", ["before the load", "after the load"])
@pytest.mark.parametrize("batches", [0, 3])
@pytest.mark.parametrize("name", ["torch", "numpy", "random"])
@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_a_sampler_draws_its_order_before_the_dataset_restores_the_generator(way, name, batches, moment):
    generator = Global(name)

    def make():
        generator.seed(1)
        return way.loader(Numbers(generator), 2, sampler=Ordered(generator))

    with make() as loader:
        iterator = iter(loader)
        first = [next(iterator).tolist() for _ in range(batches)]
        state = json.dumps(loader.state_dict())
        rest, following = [[batch.tolist() for batch in epoch] for epoch in (iterator, loader)]
    assert sorted(sum(first + rest, [])) == list(range(LENGTH))
    with make() as loader:
        generator.seed(1 if moment == "before the load" else 2)
        loader.load_state_dict(state)
        if moment == "after the load":
            generator.seed(1)
        assert [batch.tolist() for batch in loader] == rest
        assert [batch.tolist() for batch in loader] == following


@pytest.mark.parametrize("name", ["torch", "numpy", "random"])
def test_a_state_from_between_two_epochs_restores_the_generator_at_once(name):
    generator = Global(name)

    def make():
        generator.seed(1)
        return DataLoader(Numbers(generator), 2, sampler=Ordered(generator), seed=0)

    loader = make()
    first = [batch.tolist() for batch in loader]
    state = loader.state_dict()
    second = [batch.tolist() for batch in loader]
    assert first != second
    loader = make()
    with pytest.warns(RuntimeWarning, match="has no epoch and no state"):
        loader.load_state_dict(state)
    assert [batch.tolist() for batch in loader] == second


class LargeState:
    """A sampler whose state has 1 MB."""

    def __len__(self):
        return 100

    def __iter__(self):
        return iter(range(100))

    def state_dict(self):
        return {"text": "x" * 1_000_000}

    def load_state_dict(self, state):
        pass


def test_the_states_of_delivered_batches_are_dropped():
    loader = DataLoader(range(100), batch_size=2, sampler=LargeState())
    tracemalloc.start()
    try:
        for _ in loader:
            pass
        assert tracemalloc.get_traced_memory()[1] < 20e6  # there are 50 batches
    finally:
        tracemalloc.stop()


class Counted:
    """A dataset that counts what was read, and adds the count to each sample."""

    def __init__(self):
        self.count = 0

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        self.count += 1
        return index + 100 * self.count

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


VIEWS = {
    "transform": lambda data: SimpleDataset(data).transform(abs),
    "Subset": lambda data: Subset(data, range(2, LENGTH)),
    "ConcatDataset": lambda data: ConcatDataset(data, range(4), Counted()),
    "twice": lambda data: ConcatDataset(data, data),
}


@pytest.mark.parametrize("view", VIEWS)
def test_the_state_of_a_dataset_in_another_one_is_part_of_the_state(view):
    def make():
        return DataLoader(VIEWS[view](Counted()), 2, shuffle=True, seed=0)

    assert resumed(make, 3) == whole(make)


def test_the_states_of_other_datasets_are_refused():
    state = DataLoader(VIEWS["ConcatDataset"](Counted()), 2, seed=0).state_dict()
    loader = DataLoader(ConcatDataset(Counted(), range(LENGTH), range(4)), 2, seed=0)
    with pytest.raises(ValueError, match="state: data.lengths"):
        loader.load_state_dict(state)
    loader = DataLoader(ConcatDataset(Counted(), range(4), range(LENGTH)), 2, seed=0)
    with pytest.raises(ValueError, match="state: dataset=.*: must be a list of the states of 1 datasets"):
        loader.load_state_dict(state)


class Pairing:
    """A batch sampler that keeps an index for a later batch, over a sampler with a state."""

    def __init__(self):
        self.sampler = Drawn()

    def __len__(self):
        return LENGTH // 2

    def __iter__(self):
        indices = iter(self.sampler)
        first = next(indices)
        for index in indices:
            yield [first, index]
            first = next(indices, index)


def test_the_state_of_a_sampler_without_what_its_batch_sampler_keeps_is_a_warning():
    with DataLoader(range(LENGTH), batch_sampler=Pairing(), seed=0) as loader:
        start = loader.state_dict()
        next(iter(loader))
        state = loader.state_dict()
    with DataLoader(range(LENGTH), batch_sampler=Pairing(), seed=0) as loader:
        loader.load_state_dict(start)
        with pytest.warns(
            RuntimeWarning, match=r"the state of this Pairing is that of its Drawn alone, so indices that"
        ):
            loader.load_state_dict(state)
    with DataLoader(range(LENGTH), 2, sampler=Drawn(), seed=0) as loader:
        next(iter(loader))
        loader.load_state_dict(loader.state_dict())
