"""A resume warns if a user's sampler, or a list of indices, has another order than the one that was saved."""

import json
import warnings
from itertools import islice

import numpy as np
import pytest
from conftest import SERIAL
from rank_models import Restarting

from gluonloader import BatchSampler, DataLoader, MixtureSampler, RandomSampler, ShardedSampler, WeightedSampler
from gluonloader.state import add_checksum
from gluonloader.text import TokenBatchSampler

pytestmark = pytest.mark.filterwarnings("ignore:.* ranks divide its order")

LENGTH = 100
ORDERS = [np.random.default_rng(seed).permutation(LENGTH).tolist() for seed in range(2)]
OTHER, SHORT = "another order than before the state was saved", "ends before the position of the loaded state"


class Generated(Restarting):
    def __iter__(self):
        yield from map(np.int64, self.order)


class Pairs(Restarting):
    """A batch sampler that yields the same array each time, as some samplers do to save memory."""

    def __len__(self):
        return len(self.order) // 2

    def __iter__(self):
        pair = np.zeros(2, np.int64)
        for start in range(0, len(self.order), 2):
            pair[:] = self.order[start : start + 2]
            yield pair


class OfRank(Restarting):
    """A sampler that yields other indices on each rank, as torch's DistributedSampler."""

    rank = 0


class Stateful(Restarting):
    def state_dict(self):
        return {"left": self.order[2:]}

    def load_state_dict(self, state):
        self.order = state["left"]


WAYS = {
    "sampler": lambda order: {"batch_size": 2, "sampler": Restarting(order)},
    "generator": lambda order: {"batch_size": 2, "sampler": Generated(order)},
    "list": lambda order: {"batch_size": 2, "sampler": order},
    "array": lambda order: {"batch_size": 2, "sampler": np.array(order)},
    "batch sampler": lambda order: {"batch_sampler": Pairs(order)},
    "BatchSampler": lambda order: {"batch_sampler": BatchSampler(Restarting(order), 2)},
    "rank": lambda order: {"batch_size": 2, "sampler": Restarting(order), "ranks": (1, 2)},
    "rank, list": lambda order: {"batch_size": 2, "sampler": order, "ranks": (1, 2)},
    "rank, batch sampler": lambda order: {"batch_sampler": Pairs(order), "ranks": (1, 2)},
    "rank, BatchSampler": lambda order: {"batch_sampler": BatchSampler(Restarting(order), 2), "ranks": (1, 2)},
}


def resumed(before, after, batches, dataset=range(LENGTH), epochs=0):
    """The warnings when a loader loads what another one has saved, and the batches that it then delivers."""
    with SERIAL.loader(dataset, **before) as loader:
        for _ in range(epochs):
            list(loader)
        list(islice(loader, batches))
        text = json.dumps(loader.state_dict())
    with SERIAL.loader(dataset, **after) as loader, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loader.load_state_dict(json.loads(text))
        rest = [batch.tolist() for batch in loader]
    assert all(warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught if "ranks divide" not in str(warning.message)], rest


@pytest.mark.parametrize("batches", [1, 7, 22])
@pytest.mark.parametrize("epochs", [0, 2])
@pytest.mark.parametrize("name", WAYS)
def test_another_order_is_a_warning_and_the_same_order_is_none(name, epochs, batches):
    before, same, after = WAYS[name](ORDERS[0]), WAYS[name](list(ORDERS[0])), WAYS[name](ORDERS[1])
    texts, rest = resumed(before, same, batches, epochs=epochs)
    assert texts == []
    with SERIAL.loader(range(LENGTH), **same) as loader:
        assert rest == [batch.tolist() for batch in loader][batches:]
    (text,), _ = resumed(before, after, batches, epochs=epochs)
    kind = "has other indices than the one that was saved" if name in ("list", "array", "rank, list") else OTHER
    assert kind in text


def test_the_order_may_be_compared_by_other_ranks_with_another_batch_size():
    def some(order, batch_size, ranks):
        return {"batch_size": batch_size, "sampler": Restarting(order), "ranks": ranks}

    assert resumed(some(ORDERS[0], 6, (0, 2)), some(ORDERS[0], 4, (1, 3)), 3)[0] == []
    (text,), _ = resumed(some(ORDERS[0], 6, (0, 2)), some(ORDERS[1], 4, (1, 3)), 3)
    assert OTHER in text


def test_what_comes_after_the_position_is_not_compared():
    longer = [*ORDERS[0], *range(LENGTH)]
    assert resumed(WAYS["sampler"](ORDERS[0]), WAYS["sampler"](longer), 10)[0] == []


@pytest.mark.parametrize("name", ["sampler", "generator", "batch sampler", "BatchSampler"])
def test_an_order_that_ends_before_the_position_is_a_warning(name):
    (text,), rest = resumed(WAYS[name](ORDERS[0]), WAYS[name](ORDERS[0][:80]), 45)
    assert SHORT in text
    assert rest == []
    assert resumed(WAYS[name](ORDERS[0]), WAYS[name](ORDERS[0][:90]), 45) == ([], [])


@pytest.mark.parametrize("kind", [OfRank, Stateful])
def test_the_order_of_another_rank_and_one_with_a_state_are_not_compared(kind):
    before, after = ({"batch_size": 2, "sampler": kind(order)} for order in ORDERS)
    assert resumed(before, after, 5)[0] == []


class Zeros(dict):
    """Has a sample for each key."""

    def __getitem__(self, key):
        return 0


@pytest.mark.parametrize(
    "kind",
    [
        lambda key: f"sample {key}",
        *(
            lambda key, other=other: (key, other)
            for other in (0.5, None, {"a": 1}, np.arange(3), np.str_("a"), frozenset({"a", "b"}))
        ),
    ],
    ids=["text", "and float", "and None", "and dict", "and array", "and text", "and set"],
)
def test_keys_that_contain_numbers_and_text_are_compared(kind):
    before, after = ({"batch_size": 2, "sampler": Restarting([*map(kind, order)])} for order in ORDERS)
    assert resumed(before, before, 5, Zeros())[0] == []
    (text,), _ = resumed(before, after, 5, Zeros())
    assert OTHER in text


def test_other_keys_are_not_compared():
    before, after = ({"batch_size": 2, "sampler": Restarting([(key, Zeros) for key in order])} for order in ORDERS)
    assert resumed(before, after, 5, Zeros())[0] == []


INNER = {
    "RandomSampler": lambda seed: RandomSampler(LENGTH, seed=seed),
    "MixtureSampler": lambda seed: MixtureSampler([LENGTH // 2, LENGTH // 2], [seed, 1], seed=0),
    "WeightedSampler": lambda seed: WeightedSampler(np.arange(LENGTH) % 7 == seed, LENGTH, seed=0),
    "ShardedSampler": lambda seed: ShardedSampler(RandomSampler(LENGTH, seed=seed), 2, 0),
    "TokenBatchSampler": lambda seed: TokenBatchSampler([2] * LENGTH, 4, shuffle=True, seed=seed),
}


@pytest.mark.parametrize("name", INNER)
def test_a_sampler_in_a_users_sampler_is_compared(name):
    which = "batch_sampler" if name == "TokenBatchSampler" else "sampler"
    one, same, other = ({which: Restarting(INNER[name](seed))} for seed in (1, 1, 2))
    if which == "sampler":
        one, same, other = ({**given, "batch_size": 2} for given in (one, same, other))
    assert resumed(one, same, 5)[0] == []
    (text,), _ = resumed(one, other, 5)
    assert OTHER in text


@pytest.mark.parametrize("batches", [1, 7, LENGTH // 2])
def test_the_order_of_a_function_is_compared(batches):
    one, same, other = (
        {"batch_size": 2, "sampler": lambda epoch, seed=seed: np.random.default_rng([seed, epoch]).permutation(LENGTH)}
        for seed in (1, 1, 2)
    )
    assert resumed(one, same, batches, epochs=1)[0] == []
    texts, _ = resumed(one, other, batches, epochs=1)
    assert ["this function returns another order" in text for text in texts] == [True] * (batches < LENGTH // 2)


@pytest.mark.parametrize("kind", [list, np.array, tuple])
def test_a_list_for_the_next_epoch_may_differ(kind):
    one, other = ({"batch_size": 2, "sampler": kind(order)} for order in ORDERS)
    assert resumed(one, other, 0)[0] == []
    assert resumed(one, other, LENGTH // 2)[0] == []


def test_an_epoch_that_is_set_after_the_load_of_a_position_is_a_warning():
    def made():
        return DataLoader(range(LENGTH), 2, sampler=RandomSampler(LENGTH, seed=1))

    loader = made()
    list(loader)
    list(islice(loader, 3))
    state = loader.state_dict()
    loader = made()
    loader.load_state_dict(state)
    loader.sampler.set_epoch(0)
    with pytest.warns(RuntimeWarning, match=r"set_epoch\(0\) was called on this RandomSampler after a position in"):
        next(iter(loader))
    loader = made()
    loader.load_state_dict(state)
    loader.sampler.set_epoch(1)
    next(iter(loader))


class Distributed(Restarting):
    """Has the attributes of torch's DistributedSampler."""

    num_replicas, rank, epoch = 2, 0, 0

    def __init__(self, order, seed, shuffle):
        super().__init__(order)
        self.seed, self.shuffle = seed, shuffle

    def set_epoch(self, epoch):
        self.epoch = epoch


@pytest.mark.parametrize(("seed", "shuffle", "match"), [(1, True, "seed=0"), (0, False, "shuffle=True")])
def test_a_distributed_sampler_with_other_arguments_is_refused(seed, shuffle, match):
    before, after = (
        {"batch_size": 2, "sampler": Distributed(ORDERS[0], *given)} for given in [(0, True), (seed, shuffle)]
    )
    assert resumed(before, before, 3)[0] == []
    with pytest.raises(ValueError, match=rf"state: sampler.{match}: this sampler has"):
        resumed(before, after, 3)


def test_batches_of_tensors():
    torch = pytest.importorskip("torch")
    before, after = ({"batch_sampler": torch.tensor(order).split(4)} for order in ORDERS)
    data = torch.arange(LENGTH)
    assert resumed(before, before, 3, data)[0] == []
    (text,), _ = resumed(before, after, 3, data)
    assert "has other indices" in text


@pytest.mark.parametrize(
    ("saved", "match"),
    [
        ([1], r"state: sampler.first_keys=\[1\]: must be a dict"),
        ({"count": 0, "checksum": 1}, "state: sampler.first_keys.count=0: must be an int >= 1"),
        ({"count": 1, "checksum": "a"}, "state: sampler.first_keys.checksum='a': must be an int >= 0"),
        ({"count": 1}, "checksum"),
    ],
)
def test_wrong_states_are_refused(saved, match):
    loader = DataLoader(range(LENGTH), 2, sampler=Restarting(ORDERS[0]), seed=0)
    next(iter(loader))
    state = loader.state_dict()
    state["sampler"]["first_keys"] = saved
    with pytest.raises(ValueError, match=match):
        loader.load_state_dict(add_checksum(state))


def test_a_sampler_in_a_users_sampler_goes_back_to_the_position_after_a_resume():
    def make():
        return DataLoader(
            range(LENGTH), 2, sampler=Restarting(RandomSampler(LENGTH, seed=1)), num_workers=1, thread_pool=True
        )

    with make() as loader:
        whole = [batch.tolist() for batch in loader]
    with make() as loader:
        iterator = iter(loader)
        first = [next(iterator).tolist() for _ in range(7)]
        state = iterator.state_dict()
    with make() as loader:
        loader.load_state_dict(state)
        iterator = iter(loader)
        first += [next(iterator).tolist() for _ in range(3)]
        iterator.flush()
        assert first + [batch.tolist() for batch in iterator] == whole
