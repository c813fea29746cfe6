"""Bulk reads: `Rows` and `__getitems__` give what the samples one by one give, and only those offer it who gain."""

import copy
import functools
import pickle
import typing
from collections import OrderedDict

import numpy as np
import pytest
from bulk_reads import assert_bulk_is_the_same, assert_same, columns, outcome
from conftest import FORK, OVER_RAY, SERIAL, THREAD, WAYS
from hypothesis import given
from hypothesis import strategies as st

from gluonloader import (
    Append,
    ArrayDataset,
    AsList,
    CompactList,
    ConcatDataset,
    DataLoader,
    Dataset,
    Dict,
    Group,
    Pad,
    RandomSampler,
    Rows,
    SimpleDataset,
    Stack,
    StackDataset,
    Subset,
    SubsetSampler,
    default_batchify,
    get_rng,
)
from gluonloader.batchify import NamedTuple


class Point(typing.NamedTuple):
    x: object
    y: object


@st.composite
def rows(draw):
    length = draw(st.integers(1, 6))
    names = draw(st.lists(st.sampled_from(["x", "y", 3]), min_size=1, unique=True))
    parts = [draw(columns(length)) for _ in names]
    if draw(st.booleans()):
        inner = Rows((parts[0],), draw(st.lists(st.integers(0, length - 1), min_size=length, max_size=length)))
        parts[0] = inner
    kind = draw(st.sampled_from([dict, OrderedDict, tuple, Point, "bare"]))
    if kind is Point:
        held = Point(parts[0], parts[-1])
    elif kind == "bare":
        held = parts[0]
    else:
        held = tuple(parts) if kind is tuple else kind(zip(names, parts))
    return Rows(held, draw(st.none() | st.lists(st.integers(-length, length - 1), min_size=1, max_size=9)))


@given(rows())
def test_rows_make_the_batch_that_their_samples_make_one_by_one(rows):
    assert_same(outcome(lambda: default_batchify(rows)), outcome(lambda: default_batchify(list(rows))))
    assert_same(
        outcome(lambda: default_batchify([rows[i] for i in range(len(rows))])),
        outcome(lambda: default_batchify(list(rows))),
    )


def taken_from(columns, held, index):
    """Sample `index` out of columns whose containers are those of `held`."""
    if isinstance(columns, Rows):
        return taken_from(columns.columns, columns.held, index)
    while isinstance(held, Rows):
        held = held.held
    if isinstance(held, dict):
        return {key: taken_from(columns[key], held[key], index) for key in held}
    if isinstance(held, tuple):
        return tuple(taken_from(column, one, index) for column, one in zip(columns, held, strict=True))
    return columns[index]


@given(rows())
def test_the_columns_of_rows_are_their_samples(rows):
    for index, sample in enumerate(rows):
        sample = dict(sample) if isinstance(sample, dict) else tuple(sample) if isinstance(sample, Point) else sample
        assert repr(taken_from(rows.columns, rows, index)) == repr(sample)


def test_rows_of_the_columns_of_rows_are_these_rows():
    inner = ArrayDataset(np.arange(4), np.arange(4) * 10)
    data = StackDataset(inner, np.arange(4) * 100).transform(lambda rows: Rows(rows.columns), batched=True)
    for keys in ([2, 1], [3], [0, 1, 2]):  # as many samples as fields, fewer, more
        assert repr(default_batchify(data.__getitems__(keys))) == repr(default_batchify([data[i] for i in keys]))


def test_rows_are_a_sequence():
    rows = Rows({"x": np.arange(5) * 10, "s": list("abcde")}, [4, -5, 2])
    assert len(rows) == 3
    assert rows[-1] == {"x": 20, "s": "c"}
    assert list(rows[1:]) == [{"x": 0, "s": "a"}, {"x": 20, "s": "c"}]
    assert isinstance(rows[1:], Rows)
    assert list(rows[::-2]) == [rows[2], rows[0]]
    assert list(reversed(rows)) == [rows[2], rows[1], rows[0]]
    for outside in (3, -4):
        with pytest.raises(IndexError):
            rows[outside]
    assert "'s': ['e', 'a', 'c']" in repr(rows)
    assert list(pickle.loads(pickle.dumps(rows))) == list(rows)


class Counted(list):
    """A column that counts how often it is read."""

    reads = 0

    def __getitem__(self, index):
        self.reads += 1
        assert type(index) is int
        return super().__getitem__(index)


@pytest.mark.parametrize(
    ("held", "fn"),
    [
        (lambda column: column, default_batchify),
        (lambda column: column, Stack()),
        (lambda column: (column, column), Stack()),
        (lambda column: column, Append()),
        (lambda column: (column, column), Group(Stack(), Pad())),
        (lambda column: Point(column, column), NamedTuple(Point, [Stack(), AsList()])),
        (lambda column: {"x": column, "y": column}, Dict({"x": Stack(), "y": Stack()})),
    ],
)
def test_batchify_functions_read_each_sample_of_rows_once(held, fn):
    column = Counted([1, 2, 3])
    columns = held(column)
    fn(Rows(columns, [2, 0]))
    assert column.reads == 2 * (1 if columns is column else len(columns))
    assert Rows(columns, np.array([1]))[0] == Rows(columns).at([1])[-1] == Rows(columns)[1]


@pytest.mark.parametrize(
    ("held", "indices", "kind", "text"),
    [
        ({}, None, ValueError, "at least one column"),
        ((), None, ValueError, "at least one column"),
        (([1], [1, 2]), None, ValueError, r"lengths \[1, 2\]"),
        ([1, 2], [2], IndexError, "index 2 is out of range for 2"),
        ([1, 2], [0, -3], IndexError, "index -3"),
        ([1, 2], np.array([0], np.uint64) - np.uint64(1), IndexError, f"index {2**64 - 1} is out of range for 2"),
        ([1, 2], [0.5], TypeError, "pass a list or an array of ints"),
        ([1, 2], [[1]], TypeError, "pass a list or an array of ints"),
        ([1, 2], [True], TypeError, "pass a list or an array of ints"),
    ],
)
def test_wrong_rows_are_refused(held, indices, kind, text):
    with pytest.raises(kind, match=text):
        Rows(held, indices)


def test_a_column_that_is_new_becomes_the_batch_itself_and_one_that_is_picked_from_does_not():
    column = np.arange(4.0)
    assert default_batchify(Rows({"x": column}))["x"] is column
    picked = default_batchify(Rows({"x": column}, [0, 1, 2, 3]))["x"]
    assert not np.shares_memory(picked, column)


class Bulk(Dataset):
    """Says how it was read; its samples are dicts."""

    def __init__(self, length, offset=0, answer=copy.copy):
        self.length, self.offset, self.answer, self.calls, self.single = length, offset, answer, [], []

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not -self.length <= index < self.length:
            raise IndexError(index)
        self.single.append(index)
        number = index % self.length + self.offset
        return {"n": np.int64(number), "s": str(number)}

    def __getitems__(self, indices):
        self.calls.append(list(indices))
        if any(not -self.length <= index < self.length for index in indices):
            raise IndexError(indices)
        numbers = np.array(indices, np.int64) % self.length + self.offset
        return self.answer(Rows({"n": numbers, "s": list(map(str, numbers.tolist()))}))


class Plain(Dataset):
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not -self.length <= index < self.length:
            raise IndexError(index)
        return {"n": np.int64(index % self.length), "s": "plain"}


def doubled(sample):
    return {**sample, "n": sample["n"] * 2}


def all_doubled(samples):
    return [doubled(sample) for sample in samples]


def columns_doubled(samples):
    columns = samples.columns
    return Rows({**columns, "n": columns["n"] * 2})


VIEWS = {
    "shard": lambda data: data.shard(2, 1),
    "take": lambda data: data.take(7),
    "sample": lambda data: data.sample([i % len(data) for i in (3, 1, 1, 5)]),
    "filter": lambda data: data.filter(lambda sample: sample["n"] % 2),
    "subset": lambda data: Subset(data, np.array([5, 0, 2, 7]) % len(data)),
    "every second": lambda data: Subset(data, range(len(data) - 1, -1, -2)),
    "keys": lambda data: Subset(data, [np.int32(5 % len(data)), 0, -1]),
    "simple": SimpleDataset,
    "array": ArrayDataset,
    "transform": lambda data: data.transform(doubled),
    "batched": lambda data: data.transform(all_doubled, batched=True),
    "concat": lambda data: ConcatDataset(data, Bulk(4, 100)),
    "concat with a plain one": lambda data: ConcatDataset([Plain(3), data]),
    "stack": lambda data: StackDataset(data, np.arange(len(data)), list(range(len(data)))),
    "stack by name": lambda data: StackDataset(first=data, second=data),
}


@given(
    views=st.lists(st.sampled_from(sorted(VIEWS)), max_size=3),
    answer=st.sampled_from([copy.copy, list, tuple]),
    data=st.data(),
)
def test_views_read_in_bulk_what_they_read_one_by_one(views, answer, data):
    dataset = Bulk(10, answer=answer)
    for view in views:
        try:
            made = VIEWS[view](dataset)
            list(made)
        except (TypeError, KeyError):  # it wants samples that are dicts with "n"
            continue
        dataset = made if len(made) else dataset
    indices = data.draw(st.lists(st.integers(-len(dataset), len(dataset) - 1), min_size=1, max_size=8))
    kind = data.draw(st.sampled_from([int, np.int64, np.int32]))
    assert hasattr(dataset, "__getitems__")
    assert_bulk_is_the_same(dataset, list(map(kind, indices)))
    for outside in (len(dataset), -len(dataset) - 1):
        with pytest.raises(IndexError):
            dataset.__getitems__([0, outside])


def test_one_batch_is_one_call_for_each_dataset():
    first, second, third = Bulk(5), Bulk(5, 5), Bulk(5, 10)
    data = ConcatDataset(first, second, third).sample([12, 3, 5, 13, 4]).transform(doubled)
    assert [sample["n"] for sample in data.__getitems__([0, 1, 3, 4])] == [24, 6, 26, 8]
    assert (first.calls, second.calls, third.calls) == ([[3, 4]], [], [[2, 3]])
    assert first.single == third.single == []


def test_parts_that_differ_come_one_by_one_and_in_order():
    first = ArrayDataset(np.arange(3, dtype=np.float32))
    second = ArrayDataset(np.arange(3, 6, dtype=np.float64))
    assert_bulk_is_the_same(ConcatDataset(first, second), [4, 0, 5, 1])
    assert_bulk_is_the_same(ConcatDataset(first, first), [4, 0, 5, 1])
    wide = ConcatDataset(ArrayDataset(np.zeros((3, 2)), np.arange(3)), ArrayDataset(np.ones((3, 4)), np.arange(3)))
    assert_bulk_is_the_same(wide, [0, 2])
    assert_bulk_is_the_same(wide, [0, 3])  # shapes differ: the error is the same, too
    names = ConcatDataset(StackDataset(a=np.arange(2)), StackDataset(b=np.arange(2)))
    assert_bulk_is_the_same(names, [0, 3])


def test_keys_that_are_no_ints_mean_what_they_mean_one_by_one():
    dataset = ArrayDataset(np.arange(6).reshape(3, 2))
    assert_same(default_batchify(dataset.__getitems__([(0, 1), (2, 0)])), np.array([1, 4]))
    assert_same(
        default_batchify(SimpleDataset(np.arange(4)).__getitems__([slice(2), slice(2, 4)])), np.array([[0, 1], [2, 3]])
    )
    rows = Subset(dataset, np.array([[0, 2], [1, 1]]))
    assert default_batchify(rows.__getitems__([1, 0])).tolist() == [rows[i].tolist() for i in (1, 0)]


class Overriding(ArrayDataset):
    def __getitem__(self, index):
        return -super().__getitem__(index)


class Mixin:
    def __getitem__(self, index):
        return super().__getitem__(index) + 100


class Mixed(Mixin, ArrayDataset):
    pass


class Both(Overriding):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def test_who_changes_its_samples_is_not_passed_by():
    for kind, first in ((Overriding, -1), (Mixed, 101)):
        dataset = kind(np.arange(1, 4))
        assert not hasattr(dataset, "__getitems__")
        with DataLoader(dataset, 1) as loader:
            assert next(iter(loader)).tolist() == [first]
        assert not hasattr(dataset.take(2), "__getitems__")
    assert hasattr(Both(np.arange(3)), "__getitems__")


def test_nobody_offers_what_gains_nothing():
    lists = [1, 2, 3]
    arrays = ArrayDataset(np.arange(3), lists)
    for dataset in (
        Plain(3), Plain(3).take(2), Plain(3).shard(1, 0), Plain(3).sample([1]), Plain(3).transform(doubled),
        SimpleDataset(lists), SimpleDataset(Plain(3)), ArrayDataset(lists, lists), ArrayDataset(np.arange(3), Plain(3)),
        ConcatDataset(lists, Plain(3)), StackDataset(lists), StackDataset(a=Plain(3)), Subset(lists, [0]),
        arrays.transform(max), arrays.take(2).transform_first(abs), ConcatDataset(arrays, arrays).transform(max),
        SimpleDataset(CompactList("ab")), ArrayDataset(CompactList("ab"), [1, 2]),
        *[ArrayDataset(np.arange(2), CompactList(items)).transform(max) for items in ("ab", [None, 1])],
    ):  # fmt: skip
        assert not hasattr(dataset, "__getitems__")
        with pytest.raises((AttributeError, TypeError)):
            dataset.__getitems__([0])
    for dataset in (arrays, arrays.take(2), ArrayDataset(np.arange(2), CompactList("ab")), Bulk(3).transform(doubled)):
        assert hasattr(dataset, "__getitems__")


def failing(sample, error=KeyError):
    if sample["n"] == 7:
        raise error("seven")
    return sample


@pytest.mark.parametrize("error", [KeyError, StopIteration])
def test_an_error_in_a_transform_names_the_sample(error):
    function = functools.partial(failing, error=error)
    for dataset in (Bulk(10).transform(function), Plain(10).transform(function).transform(list, batched=True)):
        with pytest.raises(error, match="seven") as caught:
            dataset.__getitems__([3, 7, 8])
        assert "gluonloader: sample 7 of a bulk read" in caught.value.__notes__


def test_a_batched_transform_runs_once_for_a_batch():
    calls = []

    def halves(samples):
        calls.append(len(samples))
        return [sample / 2 for sample in samples]

    dataset = ArrayDataset(np.arange(10.0)).transform(halves, batched=True)
    assert default_batchify(dataset.__getitems__([4, 6])).tolist() == [2, 3]
    assert dataset[8] == 4
    assert calls == [2, 1]
    now = ArrayDataset(np.arange(10.0)).transform(halves, lazy=False, batched=True)
    assert calls == [2, 1, 10]
    assert list(now) == [i / 2 for i in range(10)]
    assert calls == [2, 1, 10]
    assert list(ArrayDataset(np.arange(0)).transform(halves, lazy=False, batched=True)) == []


def test_a_batched_transform_may_work_on_columns_also_for_one_sample():
    dataset = Bulk(10).transform(columns_doubled, batched=True)
    assert dataset[3] == {"n": 6, "s": "3"}
    assert_bulk_is_the_same(dataset, [1, 9, 1])
    assert list(pickle.loads(pickle.dumps(dataset)))[2] == {"n": 4, "s": "2"}


def test_a_wrong_number_of_samples_is_refused():
    dataset = SimpleDataset([1, 2, 3]).transform(lambda samples: samples[:1], batched=True)
    with pytest.raises(ValueError, match="got 3 samples and returned 1; return one sample for each"):
        dataset.__getitems__([0, 1, 2])
    with pytest.raises(ValueError, match=r"Bulk.__getitems__ returned 1 samples for 2 indices"):
        Bulk(5, answer=lambda rows: rows[:1]).take(3).__getitems__([0, 1])


def odd_columns(samples):
    return Rows({"n": samples.columns["n"] % 2, "s": samples.columns["s"]})


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_loaders_read_in_bulk(way):
    dataset = ConcatDataset(Bulk(30), Bulk(11, 30)).transform(odd_columns, batched=True)
    with (
        way.loader(dataset, 8, shuffle=True) as bulk,
        way.loader([dataset[i] for i in range(41)], 8, shuffle=True) as one,
    ):
        for _ in range(2):
            for left, right in zip(bulk, one, strict=True):
                assert_same(left, right)


@pytest.mark.skipif(OVER_RAY, reason="batches of Ray are read-only")
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_loaders_of_arrays_read_in_bulk_and_never_lend_the_dataset(way):
    images = np.arange(41 * 4, dtype=np.float32).reshape(41, 2, 2)
    dataset = ArrayDataset(images, list(map(str, range(41))))
    with way.loader(dataset, 8) as loader:
        for number, (x, names) in enumerate(loader):
            assert names == list(map(str, range(number * 8, min(41, number * 8 + 8))))
            x[:] = -1
    assert images.min() == 0


class Drawing(ArrayDataset):
    """A subclass that draws, in its own way."""

    def __getitem__(self, index):
        return super().__getitem__(index) + np.random.random()


class DrawingInBulk(ArrayDataset):
    def __getitems__(self, indices):
        return [row + get_rng().random() for row in super().__getitems__(indices)]


@pytest.mark.parametrize(
    "make",
    [
        lambda rows: Drawing(rows),
        lambda rows: DrawingInBulk(rows),
        lambda rows: Subset(Drawing(rows), range(20)),
        lambda rows: ArrayDataset(rows).transform(lambda row: row + np.random.random()),
        lambda rows: StackDataset(ArrayDataset(rows), Drawing(rows)).transform(lambda a, b: b),
    ],
)
def test_what_is_built_on_arrays_and_draws_is_seeded(make):
    rows = np.arange(20.0)

    def epochs(seed):
        with SERIAL.loader(make(rows), 4, seed=seed) as loader:
            np.random.seed(1)
            drawn = [batch.tolist() for _ in range(2) for batch in loader]
            return drawn, np.random.random()

    assert epochs(0) == epochs(0)
    assert epochs(0)[0] != epochs(1)[0]
    assert epochs(0)[1] == np.random.RandomState(1).random_sample()  # the caller's generator is not affected


@pytest.mark.parametrize("keys", [[3, 0, 19], range(3, 6), np.array([5, 5]), [-1, 2], [np.int32(4), 1]])
@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_indices_of_every_kind_read_the_same_rows(way, keys):
    rows = np.arange(40).reshape(20, 2)
    for dataset in (ArrayDataset(rows), Subset(rows, range(20)), StackDataset(x=rows)):
        with way.loader(dataset, len(keys), sampler=keys) as loader:
            (batch,) = loader
        assert (batch["x"] if isinstance(batch, dict) else batch).tolist() == rows[list(keys)].tolist()


class ByKey:
    """As a database: it finds ints, and not NumPy's."""

    def __len__(self):
        return 20

    def __getitem__(self, index):
        assert type(index) is int
        return index * 10, "text"


@pytest.mark.parametrize(
    "make",
    [
        lambda: ByKey(),
        lambda: SimpleDataset(ByKey()),
        lambda: ArrayDataset(ByKey()),
        lambda: StackDataset(ByKey(), list(range(20))),
        lambda: ConcatDataset(ByKey(), StackDataset(np.arange(5), list("abcde"))),
        lambda: Subset(ArrayDataset(ByKey(), np.arange(20)), range(20)),
    ],
)
@pytest.mark.parametrize("batched", [False, True])
def test_what_is_not_ours_is_given_ints(make, batched):
    dataset = (
        make().transform(lambda samples: samples, batched=True) if batched and hasattr(make(), "transform") else make()
    )
    with SERIAL.loader(dataset, 3, True, seed=1, batchify_fn=len) as loader:
        assert sum(loader) == len(dataset)


def test_a_bulk_read_that_an_object_was_given_may_draw():
    dataset = ArrayDataset(np.zeros(20))
    seen = []
    dataset.__getitems__ = lambda indices: seen.append(indices) or [np.random.random() for _ in indices]

    def epoch():
        with SERIAL.loader(dataset, 4, seed=3) as loader:
            return [batch.tolist() for batch in loader]

    np.random.seed(1)
    assert epoch() == epoch()
    assert np.random.random() == np.random.RandomState(1).random_sample()
    Subset(dataset, range(4)).__getitems__([2, 1])
    assert all(type(indices) is list and set(map(type, indices)) == {int} for indices in seen)
    assert seen[-1] == [2, 1]


def test_what_wraps_a_bulk_read_is_given_a_list():
    seen, dataset = [], ArrayDataset(np.arange(20))
    inner = dataset.__getitems__

    @functools.wraps(inner)
    def logged(indices):
        seen.append(indices)
        return inner(indices)

    dataset.__getitems__ = logged
    with SERIAL.loader(Subset(dataset, range(5, 20)), 5) as loader:
        assert np.concatenate(list(loader)).tolist() == list(range(5, 20))
    assert seen == [list(range(5, 10)), list(range(10, 15)), list(range(15, 20))]


def test_what_getitems_is_given_is_a_list_of_ints():
    seen = []

    class Told:
        def __len__(self):
            return 10

        def __getitems__(self, indices):
            seen.append(indices)
            return [0] * len(indices)

        __getitem__ = None

    for sampler in (None, RandomSampler(10, seed=1), SubsetSampler([3, 1, 2]), range(4)):
        with SERIAL.loader(Told(), 2, sampler=sampler) as loader:
            list(loader)
    assert all(isinstance(indices, list) and set(map(type, indices)) == {int} for indices in seen)
    assert all(pickle.loads(pickle.dumps(indices)) == indices and repr(indices)[0] == "[" for indices in seen)
