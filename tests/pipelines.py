"""Pipelines that are resumed, and whose batches are replayed, in this process and in fresh ones.

`python pipelines.py NAME` reads states as JSON from standard input, and writes for each way to run a loader what is
left after each state. `python pipelines.py` reads [[name, epoch, batch], ...], and writes each batch that `replay`
makes. All batches are text.
"""

import json
import random
import sys

import numpy as np

from gluonloader import (
    BatchSampler,
    BlockShuffleSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    ShardedSampler,
    Subset,
    SubsetSampler,
    WeightedSampler,
    get_rng,
)
from gluonloader.buckets import FixedBucketSampler, SortedBucketSampler, SplitSampler

LENGTH, SIZE, EPOCHS = 23, 4, 2

WAYS = {
    "serial": {},
    **{f"thread-{n}": {"num_workers": n, "thread_pool": True} for n in (1, 4)},
    **{f"process-{n}": {"num_workers": n, "prefetch": n + 1} for n in (1, 4)},
}


class Drawing(Dataset):
    """Sample i is i, and a random number of each generator that is seeded for a batch; in threads only `get_rng` is."""

    def __init__(self, everything=False):
        self.everything = everything
        self.held = [np.random.default_rng(), np.random.RandomState(), random.Random()]

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        sample = [index, get_rng().random()]
        if self.everything:
            sample += [np.random.random(), random.random(), *(generator.random() for generator in self.held)]
        return np.array(sample)


class Bulk(Drawing):
    def __getitems__(self, indices):
        return list(np.stack([indices, get_rng().random(len(indices))], axis=1))


class Named(Drawing):
    def __getitem__(self, index):
        return {"x": super().__getitem__(index), "name": str(index), "pair": (index, [np.full(3, index)])}


class Epochal:
    """A user's sampler that shuffles by the epoch that `set_epoch` sets."""

    epoch = seed = 0

    def __len__(self):
        return LENGTH

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(random.Random(self.seed + 1000 * self.epoch).sample(range(LENGTH), LENGTH))


class Fixed:
    """A user's sampler with the same order in every epoch."""

    def __len__(self):
        return LENGTH

    def __iter__(self):
        return iter(np.random.default_rng(5).permutation(LENGTH))


class Continuing:
    """A user's sampler with a state, which continues from epoch to epoch."""

    def __init__(self):
        self.random, self.drawn = random.Random(1), 0

    def __len__(self):
        return LENGTH

    def __iter__(self):
        for _ in range(LENGTH - self.drawn % LENGTH):
            self.drawn += 1
            yield self.random.randrange(LENGTH)

    def state_dict(self):
        return {"random": self.random.getstate(), "drawn": self.drawn}

    def load_state_dict(self, state):
        self.random.setstate(state["random"])
        self.drawn = state["drawn"]


def augment(sample):
    return np.append(sample, [np.random.normal(), random.gauss(0, 1), get_rng().normal()])


def mixed(samples):
    """A batchify function that draws."""
    return np.stack(samples) * get_rng().random() + get_rng().integers(10, size=len(samples))[:, None]


def stream():
    return (np.array([i, get_rng().random()]) for i in range(LENGTH))


LENGTHS = np.arange(LENGTH) * 7 % 20 + 1

PIPELINES = {
    "sequential": lambda way: DataLoader(Drawing(), SIZE, seed=1, **way),
    "shuffled": lambda way: DataLoader(Drawing(), SIZE, True, seed=2, **way),
    "globals": lambda way: DataLoader(Drawing(everything=True), SIZE, True, seed=2, **way),
    "rollover": lambda way: DataLoader(Drawing(), SIZE, True, last_batch="rollover", seed=3, **way),
    "discard": lambda way: DataLoader(Drawing(), SIZE, True, last_batch="discard", seed=3, **way),
    "bijection": lambda way: DataLoader(
        Drawing(), SIZE, sampler=RandomSampler(LENGTH, 3, "bijection"), last_batch="rollover", seed=3, **way
    ),
    "sharded": lambda way: DataLoader(
        Drawing(),
        SIZE,
        sampler=ShardedSampler(RandomSampler(LENGTH, 7), 2, 1, "drop"),
        last_batch="rollover",
        seed=7,
        **way,
    ),
    "weighted": lambda way: DataLoader(Drawing(), SIZE, sampler=WeightedSampler(LENGTHS, seed=4), seed=4, **way),
    "without_replacement": lambda way: DataLoader(
        Drawing(), SIZE, sampler=WeightedSampler(LENGTHS, 15, False, seed=4), last_batch="rollover", seed=4, **way
    ),
    "buckets": lambda way: DataLoader(
        Drawing(), batch_sampler=FixedBucketSampler(LENGTHS, SIZE, shuffle=True, seed=5), seed=5, **way
    ),
    "sorted_buckets": lambda way: DataLoader(
        Drawing(), batch_sampler=SortedBucketSampler(LENGTHS, SIZE, 3, shuffle=True, seed=5), seed=5, **way
    ),
    "blocks": lambda way: DataLoader(
        Drawing(), SIZE, sampler=BlockShuffleSampler.of_size(LENGTH, 5, 2, seed=5), seed=5, **way
    ),
    "split": lambda way: DataLoader(Drawing(), SIZE, sampler=SplitSampler(LENGTH, 2, 1, seed=5), seed=5, **way),
    "subset": lambda way: DataLoader(Subset(Drawing(), range(20, 3, -1)), SIZE, True, seed=5, **way),
    "subset_sampler": lambda way: DataLoader(
        Drawing(), batch_sampler=BatchSampler(SubsetSampler(LENGTHS, True, 5), 5, "rollover"), seed=5, **way
    ),
    "transform": lambda way: DataLoader(Drawing().transform(augment), SIZE, True, seed=6, **way),
    "batchify": lambda way: DataLoader(Drawing(), SIZE, True, batchify_fn=mixed, seed=6, **way),
    "bulk": lambda way: DataLoader(Bulk(), SIZE, True, seed=6, **way),
    "dict": lambda way: DataLoader(Named(), SIZE, True, seed=6, **way),
    "batch_sampler": lambda way: DataLoader(
        Drawing(), batch_sampler=BatchSampler(RandomSampler(LENGTH, seed=5), 3), seed=5, **way
    ),
    "list": lambda way: DataLoader(Drawing(), batch_sampler=[[3, 1], [2], [0, 4, 5]] * 2, seed=6, **way),
    "epochal": lambda way: DataLoader(Drawing(), SIZE, sampler=Epochal(), last_batch="rollover", seed=6, **way),
    "fixed": lambda way: DataLoader(Drawing(), SIZE, sampler=Fixed(), last_batch="rollover", seed=6, **way),
    "continuing": lambda way: DataLoader(Drawing(), SIZE, sampler=Continuing(), last_batch="rollover", seed=6, **way),
    "iterable": lambda way: DataLoader(IterableDataset(stream, num_shards=3), SIZE, seed=8, **way),
    "iterable_rollover": lambda way: DataLoader(
        IterableDataset(stream, shuffle_buffer=6, num_shards=2), SIZE, True, last_batch="rollover", seed=8, **way
    ),
}
ONLY_SERIAL_OR_PROCESSES = {"globals", "transform"}  # threads do not seed the global generators


def text(batch):
    """A batch as text, bit for bit."""
    if isinstance(batch, dict):
        return "".join(f"{key}: {text(value)}; " for key, value in batch.items())
    if isinstance(batch, (list, tuple)):
        return f"{type(batch).__name__}({', '.join(map(text, batch))})"
    return batch.tobytes().hex() if isinstance(batch, np.ndarray) else repr(batch)


def rest(loader):
    """What is left of the epoch that is under way, and the next epochs."""
    return [[text(batch) for batch in loader] for _ in range(EPOCHS)]


def resumed(name, states):
    found = {}
    for way, arguments in WAYS.items():
        found[way] = []
        for state in states:
            with PIPELINES[name](arguments) as loader:
                loader.load_state_dict(state)
                found[way].append(rest(loader))
    return found


def replayed(places):
    loaders = {name: make({}) for name, make in PIPELINES.items()}
    return [text(loaders[name].replay(epoch, batch, read=True)) for name, epoch, batch in places]


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    json.dump(resumed(sys.argv[1], asked) if len(sys.argv) > 1 else replayed(asked), sys.stdout)
