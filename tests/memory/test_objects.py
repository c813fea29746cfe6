"""The accounting of batches in Ray's store, without Ray."""

import gc

import numpy as np
import pytest

from gluonloader.executors.ray.objects import ObjectMemory
from gluonloader.memory.slab import HEADER

LIMIT = 10_000_000
SIZE = 200_000  # bytes; a batch with a large array


def arrived(memory, nbytes, value):
    batch = memory.take(100, 0)
    batch.arrive(np.full(HEADER + nbytes, value, np.uint8))
    memory.has_grown(batch, HEADER + nbytes)
    return batch


@pytest.mark.parametrize("call", ["lend", "copy_out"])
def test_a_call_that_was_interrupted_can_be_repeated(call):
    memory = ObjectMemory(4, LIMIT)
    batch = arrived(memory, SIZE, 7)
    for _ in range(2):
        source = getattr(memory, call)(batch, HEADER + SIZE)
        assert bytes(source.view) == b"\7" * (HEADER + SIZE)
        memory.recount(set())
    del source, batch
    gc.collect()
    memory.recount(set())
    assert memory.take(100, 0) is not None
    assert memory._budget.lent == 0


def test_the_limit_counts_batches_in_flight_and_on_loan():
    memory = ObjectMemory(4, LIMIT)
    flying = []
    while (batch := memory.take(100, 0)) is not None:
        flying.append(batch)
    assert len(flying) == 5  # one more than the window
    for batch in flying:
        memory.give_back(batch)
        memory.give_back(batch)  # a second time does nothing
    assert memory.take(100, 0) is not None


@pytest.mark.filterwarnings("ignore:memory_limit")
def test_batches_that_are_kept_become_copies_when_the_limit_is_reached():
    memory = ObjectMemory(4, LIMIT)
    kept = []
    for value in range(12):
        batch = arrived(memory, 1_500_000, value)
        kept.append(memory.lend(batch, HEADER + 1_500_000))
    assert [source.view[-1] for source in kept] == list(range(12))
    assert memory._budget.lent <= LIMIT
    assert 0 < memory.stats().copies < 12


def test_without_a_limit_some_loans_beyond_the_window_are_views():
    memory = ObjectMemory(4, None)
    kept = [memory.lend(arrived(memory, SIZE, value), HEADER + SIZE) for value in range(30)]
    assert memory.stats().lent == 4 + 16
    assert [source.view[-1] for source in kept] == list(range(30))


@pytest.mark.filterwarnings("ignore:memory_limit")
@pytest.mark.parametrize("limit", [None, LIMIT])
def test_the_arrays_of_a_batch_keep_its_loan(limit):
    memory = ObjectMemory(4, limit)
    arrays = [rebuilt(memory, value) for value in range(5)]
    assert memory.stats().lent == 5
    arrays = [array[1:] for array in arrays[:3]]
    gc.collect()
    assert memory.stats().lent == 3
    assert not any(array.flags.writeable for array in arrays)
    arrays.clear()
    gc.collect()
    assert memory.stats().lent == 0


def rebuilt(memory, value):
    """The large array of a batch that was delivered; Ray's arrays are read-only views."""
    batch = memory.take(100, 0)
    data = np.full(HEADER + SIZE, value, np.uint8)
    data.flags.writeable = False
    batch.arrive(data[:])
    memory.has_grown(batch, HEADER + SIZE)
    source = memory.lend(batch, HEADER + SIZE)
    return source.array(source.pieces([(HEADER, HEADER + SIZE)]), HEADER, None, (SIZE,), "u1")


def test_an_array_that_is_a_small_part_of_its_batch_does_not_keep_it():
    memory = ObjectMemory(4, None)
    batch = arrived(memory, 1_000_000, 7)
    source = memory.lend(batch, HEADER + 1_000_000)
    pieces = source.pieces([(HEADER, 800_000), (800_000, 900_000)])
    image, mask = (source.array(pieces, start, None, (100_000,), "u1") for start in (HEADER, 800_000))
    del source, pieces
    assert memory.stats().lent == 1
    del image
    gc.collect()
    assert memory.stats().lent == 0
    assert (mask == 7).all()
