"""Pipelines whose rest is compared after a resume, in this process and in fresh ones: `python pipelines.py NAME`.

Reads states as JSON from standard input, and writes for each way to run a loader what is left after each state.
"""

import json
import sys

import numpy as np

from gluonloader import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    ShardedSampler,
    WeightedSampler,
    get_rng,
)

LENGTH, SIZE, EPOCHS = 23, 4, 2

WAYS = {
    "serial": {},
    **{f"thread-{n}": {"num_workers": n, "thread_pool": True} for n in (1, 2, 4)},
    **{f"process-{n}": {"num_workers": n, "prefetch": n + 1} for n in (1, 2, 4)},
}


class Augmented:
    """Sample i is i, and a random number of the batch's own."""

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        return index, get_rng().random()


def stream():
    """The same samples, from a generator."""
    return (Augmented()[i] for i in range(LENGTH))


class Foreign:
    """A sampler that can only be iterated."""

    def __len__(self):
        return LENGTH

    def __iter__(self):
        return iter(np.random.default_rng(5).permutation(LENGTH))


class Stateful:
    """A sampler that keeps its own state, as other libraries have them: no two of its passes are alike."""

    def __init__(self):
        self.drawn = 0

    def __len__(self):
        return LENGTH

    def __iter__(self):
        left = LENGTH - self.drawn % LENGTH
        for _ in range(left):
            index = self.drawn * 7 % 101 % LENGTH
            self.drawn += 1
            yield index

    def state_dict(self):
        return {"drawn": self.drawn}

    def load_state_dict(self, state):
        self.drawn = state["drawn"]


WEIGHTS = np.arange(1, LENGTH + 1)

PIPELINES = {
    "sequential": lambda way: DataLoader(Augmented(), SIZE, seed=1, **way),
    "shuffled": lambda way: DataLoader(Augmented(), SIZE, True, seed=2, **way),
    "bijection": lambda way: DataLoader(
        Augmented(), SIZE, sampler=RandomSampler(LENGTH, seed=3, method="bijection"), seed=3, **way
    ),
    "discard": lambda way: DataLoader(Augmented(), SIZE, True, last_batch="discard", seed=2, **way),
    "rollover": lambda way: DataLoader(Augmented(), SIZE, True, last_batch="rollover", seed=3, **way),
    "weighted": lambda way: DataLoader(Augmented(), SIZE, sampler=WeightedSampler(WEIGHTS, seed=4), seed=4, **way),
    "batch_sampler": lambda way: DataLoader(
        Augmented(), batch_sampler=BatchSampler(RandomSampler(LENGTH, seed=5), 3), seed=5, **way
    ),
    "list": lambda way: DataLoader(Augmented(), batch_sampler=[[3, 1], [2], [0, 4, 5]], seed=5, **way),
    "foreign": lambda way: DataLoader(Augmented(), SIZE, sampler=Foreign(), seed=6, **way),
    "stateful": lambda way: DataLoader(Augmented(), SIZE, sampler=Stateful(), last_batch="rollover", seed=6, **way),
    "sharded": lambda way: DataLoader(
        Augmented(), SIZE, sampler=ShardedSampler(RandomSampler(LENGTH, seed=7), 2, 1), seed=7, **way
    ),
    "iterable": lambda way: DataLoader(IterableDataset(stream, num_shards=3), SIZE, seed=8, **way),
    "iterable-rollover": lambda way: DataLoader(
        IterableDataset(stream, num_shards=3), SIZE, last_batch="rollover", seed=8, **way
    ),
    "iterable-shuffled": lambda way: DataLoader(
        IterableDataset(stream, shuffle_buffer=6, num_shards=2), 2, True, seed=9, **way
    ),
}


def plain(batch):
    """A batch as text, bit for bit."""
    return [array.tobytes().hex() for array in batch]


def rest(loader, epochs):
    """What the epochs give that are left, the one that is under way first."""
    return [[plain(batch) for batch in loader] for _ in range(epochs)]


def main():
    states = json.load(sys.stdin)
    found = {}
    for name, way in WAYS.items():
        found[name] = []
        for state in states:
            with PIPELINES[sys.argv[1]](way) as loader:
                loader.load_state_dict(state)
                found[name].append(rest(loader, EPOCHS))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
