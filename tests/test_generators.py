"""Batches of datasets that draw seldom or never: they need no seeds, and neither batches nor the program show it."""

import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import gluonloader as gl
from gluonloader.executors import generators
from gluonloader.executors.generators import CallersGenerators, ProcessGenerators
from gluonloader.randomness import batch_seed, preserved_generators, seed_generators, set_current_seed

pytestmark = pytest.mark.usefixtures("no_leaks")

LENGTH, DRAWS, RAISES = 300, (200, 201, 250), (260,)


@pytest.fixture(autouse=True)
def _own_state():
    with preserved_generators():
        yield
    set_current_seed(None)


def draw():
    return random.random(), float(np.random.randn()), random.gauss(0, 1)


def drawn(seed):
    """What a dataset draws in the batch with this seed."""
    with preserved_generators():
        seed_generators(seed)
        return draw()


class Seldom(gl.Dataset):
    """It begins to draw long after the first batches."""

    def __init__(self):
        self.reads = []

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        self.reads.append(index)
        if index in RAISES:
            raise ValueError(draw())
        return draw() if index in DRAWS else (0.0, 0.0, 0.0)


def test_a_dataset_that_draws_late_draws_from_the_batchs_seed(way):
    if way.name == "thread":
        pytest.skip("threads seed no global generators")
    with way.loader(Seldom(), 1) as loader:
        batches = iter(loader)
        for index in range(LENGTH):
            seed = batch_seed(0, 0, index)
            if index in RAISES:
                with pytest.raises(ValueError, match=str(drawn(seed)[0])):
                    next(batches)
                continue
            found = tuple(float(field[0]) for field in next(batches))
            assert found == (drawn(seed) if index in DRAWS else (0, 0, 0))


def test_a_batch_is_made_twice_once_at_most():
    dataset = Seldom()
    with gl.DataLoader(dataset, 1, seed=0) as loader:
        batches = iter(loader)
        for _ in range(250):
            next(batches)
    assert dataset.reads == [*range(201), 200, *range(201, 250)]


STEPS = {
    "uniform": lambda: float(np.random.random()),
    "normal": lambda: float(np.random.randn()),
    "python": random.random,
    "gauss": lambda: random.gauss(0, 1),
    "seed": lambda: (np.random.seed(7), random.seed(7)),
    "state": lambda: np.random.set_state(np.random.RandomState(8).get_state()),
}
MAKES = {
    "nothing": lambda: None,
    "rng": lambda: gl.get_rng().random(),
    "draws": draw,
    "one normal": lambda: float(np.random.randn()),
    "one gauss": lambda: random.gauss(0, 1),
    "own seed": lambda: (np.random.seed(3), draw()),
}


def run(makers, steps):
    """What the program draws, and what its batches are."""
    np.random.seed(1)
    random.seed(1)
    mine, batches = [], []
    for number, step in enumerate(steps):
        if step in STEPS:
            mine.append(STEPS[step]())
        elif makers is not None:
            batches.append(makers.run(number, MAKES[step]))
    return mine, batches


def seeded(step, number):
    with preserved_generators():
        seed_generators(number)
        set_current_seed(number)
        try:
            return MAKES[step]()
        finally:
            set_current_seed(None)


@example(1, ["nothing", "nothing", "normal", "one normal", "normal"])  # the second of the user's pair is to be given
@example(1, ["nothing", "nothing", "gauss", "one gauss", "gauss"])
@given(
    watched=st.integers(0, 3),
    steps=st.lists(st.sampled_from([*STEPS, *MAKES, "nothing", "nothing", "nothing"]), max_size=30),
)
def test_in_the_caller_batches_are_seeded_and_its_generators_left_alone(watched, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generators, "_WATCHED", watched)
        mine, batches = run(CallersGenerators(), steps)
    assert mine == run(None, steps)[0]
    assert batches == [seeded(step, number) for number, step in enumerate(steps) if step in MAKES]


@given(watched=st.integers(0, 3), steps=st.lists(st.sampled_from([*MAKES, "nothing", "nothing", "nothing"])))
def test_in_a_worker_process_batches_are_seeded(watched, steps):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generators, "_WATCHED", watched)
        _, batches = run(ProcessGenerators(), steps)
    set_current_seed(None)
    assert batches == [seeded(step, number) for number, step in enumerate(steps)]
