"""States: what remains of an epoch is the same as with torchdata's `StatefulDataLoader`, and more."""

import copy
import itertools
import json
import logging
import pickle
import warnings

import numpy as np
import pytest

from .sides import OURS, Noise, Numbers, compared, continued, differs, left_after, lists, samples, torch

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


class OwnEpochs(data.Sampler):
    """Counts its epochs by itself, and saves the count and its position."""

    def __init__(self, length=6):
        self.length = length
        self.epoch = self.place = 0

    def __len__(self):
        return self.length

    def __iter__(self):
        order = torch.randperm(self.length, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        while self.place < self.length:
            self.place += 1
            yield order[self.place - 1]
        self.epoch, self.place = self.epoch + 1, 0

    def state_dict(self):
        return {"epoch": self.epoch, "place": self.place}

    def load_state_dict(self, state):
        self.epoch, self.place = state["epoch"], state["place"]


def seeded():
    return torch.Generator().manual_seed(3)


# The arguments of a loader.
PIPELINES = {
    "sequential": lambda: {},
    "drop_last": lambda: {"drop_last": True},
    "shuffle": lambda: {"shuffle": True, "generator": seeded()},
    "weighted": lambda: {"sampler": data.WeightedRandomSampler([1.0] * 11, 30, generator=seeded())},
    "distributed": lambda: {"sampler": data.DistributedSampler(range(11), 2, 1)},
    "batch_sampler": lambda: {"batch_sampler": [[5, 1], [2], [3, 4, 0], [10]], "batch_size": 1},
    "stateful sampler": lambda: {"sampler": OwnEpochs(11)},
    "iterable": lambda: {"dataset": Split()},
    "stateful iterable": lambda: {"dataset": Positioned()},
}


def made(L, kind, workers=0, **options):
    return L(**{"dataset": range(11), "batch_size": 2, "num_workers": workers, **PIPELINES[kind](), **options})


def remains(make, stop):
    """What a loader loads in the epoch that a state continues, and in the next one; as numbers of its first epoch.

    Args:
        stop: after how many batches the state is saved, inside the loop; -1: after the loop; 0: before it.
    """
    first, loader, again = lists(make()), make(), make()
    if stop < 0:
        lists(loader)
    state, _ = left_after(loader, min(stop, len(first))) if stop > 0 else (loader.state_dict(), None)
    rest = continued(again, state)
    if stop >= 0:
        assert rest == first[stop:]
    return len(rest), sorted(map(len, rest)), len(lists(again))


RESTARTING = [("stateful sampler", 0, 100), ("stateful iterable", 2, 100)]  # see `states-at-the-end`
CASES = [
    *itertools.product(PIPELINES, [0], [0, 1, 3, 100, -1]),
    *itertools.product(["shuffle", "iterable", "stateful iterable"], [2], [3, 100, -1]),
]


@pytest.mark.parametrize(("kind", "workers", "stop"), [case for case in CASES if case not in RESTARTING])
def test_what_remains_after_a_state(kind, workers, stop):
    """torchdata's class takes the role of torch's."""
    theirs, ours = (remains(lambda L=L: made(L, kind, workers), stop) for L in (stateful, OURS))
    assert theirs == ours


@pytest.mark.parametrize("kind", ["shuffle", "iterable"])
@pytest.mark.parametrize("stop", [3, -1])
def test_states_of_persistent_workers(kind, stop):
    theirs, ours = (remains(lambda L=L: made(L, kind, 2, persistent_workers=True), stop) for L in (stateful, OURS))
    assert theirs == ours


@differs("states-at-the-end")
@pytest.mark.parametrize(("kind", "workers", "stop"), RESTARTING)
def test_nothing_remains_after_the_last_batch_if_the_users_class_starts_again_by_itself(
    loader_class, kind, workers, stop
):
    assert remains(lambda: made(loader_class, kind, workers), stop)[0] == 0


def test_a_state_that_is_loaded_is_the_state_until_the_next_epoch():
    def pipeline(L):
        loader = made(L, "sequential")
        state, _ = left_after(loader, 1)
        return continued(loader, state), lists(loader)

    assert pipeline(stateful) == pipeline(OURS)


class OwnPasses(OwnEpochs, data.IterableDataset):
    """The same as a dataset."""


@pytest.mark.parametrize("kind", ["sampler", "dataset"])
@pytest.mark.parametrize("L", [stateful, OURS])
def test_what_counts_its_epochs_goes_on_after_a_state_between_two_epochs(L, kind, workers):
    if kind == "dataset" and workers:
        pytest.skip("the dataset of this process stays as it was")

    def make():
        if kind == "dataset":
            return L(OwnPasses(), 2)
        return L(range(6), 2, sampler=OwnEpochs(), num_workers=workers)

    loader, resumed = make(), make()
    first = lists(loader)
    resumed.load_state_dict(copy.deepcopy(loader.state_dict()))
    second = lists(loader)
    assert second != first
    assert lists(resumed) == second
    assert lists(resumed) == lists(loader)


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_a_sampler_that_counts_its_epochs_goes_on_after_a_state_after_the_last_batch(workers, persistent):
    def make():
        return OURS(range(6), 2, sampler=OwnEpochs(), num_workers=workers, persistent_workers=persistent)

    loader, resumed = make(), make()
    state, _ = left_after(loader, len(loader))
    wanted = [lists(loader) for _ in range(2)]
    assert continued(resumed, state) == []
    assert [lists(resumed) for _ in range(2)] == wanted


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("kind", ["shuffle", "stateful sampler", "iterable"])
def test_a_state_after_an_epoch_that_was_resumed_at_its_end(kind, workers, persistent):
    def make():
        return made(OURS, kind, workers, persistent_workers=persistent)

    loader = make()
    state, _ = left_after(loader, len(lists(make())))
    wanted = lists(loader)
    resumed, again = make(), make()
    resumed.load_state_dict(state)
    left = iter(resumed)
    again.load_state_dict(resumed.state_dict())
    assert lists(left) == lists(again) == []
    assert continued(make(), resumed.state_dict()) == lists(again) == wanted


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_of_the_second_epoch(workers):
    for L in (stateful, OURS):
        wanted = [lists(loader) for loader in [made(L, "shuffle", workers)] for _ in range(3)]
        assert len({str(order) for order in wanted}) == 3
        loader = made(L, "shuffle", workers)
        assert lists(loader) == wanted[0]
        state, rest = left_after(loader, 2)
        assert rest == wanted[1][2:]
        again = made(L, "shuffle", workers)
        assert continued(again, state) == rest
        assert L is stateful or lists(again) == wanted[2]


class Reads(data.Dataset):
    """Counts in each worker how many samples it has read, and saves the count."""

    count = 0

    def __len__(self):
        return 6

    def __getitem__(self, index):
        self.count += 1
        return self.count

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


@differs("states-in-workers")
def test_workers_start_with_the_dataset_of_the_program_after_a_resume(loader_class):
    state, _ = left_after(loader_class(Reads(), 2, num_workers=1), 1)
    assert continued(loader_class(Reads(), 2, num_workers=1), state) == [[1, 2], [3, 4]]


@differs("json-states", raises=TypeError)
def test_a_state_is_json(loader_class):
    state, rest = left_after(made(loader_class, "shuffle"), 1)
    assert continued(made(loader_class, "shuffle"), json.loads(json.dumps(state))) == rest


@differs("states-and-workers", raises=AssertionError)
@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (1, 2)])
def test_a_state_fits_any_number_of_workers(loader_class, before, after):
    state, rest = left_after(made(loader_class, "shuffle", before), 1)
    assert continued(made(loader_class, "shuffle", after), state) == rest


@differs("states-checked", raises=pytest.fail.Exception)
@pytest.mark.parametrize("arguments", [{"batch_size": 3}, {"shuffle": True}, {"drop_last": True}], ids=str)
def test_a_state_of_another_pipeline_is_refused(loader_class, arguments):
    state, _ = left_after(made(loader_class, "sequential"), 1)
    with pytest.raises(ValueError, match="state"):
        made(loader_class, "sequential", **arguments).load_state_dict(state)


@differs("states-repeat-random-numbers")
def test_random_numbers_in_samples_are_the_same_after_a_resume(loader_class):
    torch.manual_seed(1)
    state, rest = left_after(loader_class(Noise(), 2), 1)
    torch.manual_seed(2)
    assert continued(loader_class(Noise(), 2), state) == rest


class Drawing(data.Dataset):
    """Its state contains torch's global generator, from which the order is drawn, too."""

    def __len__(self):
        return 11

    def __getitem__(self, index):
        return index

    def state_dict(self):
        return {"generator": torch.get_rng_state()}

    def load_state_dict(self, state):
        torch.set_rng_state(state["generator"])


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
@pytest.mark.parametrize("batches", [0, 1, 5, 6])
def test_a_state_of_a_dataset_with_torchs_generator(batches, workers, persistent):
    """No sample is doubled or lost, and later epochs are the same."""

    def make(seed):
        torch.manual_seed(seed)
        return OURS(Drawing(), 2, shuffle=True, num_workers=workers, persistent_workers=persistent)

    loader = make(0)
    iterator = iter(loader)
    first = [next(iterator).tolist() for _ in range(batches)]
    torch.rand(3)  # the program draws, too
    state = loader.state_dict()
    rest, following = lists(iterator), lists(loader)
    assert sorted(sum(first + rest, [])) == list(range(11))
    other = make(1)
    assert (continued(other, state), lists(other)) == (rest, following)


@compared
def test_saving_a_state_changes_nothing(L, workers):
    loader, seen = L(Numbers(), 2, shuffle=True, num_workers=workers), []
    for batch in loader:
        if L is OURS:
            loader.state_dict()
        seen.append(batch)
    return seen, samples(L(range(5), shuffle=True))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_copy_starts_where_the_loaded_state_says(copied):
    loader = OURS(range(8), 3)
    next(iter(loader))
    resumed = OURS(range(8), 3)
    resumed.load_state_dict(loader.state_dict())
    assert lists(copied(resumed)) == lists(resumed) == [[3, 4, 5], [6, 7]]


class Counted(data.Sampler):
    """A user's sampler without a state, whose order depends on how often it was iterated."""

    def __init__(self):
        self.count = 0

    def __len__(self):
        return 11

    def __iter__(self):
        self.count += 1
        return iter(np.random.default_rng(self.count).permutation(11).tolist())


class FromNumPy(Counted):
    """A user's sampler that draws from NumPy's global generator."""

    def __iter__(self):
        return iter(np.random.permutation(11).tolist())


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("sampler", [Counted, FromNumPy])
def test_another_order_than_before_warns(sampler, workers):
    loader = OURS(range(11), 3, sampler=sampler(), num_workers=workers)
    lists(loader)
    state, _ = left_after(loader, 2)
    resumed = OURS(range(11), 3, sampler=sampler(), num_workers=workers)
    resumed.load_state_dict(state)
    with pytest.warns(RuntimeWarning, match=rf"this {sampler.__name__} yields another order than before .* generator="):
        lists(resumed)


@pytest.mark.parametrize("keys", [[[1, 2], [3], [0]], [(1, 2), (3,), (0,)], [torch.tensor([2, 1])] * 3])
def test_the_same_order_as_before_does_not_warn(keys):
    def make():
        return OURS(range(4), batch_sampler=keys, collate_fn=len)

    for stop in range(3):
        state, rest = left_after(make(), stop)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert continued(make(), state) == rest
