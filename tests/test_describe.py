"""`repr` of loaders, iterators, datasets and functions is one short line, and is made without reading samples."""

import functools
import pickle
import threading
from unittest.mock import MagicMock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gluonloader as gl
from gluonloader.describe import call, counted, describe, short_repr

ROWS = gl.ArrayDataset(np.zeros((60_000, 2)), np.zeros(60_000))


def augment(*sample):
    return sample


def collate(samples):
    return samples


class Mine:
    """A dataset that fails the test if a sample is read."""

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        raise AssertionError("a sample was read")

    def __repr__(self):
        raise AssertionError("it may show all samples")


class Failing(Mine):
    def __len__(self):
        raise OSError("the server does not answer")


class Unbounded(gl.IterableDataset):
    def __init__(self):
        pass

    def __iter__(self):
        raise AssertionError("it was iterated")


# -- values ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Mine(), "Mine(1,000)"), (Failing(), "Failing()"), (Unbounded(), "Unbounded()"), ([1] * 1000, "list(1,000)"),
        (range(3), "range(3)"), (np.zeros((5, 2)), "ndarray(5)"), ({"a": 1}, "dict(1)"), (object(), "object()"),
        (augment, "augment"), (lambda x: x, "<lambda>"), (Mine, "Mine"), (Mine().__len__, "__len__"), (len, "len"),
        (functools.partial(augment, 3), "augment"), (np.negative, "negative"), (-1.5, "-1.5"), ("torch", "'torch'"),
        (MagicMock(), "MagicMock(0)"),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_values_are_described_by_class_and_length_or_by_name(value, text):
    assert describe(value) == text


def test_counted_uses_the_singular_only_for_one():
    assert [counted(number, "batch", "batches") for number in (0, 1, 2000)] == ["0 batches", "1 batch", "2,000 batches"]


class Described:
    def __init__(self, *parts):
        self.parts = parts

    @short_repr
    def __repr__(self):
        return call(self, *map(describe, self.parts))


@settings(max_examples=50)
@given(names=st.lists(st.text(), max_size=5), depth=st.integers(0, 40), width=st.integers(1, 4))
def test_a_description_is_one_line_of_limited_length(names, depth, width):
    dataset = Described(*[type("Named", (), {})() for _ in names])
    for part, name in zip(dataset.parts, names, strict=True):
        type(part).__name__ = name.replace("\0", "")
    for _ in range(depth):
        dataset = Described(*[dataset] * width)
    text = repr(dataset)
    assert len(text) <= 240
    assert len(text.splitlines()) == 1


def test_only_the_first_twelve_parts_of_an_object_are_described():
    text = repr(gl.ConcatDataset([[0] * number for number in range(2000)]))
    assert text.startswith("ConcatDataset(list(0), list(1), list(2), ")
    assert text.endswith(", list(11), 1,988 more)")


def test_a_part_that_contains_itself_is_described():
    part = Described()
    part.parts = (part, part)
    assert repr(part).startswith("Described(Described(")
    assert repr(Described()) == "Described()"  # each text has its own limit


def test_a_repr_of_an_unfinished_object_raises_nothing():
    for kind in (
        gl.DataLoader,
        gl.types.LoaderIterator,
        gl.Subset,
        gl.Pad,
        gl.BatchSampler,
        gl.types.Bridge,
        gl.tables.NpyDataset,
    ):
        assert repr(object.__new__(kind)) == f"{kind.__name__}(...)"
    assert repr(object.__new__(gl.ArrayDataset)) == "ArrayDataset()"


# -- loaders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"batch_size": 32}, "batch_size=32"),
        ({"batch_size": 32, "num_workers": 2}, "batch_size=32, 2 processes"),
        ({"batch_size": 32, "num_workers": 1}, "batch_size=32, 1 process"),
        ({"batch_size": 32, "num_workers": 2, "thread_pool": True}, "batch_size=32, 2 threads"),
        ({"batch_size": 32, "num_workers": 2, "executor": "auto"}, "batch_size=32, executor='auto' (no workers)"),
        ({"batch_size": 32, "shuffle": True, "last_batch": "discard"},
         "batch_size=32, shuffle=True, last_batch='discard'"),
        ({"batch_size": 32, "sampler": gl.RandomSampler(60_000)}, "batch_size=32, sampler=RandomSampler(60,000)"),
        ({"batch_size": 32, "sampler": np.arange(10)}, "batch_size=32, sampler=ndarray(10)"),
        ({"batch_sampler": gl.buckets.SortedBucketSampler(range(60_000), 32)},
         "batch_sampler=SortedBucketSampler(1,875 batches)"),
        ({"batch_size": 32, "batchify_fn": gl.Group(gl.Pad(), gl.Stack())},
         "batch_size=32, batchify_fn=Group(Pad(), Stack())"),
        ({"batch_size": 32, "batchify_fn": collate}, "batch_size=32, batchify_fn=collate"),
        ({"batch_size": 32, "batchify_fn": gl.default_batchify}, "batch_size=32"),
    ],
)  # fmt: skip
def test_a_loader_shows_the_arguments_that_were_passed(arguments, text):
    with gl.DataLoader(ROWS, **arguments) as loader:
        assert repr(loader) == f"DataLoader(ArrayDataset(60,000), {text})"
    assert repr(loader) == f"DataLoader(ArrayDataset(60,000), {text}, closed)"


def test_a_loader_of_an_iterable_dataset_shows_its_shards():
    with gl.DataLoader(gl.IterableDataset(Unbounded(), num_shards=3, shuffle_buffer=10), 4, True) as loader:
        dataset = "IterableDataset(Unbounded(), num_shards=3, shuffle_buffer=10)"
        assert repr(loader) == f"DataLoader({dataset}, batch_size=4, shuffle=True)"


def test_a_subclass_a_copy_and_a_pickled_loader_are_described_too():
    class Loader(gl.DataLoader):
        pass

    assert repr(Loader(Mine(), 10)) == "Loader(Mine(1,000), batch_size=10)"
    loader = gl.DataLoader(ROWS, 10, sampler=gl.RandomSampler(50), executor="thread", num_workers=3)
    text = "DataLoader(ArrayDataset(60,000), batch_size=10, sampler=RandomSampler(50), 3 threads)"
    assert repr(loader) == repr(pickle.loads(pickle.dumps(loader))) == text
    loader.close()


# -- iterators ---------------------------------------------------------------------------------------------------------


def test_an_iterator_shows_its_epoch_and_its_position(any_way):
    with any_way.loader(list(range(10)), 2) as loader:
        list(loader)
        iterator = iter(loader)
        for number in range(5):
            assert repr(iterator) == f"LoaderIterator(epoch 1, {number} of 5 batches of list(10))"
            next(iterator)
        assert repr(iterator) == "LoaderIterator(epoch 1, ended)"
        left = iter(loader)
        next(left)
        loader.load_state_dict(left.state_dict())
        left.close()
        assert repr(left) == "LoaderIterator(epoch 2, ended)"
        assert repr(iter(loader)) == "LoaderIterator(epoch 2, 1 of 5 batches of list(10))"
    with any_way.loader([1], 1) as loader:
        assert repr(iter(loader)) == "LoaderIterator(epoch 0, 0 of 1 batch of list(1))"


@settings(max_examples=60, deadline=None)
@given(
    samples=st.integers(0, 30),
    shards=st.integers(1, 4),
    batch_size=st.integers(1, 5),
    last_batch=st.sampled_from(["keep", "discard", "rollover"]),
    sized=st.booleans(),
)
def test_an_iterator_over_shards_counts_batches(samples, shards, batch_size, last_batch, sized):
    dataset = gl.IterableDataset(range(samples) if sized else lambda: iter(range(samples)))
    with gl.DataLoader(gl.IterableDataset(dataset, num_shards=shards), batch_size, last_batch=last_batch) as loader:
        iterator, wanted = iter(loader), 0
        total = f" of {counted(len(loader), 'batch', 'batches')}" if sized else ""
        while True:
            count = f"{wanted}{total}" if sized else counted(wanted, "batch", "batches")
            assert repr(iterator).startswith(f"LoaderIterator(epoch 0, {count} of ")
            try:
                next(iterator)
            except StopIteration:
                break
            wanted += 1
            if iterator.ended:
                break
        assert repr(iterator) == "LoaderIterator(epoch 0, ended)"


class Gate:
    """A dataset that returns samples only after `open` is set."""

    def __init__(self):
        self.reached, self.open = threading.Event(), threading.Event()

    def __len__(self):
        return 4

    def __getitem__(self, index):
        self.reached.set()
        self.open.wait()
        return index


@pytest.mark.parametrize("arguments", [{}, {"num_workers": 1, "thread_pool": True}], ids=["serial", "thread"])
def test_repr_does_not_wait_for_a_batch(arguments):
    gate = Gate()
    with gl.DataLoader(gate, 2, **arguments) as loader:
        iterator = iter(loader)
        reader = threading.Thread(target=next, args=(iterator,))
        reader.start()
        gate.reached.wait()
        assert repr(iterator) == "LoaderIterator(epoch 0, 0 of 2 batches of Gate(4))"
        assert repr(loader).startswith("DataLoader(Gate(4), batch_size=2")
        gate.open.set()
        reader.join()
        assert repr(iterator) == "LoaderIterator(epoch 0, 1 of 2 batches of Gate(4))"


@pytest.mark.parametrize("ranks", [(1, 4), gl.Ranks(1, 4), gl.Ranks(1, 4, policy="drop")], ids=str)
def test_repr_shows_the_ranks(ranks):
    with gl.DataLoader(range(8), 2, ranks=ranks) as loader:
        assert f"ranks={ranks!r}" in repr(loader)
    assert str(ranks).startswith(("(1, 4", "Ranks(1, 4"))
