"""A dataset whose length changes after the loader was made: the batches stay the same everywhere, with one warning."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
from conftest import FORK, SERIAL, THREAD

from gluonloader import IterableDataset

GROWN = "Growing has 11 samples now, but had 8 when the loader was made, and each epoch still reads those; to read the "


class Growing:
    """Sample i is i."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return index


class Stream:
    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __iter__(self):
        return iter(range(self.length))


def batches_of(loader):
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("length", [11, 3])
def test_the_length_of_the_constructor_stays(any_way, shuffle, length):
    with SERIAL.loader(range(8), 3, shuffle) as right:
        epochs = [batches_of(right) for _ in range(4)]
    dataset = Growing(8)
    with any_way.loader(dataset, 3, shuffle) as loader:
        assert batches_of(loader) == epochs[0]
        dataset.length = length
        with pytest.warns(RuntimeWarning, match=f"^Growing has {length} samples now, but had 8 when") as found:
            assert batches_of(loader) == epochs[1]
        assert (len(found), found[0].filename) == (1, __file__)
        assert batches_of(loader) == epochs[2]
        assert len(loader) == 3
        assert loader.replay(1, 1).tolist() == epochs[1][1]


def test_states_contain_the_length_that_counts(tmp_path):
    dataset = Growing(8)
    with SERIAL.loader(dataset, 3) as loader:
        list(loader)
        before = loader.state_dict()
        dataset.length = 11
        with pytest.warns(RuntimeWarning, match=GROWN):
            next(iter(loader))
        after = loader.state_dict()
        assert after["length"] == before["length"] == 8
        for state, count in ((before, 3), (after, 2)):
            loader.load_state_dict(state)
            assert len(batches_of(loader)) == count
        loader.load_state_dict(after)
        for other in (copy.copy(loader), pickle.loads(pickle.dumps(loader))):
            with pytest.warns(RuntimeWarning, match=GROWN):
                assert batches_of(other) == [[3, 4, 5], [6, 7]]
    with SERIAL.loader(dataset, 3) as loader:
        with pytest.raises(ValueError, match="length=8"):
            loader.load_state_dict(after)
        assert len(loader) == 4


def test_with_auto_reload_too():
    dataset = Growing(8)
    with SERIAL.loader(dataset, 4, auto_reload=True) as loader:
        iterator = iter(loader)
        next(iterator)
        dataset.length = 11
        with pytest.warns(RuntimeWarning, match=GROWN):
            list(iterator)
        assert batches_of(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]


class Whole:
    """A sampler of the user, like those of torch: it asks for the length in each epoch."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __iter__(self):
        return iter(range(len(self.dataset)))

    def __len__(self):
        return len(self.dataset)


@pytest.mark.parametrize("way", [SERIAL, THREAD], ids=str)
def test_a_sampler_of_the_user_decides_itself(way):
    dataset = Growing(8)
    with way.loader(dataset, 4, sampler=Whole(dataset)) as loader, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(batches_of(loader)) == 2
        dataset.length = 11
        assert len(loader) == len(batches_of(loader)) == 3
        assert loader.state_dict()["length"] == 11


@pytest.mark.parametrize("wrap", [Stream, lambda length: IterableDataset(Stream(length)).transform(abs)])
def test_an_iterable_dataset_grows_unless_workers_have_copies(any_way, wrap):
    dataset = wrap(8)
    source = getattr(dataset, "_source", dataset)
    source = getattr(source, "_source", source)
    with any_way.loader(IterableDataset(dataset, num_shards=1), 4) as loader:
        assert len(batches_of(loader)) == 2
        source.length = 11
        if any_way.processes:
            with pytest.warns(RuntimeWarning, match="11 samples now, but had 8 when the workers started") as found:
                assert batches_of(loader) == batches_of(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
            assert len(found) == 1
            assert len(loader) == 2
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert len(loader) == len(batches_of(loader)) == 3


def test_a_copy_of_a_loader_gives_its_workers_the_dataset_as_it_is_now():
    dataset = Stream(8)
    with FORK.loader(IterableDataset(dataset, num_shards=1), 4) as loader:
        dataset.length = 11
        assert len(loader) == 2
        with copy.copy(loader) as other, warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(batches_of(other)) == len(other) == 3
