"""Methods of gluonloader that make a batch again or record batches, behind torch's interface."""

import json
import random

import numpy as np
import pytest

from gluonloader import RandomSampler

from .sides import OURS, Range, continued, facts, left_after, shown, torch

data = torch.utils.data


class Noisy(data.Dataset):
    """Each sample draws from all global generators."""

    def __len__(self):
        return 23

    def __getitem__(self, index):
        return torch.rand(2) + index, random.random(), np.random.rand()


class NoisyInBulk(Noisy):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Reversed(data.Sampler):
    """A user's own sampler."""

    def __iter__(self):
        return iter(range(22, -1, -1))

    def __len__(self):
        return 23


class Unrepeatable(Reversed):
    passes = 0

    def __iter__(self):
        self.passes += 1
        return iter([(n + self.passes) % 23 for n in range(23)])


def seeded():
    return torch.Generator().manual_seed(3)


ORDERS = {
    "in order": {},
    "shuffled": {"shuffle": True},
    "shuffled by a generator": {"shuffle": True, "generator": seeded},
    "weighted": {"sampler": lambda: data.WeightedRandomSampler([1.0, 2.0] * 11 + [3.0], 23, generator=seeded())},
    "distributed": {"sampler": lambda: data.DistributedSampler(Noisy(), 2, 1)},
    "own": {"sampler": Reversed},
    "of gluonloader": {"sampler": lambda: RandomSampler(23, seed=1)},
    "batches": {"batch_sampler": lambda: [[3, 1], [22, 0, 5], [4]], "batch_size": 1},
    "single": {"batch_size": None, "shuffle": False},
}


def made(order, kind=Noisy, **options):
    arguments = {name: value() if callable(value) else value for name, value in ORDERS[order].items()}
    return OURS(kind(), **{"batch_size": 4, **arguments, **options})


def states():
    return random.getstate(), facts(np.random.get_state()), torch.get_rng_state().tolist()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", [Noisy, NoisyInBulk], ids=["one by one", "in bulk"])
def test_replay_makes_each_batch_of_the_newest_iterator_again(order, kind, workers):
    loader = made(order, kind, num_workers=workers)
    for _ in range(2):
        before = iter(loader)
        first = next(before)
        batches = [first, *before]
        now = states()
        for number in (len(batches) - 1, 0, 1):
            assert facts(loader.replay(number)) == facts(batches[number])
        assert states() == now


def test_replay_while_the_iterator_is_open_changes_nothing(workers):
    loader, same = (made("shuffled by a generator", num_workers=workers) for _ in range(2))
    torch.manual_seed(0)
    expected = [[facts(batch) for batch in same] for _ in range(2)]
    torch.manual_seed(0)
    for epoch in range(2):  # the order of the second one depends on the generator after the first one
        batches = []
        for number, batch in enumerate(loader):
            batches.append(facts(batch))
            assert facts(loader.replay(number)) == batches[-1]
            assert facts(loader.replay(5 - number)) == expected[epoch][5 - number]
        assert batches == expected[epoch]


def test_replay_leaves_a_generator_as_the_program_has_left_it(workers):
    loader = made("shuffled by a generator", num_workers=workers)
    list(loader)
    (generator,) = {id(found): found for part in (loader, loader.sampler) if (found := part.generator)}.values()
    torch.rand(3, generator=generator)
    state = generator.get_state()
    loader.replay(1)
    assert torch.equal(generator.get_state(), state)


@pytest.mark.parametrize("kind", [Noisy, NoisyInBulk], ids=["one by one", "in bulk"])
def test_indices_are_those_of_the_batches(kind, workers):
    loader = made("shuffled", kind, num_workers=workers)
    for number, (first, *_) in enumerate(loader):
        assert loader.indices(number) == first.floor().int()[:, 0].tolist()
    single = made("single", kind)
    next(iter(single))
    assert [single.indices(0), single.indices(7)] == [0, 7]


def test_after_a_resume_the_batches_before_it_can_be_made_again(workers):
    loader, resumed = (made("shuffled", num_workers=workers) for _ in range(2))
    torch.manual_seed(0)
    state, rest = left_after(loader, 3)
    batches = [shown(loader.replay(number)) for number in range(6)]
    assert continued(resumed, state) == rest == batches[3:]
    assert [shown(resumed.replay(number)) for number in range(6)] == batches


def test_errors_say_why_a_batch_cannot_be_made_again():
    loader = made("shuffled")
    with pytest.raises(RuntimeError, match="there is no batch yet; iterate over the loader first"):
        loader.replay(0)
    for sampler, batch, text in [
        (Reversed(), 6, r"batch=6.*has 6 batches, numbered from 0"),
        (Reversed(), -1, "batch=-1"),
        (Unrepeatable(), 0, "Unrepeatable yields another order when it is iterated again"),
        (iter(range(23)), 0, "changes when it is iterated, so its order cannot be drawn again"),
    ]:
        loader = OURS(Noisy(), 4, sampler=sampler)
        list(loader)
        with pytest.raises(ValueError, match=text):
            loader.replay(batch)
    loader = OURS(Range(4))
    list(loader)
    with pytest.raises(TypeError, match="iterable dataset"):
        loader.indices(0)
    with pytest.raises(AttributeError, match="load a state_dict"):
        loader.seek(0, 0)


def test_a_worker_init_fn_is_not_called_in_the_program():
    calls = []
    loader = made("shuffled", num_workers=1, worker_init_fn=calls.append)
    batches = list(loader)
    assert facts(loader.replay(2)) == facts(batches[2])
    assert (calls, data.get_worker_info()) == ([], None)


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_a_trace_records_the_next_iterator_or_the_open_one(tmp_path, workers, persistent):
    loader = made("shuffled", num_workers=workers, persistent_workers=persistent)
    for number in range(2):
        path = tmp_path / f"{number}.json"
        with loader.trace(path) as trace:
            batches = list(loader)
        names = [event["name"] for event in json.loads(path.read_text())["traceEvents"]]
        assert len([name for name in names if name.startswith("next")]) >= len(batches) == 6, set(names)
        assert trace.verdict
    iterator = iter(loader)
    next(iterator)
    with loader.trace(tmp_path / "rest.json"):
        list(iterator)
    assert json.loads((tmp_path / "rest.json").read_text())["traceEvents"]
    with pytest.raises(OSError, match="nowhere"):
        loader.trace(tmp_path / "nowhere" / "t.json")
