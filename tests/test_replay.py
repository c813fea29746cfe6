"""Any batch again: `indices`, `replay` and `seek` agree with what loaders deliver, or raise an error."""

import json
import os
import pickle
import random
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD, workers
from pipelines import LENGTH, ONLY_SERIAL_OR_PROCESSES, PIPELINES, SIZE, Continuing, Drawing, Epochal, text
from samples import Keys

from gluonloader import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    Ranks,
    ShardedSampler,
    WeightedSampler,
    get_rng,
    get_worker_info,
)
from gluonloader.options import Seed

# A resume warns of these; `seek` and `load_state_dict` are right all the same.
pytestmark = [
    pytest.mark.filterwarnings("ignore:a Fixed has no epoch and no state"),
    pytest.mark.filterwarnings("ignore:resuming IterableDataset reads the samples"),
]

PROGRAM = Path(__file__).parent / "pipelines.py"
EPOCHS = 3


def delivered(loader, epochs=range(EPOCHS)):
    """The batches of epochs by (epoch, number), as text."""
    batches = {}
    for epoch in epochs:
        loader.set_epoch(epoch)
        iterator = iter(loader)
        for batch in iterator:
            batches[iterator.last.epoch, iterator.last.number] = text(batch)
    return batches


def ways_of(name):
    return [SERIAL, FORK] if name in ONLY_SERIAL_OR_PROCESSES else [SERIAL, THREAD, FORK]


@pytest.mark.spawn
def test_replay_in_another_process_makes_what_was_delivered():
    chance, asked, expected = random.Random(0), [], []
    for number, (name, make) in enumerate(PIPELINES.items()):
        way = ways_of(name)[number % len(ways_of(name))]
        with make(way.arguments) as loader:
            batches = delivered(loader)
        for epoch, batch in chance.sample(sorted(batches), min(50, len(batches))):
            asked.append([name, epoch, batch])
            expected.append(batches[epoch, batch])
    done = subprocess.run(
        [sys.executable, PROGRAM], input=json.dumps(asked), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for where, made, right in zip(asked, json.loads(done.stdout), expected, strict=True):
        assert made == right, where


@pytest.mark.parametrize("name", PIPELINES)
def test_replay_makes_any_batch_before_during_and_after_an_iteration_and_after_a_resume(name):
    make = PIPELINES[name]
    with make({}) as loader:
        batches = delivered(loader)
    chance = random.Random(name)
    with make({}) as loader:

        def check():
            for epoch, batch in chance.sample(sorted(batches), 4):
                assert text(loader.replay(epoch, batch, read=True)) == batches[epoch, batch]

        check()
        found = {}
        for epoch in range(EPOCHS):
            loader.set_epoch(epoch)
            iterator = iter(loader)
            for batch in iterator:
                found[iterator.last.epoch, iterator.last.number] = text(batch)
                if len(found) % 11 == 3:
                    check()
                    state = loader.state_dict()
        assert found == batches
        check()
    with make({}) as loader:
        loader.load_state_dict(state)
        reached = min(key for key in batches if key >= (state["epoch"], state["batch"]))
        for where in [key for key in sorted(batches) if key >= reached or name != "continuing"][-40:]:
            assert text(loader.replay(*where, read=True)) == batches[where]
        next(iter(loader))
        assert text(loader.replay(*reached, read=True)) == batches[reached]


@pytest.mark.slow
@pytest.mark.parametrize("name", PIPELINES)
def test_seek_starts_the_next_iteration_at_any_batch(name):
    make, chance = PIPELINES[name], random.Random(name)
    with make({}) as loader:
        batches = delivered(loader)
    for epoch, batch in [(0, 0), *chance.sample(sorted(batches), 4)]:
        with make(chance.choice([SERIAL.arguments, THREAD.arguments if len(ways_of(name)) == 3 else {}])) as loader:
            if chance.random() < 0.5:
                next(iter(loader))
            loader.seek(epoch, batch)
            again = chance.sample(sorted(batches), 3)
            assert [text(loader.replay(*where, read=True)) for where in again] == [batches[where] for where in again]
            right = {where: made for where, made in batches.items() if where >= (epoch, batch)}
            assert delivered(loader, range(epoch, EPOCHS)) == right
            assert [text(loader.replay(*where, read=True)) for where in again] == [batches[where] for where in again]


@pytest.mark.parametrize("auto_reload", [False, True])
@pytest.mark.parametrize(
    "leave", [lambda loader: loader.set_epoch(1), lambda loader: loader.seek(1, 2)], ids=["set_epoch", "seek"]
)
def test_an_epoch_whose_loaded_position_was_left_starts_at_its_first_batch(leave, auto_reload):
    saved = DataLoader(range(24), 2, shuffle=True, seed=1, ranks=Ranks(0, 2))
    iterator = iter(saved)
    next(iterator), next(iterator)
    loader = DataLoader(range(24), 2, shuffle=True, seed=1, ranks=Ranks(0, 1), auto_reload=auto_reload)
    loader.load_state_dict(saved.state_dict(), new_batch_size=True)
    leave(loader)
    loader.set_epoch(0)
    known = [loader.indices(0, number) for number in range(12)]
    assert known == [batch.tolist() for batch in loader] == [loader.indices(0, number) for number in range(12)]


def test_seek_works_with_every_executor_and_with_auto_reload(way):
    with way.loader(range(23), 4, True, last_batch="rollover") as loader:
        whole = [[batch.tolist() for batch in loader] for _ in range(3)]
    with way.loader(range(23), 4, True, last_batch="rollover", auto_reload=True) as loader:
        next(iter(loader))
        loader.seek(1, 2)
        assert [batch.tolist() for batch in loader] == whole[1][2:]
        assert [batch.tolist() for batch in loader] == whole[2]
        loader.seek(0, 4)
        state = json.dumps(loader.state_dict())
        assert [batch.tolist() for batch in loader] == whole[0][4:]
        loader.load_state_dict(state)
        assert [batch.tolist() for batch in loader] == whole[0][4:]


# -- nothing is touched ------------------------------------------------------------------------------------------------


def test_replay_and_indices_change_nothing(any_way):
    dataset = Drawing(everything=any_way != THREAD)  # these threads draw from the generators at any time
    with any_way.loader(dataset, 4, True, last_batch="rollover") as loader:
        iterator = iter(loader)
        next(iterator)
        before = state_of(loader, dataset)
        np.random.standard_normal()  # a second normal variate is stored now
        expected = np.random.RandomState()
        expected.set_state(np.random.get_state())
        python = random.getstate()
        pids = workers(loader) if any_way.processes else []
        for where in [(0, 0), (0, 3), (7, 2)]:
            loader.replay(*where)
            loader.indices(*where)
        assert state_of(loader, dataset) == before
        assert np.random.standard_normal() == expected.standard_normal()
        assert random.getstate() == python
        assert pids == (workers(loader) if any_way.processes else [])
        numbers = [batch[:, 0].astype(int).tolist() for batch in iterator]
    with SERIAL.loader(range(LENGTH), 4, True, last_batch="rollover") as other:
        assert numbers == [batch.tolist() for batch in other][1:]


def state_of(loader, dataset):
    stats = loader.stats()
    generators = pickle.dumps([dataset.held[0].bit_generator.state, dataset.held[2].getstate()])
    return loader.state_dict(), len(loader), stats.batches, stats.made_s, generators


def test_replay_makes_the_batch_in_the_calling_thread_and_converts_it(any_way):
    class Where(Drawing):
        def __getitem__(self, index):
            places.append((os.getpid(), threading.get_ident(), int(get_worker_info())))
            return super().__getitem__(index)

    places = []
    with any_way.loader(Where(), SIZE, output=lambda array: array + 1000) as loader:
        expected = next(iter(loader))
        places.clear()
        batch = loader.replay(0, 0)
        here = os.getpid(), threading.get_ident(), 0
        assert [place for place in places if place[:2] == here[:2]] == [here] * SIZE  # threads may still make others
        assert batch.tobytes() == expected.tobytes()
        assert batch.min() > 999
    assert get_worker_info() is None


def test_generators_that_are_not_seeded_are_restored_too(any_way):
    class Held(Drawing):
        def __getitem__(self, index):
            return self.held[0].random()

    dataset = Held()
    with any_way.loader(dataset, 4, seed=Seed(0, reseed_generators=False)) as loader:
        list(loader)  # since threads draw from the generator, too
        state = dataset.held[0].bit_generator.state
        loader.replay(0, 2)
        assert dataset.held[0].bit_generator.state == state


def test_replay_calls_worker_init_fn_once_and_passes_on_errors_with_their_place():
    calls = []

    class Fails(Drawing):
        def __getitem__(self, index):
            assert calls
            if index == 5:
                raise OSError("broken")
            return index

    with FORK.loader(Fails(), SIZE, worker_init_fn=calls.append) as loader:
        for _ in range(2):
            with pytest.raises(OSError, match="broken") as caught:
                loader.replay(0, 1)
            assert caught.value.__notes__ == ["gluonloader: in dataset[5], batch 1 of epoch 0"]
        assert loader.replay(0, 2).tolist() == [8, 9, 10, 11]
        assert len(calls) == 1


def test_copies_pickles_and_closed_loaders_replay():
    loader = DataLoader(Drawing(), SIZE, True, last_batch="rollover", seed=1)
    batches = delivered(loader)
    for other in (loader.__copy__(), pickle.loads(pickle.dumps(loader))):
        assert [text(other.replay(*where)) for where in batches] == list(batches.values())
    loader.close()
    assert [text(loader.replay(*where)) for where in batches] == list(batches.values())


# -- what cannot be known ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [{"shuffle": True}, {"sampler": RandomSampler(LENGTH), "seed": 1}])
def test_a_random_seed_is_known_once_an_epoch_has_started_or_a_position_was_loaded(arguments):
    def make():
        return DataLoader(Drawing(), SIZE, **arguments)

    loader = make()
    for method in (loader.indices, loader.replay, loader.seek):
        with pytest.raises(ValueError, match=r"seed=None: .* has drawn its seed at random"):
            method(0, 3)
    batches = delivered(loader)
    assert text(loader.replay(1, 3)) == batches[1, 3]
    other = make()
    other.load_state_dict(loader.state_dict())
    assert text(other.replay(1, 3)) == batches[1, 3]


def test_without_a_seed_the_indices_of_a_fixed_order_are_known_but_not_its_random_numbers():
    loader = DataLoader(Drawing(), SIZE)
    assert loader.indices(5, 1) == [4, 5, 6, 7]
    with pytest.raises(ValueError, match="this loader has drawn its seed at random"):
        loader.replay(5, 1)
    assert DataLoader(np.arange(9), 4).replay(5, 1).tolist() == [4, 5, 6, 7]  # no random numbers
    shuffled = DataLoader(IterableDataset(range(9)), 4, True)
    for method in (lambda: shuffled.replay(0, 1, read=True), lambda: shuffled.seek(0, 1)):
        with pytest.raises(ValueError, match="this loader has drawn its seed at random"):
            method()


class Global(Drawing):
    def __iter__(self):
        return iter(np.random.permutation(LENGTH).tolist())


class PythonGlobal(Drawing):
    def __iter__(self):
        return iter(random.sample(range(LENGTH), LENGTH))


class Consumed(Drawing):
    def __iter__(self):
        return iter(self.held[0].permutation(LENGTH).tolist())


class ConsumedDespiteEpochs(Consumed):
    def set_epoch(self, epoch):
        pass


@pytest.mark.parametrize("kind", [Global, PythonGlobal, Consumed, ConsumedDespiteEpochs])
@pytest.mark.parametrize("wrap", [lambda sampler: sampler, lambda sampler: ShardedSampler(sampler, 2, 0)])
def test_a_sampler_whose_order_differs_each_time_is_an_error(kind, wrap):
    with DataLoader(range(LENGTH), SIZE, sampler=wrap(kind()), seed=1) as loader:
        for _ in range(2):
            for method in (loader.indices, loader.replay, loader.seek):
                before = random.getstate(), np.random.get_state()[1].tobytes()
                with pytest.raises(ValueError, match=r"yields another order each time.*set_epoch"):
                    method(0, 2)
                assert before == (random.getstate(), np.random.get_state()[1].tobytes())
            list(loader)


def test_an_order_is_also_compared_if_all_of_it_is_carried_over():
    with DataLoader(range(LENGTH), LENGTH + 1, sampler=Consumed(), last_batch="rollover", seed=1) as loader:
        with pytest.raises(ValueError, match="yields another order each time"):
            loader.indices(1, 0)


def test_a_sampler_that_cannot_be_copied_is_an_error():
    class Locked:
        def __init__(self):
            self.lock = threading.Lock()

        def __len__(self):
            return 3

        def __iter__(self):
            return iter(range(3))

    with pytest.raises(ValueError, match=r"this Locked cannot be copied .* let copy.deepcopy\(\) copy it"):
        DataLoader(range(3), 2, sampler=Locked()).indices(0, 1)


def test_weights_that_were_changed_are_an_error_also_if_they_were_changed_back():
    sampler = WeightedSampler(np.ones(40), seed=1)
    loader = DataLoader(range(40), 4, sampler=sampler, seed=1)
    batches = [batch.tolist() for batch in loader]
    assert loader.indices(0, 9) == batches[9]
    sampler.weights = np.arange(40) + 1
    with pytest.raises(ValueError, match="the weights of the WeightedSampler were changed after it started"):
        loader.indices(0, 9)
    upcoming = loader.indices(1, 2)
    assert [batch.tolist() for batch in loader][2] == upcoming
    sampler.weights = np.ones(40)
    for epoch in (0, 1):
        with pytest.raises(ValueError, match="make a new loader with new samplers"):
            loader.replay(epoch, 9)


def test_a_sampler_that_was_iterated_meanwhile_changes_nothing():
    sampler = RandomSampler(40, seed=1)
    loader = DataLoader(range(40), 4, sampler=sampler, seed=1)
    batches = [batch.tolist() for batch in loader]
    list(sampler)
    assert loader.indices(0, 9) == loader.replay(0, 9).tolist() == batches[9]
    assert sampler.epoch == 2
    loader.seek(0, 9)
    assert [batch.tolist() for batch in loader] == batches[9:]
    assert [batch.tolist() for batch in loader] == [loader.indices(1, number) for number in range(10)]


def test_a_sampler_that_was_changed_meanwhile_is_an_error():
    sampler = RandomSampler(40, seed=1)
    loader = DataLoader(range(40), 4, sampler=sampler, seed=1)
    loader.set_epoch(3)
    list(loader)
    loader.batch_sampler.batch_size = 5
    for method in (loader.indices, loader.replay, loader.seek):
        with pytest.raises(ValueError, match="had other indices than the RandomSampler yields for it now"):
            method(3, 3)
    sampler.set_epoch(0)
    with pytest.raises(ValueError, match="but the loader has started more epochs; the RandomSampler was changed"):
        loader.indices(1, 3)


def test_a_users_sampler_that_was_changed_meanwhile_is_an_error():
    sampler = Epochal()
    loader = DataLoader(range(LENGTH), 4, sampler=sampler, seed=1)
    list(loader)
    sampler.seed = 1
    list(loader)
    assert loader.indices(1, 3)
    with pytest.raises(ValueError, match="epoch=0: batch 0 of this epoch had other indices"):
        loader.indices(0, 3)
    loader.set_epoch(2)
    third = [batch.tolist() for batch in loader]
    assert loader.indices(2, 3) == third[3]


def test_a_stateful_sampler_is_known_from_its_first_known_state_on():
    loader = DataLoader(range(LENGTH), 4, sampler=Continuing(), seed=1)
    for _ in range(2):
        list(loader)
    iterator = iter(loader)
    batches = [next(iterator).tolist() for _ in range(3)]
    other = DataLoader(range(LENGTH), 4, sampler=Continuing(), seed=1)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(ValueError, match="its state is known only from batch 3 of epoch 2 on"):
        other.indices(2, 2)
    assert other.indices(2, 3) == next(iterator).tolist()
    assert loader.indices(2, 2) == batches[2]


def test_a_seek_before_the_first_batch_of_an_iterator_keeps_the_state_of_a_stateful_sampler_known():
    loader = DataLoader(range(LENGTH), 4, sampler=Continuing(), seed=1)
    expected = loader.indices(0, 0), loader.indices(3, 2)
    iter(loader)
    loader.seek(1, 2)
    assert (loader.indices(0, 0), loader.indices(3, 2)) == expected


# -- iterable datasets and arguments -----------------------------------------------------------------------------------


def numbers():
    return ((i, get_rng().random()) for i in range(23))


def test_an_iterable_dataset_is_read_only_on_request():
    loader = DataLoader(IterableDataset(numbers, num_shards=2), 4, seed=1)
    with pytest.raises(TypeError, match="have no indices"):
        loader.indices(0, 1)
    with pytest.raises(ValueError, match=r"read=False: .* reads at least 8 samples, shard 1 .* pass read=True"):
        loader.replay(0, 3)
    batches = delivered(loader)
    assert sorted(batches)[:6] == [(0, 0), (0, 1), (0, 2), (0, 3), (0, 4), (0, 8)]
    for method in (lambda: loader.replay(0, 5, read=True), lambda: loader.seek(0, 5)):
        with pytest.raises(ValueError, match=r"no batch with this number: its shard has ended.*; the next number is 8"):
            method()
    with pytest.raises(ValueError, match="epoch 0 has only 6 batches"):
        loader.seek(0, 9)


class LongFirst(IterableDataset):
    """Three shards; the first one has more chunks than the others."""

    def shard(self, num_shards, index):
        return [10 * index + number for number in range(7 if index == 0 else 3)]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_rank_replays_its_last_samples_and_no_chunk_of_another_rank(index):
    loader = DataLoader(IterableDataset(LongFirst([]), num_shards=3), 2, seed=1, ranks=Ranks(index, 3))
    batches = delivered(loader, range(1))
    assert sorted(batches) == [[(0, 0), (0, 3), (0, 6), (0, 12)], [(0, 1), (0, 6)], [(0, 2), (0, 6)]][index]
    assert {where: text(loader.replay(*where, read=True)) for where in batches} == batches
    with pytest.raises(ValueError, match="epoch 0 has"):
        loader.replay(0, 9 if index else 10, read=True)


def test_a_seek_of_an_iterable_dataset_warns_like_a_resume():
    with DataLoader(IterableDataset(numbers), 4, seed=1) as loader:
        whole = delivered(loader)
        with pytest.warns(RuntimeWarning, match="reads the samples of about 3 batches again"):
            loader.seek(1, 3)
        assert delivered(loader, [1]) == {where: batch for where, batch in whole.items() if (1, 3) <= where < (2, 0)}


class Resettable:
    """An iterable that is its own iterator, like MXNet's DataIter."""

    def reset(self):
        self.left = 5

    def __iter__(self):
        return self

    def __next__(self):
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.left


def test_a_single_iterator_is_not_read_while_an_iteration_may_read_it():
    loader = DataLoader(Resettable(), 2, seed=1)
    iterator = iter(loader)
    first = next(iterator).tolist()
    for method in (lambda: loader.replay(0, 1, read=True), lambda: loader.seek(0, 1)):
        with pytest.raises(ValueError, match="Resettable cannot be read again"):
            method()
    assert [first, *(batch.tolist() for batch in iterator)] == [[4, 3], [2, 1], [0]]


def test_a_lost_batch_of_an_iterable_dataset_raises_its_error_and_the_others_are_made():
    def broken(index, number):
        if index in (9, 20):
            raise OSError("broken")
        return index, number

    loader = DataLoader(IterableDataset(IterableDataset(numbers).transform(broken), num_shards=2), 4, seed=1)
    batches, errors = {}, 0
    iterator = iter(loader)
    while not iterator.ended:
        try:
            batch = next(iterator)
        except OSError:
            errors += 1
            continue
        except StopIteration:
            break
        batches[iterator.last.epoch, iterator.last.number] = text(batch)
    assert errors == 2
    for where, batch in batches.items():
        assert text(loader.replay(*where, read=True)) == batch
    with pytest.raises(OSError, match="broken"):
        loader.replay(0, 3, read=True)


class FirstBreaks:
    def __iter__(self):
        return self.shard(1, 1)

    def shard(self, num_shards, index):
        yield from range(6)[: 6 * index]
        if not index:
            raise OSError("broken")


def test_the_last_samples_are_made_again_although_another_shard_has_ended_with_an_error():
    loader = DataLoader(IterableDataset(FirstBreaks(), num_shards=2), 4)
    iterator = iter(loader)
    with pytest.raises(OSError, match="broken"):
        next(iterator)
    batches = {iterator.last.number: text(batch) for batch in iterator}
    assert len(batches) == 2
    assert {number: text(loader.replay(0, number, read=True)) for number in batches} == batches


def test_a_resume_after_an_error_that_has_ended_a_shard_keeps_the_number_of_the_last_batch():
    loader, resumed = (DataLoader(IterableDataset(FirstBreaks(), num_shards=2), 4) for _ in range(2))
    iterator = iter(loader)
    with pytest.raises(OSError, match="broken"):
        next(iterator)
    next(iterator)
    with pytest.warns(RuntimeWarning, match="reads the samples of about 2 batches again"):
        resumed.load_state_dict(loader.state_dict())
    again = iter(resumed)
    with pytest.raises(OSError, match="broken"):  # by the source, which is read again
        next(again)
    assert next(again).tolist() == next(iterator).tolist() == [4, 5]
    assert again.last.number == iterator.last.number


def test_numbers_may_be_numpy_ints():
    loader, where = DataLoader(range(LENGTH), SIZE, True, seed=1), divmod(np.int64(3), 2)
    assert loader.indices(*where) == loader.replay(*where).tolist() == loader.indices(1, 1)
    loader.seek(*where)
    assert json.loads(json.dumps(loader.state_dict()))["batch"] == 1


@pytest.mark.parametrize(
    ("where", "text"),
    [((0, -1), "batch=-1"), ((-1, 0), "epoch=-1"), ((0, "1"), "batch='1'"), ((0.5, 0), "epoch=0.5"),
     ((1, 6), "batch=6: epoch 1 has 6 batches, numbered from 0 to 5")],
)  # fmt: skip
def test_wrong_numbers_are_refused_and_nothing_changes(where, text):
    loader = DataLoader(range(LENGTH), SIZE, True, seed=1)
    before = loader.state_dict()
    for method in (loader.indices, loader.replay, loader.seek):
        with pytest.raises(ValueError, match=text):
            method(*where)
    assert loader.state_dict() == before


def test_a_billion_samples_are_not_read():
    tracemalloc.start()
    with DataLoader(Keys(10**9), 1000, True, last_batch="rollover", seed=1) as loader:
        indices = loader.indices(30, 999_999)
        assert loader.replay(30, 999_999).tolist() == indices
        loader.seek(30, 999_999)
        assert next(iter(loader)).tolist() == indices
        assert len(json.dumps(loader.state_dict())) < 1000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
