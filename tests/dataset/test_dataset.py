"""Datasets: which samples the views hold, when transforms run, and which errors wrong arguments raise."""

import pickle
from operator import add, mul, neg

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluonloader import (
    ArrayDataset,
    Dataset,
    FilterSampler,
    IterableDataset,
    RandomSampler,
    Rows,
    SequentialSampler,
    SimpleDataset,
    StackDataset,
)
from gluonloader.declared import draws, in_memory, is_gil_free

ROWS = 150  # more than are read at once
values = st.lists(st.integers(-9, 9), max_size=20)


class Endless(Dataset):
    """A dataset whose `__getitem__` never raises IndexError: only `len` says where it ends."""

    def __init__(self, length):
        self.length, self.reads = length, []

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.reads.append(index)
        return index * 10


class InBulk(Dataset):
    """Notes its bulk reads, and has no others."""

    def __init__(self, length):
        self.length, self.reads = length, []

    def __len__(self):
        return self.length

    def __getitems__(self, indices):
        self.reads.append(indices)
        return Rows(np.array(indices, int) * 10)


@given(values)
def test_simple_dataset_is_what_it_wraps(data):
    dataset = SimpleDataset(data)
    assert len(dataset) == len(data)
    assert list(dataset) == data
    assert [dataset[i] for i in range(len(data))] == data


@given(values)
def test_filter_keeps_order_and_runs_once(data):
    calls = []

    def positive(value):
        calls.append(value)
        return value > 0

    dataset = SimpleDataset(data).filter(positive)
    assert calls == data
    assert list(dataset) == list(dataset) == [value for value in data if value > 0]
    assert len(dataset) == len(list(dataset))
    assert calls == data


def test_filter_gets_a_tuple_whole():
    dataset = ArrayDataset([1, 2, 3], [3, 2, 1]).filter(lambda pair: pair[0] > pair[1])
    assert list(dataset) == [(3, 1)]


@pytest.mark.parametrize(
    "use",
    [SimpleDataset(range(3)).filter, IterableDataset(range(3)).filter, lambda fn: FilterSampler(fn, range(3))],
    ids=["dataset", "stream", "sampler"],
)
def test_a_function_that_filters_is_not_async(use):
    async def is_odd(number):
        return number % 2

    with pytest.raises(ValueError, match=r"^fn=<function .*>: it is `async def`, so its result is always true"):
        use(is_odd)


@given(data=values, num_shards=st.integers(1, 25))
def test_shards_partition_the_dataset(data, num_shards):
    shards = [list(SimpleDataset(data).shard(num_shards, index)) for index in range(num_shards)]
    assert [value for shard in shards for value in shard] == data
    sizes = list(map(len, shards))
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
    assert sizes == [len(SimpleDataset(data).shard(num_shards, index)) for index in range(num_shards)]


@given(data=values, count=st.none() | st.integers(0, 30))
def test_take(data, count):
    taken = SimpleDataset(data).take(count)
    assert list(taken) == data[:count]
    assert len(taken) == len(data[:count])


def test_views_end_where_they_end_though_the_data_goes_on():
    for view in (Endless(5).take(2), Endless(5).shard(2, 1), Endless(5).sample([1, 3])):
        with pytest.raises(IndexError):
            view[len(view)]


def test_sample_draws_once():
    data = SimpleDataset(list(range(30)))
    sampled = data.sample(RandomSampler(30, seed=1))
    assert list(sampled) == list(sampled) == list(RandomSampler(30, seed=1))
    assert list(data.sample(SequentialSampler(2, 5))) == [5, 6]


def test_a_lazy_transform_runs_at_each_read():
    data = Endless(3)
    transformed = data.transform(neg)
    assert len(transformed) == 3
    assert data.reads == []
    assert [transformed[2], transformed[2]] == [-20, -20]
    assert data.reads == [2, 2]


@pytest.mark.parametrize(
    "read",
    [
        list,
        lambda data: list(data.filter(lambda sample: sample > 0)),
        lambda data: list(data.transform(neg)),
        lambda data: list(data.transform(neg, lazy=False)),
        lambda data: list(data.take(ROWS)),
        lambda data: list(data.transform(list, lazy=False, batched=True)),
    ],
)
def test_whole_datasets_are_read_in_bulk_by_lists_of_ints(read):
    data = InBulk(ROWS)
    assert [abs(sample) for sample in read(data) if sample] == [i * 10 for i in range(1, ROWS)]
    assert len(data.reads) < 20  # in blocks that double
    assert all(type(indices) is list and set(map(type, indices)) == {int} for indices in data.reads)


def test_filter_counts_by_index_in_whatever_order_it_is_iterated():
    class Backwards(SimpleDataset):
        def __iter__(self):
            return reversed(self._data)

    assert Backwards([3, -1, 2, 1]).filter(lambda x: x > 1)[1] == 2


def test_a_batched_transform_that_is_not_lazy_keeps_its_columns():
    transformed = InBulk(4).transform(lambda rows: Rows((rows.columns, -rows.columns)), lazy=False, batched=True)
    assert [column.tolist() for column in transformed.__getitems__([3, 1]).columns] == [[30, 10], [-30, -10]]
    assert transformed[-1] == (30, -30)
    assert in_memory(transformed)
    assert is_gil_free(transformed)
    assert not draws(transformed)
    assert list(transformed) == [(0, 0), (10, -10), (20, -20), (30, -30)]
    assert list(pickle.loads(pickle.dumps(transformed)).take(1)) == [(0, 0)]


def test_a_transform_that_is_not_lazy_runs_once_over_everything():
    data = Endless(3)
    transformed = data.transform(neg, lazy=False)
    assert data.reads == [0, 1, 2]
    assert list(transformed) == list(transformed) == [0, -10, -20]
    assert data.reads == [0, 1, 2]


@pytest.mark.parametrize("lazy", [True, False])
def test_transforms_unpack_tuples_and_nothing_else(lazy):
    pairs = ArrayDataset([1, 2], [10, 20])
    assert list(pairs.transform(add, lazy)) == [11, 22]
    assert list(SimpleDataset([[1, 2], [3]]).transform(len, lazy)) == [2, 1]
    assert list(pairs.transform(lambda *fields: fields[::-1], lazy).transform(mul, lazy)) == [10, 40]


@pytest.mark.parametrize("lazy", [True, False])
def test_transform_first_leaves_the_other_fields(lazy):
    triples = ArrayDataset([1, 2], ["a", "b"], [None, 0])
    assert list(triples.transform_first(neg, lazy)) == [(-1, "a", None), (-2, "b", 0)]
    assert list(SimpleDataset([1, 2]).transform_first(neg, lazy)) == [-1, -2]
    assert list(SimpleDataset([[1, 2]]).transform_first(len, lazy)) == [2]


def test_views_of_views():
    dataset = SimpleDataset(list(range(20))).filter(lambda x: x % 2).shard(2, 1).take(3).transform(neg)
    assert list(dataset) == [-11, -13, -15]


def test_all_views_are_picklable_when_their_functions_are():
    pairs = ArrayDataset(np.arange(6), [1, 2, 3, 4, 5, 6])
    for dataset in (
        pairs,
        pairs.filter(any),
        pairs.shard(2, 1),
        pairs.take(2),
        pairs.sample([3, 1]),
        pairs.transform(add),
        pairs.transform(add, lazy=False),
        pairs.transform_first(neg),
        pairs.transform_first(neg).take(3).transform(add),
        pairs + pairs,
        StackDataset(pairs),
        StackDataset(a=pairs),
    ):
        assert list(pickle.loads(pickle.dumps(dataset))) == list(dataset)


def test_iteration_ends_at_the_length_though_no_index_error_comes():
    data = Endless(3)
    assert list(data) == [0, 10, 20]
    assert data.reads == [0, 1, 2]
    assert list(data.transform(neg)) == [0, -10, -20]
    assert list(SimpleDataset(Endless(2))) == [0, 10]
    assert list(ArrayDataset(Endless(2), Endless(2))) == [(0, 0), (10, 10)]


@given(st.integers(0, 8), st.integers(1, 4))
def test_array_dataset_puts_sequences_side_by_side(length, width):
    columns = [[100 * column + row for row in range(length)] for column in range(width)]
    dataset = ArrayDataset(*columns)
    assert len(dataset) == length
    assert list(dataset) == (columns[0] if width == 1 else list(zip(*columns, strict=True)))


def test_array_dataset_takes_arrays_lists_and_datasets():
    dataset = ArrayDataset(np.arange(4).reshape(2, 2), ["a", "b"], SimpleDataset([None, 1]))
    row, letter, last = dataset[1]
    assert row.tolist() == [2, 3]
    assert (letter, last) == ("b", 1)


class Noise:
    """An array that is another one each time."""

    def __array__(self, dtype=None, copy=None):
        return np.random.random(2)


@pytest.mark.parametrize(
    ("labels", "drawing"),
    [
        ([1, True, 2.5], False),
        (["a", b"b", "c"], False),
        ([np.float32(1), np.int64(2), np.zeros(2)], False),
        ([1, 2, Noise()], True),
        ([1, 2, [Noise()]], True),
        ((Noise(), 1, 2), True),
    ],
)
def test_a_list_of_plain_items_draws_nothing(labels, drawing):
    dataset = ArrayDataset(np.zeros((3, 2)), labels)
    assert draws(dataset) == draws(dataset.take(2)) == draws(pickle.loads(pickle.dumps(dataset))) == drawing
    assert in_memory(dataset)
    assert in_memory(ArrayDataset(labels))
    assert is_gil_free(dataset)


class Unfinished(Dataset):
    pass


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda data: data.shard(0, 0), ValueError, "num_shards=0: must be an int >= 1"),
        (lambda data: data.shard(-1, 0), ValueError, "num_shards=-1"),
        (lambda data: data.shard(2, 2), ValueError, r"index=2: must be an int from 0 to num_shards - 1 \(1\)"),
        (lambda data: data.shard(2, -1), ValueError, "index=-1"),
        (lambda data: data.take(-1), ValueError, "count=-1: must be an int >= 0, or None"),
        (lambda data: data.sample(3), TypeError, "sampler=3: pass a Sampler"),
        (lambda data: data.sample(None), TypeError, "sampler=None: pass a Sampler"),
        (lambda data: ArrayDataset(), ValueError, r"at least one array, e.g. ArrayDataset\(images, labels\)"),
        (lambda data: ArrayDataset(data, [1, 2, 3]), ValueError, r"the arrays have lengths \[2, 3\]"),
        (lambda data: Unfinished()[0], NotImplementedError, "Unfinished must define __getitem__"),
        (lambda data: len(Unfinished()), NotImplementedError, "Unfinished must define __len__"),
    ],
)
def test_mistakes(call, error, text):
    with pytest.raises(error, match=text):
        call(SimpleDataset([1, 2]))


def test_repr_shows_the_class_the_length_and_the_transforms():
    class Mine(Dataset):
        def __getitem__(self, index):
            raise AssertionError("a sample was read")

        def __len__(self):
            return 1000

    def augment(sample):
        return sample

    data = Mine()
    assert repr(ArrayDataset(np.zeros((60_000, 1)))) == "ArrayDataset(60,000)"
    assert repr(SimpleDataset([1])) == "SimpleDataset(1)"
    assert repr(data) == "Mine(1,000)"
    assert repr(SimpleDataset(data)) == "SimpleDataset(Mine(1,000))"
    assert repr(data.transform(augment).transform(str)) == "Mine(1,000).transform(augment).transform(str)"
    assert repr(data.transform_first(augment)) == "Mine(1,000).transform_first(augment)"
    assert repr(data.transform(augment, batched=True)) == "Mine(1,000).transform(augment, batched=True)"
    assert repr(data.shard(3, 0).transform(augment)) == "Subset(334 of Mine(1,000)).transform(augment)"
