"""Attributes, lengths, copies and subclasses of a loader, and the errors of wrong arguments."""

import copy
import pickle

import numpy as np
import pytest
from parity import outcome

from .sides import OURS, THEIRS, Numbers, compared, epoch, epochs, same, torch

data = torch.utils.data

NAMES = (
    "dataset batch_size drop_last num_workers pin_memory timeout prefetch_factor persistent_workers in_order "
    "pin_memory_device collate_fn worker_init_fn generator sampler batch_sampler multiprocessing_context"
).split()


class Stream(data.IterableDataset):
    def __len__(self):
        return 5

    def __iter__(self):
        return iter(range(5))


class Unsized:
    """A sampler, or a stream, without a length."""

    def __iter__(self):
        return iter([3, 1])


class UnsizedStream(Unsized, data.IterableDataset):
    pass


ARGUMENTS = {
    "none": {},
    "batch_size": {"batch_size": 4},
    "drop_last": {"batch_size": 4, "drop_last": True},
    "shuffle": {"shuffle": True},
    "sampler": {"sampler": [1, 2], "batch_size": 2},
    "batch_sampler": {"batch_sampler": [[1], [2, 3]]},
    "unbatched": {"batch_size": None},
    "unbatched-sampler": {"batch_size": None, "sampler": [[1, 2], [3]]},
    "workers": {"num_workers": 2},
    "prefetch_factor": {"num_workers": 2, "prefetch_factor": 5},
    "persistent": {"num_workers": 1, "persistent_workers": True},
    "context": {"num_workers": 1, "multiprocessing_context": "spawn"},
    "others": {"collate_fn": list, "worker_init_fn": print, "timeout": 3, "pin_memory": True, "in_order": False},
    "generator": {"generator": torch.Generator(), "shuffle": True},
    "device": {"pin_memory_device": "cuda:0"},
    "iterable": {"dataset": Stream(), "batch_size": 2, "drop_last": True},
}


def plain(value):
    """The type of a part of torch's, with what it was made with; other values as they are."""
    made_with = ("batch_size", "drop_last", "replacement", "num_samples")
    if isinstance(value, data.Sampler):
        inner = plain(value.sampler) if hasattr(value, "sampler") else None
        return type(value).__name__, [getattr(value, name, None) for name in made_with], inner
    return type(value).__name__ if type(value).__module__ != "builtins" or isinstance(value, type) else repr(value)


@pytest.mark.parametrize("kind", ARGUMENTS)
@compared
def test_attributes(L, kind):
    loader = L(**{"dataset": Numbers(), **ARGUMENTS[kind]})
    return [(name, plain(getattr(loader, name))) for name in NAMES], len(loader), loader._auto_collation


def test_attributes_are_the_objects_that_were_passed():
    dataset, sampler, generator = Numbers(), [3, 1], torch.Generator()
    loader = OURS(dataset, 2, sampler=sampler, generator=generator, collate_fn=list)
    assert loader.dataset is dataset
    assert loader.sampler is loader.batch_sampler.sampler is sampler
    assert loader.generator is generator
    assert loader.collate_fn is list


def test_a_loader_is_an_instance_of_torchs():
    assert isinstance(OURS(Numbers()), THEIRS)
    assert issubclass(OURS, THEIRS)
    assert (OURS.__name__, OURS.__qualname__) == (THEIRS.__name__, THEIRS.__qualname__)


def test_the_method_that_only_the_other_loader_has_is_named():
    loader = OURS([1, 2, 3])
    with pytest.raises(AttributeError, match=r"use gluonloader.DataLoader\(..., output='torch'\), which has seek"):
        loader.seek(0, 1)
    assert not hasattr(loader, "seek")
    with pytest.raises(AttributeError, match="'DataLoader' object has no attribute 'absent'"):
        loader.absent


def test_all_other_names_of_torch_utils_data_can_be_imported():
    import gluonloader.torch

    for name in data.__all__:
        assert name == "DataLoader" or getattr(gluonloader.torch, name) is getattr(data, name)
    with pytest.raises(AttributeError):
        _ = gluonloader.torch.no_such_name


@pytest.mark.parametrize("name", NAMES)
@compared
def test_setting_an_attribute(L, name):
    loader = L(Numbers(), 2, num_workers=1)
    value = {"num_workers": 2, "timeout": 4.0}.get(name)
    return outcome(setattr, loader, name, value), plain(getattr(loader, name))


@compared
def test_deleting_and_adding_attributes(L):
    loader = L(Numbers(), 2)
    loader.of_the_users = 3
    del loader.of_the_users
    return outcome(getattr, loader, "of_the_users")


@compared
def test_attributes_that_are_set_between_epochs_count_in_the_next_one(L):
    loader = L(Numbers(), 3, shuffle=True)
    seen = [epoch(loader)]
    loader.collate_fn = list
    seen.append(epoch(loader))
    loader.num_workers, loader.prefetch_factor = 2, 2
    seen.append(epoch(loader))
    loader.generator = torch.Generator().manual_seed(4)
    return [*seen, epoch(loader)]


WRONG = {
    "num_workers": {"num_workers": -1},
    "timeout": {"timeout": -1},
    "prefetch_factor-without-workers": {"prefetch_factor": 2},
    "prefetch_factor": {"prefetch_factor": -2, "num_workers": 1},
    "persistent_workers": {"persistent_workers": True},
    "sampler-and-shuffle": {"sampler": [1], "shuffle": True},
    "batch_sampler-and-batch_size": {"batch_sampler": [[1]], "batch_size": 2},
    "batch_sampler-and-shuffle": {"batch_sampler": [[1]], "shuffle": True},
    "batch_sampler-and-sampler": {"batch_sampler": [[1]], "sampler": [1]},
    "batch_sampler-and-drop_last": {"batch_sampler": [[1]], "drop_last": True},
    "unbatched-and-drop_last": {"batch_size": None, "drop_last": True},
    "batch_size": {"batch_size": 0},
    "batch_size-negative": {"batch_size": -3},
    "batch_size-type": {"batch_size": 2.5},
    "batch_size-bool": {"batch_size": True},
    "batch_size-text": {"batch_size": "4"},
    "drop_last": {"drop_last": 1},
    "context-without-workers": {"multiprocessing_context": "fork"},
    "context-name": {"multiprocessing_context": "fork2", "num_workers": 1},
    "context-type": {"multiprocessing_context": 3, "num_workers": 1},
    "stream-shuffle": {"dataset": Stream(), "shuffle": True},
    "stream-sampler": {"dataset": Stream(), "sampler": [1]},
    "stream-batch_sampler": {"dataset": Stream(), "batch_sampler": [[1]]},
    "empty-and-shuffle": {"dataset": [], "shuffle": True},
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_arguments_are_the_same_error(kind):
    raises = TypeError if kind == "context-type" else ValueError
    same(lambda L: iter(L(**{"dataset": Numbers(), **WRONG[kind]})), raises=raises, text=True)


def test_an_unknown_argument_is_a_type_error():
    same(lambda L: L(Numbers(), batchsize=3), raises=TypeError)


CALLS = {
    "empty dataset": lambda L, n: (epochs(L([], 3, num_workers=n)), len(L([], 3))),
    "shuffle=False for a stream": lambda L, n: epoch(L(Stream(), shuffle=False, num_workers=n)),
    "sampler without a length": lambda L, n: epochs(L(Numbers(), sampler=Unsized(), num_workers=n)),
    "length of that": lambda L, n: outcome(len, L(Numbers(), sampler=Unsized())),
    "length of a stream without": lambda L, n: outcome(len, L(UnsizedStream())),
    "length of an iterator": lambda L, n: len(iter(L(Numbers(), 4, num_workers=n))),
    "batch_size of NumPy": lambda L, n: outcome(lambda: len(L(Numbers(), np.int64(3)))),
    "pickled iterator": lambda L, n: isinstance(outcome(pickle.dumps, iter(L(Numbers(), num_workers=n))), str),
    "subscript": lambda L, n: epoch(L[int](range(3), num_workers=n)),
}


@pytest.mark.parametrize("kind", CALLS)
@compared
def test_calls(L, workers, kind):
    return CALLS[kind](L, workers)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
@compared
def test_copies_of_a_loader(L, copied, workers):
    loader = L(Numbers(), 3, shuffle=True, num_workers=workers)
    return epoch(loader), epoch(copied(loader)), epoch(loader)


@compared
def test_subclasses(L):
    class Doubled(L):
        def __init__(self, dataset, size):
            super().__init__(dataset, size, shuffle=True, num_workers=2)
            self.of_the_users = "text"

        def __iter__(self):
            return ((x * 2, label) for x, label in super().__iter__())

    loader = Doubled(Numbers(), 3)
    return epochs(loader), len(loader), loader.of_the_users


@compared
def test_a_loader_that_is_rebuilt_from_its_attributes_as_trainers_do(L):
    loader = L(Numbers(), 3, shuffle=True, num_workers=2, drop_last=True)
    sampler = data.DistributedSampler(loader.dataset, num_replicas=2, rank=1, shuffle=True)
    kept = ("num_workers", "collate_fn", "pin_memory", "drop_last", "timeout", "worker_init_fn", "generator")
    kept += ("prefetch_factor", "persistent_workers", "multiprocessing_context")
    again = L(loader.dataset, loader.batch_size, sampler=sampler, **{name: getattr(loader, name) for name in kept})
    return epochs(again)
