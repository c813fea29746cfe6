"""What each of several ranks has to deliver of one order, written without the code of the library."""

from dataclasses import dataclass, field

import numpy as np

from gluonloader import (
    BatchSampler,
    BlockShuffleSampler,
    RandomSampler,
    WeightedSampler,
)
from gluonloader.buckets import FixedBucketSampler
from gluonloader.sampler.base import SeededSampler


def keys_of_ranks(order, start, count, policy):
    """The keys of each rank if `count` ranks divide the order from offset `start` on."""
    rest = order[start:]
    rounds = [rest[first : first + count] for first in range(0, len(rest), count)]
    if rounds and len(rounds[-1]) < count:
        if policy == "drop":
            rounds.pop()
        elif policy == "repeat":
            missing = count - len(rounds[-1])
            rounds[-1] = rounds[-1] + (order * missing)[:missing]
    return [[keys[rank] for keys in rounds if rank < len(keys)] for rank in range(count)]


def batches_of(keys, size, last_batch, carried=()):
    """The batches of one rank, and what it carries over."""
    keys = [*carried, *keys]
    whole = len(keys) // size * size
    batches, rest = [keys[first : first + size] for first in range(0, whole, size)], keys[whole:]
    if rest and last_batch == "keep":
        batches.append(rest)
    return batches, rest if last_batch == "rollover" else []


class Foreign:
    """A sampler of another library: its order depends on the epoch that is set, and on nothing else."""

    epoch = 0

    def __init__(self, length):
        self.length = length

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(np.random.default_rng(self.epoch).permutation(self.length).tolist())

    def __len__(self):
        return self.length


class ForeignBatches(Foreign):
    """A user's batch sampler with batches of one to three indices."""

    def __iter__(self):
        order = list(super().__iter__())
        return iter([order[index : index + 1 + index % 3] for index in range(len(order))])


class Restarting:
    """A sampler of which nothing is known but its order: no epoch, and no state."""

    def __init__(self, order):
        self.order = order

    def __len__(self):
        return len(self.order)

    def __iter__(self):
        return iter(self.order)


class Counting:
    """A user's sampler that counts and saves its epochs itself; its orders are those of `Foreign`."""

    def __init__(self, length):
        self.length, self.passes = length, 0

    def __iter__(self):
        yield from np.random.default_rng(self.passes).permutation(self.length).tolist()
        self.passes += 1

    def __len__(self):
        return self.length

    def state_dict(self):
        return {"passes": self.passes}

    def load_state_dict(self, state):
        self.passes = state["passes"]


class CountingBatches(Counting):
    """A user's batch sampler with such a state; its batches are those of `ForeignBatches`."""

    def __iter__(self):
        order = list(super().__iter__())
        return iter([order[index : index + 1 + index % 3] for index in range(len(order))])


def _order_of(make, length, epoch):
    sampler = make(length)
    for _ in range(epoch):
        list(sampler)
    return list(sampler)


def _foreign(make, length, epoch):
    sampler = make(length)
    sampler.set_epoch(epoch)
    return list(sampler)


def _of(make):
    """A sampler of the library, as an argument, and its order."""
    return lambda length: {"sampler": make(length)}, lambda length, epoch: _order_of(make, length, epoch)


def weighted_order(weights, epoch):
    return _order_of(lambda _: WeightedSampler(weights, seed=3), None, epoch)


class EveryKthFirst(SeededSampler):
    """A sampler that has an order and nothing else, as in CONTRIBUTING.md: every `k`-th index, then the others."""

    def __init__(self, length, k, seed=None):
        super().__init__(seed)
        self._indices, self._identity = range(length), {"k": k}

    def order(self, epoch):
        others = np.delete(np.arange(len(self)), slice(None, None, self._identity["k"]))
        shuffled = np.random.default_rng(self.epoch_seed(epoch)).permutation(others)
        return np.concatenate([np.arange(0, len(self), self._identity["k"]), shuffled])


def buckets(length):
    return FixedBucketSampler([index % 7 for index in range(length)], 3, num_buckets=2, shuffle=True, seed=4)


SAMPLERS = {  # by name: the arguments of a loader, and the order of an epoch
    "shuffle": (lambda length: {"shuffle": True}, _of(lambda length: RandomSampler(length, seed=5))[1]),
    "in order": (lambda length: {}, lambda length, epoch: list(range(length))),
    "list": (lambda length: {"sampler": list(range(length))[::-1]}, lambda length, epoch: list(range(length))[::-1]),
    "seeded": _of(lambda length: RandomSampler(length, 2, "bijection")),
    "blocks": _of(lambda length: BlockShuffleSampler.of_size(length, 7, 2, seed=3)),
    "weighted": _of(lambda length: WeightedSampler(range(1, length + 1), seed=3)),
    "without replacement": _of(lambda length: WeightedSampler(range(1, length + 1), replacement=False, seed=3)),
    "an order alone": _of(lambda length: EveryKthFirst(length, 4, 1)),
    "function": (
        lambda length: {"sampler": lambda epoch: np.random.default_rng(epoch).permutation(length)},
        lambda length, epoch: np.random.default_rng(epoch).permutation(length).tolist(),
    ),
    "users": (lambda length: {"sampler": Foreign(length)}, lambda *where: _foreign(Foreign, *where)),
    "stateful": (lambda length: {"sampler": Counting(length)}, lambda *where: _foreign(Foreign, *where)),
}
BATCH_SAMPLERS = {
    "lists": (
        lambda length: {"batch_sampler": [[index, length - 1] for index in range(length)]},
        lambda length, epoch: [[index, length - 1] for index in range(length)],
    ),
    "batches": (
        lambda length: {"batch_sampler": BatchSampler(RandomSampler(length, seed=6), 3)},
        lambda length, epoch: _order_of(lambda length: BatchSampler(RandomSampler(length, seed=6), 3), length, epoch),
    ),
    "discarding": (
        lambda length: {"batch_sampler": BatchSampler(range(length), 3, "discard")},
        lambda length, epoch: list(BatchSampler(range(length), 3, "discard")),
    ),
    "buckets": (
        lambda length: {"batch_sampler": buckets(length)},
        lambda length, epoch: _order_of(buckets, length, epoch),
    ),
    "function of batches": (
        lambda length: {"batch_sampler": lambda epoch: [[index, epoch % length] for index in range(length)]},
        lambda length, epoch: [[index, epoch % length] for index in range(length)],
    ),
    "users batches": (
        lambda length: {"batch_sampler": ForeignBatches(length)},
        lambda *where: _foreign(ForeignBatches, *where),
    ),
    "stateful batches": (
        lambda length: {"batch_sampler": CountingBatches(length)},
        lambda *where: _foreign(ForeignBatches, *where),
    ),
}


@dataclass
class Division:
    """How the ranks divide an order from a position on.

    Attributes:
        batches: those of each rank.
        carried: what each rank carries over.
        carried_in: what each rank has carried over into this epoch; it is in batch 0.
        number: of the first batch that is left.
    """

    order: list
    start: int
    count: int
    policy: str
    size: int | None  # None for a batch sampler
    last_batch: str
    carried_in: list = field(default_factory=list)
    number: int = 0

    def __post_init__(self):
        keys = keys_of_ranks(self.order, self.start, self.count, self.policy)
        if self.size is None:
            self.batches, self.carried = keys, [[] for _ in keys]
            return
        carried_in = (self.carried_in if self.number == 0 else []) or [[] for _ in keys]
        made = [
            batches_of(own, self.size, self.last_batch, carried) for own, carried in zip(keys, carried_in, strict=True)
        ]
        self.batches, self.carried = map(list, zip(*made, strict=True))

    @property
    def most(self):
        return max(map(len, self.batches))

    def after(self, steps):
        """The offset in the order from which other ranks continue after so many batches of each rank."""
        size = 1 if self.size is None else self.size
        carried = len(self.carried_in[0]) if self.carried_in and steps and self.number == 0 else 0
        return min(len(self.order), self.start + (steps * size - carried) * self.count)
