"""Random programs of ranks that share their workers: batches and states are those of ranks with workers of their own.

A program has two runs: several ranks read some batches, and other numbers of ranks continue from the merged states. The
program without `share` uses a random executor. The state of an iterable dataset also says which shards are known to
have ended, which depends on time, so only its effect is compared.
"""

import os
import random
from itertools import islice

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD
from sharing import new_name, over_ranks

import gluonloader as gl

pytestmark = [
    pytest.mark.soak,
    pytest.mark.numpy_only,
    pytest.mark.filterwarnings("ignore:resuming"),
    pytest.mark.filterwarnings("ignore:last_batch='discard' drops"),
]
PROGRAMS = range(int(os.environ.get("GLUONLOADER_RANKS", 5)))


class Drawn:
    """Each sample is its index and random numbers, also of a generator that it holds unless threads share it."""

    def __init__(self, length, held):
        self.length, self.held = length, np.random.default_rng(0) if held else gl.get_rng

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        held = self.held() if callable(self.held) else self.held
        return np.array([index, gl.get_rng().integers(1 << 30), held.integers(1 << 30)])


class DrawnShards:
    def __init__(self, lengths):
        self.lengths = lengths

    def __iter__(self):
        raise AssertionError("the whole dataset is not read")

    def shard(self, num_shards, index):
        assert num_shards == len(self.lengths)
        for number in range(self.lengths[index]):
            yield np.array([1000 * index + number, gl.get_rng().integers(1 << 30)])


class Program:
    """What all ranks of a program pass, drawn at random."""

    def __init__(self, number):
        rng = random.Random(number)
        self.runs = rng.randint(1, 8), rng.randint(1, 8)
        self.batches = rng.randint(0, 6)
        self.way = rng.choice([SERIAL, THREAD, FORK])
        self.arguments = {"batch_size": rng.randint(1, 5), "shuffle": rng.random() < 0.7, "seed": number}
        if rng.random() < 0.4:
            lengths = [rng.choice([0, 1, 5, 12, 30]) for _ in range(rng.randint(8, 10))]
            self.dataset = gl.IterableDataset(DrawnShards(lengths), num_shards=len(lengths))
            self.policy = "uneven"
        else:
            self.dataset = Drawn(rng.choice([9, 60, 200]), held=self.way != THREAD)
            self.policy = rng.choice(["uneven", "drop", "repeat"])
            self.arguments["last_batch"] = rng.choice(["keep", "discard"])
        self.shared = {"num_workers": rng.randint(1, 3), "prefetch": rng.choice([None, 1, 3])}
        self.is_function = isinstance(self.dataset, Drawn) and rng.random() < 0.3

    def loader(self, rank, count, name):
        ranks = gl.Ranks(rank, count, self.policy, share=name)
        if name is None:
            return self.way.loader(self.dataset, ranks=ranks, **self.arguments)
        dataset = (lambda: self.dataset) if self.is_function else self.dataset
        options = {"ranks": ranks, "timeout": 60, **self.arguments, **self.shared}
        return gl.DataLoader(dataset, **options)

    def start(self, rank, name):
        with self.loader(rank, self.runs[0], name) as loader:
            batches = [batch.tolist() for batch in islice(loader, self.batches)]
            return batches, loader.state_dict()

    def go_on(self, rank, name, state):
        with self.loader(rank, self.runs[1], name) as loader:
            loader.load_state_dict(state)
            rest = [batch.tolist() for batch in loader]
            return rest, [batch.tolist() for batch in loader], loader.state_dict()


@pytest.mark.parametrize("number", PROGRAMS)
def test_sharing_changes_nothing(number):
    program = Program(number)
    name = new_name()
    has_indices = isinstance(program.dataset, Drawn)
    started = over_ranks(program.runs[0], program.start, name)
    own = over_ranks(program.runs[0], program.start, None)
    assert started == own if has_indices else [batches for batches, _ in started] == [batches for batches, _ in own]
    if len({len(batches) for batches, _ in started}) > 1 and has_indices:
        return  # some ranks have reached the end of the epoch, and others not: their states cannot be merged
    states = [state for _, state in started]
    state = gl.merge_states(states) if "ranks" in states[0] else states[0]
    ends = over_ranks(program.runs[1], program.go_on, new_name(), state)
    own_ends = over_ranks(program.runs[1], program.go_on, None, state)
    assert [end[:2] for end in ends] == [end[:2] for end in own_ends]
    assert not has_indices or ends == own_ends
