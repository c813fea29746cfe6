"""`Dataset[int]`, `IterableDataset[str]` and `DataLoader[...]` as classes and as base classes; types: typed_use.py."""

import copy
import pickle
from typing import TypeVar

import pytest
from conftest import load_mxnet

from gluonloader import DataLoader, Dataset, IterableDataset
from gluonloader.types import LoaderIterator

Value = TypeVar("Value")


class Squares(Dataset[int]):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index**2


class Same(Dataset[Value]):
    """Generic itself."""

    def __init__(self, value):
        self.value = value

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.value


class Words(IterableDataset[str]):
    def __init__(self):
        pass

    def __iter__(self):
        return iter(["a", "b", "c"])


class Numbers(DataLoader[int]):
    pass


def again(value):
    return pickle.loads(pickle.dumps(value))


def test_a_dataset_of_a_type():
    for dataset in (Squares(), again(Squares()), copy.copy(Squares())):
        assert isinstance(dataset, Dataset)
        assert list(dataset) == [0, 1, 4, 9]
        assert list(dataset.filter(bool).take(2)) == [1, 4]
    for dataset in (Same(5), Same[int](5), again(Same[int](5))):
        assert type(dataset) is Same
        assert list(dataset) == [5, 5]


def test_an_iterable_dataset_of_a_type():
    for dataset in (Words(), again(Words()), IterableDataset[str](["a", "b", "c"])):
        assert isinstance(dataset, IterableDataset)
        assert list(dataset.transform(str.upper)) == ["A", "B", "C"]
        assert list(DataLoader(dataset, 2)) == [["a", "b"], ["c"]]
    assert len(again(IterableDataset[str](["a", "b", "c"]))) == 3


@pytest.mark.parametrize(
    ("make", "workers"),
    [
        (DataLoader[int], {}),
        (Numbers, {"num_workers": 2}),
        pytest.param(Numbers, {"num_workers": 1, "start_method": "spawn"}, marks=pytest.mark.spawn),
    ],
)
def test_a_loader_of_a_type(make, workers):
    with make(Squares(), 3, batchify_fn=sum, **workers) as loader:
        assert isinstance(loader, DataLoader)
        assert isinstance(iter(loader), LoaderIterator)
        assert list(loader) == [5, 9]
        if "start_method" not in workers:
            with again(loader) as other:
                assert list(other) == [5, 9]


def test_annotations_are_evaluated():
    assert LoaderIterator[int] is not None
    assert {Dataset[int]: 1}[Dataset[int]] == 1
    assert pickle.loads(pickle.dumps(DataLoader[int])) == DataLoader[int]


def test_gluons_dataset_of_a_type():
    if load_mxnet() is None:
        pytest.skip("needs MXNet")
    from mxnet.gluon.data import DataLoader as GluonsLoader
    from mxnet.gluon.data import Dataset as GluonsDataset

    from gluonloader import mxnet

    class Cubes(mxnet.Dataset[int]):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return index**3

    assert isinstance(Cubes(), GluonsDataset)
    loader = mxnet.DataLoader[int](Cubes().filter(bool), 2, batchify_fn=sum)
    assert isinstance(loader, GluonsLoader)
    assert list(loader) == [9]
