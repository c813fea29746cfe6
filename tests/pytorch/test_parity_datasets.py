"""torch's own datasets, bulk reads by `__getitems__`, and loaders without batches."""

import numpy as np
import pytest

from .sides import OURS, Numbers, compared, epochs, same, samples, torch

data = torch.utils.data


class Bulk(Numbers):
    """Numbers that are read by one call for a batch, as a list of samples or as a finished batch."""

    def __init__(self, length=11, finished=False):
        super().__init__(length)
        self.finished = finished

    def __getitems__(self, indices):
        assert isinstance(indices, list)
        if self.finished:
            return {"x": torch.tensor(indices) * 2.0, "n": len(indices)}
        return [(self[index][0] + 100, index) for index in indices]


def halves():
    return [Numbers(5), Bulk(6)]


def tensors():
    return data.TensorDataset(torch.arange(24).reshape(12, 2), torch.arange(12.0) / 2, torch.arange(12) % 2 == 0)


DATASETS = {
    "list": lambda: list(range(7)),
    "tuple": lambda: tuple("abcdefg"),
    "numpy": lambda: np.arange(14.0).reshape(7, 2),
    "tensor": lambda: torch.arange(14).reshape(7, 2),
    "dict": lambda: {i: -i for i in range(7)},
    "tensors": lambda: data.TensorDataset(torch.arange(14).reshape(7, 2), torch.arange(7.0)),
    "tensors-bfloat16": lambda: data.TensorDataset(torch.arange(14.0, dtype=torch.bfloat16).reshape(7, 2)),
    "tensors-reversed": lambda: data.TensorDataset(
        torch.arange(14).reshape(2, 7).T, torch.arange(7)[::2].repeat(2)[:7]
    ),
    "tensors-subset": lambda: data.Subset(tensors(), [7, -2, 2, 9, 0, 0]),
    "tensors-subset-of-subset": lambda: data.Subset(data.Subset(tensors(), range(1, 11)), torch.tensor([3, 5, 0])),
    "tensors-split": lambda: data.random_split(tensors(), [0.7, 0.3], torch.Generator().manual_seed(1))[0],
    "subset": lambda: data.Subset(Numbers(), [7, 2, 2, 9, 0]),
    "subset-bulk": lambda: data.Subset(Bulk(), [7, 2, 2, 9, 0]),
    "subset-of-subset": lambda: data.Subset(data.Subset(Bulk(), range(1, 11)), [3, 5, 0]),
    "concat": lambda: data.ConcatDataset(halves()),
    "add": lambda: Numbers(3) + Numbers(4),
    "stack": lambda: data.StackDataset(Numbers(7), Bulk(7), list(range(7))),
    "stack-names": lambda: data.StackDataset(x=Numbers(7), y=torch.arange(7)),
    "split": lambda: data.random_split(Numbers(), [0.7, 0.3])[0],
    "split-generator": lambda: data.random_split(Bulk(), [4, 7], torch.Generator().manual_seed(1))[1],
    "bulk": lambda: Bulk(),
}


@pytest.mark.parametrize("kind", DATASETS)
@pytest.mark.parametrize("size", [3, None])
@compared
def test_datasets(L, size, kind):
    return epochs(L(DATASETS[kind](), size, shuffle=True))


@pytest.mark.parametrize(
    "kind", ["tensor", "tensors", "tensors-split", "subset-bulk", "concat", "stack", "split", "bulk"]
)
@compared
def test_datasets_with_workers(L, kind):
    return epochs(L(DATASETS[kind](), 3, shuffle=True, num_workers=1))


KEYS = [{1, 2}, (3, 0), range(2), torch.tensor([2, 1]), *([key, key] for key in (0, slice(2, 5), [1, 2], True))]


@pytest.mark.parametrize("keys", [*KEYS, [torch.tensor(3), 3]], ids=str)
@compared
def test_tensors_and_the_keys_of_any_batch_sampler(L, keys, workers):
    return epochs(L(tensors(), batch_sampler=[keys, keys, [1, 2]], num_workers=workers))


class Slices(data.Dataset):
    """A dataset that is asked for a whole batch by one key."""

    def __getitem__(self, key):
        return np.asarray(key) * 2, {"key": key}


class Without(Numbers):
    __getitems__ = None


def keep(batch):
    return batch


def labels(batch):
    return [label for _, label in batch]


ROWS, SEVEN = torch.arange(20).reshape(10, 2), range(7)
CALLS = {
    "tensors that need a gradient": lambda: (
        data.TensorDataset(torch.arange(6.0, requires_grad=True), torch.arange(6)),
        {"batch_size": 2},
    ),
    "tensors and collate_fn": lambda: (tensors(), {"batch_size": 3, "collate_fn": keep}),
    "tensors, one by one": lambda: (tensors(), {"batch_size": None}),
    "finished batch": lambda: (Bulk(finished=True), {"batch_size": 3, "collate_fn": keep, "shuffle": True}),
    "bulk and collate_fn": lambda: (Bulk(), {"batch_size": 3, "collate_fn": labels}),
    "bulk, one by one": lambda: (Bulk(), {"batch_size": None}),
    "no bulk": lambda: (Without(), {"batch_size": 3}),
    "one by one and collate_fn": lambda: (Numbers(), {"batch_size": None, "collate_fn": keep}),
    "lists as keys": lambda: (Slices(), {"batch_size": None, "sampler": [[1, 2], [3]]}),
    "tuples as keys": lambda: (Slices(), {"batch_size": None, "sampler": [(1, 2), (3,)]}),
    "slices as keys": lambda: (torch.arange(20), {"batch_size": None, "sampler": [slice(1, 2)]}),
    "batches as keys": lambda: (
        ROWS,
        {"batch_size": None, "sampler": data.BatchSampler(data.SequentialSampler(SEVEN), 3, False)},
    ),
    "random batches as keys": lambda: (
        ROWS,
        {"batch_size": None, "sampler": data.BatchSampler(data.RandomSampler(SEVEN), 3, True)},
    ),
}


@pytest.mark.parametrize("kind", CALLS)
def test_bulk_reads_and_loaders_without_batches(kind, workers):
    if kind == "tensors that need a gradient" and workers:
        pytest.skip("torch cannot send them")
    dataset, arguments = CALLS[kind]()
    same(lambda L: epochs(L(dataset, num_workers=workers, **arguments)))


@compared
def test_workers_see_the_dataset_as_it_is_at_each_epoch(L, workers):
    dataset = [1, 2, 3, 4]
    loader, seen = L(dataset, 2, num_workers=workers), []
    for _ in range(3):
        seen.append(samples(loader))
        dataset[0] += 10
        dataset.append(5)
    return seen, len(loader)


@compared
def test_persistent_workers_see_the_dataset_as_it_was_at_the_first_epoch(L):
    dataset = [1, 2, 3, 4]
    loader = L(dataset, 2, num_workers=2, persistent_workers=True)
    first = samples(loader)
    dataset[0] += 10
    assert samples(loader) == first
    return first


@pytest.mark.parametrize("kind", ["tensors", "subset"])
@pytest.mark.parametrize("where", ["in the loop", "in a worker"])
def test_changes_of_tensors_and_indices_are_seen_by_the_next_batch(kind, where):
    def change(dataset):
        if kind == "subset":
            dataset.indices[:] = [7, 6, 5, 4]
        else:
            dataset.tensors = (torch.arange(100, 104),)

    def pipeline(L):
        dataset = data.TensorDataset(torch.arange(8 if kind == "subset" else 4))
        dataset = data.Subset(dataset, [0, 1, 2, 3]) if kind == "subset" else dataset
        if where == "in a worker":
            loader = L(dataset, 2, num_workers=1, worker_init_fn=lambda _: change(data.get_worker_info().dataset))
            return [batch.tolist() for (batch,) in loader]
        seen = []
        for (batch,) in L(dataset, 2):
            seen.append(batch.tolist())
            change(dataset)
        return seen

    same(pipeline)


def test_an_empty_batch_of_tensors_is_an_error_as_in_torch():
    same(lambda L: list(L(data.TensorDataset(torch.arange(4)), batch_sampler=[[0, 1], []])), raises=IndexError)


@pytest.mark.parametrize("factor", [0, 1.5])
def test_a_wrong_prefetch_factor_is_an_error(factor):
    with pytest.raises(ValueError, match=f"prefetch_factor={factor}: must be an int >= 1"):
        list(OURS(range(2), num_workers=1, prefetch_factor=factor))
