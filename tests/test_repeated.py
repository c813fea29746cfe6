"""`RepeatedBatches`: copies of the first batches, again and again."""

import copy
import pickle
from collections import namedtuple
from itertools import islice

import numpy as np
import pytest
from conftest import FORK, load_or_skip

from gluonloader import ArrayDataset, DataLoader, RepeatedBatches

Point = namedtuple("Point", "x name")


class Counted:
    """An iterable of batches without a length, which counts how often it is read."""

    def __init__(self, batches):
        self.batches, self.read, self.rate = batches, 0, 7

    def __iter__(self):
        for batch in self.batches:
            self.read += 1
            yield batch


def test_an_epoch_has_as_many_batches_as_the_loader():
    loader = RepeatedBatches(DataLoader(range(10), 2), batches=2)
    assert len(loader) == 5
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [0, 1], [2, 3], [0, 1]]


def test_without_a_length_it_never_ends():
    source = Counted([[1], [2], [3]])
    loader = RepeatedBatches(source, batches=2)
    assert source.read == 0
    assert list(islice(loader, 5)) == [[1], [2], [1], [2], [1]]
    assert source.read == 2
    with pytest.raises(TypeError):
        len(loader)


def test_fewer_batches_than_asked_for():
    assert list(islice(RepeatedBatches(Counted([[1]]), batches=5), 3)) == [[1], [1], [1]]


def test_no_batch_is_an_error_and_is_tried_again():
    source = Counted([])
    loader = RepeatedBatches(source)
    with pytest.raises(ValueError, match="Counted.* yields no batch"):
        next(iter(loader))
    source.batches = [[4]]
    assert next(iter(loader)) == [4]


@pytest.mark.parametrize("shape", [(2, 3), (300, 100)])
def test_batches_are_copies(shape):
    objects = np.array([[1], None], object)
    batch = {"x": Point(np.zeros(shape), ["a"]), "y": np.zeros(shape, order="F")[:, ::2], "z": objects}
    loader = RepeatedBatches([batch], batches=1)
    first = next(iter(loader))
    first["x"].x[:] = 1
    first["x"].name.append("b")
    first["y"][:] = 1
    first["z"][0].append(2)
    batch["x"].x[:] = 2
    second = next(iter(loader))
    assert isinstance(second["x"], Point)
    assert (second["x"].x.sum(), second["x"].name, second["y"].sum()) == (0, ["a"], 0)
    assert second["z"].tolist() == [[1], None]
    assert first["x"].x.min() == 1


def test_kept_batches_stay_as_they_are():
    rows = np.arange(5 * 20_000).reshape(5, 20_000)
    kept = list(RepeatedBatches(DataLoader(rows, 1), batches=5))
    np.testing.assert_array_equal(np.concatenate(kept), rows)


def test_it_holds_no_shared_memory_of_the_loader():
    with FORK.loader(ArrayDataset(np.zeros((40, 9000))), 10) as loader:
        batch = next(iter(RepeatedBatches(loader, batches=2)))
        assert batch.shape == (10, 9000)
        assert loader.stats().memory.lent == 0


def test_other_attributes_are_those_of_the_loader():
    source = Counted([[1]])
    loader = RepeatedBatches(source)
    assert loader.rate == 7
    with pytest.raises(AttributeError):
        loader.absent
    with pytest.raises(AttributeError):
        loader._private
    assert repr(loader) == "RepeatedBatches(Counted(), batches=4)"


@pytest.mark.parametrize("make", [copy.copy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_copies_and_pickles_yield_the_same_batches(make):
    loader = RepeatedBatches(DataLoader(range(10), 2, True, seed=1), batches=2)
    expected = [batch.tolist() for batch in loader]
    for again in (make(loader), make(RepeatedBatches(DataLoader(range(10), 2, True, seed=1), batches=2))):
        assert (len(again), again.batch_size, repr(again)) == (5, 2, repr(loader))
        assert len([batch.tolist() for batch in again]) == 5
    assert [batch.tolist() for batch in again] == expected


def test_wrong_arguments():
    with pytest.raises(ValueError, match="batches=0: must be an int >= 1"):
        RepeatedBatches([], 0)


def test_tensors():
    torch = load_or_skip("torch")
    parameter = torch.ones(2, requires_grad=True)
    loader = RepeatedBatches([(torch.zeros(20_000), torch.ones(3, dtype=torch.bfloat16), parameter)], batches=1)
    first = next(iter(loader))
    for tensor in first:
        tensor.detach().add_(5)
    zeros, half, gradient = next(iter(loader))
    assert (zeros.sum().item(), half.dtype, half.sum().item()) == (0, torch.bfloat16, 3)
    assert gradient.requires_grad
    assert parameter.tolist() == gradient.tolist() == [1, 1]


@pytest.mark.parametrize("framework", ["jax", "mxnet"])
def test_arrays_of_other_frameworks(framework):
    load_or_skip(framework)
    batch = next(iter(RepeatedBatches(DataLoader(np.arange(4.0, dtype=np.float32), 4, output=framework))))
    assert type(batch).__module__.startswith(framework)
    assert np.asarray(batch.asnumpy() if framework == "mxnet" else batch).tolist() == [0, 1, 2, 3]
