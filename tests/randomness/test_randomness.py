"""Randomness: seeds without collisions, generators seeded for each batch, and the user's generators restored."""

import random
import sys
import threading
import types

import numpy as np
import pytest
from conftest import run_program
from hypothesis import given
from hypothesis import strategies as st

from gluonloader import DataLoader, RandomSampler, get_rng, random_split
from gluonloader.randomness import (
    PreservedGenerators,
    batch_seed,
    checked_seed,
    seed_all,
    set_current_seed,
)
from gluonloader.randomness import numpy as numpy_generator
from gluonloader.randomness import python as python_generator
from gluonloader.randomness import torch as torch_generator

seeds = st.integers(0, 2**64 - 1)


@pytest.fixture(autouse=True)
def _own_state():
    with PreservedGenerators():
        yield
    set_current_seed(None)


def of_python():
    return python_generator, random.random, lambda: random.gauss(0, 1)


def of_numpy():
    return numpy_generator, np.random.random, np.random.randn


def of_torch():
    torch = pytest.importorskip("torch")
    return torch_generator, lambda: torch.rand(1).item(), lambda: torch.randn(1).item()


GENERATORS = {"python": of_python, "numpy": of_numpy, "torch": of_torch}


def drawn():
    return random.random(), float(np.random.random()), int(np.random.randint(2**31))


def test_batch_seeds_do_not_collide_over_a_grid():
    grid = [(seed, epoch, batch) for seed in (0, 1, 2, 2**63) for epoch in range(30) for batch in range(300)]
    assert len({batch_seed(*point) for point in grid}) == len(grid)


@given(seeds, seeds, seeds)
def test_batch_seeds_are_64_bit_and_depend_on_each_argument_and_its_place(seed, epoch, batch):
    one = batch_seed(seed, epoch, batch)
    assert type(one) is int
    assert 0 <= one < 2**64
    assert one == batch_seed(seed, epoch, batch)
    assert one != batch_seed(seed, epoch, batch ^ 1)
    assert one != batch_seed(seed, epoch ^ 1, batch)
    assert one != batch_seed(seed ^ 1, epoch, batch)
    if epoch != batch:
        assert one != batch_seed(seed, batch, epoch)


def test_batch_seeds_of_neighbours_have_no_bits_in_common_beyond_chance():
    values = [batch_seed(0, 0, batch) for batch in range(500)]
    differing = [bin(a ^ b).count("1") for a, b in zip(values, values[1:], strict=False)]
    assert 30 < sum(differing) / len(differing) < 34


@given(st.integers(-(2**62), -1))
def test_batch_seed_takes_negative_seeds(seed):
    assert 0 <= batch_seed(seed, 0) < 2**64
    assert batch_seed(seed, 0) != batch_seed(-seed, 0)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1, 2**70])
def test_a_seed_of_more_than_64_bits_is_refused_with_one_that_has_the_same_effect(seed):
    text = rf"seed={seed}: must be an int from -2\*\*63 to 2\*\*64 - 1; pass seed % 2\*\*64"
    for use in (lambda seed: DataLoader(range(9), 2, seed=seed), lambda seed: RandomSampler(9, seed)):
        with pytest.raises(ValueError, match=text):
            use(seed)
    with pytest.raises(ValueError, match=text):
        random_split(range(9), [0.5, 0.5], seed)
    assert batch_seed(seed % 2**64, 1) == batch_seed(seed, 1)


def test_a_drawn_seed_follows_numpys_seed():
    np.random.seed(3)
    one, other = checked_seed(None), checked_seed(None)
    np.random.seed(3)
    assert checked_seed(None) == one != other
    assert type(one) is int
    assert 0 <= one < 2**63


@pytest.mark.parametrize("seed", [0, 5, 5 << 32 | 5, 2**64 - 1])
def test_python_and_numpy_draw_different_numbers(seed):
    seed_all(seed)
    assert random.random() != np.random.random()


@given(seeds, seeds, st.booleans(), st.booleans())
def test_a_seed_determines_the_whole_state(seed, other, kept, drawn_before):
    def states():
        seed_all(seed)
        return random.getstate(), repr(np.random.get_state())

    expected, first = states(), drawn()
    seed_all(other)
    assert (drawn() == first) == (seed == other)
    if kept:
        random.gauss(0, 1), np.random.randn()
    if drawn_before:
        drawn()
    assert states() == expected


@pytest.mark.parametrize("generator", GENERATORS)
@given(seed=seeds, other=seeds, draws=st.integers(0, 5))
def test_each_generator_is_seeded_saved_and_restored(generator, seed, other, draws):
    module, draw, draw_normal = GENERATORS[generator]()
    module.seed(seed)
    for _ in range(draws):
        draw_normal()
    expected = [draw_normal(), draw(), draw_normal()]
    module.seed(seed)
    for _ in range(draws):
        draw_normal()
    state = module.save()
    module.seed(other)
    draw_normal()
    module.restore(state)
    assert [draw_normal(), draw(), draw_normal()] == expected


@pytest.mark.parametrize("seed", [5, 2**63, 2**64 - 1])
def test_torch_gets_a_seed_that_fits_into_a_batch_of_int64(seed):
    torch = pytest.importorskip("torch")
    with PreservedGenerators():
        seed_all(seed)
        assert torch.tensor(torch.initial_seed()).item() == seed % 2**63


def test_a_generator_whose_package_is_not_loaded_is_left_alone(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "mxnet.random", raising=False)
    with PreservedGenerators():
        seed_all(1)
    assert "torch" not in sys.modules


def test_a_torch_that_another_thread_is_still_importing_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    with PreservedGenerators():
        seed_all(1)


@pytest.mark.skipif(not hasattr(np.random, "set_bit_generator"), reason="NumPy 1.24")
@pytest.mark.parametrize("kept", [False, True])
def test_a_bit_generator_that_a_batch_replaces_is_restored(kept):
    np.random.seed(3)
    if kept:
        np.random.standard_normal()
    state, generator = repr(np.random.get_state()), np.random.get_bit_generator()
    with PreservedGenerators():
        np.random.set_bit_generator(np.random.PCG64(4))
        np.random.random()
    assert np.random.get_bit_generator() is generator
    assert repr(np.random.get_state()) == state


@pytest.mark.skipif(not hasattr(np.random, "set_bit_generator"), reason="NumPy 1.24")
def test_a_bit_generator_of_another_kind_is_restored():
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(4))
    try:
        with PreservedGenerators():
            first = np.random.random()
        assert np.random.random() == first
    finally:
        np.random.set_bit_generator(before)


STATE_ELSEWHERE = """
import random

class Elsewhere(random.Random):
    '''The functions of `random` are those of another generator.'''

    def __init__(self, seed=None):
        super().__init__(7)  # its own memory has another state
        self.other = Usual(seed)

    def random(self):
        return self.other.random()

    def getstate(self):
        return self.other.getstate()

    def setstate(self, state):
        self.other.setstate(state)

Usual, random.Random = random.Random, Elsewhere
generator = Elsewhere(1)
random.random, random.getstate, random.setstate = generator.random, generator.getstate, generator.setstate

from gluonloader.randomness import PreservedGenerators

before = random.getstate()
with PreservedGenerators():
    random.random()
print(random.getstate() == before)
"""


@pytest.mark.spawn
def test_a_generator_of_python_that_keeps_its_state_elsewhere_is_restored():
    done = run_program(STATE_ELSEWHERE)
    assert done.stdout == "True\n", done.stderr


def test_the_state_is_restored_after_an_error():
    seed_all(1)
    expected = drawn()
    seed_all(1)

    def fail():
        with PreservedGenerators():
            drawn()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert drawn() == expected


def test_get_rng_is_one_generator_within_a_batch():
    set_current_seed(5)
    rng = get_rng()
    numbers = rng.random(3).tolist()
    assert get_rng() is rng
    set_current_seed(5)
    assert get_rng() is not rng
    assert get_rng().random(3).tolist() == numbers
    set_current_seed(6)
    assert get_rng().random(3).tolist() != numbers


@pytest.mark.parametrize("concurrency", [1, 3])
def test_get_rng_draws_other_numbers_for_each_sample(concurrency):
    loader = DataLoader(Draws(), 8, seed=0, concurrency=concurrency)
    batches = np.concatenate([batch for _ in range(2) for batch in loader])
    assert batches.shape == (32, 2)
    assert len(np.unique(batches)) == batches.size


class Draws:
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return np.array([get_rng().random(), get_rng().random()])


def test_get_rng_does_not_depend_on_global_generators():
    set_current_seed(5)
    expected = get_rng().random()
    seed_all(1234)
    set_current_seed(5)
    assert get_rng().random() == expected


def test_get_rng_outside_of_a_batch_is_new_and_follows_numpys_seed():
    set_current_seed(None)
    np.random.seed(0)
    one, other = get_rng(), get_rng()
    numbers = one.random(), other.random()
    assert one is not other
    assert numbers[0] != numbers[1]
    np.random.seed(0)
    assert (get_rng().random(), get_rng().random()) == numbers


def test_a_batch_inside_a_batch_leaves_the_outer_one_its_generator():
    set_current_seed(5)
    rng = get_rng()
    with PreservedGenerators():
        seed_all(6)
        assert get_rng() is not rng
    assert get_rng() is rng


def test_each_thread_has_its_own_current_seed():
    set_current_seed(5)
    mine, seen = get_rng(), []

    def other():
        seen.append(get_rng())
        set_current_seed(5)
        seen.append(get_rng())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert mine not in seen
    assert get_rng() is mine
    assert seen[1].random() == mine.random()


DRAWS = {
    "uniform": lambda: np.random.random(),
    "normal": lambda: np.random.randn(),  # keeps a second one for the next call
    "many": lambda: np.random.bytes(3000).hex(),
    "python": lambda: random.gauss(0, 1),
}
CHANGES = {
    "seed": lambda: np.random.seed(7),
    "set_state": lambda: np.random.set_state(np.random.RandomState(8).get_state()),
}
if hasattr(np.random, "set_bit_generator"):  # NumPy 1.24
    CHANGES["replace"] = lambda: np.random.set_bit_generator(np.random.MT19937(9))


@given(steps=st.lists(st.sampled_from(["batch", *DRAWS, *CHANGES]), max_size=25))
def test_batches_in_the_caller_leave_its_generators_alone(steps):
    def run(batch):
        np.random.seed(1)
        random.seed(1)
        drawn = []
        for step in steps:
            if step == "batch":
                batch()
            elif step in CHANGES:
                CHANGES[step]()
            else:
                drawn.append(DRAWS[step]())
        return drawn

    def batch():
        with PreservedGenerators():
            np.random.seed(5)
            np.random.randn(3)
            random.gauss(0, 1)

    assert run(batch) == run(lambda: None)
