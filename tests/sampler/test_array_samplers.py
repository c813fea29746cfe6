"""Arrays as samplers and as the batches of a batch sampler behave like lists of the same ints."""

import numpy as np
import pytest
from conftest import ONE_FORK, SERIAL, THREAD

from gluonloader import ArrayDataset, BatchSampler, ShardedSampler
from gluonloader.sampler.base import iterate

ORDER = np.random.default_rng(0).permutation(23)
ROWS = np.arange(23) * 10
DTYPES = ["i8", "i4", "u2", "u8", ">i8"]


class ByKey:
    """Like a database, it accepts Python ints only, and none of NumPy's."""

    def __len__(self):
        return 23

    def __getitem__(self, index):
        assert type(index) is int
        return index * 10


def mapped(path, array):
    np.save(path, array)
    return np.load(path, mmap_mode="r")


def values(batches):
    return [batch.tolist() for batch in batches]


def cut(order, size):
    return [order[at : at + size] for at in range(0, len(order), size)]


class ReusedBuffer:
    """Yields each batch in the same memory."""

    def __init__(self, dtype):
        self.dtype = dtype

    def __len__(self):
        return 6

    def __iter__(self):
        buffer = np.empty(4, self.dtype)
        for part in cut(ORDER, 4):
            buffer[: len(part)] = part
            yield buffer[: len(part)]


@pytest.mark.parametrize("way", [SERIAL, THREAD, ONE_FORK], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_of_ints_gives_the_same_batches_as_a_list(way, dtype, tmp_path):
    expected = [(part * 10).tolist() for part in cut(ORDER, 4)]
    order = ORDER.astype(dtype)
    for data in (ByKey(), ArrayDataset(ROWS)):
        for sampler in (order, mapped(tmp_path / "order.npy", order), np.repeat(order, 2)[::2]):
            with way.loader(data, 4, sampler=sampler) as loader:
                assert values(loader) == values(loader) == expected
        for batches in (ReusedBuffer(dtype), cut(order, 4)):
            with way.loader(data, batch_sampler=batches) as loader:
                assert values(loader) == values(loader) == expected


@pytest.mark.parametrize("last_batch", ["keep", "rollover"])
@pytest.mark.parametrize("make", [lambda: ORDER, lambda: ORDER.astype(np.int32), lambda: ShardedSampler(ORDER, 2, 1)])
def test_a_position_in_an_array_loads_and_a_flush_returns_to_it(make, last_batch):
    def loader():
        return THREAD.loader(ByKey(), 4, sampler=make(), last_batch=last_batch)

    with loader() as whole:
        expected = values(whole) + values(whole)
    for stop in range(len(expected)):
        with loader() as first, loader() as second:
            seen = []
            for batch in (batch for _ in range(2) for batch in first):
                if len(seen) == stop:
                    break
                seen.append(batch.tolist())
                state = first.state_dict()
            if seen:
                second.load_state_dict(state)
            while len(seen) < len(expected):
                seen += values(second)
            assert seen[: len(expected)] == expected
    with loader() as flushed:
        iterator = iter(flushed)
        seen = [next(iterator).tolist(), next(iterator).tolist()]
        iterator.flush()
        assert seen + values(iterator) + values(flushed) == expected


def test_writing_to_an_array_does_not_change_batches_that_were_drawn():
    order = np.arange(20)
    batches = iterate(BatchSampler(order, 4))
    drawn = [batches.cut(), batches.cut()]
    order[:] = 0
    assert [batch.tolist() for batch in drawn] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert next(batches) == [8, 9, 10, 11], "it was read ahead"


def test_arrays_of_other_keys_are_samplers():
    days = np.array(["2020-01-02", "2020-01-01", "2020-01-03"], "M8[ns]")
    rows = {day: number for number, day in enumerate(days)}
    with SERIAL.loader(rows, 2, sampler=days) as loader:
        iterator = iter(loader)
        assert next(iterator).tolist() == [0, 1]
        iterator.flush()
        assert values(iterator) == [[2]]
    with SERIAL.loader(ROWS, 1, sampler=np.array([[3, 4], [5, 6]])) as loader:
        assert values(loader) == [[[30, 40]], [[50, 60]]]
