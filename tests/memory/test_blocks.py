"""Memory of batches that are made in the caller or in threads: used again, and never while anybody looks."""

import gc
import mmap
import resource

import numpy as np
import pytest
from conftest import SERIAL, THREAD
from hypothesis import given
from hypothesis import strategies as st

import gluonloader as gl
from gluonloader.memory.blocks import BatchMemory, Blocks

LARGE = 50_000


def address(array):
    return array.__array_interface__["data"][0]


steps = st.lists(st.tuples(st.sampled_from([10, LARGE, 60_000, 400_000]), st.integers(0, 5)), max_size=30)


@given(steps=steps)
def test_what_is_looked_at_is_never_given_again(steps):
    blocks, kept = Blocks(1), []
    for number, (size, dropped) in enumerate(steps):
        with BatchMemory(blocks):
            array = gl.empty(size, np.uint8)
        array[:] = number
        kept.append((number, array[size // 2 :]))  # a view is enough
        del array
        for position in sorted({dropped % (len(kept) + 1)} - {len(kept)}):
            del kept[position]
        assert all((view == number).all() for number, view in kept)


@given(shape=st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(1, 20)), dtype=st.sampled_from("bhifdF"))
def test_arrays_are_what_was_asked_for(shape, dtype):
    with BatchMemory(Blocks(1)):
        array = gl.empty(shape, dtype)
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.nbytes <= 16 * 1024 or address(array) % mmap.PAGESIZE == 0


def test_memory_that_was_let_go_is_used_again():
    blocks, seen = Blocks(1), set()
    for _ in range(50):
        with BatchMemory(blocks):
            seen.add(address(gl.empty(LARGE, np.uint8)))
    assert len(seen) <= 3


def test_counts_are_right_after_many_rounds_too():
    blocks, held = Blocks(1), None  # a loop that Python has made quick by then
    memory = BatchMemory(blocks)
    for number in range(5000):
        with memory:
            array = gl.empty(LARGE, np.uint8)
        array[:3] = number % 251
        assert held is None or held[0] == (number - 1) % 251
        held = array[:3]


def test_who_keeps_the_owner_of_the_memory_keeps_the_block():
    blocks = Blocks(1)
    with BatchMemory(blocks):
        array = gl.empty(LARGE, np.uint8)
    array[:] = 1
    owner = array
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    kept = np.frombuffer(owner, np.uint8)
    del array, owner
    with BatchMemory(blocks):
        gl.empty(LARGE, np.uint8)[:] = 2
    assert (kept[:LARGE] == 1).all()


def test_many_arrays_in_a_batch():
    blocks, seen = Blocks(1), []
    for _ in range(6):
        with BatchMemory(blocks):
            seen.append({address(array) for array in [gl.empty(LARGE, np.uint8) for _ in range(200)]})
    assert all(len(addresses) == 200 for addresses in seen)
    assert len(set().union(*seen)) <= 600


def test_a_block_outlives_its_blocks():
    blocks = Blocks(1)
    with BatchMemory(blocks):
        array = gl.empty(LARGE, np.uint8)
    array[:] = 7
    del blocks
    gc.collect()
    assert (array == 7).all()


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_of_a_hoard_only_a_few_blocks_are_kept():
    blocks, hoard = Blocks(1), []
    for _ in range(100):
        with BatchMemory(blocks):
            hoard.append(gl.empty(1_000_000, np.uint8))
            hoard[-1][:] = 1
    before = resident()
    hoard.clear()
    assert resident() < before - 80_000_000


def test_a_batch_within_a_batch_leaves_the_outer_ones_memory():
    outer, inner = Blocks(1), Blocks(1)
    with BatchMemory(outer):
        first = gl.empty(LARGE, np.uint8)
        with BatchMemory(inner):
            second = gl.empty(LARGE, np.uint8)
        third = gl.empty(LARGE, np.uint8)
    first[:], second[:], third[:] = 1, 2, 3
    assert [int(array[-1]) for array in (first, second, third)] == [1, 2, 3]
    assert gl.empty(LARGE, np.uint8).base is None


@pytest.mark.parametrize("way", [SERIAL, THREAD], ids=str)
def test_batches_that_are_kept_stay_as_they_are(way):
    images = np.arange(400 * 5000, dtype=np.int32).reshape(400, 5000)
    with way.loader(gl.ArrayDataset(images), 10, True) as loader:
        kept = list(loader)
        copies = [batch.copy() for batch in kept]
        for _ in range(3):
            for batch in loader:
                batch[:] = -1
        assert all((batch == copy).all() for batch, copy in zip(kept, copies, strict=True))
    assert sorted(int(row[0]) // 5000 for batch in kept for row in batch) == list(range(400))


@pytest.mark.parametrize("way", [SERIAL, THREAD], ids=str)
def test_after_the_first_window_no_page_is_touched_for_the_first_time(way):
    images = np.ones((64, 250_000), np.float32)  # 1 MB a sample

    def faults():
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    with way.loader(gl.ArrayDataset(images), 8) as loader:
        for _ in range(2):
            for batch in loader:
                pass
        before = faults()
        for _ in range(5):
            for batch in loader:
                assert batch[-1, -1] == 1
        assert faults() - before < 5 * 8 * 200  # a batch has 2,000 pages
