"""The loader sets the epoch of a user's own samplers; the user's own calls of `set_epoch` count."""

import copy
import json
import os
import pickle
import random
from itertools import islice

import pytest
from conftest import SERIAL, THREAD, examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from interrupting import interrupted_start

from gluonloader import DataLoader, RandomSampler, ShardedSampler

LENGTH, SIZE, BATCHES = 12, 4, 3


class Readable:
    """A sampler like torch's DistributedSampler: its order depends on its attribute `epoch`."""

    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return LENGTH

    def __iter__(self):
        return iter(random.Random(self.epoch).sample(range(LENGTH), LENGTH))


class Late(Readable):
    """Reads its epoch only when the first index is drawn."""

    def __iter__(self):
        yield from super().__iter__()


class Hidden(Readable):
    """Has no attribute that shows its epoch."""

    def __init__(self):
        self.set_epoch(0)

    def set_epoch(self, epoch):
        self.order = random.Random(epoch).sample(range(LENGTH), LENGTH)

    def __iter__(self):
        return iter(self.order)


class SelfCounting(Readable):
    """Sets the next epoch when it has yielded its last index, like Accelerate's SeedableRandomSampler."""

    def __iter__(self):
        yield from super().__iter__()
        self.set_epoch(self.epoch + 1)


class Stateful(Readable):
    """Saves its state, and needs `set_epoch`; another epoch starts at its first index, as with Lhotse's samplers."""

    drawn = 0

    def set_epoch(self, epoch):
        self.drawn = self.drawn if epoch == self.epoch else 0
        super().set_epoch(epoch)

    def __iter__(self):
        left = list(super().__iter__())[self.drawn :]
        for index in left:
            self.drawn += 1
            yield index
        self.drawn = 0

    def state_dict(self):
        return {"epoch": self.epoch, "drawn": self.drawn}

    def load_state_dict(self, state):
        self.epoch, self.drawn = state["epoch"], state["drawn"]


class Batches:
    """A batch sampler with `set_epoch`."""

    def __init__(self, sampler):
        self.inner = sampler

    def set_epoch(self, epoch):
        self.inner.set_epoch(epoch)

    def __len__(self):
        return BATCHES

    def __iter__(self):
        order = list(self.inner)
        return iter([order[start : start + SIZE] for start in range(0, LENGTH, SIZE)])


class Around(Batches):
    """A batch sampler without `set_epoch`, around a sampler that has it."""

    set_epoch = property()

    def __init__(self, sampler):
        self.sampler = self.inner = sampler


@pytest.fixture(params=[SERIAL, THREAD], ids=str)
def local_way(request):
    """With and without batches in flight. Samplers stay in the program, so for them, processes are like threads."""
    return request.param


KINDS = {
    "readable": lambda: {"batch_size": SIZE, "sampler": Readable()},
    "late": lambda: {"batch_size": SIZE, "sampler": Late()},
    "hidden": lambda: {"batch_size": SIZE, "sampler": Hidden()},
    "counting": lambda: {"batch_size": SIZE, "sampler": SelfCounting()},
    "stateful": lambda: {"batch_size": SIZE, "sampler": Stateful()},
    "share": lambda: {"batch_size": SIZE, "sampler": ShardedSampler(Readable(), 1, 0)},
    "hidden share": lambda: {"batch_size": SIZE, "sampler": ShardedSampler(Hidden(), 1, 0)},
    "batches": lambda: {"batch_sampler": Batches(Readable())},
    "around": lambda: {"batch_sampler": Around(Readable())},
}
SHOWS_EPOCH = [name for name in KINDS if name not in ("hidden", "hidden share", "batches")]


def expected(epoch):
    order = random.Random(epoch).sample(range(LENGTH), LENGTH)
    return [order[start : start + SIZE] for start in range(0, LENGTH, SIZE)]


def read(loader, count=BATCHES + 1):
    return [batch.tolist() for batch in islice(loader, count)]


def sampler_of(loader):
    found = loader.batch_sampler
    for name in ("sampler", "sampler", "inner"):
        found = getattr(found, name, found)
    return found


@pytest.mark.parametrize("auto_reload", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_each_epoch_has_the_order_of_its_number(any_way, kind, auto_reload):
    with any_way.loader(range(LENGTH), auto_reload=auto_reload, **KINDS[kind]()) as loader:
        assert [read(loader) for _ in range(3)] == [expected(epoch) for epoch in range(3)]
        loader.set_epoch(7)
        assert [read(loader) for _ in range(2)] == [expected(7), expected(8)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_that_was_left_early_is_followed_by_the_next_one(local_way, kind):
    with local_way.loader(range(LENGTH), **KINDS[kind]()) as loader:
        assert [read(loader, 1) for _ in range(4)] == [expected(epoch)[:1] for epoch in range(4)]
        assert read(loader) == expected(4)


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_torchs_loop_keeps_its_order(local_way, kind, first):
    """Also if the program has started again at epoch 5, with a loader that counts from 0."""
    with local_way.loader(range(LENGTH), **KINDS[kind]()) as loader:
        for epoch in range(first, first + 3):
            sampler_of(loader).set_epoch(epoch)
            assert read(loader) == expected(epoch)


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_loader_in_each_epoch_leaves_the_samplers_epoch_to_the_program(kind):
    arguments = KINDS[kind]()
    for epoch in range(3):
        loader = DataLoader(range(LENGTH), **arguments)
        sampler_of(loader).set_epoch(epoch)
        assert read(loader) == expected(epoch)


@pytest.mark.parametrize("kind", SHOWS_EPOCH)
def test_the_loader_counts_on_from_the_users_number(local_way, kind):
    with local_way.loader(range(LENGTH), **KINDS[kind]()) as loader:
        sampler_of(loader).set_epoch(5)
        assert read(loader) + read(loader) == expected(5) + expected(6)
        sampler_of(loader).set_epoch(0)  # the same order in each epoch, for validation
        assert read(loader) == expected(0)
        sampler_of(loader).set_epoch(0)
        assert read(loader) + read(loader) == expected(0) + expected(1)
        loader.set_epoch(2)
        assert read(loader) == expected(2)


@pytest.mark.parametrize("kind", ["readable", "late", "hidden", "batches"])
def test_iterators_that_start_together_have_orders_of_their_own(local_way, kind):
    with local_way.loader(range(LENGTH), **KINDS[kind]()) as loader:
        both = [(first.tolist(), second.tolist()) for first, second in zip(loader, loader)]
    assert both == list(zip(expected(0), expected(1)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epochs", [0, 1, 2])
def test_a_resumed_loader_has_the_same_order(local_way, kind, epochs):
    for count in range(BATCHES + 1) if local_way is SERIAL else [1, BATCHES]:
        with local_way.loader(range(LENGTH), **KINDS[kind]()) as loader:
            for _ in range(epochs):
                read(loader)
            iterator = iter(loader)
            read(iterator, count)
            state = json.dumps(loader.state_dict())
        with local_way.loader(range(LENGTH), **KINDS[kind]()) as loader:
            loader.load_state_dict(state)
            rest = [expected(epochs)[count:]] if count < BATCHES else []
            assert [read(loader) for _ in (*rest, 1)] == [*rest, expected(epochs + 1)]


@pytest.mark.parametrize("auto_reload", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_set_epoch_of_the_loaded_epoch_keeps_the_position(local_way, kind, auto_reload):
    with local_way.loader(range(LENGTH), auto_reload=auto_reload, **KINDS[kind]()) as loader:
        loader.set_epoch(3)
        read(loader, 1)
        state = loader.state_dict()
    with local_way.loader(range(LENGTH), auto_reload=auto_reload, **KINDS[kind]()) as loader:
        loader.load_state_dict(state)
        loader.set_epoch(3)
        assert read(loader) == expected(3)[1:]


@pytest.mark.parametrize("kind", ["readable", "hidden", "stateful"])
def test_copies_and_pickles_go_on_with_the_same_order(kind):
    loader = DataLoader(range(LENGTH), seed=0, **KINDS[kind]())
    read(loader)
    iterator = iter(loader)
    next(iterator)
    for other in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
        assert [read(other) for _ in range(2)] == [expected(1)[1:], expected(2)]
    assert [read(iterator), read(loader)] == [expected(1)[1:], expected(2)]


@pytest.mark.parametrize("kind", KINDS)
def test_replay_knows_the_order_of_all_epochs(kind):
    loader = DataLoader(range(LENGTH), **KINDS[kind]())
    fresh = DataLoader(range(LENGTH), seed=0, **KINDS[kind]())
    for _ in range(3):
        read(loader, 2)
    for epoch in range(5):
        for other in (loader, fresh):
            assert other.indices(epoch, 1) == other.replay(epoch, 1).tolist() == expected(epoch)[1]
    for other in (loader, fresh):
        other.seek(2, 1)
        assert other.indices(2, 0) == expected(2)[0]
        assert read(other) + read(other) == expected(2)[1:] + expected(3)
        assert other.indices(1, 1) == expected(1)[1]


@pytest.mark.parametrize("kind", SHOWS_EPOCH)
def test_replay_knows_the_epochs_that_the_user_has_set(kind):
    loader = DataLoader(range(LENGTH), **KINDS[kind]())
    orders = [4, 9, 10, 2]
    for epoch, order in enumerate(orders):
        if order != 10:
            sampler_of(loader).set_epoch(order)
        read(loader, 1 + 3 * (epoch % 2))
    for epoch, order in enumerate([*orders, 3]):
        assert loader.indices(epoch, 2) == expected(order)[2]


@pytest.mark.parametrize("kind", ["late", "hidden", "batches"])
def test_an_interrupted_start_is_repeated_in_the_same_order(local_way, alarms, kind):
    with local_way.loader(range(LENGTH), **KINDS[kind]()) as loader:
        for point in range(0, 120, 3 if local_way is SERIAL else 17):
            loader.set_epoch(3)
            read(loader, 1)  # left early, so the samplers are set when the next epoch starts
            if where := interrupted_start(loader, point):
                assert read(loader) == expected(4), where


def test_an_iterator_that_loads_a_position_keeps_its_order_if_another_epoch_is_set(local_way):
    with local_way.loader(range(LENGTH), **KINDS["late"]()) as loader:
        state = loader.state_dict()
        loader.set_epoch(3)
        iterator = iter(loader)
        iterator.load_state_dict(state)
        loader.set_epoch(5)
        assert [batch.tolist() for batch in iterator] == expected(0)


def test_an_error_of_set_epoch_loses_no_batch_and_comes_with_the_next_epoch(local_way):
    class Refuses(Readable):
        def set_epoch(self, epoch):
            if epoch == 1:
                raise KeyError("no epoch 1")
            super().set_epoch(epoch)

    with local_way.loader(range(LENGTH), SIZE, sampler=Refuses()) as loader:
        assert read(loader) == expected(0)
        with pytest.raises(KeyError, match="no epoch 1"):
            iter(loader)
        loader.set_epoch(2)
        assert read(loader) == expected(2)


def test_gluonloaders_samplers_count_their_own_epochs():
    sampler = RandomSampler(LENGTH, seed=1)
    sampler.set_epoch(4)
    loader = DataLoader(range(LENGTH), SIZE, sampler=ShardedSampler(sampler, 1, 0))
    other = RandomSampler(LENGTH, seed=1)
    other.set_epoch(4)
    for _ in range(3):
        assert sum(read(loader), []) == list(other)


def test_a_fixed_order_is_no_reason_for_a_warning(recwarn):
    distributed = pytest.importorskip("torch.utils.data").DistributedSampler
    loader = DataLoader(range(LENGTH), SIZE, sampler=distributed(range(LENGTH), 2, 1, shuffle=False))
    assert [read(loader) for _ in range(3)] == [[[1, 3, 5, 7], [9, 11]]] * 3
    shuffled = DataLoader(range(LENGTH), SIZE, sampler=distributed(range(LENGTH), 1, 0, seed=2))
    orders = [read(shuffled) for _ in range(3)]
    for epoch, order in enumerate(orders):
        shuffled.sampler.set_epoch(epoch)
        assert sum(order, []) == list(shuffled.sampler)
    assert not list(recwarn)


# -- against a model ------------------------------------------------------------------------------------------------

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("user"), st.integers(0, 9)),
        st.tuples(st.just("loader"), st.integers(0, 9)),
        st.tuples(st.just("read"), st.integers(0, BATCHES)),
        st.tuples(st.just("read"), st.just(BATCHES + 1)),
        st.tuples(st.just("resume"), st.integers(0, BATCHES)),
    ),
    max_size=9,
)


def check_against_a_model(actions, kind, make):
    """The model: the sampler has the epoch that was set last. A pass sets the next epoch, at its end or later."""
    loader, epoch, left = make(), 0, None  # `left`: the epoch of a pass that was left early
    passes, loaded = 0, None  # the loader's own number of the next pass, and that of a loaded position
    for action, number in actions:
        if action == "user":
            sampler_of(loader).set_epoch(number)
            epoch = number
        elif action == "loader":
            loader.set_epoch(number)
            if number != loaded:  # otherwise the loaded position stays
                epoch, left, passes, loaded = number, None, number, None
        else:
            epoch += epoch == left
            iterator = iter(loader)
            assert read(iterator, number) == expected(epoch)[:number]
            epoch, left = (epoch, epoch) if number < BATCHES else (epoch + 1, None)
            passes, loaded = passes + 1, None
        if action == "resume":
            state = json.dumps(loader.state_dict())
            loader.close()
            loader = make()
            loader.load_state_dict(state)
            if left is None:
                loaded = passes
            else:
                assert read(loader) == expected(epoch)[number:]
                epoch, left = epoch + 1, None
    assert read(loader) == expected(epoch + (epoch == left))
    loader.close()


@pytest.mark.soak
@settings(max_examples=examples(int(os.environ.get("GLUONLOADER_RESUMES", "100"))))
@given(actions=ACTIONS, kind=st.sampled_from(["readable", "late", "counting", "share", "stateful"]))
@example(actions=[("read", 1), ("loader", 0)], kind="stateful")
@example(actions=[("user", 2), ("read", 0), ("loader", 2)], kind="stateful")
def test_the_last_call_before_an_epoch_counts(actions, kind):
    check_against_a_model(actions, kind, lambda: SERIAL.loader(range(LENGTH), **KINDS[kind]()))


@pytest.mark.parametrize("seed", range(5))
def test_the_last_call_before_an_epoch_counts_with_workers(seed):
    chance = random.Random(seed)
    names = ["user", "loader", "read", "read", "resume"]
    actions = [(chance.choice(names), chance.randint(0, BATCHES)) for _ in range(8)]
    kind = chance.choice(["readable", "late", "counting", "share", "stateful"])
    check_against_a_model(actions, kind, lambda: THREAD.loader(range(LENGTH), **KINDS[kind]()))
