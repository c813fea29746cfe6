"""Batches that the caller makes itself: which generators are seeded, and that its own numbers stay as they are."""

import os
import random
import signal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gluonloader import DataLoader, IterableDataset
from gluonloader.options import Seed
from gluonloader.randomness import (
    PreservedGenerators,
    batch_seed,
    current_batch,
    get_rng,
    seed_restorable,
    set_current_seed,
)

PROGRAMS = int(os.environ.get("GLUONLOADER_PROGRAMS", "100"))
SEED, EPOCHS = 3, 2

DRAWS = {
    "nothing": lambda: 0,
    "random": random.random,
    "gauss": lambda: random.gauss(0, 1),
    "many": lambda: random.randbytes(4 * 624).hex(),  # afterwards, the index of the next word is the same
    "numpy": np.random.random,
    "normal": np.random.standard_normal,  # every second one was drawn before
    "bytes": lambda: np.random.bytes(4 * 624).hex(),
    "seed": lambda: (random.seed(5), np.random.seed(6), random.random(), np.random.random())[2:],
    "get_rng": lambda: get_rng().random(),
}
try:
    import torch
except ImportError:
    pass
else:
    DRAWS |= {"torch": lambda: torch.rand(()).item(), "its seed": lambda: torch.initial_seed()}

draws = st.sampled_from(sorted(DRAWS))
rare = st.one_of(st.just("nothing"), draws)
of_caller = st.sampled_from(sorted(DRAWS.keys() - {"get_rng", "seed"}))


class Drawing:
    """Sample `i` is `i` and what the draws of `steps[i]` return; `reads` counts the reads."""

    def __init__(self, steps):
        self.steps, self.reads = steps, 0

    def __len__(self):
        return len(self.steps)

    def __getitem__(self, index):
        self.reads += 1
        return index, [DRAWS[name]() for name in self.steps[index]]


def expected_batches(dataset, size, of_batch):
    """The batches as a worker makes them: all generators are seeded for each."""
    batches = []
    with PreservedGenerators():
        for epoch in range(EPOCHS):
            for number, start in enumerate(range(0, len(dataset), size)):
                seed_restorable(batch_seed(SEED, epoch, number))
                batches.append(as_a_batch(dataset, range(start, min(start + size, len(dataset))), of_batch))
        set_current_seed(None)
    return batches


def as_a_batch(dataset, indices, of_batch):
    samples = []
    for row, index in enumerate(indices):
        current_batch().row = row
        samples.append(dataset[index])
    current_batch().row = None
    return samples, DRAWS[of_batch]()


@settings(max_examples=PROGRAMS)
@given(
    steps=st.lists(st.lists(rare, max_size=2), min_size=1, max_size=12),
    size=st.integers(1, 4),
    of_batch=rare,
    between=st.lists(of_caller, min_size=1, max_size=3),
)
def test_batches_equal_those_of_workers_and_the_numbers_of_the_caller_stay_its_own(steps, size, of_batch, between):
    def own_draws(batches):
        """What the caller draws after each batch."""
        seed_restorable(11)
        set_current_seed(None)
        return [[DRAWS[name]() for name in between] for _ in batches]

    dataset, made = Drawing(steps), []
    expected = expected_batches(dataset, size, of_batch)
    with DataLoader(dataset, size, seed=SEED, batchify_fn=lambda samples: (samples, DRAWS[of_batch]())) as loader:
        own = own_draws(made.append(batch) for _ in range(EPOCHS) for batch in loader)
    assert own == own_draws(expected)
    assert made == expected


class Late(Drawing):
    """Only sample 5 draws."""

    def __init__(self, draw):
        super().__init__([["nothing"]] * 5 + [[draw]] + [["nothing"]] * 2)


@pytest.mark.parametrize("draw", ["random", "normal"])
def test_a_batch_is_made_again_once_if_it_is_the_first_to_draw(draw):
    dataset = Late(draw)
    with DataLoader(dataset, 2, seed=SEED, batchify_fn=list) as loader:
        first, second = list(loader), list(loader)
    assert dataset.reads == 2 * len(dataset) + 2
    assert [batch[0][0] for batch in first] == [0, 2, 4, 6]
    assert first[2] != second[2]


def test_no_batch_is_made_again_if_the_first_one_draws():
    dataset = Drawing([["random", "numpy"]] + [["nothing"], ["numpy"], ["random"]])
    with DataLoader(dataset, 1, seed=SEED, batchify_fn=list) as loader:
        list(loader)
    assert dataset.reads == len(dataset)


def test_an_error_that_depends_on_a_missed_draw_is_that_of_the_batch_made_again():
    class Failing(Late):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            if sample[1] != [0]:
                raise ValueError(str(sample[1]))
            return sample

    texts = []
    for workers in (0, 1):
        with (
            DataLoader(Failing("random"), 2, num_workers=workers, seed=SEED, batchify_fn=list) as loader,
            pytest.raises(ValueError, match="0[.]") as raised,
        ):
            list(loader)
        texts.append(str(raised.value))
    assert texts[0] == texts[1]


class Stream:
    """It draws only for its last sample."""

    def __init__(self):
        self.reads = 0

    def __iter__(self):
        for index in range(8):
            self.reads += 1
            yield index, [DRAWS["random"]() if index == 7 else 0]


def held(dataset):
    dataset.rng = np.random.default_rng(0)
    return dataset


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        pytest.param(Stream, {}, id="an iterable dataset"),
        pytest.param(lambda: Late("random"), {"on_error": "skip"}, id="on_error"),
        pytest.param(lambda: held(Late("random")), {}, id="a generator that the dataset holds"),
        pytest.param(
            lambda: held(Late("random")), {"seed": Seed(SEED, reseed_generators=False)}, id="one that is not seeded"
        ),
    ],
)
def test_what_cannot_be_read_twice_is_read_once(make, arguments):
    arguments = {"batchify_fn": list, "seed": SEED, **arguments}
    dataset = make()
    with DataLoader(as_source(dataset), 2, **arguments) as loader:
        batches = list(loader)
    assert dataset.reads == 8
    with DataLoader(as_source(make()), 2, num_workers=1, **arguments) as loader:
        assert list(loader) == batches


def as_source(dataset):
    return IterableDataset(dataset) if isinstance(dataset, Stream) else dataset


def test_a_worker_init_fn_that_seeds_leaves_the_numbers_of_the_caller():
    def init(worker):
        random.seed(5)
        np.random.seed(5)

    random.seed(1)
    np.random.seed(1)
    expected = random.random(), np.random.rand()
    random.seed(1)
    np.random.seed(1)
    assert len(list(DataLoader(range(4), 2, seed=3, worker_init_fn=init))) == 2
    assert (random.random(), np.random.rand()) == expected


class Alarm(Exception):
    """What the signal handler of a program raises."""


@pytest.fixture(params=[KeyboardInterrupt, Alarm])
def interrupt(request):
    """A signal whose handler raises this, and what it raises."""

    def handle(number, frame):
        raise request.param

    before = signal.signal(signal.SIGALRM, handle)
    yield request.param
    signal.signal(signal.SIGALRM, before)


def test_a_batch_that_a_handler_interrupts_leaves_the_numbers_of_the_caller(interrupt):
    class Interrupted(Late):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            if index == 5 and self.reads == 6:
                signal.raise_signal(signal.SIGALRM)
            return sample

    with DataLoader(Interrupted("numpy"), 2, seed=SEED, batchify_fn=list) as loader, PreservedGenerators():
        np.random.seed(1)
        iterator = iter(loader)
        made = [next(iterator), next(iterator)]
        with pytest.raises(interrupt):
            next(iterator)
        drawn = np.random.random()
        np.random.seed(1)
        assert drawn == np.random.random()
        made += list(iterator)
    with DataLoader(Late("numpy"), 2, seed=SEED, batchify_fn=list) as loader:
        assert made == list(loader)
