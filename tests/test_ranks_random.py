"""Iterable datasets over ranks, random cases: each rank delivers exactly what its policy says.

A case has several runs, each with another number of ranks, which read with random executors; workers are killed. The
lengths of the shards are random, and what "drop" and "repeat" have to deliver is computed from what the ranks deliver
under "uneven". Datasets with `__getitem__` have test_position_machine.py.
"""

import contextlib
import json
import os
import random
import signal
from dataclasses import dataclass
from itertools import cycle, islice

import pytest
from conftest import FORK, SERIAL, THREAD, workers

from gluonloader import IterableDataset, Ranks, merge_states

pytestmark = [
    pytest.mark.soak,
    pytest.mark.kill,
    pytest.mark.filterwarnings("ignore:resuming"),
    pytest.mark.filterwarnings("ignore:.* ranks divide its order"),
]
CASES = range(int(os.environ.get("GLUONLOADER_RANKS", 50)))
WAYS = [SERIAL, SERIAL, SERIAL, THREAD, THREAD, FORK]


@dataclass
class Sharded:
    """Samples that its shards read separately."""

    lengths: list[int]

    def __iter__(self):
        raise AssertionError("the whole dataset is not read")

    def shard(self, num_shards, index):
        assert num_shards == len(self.lengths)
        return [1000 * index + number for number in range(self.lengths[index])]

    def samples(self):
        return [sample for index in range(len(self.lengths)) for sample in self.shard(len(self.lengths), index)]

    def shard_lengths(self, num_shards):
        return self.lengths


@dataclass
class Whole:
    """Samples that each shard reads as a whole."""

    length: int

    def __iter__(self):
        return iter(range(self.length))

    def __len__(self):
        return self.length

    def samples(self):
        return list(range(self.length))

    def shard_lengths(self, num_shards):
        return [len(range(shard, self.length, num_shards)) for shard in range(num_shards)]


class Case:
    """A dataset and the options of its loaders, drawn at random."""

    def __init__(self, number, last_batches=("keep",)):
        self.rng = rng = random.Random(number)
        self.num_shards = rng.randint(1, 9)
        lengths = [rng.choice([0, 1, 3, 8, 20, 37]) for _ in range(self.num_shards)]
        self.data = Sharded(lengths) if rng.random() < 0.6 else Whole(rng.choice([0, 5, 50, 111]))
        self.size, last_batch = rng.randint(1, 6), rng.choice(last_batches)
        self.options = {"seed": 5, "last_batch": last_batch, "shuffle": rng.random() < 0.4}
        self.stream = IterableDataset(self.data, self.num_shards, rng.choice([2, 10]))

    def loader(self, way, *ranks, **options):
        return way.loader(self.stream, self.size, ranks=Ranks(*ranks), **self.options, **options)

    def run(self, state, most, *ranks, **options):
        """The batches of one rank, at most so many, and its state afterwards; workers are killed."""
        way = self.rng.choice(WAYS)
        retries = way.retrying(100) if way is FORK else {}
        with self.loader(way, *ranks, **options, **retries) as loader:
            if state:
                loader.load_state_dict(state)
            iterator, batches = iter(loader), []
            for batch in islice(iterator, most):
                batches.append(batch.tolist())
                if way is FORK and self.rng.random() < 0.2 and (pids := workers(loader)):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(self.rng.choice(pids), signal.SIGKILL)
            return batches, json.dumps(loader.state_dict())


def merged(states):
    """The state for other ranks, and whether the epoch has ended."""
    state = json.loads(json.dumps(merge_states(states) if len(states) > 1 else json.loads(states[0])))
    return json.dumps(state), state["epoch"] > 0


def flat(batches):
    return [sample for batch in batches for sample in batch]


@pytest.mark.parametrize("number", CASES)
def test_uneven_ranks_deliver_each_sample_once(number):
    case = Case(number)
    seen, state, ended = [], None, False
    for last in (False, False, True):
        if ended:
            break
        count, states = case.rng.randint(1, case.num_shards), []
        for index in range(count):
            most = None if last else case.rng.choice([0, 1, 2, 4, 9, 100])
            batches, saved = case.run(state, most, index, count, in_order=case.rng.random() < 0.7)
            seen += flat(batches)
            states.append(saved)
        state, ended = merged(states)
    assert sorted(seen) == case.data.samples()


def uneven(case, state, index, count):
    """The batches that a rank has left, and those of the whole epoch that are full and come from a single shard."""
    with case.loader(SERIAL, index, count) as loader:
        whole = [batch.tolist() for batch in loader]
        if state:
            loader.load_state_dict(state)
            left = [batch.tolist() for batch in loader]
    lengths = case.data.shard_lengths(case.num_shards)[index::count]
    return left if state else whole, whole[: sum(length // case.size for length in lengths)]


@pytest.mark.parametrize("policy", ["drop", "repeat"])
@pytest.mark.parametrize("number", CASES)
def test_ranks_with_a_policy_deliver_equal_numbers_of_batches(policy, number):
    case = Case(number, ("keep", "discard"))
    lengths = case.data.shard_lengths(case.num_shards) if case.rng.random() < 0.5 else None
    state = None
    for last in (False, False, True):
        count, states = case.rng.randint(1, case.num_shards), []
        own = [uneven(case, state, index, count) for index in range(count)]
        target = (min if policy == "drop" else max)(len(left) for left, _ in own)
        if any(len(left) < target and not full for left, full in own):
            with pytest.raises(ValueError, match="no full batch that it could repeat"):
                [case.run(state, None, index, count, policy, lengths) for index in range(count)]
            return
        most = target if last else min(target, case.rng.choice([1, 2, 4, 9, 100]))
        pause = case.rng.randint(0, most)
        for index, (left, full) in enumerate(own):
            wanted = list(islice(left + list(islice(cycle(full), target)), target)) if full else left[:target]
            first, saved = case.run(state, pause, index, count, policy, lengths)
            if 0 < pause < target:  # then the epoch has not ended
                rest, saved = case.run(saved, most - pause, index, count, policy, lengths)
                assert first + rest == wanted[:most]
            else:
                assert first == wanted[:pause]
            states.append(saved)
        if not 0 < pause < target:
            return
        state, ended = merged(states)
        if ended:
            return
