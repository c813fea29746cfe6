"""Bridges: saved positions, and the batches after a resume."""

import json

import pytest
from bridge_sources import Stateful, no_threads_are_left, numbers  # noqa: F401, the fixture is used by its presence
from conftest import examples, load_or_skip
from hypothesis import given, settings
from hypothesis import strategies as st

from gluonloader import DataLoader, bridge
from gluonloader.state import add_checksum
from gluonloader.testing import assert_resumes_exactly

resuming = pytest.mark.filterwarnings("ignore:resuming:RuntimeWarning")


@resuming
@given(size=st.integers(1, 6), prefetch=st.integers(1, 4), epochs=st.integers(1, 3))
@settings(max_examples=25)
def test_a_function_of_the_epoch_resumes_exactly(size, prefetch, epochs):
    assert_resumes_exactly(lambda: bridge(lambda epoch: [(epoch, i) for i in range(size)], prefetch), epochs=epochs)


@resuming
@given(
    size=st.integers(0, 4),
    prefetch=st.integers(1, 3),
    steps=st.lists(st.sampled_from(["iter", "next", "next", "next", "save", "load", "set_epoch"]), max_size=30),
)
@settings(max_examples=examples(60))
def test_reading_ahead_is_invisible_for_any_sequence_of_calls(size, prefetch, steps):
    with bridge(lambda epoch: [(epoch, i) for i in range(size)], prefetch) as batches:
        iterator, at = iter(()), None  # where the live iterator stands, if there is one
        moves = False  # whether it moves the position
        position = following = (0, 0)
        saved = batches.state_dict(), position
        loaded = None  # the epoch of a position that was loaded and not started
        for step in steps:
            if step == "iter":
                iterator, at, moves, loaded = iter(batches), following, True, None
                position, following = at, (at[0] + 1, 0)
            elif step == "next":
                found = next(iterator, None)
                ends = at is None or at[1] == size
                assert found == (None if ends else at)
                if at is not None:
                    after = (at[0] + 1, 0) if ends else (at[0], at[1] + 1)
                    position = after if moves else position
                    at = None if ends else after
            elif step == "save":
                saved = batches.state_dict(), position
            elif step == "load":
                batches.load_state_dict(saved[0])
                position = following = saved[1]
                moves, loaded = False, position[0]
            else:
                batches.set_epoch(3)
                if loaded != 3:  # as with any loader, the number of the loaded epoch keeps the loaded position
                    position, loaded = (3, 0), None
                following, moves = position, False
            state = batches.state_dict()
            assert (state["epoch"], state["batch"]) == position


def test_a_warning_says_how_many_batches_are_read_again():
    with bridge(numbers) as batches:
        iterator = iter(batches)
        next(iterator), next(iterator)
        state = batches.state_dict()
        assert (state["epoch"], state["batch"], state["source"]) == (0, 2, None)
    with bridge(numbers) as batches:
        with pytest.warns(RuntimeWarning, match="resuming a bridge to numbers reads 2 batches again") as warned:
            batches.load_state_dict(json.dumps(state))
        assert len(warned) == 1
        assert warned[0].filename == __file__
        assert batches.state_dict() == state
        assert list(batches) == [2, 3, 4]
        assert list(batches) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("prefetch", [1, 3, 10])
@pytest.mark.parametrize("way", ["source", "function", "iterator", "its iterator"])
def test_a_source_with_a_state_resumes_without_reading_again(prefetch, way):
    class Iterator(Stateful):
        """The state is the iterator's, and each epoch has one of its own."""

        def __iter__(self):
            return self

        def __next__(self):
            if self.at == self.size:
                raise StopIteration
            self.at += 1
            return self.at - 1, self.rng.random()

    class Plain:
        def __len__(self):
            return 6

        def __iter__(self):
            return Iterator()

    make = {"source": Stateful, "function": lambda: Stateful, "iterator": lambda: Iterator, "its iterator": Plain}[way]
    assert_resumes_exactly(lambda: bridge(make(), prefetch), epochs=2)
    with bridge(make()) as batches:
        iterator = iter(batches)
        next(iterator), next(iterator)
        state = batches.state_dict()
    with bridge(make()) as batches:
        batches.load_state_dict(state)  # no warning: nothing is read again
        assert [number for number, _ in batches] == [2, 3, 4, 5]


def test_an_epoch_after_one_that_was_left_starts_without_a_state():
    """The state at the start of the epoch that was left does not belong there."""
    with bridge(Stateful()) as batches:
        list(batches)
        assert batches.state_dict()["source"] is not None
        next(iter(batches))
        iterator = iter(batches)
        state = batches.state_dict()
        assert (state["epoch"], state["batch"], state["source"]) == (2, 0, None)
        del iterator


def test_a_state_that_an_older_version_saved_is_loaded():
    with bridge(Stateful()) as batches:
        next(iter(batches))
        state = batches.state_dict()
        rest = {name: value for name, value in state.items() if name not in ("seed", "dataset")}
    with bridge(Stateful()) as batches:
        batches.load_state_dict(add_checksum(rest))
        assert [number for number, _ in batches] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("last_batch", ["keep", "rollover"])
def test_a_gluonloader_behind_a_bridge_resumes_exactly(last_batch):
    assert_resumes_exactly(lambda: bridge(DataLoader(range(11), 3, True, last_batch=last_batch, seed=1), 3), epochs=2)


@pytest.mark.parametrize("is_function", [False, True])
@pytest.mark.parametrize("last_batch", ["keep", "rollover"])
def test_no_epoch_comes_twice_after_the_last_batch_of_a_gluonloader(is_function, last_batch):
    """The position of a DataLoader after that batch is the start of its next epoch."""

    def loader():
        return DataLoader(range(8), 3, True, last_batch=last_batch, seed=1)

    def make():
        return bridge(loader if is_function else loader())

    with make() as batches:
        whole = [[batch.tolist() for batch in batches] for _ in range(3)]
    with make() as batches:
        iterator = iter(batches)
        for _ in whole[0]:
            next(iterator)
        state = batches.state_dict()
    with make() as batches:
        batches.load_state_dict(state)
        assert [[batch.tolist() for batch in batches] for _ in range(state["epoch"], 3)] == [[], *whole[1:]]


def test_hugging_faces_streams_resume_exactly():
    datasets = load_or_skip("datasets")

    def make():
        data = datasets.Dataset.from_dict({"a": list(range(11))}).to_iterable_dataset(num_shards=2)
        return bridge(data.shuffle(seed=3, buffer_size=1).batch(2))

    assert_resumes_exactly(make, epochs=2)


def test_a_torch_generator_in_a_state_is_restored():
    torch = load_or_skip("torch")

    class Source:
        def __init__(self):
            self.at, self.generator = 0, torch.Generator().manual_seed(1)

        def __iter__(self):
            for self.at in range(self.at + 1, 6):
                yield torch.rand(2, generator=self.generator)
            self.at = 0

        def state_dict(self):
            return {"at": self.at, "generator": self.generator.get_state()}

        def load_state_dict(self, state):
            self.at = state["at"]
            self.generator.set_state(state["generator"])

    assert_resumes_exactly(lambda: bridge(Source()), epochs=2)


def test_a_state_that_is_not_json_fails_only_in_state_dict():
    class Odd(Stateful):
        def state_dict(self):
            return {"rng": object()}

    class Broken(Stateful):
        def state_dict(self):
            raise KeyError("state")

    for kind, error in ((Odd, TypeError), (Broken, KeyError)):
        with bridge(kind()) as batches:
            iterator = iter(batches)
            next(iterator)
            with pytest.raises(error):
                batches.state_dict()
            assert len(list(iterator)) == 5
            assert len(list(batches)) == 6


def test_a_state_for_a_source_that_has_none_is_refused_with_the_first_batch():
    with bridge(lambda: Stateful()) as batches:
        next(iter(batches))
        state = batches.state_dict()
    with bridge(lambda: [1, 2]) as batches:
        batches.load_state_dict(state)
        for _ in range(2):  # at each iteration until another position is set
            with pytest.raises(ValueError, match="state: source=.*a list has no load_state_dict"):
                next(iter(batches))
        batches.set_epoch(0)
        assert list(batches) == [1, 2]


@resuming
def test_a_source_that_ends_before_the_position_is_an_error():
    sizes = iter([5, 2])
    with bridge(lambda: range(next(sizes))) as batches:
        iterator = iter(batches)
        for _ in range(4):
            next(iterator)
        batches.load_state_dict(batches.state_dict())
        iterator = iter(batches)
        with pytest.raises(ValueError, match="state: batch=4: this source ended after 2 batches"):
            next(iterator)
        assert list(iterator) == []


def state_in_mid_epoch():
    with bridge(Stateful()) as batches:
        next(iter(batches))
        return batches.state_dict()


@pytest.mark.parametrize("name", ["version", "epoch", "batch", "length", "source", "check"])
@pytest.mark.parametrize("wrong", ["missing", None, "text", -1, 1.5, [], {}, True])
def test_a_field_that_is_changed_is_refused_by_name(name, wrong):
    state = state_in_mid_epoch()
    if state[name] == wrong and type(state[name]) is type(wrong):
        pytest.skip("that is its value")
    if wrong == "missing":
        del state[name]
    else:
        state[name] = wrong
    batches = bridge(Stateful())
    before = batches.state_dict()
    with pytest.raises(ValueError, match=f"state: .*({name}|check)"):
        batches.load_state_dict(state)
    assert batches.state_dict() == before


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: bridge([1]).set_epoch(-1), "epoch=-1: must be an int >= 0"),
        (
            lambda: bridge([1, 2, 3]).load_state_dict(bridge([1, 2]).state_dict()),
            "state: length=2: this dataset has length=3; it must be the same as in the state",
        ),
        (
            lambda: bridge([1, 2]).load_state_dict(DataLoader([1, 2], 1).state_dict()),
            "state: it was saved by a DataLoader, not by a bridge; load it into a DataLoader",
        ),
        (
            lambda: bridge([1, 2]).load_state_dict(json.dumps(bridge([1, 2]).state_dict())[:-2]),
            "state: the text is not complete JSON",
        ),
    ],
)
def test_a_wrong_position_is_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call()
