"""Memory of batches from the serial and the thread executor: recycled, but never while anything refers to it."""

import gc
import mmap
import resource

import numpy as np
import pytest
from conftest import SERIAL, THREAD
from hypothesis import given
from hypothesis import strategies as st

import gluonloader as gl
from gluonloader.memory.buffers import BatchMemory, BufferPool

LARGE = 50_000


def address(array):
    return array.__array_interface__["data"][0]


steps = st.lists(st.tuples(st.sampled_from([10, LARGE, 60_000, 400_000]), st.integers(0, 5)), max_size=30)


@given(steps=steps)
def test_a_buffer_in_use_is_never_taken_again(steps):
    buffers, kept = BufferPool(1), []
    for number, (size, dropped) in enumerate(steps):
        with BatchMemory(buffers):
            array = gl.empty(size, np.uint8)
        array[:] = number
        kept.append((number, array[size // 2 :]))  # a view is enough
        del array
        for dead in sorted({dropped % (len(kept) + 1)} - {len(kept)}):
            del kept[dead]
        assert all((view == number).all() for number, view in kept)


@given(shape=st.tuples(st.integers(0, 60), st.integers(0, 60), st.integers(1, 20)), dtype=st.sampled_from("bhifdF"))
def test_arrays_have_the_shape_and_dtype_that_were_asked_for(shape, dtype):
    with BatchMemory(BufferPool(1)):
        array = gl.empty(shape, dtype)
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.nbytes <= 16 * 1024 or address(array) % mmap.PAGESIZE == 0


def test_buffers_are_recycled():
    buffers, seen = BufferPool(1), set()
    for _ in range(50):
        with BatchMemory(buffers):
            seen.add(address(gl.empty(LARGE, np.uint8)))
    assert len(seen) <= 3


def test_buffers_in_use_are_still_recognised_after_many_batches():
    buffers, held = BufferPool(1), None  # Python specialises the loop meanwhile
    memory = BatchMemory(buffers)
    for number in range(5000):
        with memory:
            array = gl.empty(LARGE, np.uint8)
        array[:3] = number % 251
        assert held is None or held[0] == (number - 1) % 251
        held = array[:3]


def test_a_reference_to_the_lowest_base_keeps_the_buffer():
    buffers = BufferPool(1)
    with BatchMemory(buffers):
        array = gl.empty(LARGE, np.uint8)
    array[:] = 1
    owner = array
    while getattr(owner, "base", None) is not None:
        owner = owner.base
    kept = np.frombuffer(owner, np.uint8)
    del array, owner
    with BatchMemory(buffers):
        gl.empty(LARGE, np.uint8)[:] = 2
    assert (kept[:LARGE] == 1).all()


def test_many_arrays_in_a_batch():
    buffers, seen = BufferPool(1), []
    for _ in range(6):
        with BatchMemory(buffers):
            seen.append({address(array) for array in [gl.empty(LARGE, np.uint8) for _ in range(200)]})
    assert all(len(addresses) == 200 for addresses in seen)
    assert len(set().union(*seen)) <= 600


def test_an_array_outlives_its_pool():
    buffers = BufferPool(1)
    with BatchMemory(buffers):
        array = gl.empty(LARGE, np.uint8)
    array[:] = 7
    del buffers
    gc.collect()
    assert (array == 7).all()


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def test_the_pool_keeps_few_of_many_buffers_that_come_back():
    buffers, hoard = BufferPool(1), []
    for _ in range(100):
        with BatchMemory(buffers):
            hoard.append(gl.empty(1_000_000, np.uint8))
            hoard[-1][:] = 1
    before = resident()
    hoard.clear()
    assert resident() < before - 80_000_000


def test_a_batch_made_while_another_is_made_uses_other_memory():
    outer, inner = BufferPool(1), BufferPool(1)
    with BatchMemory(outer):
        first = gl.empty(LARGE, np.uint8)
        with BatchMemory(inner):
            second = gl.empty(LARGE, np.uint8)
        third = gl.empty(LARGE, np.uint8)
    first[:], second[:], third[:] = 1, 2, 3
    assert [int(array[-1]) for array in (first, second, third)] == [1, 2, 3]
    assert gl.empty(LARGE, np.uint8).base is None


@pytest.mark.parametrize("way", [SERIAL, THREAD], ids=str)
def test_batches_that_the_user_keeps_do_not_change(way):
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
def test_later_epochs_cause_almost_no_page_faults(way):
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
