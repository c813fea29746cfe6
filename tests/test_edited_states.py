"""Edited states of all kinds of loaders, with and without a fresh checksum: each is refused, or loads what it says.

GLUONLOADER_STATES sets the number of states; the time and memory that the worst of them took are printed (-rP).
"""

import base64
import contextlib
import copy
import importlib
import itertools
import json
import os
import random
import time
import tracemalloc
import zlib

import numpy as np
import pytest
from conftest import examples
from order_positions import position
from rank_models import Foreign, Restarting
from samples import Keys

from gluonloader import (
    BatchSampler,
    BlockShuffleSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Ranks,
    SequentialSampler,
    ShardedSampler,
    SubsetSampler,
    WeightedSampler,
    bridge,
    get_rng,
    merge_states,
)
from gluonloader.buckets import FixedBucketSampler, SortedBucketSampler
from gluonloader.errors import TooManyErrors
from gluonloader.randomness import batch_seed
from gluonloader.sampler.saved import loading_order
from gluonloader.state import add_checksum

STATES = int(os.environ.get("GLUONLOADER_STATES", 600))
FIRST = int(os.environ.get("GLUONLOADER_FIRST_STATE", 0))  # the number of the first edited state of each kind
LENGTH, MOST = 23, 40
LIMIT_S, LIMIT_BYTES = 10, 100e6  # a state that hangs, or lets memory grow with a number in it, is far beyond

calls = []  # of the user's code


# -- Random edits ------------------------------------------------------------------------------------------------------

NUMBERS = [0, 1, 2, 3, 4, 5, 7, 10, 100, 10**6, 10**9, 10**12, 2**31, 2**62, 2**63, 2**64, 10**30, -1, -2, -(2**63)]
ODD = [None, True, False, 1.5, float("nan"), "", "text", "AAAA", [], {}, [[]], [0], {"a": 1}, [[5, 10**9]], [[1, 2, 3]]]
ODD += [{"zlib": "AAAA"}, {"gluonloader.tuple": 3}, {"gluonloader.array": "numpy", "dtype": "S0", "shape": [10**9]}]
ODD += [{"gluonloader.array": "numpy", "dtype": "<f8", "shape": [10**9, 10**9], "base64": ""}]


def paths(value, path=()):
    """The paths of all values inside a state."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items if len(path) < 20 else ():
        yield (*path, key)
        yield from paths(item, (*path, key))


def at(value, path):
    for key in path:
        value = value[key]
    return value


def edited(rng, states):
    """A copy of one of these states with one to three edits."""
    state, deep = copy.deepcopy(rng.choice(states)), []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        found = [path for path in paths(state) if path[-1] not in ("check", "version")]
        if found:
            edit(rng, state, rng.choice(found), states, deep)
    for within, key in deep:  # at last, since `paths` and `deepcopy` are recursive
        value = 1
        for _ in range(rng.choice([50, 900, 3000])):
            value = [value]
        if isinstance(within, dict) or key < len(within):  # otherwise a later edit has removed it
            within[key] = value
    return state


def edit(rng, state, path, states, deep):
    within, key = at(state, path[:-1]), path[-1]
    old = within[key]
    kind = rng.choice(["number", "number", "near", "near", "odd", "missing", "more", "other", "twice", "text", "deep"])
    if kind == "missing":
        del within[key]
    elif kind == "more":
        if isinstance(within, list):
            within.insert(key, copy.deepcopy(rng.choice([*NUMBERS, *ODD])))
        else:
            within[rng.choice(["more", "ranks", "rank", "stop", "errors", "source", "carried", "epoch", "hints"])] = 1
    elif kind == "twice" and isinstance(within, list):
        within.append(copy.deepcopy(old))
    elif kind == "other":  # the same field of another state, or another field of the same state
        other = rng.choice([state, *states])
        within[key] = copy.deepcopy(at(other, rng.choice(list(paths(other)) or [()])))
        try:
            within[key] = copy.deepcopy(at(rng.choice(states), path))
        except (KeyError, IndexError, TypeError):
            pass
    elif kind == "text" and isinstance(old, str) and old:
        place = rng.randrange(len(old))
        within[key] = old[:place] + rng.choice("A/=x0") + old[place + 1 :]
    elif kind == "deep":
        deep.append((within, key))
    elif kind == "near" and isinstance(old, int):
        within[key] = old + rng.choice([-2, -1, 1, 1, 2, 3])
    elif kind == "near" and isinstance(old, list) and old:
        rng.choice([old.reverse, old.pop, lambda: old.append(rng.choice(NUMBERS))])()
    elif kind == "odd":
        within[key] = copy.deepcopy(rng.choice(ODD))
    else:
        within[key] = rng.choice(NUMBERS)


def sealed(state):
    """The state with a fresh checksum; without one if JSON cannot store it."""
    if isinstance(position := state.get("position"), dict) and "batch" in position:
        state = {**state, "position": sealed(position)}
    try:
        return add_checksum({name: value for name, value in state.items() if name not in ("check", "version")})
    except (RecursionError, TypeError):
        return state


def as_saved(state):
    """The state as it comes back from a file."""
    return json.loads(json.dumps(state))


# -- What a loader has to deliver after it has loaded a state ----------------------------------------------------------
#
# Computed from the fields of the state alone. A batch is (its number, the keys of its samples, a random number).


def drawn(seed, epoch, number):
    """The random number that a batch with these numbers draws from `get_rng()`."""
    return int(np.random.default_rng(batch_seed(seed, epoch, number)).integers(2**40))


def is_ahead(state, number):
    return any(start <= number < stop for start, stop in state["ahead"])


def weights_in(value, given):
    if isinstance(value, str):
        return given
    return np.frombuffer(zlib.decompress(base64.b64decode(value["zlib"])), "<f8")


def cut(batch_sampler, keys, carried):
    """The batches of a `BatchSampler` from these keys on."""
    keys, size = [*carried, *keys], batch_sampler.batch_size
    batches = [keys[start : start + size] for start in range(0, len(keys), size)]
    if batches and len(batches[-1]) < size and batch_sampler.last_batch != "keep":
        batches.pop()
    return batches


def of_indices(state, batches, seed=None, most=40):
    """The rest of an epoch that has these batches from the position on."""
    rest = []
    for number, keys in enumerate(batches, state["batch"]):
        if not is_ahead(state, number) and len(rest) < most:
            rest.append((number, list(keys), drawn(state["seed"] if seed is None else seed, state["epoch"], number)))
    return rest


def of_shards(state, shards):
    """The rest of an epoch over lists of samples, and whether leftovers have other samples than the state says."""
    count, size, epoch, batch = state["num_shards"], state["batch_size"], state["epoch"], state["batch"]
    owned = range(state.get("rank", 0), count, state.get("ranks", 1))
    ended, leftovers, wrong = dict(map(tuple, state["ended"])), {}, False
    in_leftovers = len(ended) == len(owned) and batch >= (max(ended.values()) + 1) * count
    for part in state["leftovers"]:
        samples = shards[part["shard"]][part["chunk"] * size :][:size]
        samples = samples[part["start"] : part["stop"]] if len(samples) < size else []
        wrong |= len(samples) < part["stop"] - part["start"]
        key = (-1, len(leftovers)) if part["carried"] else (part["shard"], part["start"])
        leftovers[key] = samples
    rest = []
    for shard in owned:
        chunk, samples = -((shard - batch) // count), shards[shard]
        while chunk <= ended.get(shard, chunk):  # until the shard is known to end
            number = chunk * count + shard
            past = [stop for start, stop in state["ahead"] if start <= number < stop]
            if past:
                chunk = -((shard - past[0]) // count)
            elif len(read := samples[chunk * size :][:size]) == size:
                rest.append((number, read, drawn(state["seed"], epoch, -2 - 2 * number)))  # see NOTE [streams]
                chunk += 1
            else:
                ended[shard] = chunk
                if read:
                    leftovers[shard, 0] = read
                break
    rest.sort()
    first = (max(ended.values()) + 1) * count
    left = [sample for _, samples in sorted(leftovers.items(), key=lambda item: item[0][0]) for sample in samples]
    for number in range(max(first, batch), first + len(left)):
        last = left[(number - first) * size :][:size]
        short = len(last) < size and state["last_batch"] != "keep"
        if last and not short and not (in_leftovers and is_ahead(state, number)):
            rest.append((number, last, drawn(state["seed"], epoch, number)))
    return rest, wrong


# -- Loaders of all kinds ----------------------------------------------------------------------------------------------


class Refused(ValueError):
    """Code of the user does not accept a state."""


class Echo(Keys):
    def __init__(self):
        super().__init__(LENGTH)


class StatefulEcho(Echo):
    level = 0

    def state_dict(self):
        calls.append("state_dict")
        return {"level": self.level, "rng": np.arange(3), "name": ("a", b"b")}

    def load_state_dict(self, state):
        calls.append("load_state_dict")
        if not isinstance(state, dict) or not isinstance(state.get("level"), int):
            raise Refused("level")
        self.level = state["level"]


class Drawn:
    """A user's sampler with a state."""

    at = 0

    def __len__(self):
        return LENGTH

    def __iter__(self):
        calls.append("__iter__")
        while self.at < LENGTH:
            self.at += 1
            yield self.at * 7 % LENGTH
        self.at = 0

    def state_dict(self):
        calls.append("state_dict")
        return {"at": self.at}

    def load_state_dict(self, state):
        calls.append("load_state_dict")
        if not isinstance(state, dict) or type(state.get("at")) is not int or not 0 <= state["at"] <= LENGTH:
            raise Refused("at")
        self.at = state["at"]


class Epoched(Foreign):
    """A user's sampler with an epoch."""

    def __init__(self):
        super().__init__(LENGTH)

    def __iter__(self):
        calls.append("__iter__")
        return super().__iter__()

    def set_epoch(self, epoch):
        calls.append("set_epoch")
        super().set_epoch(epoch)


def with_rng(samples):
    return list(samples), int(get_rng().integers(2**40))


def map_style(dataset=Echo, seed=3, **arguments):
    given = {name: make() if callable(make) else make for name, make in arguments.items()}
    given = {"batch_size": 4, **given} if "batch_sampler" not in given else given
    return DataLoader(dataset(), batchify_fn=with_rng, seed=seed, **given)


def weighted(replacement):
    sampler = WeightedSampler(range(LENGTH), 20, replacement, seed=5)
    return BatchSampler(sampler, 3, "rollover")


def keys_of(sampler, saved):
    """The order of a fresh sampler in the pass that is saved."""
    if saved["kind"] == "WeightedSampler":
        weights = weights_in(saved["weights"], sampler.weights)
        sampler = WeightedSampler(weights, len(sampler), saved["replacement"], seed=saved["seed"])
    if "seed" in saved and hasattr(sampler, "adopts"):
        loading_order(sampler, {**position(sampler), "seed": saved["seed"]})()
    if "epoch" in saved and hasattr(sampler, "set_epoch"):
        sampler.set_epoch(saved["epoch"])
    return list(sampler)


class MapStyle:
    """Loaders of a map-style dataset."""

    def __init__(self, **arguments):
        self.arguments = arguments

    def make(self):
        return map_style(**self.arguments)

    def states(self):
        with self.make() as loader:
            yield loader.state_dict()
            sampler = loader.sampler
            for stop in (1, 3, 5):
                for number, _ in enumerate(loader, 1):
                    if isinstance(sampler, WeightedSampler) and number == 2:
                        sampler.weights = np.roll(sampler.weights, 3) + 0.1
                    if number == stop:
                        break
                yield loader.state_dict()

    def expected(self, state):
        loader = self.make()
        batches, saved = loader.batch_sampler, state["sampler"]
        if not isinstance(batches, BatchSampler):
            return of_indices(state, keys_of(batches, saved)[state["offset"] :]), False
        due, seed = state["carried"] * (not state["batch"]), state["seed"]
        if "snapshot" in state:
            order = [at * 7 % LENGTH for at in range(state["snapshot"]["at"] + 1, LENGTH + 1)]
            return of_indices(state, cut(batches, order, due)), False
        if not isinstance(batches.sampler, ShardedSampler):
            return of_indices(state, cut(batches, keys_of(batches.sampler, saved)[state["offset"] :], due)), False
        # The state may be that of another rank; each continues after what all of them have delivered.
        rank = batches.sampler.index
        keys = keys_of(batches.sampler.sampler, saved)[state["offset"] :][rank :: batches.sampler.num_shards]
        return of_indices(state, cut(batches, keys, due), batch_seed(seed, -rank) if rank else seed), False

    @staticmethod
    def rest(loader):
        iterator = iter(loader)
        for keys, number in itertools.islice(iterator, MOST):
            yield iterator.last.number, keys, number


class Streams(IterableDataset):
    """Shards of 11, 4 and 8 samples; with `stateful`, they can go on from a saved place."""

    def __init__(self, stateful=False):
        self.stateful = stateful

    def shard(self, num_shards, index):
        return Stream(shard_of(num_shards, index)) if self.stateful else iter(shard_of(num_shards, index))


class Stream:
    def __init__(self, samples):
        self.samples, self.at = samples, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= len(self.samples):
            raise StopIteration
        self.at += 1
        return self.samples[self.at - 1]

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        calls.append("load_state_dict")
        if not isinstance(state, dict) or type(state.get("at")) is not int or not 0 <= state["at"]:
            raise Refused("at")
        self.at = state["at"]


def shard_of(num_shards, index):
    return [100 * index + number for number in range([11, 4, 8][index % 3])]


class Iterable:
    """Loaders of an iterable dataset; with `ranks`, the states of one rank."""

    def __init__(self, stateful=False, **arguments):
        self.stateful, self.arguments = stateful, arguments

    def make(self, **arguments):
        arguments = {"batch_size": 3, "seed": 3, **self.arguments, **arguments}
        return DataLoader(IterableDataset(Streams(self.stateful), 3, 6), batchify_fn=with_rng, **arguments)

    def states(self, **arguments):
        for stop in (0, 1, 3, 5, 7, 9, 100):
            with self.make(**arguments) as loader:
                if stop == 5:
                    list(loader)  # the next epoch may start with what this one carries over
                list(itertools.islice(iter(loader), stop))
                yield loader.state_dict()

    def expected(self, state):
        exact = (
            not state["hints"]
            and not self.arguments.keys() & {"shuffle", "ranks"}
            or self.arguments == {"ranks": (1, 2)}
        )
        if not exact:  # what the state of a user's stream makes of its samples is up to the user
            return None, True
        return of_shards(state, [shard_of(3, index) for index in range(3)])

    rest = staticmethod(MapStyle.rest)


class Bridged:
    """Bridges to a list of batches, or to a source with a state."""

    def __init__(self, stateful=False):
        self.stateful = stateful

    def make(self):
        return bridge(Stream(list(range(9))) if self.stateful else list(range(9)))

    def states(self):
        for stop in (0, 1, 4, 9):
            with self.make() as loader:
                list(itertools.islice(iter(loader), stop))
                yield loader.state_dict()

    def expected(self, state):
        source = state["source"]
        at = source.get("at") if isinstance(source, dict) else state["batch"] if source is None else None
        if type(at) is not int or at < 0:
            return None, True  # the source refuses it
        return list(range(9))[at:], self.stateful or at > 9

    @staticmethod
    def rest(loader):
        yield from itertools.islice(loader, MOST)


class Torch:
    """The drop-in for torch's loader."""

    def __init__(self, **arguments):
        self.arguments = arguments

    def make(self):
        return importlib.import_module("gluonloader.torch").DataLoader(Echo(), 4, collate_fn=list, **self.arguments)

    def states(self):
        for stop in (0, 1, 4, 6):
            with self.make() as loader:
                list(itertools.islice(loader, stop))
                yield loader.state_dict()

    def expected(self, state):
        torch, as_states = pytest.importorskip("torch"), importlib.import_module("gluonloader.torch.order").as_states
        torch.default_generator.set_state(as_states(state["generators"], [torch.default_generator])[0])
        whole = list(torch.utils.data.DataLoader(Echo(), 4, collate_fn=list, **self.arguments))
        position = state["position"]
        if position is None:
            return whole, False
        rest = [] if state["ended"] else of_indices(position, whole[position["offset"] :])
        return [keys for _, keys, _ in rest], False

    @staticmethod
    def rest(loader):
        yield from itertools.islice(loader, MOST)


KINDS = {
    "sequential": MapStyle(),
    "random": MapStyle(shuffle=True, seed=None),
    "range": MapStyle(sampler=lambda: range(LENGTH), last_batch="discard"),
    "subset": MapStyle(sampler=lambda: SequentialSampler(7, 2), last_batch="rollover"),
    "rollover": MapStyle(shuffle=True, last_batch="rollover"),
    "weighted": MapStyle(batch_sampler=lambda: weighted(True)),
    "weighted, each once": MapStyle(batch_sampler=lambda: weighted(False)),
    "fixed buckets": MapStyle(batch_sampler=lambda: FixedBucketSampler(range(LENGTH), 3, 4, shuffle=True)),
    "sorted buckets": MapStyle(batch_sampler=lambda: SortedBucketSampler(range(LENGTH), 3, 2, shuffle=True, seed=1)),
    "rank 0": MapStyle(sampler=lambda: ShardedSampler(RandomSampler(60, 1), 3, 0, "keep")),
    "rank 2": MapStyle(sampler=lambda: ShardedSampler(RandomSampler(60, 1), 3, 2, "keep"), last_batch="rollover"),
    "blocks": MapStyle(sampler=lambda: BlockShuffleSampler([4, 9, 3, 7], 2)),
    "stateful sampler": MapStyle(sampler=Drawn),
    "sampler with an epoch": MapStyle(sampler=Epoched, last_batch="rollover"),
    "stateful dataset": MapStyle(dataset=StatefulEcho, shuffle=True),
    "tolerant": MapStyle(shuffle=True, on_error="skip"),
    "out of order": MapStyle(shuffle=True, in_order=False, last_batch="discard"),
    "iterable": Iterable(),
    "iterable, discard": Iterable(last_batch="discard"),
    "iterable, rollover": Iterable(last_batch="rollover"),
    "iterable, shuffled": Iterable(shuffle=True),
    "iterable with a state": Iterable(stateful=True),
    "iterable, rank": Iterable(ranks=(1, 2)),
    "iterable, repeat": Iterable(ranks=Ranks(1, 2, "repeat", shard_lengths=[11, 4, 8])),
    "iterable, drop": Iterable(ranks=Ranks(0, 2, "drop", shard_lengths=[11, 4, 8])),
    "bridge": Bridged(),
    "bridge with a state": Bridged(stateful=True),
    "torch": Torch(),
    "torch, shuffled": Torch(shuffle=True),
}

# -- Tests -------------------------------------------------------------------------------------------------------------

worst = {"seconds": 0.0, "bytes": 0}


@contextlib.contextmanager
def bounded():
    """Measures the time and memory of a block."""
    tracemalloc.start()
    start = time.process_time()
    try:
        yield
    finally:
        seconds, peak = time.process_time() - start, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        worst["seconds"], worst["bytes"] = max(worst["seconds"], seconds), max(worst["bytes"], peak)
    assert seconds < LIMIT_S
    assert peak < LIMIT_BYTES


def as_text(state):
    try:
        return json.dumps(state, sort_keys=True)
    except RecursionError:
        return None


# These become those of the rank that loads a state: the first two since a state may be that of another rank.
OURS = "check", "carried", "rank", "ranks", "divides", "batch_size", "last_batch"


def without(state, *names):
    return {name: value for name, value in state.items() if name not in names}


def load_edited(kind, rng, states):
    """Loads an edited state; returns whether it was loaded."""
    state = edited(rng, states)
    is_sealed = rng.random() < 0.6
    state = sealed(state) if is_sealed else state
    text = as_text(state)
    loader = kind.make()
    before = loader.state_dict()
    calls.clear()
    try:
        with bounded():
            loader.load_state_dict(text if text is not None and rng.random() < 0.5 else state)
    except Refused:
        assert is_sealed
        assert loader.state_dict() == before
        return False
    except ValueError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        assert refusal.startswith("state: ")
        assert not calls
        assert loader.state_dict() == before
        return False
    assert is_sealed or text in list(map(as_text, states))
    if not isinstance(kind, Bridged):
        now = loader.state_dict()
        assert without(now, *OURS) == without(state, *OURS)
        assert all(now.get(name) == before.get(name) for name in OURS[2:])
    expected, may_fail = kind.expected(as_saved(state))
    rest = []
    try:
        with bounded():
            rest = list(kind.rest(loader))
    except (ValueError, TooManyErrors):
        if not may_fail:
            raise
    else:
        assert expected is None or repr(rest) == repr(expected)  # keys may be NaN
    return True


def run(name, first, function, kind, states, count):
    """Calls the function for `count` edited states; a failure names the number that repeats it."""
    loaded = 0
    for seed in range(first, first + count):
        try:
            loaded += function(kind, random.Random(f"{name} {seed}"), states)
        except Exception as error:
            raise AssertionError(f"edited state {seed} of {name!r}") from error
    return loaded


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", KINDS)
def test_an_edited_state_is_refused_or_loads_what_it_says(name):
    if name.startswith("torch"):
        pytest.importorskip("torch")
    kind, count = KINDS[name], examples(STATES // len(KINDS))
    states = [as_saved(state) for state in kind.states()]
    for state in states[:]:
        if state.get("ahead") == []:
            states += [sealed({**state, "ahead": [[state["batch"] + more, state["batch"] + 4]]}) for more in (1, 2)]
    loaded = run(name, FIRST, load_edited, kind, states, count)
    print(f"{name}: {loaded} of {count} loaded; the worst so far: {worst}")


def settled_in(state, number):
    """Whether a state of a rank, or of all ranks, says that a chunk was delivered or does not exist."""
    chunk, shard = divmod(number, 3)
    ended = dict(map(tuple, state["ended"]))
    owned = range(state.get("rank", 0), 3, state.get("ranks", 1))
    if len(ended) == len(owned) and state["batch"] >= (max(ended.values()) + 1) * 3:
        return True
    return chunk > ended.get(shard, chunk) or number < state["batch"] or is_ahead(state, number)


def merge_edited(ranks, rng, all_states):
    """Merges the states of ranks, one or all of which are edited; returns whether they were merged."""
    states = [as_saved(state) for state in rng.choice(all_states)]
    originals = list(map(as_text, states))
    for index in rng.choice([[0], [1], [0, 1]]):
        states[index] = edited(rng, [states[index]])
        states[index] = sealed(states[index]) if rng.random() < 0.8 else states[index]
    try:
        with bounded():
            merged = merge_states(states)
    except ValueError as error:
        text = str(error)
    else:
        text = ""
    if text:
        assert text.startswith("state")
        return False
    assert all(text in originals or state == sealed(state) for text, state in zip(map(as_text, states), states))
    epoch = min(state["epoch"] for state in states)
    by_rank = {state["rank"]: state for state in states}
    for number in range(60):
        state = by_rank[number % 3 % len(states)]
        assert settled_in(merged, number) == (state["epoch"] > epoch or settled_in(state, number))
    loader = ranks.make(ranks=None)
    try:
        loader.load_state_dict(merged)
    except ValueError:  # of a number that all ranks share, such as the seed, which only the loader can judge
        return False
    expected, may_fail = ranks.expected(merged)
    try:
        rest = list(ranks.rest(loader))
    except ValueError as error:
        text = str(error)
    assert (text and may_fail) or repr(rest) == repr(expected)
    return True


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("last_batch", ["keep", "rollover"])
@pytest.mark.parametrize("count", [2, 3])
def test_edited_states_of_ranks_are_refused_or_merged_as_they_say(count, last_batch):
    ranks = Iterable(last_batch=last_batch)
    by_rank = [list(ranks.states(ranks=(index, count))) for index in range(count)]
    merged = run(f"{count} {last_batch}", FIRST, merge_edited, ranks, list(zip(*by_rank, strict=True)), STATES // 30)
    print(f"{count} ranks: {merged} of {STATES // 30} merged; the worst so far: {worst}")


@pytest.mark.parametrize(
    "load", [DataLoader(range(4), 2).load_state_dict, bridge([1]).load_state_dict, lambda state: merge_states([state])]
)
def test_a_state_inside_another_dict_is_named(load):
    state = DataLoader(range(4), 2).state_dict()
    with pytest.raises(ValueError, match=r"state: this dict holds the loader's state under 'loader'; pass state\['lo"):
        load({"model": {"w": 1}, "loader": state})
    with pytest.raises(ValueError, match=r"under 'a' and 'b'; pass state\['a'\]"):
        load({"version": 3, "a": state, "b": state})


def resealed(state, **changes):
    return sealed({**state, **changes})


@pytest.mark.parametrize(
    ("make", "changes", "text"),
    [
        (lambda: DataLoader(range(10), 2), {"ahead": [[5, 10**9]]}, "ahead=.*must be less than 5"),
        (lambda: DataLoader(range(10), 2), {"epoch": 2**63}, "epoch=9223372036854775808: must be an int"),
        (lambda: DataLoader(range(10), 2), {"batch": 4, "offset": 3}, "batch=4: must be at most offset=3"),
        (lambda: DataLoader(range(10), 2), {"seed": 2**70}, f"seed={2**70}: must be an int from -2"),
        (lambda: Iterable(seed=None).make(), {"seed": -(2**64)}, f"seed=-{2**64}: must be an int from -2"),
        (lambda: Iterable().make(), {"ended": [[7, 1]]}, r"ended=\[7, 1\].*must be one of the shards"),
        (lambda: Iterable().make(), {"ended": [[0, 1], [0, 1]]}, ".*each only once"),
        (lambda: Iterable().make(), {"hints": [{"shard": 9, "group": 0, "state": None}]}, "hints.shard=9"),
        (lambda: Iterable().make(), {"stop": {"chunk": 3, "others": 1}}, "stop=.*pass the same policy"),
        (lambda: Iterable().make(), {"leftovers": [{"shard": 0}]}, "leftovers.start is missing"),
        (lambda: bridge([1, 2]), {"source": {"gluonloader.bytes": "?"}}, "gluonloader.bytes=.*cannot be restored"),
    ],
)
def test_a_wrong_field_is_named_although_the_checksum_is_fresh(make, changes, text):
    loader = make()
    with pytest.raises(ValueError, match=f"^state: {text}"):
        loader.load_state_dict(resealed(loader.state_dict(), **changes))


@pytest.mark.parametrize(
    ("sampler", "key", "others"),
    [
        (range(7), 7, [0, 6]),
        (RandomSampler(7, 1), -1, [0, 6]),
        (SequentialSampler(7, 3), 10, [3, 9]),
        (ShardedSampler(RandomSampler(7, 1), 2, 0), 7, [0, 6]),
        (WeightedSampler([1, 0, 2], 7, seed=1), 3, [0, 1]),  # the weights may have been others
        (SubsetSampler([4, 8, 4, 2], seed=1), 5, [8, 2]),
        (["a", "b", 3], "c", ["a", 3]),
        (np.array([2, 5, 7]), 3, [2, 7]),
        (range(7), "a", [1]),
        (range(7), None, [1]),
    ],
    ids=repr,
)
def test_an_index_that_was_carried_over_is_one_of_the_sampler(sampler, key, others):
    loader = DataLoader(Echo(), 3, sampler=sampler, last_batch="rollover", batchify_fn=list, seed=1)
    state = loader.state_dict()

    def carried(*keys):
        return sealed({**state, "carried": list(keys)})

    loader.load_state_dict(carried(*others))
    assert next(iter(loader))[: len(others)] == others
    with pytest.raises(ValueError, match=rf"^state: carried=.*: {key!r} is no index of this "):
        loader.load_state_dict(carried(key))


def test_an_index_of_a_users_sampler_is_the_users_matter():
    loader = DataLoader(Echo(), 3, sampler=Restarting(["a", "b"]), last_batch="rollover", batchify_fn=list)
    state = loader.state_dict()
    loader.load_state_dict(sealed({**state, "carried": ["z"]}))
    assert list(loader) == [["z", "a", "b"]]


def test_very_many_batches_may_have_been_delivered_ahead():
    loader = DataLoader(Keys(10**12), 1, shuffle=True, seed=1)
    state = resealed(loader.state_dict(), ahead=[[1, 10**12 - 1]])
    with bounded():
        loader.load_state_dict(state)
        iterator = iter(loader)
        numbers = [iterator.last.number for _ in iterator]
    assert numbers == [0, 10**12 - 1]


def test_no_user_code_runs_before_the_checksum_is_compared():
    loader = DataLoader(Echo(), 4, sampler=Drawn())
    state = loader.state_dict()
    calls.clear()
    with pytest.raises(ValueError, match="state: check="):
        loader.load_state_dict({**state, "snapshot": {"at": 3}})
    with pytest.raises(ValueError, match="state: batch=-1"):
        loader.load_state_dict(resealed(state, batch=-1))
    assert not calls
