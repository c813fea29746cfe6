"""States: what remains of an epoch is the same as with torchdata's `StatefulDataLoader`, and more."""

import json
import logging

import pytest

from .differences import differs
from .sides import OURS, Numbers, same, samples, torch

data = torch.utils.data
stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

logging.getLogger("torchdata.stateful_dataloader.stateful_dataloader").setLevel(logging.ERROR)

pytestmark = [
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*state_dict:RuntimeWarning"),
]


@pytest.fixture(params=["torch", "gluonloader"])
def loader_class(request):
    """torchdata's loader instead of torch's, which has no state."""
    return {"torch": stateful, "gluonloader": OURS}[request.param]


class Split(data.IterableDataset):
    """Numbers that are divided among the workers."""

    def __init__(self, length=11):
        self.length = length

    def __iter__(self):
        info = data.get_worker_info()
        return iter(range(self.length)) if info is None else iter(range(info.id, self.length, info.num_workers))


class Positioned(Split):
    """The same, with a state."""

    position = 0

    def __iter__(self):
        info = data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        numbers = range(first, self.length, step)
        while self.position < len(numbers):
            self.position += 1
            yield numbers[self.position - 1]
        self.position = 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


class CountingSampler(data.Sampler):
    """A user's sampler with a state."""

    def __init__(self):
        self.position = 0

    def __len__(self):
        return 11

    def __iter__(self):
        while self.position < 11:
            self.position += 1
            yield 11 - self.position
        self.position = 0

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


def numbers(loader):
    return [batch.tolist() for batch in loader]


PIPELINES = {
    "sequential": lambda L, workers: L(range(11), 2, num_workers=workers),
    "drop_last": lambda L, workers: L(range(11), 2, num_workers=workers, drop_last=True),
    "shuffle": lambda L, workers: L(
        range(11), 2, shuffle=True, num_workers=workers, generator=torch.Generator().manual_seed(3)
    ),
    "weighted": lambda L, workers: L(
        range(11),
        2,
        sampler=data.WeightedRandomSampler([1.0] * 11, 30, generator=torch.Generator().manual_seed(3)),
        num_workers=workers,
    ),
    "distributed": lambda L, workers: L(
        range(11), 2, sampler=data.DistributedSampler(range(11), 2, 1), num_workers=workers
    ),
    "batch_sampler": lambda L, workers: L(range(11), batch_sampler=[[5, 1], [2], [3, 4, 0], [10]], num_workers=workers),
    "stateful sampler": lambda L, workers: L(range(11), 2, sampler=CountingSampler(), num_workers=workers),
    "iterable": lambda L, workers: L(Split(), 2, num_workers=workers),
    "stateful iterable": lambda L, workers: L(Positioned(), 2, num_workers=workers),
}


def resumed(L, make, workers, stop):
    """What a loader loads in the epoch that a state continues, and in the next one; as numbers of its first epoch.

    Args:
        stop: after how many batches the state is saved, inside the loop; -1: after the loop; 0: before it.
    """
    first, loader, state = numbers(make(L, workers)), make(L, workers), None
    if stop == 0:
        state = loader.state_dict()
    elif stop < 0:
        numbers(loader)
        state = loader.state_dict()
    else:
        for number, _ in enumerate(loader, 1):
            if number == min(stop, len(first)):
                state = loader.state_dict()
    again = make(L, workers)
    again.load_state_dict(state)
    rest = numbers(again)
    if stop >= 0:
        assert rest == first[stop:]
    return len(rest), sorted(map(len, rest)), len(numbers(again))


@pytest.mark.parametrize("stop", [0, 1, 3, 100, -1], ids=["before", "1", "3", "last", "after"])
@pytest.mark.parametrize("kind", PIPELINES)
def test_what_remains_after_a_state(kind, stop):
    """Without workers. torchdata's class takes the role of torch's."""
    if (kind, stop) == ("stateful sampler", 100):
        pytest.skip("the next test compares it")
    remains = [resumed(L, PIPELINES[kind], 0, stop) for L in (stateful, OURS)]
    assert remains[0] == remains[1]


@pytest.mark.parametrize("stop", [3, 100, -1], ids=["3", "last", "after"])
@pytest.mark.parametrize("kind", ["shuffle", "iterable", "stateful iterable"])
def test_what_remains_after_a_state_with_workers(kind, stop):
    if (kind, stop) == ("stateful iterable", 100):
        pytest.skip("the next test compares it")
    remains = [resumed(L, PIPELINES[kind], 2, stop) for L in (stateful, OURS)]
    assert remains[0] == remains[1]


@differs("states-at-the-end")
@pytest.mark.parametrize(("kind", "workers"), [("stateful sampler", 0), ("stateful iterable", 2)])
def test_nothing_remains_after_the_last_batch_if_the_users_class_starts_again_by_itself(loader_class, kind, workers):
    assert resumed(loader_class, PIPELINES[kind], workers, 100)[0] == 0


def test_a_state_that_is_loaded_is_the_state_until_the_next_epoch():
    def pipeline(L):
        loader = PIPELINES["sequential"](L, 0)
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        loader.load_state_dict(state)
        return numbers(loader), numbers(loader)

    assert pipeline(stateful) == pipeline(OURS)


def test_the_epochs_after_a_resumed_one_have_other_orders():
    for L in (stateful, OURS):
        loader = PIPELINES["shuffle"](L, 0)
        first = numbers(loader)
        for _ in loader:
            state = loader.state_dict()
            break
        wanted = [numbers(loader) for _ in range(1)]
        again = PIPELINES["shuffle"](L, 0)
        again.load_state_dict(state)
        assert sorted(sum(numbers(again), [])) != sorted(sum(first, []))
        assert sorted(sum(numbers(again), [])) == sorted(sum(wanted[0], []))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_of_the_second_epoch(workers):
    for L in (stateful, OURS):
        wanted = [numbers(loader) for loader in [PIPELINES["shuffle"](L, workers)] for _ in range(3)]
        loader = PIPELINES["shuffle"](L, workers)
        assert numbers(loader) == wanted[0]
        batches = iter(loader)
        assert [next(batches).tolist() for _ in range(2)] == wanted[1][:2]
        state = loader.state_dict()
        again = PIPELINES["shuffle"](L, workers)
        again.load_state_dict(state)
        assert numbers(again) == wanted[1][2:]
        assert L is stateful or numbers(again) == wanted[2]


@pytest.mark.parametrize("kind", ["shuffle", "iterable"])
def test_states_of_persistent_workers(kind):
    def make(L, workers):
        loader = PIPELINES[kind](L, workers)
        kept = {name: getattr(loader, name) for name in ("batch_size", "num_workers", "generator")}
        shuffle = {"shuffle": True} if kind == "shuffle" else {}
        return L(loader.dataset, persistent_workers=True, **kept, **shuffle)

    for stop in (3, -1):
        remains = [resumed(L, make, 2, stop) for L in (stateful, OURS)]
        assert remains[0] == remains[1]


@differs("json-states", raises=TypeError)
def test_a_state_is_json(loader_class):
    loader = PIPELINES["shuffle"](loader_class, 0)
    batches = iter(loader)
    rest = [next(batches), numbers(batches)][1]
    loader = PIPELINES["shuffle"](loader_class, 0)
    next(iter(loader))
    state = json.dumps(loader.state_dict())
    again = PIPELINES["shuffle"](loader_class, 0)
    again.load_state_dict(json.loads(state))
    assert numbers(again) == rest


@differs("states-and-workers", raises=AssertionError)
@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (1, 2)])
def test_a_state_fits_any_number_of_workers(loader_class, before, after):
    loader = PIPELINES["shuffle"](loader_class, before)
    batches = iter(loader)
    next(batches)
    state, rest = loader.state_dict(), numbers(batches)
    again = PIPELINES["shuffle"](loader_class, after)
    again.load_state_dict(state)
    assert numbers(again) == rest


@differs("states-checked", raises=pytest.fail.Exception)
@pytest.mark.parametrize("arguments", [{"batch_size": 3}, {"shuffle": True}, {"drop_last": True}], ids=str)
def test_a_state_of_another_pipeline_is_refused(loader_class, arguments):
    loader = loader_class(range(12), 2)
    next(iter(loader))
    other = loader_class(range(12), **{"batch_size": 2, **arguments})
    with pytest.raises(ValueError, match="state"):
        other.load_state_dict(loader.state_dict())


@differs("states-repeat-random-numbers")
def test_random_numbers_in_samples_are_the_same_after_a_resume(loader_class):
    class Noise(data.Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            return torch.rand(())

    torch.manual_seed(1)
    loader = loader_class(Noise(), 2)
    batches = iter(loader)
    next(batches)
    state, rest = loader.state_dict(), numbers(batches)
    torch.manual_seed(2)
    again = loader_class(Noise(), 2)
    again.load_state_dict(state)
    assert numbers(again) == rest


def test_a_loader_that_saves_states_loads_what_torchs_loader_does(workers):
    """Saving a state changes nothing."""

    def pipeline(L):
        loader, seen = L(Numbers(), 2, shuffle=True, num_workers=workers), []
        for batch in loader:
            if L is OURS:
                loader.state_dict()
            seen.append(batch)
        return seen, samples(L(range(5), shuffle=True))

    same(pipeline)
