"""Checks and measures the arithmetic of very large runs on one machine: 10^12 samples, 10^4 simulated ranks.

No sample is read from a disk: a sample is its index. The ranks are simulated one after another in this process. Times
are minima over the rounds, because other programs can only add time. Memory is the peak of what Python and NumPy have
allocated during a call.
"""

from __future__ import annotations

import itertools
import json
import random
import time
import tracemalloc
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from gluonloader import (
    BatchSampler,
    BlockShuffleSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    ShardedSampler,
    merge_states,
)
from gluonloader.position.indices import OrderPass, fit, load
from gluonloader.position.progress import Start

from .harness import Topic
from .report import markdown, size_of, time_of

_BATCH: Final = 20  # indices
_BLOCK: Final = 1_000_000  # indices in a block of BlockShuffleSampler
_PART: Final = 4096  # indices that a sampler computes at once
_SHARD: Final = 105  # samples of a shard for the checks: more than the ranks read before their number changes


@dataclass(frozen=True)
class Scale:
    """How much to measure and to check.

    Attributes:
        samples: the columns of the first table; the second table has the largest number of samples.
        ranks: the columns of the second table; the first table simulates the largest number of ranks.
        elastic: the numbers of ranks of the checks, one after another.
        once: the number of samples that the check of samplers reads.
        shards: the number of shards that the check of iterable datasets reads.
        rounds: how often each time is measured.
    """

    samples: tuple[int, ...] = (10**6, 10**9, 10**12)
    ranks: tuple[int, ...] = (1, 100, 10_000)
    elastic: tuple[int, ...] = (10_000, 7_777, 1)
    once: int = 10**6
    shards: int = 1000
    rounds: int = 7


FULL: Final = Scale()
QUICK: Final = Scale(ranks=(1, 10, 100), once=200_000, shards=100)


class NumberStream(IterableDataset[int]):
    """An iterable dataset of the numbers from 0 on, whose shards are ranges of numbers and have a state."""

    def __init__(self, shard_length: int) -> None:
        self._shard_length = shard_length

    def shard(self, num_shards: int, index: int) -> Any:
        return _Range(index * self._shard_length, (index + 1) * self._shard_length)


class _Range:
    """Counts from `start` to `stop`; it can continue at a saved number without counting to it."""

    def __init__(self, start: int, stop: int) -> None:
        self._next, self._stop = start, stop

    def __iter__(self) -> Iterator[int]:
        while self._next < self._stop:
            self._next += 1
            yield self._next - 1

    def state_dict(self) -> dict[str, int]:
        return {"next": self._next}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self._next = state["next"]


def run(options: Namespace) -> Iterator[str]:
    """Yields both tables, and the checks."""
    scale = replace(QUICK if options.quick else FULL, rounds=options.rounds)
    yield _table("Map-style dataset", "samples", scale.samples, lambda samples: _of_samples(samples, scale))
    title = f"{_count(scale.samples[-1])} samples"
    yield _table(title, "ranks", scale.ranks, lambda ranks: _of_ranks(ranks, scale))
    yield "Checked:"
    yield from (f"- {line}" for line in checks(scale))


def _table(title: str, unit: str, numbers: Sequence[int], column: Callable[[int], Mapping[str, str]]) -> str:
    """Returns a table with one column for each of the numbers."""
    columns = [column(number) for number in numbers]
    heading = [title, *(f"{_count(number)} {unit[:-1] if number == 1 else unit}" for number in numbers)]
    names = dict.fromkeys(name for cells in columns for name in cells)
    return markdown(heading, [[name, *(cells.get(name, "-") for cells in columns)] for name in names])


# -- Tables -----------------------------------------------------------------------------------------------------------


def _of_samples(samples: int, scale: Scale) -> dict[str, str]:
    ranks = scale.ranks[-1]

    def loader() -> DataLoader[Any]:
        return DataLoader(range(samples), _BATCH, sampler=_share(samples, ranks, ranks // 3), seed=0)

    def start() -> None:
        with loader() as started:
            next(iter(started))

    def resume() -> None:
        with loader() as resumed:
            resumed.load_state_dict(state)
            next(iter(resumed))

    with loader() as other:
        other.seek(0, len(other) // 2)
        next(iter(other))
        state = json.dumps(other.state_dict())
        save = _time(other.state_dict, scale)
    stored = "`RandomSampler`, stored order"
    return {
        f"One of {ranks:,} ranks: state in the middle of an epoch": size_of(len(state)),
        f"One of {ranks:,} ranks: `state_dict()`": save,
        f"One of {ranks:,} ranks: from `DataLoader(...)` to the first batch": _time(start, scale),
        "The same, with `load_state_dict` of that state": _time(resume, scale),
        **_order("`RandomSampler`, computed order", RandomSampler(samples, seed=0, method="bijection"), scale),
        **(
            _order(stored, RandomSampler(samples, seed=0, method="permutation"), scale)
            if samples <= 10**6
            else {f"{stored}: memory": f"{size_of(8 * samples)} (not measured)"}
        ),
        **_order(f"`BlockShuffleSampler`, blocks of {_BLOCK:,}", _blocks(samples, _BLOCK), scale),
    }


def _order(name: str, sampler: Any, scale: Scale) -> dict[str, str]:
    def first() -> object:
        return next(iter(sampler))

    return {
        f"{name}: first index": _time(first, scale),
        f"{name}: each index": _per_index(sampler, scale),
        f"{name}: memory": _peak(first),
    }


def _of_ranks(ranks: int, scale: Scale) -> dict[str, str]:
    samples, index = scale.samples[-1], ranks // 3
    with _after(1000, index, ranks, samples) as loader:
        state, save = json.dumps(loader.state_dict()), _time(loader.state_dict, scale)
    return {
        "`ShardedSampler(RandomSampler(...))`: each index of a rank": _per_index(_share(samples, ranks, index), scale),
        **{
            f"`ShardedSampler(BlockShuffleSampler(...))`, blocks of {block:,}: each index of a rank": _per_index(
                ShardedSampler(_blocks(samples, block), ranks, index), scale
            )
            for block in (_BLOCK, _BLOCK // 10)
        },
        "Iterable dataset: state of a rank after 1,000 batches": size_of(len(state)),
        "Iterable dataset: `state_dict()` of a rank": save,
        **(_merging(ranks, scale) if ranks > 1 else {}),
    }


def _blocks(samples: int, block: int) -> BlockShuffleSampler:
    return BlockShuffleSampler.of_size(samples, block, seed=0)


def _merging(ranks: int, scale: Scale) -> dict[str, str]:
    states = []
    for index in range(ranks):
        with _after(1 + index % 3, index, ranks, scale.samples[-1]) as loader:
            states.append(json.dumps(loader.state_dict()))
    merged = json.dumps(merge_states(states))

    def resume() -> None:
        with _stream(ranks // 3, ranks, ranks, scale.samples[-1] // ranks) as loader:
            loader.load_state_dict(merged)
            next(iter(loader))

    return {
        "Iterable dataset: `merge_states`": _time(lambda: merge_states(states), scale),
        "Iterable dataset: memory of `merge_states`": _peak(lambda: merge_states(states)),
        "Iterable dataset: merged state": size_of(len(merged)),
        "Iterable dataset: from `load_state_dict` of the merged state to the first batch of a rank": _time(
            resume, scale
        ),
    }


def _after(batches: int, index: int, ranks: int, samples: int) -> DataLoader[Any]:
    """Returns the loader of a rank after this number of batches; there are as many shards as ranks."""
    loader = _stream(index, ranks, ranks, samples // ranks)
    iterator = iter(loader)
    for _ in range(batches):
        next(iterator)
    return loader


def _stream(index: int, ranks: int, shards: int, shard_length: int) -> DataLoader[Any]:
    return DataLoader(
        IterableDataset(NumberStream(shard_length), num_shards=shards),
        _BATCH,
        ranks=(index, ranks),
        seed=0,
        batchify_fn=np.array,
    )


def _share(samples: int, ranks: int, index: int, **options: Any) -> ShardedSampler:
    return ShardedSampler(RandomSampler(samples, seed=0, **options), ranks, index, even="keep")


# -- Checks -----------------------------------------------------------------------------------------------------------


def checks(scale: Scale) -> Iterator[str]:
    """Makes each check, and yields what was checked; an AssertionError names what is wrong."""
    yield _check_disjoint(scale.samples[-1], scale.elastic[0])
    yield _check_once(scale.once, scale.elastic)
    scaled = tuple(max(1, ranks * scale.shards // scale.elastic[0]) for ranks in scale.elastic)
    yield _check_stream(scale.shards, scaled)


def _check_disjoint(samples: int, ranks: int, chosen: int = 50, places: int = 20) -> str:
    """Reads batches of some ranks at random positions."""
    rng, size = random.Random(0), 1000
    parts: list[Any] = []
    for index in rng.sample(range(ranks), min(chosen, ranks)):
        for number in rng.sample(range(samples // ranks // size), places):
            run = BatchSampler(_share(samples, ranks, index), size).begin()
            run.skip(number)
            parts.append(run.cut())
    indices = np.concatenate(parts)
    assert len(np.unique(indices)) == len(indices), "an index came twice"
    assert indices.min() >= 0, "an index is negative"
    assert indices.max() < samples, "an index is too large"
    return (
        f"{min(chosen, ranks)} random ranks of {ranks:,} read {len(indices):,} of {_count(samples)} indices, each at "
        f"{places} random positions: no index comes twice, and all are in the range."
    )


def _check_once(samples: int, elastic: Sequence[int]) -> str:
    """Reads an epoch with changing numbers of ranks: a third of the rest with each, and all of it with the last."""
    counts, size = np.zeros(samples, np.int64), 10
    state: str | None = None
    for ranks in elastic:
        left, first = samples - int(counts.sum()), ""
        batches = None if ranks == elastic[-1] else max(1, left // 3 // ranks // size)
        for index in range(ranks):
            # The stored order would be drawn again for each simulated rank.
            sampler = BatchSampler(_share(samples, ranks, index, method="bijection"), size)
            start = Start() if state is None else load(sampler, fit(sampler, json.loads(state), False))
            run = OrderPass(sampler, start)
            for keys in itertools.islice(run.batches, batches):
                np.add.at(counts, keys, 1)
            number = start.number + (batches or 0)
            first = first or json.dumps({"batch": number, "ahead": [], **run.state(number)})
        state = first
    assert (counts == 1).all(), f"{(counts != 1).sum()} indices did not come once"
    return (
        f"{_then(elastic)} read {samples:,} indices with a `ShardedSampler`: each index comes exactly once. Each time, "
        "all ranks load the state of rank 0."
    )


def _check_stream(shards: int, elastic: Sequence[int]) -> str:
    """The same as `_check_once` for an iterable dataset."""
    counts = np.zeros(shards * _SHARD, np.int64)
    merged: dict[str, Any] | None = None
    for ranks in elastic:
        states = []
        for index in range(ranks):
            with _stream(index, ranks, shards, _SHARD) as loader:
                if merged is not None:
                    loader.load_state_dict(merged)
                for number, batch in enumerate(loader, 1):
                    counts[batch] += 1
                    if ranks != elastic[-1] and number > index % 3:
                        break
                states.append(loader.state_dict())
        merged = merge_states(states) if ranks != elastic[-1] else None
    assert (counts == 1).all(), f"{(counts != 1).sum()} samples did not come once"
    return (
        f"{_then(elastic)} read {len(counts):,} samples of an iterable dataset with {shards:,} shards: each sample "
        "comes exactly once. Each time, all ranks load the result of `merge_states`."
    )


def _then(elastic: Sequence[int]) -> str:
    return ", then ".join(f"{ranks:,} rank{'s' * (ranks != 1)}" for ranks in elastic)


# -- Measuring --------------------------------------------------------------------------------------------------------


def _time(function: Callable[[], object], scale: Scale) -> str:
    """Returns the time of the fastest call."""
    return time_of(_fastest(function, scale))


def _fastest(function: Callable[[], object], scale: Scale) -> float:
    """Returns the seconds of the fastest of several calls, after one call that is not measured."""
    function()
    times = []
    for _ in range(scale.rounds):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def _per_index(sampler: Any, scale: Scale) -> str:
    """Returns the time for each index, after the start of the pass, in batches of `_PART`."""
    run = BatchSampler(sampler, _PART).begin()
    run.cut()
    start = time.perf_counter()
    indices = len(run.cut())
    quick_enough = int(0.05 / (time.perf_counter() - start))  # parts in 50 ms
    parts = max(1, min(quick_enough, 50, len(sampler) // _PART // (scale.rounds + 3)))

    def read() -> None:
        for _ in range(parts):
            run.cut()

    return time_of(_fastest(read, scale) / (parts * indices))


def _peak(function: Callable[[], object]) -> str:
    """Returns the highest memory that Python and NumPy have allocated during a call."""
    tracemalloc.start()
    try:
        function()
        return size_of(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def _count(number: int) -> str:
    zeros = str(number).count("0")
    return f"10^{zeros}" if number == 10**zeros >= 10**6 else f"{number:,}"


TOPIC: Final = Topic(run, rounds=7, options={"quick": (False, "fewer ranks and samples")})
