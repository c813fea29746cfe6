"""The attributes of `DataLoader` with which other code reads its arguments."""

import copy
import pickle

import numpy as np
import pytest

from gluonloader import (
    ArrayDataset,
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_batchify,
)
from gluonloader.errors import LoaderClosed
from gluonloader.limits import available_cores

NUMBERS = list(range(10))
PROPERTIES = [
    "batch_sampler", "batch_size", "batchify_fn", "collate_fn", "dataset", "drop_last", "num_workers",
    "persistent_workers", "pin_memory", "prefetch", "sampler", "timeout",
]  # fmt: skip


def total(samples):
    return sum(samples)


def test_a_loader_without_further_arguments():
    loader = DataLoader(NUMBERS, 4)
    assert loader.dataset is NUMBERS
    assert len(loader.dataset) == 10
    assert (loader.batch_size, loader.drop_last, loader.pin_memory, loader.timeout) == (4, False, False, 120)
    assert (loader.num_workers, loader.persistent_workers, loader.prefetch) == (0, False, 0)
    assert loader.batchify_fn is loader.collate_fn is default_batchify
    assert isinstance(loader.sampler, SequentialSampler)
    assert isinstance(loader.batch_sampler, BatchSampler)
    assert list(loader.batch_sampler) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_the_arguments_that_were_passed():
    arguments = {"batchify_fn": total, "last_batch": "discard", "timeout": None, "prefetch": 3, "thread_pool": True}
    with DataLoader(NUMBERS, 4, shuffle=True, num_workers=2, **arguments) as loader:
        assert loader.collate_fn is total
        assert (loader.drop_last, loader.timeout, loader.prefetch) == (True, None, 3)
        assert (loader.num_workers, loader.persistent_workers) == (2, True)
        assert isinstance(loader.sampler, RandomSampler)
        assert len(loader.sampler) == 10
    assert DataLoader(NUMBERS, 4, last_batch="rollover").drop_last is False


def test_samplers_of_the_user():
    order, batches = [3, 1, 2], [[0, 1], [2]]
    assert DataLoader(NUMBERS, 2, sampler=order).sampler is order
    loader = DataLoader(NUMBERS, batch_sampler=batches)
    assert loader.batch_sampler is batches
    assert (loader.sampler, loader.batch_size, loader.drop_last) == (None, None, False)
    inner = BatchSampler(order, 2, "discard")
    assert DataLoader(NUMBERS, batch_sampler=inner).sampler is order


def test_an_iterable_dataset_has_no_samplers():
    dataset = IterableDataset(lambda: iter(NUMBERS))
    loader = DataLoader(dataset, 4)
    assert loader.dataset is dataset
    assert (loader.batch_size, loader.sampler, loader.batch_sampler) == (4, None, None)
    whole = DataLoader(IterableDataset([np.zeros(2)]))
    assert whole.batch_size is None
    assert whole.collate_fn([5]) == 5  # the only sample is the batch


def test_numbers_that_the_loader_chooses():
    with DataLoader(ArrayDataset(NUMBERS), 4, num_workers="auto") as loader:
        assert loader.num_workers == available_cores()
        assert loader.stats().num_workers == loader.prefetch == 0  # the samples are small rows in memory
    with DataLoader(NUMBERS, 4, num_workers=2, thread_pool=True) as loader:
        assert loader.prefetch == 4
    with DataLoader(NUMBERS, 4, num_workers=2) as loader:
        assert loader.prefetch == 4
        next(iter(loader))
        assert loader.prefetch == 8  # the batches are small


def test_copies_and_closed_loaders_can_be_read():
    with DataLoader(NUMBERS, 4, num_workers=2, batchify_fn=total, thread_pool=True) as loader:
        others = [loader, copy.copy(loader), pickle.loads(pickle.dumps(loader))]
    others.append(pickle.loads(pickle.dumps(DataLoader(NUMBERS, 4, batchify_fn=total))))
    for other in others:
        assert (other.dataset, other.batch_size, other.batchify_fn, other.timeout) == (NUMBERS, 4, total, 120)
        assert list(other.batch_sampler) == list(loader.batch_sampler)
        assert (other.num_workers, other.prefetch) in [(2, 4), (0, 0)]
    with pytest.raises(LoaderClosed):
        iter(loader)


def test_a_loaded_position_does_not_change_what_a_loader_is():
    loader = DataLoader(NUMBERS, 4, shuffle=True)
    other = DataLoader(NUMBERS, 4, shuffle=True)
    next(iter(loader))
    before = {name: getattr(other, name) for name in PROPERTIES}
    other.load_state_dict(loader.state_dict())
    assert {name: getattr(other, name) for name in PROPERTIES} == before


@pytest.mark.parametrize("name", PROPERTIES)
def test_an_attribute_that_is_set_says_what_to_do(name):
    loader = DataLoader(NUMBERS, 4)
    before = getattr(loader, name)
    with pytest.raises(
        AttributeError, match=f"^{name} of a DataLoader cannot be changed; make a new DataLoader with another {name}"
    ):
        setattr(loader, name, 3)
    assert getattr(loader, name) == before
    loader.note = 3  # other names are free
    assert loader.note == 3
