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
from parity import outcome

from .sides import GLUON, NOT_THREADS, OURS, WAYS, differs, epoch, in_child, items, lists, mx

Pair = namedtuple("Pair", "first second")


class Counted:
    """A function of a sample for one of the methods, which counts its calls."""

    def __init__(self, method):
        self.method, self.calls = method, 0

    def __call__(self, *sample):
        self.calls += 1
        first = sample[0]
        if self.method == "filter":
            return (first[0] if isinstance(first, tuple) else first) % 3 != 1
        return first + 1 if len(sample) == 1 else tuple(x * 10 for x in sample)


def ten_times(x):
    return x * 10


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


def simple(gdata):
    dataset = gdata.SimpleDataset([5, 6, 7, 8])
    return [len(dataset), dataset[1], dataset[-1], dataset[np.int64(2)], dataset[1:3], list(dataset)]


CALLS = {
    "base class": lambda g: [outcome(use, g.Dataset()) for use in (len, lambda dataset: dataset[0])],
    "simple": simple,
    "simple, end": lambda g: outcome(lambda: g.SimpleDataset([5])[1]),
    "simple, dict": lambda g: g.SimpleDataset({"a": 1})["a"],
    "one array": lambda g: items(g.ArrayDataset([1, 2])),
    "two arrays": lambda g: items(g.ArrayDataset([1, 2], "ab")),
    "three arrays": lambda g: items(g.ArrayDataset([1, 2], "ab", np.array([0.5, 1.5]))),
    "datasets": lambda g: items(g.ArrayDataset(g.SimpleDataset([1, 2]), g.ArrayDataset([3, 4], [5, 6]))),
    "slice": lambda g: g.ArrayDataset([1, 2, 3], [4, 5, 6])[1:],
    "no arrays": lambda g: isinstance(outcome(g.ArrayDataset), str),
    # A list is one argument of a transform, a tuple and a named tuple are several.
    "fields": lambda g: items(g.ArrayDataset([1, 2], [3, 4]).transform(lambda *fields: fields)),
    "list": lambda g: items(g.SimpleDataset([[1, 2]]).transform(sum)),
    "first of a list": lambda g: items(g.SimpleDataset([[1, 2]]).transform_first(sum)),
    "named tuple": lambda g: items(g.SimpleDataset([Pair(1, 2)]).transform(lambda a, b: a - b)),
}


@pytest.mark.parametrize("kind", CALLS)
def test_the_datasets_of_both_agree(kind):
    assert CALLS[kind](OURS) == CALLS[kind](GLUON)


@pytest.mark.parametrize("numpy_like", [False, True])
def test_an_array_dataset_of_ndarrays(gdata, numpy_like):
    """Arrays with one axis are labels, which come as NumPy's numbers."""
    with mx.util.np_shape(numpy_like), mx.util.np_array(numpy_like):
        arange, kind = (mx.np.arange, mx.np.ndarray) if numpy_like else (mx.nd.arange, mx.nd.NDArray)
        images, labels = arange(6).reshape((3, 2)), arange(3)
        image, label = gdata.ArrayDataset(images, labels)[2]
        assert (type(image), image.asnumpy().tolist()) == (kind, [4, 5])
        assert (type(label), label) == (np.float32, 2)
        assert type(gdata.ArrayDataset(labels)[1]) is np.float32


def test_an_array_dataset_loads(gdata, way):
    dataset = gdata.ArrayDataset(mx.nd.arange(8).reshape((4, 2)), mx.nd.arange(4))
    assert epoch(gdata.DataLoader(dataset, 2, **WAYS[way])) == [
        [[[0, 1], [2, 3]], [0, 1]],
        [[[4, 5], [6, 7]], [2, 3]],
    ]


def made(side, source, steps):
    """A dataset after some steps: its items, read twice, and how often each function had run before and after."""
    dataset = side.SimpleDataset(source) if isinstance(source[0], int) else side.ArrayDataset(*source)
    functions = []
    for name, *arguments in steps:
        if name in ("transform", "transform_first", "filter"):
            functions.append(Counted(name))
            arguments = [functions[-1], *arguments]
        if name == "sample":
            arguments = [side.SequentialSampler(len(dataset) // 2, 0)]
        dataset = getattr(dataset, name)(*arguments)
        assert isinstance(dataset, mx.gluon.data.Dataset)
        assert isinstance(dataset, side.Dataset)
    calls = [function.calls for function in functions]
    return [items(dataset), items(dataset)], calls, [function.calls for function in functions]


STEPS = st.one_of(
    st.tuples(st.sampled_from(["transform", "transform_first"]), st.booleans()),
    st.tuples(st.just("transform")),
    st.tuples(st.just("filter")),
    st.tuples(st.just("sample")),
    st.tuples(st.just("take"), st.one_of(st.none(), st.integers(0, 30))),
    st.integers(1, 9).flatmap(lambda n: st.tuples(st.just("shard"), st.just(n), st.integers(0, n - 1))),
)
NUMBERS = [list(range(length)) for length in (1, 2, 7, 25)]


@settings(max_examples=200)
@given(st.sampled_from([*NUMBERS, *([numbers, numbers[::-1]] for numbers in NUMBERS)]), st.lists(STEPS, max_size=5))
def test_chains_of_methods_agree(source, steps):
    """Also when functions run: lazy ones at each read, eager ones and filters once."""
    assert made(OURS, source, steps) == made(GLUON, source, steps)


def test_sample_draws_its_indices_once(gdata):
    dataset = gdata.SimpleDataset(list(range(10, 20)))
    assert items(dataset.sample(gdata.SequentialSampler(3, 4))) == [14, 15, 16]
    shuffled = dataset.sample(gdata.RandomSampler(10))
    assert sorted(items(shuffled)) == list(range(10, 20))
    assert items(shuffled) == items(shuffled)
    with pytest.raises(TypeError):
        dataset.sample(5)


def test_datasets_can_be_pickled(gdata):
    pairs = gdata.ArrayDataset(np.arange(4), [5, 6, 7, 8])
    views = [pairs, gdata.SimpleDataset([1, 2]), pairs.take(2), pairs.shard(2, 1), pairs.filter(sum)]
    views += [pairs.transform(max), pairs.transform_first(ten_times), pairs.transform_first(ten_times, False)]
    for dataset in views:
        assert lists(items(pickle.loads(pickle.dumps(dataset)))) == lists(items(dataset))


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
