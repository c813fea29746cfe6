"""torch's own datasets, bulk reads by `__getitems__`, and loaders without batches."""

import numpy as np
import pytest

from .sides import Numbers, epoch, epochs, same, samples, torch

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
def test_datasets(kind):
    same(lambda L: epochs(L(DATASETS[kind](), 3, shuffle=True)))


@pytest.mark.parametrize(
    "kind", ["tensor", "tensors", "tensors-split", "subset-bulk", "concat", "stack", "split", "bulk"]
)
def test_datasets_with_workers(kind):
    same(lambda L: epochs(L(DATASETS[kind](), 3, shuffle=True, num_workers=2)))


@pytest.mark.parametrize("key", [0, slice(2, 5), torch.tensor(3), [1, 2], True], ids=str)
def test_tensors_and_the_keys_of_any_sampler(key, workers):
    same(lambda L: epochs(L(tensors(), batch_sampler=[[key, key], [1, 2]], num_workers=workers)))


def test_tensors_that_need_a_gradient():
    made = data.TensorDataset(torch.arange(6.0, requires_grad=True), torch.arange(6))
    same(lambda L: epochs(L(made, 2)))


def test_tensors_with_a_collate_fn(workers):
    same(lambda L: epoch(L(tensors(), 3, collate_fn=keep, num_workers=workers)))


def test_tensors_without_batches(workers):
    same(lambda L: epoch(L(tensors(), None, num_workers=workers)))


def test_bulk_reads_that_return_a_finished_batch(workers):
    same(lambda L: epochs(L(Bulk(finished=True), 3, collate_fn=keep, shuffle=True, num_workers=workers)))


def keep(batch):
    return batch


def test_bulk_reads_with_a_collate_fn(workers):
    same(lambda L: epoch(L(Bulk(), 3, collate_fn=lambda batch: [n for _, n in batch], num_workers=workers)))


def test_bulk_reads_are_not_used_without_batches(workers):
    same(lambda L: epoch(L(Bulk(), None, num_workers=workers)))


def test_a_dataset_whose_getitems_is_none():
    class Without(Numbers):
        __getitems__ = None

    same(lambda L: epoch(L(Without(), 3)))


@pytest.mark.parametrize("kind", ["list", "tensor", "tensors", "numpy", "concat"])
def test_no_batches(workers, kind):
    same(lambda L: epochs(L(DATASETS[kind](), None, shuffle=True, num_workers=workers)))


class Slices(data.Dataset):
    """A dataset that is asked for a whole batch by one key."""

    def __getitem__(self, key):
        return np.asarray(key) * 2, {"key": key}


@pytest.mark.parametrize(
    "sampler",
    [
        [[1, 2], [3]],
        [(1, 2), (3,)],
        [slice(1, 2)],
        data.BatchSampler(data.SequentialSampler(range(7)), 3, False),
        data.BatchSampler(data.RandomSampler(range(7)), 3, True),
    ],
    ids=["lists", "tuples", "slices", "sequential", "random"],
)
def test_samplers_of_lists_without_batches(workers, sampler):
    def pipeline(L):
        dataset = torch.arange(20).reshape(10, 2) if not isinstance(sampler, list) else Slices()
        if isinstance(sampler, list) and isinstance(sampler[0], slice):
            dataset = torch.arange(20)
        return epochs(L(dataset, None, sampler=sampler, num_workers=workers))

    same(pipeline)


def test_no_batches_with_a_collate_fn(workers):
    same(lambda L: epoch(L(Numbers(), None, collate_fn=lambda sample: sample[1], num_workers=workers)))
    same(lambda L: epoch(L(Numbers(), None, collate_fn=keep, num_workers=workers)))


def test_workers_see_the_dataset_as_it_is_at_each_epoch(workers):
    def pipeline(L):
        dataset = [1, 2, 3, 4]
        loader, seen = L(dataset, 2, num_workers=workers), []
        for _ in range(3):
            seen.append(samples(loader))
            dataset[0] += 10
            dataset.append(5)
        return seen, len(loader)

    same(pipeline)


def test_persistent_workers_see_the_dataset_as_it_was_at_the_first_epoch():
    def pipeline(L):
        dataset = [1, 2, 3, 4]
        loader, seen = L(dataset, 2, num_workers=2, persistent_workers=True), []
        for _ in range(3):
            seen.append(samples(loader))
            dataset[0] += 10
        return seen

    assert same(pipeline)[1][0] == same(pipeline)[1][2]


def test_without_workers_the_dataset_itself_is_read():
    class Counting(Numbers):
        reads = 0

        def __getitem__(self, index):
            self.reads += 1
            return super().__getitem__(index)

    def pipeline(L):
        dataset = Counting()
        epochs(L(dataset, 4))
        return dataset.reads

    assert same(pipeline) == 22


def test_several_loaders_of_one_dataset(workers):
    def pipeline(L):
        train, test = data.random_split(Numbers(20), [15, 5], torch.Generator().manual_seed(4))
        loaders = L(train, 4, shuffle=True, num_workers=workers), L(test, 2, num_workers=workers)
        return [[epoch(loader) for loader in loaders] for _ in range(2)]

    same(pipeline)
