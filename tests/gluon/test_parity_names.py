"""Attributes that Gluon does not document but published code reads, and methods that the tests of Gluon 2.0 call."""

import numpy as np
import pytest

import gluonloader.mxnet

from .sides import OURS, WAYS, epoch, lists, mx


class Plus:
    def __init__(self, number):
        self.number = number

    def __call__(self, sample):
        return sample + self.number


@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
def test_names_of_the_loader(gdata, way, last_batch):
    dataset = gdata.SimpleDataset(list(range(5)))
    loader = gdata.DataLoader(dataset, 2, last_batch=last_batch, **WAYS[way])
    workers = WAYS[way].get("num_workers", 0)
    assert loader._dataset is dataset
    assert (loader._num_workers, loader._prefetch) == (workers, 2 * workers)
    assert (loader._pin_memory, loader._pin_device_id, loader._timeout) == (False, 0, 120)
    assert loader._thread_pool == (way == "threads")
    assert lists(loader._batchify_fn([1, 2])) == [1, 2]
    batches = loader._batch_sampler
    assert isinstance(batches, gdata.BatchSampler)
    assert (batches._batch_size, batches._last_batch, list(batches._sampler)) == (2, last_batch, [0, 1, 2, 3, 4])
    assert len(loader) == len(batches)
    epoch(loader)
    assert batches._prev == ([4] if last_batch == "rollover" else [])


def test_arguments_are_kept_as_they_were_passed(gdata):
    def batchify(samples):
        return samples

    batches = [[1, 0], [2]]
    loader = gdata.DataLoader(range(3), batch_sampler=batches, batchify_fn=batchify, num_workers=1, prefetch=7)
    assert loader._batchify_fn is batchify
    assert loader._batch_sampler is batches
    assert loader._prefetch == 7


def test_attributes_that_gluons_loader_does_not_have(way):
    dataset = OURS.SimpleDataset(list(range(5)))
    loader = OURS.DataLoader(dataset, 2, last_batch="discard", **WAYS[way])
    assert loader.dataset is dataset
    assert (loader.batch_size, loader.drop_last, loader.timeout, loader.pin_memory) == (2, True, 120, False)
    assert (loader.num_workers, loader.persistent_workers) == (loader._num_workers, loader._num_workers > 0)
    assert loader.batchify_fn is loader.collate_fn is loader._batchify_fn
    assert isinstance(loader.batch_sampler, OURS.BatchSampler)
    assert list(loader.sampler) == [0, 1, 2, 3, 4]
    assert loader._worker_pool is None


def test_a_subclass_may_use_these_names_for_attributes():
    class Labelled(OURS.DataLoader):
        def __init__(self, dataset, batch_size):
            self.dataset, self.batch_size, self.sampler = "own", [batch_size], None
            super().__init__(dataset, batch_size)
            self.num_workers = 4

    loader = Labelled([1, 2, 3], 2)
    assert (loader.dataset, loader.batch_size, loader.sampler, loader.num_workers) == ("own", [2], None, 4)
    assert [batch.asnumpy().tolist() for batch in loader] == [[1, 2], [3]]


def test_a_sum_of_datasets_is_a_dataset_of_gluon():
    joined = OURS.SimpleDataset([1, 2]) + OURS.ArrayDataset([3]) + [4]
    assert isinstance(joined, OURS.Dataset)
    assert isinstance(joined, mx.gluon.data.Dataset)
    assert list(joined.transform(Plus(1))) == [2, 3, 4, 5]


def test_names_of_datasets(gdata):
    inputs, labels = mx.nd.arange(4).reshape((2, 2)), mx.nd.array([5, 6])
    arrays = gdata.ArrayDataset(inputs, labels)
    assert arrays._data[0] is inputs
    assert isinstance(arrays._data[1], np.ndarray)
    plain, plus = gdata.SimpleDataset([1, 2]), Plus(1)
    transformed = plain.transform(plus)
    assert plain._data == [1, 2]
    assert transformed._data is plain
    assert transformed._fn is plus


def test_a_subclass_of_a_dataset_may_change_its_data(gdata, way):
    class Tenfold(gdata.SimpleDataset):
        def __init__(self, data):
            super().__init__(data)
            self._data = self._data * 10

    class Field(gdata.ArrayDataset):
        def __init__(self, *arrays):
            super().__init__(*arrays)
            self._data[0] = [-number for number in self._data[0]]

        def __len__(self):
            return self._length

    assert epoch(gdata.DataLoader(Tenfold(np.arange(3)), 2, **WAYS[way])) == [[0, 10], [20]]
    fields = gdata.DataLoader(Field(np.arange(3), np.arange(3)), 2, **WAYS[way])
    assert epoch(fields) == [[[0, -1], [0, 1]], [[-2], [2]]]


def test_a_subclass_of_a_batch_sampler_may_set_its_attributes(gdata, way):
    class Batches(gdata.BatchSampler):
        def __init__(self, sampler, batch_size):
            self._sampler, self._batch_size, self._last_batch, self._prev = sampler, batch_size, "rollover", [4]

    batches = Batches(gdata.SequentialSampler(4), 2)
    loader = gdata.DataLoader(range(5), batch_sampler=batches, **WAYS[way])
    assert (len(batches), epoch(loader), batches._prev) == (2, [[4, 0], [1, 2]], [3])


def test_a_subclass_of_the_loader_may_set_another_batch_sampler(gdata, way):
    class Loader(gdata.DataLoader):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self._batch_sampler = [[4, 3, 2], [1]]

    loader = Loader(range(5), 2, **WAYS[way])
    assert (len(loader), epoch(loader), loader._batch_sampler) == (2, [[4, 3, 2], [1]], [[4, 3, 2], [1]])


def test_a_subclass_of_the_loader_may_make_its_own_batches(gdata):
    class Loader(gdata.DataLoader):
        def __init__(self, dataset, batch_sampler):
            self._dataset, self._batch_sampler, self._worker_pool = dataset, batch_sampler, None

        def __iter__(self):
            for batch in self._batch_sampler:
                yield [self._dataset[index] for index in batch]

    assert list(Loader([10, 11, 12], [[2, 1], [0]])) == [[12, 11], [10]]


# -- DataLoaderIter ---------------------------------------------------------------------------------------------------


class Counting:
    """A sampler that counts its passes."""

    def __init__(self):
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        return iter([0, 1, 2, 3])

    def __len__(self):
        return 4


def loader_and_sampler(way):
    sampler = Counting()
    data = OURS.ArrayDataset(np.arange(8, dtype=np.float32).reshape(4, 2), np.arange(4, dtype=np.float32))
    return OURS.DataLoader(data, 3, sampler=sampler, **WAYS[way]), sampler


@pytest.mark.parametrize("make", [mx.contrib.io.DataLoaderIter, gluonloader.mxnet.DataLoaderIter])
def test_the_batches_of_a_data_loader_iter(make, way):
    loader, _ = loader_and_sampler(way)
    batches = make(loader, data_name="x", label_name="y", dtype="float16")
    assert [(d.name, d.shape, d.dtype) for d in batches.provide_data] == [("x", (3, 2), "float16")]
    assert [(d.name, d.shape, d.dtype) for d in batches.provide_label] == [("y", (3,), "float16")]
    for _ in range(2):
        read = [(batch.data[0].asnumpy(), batch.label[0].asnumpy()[: 3 - batch.pad], batch.pad) for batch in batches]
        assert [label.tolist() for _, label, _ in read] == [[0, 1, 2], [3]]
        assert [pad for *_, pad in read] == [0, 2]
        assert read[0][0].tolist() == [[0, 1], [2, 3], [4, 5]]
        batches.reset()


def test_a_data_loader_iter_reads_every_epoch_that_it_starts(way):
    loader, sampler = loader_and_sampler(way)
    batches = gluonloader.mxnet.DataLoaderIter(loader)
    assert sampler.passes == 1
    batches.reset()  # as Module.score does before the first batch
    for passes in (1, 2, 3):
        assert [batch.pad for batch in batches] == [0, 2]
        assert sampler.passes == passes
        batches.reset()  # as Module.fit does after each epoch
    assert sampler.passes == 3
    next(batches)
    batches.reset()  # in the middle
    assert [batch.pad for batch in batches] == [0, 2]
    assert sampler.passes == 5


# -- Gluon 2.0 --------------------------------------------------------------------------------------------------------


def test_the_handles_of_datasets_and_batchify_functions_are_themselves():
    data = OURS.SimpleDataset(list(range(10))).transform(Plus(1)).filter(lambda number: number % 5 == 0)
    assert list(data.__mx_handle__()) == [5, 10]
    function = OURS.batchify.Group(OURS.batchify.Stack(), OURS.batchify.Pad())
    assert lists(function.__mx_handle__()([(1, [2]), (3, [4, 5])])) == [[1, 3], [[2, 0], [4, 5]]]
    assert lists(OURS.batchify.Stack().__mx_handle__()([1, 2])) == [1, 2]


def test_the_import_error_for_mxnet_2_says_what_to_install(monkeypatch):
    from gluonloader.frameworks.mxnet import MXNet

    monkeypatch.setattr(mx, "__version__", "2.0.0b1")
    with pytest.raises(ImportError, match=r'^MXNet 2.0.0b1 is installed, .*; run pip install "mxnet==1.9.1"$'):
        MXNet(numpy_like=None)
