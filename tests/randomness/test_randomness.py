"""Randomness: seeds without collisions, generators that belong to their batch, and the user's state put back."""

import random
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluonloader import get_rng, randomness
from gluonloader.randomness import (
    PreservedGenerators,
    batch_seed,
    draw_seed,
    seed_generators,
    set_current_seed,
    state_of_generators,
)

seeds = st.integers(0, 2**64 - 1)


@pytest.fixture(autouse=True)
def _own_state():
    with PreservedGenerators():
        yield
    set_current_seed(None)


def drawn():
    return random.random(), float(np.random.random()), int(np.random.randint(2**31))


def test_batch_seeds_do_not_collide_over_a_grid():
    grid = [(seed, epoch, batch) for seed in (0, 1, 2, 2**63) for epoch in range(30) for batch in range(300)]
    assert len({batch_seed(*point) for point in grid}) == len(grid)


@given(seeds, seeds, seeds)
def test_batch_seeds_are_64_bit_and_depend_on_each_part_in_its_place(seed, epoch, batch):
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


def test_draw_seed_follows_numpys_seed():
    np.random.seed(3)
    one, other = draw_seed(), draw_seed()
    np.random.seed(3)
    assert draw_seed() == one != other
    assert type(one) is int
    assert 0 <= one < 2**63


@given(seeds, seeds)
def test_seed_generators_determines_python_and_numpy(seed, other):
    seed_generators(seed)
    first = drawn()
    seed_generators(other)
    different = drawn()
    seed_generators(seed)
    assert drawn() == first
    assert (different == first) == (seed == other)


@given(seeds)
def test_seeds_make_the_same_states_where_they_cannot_be_written_in_place(seed):
    def states():
        random.gauss(0, 1), np.random.randn()
        seed_generators(seed)
        return random.getstate(), repr(np.random.get_state())

    expected = states()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomness, "_PYTHON_BYTES", None)
        assert states() == expected


@given(seeds)
def test_the_two_generators_have_streams_of_their_own(seed):
    seed_generators(seed)
    assert random.random() != np.random.random() or seed >> 32 == seed & 0xFFFF_FFFF


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(
    "draw", [random.random, lambda: random.gauss(0, 1), lambda: random.getrandbits(1), np.random.rand, np.random.randn]
)
def test_the_state_of_generators_is_equal_until_something_is_drawn(draw, in_place, monkeypatch):
    if not in_place:
        monkeypatch.setattr(randomness, "_PYTHON_BYTES", None)
    random.gauss(0, 1)  # whose second variate is forgotten with the seed
    seed_generators(5)
    before = state_of_generators()
    assert state_of_generators() == before
    for _ in range(3):
        draw()
        assert state_of_generators() != before
    seed_generators(5)
    assert state_of_generators() == before


def test_preserved_generators_puts_the_state_back():
    seed_generators(1)
    np.random.standard_normal()  # leaves a second normal number in the state
    python, numpy = random.getstate(), np.random.get_state()
    with PreservedGenerators():
        seed_generators(99)
        drawn()
    assert random.getstate() == python
    assert repr(np.random.get_state()) == repr(numpy)


def test_preserved_generators_puts_the_state_back_after_an_error():
    seed_generators(1)
    expected = drawn()
    seed_generators(1)

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


def test_get_rng_does_not_depend_on_global_generators():
    set_current_seed(5)
    expected = get_rng().random()
    seed_generators(1234)
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


def test_the_current_seed_is_the_threads_own():
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
