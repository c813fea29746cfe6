"""The samplers whose orders are golden, and how their keys are drawn.

`python tests/golden/samplers.py` writes orders.json. Run it only if an order is meant to change, and say so in the
changelog.
"""

import hashlib
import json
from itertools import islice
from pathlib import Path

import numpy as np

from gluonloader import (
    BatchSampler,
    BlockShuffleSampler,
    DataLoader,
    FilterSampler,
    IntervalSampler,
    MixtureSampler,
    RandomSampler,
    SequentialSampler,
    SubsetSampler,
    WeightedSampler,
)
from gluonloader.buckets import ExpWidthBucket, FixedBucketSampler, SortedBucketSampler, SortedSampler, SplitSampler
from gluonloader.text import PackingSampler, TokenBatchSampler

FILE = Path(__file__).with_name("orders.json")
LENGTH, SIZE, KEYS, READ = 300, 7, 200, 3  # READ batches come before a resume
RANKS = ((0, 1), (0, 2), (1, 2), (2, 3))
SEEDS = (0, 20_261_126)
EPOCHS = (0, 2)


def lengths_of(n):
    return np.arange(n) * 37 % 101 + 1


def weights_of(n):
    return np.arange(n) % 9 + 1


def mixture(n, seed, **arguments):
    return MixtureSampler([n // 3, n // 2, n - n // 2 - n // 3], [0.5, 0.2, 0.3], seed=seed, **arguments)


# Of n samples; sampler/test_sampler_passes.py uses these, too.
SAMPLERS = {
    "sequential": lambda n, seed: SequentialSampler(n),
    "random": lambda n, seed: RandomSampler(n, seed=seed),
    "bijection": lambda n, seed: RandomSampler(n, seed=seed, method="bijection"),
    "subset": lambda n, seed: SubsetSampler(np.arange(n)[::-1], seed=seed),
    "subset, shuffled": lambda n, seed: SubsetSampler(np.arange(0, n, 2), shuffle=True, seed=seed),
    "blocks": lambda n, seed: BlockShuffleSampler.of_size(n, 16, buffer=3, seed=seed),
    "blocks of different lengths": lambda n, seed: BlockShuffleSampler(
        [n // 3, n // 30, 3 * n // 10, n // 6, n - n // 3 - n // 30 - 3 * n // 10 - n // 6], buffer=2, seed=seed
    ),
    "weighted": lambda n, seed: WeightedSampler(weights_of(n), seed=seed),
    "weighted, without replacement": lambda n, seed: WeightedSampler(weights_of(n), replacement=False, seed=seed),
    "weighted, fewer samples": lambda n, seed: WeightedSampler(weights_of(n), 2 * n // 5, seed=seed),
    "mixture": mixture,
    "mixture, until all end": lambda n, seed: mixture(n, seed, stop="all"),
    "mixture of two samplers": lambda n, seed: MixtureSampler(
        [2 * n // 3, n - 2 * n // 3],
        [0.7, 0.3],
        samplers=[SequentialSampler(2 * n // 3), RandomSampler(n - 2 * n // 3, seed=1)],
        seed=seed,
    ),
    "interval": lambda n, seed: IntervalSampler(n, 7),
    "filter": lambda n, seed: FilterSampler(lambda sample: sample % 3, list(range(n))),
    "sorted": lambda n, seed: SortedSampler(lengths_of(n).tolist()),
    "split": lambda n, seed: SplitSampler(n, 2, 1, repeat=2, seed=seed),
}
LENGTHS = lengths_of(LENGTH)
BATCH_SAMPLERS = {
    "rollover": lambda seed: BatchSampler(RandomSampler(LENGTH, seed=seed), SIZE, "rollover"),
    "discard": lambda seed: BatchSampler(WeightedSampler(weights_of(LENGTH), seed=seed), SIZE, "discard"),
    "fixed buckets": lambda seed: FixedBucketSampler(LENGTHS.tolist(), SIZE, ratio=0.5, shuffle=True, seed=seed),
    "fixed buckets of exponential width": lambda seed: FixedBucketSampler(
        LENGTHS.tolist(), SIZE, 5, bucket_scheme=ExpWidthBucket(), seed=seed
    ),
    "sorted buckets": lambda seed: SortedBucketSampler(LENGTHS.tolist(), SIZE, mult=5, shuffle=True, seed=seed),
    "tokens": lambda seed: TokenBatchSampler(LENGTHS, 512, window=64, seed=seed),
    "tokens, quadratic": lambda seed: TokenBatchSampler(LENGTHS, 512, window=64, quadratic=100.0, seed=seed),
    "tokens, not padded, in order": lambda seed: TokenBatchSampler(LENGTHS, 512, padded=False, shuffle=False),
    "tokens of a mixture": lambda seed: TokenBatchSampler(LENGTHS, 512, mixture(LENGTH, seed), window=64, seed=seed),
    "packed": lambda seed: packed(seed),
    "packed, cut": lambda seed: packed(seed, method="split"),
    "packed, truncated": lambda seed: packed(seed, long="truncate"),
    "packed, in order": lambda seed: packed(seed, shuffle=False),
    "packed, of a mixture": lambda seed: packed(seed, sampler=mixture(LENGTH, seed)),
}

SHUFFLED = "shuffle=True"
ALONE = {"split", "rollover"}  # `ranks` refuses them


def packed(seed, **arguments):
    return BatchSampler(PackingSampler(LENGTHS, 64, window=128, seed=seed, **arguments), SIZE)


class Keys:
    """Sample i is i; a sample of a row of documents is the row as lists."""

    def __len__(self):
        return LENGTH

    def __getitem__(self, key):
        if isinstance(key, (int, np.integer)):
            return int(key)
        return [np.asarray(part).tolist() for part in (key.documents, key.starts, key.stops)]


def loader_of(name, seed, rank, of):
    """A loader that delivers keys."""
    ranks = None if of == 1 else (rank, of)
    options = {"seed": seed, "ranks": ranks, "batchify_fn": list}
    if name in BATCH_SAMPLERS:
        return DataLoader(Keys(), batch_sampler=BATCH_SAMPLERS[name](seed), **options)
    if name == SHUFFLED:
        return DataLoader(Keys(), SIZE, shuffle=True, **options)
    return DataLoader(Keys(), SIZE, sampler=SAMPLERS[name](LENGTH, seed), **options)


def batches_of(loader, epoch, resume=False):
    """Batches of keys of one epoch; with `resume`, another loader goes on after the first ones."""
    with loader() as first:
        first.set_epoch(epoch)
        iterator = iter(first)
        if not resume:
            return list(iterator)
        batches = list(islice(iterator, READ))
        state = json.loads(json.dumps(iterator.state_dict()))
    with loader() as second:
        second.load_state_dict(state)
        return batches + list(second)


def digest(batches):
    """The number of batches, the first batch, and a hash of the first keys in their batches."""
    kept, count = [], 0
    for batch in batches:
        kept.append(batch[: KEYS - count])
        count += len(kept[-1])
        if count == KEYS:
            break
    return [len(batches), batches[0], hashlib.sha256(json.dumps(kept).encode()).hexdigest()[:16]]


def cases():
    for name in (*SAMPLERS, SHUFFLED, *BATCH_SAMPLERS):
        for seed in SEEDS:
            for rank, of in RANKS[:1] if name in ALONE else RANKS:
                for epoch in EPOCHS:
                    yield f"{name}; seed {seed}, epoch {epoch}, rank {rank} of {of}", (name, seed, rank, of), epoch


def main():
    found = {case: digest(batches_of(lambda: loader_of(*arguments), epoch)) for case, arguments, epoch in cases()}
    lines = (f"{json.dumps(case)}: {json.dumps(golden)}" for case, golden in found.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
