"""Datasets: what they hold, their methods, laziness, pickling, records; and that each side takes the other's."""

import concurrent.futures
import contextlib
import pickle
import threading
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .differences import differs
from .sides import GLUON, NOT_THREADS, OURS, WAYS, epoch, in_child, lists, mx

Pair = namedtuple("Pair", "first second")


class Counted:
    """`fn` that says how often it ran. At the top level, so that it can be pickled."""

    def __init__(self):
        self.calls = 0

    def __call__(self, *sample):
        self.calls += 1
        return sample[0] * 10 if len(sample) == 1 else tuple(x * 10 for x in sample)


def ten_times(x):
    return x * 10


def items(dataset):
    return [dataset[i] for i in range(len(dataset))]


def test_a_dataset_of_ones_own(gdata, way):
    class Squares(gdata.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            if index >= 4:
                raise IndexError(index)
            return index * index

    squares = Squares()
    assert isinstance(squares, mx.gluon.data.Dataset)
    assert epoch(gdata.DataLoader(squares, 3, **WAYS[way])) == [[0, 1, 4], [9]]
    assert items(squares.transform(ten_times).filter(lambda x: x > 0).take(2)) == [10, 40]
    assert list(squares) == [0, 1, 4, 9]


def test_the_base_class_defines_nothing(gdata):
    for use in (len, lambda dataset: dataset[0]):
        with pytest.raises(NotImplementedError):
            use(gdata.Dataset())


def test_a_simple_dataset_is_what_it_wraps(gdata):
    dataset = gdata.SimpleDataset([5, 6, 7, 8])
    assert (len(dataset), dataset[1], dataset[-1], dataset[np.int64(2)]) == (4, 6, 8, 7)
    assert dataset[1:3] == [6, 7]
    assert list(dataset) == [5, 6, 7, 8]
    assert gdata.SimpleDataset({"a": 1})["a"] == 1
    with pytest.raises(IndexError):
        dataset[4]


def test_an_array_dataset_of_one_is_bare_and_of_several_a_tuple(gdata):
    assert items(gdata.ArrayDataset([1, 2])) == [1, 2]
    assert items(gdata.ArrayDataset([1, 2], "ab")) == [(1, "a"), (2, "b")]
    assert items(gdata.ArrayDataset([1, 2], "ab", np.array([0.5, 1.5]))) == [(1, "a", 0.5), (2, "b", 1.5)]
    assert items(gdata.ArrayDataset(gdata.SimpleDataset([1, 2]), gdata.ArrayDataset([3, 4], [5, 6]))) == [
        (1, (3, 5)),
        (2, (4, 6)),
    ]
    assert gdata.ArrayDataset([1, 2, 3], [4, 5, 6])[1:] == ([2, 3], [5, 6])


def test_an_array_dataset_of_ndarrays(gdata):
    images, labels = mx.nd.arange(6).reshape((3, 2)), mx.nd.arange(3)
    image, label = gdata.ArrayDataset(images, labels)[2]
    assert isinstance(image, mx.nd.NDArray)
    assert image.asnumpy().tolist() == [4, 5]
    # One axis: labels, which come as NumPy's numbers.
    assert type(label) is np.float32
    assert label == 2
    assert type(gdata.ArrayDataset(labels)[1]) is np.float32


def test_an_array_dataset_of_ndarrays_in_the_numpy_mode(gdata, np_mode):
    image, label = gdata.ArrayDataset(np_mode.arange(6).reshape((3, 2)), np_mode.arange(3))[2]
    assert isinstance(image, np_mode.ndarray)
    assert type(label) is np.float32


def test_an_array_dataset_loads(gdata, way):
    dataset = gdata.ArrayDataset(mx.nd.arange(8).reshape((4, 2)), mx.nd.arange(4))
    assert epoch(gdata.DataLoader(dataset, 2, **WAYS[way])) == [
        [[[0, 1], [2, 3]], [0, 1]],
        [[[4, 5], [6, 7]], [2, 3]],
    ]


@pytest.mark.parametrize("arrays", [(), ([1, 2], [1])], ids=str)
def test_array_datasets_that_cannot_be(gdata, arrays):
    with pytest.raises((AssertionError, ValueError)):
        gdata.ArrayDataset(*arrays)


@differs("value-errors")
@pytest.mark.parametrize(
    "use",
    [
        lambda gdata: gdata.ArrayDataset([1, 2], [1]),
        lambda gdata: gdata.SimpleDataset([1, 2]).shard(2, 2),
        lambda gdata: gdata.SimpleDataset([1, 2]).shard(0, 0),
        lambda gdata: gdata.SimpleDataset([1, 2]).shard(2, -1),
    ],
    ids=["lengths", "shard index", "no shards", "negative index"],
)
def test_wrong_arguments_of_datasets_are_value_errors(gdata, use):
    with pytest.raises(ValueError):
        use(gdata)


def test_transform(gdata):
    assert items(gdata.SimpleDataset([1, 2]).transform(ten_times)) == [10, 20]
    pairs = gdata.ArrayDataset([1, 2], [3, 4])
    assert items(pairs.transform(lambda a, b: a + b)) == [4, 6]
    assert items(pairs.transform(lambda *fields: fields)) == [(1, 3), (2, 4)]
    # A list is one argument, a named tuple is several.
    assert items(gdata.SimpleDataset([[1, 2]]).transform(sum)) == [3]
    assert items(gdata.SimpleDataset([Pair(1, 2)]).transform(lambda a, b: a - b)) == [-1]


def test_transform_first(gdata):
    assert items(gdata.ArrayDataset([1, 2], [3, 4]).transform_first(ten_times)) == [(10, 3), (20, 4)]
    assert items(gdata.ArrayDataset([1], [2], [3]).transform_first(ten_times)) == [(10, 2, 3)]
    assert items(gdata.SimpleDataset([1, 2]).transform_first(ten_times)) == [10, 20]
    assert items(gdata.SimpleDataset([[1, 2]]).transform_first(sum)) == [3]


@pytest.mark.parametrize("method", ["transform", "transform_first"])
def test_a_lazy_transform_runs_at_each_read_an_eager_one_once(gdata, method):
    fn = Counted()
    lazy = getattr(gdata.SimpleDataset([1, 2, 3]), method)(fn)
    assert (len(lazy), fn.calls) == (3, 0)
    assert [lazy[0], lazy[0], fn.calls] == [10, 10, 2]
    fn = Counted()
    eager = getattr(gdata.SimpleDataset([1, 2, 3]), method)(fn, lazy=False)
    assert fn.calls == 3
    assert [*items(eager), *items(eager), fn.calls] == [10, 20, 30, 10, 20, 30, 3]
    assert items(getattr(gdata.SimpleDataset([1]), method)(ten_times, False)) == [10]


def test_transforms_of_transforms(gdata, way):
    dataset = gdata.ArrayDataset([1, 2, 3, 4], [5, 6, 7, 8]).transform_first(ten_times)
    dataset = dataset.transform(lambda a, b: (a + b, b)).transform_first(lambda x: -x)
    assert items(dataset) == [(-15, 5), (-26, 6), (-37, 7), (-48, 8)]
    dataset = dataset.filter(lambda item: item[1] != 6).shard(2, 0).take(5)
    assert epoch(gdata.DataLoader(dataset, 2, **WAYS[way])) == [[[-15, -37], [5, 7]]]


def test_filter_runs_at_once_and_transforms_run_again_at_each_read(gdata):
    fn, seen = Counted(), []
    dataset = gdata.SimpleDataset([1, 2, 3]).transform(fn)
    filtered = dataset.filter(lambda x: seen.append(x) or x > 10)
    assert seen == [10, 20, 30]
    assert (len(filtered), fn.calls) == (2, 3)
    assert items(filtered) == [20, 30]
    assert fn.calls == 5


def test_filter_gets_a_tuple_as_one_argument(gdata):
    dataset = gdata.ArrayDataset([1, 2, 3], [4, 5, 6]).filter(lambda item: sum(item) > 5)
    assert items(dataset) == [(2, 5), (3, 6)]


@differs("dataset-length", raises=RuntimeError)
@pytest.mark.parametrize("use", ["filter", "transform"])
def test_the_length_of_a_dataset_ends_a_pass_over_it(gdata, use):
    class Wraps(gdata.Dataset):
        """Its reads never end by an IndexError: a modulo, a generator of data, a file that is read around."""

        def __len__(self):
            return 3

        def __getitem__(self, index):
            if index > 1000:
                raise RuntimeError("reads on and on")
            return index % 3

    dataset = Wraps().filter(lambda x: x) if use == "filter" else Wraps().transform(lambda x: x + 1, lazy=False)
    assert items(dataset) == ([1, 2] if use == "filter" else [1, 2, 3])


def test_shards_are_contiguous_and_the_first_ones_hold_more(gdata):
    dataset = gdata.SimpleDataset(list(range(10)))
    assert [items(dataset.shard(4, i)) for i in range(4)] == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    assert [items(gdata.SimpleDataset([1]).shard(3, i)) for i in range(3)] == [[1], [], []]


@pytest.mark.parametrize(("count", "wanted"), [(2, [1, 2]), (3, [1, 2, 3]), (9, [1, 2, 3]), (None, [1, 2, 3]), (0, [])])
def test_take(gdata, count, wanted):
    assert items(gdata.SimpleDataset([1, 2, 3]).take(count)) == wanted


@differs("arguments-checked", raises=pytest.fail.Exception)
def test_take_of_a_negative_count_is_an_error_at_once(gdata):
    with pytest.raises(ValueError, match="count"):
        gdata.SimpleDataset([1, 2, 3]).take(-1)


def test_sample_draws_its_indices_once(gdata):
    dataset = gdata.SimpleDataset(list(range(10, 20)))
    assert items(dataset.sample(gdata.SequentialSampler(3, 4))) == [14, 15, 16]
    shuffled = dataset.sample(gdata.RandomSampler(10))
    assert sorted(items(shuffled)) == list(range(10, 20))
    assert items(shuffled) == items(shuffled)
    with pytest.raises(TypeError):
        dataset.sample(5)


@differs("any-sampler", raises=TypeError)
def test_sample_takes_any_indices(gdata):
    assert items(gdata.SimpleDataset([10, 11, 12]).sample([2, 0])) == [12, 10]


def test_views_of_views(gdata):
    dataset = gdata.SimpleDataset(list(range(20)))
    assert items(dataset.shard(2, 1).take(6).filter(lambda x: x % 2).shard(2, 0)) == [11, 13]


def test_views_are_datasets_of_the_same_family(gdata):
    dataset = gdata.SimpleDataset([1, 2, 3])
    views = [dataset.take(1), dataset.shard(1, 0), dataset.filter(bool), dataset.transform(ten_times)]
    views += [dataset.transform(ten_times, lazy=False), dataset.transform_first(ten_times)]
    views += [dataset.sample(gdata.SequentialSampler(2))]
    for view in views:
        assert isinstance(view, gdata.Dataset)
        assert isinstance(view, mx.gluon.data.Dataset)
        assert view[0] in (1, 10)


def test_datasets_can_be_pickled(gdata):
    pairs = gdata.ArrayDataset(np.arange(4), [5, 6, 7, 8])
    for dataset in (pairs, gdata.SimpleDataset([1, 2]), pairs.take(2), pairs.shard(2, 1), pairs.filter(sum)):
        assert lists(items(pickle.loads(pickle.dumps(dataset)))) == lists(items(dataset))


def test_transformed_datasets_can_be_pickled(gdata):
    pairs = gdata.ArrayDataset([1, 2], [3, 4])
    for dataset in (pairs.transform(max), pairs.transform_first(ten_times), pairs.transform_first(ten_times, False)):
        assert items(pickle.loads(pickle.dumps(dataset))) == items(dataset)


@pytest.fixture
def records(tmp_path):
    """Nine records of different lengths, one of them empty."""
    record = mx.recordio.MXIndexedRecordIO(str(tmp_path / "r.idx"), str(tmp_path / "r.rec"), "w")
    for i in range(9):
        record.write_idx(i, b"%d" % i * (i * 5))
    record.close()
    return str(tmp_path / "r.rec"), [b"%d" % i * (i * 5) for i in range(9)]


def test_records(gdata, records):
    path, wanted = records
    dataset = gdata.RecordFileDataset(path)
    assert isinstance(dataset, mx.gluon.data.RecordFileDataset)
    assert isinstance(dataset, gdata.Dataset)
    assert items(dataset) == wanted
    assert dataset[3] == wanted[3]
    assert items(pickle.loads(pickle.dumps(dataset))) == wanted
    assert items(dataset.transform(len).filter(bool).shard(2, 0)) == [5, 10, 15, 20]


@NOT_THREADS
def test_records_load(gdata, way, records):
    path, wanted = records
    loader = gdata.DataLoader(gdata.RecordFileDataset(path).transform(len), 4, True, **WAYS[way])
    for _ in range(2):
        assert sorted(sum(epoch(loader), [])) == sorted(map(len, wanted))


@differs("records-in-threads")
def test_records_load_in_threads(gdata, records, monkeypatch):
    path, wanted = records
    meet = threading.Barrier(2)
    seek = mx.recordio.MXIndexedRecordIO.seek

    def seek_together(self, index):
        """Moves the file's position, and waits for the other thread to do so, if nothing keeps it from it."""
        seek(self, index)
        with contextlib.suppress(threading.BrokenBarrierError):
            meet.wait(0.5)

    def read():
        dataset = gdata.RecordFileDataset(path)
        monkeypatch.setattr(mx.recordio.MXIndexedRecordIO, "seek", seek_together)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            try:
                return list(pool.map(dataset.__getitem__, [2, 7]))
            except mx.base.MXNetError as error:  # it may be read from the middle of a record, too
                return str(error)

    assert in_child(read) == [wanted[2], wanted[7]]


@NOT_THREADS
def test_each_side_takes_the_datasets_of_the_other(gdata, way):
    for other in (GLUON, OURS):
        dataset = other.ArrayDataset(np.arange(6), other.SimpleDataset(list(range(6)))).transform_first(ten_times)
        mixed = gdata.SimpleDataset(gdata.ArrayDataset(dataset.take(4), [0] * 4))
        (batch,) = epoch(gdata.DataLoader(mixed, 4, **WAYS[way]))
        assert batch == [[[0, 10, 20, 30], [0, 1, 2, 3]], [0, 0, 0, 0]]
        assert items(dataset.sample(gdata.SequentialSampler(2, 3))) == [(30, 3), (40, 4)]


@settings(max_examples=60)
@given(st.integers(0, 30), st.integers(1, 9), st.integers(0, 40))
def test_shard_and_take_agree_for_all_numbers(length, shards, count):
    data = list(range(length))
    for index in range(shards):
        theirs, ours = GLUON.SimpleDataset(data).shard(shards, index), OURS.SimpleDataset(data).shard(shards, index)
        assert items(theirs) == items(ours)
        assert items(theirs.take(count)) == items(ours.take(count))
