"""NDArrays over slabs: a delivered batch never changes, however late MXNet reads it, and whatever forks or dies."""

import contextlib
import gc
import multiprocessing
import os
import random
import threading
import warnings

import numpy as np
import pytest
from conftest import (
    FORK,
    WAYS,
    children,
    descriptors,
    eventually,
    load_mxnet,
    mapped_slabs,
    run_program,
    scarce_descriptors,
    workers,
)

import gluonloader.mxnet
from gluonloader import DataLoader, memory
from gluonloader.options import Processes

pytestmark = pytest.mark.soak

mx = load_mxnet()
if mx is None:
    pytest.skip("needs MXNet", allow_module_level=True)

BATCHES = int(os.environ.get("GLUONLOADER_BATCHES", "1500"))
DELETES = int(os.environ.get("GLUONLOADER_DELETES", "40"))
KILLS = int(os.environ.get("GLUONLOADER_KILLS", "12"))


class Rows:
    """Row i is full of i; the label is i."""

    def __init__(self, length, width=64):
        self.length, self.width = length, width

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(index)
        return np.full(self.width, index, np.float32), index


def right(batch, number, size):
    expected = np.arange(number * size, (number + 1) * size)
    rows, labels = (array.asnumpy() for array in batch)
    return (rows == expected[:, None]).all() and (labels == expected).all()


def work(batch):
    """Operations that MXNet runs later, in a thread of its engine."""
    rows = batch[0]
    return [mx.nd.dot(rows, rows.T), (rows * 2).sum(axis=1), rows.reshape((-1,)).slice_axis(0, 3, 9)]


@pytest.fixture
def no_slabs_left():
    mx.nd.waitall()
    gc.collect()
    before = children(), descriptors()
    yield
    gc.collect()
    mx.nd.waitall()
    assert eventually(lambda: children() <= before[0])
    assert eventually(lambda: not mapped_slabs())
    assert eventually(lambda: descriptors() <= before[1] + 2), (before[1], descriptors())


@pytest.mark.parametrize("limit", [None, "2MB"])
def test_no_batch_changes_while_it_can_be_read(no_slabs_left, limit):
    """Batches and results are kept at random, with garbage collections and forks in between."""
    size, rng = 16, random.Random(0)
    kept, results, forks = {}, [], 0
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "memory_limit", RuntimeWarning)
        warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
        with DataLoader(Rows(BATCHES * size), size, num_workers=2, output="mxnet", memory_limit=limit) as loader:
            for number, batch in enumerate(loader):
                results.append((number, work(batch)))
                if rng.random() < 0.5:
                    kept[number] = batch
                del batch
                while len(kept) > rng.randrange(1, 40):
                    old = rng.choice(list(kept))
                    assert right(kept.pop(old), old, size)
                if len(results) > 20:
                    rng.shuffle(results)
                    old, (product, sums, part) = results.pop()
                    expected = np.arange(old * size, (old + 1) * size, dtype=np.float32)
                    assert (sums.asnumpy() == 2 * 64 * expected).all()
                    assert np.allclose(product.asnumpy(), 64 * np.outer(expected, expected), rtol=1e-4)
                    assert (part.asnumpy() == expected[0]).all()
                if rng.random() < 0.02:
                    gc.collect()
                if rng.random() < 0.02 and forks < 60:
                    forks += 1
                    check_in_child(kept, size)
    for number, batch in kept.items():
        assert right(batch, number, size)


def check_in_child(kept, size):
    """A forked child reads its parent's batches, releases some, and exits without telling MXNet."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            number = next(iter(kept), None)
            code = 0 if number is None or right(kept.pop(number), number, size) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_mxnet_still_reads_is_not_overwritten(no_slabs_left):
    """All Python objects of a batch are gone before MXNet starts to compute with it."""
    size, sums = 8, []
    busy = mx.nd.ones((600, 600))
    with DataLoader(Rows(200 * size, 4096), size, num_workers=2, output="mxnet", prefetch=2) as loader:
        for number, (rows, _) in enumerate(loader):
            blocker = mx.nd.dot(busy, busy)[:1, :1].reshape((1,)) * 0
            sums.append((number, (rows + blocker).sum(axis=1)))
            del rows, blocker
            if len(sums) == 10:
                for old, total in sums:
                    expected = np.arange(old * size, (old + 1) * size, dtype=np.float32)
                    assert (total.asnumpy() == 4096 * expected).all()
                sums.clear()


def test_deleting_a_loader_with_work_in_flight_ends_it(no_slabs_left):
    dataset = Rows(10_000)
    for _ in range(DELETES):
        loader = gluonloader.mxnet.DataLoader(dataset, 16, num_workers=2, prefetch=8)
        iterator = iter(loader)
        product = mx.nd.dot(next(iterator)[0], mx.nd.ones((64, 64)))
        if random.random() < 0.5:
            del iterator
        loader = iterator = None
        assert product.shape == (16, 64)


def test_workers_killed_while_the_engine_is_busy_cost_nothing(no_slabs_left):
    size, rng = 16, random.Random(1)
    weights, killed, number = mx.nd.random.normal(shape=(64, 64)), 0, 0
    with DataLoader(
        Rows(8 * KILLS * size),
        size,
        num_workers=2,
        output="mxnet",
        start_method="fork",
        executor=Processes(max_retries=100),
    ) as loader:
        pending = []
        for number, batch in enumerate(loader):
            pending.append(mx.nd.dot(mx.nd.dot(batch[0], weights), weights.T))
            assert right(batch, number, size)
            if killed < KILLS and rng.random() < 0.25:
                alive = workers(loader)
                with contextlib.suppress(ProcessLookupError):  # it has just ended, of the kill before
                    if alive:
                        os.kill(rng.choice(alive), 9)
                        killed += 1
            del pending[:-50]
    assert number + 1 == 8 * KILLS
    assert killed == KILLS


def test_batches_past_the_limit_are_private_copies(no_slabs_left):
    """They lie in the context that Gluon uses, and need no room in /dev/shm."""
    loader = gluonloader.mxnet.DataLoader(Rows(64 * 16, 4096), 16, num_workers=2, memory_limit="3MB")
    with loader, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "memory_limit", RuntimeWarning)
        batches = list(loader)
    assert all(right(batch, number, 16) for number, batch in enumerate(batches))
    assert {str(array.context) for batch in batches for array in batch} == {"cpu_shared(0)"}


def test_without_descriptors_batches_still_come(no_slabs_left):
    """Gluon's loader raises if the process may open only a few files."""
    loader = gluonloader.mxnet.DataLoader(Rows(100 * 16), 16, num_workers=2)
    with loader:
        next(iter(loader))
        with scarce_descriptors(30):
            batches = list(loader)
    assert all(right(batch, number, 16) for number, batch in enumerate(batches))


def test_slabs_that_mxnet_cannot_map_come_back(no_slabs_left):
    """Some slabs exist already when the descriptors run out."""
    with gluonloader.mxnet.DataLoader(Rows(100 * 16), 16, num_workers=2) as loader:
        iterator = iter(loader)
        batches = [next(iterator)]
        with scarce_descriptors(30, left=10):
            batches += iterator
    assert all(right(batch, number, 16) for number, batch in enumerate(batches))


def test_a_closed_loaders_batches_stay(no_slabs_left):
    with DataLoader(Rows(64, 4096), 16, num_workers=2, output="mxnet") as loader:
        batches = list(loader)
    assert all(right(batch, number, 16) for number, batch in enumerate(batches))
    assert batches[0][0].context == mx.Context("cpu_shared", 0)


def test_arrays_of_a_batch_are_not_copied(no_slabs_left):
    def writes_on(samples):
        batch = memory.empty((len(samples), 20_000), np.float32)
        batch[:] = [[sample] * 20_000 for sample in samples]
        return batch, batch[1:3]

    with DataLoader(
        list(range(8)), 4, num_workers=1, batchify_fn=writes_on, output="mxnet", start_method="fork"
    ) as loader:
        for whole, part in loader:
            part[:] = -1
            assert whole.asnumpy()[:, 0].tolist()[1:3] == [-1, -1]


def test_memory_of_a_plain_array_lives_as_long_as_mxnet_reads_it():
    for _ in range(300):
        (batch,) = DataLoader([np.full(5000, 7, np.float32)] * 4, 4, output="mxnet")
        later = (batch * 2).sum()
        del batch
        assert later.asscalar() == 2 * 7 * 20_000
    gc.collect()


@pytest.mark.parametrize("way", WAYS[:3], ids=str)
def test_every_dtype_of_mxnet(way):
    dtypes = ["float16", "float32", "float64", "uint8", "int8", "int32", "int64", "longlong", "bool"]
    arrays = [np.stack([np.arange(6).reshape(2, 3).astype(t) + np.asarray(i % 2, t) for i in range(4)]) for t in dtypes]
    with way.loader([tuple(array[i] for array in arrays) for i in range(4)], 4, output="mxnet") as loader:
        (batch,) = loader
    for part, array in zip(batch, arrays, strict=True):
        assert part.dtype == array.dtype
        assert (part.asnumpy() == array).all()


@pytest.mark.parametrize("way", WAYS[:3], ids=str)
def test_a_dtype_that_mxnet_lacks_is_an_error_that_says_what_to_do(way):
    with way.loader([{"x": np.int16(3)}], 1, output="mxnet") as loader:
        with pytest.raises(TypeError, match="MXNet has no dtype int16; .*astype") as caught:
            next(iter(loader))
        assert any("output converted ['x']" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("way", WAYS[:3], ids=str)
def test_arrays_without_elements_and_without_axes(way):
    shapes = [(0,), (3, 0), ()]

    def ones(samples):
        return [np.ones(shape, np.float32) for shape in shapes]

    with way.loader([1, 2], 2, output="mxnet", batchify_fn=ones) as loader:
        (batch,) = loader
    assert [array.shape for array in batch] == [array.asnumpy().shape for array in batch] == shapes


def test_ndarrays_sent_to_another_process_arrive_right():
    """MXNet itself sends the start of the memory that a slice lies in."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=exit_with, args=(lambda: right(receiver.recv(), 1, 8),))
    process.start()
    with DataLoader(Rows(32, 20_000), 8, num_workers=2, output="mxnet") as loader:
        batch = list(loader)[1]
    assert batch[0].context == mx.Context("cpu_shared", 0)
    sender.send(batch)
    process.join()
    assert process.exitcode == 0


def exit_with(check):
    os._exit(not check())


FORKS_WHILE_THE_ENGINE_READS = """
import os
from gluonloader.mxnet import patch_numpy
patch_numpy()
import mxnet as mx
import numpy as np
from gluonloader import DataLoader
for _ in range(10):
    (batch,) = DataLoader([np.ones((64, 1024), np.float32)] * 4, 4, output="mxnet")
    later = mx.nd.batch_dot(batch, batch, transpose_a=True)
    del batch
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
print("complete")
"""


@pytest.mark.spawn
def test_a_fork_while_the_engine_reads_a_batch_that_was_dropped_does_not_hang():
    """The engine releases the batch while the fork waits for it, and that must not need the GIL."""
    done = run_program(FORKS_WHILE_THE_ENGINE_READS)
    assert done.stdout == "complete\n", done.stderr


def test_a_thread_that_computes_and_a_thread_that_loads():
    """Forks are made in the thread that asks for batches; here no worker has to be replaced."""
    done = threading.Event()

    def compute():
        weights = mx.nd.ones((64, 64))
        while not done.is_set():
            weights = mx.nd.dot(weights, weights) * 0
            weights.wait_to_read()

    with DataLoader(
        Rows(3200), 16, num_workers=2, output="mxnet", start_method=FORK.arguments["start_method"]
    ) as loader:
        thread = threading.Thread(target=compute)
        thread.start()
        try:
            assert all(right(batch, number, 16) for number, batch in enumerate(loader))
        finally:
            done.set()
            thread.join()
