"""Datasets whose samples lie in tensors of torch are read in bulk, with one copy for each batch and tensor."""

import numpy as np
import pytest

from gluonloader import ArrayDataset, DataLoader, StackDataset, Subset
from gluonloader.batchify import default_batchify

torch = pytest.importorskip("torch")

TENSORS = {
    "floats": lambda: torch.arange(24.0).reshape(6, 2, 2),
    "ints": lambda: torch.arange(6),
    "bools": lambda: torch.arange(6) % 2 == 0,
    "bfloat16": lambda: torch.arange(6.0).to(torch.bfloat16),
    "columns": lambda: torch.arange(12.0).reshape(2, 6).T,
    "conjugated": lambda: torch.arange(6.0).to(torch.complex64).conj(),
    "every second": lambda: torch.arange(12)[::2],
}
ORDER = [5, 0, -1, 3]


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("workers", [0, 1])
def test_batches_are_those_of_single_samples(name, workers):
    tensor = TENSORS[name]()
    dataset = ArrayDataset(tensor, list(range(6)))
    with DataLoader(dataset, 4, sampler=ORDER, num_workers=workers) as loader:
        (batch,) = loader
    expected = default_batchify([(tensor[i], i % 6) for i in ORDER])
    assert type(batch[0]) is torch.Tensor
    assert batch[0].dtype == tensor.dtype
    assert torch.equal(batch[0], expected[0].resolve_conj())
    assert batch[1].tolist() == expected[1].tolist()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_tensor_dataset_of_torch(workers):
    tensors = torch.arange(12.0).reshape(6, 2), torch.arange(6)
    dataset = torch.utils.data.TensorDataset(*tensors)
    with DataLoader(dataset, 4, sampler=ORDER, num_workers=workers) as loader:
        for batch in loader:
            assert type(batch) is tuple
            assert all(torch.equal(one, other[ORDER]) for one, other in zip(batch, tensors, strict=True))
        if not workers:
            dataset.tensors = torch.zeros(6, 2), torch.ones(6)
            assert [part.unique().item() for part in next(iter(loader))] == [0, 1]


def test_a_batch_function_of_the_user_gets_tensors():
    dataset = StackDataset(x=torch.arange(6.0), name=list("abcdef"))
    with DataLoader(dataset, 2, sampler=[4, 1], batchify_fn=list) as loader:
        assert list(loader) == [[{"x": torch.tensor(4.0), "name": "e"}, {"x": torch.tensor(1.0), "name": "b"}]]


def test_a_batch_is_not_part_of_the_dataset():
    tensor = torch.arange(6.0)
    with DataLoader(Subset(ArrayDataset(tensor), range(6)), 6) as loader:
        (batch,) = loader
    batch += 1
    assert tensor.tolist() == list(range(6))


def test_tensors_that_numpy_cannot_view_are_read_one_by_one():
    tensor = torch.arange(6.0, requires_grad=True)
    with DataLoader(ArrayDataset(tensor, np.arange(6)), 2, batchify_fn=list) as loader:
        assert [sample[0].item() for sample in next(iter(loader))] == [0, 1]


def test_an_index_that_is_too_large_is_named():
    dataset = torch.utils.data.TensorDataset(torch.arange(3))
    with DataLoader(dataset, 2, sampler=[0, 7]) as loader, pytest.raises(IndexError, match="index 7 is out of range"):
        list(loader)


def test_a_batch_function_of_the_user_gets_a_list_of_the_samples_of_a_tensor_dataset():
    dataset = torch.utils.data.TensorDataset(torch.arange(4))
    with DataLoader(dataset, 2, batchify_fn=lambda samples: type(samples).__name__) as loader:
        assert list(loader) == ["list", "list"]
