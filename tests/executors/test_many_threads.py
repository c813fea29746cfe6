"""Many threads read one loader: each gets the batches of a loader without workers (P1), with a GIL and without one.

`nox -s free` sets GLUONLOADER_THREAD_BATCHES to 500000.
"""

import contextlib
import os
import random
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD

from gluonloader import get_rng, get_worker_info
from gluonloader.options import OnError

pytestmark = [pytest.mark.usefixtures("no_leaks"), pytest.mark.numpy_only, pytest.mark.local]

THREADS = 8
BATCHES = int(os.environ.get("GLUONLOADER_THREAD_BATCHES", "8000"))
LENGTH, SIZE = 50, 4
PER_EPOCH = 13


class Noisy:
    """Some samples raise an error; others are so large that the memory of their batches is recycled."""

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        if index % 17 == 3:
            raise ValueError(f"sample {index}")
        return np.full(3000, index + get_rng().random())


def make(way):
    return way.loader(Noisy(), SIZE, shuffle=True, on_error=OnError("skip", 1.0))


def read(shared, number, count):
    """Reads `count` batches in epochs of the shared loader, and some of a loader of its own; both often end early."""
    chance, kept = random.Random(number), deque(maxlen=20)
    with make(SERIAL) as reference:
        while count > 0:
            with make(THREAD) if chance.random() < 0.02 else contextlib.nullcontext(shared) as loader:
                iterator = iter(loader)
                batches = list(islice(iterator, chance.randrange(1, 2 * PER_EPOCH)))
                reference.set_epoch(iterator.last.epoch)
                iterator.close()
            right = list(islice(reference, len(batches)))
            assert all(map(np.array_equal, batches, right))
            kept += zip(batches[::5], right[::5])
            assert all(np.array_equal(batch, same) for batch, same in kept)
            count -= len(batches)


@pytest.mark.filterwarnings("ignore:.*raised an error")
@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_threads_that_share_a_loader_get_the_batches_of_a_serial_loader(way):
    with make(way) as shared, ThreadPoolExecutor(THREADS) as pool:
        readers = [pool.submit(read, shared, number, BATCHES // THREADS // 3) for number in range(THREADS)]
        last = 0
        while not all(reader.done() for reader in readers):
            counted = shared.stats().batches
            assert counted >= last
            last = counted
        for reader in readers:
            reader.result()
        stats = shared.stats()
    assert sum(worker.batches for worker in stats.workers) >= stats.batches > 0


@pytest.mark.parametrize("way", [SERIAL, THREAD], ids=str)
def test_a_thread_of_the_users_code_has_no_generator_and_no_worker_of_the_sample(way):
    """Where `sys.flags.thread_inherit_context` is set, a new thread starts with the context of the sample."""

    class Dataset(Noisy):
        def __getitem__(self, index):
            own, found = get_rng(), []
            thread = threading.Thread(target=lambda: found.append((get_worker_info(), get_rng() is own)))
            thread.start()
            thread.join()
            assert get_rng() is own
            assert get_worker_info() is not None
            return int(found == [(None, False)])

    with way.loader(Dataset(), SIZE) as loader:
        assert all(batch.all() for batch in loader)


@pytest.mark.spawn
@pytest.mark.skipif(sys.version_info < (3, 14), reason="threads inherit no context there")
def test_threads_that_inherit_contexts_do_not_inherit_the_sample():
    """As on a Python without a GIL; tasks of an event loop and `asyncio.to_thread` still have it."""
    command = [sys.executable, "-X", "thread_inherit_context=1", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    chosen = ["-k", "users_code or are_those_of_a_dataset_that_is_not_async", "--strict-markers", "-n", "0"]
    files = [__file__, str(Path(__file__).with_name("test_async_datasets.py"))]
    done = subprocess.run([*command, *chosen, *files], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
