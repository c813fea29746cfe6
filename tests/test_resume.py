"""Positions: after a resume, in whatever process and with whatever executor, the batches are the same, bit for bit."""

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import FORK, SERIAL, THREAD, Way
from pipelines import EPOCHS, LENGTH, PIPELINES, WAYS, Continuing, rest, text
from samples import FirstWaits

from gluonloader import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    FilterSampler,
    IterableDataset,
    MixtureSampler,
    ShardedSampler,
    SimpleDataset,
    Subset,
    WeightedSampler,
    merge_states,
    random_split,
)
from gluonloader.buckets import FixedBucketSampler, SortedBucketSampler

pytestmark = [pytest.mark.filterwarnings("ignore:resuming:RuntimeWarning"), pytest.mark.numpy_only]


def saved_everywhere(pipeline, way):
    """Runs one epoch; returns the states before each batch and after the last, the batches, and all later batches."""
    states, batches = [], []
    with PIPELINES[pipeline](WAYS[way]) as loader:
        states.append(loader.state_dict())
        for batch in loader:
            batches.append(text(batch))
            states.append(loader.state_dict())
        more = rest(loader)
    return states, batches, more


@pytest.mark.spawn
@pytest.mark.parametrize(
    "pipeline",
    ["sequential", "shuffled", "bijection", "discard", "rollover", "weighted", "batch_sampler", "list", "fixed",
     "continuing", "sharded", "iterable", "iterable_rollover"],
)  # fmt: skip
def test_the_remaining_batches_are_the_same_in_a_fresh_process(pipeline):
    """Each executor saves a state after every batch; each executor loads all of them in another process."""
    states, batches, more = saved_everywhere(pipeline, "serial")
    for way in WAYS:
        assert saved_everywhere(pipeline, way) == (states, batches, more), way
    assert all(len(json.dumps(state)) < 10_000 for state in states)
    run = subprocess.run(
        [sys.executable, "-W", "ignore", Path(__file__).parent / "pipelines.py", pipeline],
        input=json.dumps(states), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    expected = [[batches[k:], *more[: EPOCHS - 1]] for k in range(len(batches))]
    for way, found in json.loads(run.stdout).items():
        assert found[: len(batches)] == expected, way
        # After the last batch, this epoch has no more, or the next one starts.
        assert found[-1] in ([[], *more[: EPOCHS - 1]], more[:EPOCHS]), way


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
def test_batches_that_were_delivered_out_of_order_are_not_repeated(way, tmp_path):
    """The first batch is late, later ones are delivered, and a resume delivers only the missing ones."""
    dataset = FirstWaits(6000, tmp_path / "go")
    with way.loader(dataset, 2, in_order=False) as loader:
        iterator = iter(loader)
        seen = [next(iterator).tolist() for _ in range(2500)]
        state = loader.state_dict()
        dataset.go.touch()
    assert [0, 1] not in seen
    assert len(json.dumps(state)) < 1000
    with way.loader(dataset, 2, in_order=False) as loader:
        loader.load_state_dict(state)
        seen += [batch.tolist() for batch in loader]
    assert sorted(seen) == [[index, index + 1] for index in range(0, 6000, 2)]


def test_batches_that_were_delivered_out_of_order_stay_with_their_rank_and_batch_size(tmp_path):
    data = FirstWaits(48, tmp_path / "go")

    def make(shares, index, size=2):
        return THREAD.loader(data, size, sampler=ShardedSampler(range(48), shares, index), in_order=False)

    with make(2, 0) as loader:
        iterator = iter(loader)
        seen = [next(iterator).tolist() for _ in range(3)]
        state = loader.state_dict()
        data.go.touch()
    assert state["ahead"]
    of_size = "batches of 2 samples were delivered out of order.*load the state with batch_size=2"
    of_rank = "rank 0 of 2 delivered .* this is rank {} of {}; load the state of this rank, or save with in_order=True"
    for where, reason in [((2, 0, 4), of_size), *(((n, i), of_rank.format(i, n)) for n, i in [(2, 1), (3, 0), (1, 0)])]:
        with make(*where) as loader:
            before = loader.state_dict()
            with pytest.raises(ValueError, match=f"state: ahead=.*{reason}"):
                loader.load_state_dict(state, new_batch_size=len(where) == 3)
            assert loader.state_dict() == before
    with make(2, 1) as loader, pytest.raises(ValueError, match="came out of order; save the states of all ranks"):
        merge_states([state, loader.state_dict()])
    with make(2, 0) as loader:
        loader.load_state_dict(state)
        seen += [batch.tolist() for batch in loader]
    assert sorted(sum(seen, [])) == list(range(0, 48, 2))


def test_set_epoch_to_an_epoch_that_an_iterator_has_loaded_starts_it_again():
    loader, other = make(), make()
    list(loader)
    state = loader.state_dict()
    expected = [batch.tolist() for batch in loader]
    iterator = iter(other)
    iterator.load_state_dict(state)
    assert [batch.tolist() for batch in iterator] == expected
    other.set_epoch(1)
    assert [batch.tolist() for batch in other] == expected


def test_keys_that_json_cannot_hold_make_batches_but_no_position():
    loader = DataLoader({(i, 0): i for i in range(5)}, 2, sampler=[(i, 0) for i in range(5)], last_batch="rollover")
    assert [[batch.tolist() for batch in loader] for _ in range(2)] == [[[0, 1], [2, 3]], [[4, 0], [1, 2], [3, 4]]]
    list(loader)
    with pytest.raises(TypeError, match=r"the index \(4, 0\) is carried over .*last_batch='keep'"):
        loader.state_dict()


# -- wrong states --------------------------------------------------------------------------------------------------


def make(**changes):
    return DataLoader(**{"dataset": range(20), "batch_size": 3, "shuffle": True, "seed": 1, **changes})


def state_in_mid_epoch():
    loader = make(last_batch="rollover")
    list(loader)
    iterator = iter(loader)
    next(iterator)
    return loader.state_dict()


def test_a_changed_field_with_a_plausible_value_is_refused():
    changed = "state: check=.*changed after it was saved"
    for changes, reason in [
        ({"batch": 2}, changed),
        ({"epoch": 5}, changed),
        ({"carried": [4, 5]}, changed),
        ({"version": 2}, "state: version=2: this release of gluonloader loads only version 1"),
    ]:
        with pytest.raises(ValueError, match=reason):
            make(last_batch="rollover").load_state_dict({**state_in_mid_epoch(), **changes})


def nested(depth, wrap=lambda value: [value]):
    value = 3
    for _ in range(depth):
        value = wrap(value)
    return value


DEEP = [nested(depth, wrap) for depth in (900, 100_000) for wrap in (lambda value: [value], lambda value: {"a": value})]
TEXT = json.dumps(state_in_mid_epoch())
WRONG = [
    *(TEXT[:length] for length in (0, 1, len(TEXT) // 2, len(TEXT) - 1)),
    *(start * depth + "1" + end * depth for start, end in ("[]", ('{"version":', "}")) for depth in (900, 100_000)),
    *(None, 3, [], b"\x80"),
]


def test_what_is_no_state_is_refused_and_changes_nothing():
    """Also what JSON cannot store, and what is nested so deeply that recursive code would fail."""
    state = state_in_mid_epoch()
    inside = [*DEEP, {1}, object(), b"text", {"a": {1}}, {(1, 2): 3}, 10**5000]
    names = [*state, "more", "dataset"]
    wrong = [*WRONG, *({**state, name: value} for name in names for value in inside)]
    wrong += [{**state, "sampler": {**state["sampler"], name: value}} for name in state["sampler"] for value in DEEP]
    loader = make(last_batch="rollover")
    before = loader.state_dict()
    for one in wrong:
        with pytest.raises(ValueError, match="^state: "):
            loader.load_state_dict(one)
    assert loader.state_dict() == before


class Odd(Continuing):
    """Its state cannot be saved."""

    def __init__(self, state):
        super().__init__()
        self.state_dict = lambda: state


@pytest.mark.parametrize("state", [{"rng": object()}, nested(100_000)], ids=type)
def test_a_sampler_whose_state_json_cannot_hold_is_named(state):
    with pytest.raises(TypeError, match=r"Odd\.state_dict\(\) returned something that JSON cannot store"):
        DataLoader(range(LENGTH), 2, sampler=Odd(state)).state_dict()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"dataset": range(21)}, "length"), ({"batch_size": 4}, "batch_size"), ({"last_batch": "keep"}, "last_batch"),
        ({"seed": 2}, "seed"), ({"shuffle": False}, "sampler.*kind"),
        ({"shuffle": False, "sampler": WeightedSampler([1] * 20, seed=1)}, "sampler.*kind"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_loader_with_other_arguments_refuses_the_state_and_names_the_difference(changes, field):
    state = state_in_mid_epoch()
    loader = make(**{"last_batch": "rollover", **changes})
    before = loader.state_dict()
    with pytest.raises(ValueError, match=f"state: .*{field}"):
        loader.load_state_dict(state)
    assert loader.state_dict() == before
    assert sum(len(batch) for batch in loader) >= 18


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"batch_size": 3}, "batch_size"),
     ({"dataset": IterableDataset(lambda: iter(range(9)), num_shards=3)}, "num_shards"),
     ({"last_batch": "discard"}, "last_batch"),
     ({"shuffle": True}, "shuffle_buffer"), ({"seed": 9}, "seed")],
)  # fmt: skip
def test_an_iterable_loader_with_other_arguments_refuses_the_state(changes, field):
    def make(**changes):
        dataset = IterableDataset(lambda: iter(range(9)), num_shards=2)
        return DataLoader(**{"dataset": dataset, "batch_size": 2, "seed": 1, **changes})

    loader = make()
    next(iter(loader))
    state = loader.state_dict()
    with pytest.raises(ValueError, match=f"state: {field}="):
        make(**changes).load_state_dict(state)
    for name in state:
        with pytest.raises(ValueError, match=f"state: .*({name}|check)"):
            make().load_state_dict({key: value for key, value in state.items() if key != name})


# -- copies -------------------------------------------------------------------------------------------------------


class Listed:
    """A sampler that shuffles a list of its own, in place."""

    def __init__(self, length):
        self.order, self.epoch = list(range(length)), 0

    def __len__(self):
        return len(self.order)

    def __iter__(self):
        self.epoch += 1
        self.order.reverse()
        self.order[0], self.order[self.epoch % 7] = self.order[self.epoch % 7], self.order[0]
        return iter(list(self.order))

    def state_dict(self):
        return {"order": list(self.order), "epoch": self.epoch}

    def load_state_dict(self, state):
        self.order[:], self.epoch = state["order"], state["epoch"]


def test_an_epoch_that_is_left_after_a_resume_passes_on_what_it_was_started_with():
    def make():
        return DataLoader(range(20), 3, True, last_batch="rollover", seed=4)

    loader, other = make(), make()
    list(loader)
    next(iter(loader))
    other.load_state_dict(loader.state_dict())
    next(iter(other))
    assert [batch.tolist() for batch in other] == [batch.tolist() for batch in loader]


def test_a_copy_has_its_own_sampler_but_the_same_dataset():
    dataset, sampler = list(range(20)), Listed(20)
    sampler.dataset = dataset  # a sampler may refer to the dataset
    loader = DataLoader(dataset, 3, sampler=sampler)
    list(loader)
    other = copy.copy(loader)
    expected = [batch.tolist() for batch in other]
    [list(other) for _ in range(5)]
    assert [batch.tolist() for batch in loader] == expected
    assert other.epochs.workers.job.dataset is dataset


def test_a_copy_of_an_iterable_loader_is_independent():
    dataset = IterableDataset(lambda: iter(range(23)))
    loader = DataLoader(IterableDataset(dataset, num_shards=2), 4, True, last_batch="rollover", seed=1)
    list(loader)
    next(iterator := iter(loader))
    other = copy.copy(loader)
    expected = [batch.tolist() for batch in other]
    [list(other) for _ in range(2)]
    assert [batch.tolist() for batch in iterator] == expected


# -- pickles -------------------------------------------------------------------------------------------------------


UNPICKLE = """
import json, pickle, sys
found = []
for loader, iterator in pickle.load(sys.stdin.buffer):
    loader, iterator = pickle.loads(loader), pickle.loads(iterator)
    found.append([[batch.tolist() for batch in part] for part in (loader, loader, iterator)])
print(json.dumps(found))
"""


@pytest.mark.spawn
def test_pickles_of_a_loader_and_an_iterator_in_mid_epoch_resume_in_another_process():
    pickles, expected = [], []
    for way in (SERIAL, Way("fork-4", {"num_workers": 4}), THREAD):
        with way.loader(range(20), 2, True, seed=3) as loader:
            iterator = iter(loader)
            for _ in range(4):
                next(iterator)
            pickles.append((pickle.dumps(loader), pickle.dumps(iterator)))
            left, later = ([batch.tolist() for batch in part] for part in (iterator, loader))
        assert len(left) == 6
        expected.append([left, later, left])
    run = subprocess.run(
        [sys.executable, "-c", UNPICKLE], input=pickle.dumps(pickles), capture_output=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == expected


def test_a_batch_sampler_of_another_kind_is_refused():
    state = DataLoader(range(6), batch_sampler=BatchSampler(range(6), 2)).state_dict()
    with pytest.raises(ValueError, match=r"state: sampler\.kind='range': this sampler has kind='list'"):
        DataLoader(range(6), batch_sampler=[[0], [1]]).load_state_dict(state)


PARTS = {
    "random_split": lambda seed: random_split(range(40), [30, 10], seed=seed)[0],
    "filter": lambda seed: SimpleDataset(range(40)).filter(lambda x: x % 2 == seed),
    "shard": lambda seed: SimpleDataset(range(40)).shard(2, seed),
    "in a transform": lambda seed: SimpleDataset(range(40)).shard(2, seed).transform(abs),
    "texts": lambda seed: Subset({"a": 0, "b": 1}, ["a", "b"] if seed else ["b", "a"]),
}


@pytest.mark.parametrize("name", PARTS)
def test_other_indices_of_a_subset_are_a_warning(name):
    loader, same, other = (DataLoader(PARTS[name](seed), 1, seed=0) for seed in (0, 0, 1))
    next(iter(loader))
    state = json.loads(json.dumps(loader.state_dict()))
    same.load_state_dict(state)
    with pytest.warns(RuntimeWarning, match="this Subset has other indices") as caught:
        other.load_state_dict(state)
    assert caught[0].filename == __file__


def test_joined_datasets_of_other_lengths_are_refused():
    state = DataLoader(ConcatDataset(range(10), range(10)), 1).state_dict()
    with pytest.raises(ValueError, match=r"state: data.lengths=\[10, 10\]: this ConcatDataset has lengths=\[5, 15\]"):
        DataLoader(ConcatDataset(range(5), range(15)), 1).load_state_dict(state)


ALIKE = {
    "FilterSampler": lambda one: {"sampler": FilterSampler(lambda x: x % 2 == one, range(40)), "batch_size": 2},
    "SortedBucketSampler": lambda one: {"batch_sampler": SortedBucketSampler([2, 1, 3 + one] * 10, 2, seed=0)},
    "SortedBucketSampler, tuples": lambda one: {
        "batch_sampler": SortedBucketSampler([(2, 1), (1,), (3 + one, 2)] * 10, 2, seed=0)
    },
    "SortedBucketSampler, reverse": lambda one: {"batch_sampler": SortedBucketSampler([2, 1, 3] * 10, 2, reverse=one)},
    "FixedBucketSampler": lambda one: {"batch_sampler": FixedBucketSampler([[2, 9], [9, 2]][one] * 10, 2, 2)},
    "MixtureSampler": lambda one: {
        "sampler": MixtureSampler([20, 20], samplers=[[*range(20)][:: 1 - 2 * one], range(20)], seed=0),
        "batch_size": 2,
    },
}


@pytest.mark.parametrize("name", ALIKE)
def test_samplers_that_differ_only_in_their_indices_are_refused(name):
    loader, other = (DataLoader(range(40), seed=0, **ALIKE[name](one)) for one in (False, True))
    next(iter(loader))
    state = json.loads(json.dumps(loader.state_dict()))
    loader.load_state_dict(state)
    with pytest.raises(ValueError, match=r"state: sampler\."):
        other.load_state_dict(state)
