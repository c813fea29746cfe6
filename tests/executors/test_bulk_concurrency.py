"""`concurrency` with bulk reads: those of several batches run side by side."""

from __future__ import annotations

import os
import random
import signal
import threading
import time

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD, workers
from noisy import AsyncNoisy, Noisy, NoisyBulk, add_noise, and_noise, numbers
from samples import Numbered

import gluonloader as gl

pytestmark = pytest.mark.usefixtures("no_leaks")


class Meeting(Numbered):
    """The first bulk reads of each process end only when three of them run."""

    def __getitems__(self, indices):
        with meeting:
            here.append(0)
            meeting.notify_all()
            assert meeting.wait_for(lambda: len(here) >= 3, 60)
        return [np.full(500, index) for index in indices]


meeting, here = threading.Condition(), []


def noise_for_all(samples):
    return [add_noise(*sample) for sample in samples]


class NoisyBatchify:
    """Draws from the global generators in batchify_fn, which are seeded in processes and in the caller."""

    def __call__(self, samples):
        batch, noise = and_noise(samples)
        return batch, noise + np.random.random() + random.random()


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
def test_bulk_reads_of_several_batches_run_side_by_side(way):
    here.clear()
    with way.loader(Meeting(120), 4, concurrency=3, num_workers=1) as loader:
        assert loader.prefetch == 4  # 2 * num_workers, and 2 for each worker
        for _ in range(2):
            assert [int(batch[0, 0]) for batch in loader] == list(range(0, 120, 4))


@pytest.mark.parametrize("in_order", [True, False])
def test_batches_are_those_of_one_bulk_read_at_a_time(every_way, in_order):
    dataset = gl.SimpleDataset(NoisyBulk(90)).transform(add_noise).transform(noise_for_all, batched=True)
    batchify_fn = and_noise if every_way is THREAD else NoisyBatchify()
    with SERIAL.loader(dataset, 4, True, batchify_fn=batchify_fn) as loader:
        expected = [numbers(loader) for _ in range(2)]
    with every_way.loader(dataset, 4, True, batchify_fn=batchify_fn, concurrency=4, in_order=in_order) as loader:
        read = [numbers(loader) for _ in range(2)]
    assert read == expected if in_order else [sorted(epoch) for epoch in read] == [sorted(epoch) for epoch in expected]


def test_rows_of_arrays_lie_in_the_memory_of_their_own_batch(every_way):
    arrays = gl.SimpleDataset(np.arange(4000).reshape(400, 10)), gl.SimpleDataset(np.arange(400))
    with every_way.loader(gl.ArrayDataset(*arrays), 8, concurrency=4) as loader:
        for first, (x, y) in zip(range(0, 400, 8), loader, strict=True):
            assert (x[:, 0] == np.arange(first, first + 8) * 10).all()
            assert (y == np.arange(first, first + 8)).all()


class Failing(Numbered):
    def __getitems__(self, indices):
        if 5 in indices:
            raise KeyError("five")
        if 10 in indices:
            os._exit(3)
        return indices


class Killing(Numbered):
    def __getitems__(self, indices):
        time.sleep(0.02)  # so that other batches are read meanwhile
        if 12 in indices:
            os.kill(os.getpid(), signal.SIGKILL)
        return indices


def test_an_error_belongs_to_its_batch(process_way):
    with process_way.loader(Failing(40), 2, concurrency=4) as loader:
        iterator, read, errors = iter(loader), [], []
        while True:
            try:
                read.append(next(iterator).tolist())
            except StopIteration:
                break
            except (KeyError, gl.errors.WorkerDied) as error:
                errors.append(error)
    assert read == [[i, i + 1] for i in range(0, 40, 2) if i not in (4, 10)]
    assert [type(error) for error in errors] == [KeyError, gl.errors.WorkerDied]
    assert "dataset.__getitems__([4, 5]), batch 2 of epoch 0" in errors[0].__notes__[0]
    assert "one of its samples [10, 11]" in str(errors[1])


@pytest.mark.parametrize("max_retries", [0, 1])
def test_a_batch_that_kills_its_worker_costs_no_batch_beside_it_and_no_warning(process_way, max_retries, capfd):
    with process_way.loader(Killing(80), 2, concurrency=4, **process_way.retrying(max_retries)) as loader:
        iterator = iter(loader)
        read = [next(iterator).tolist() for _ in range(6)]
        with pytest.raises(gl.errors.WorkerDied, match=r"batch 6 of epoch 0.*one of its samples \[12, 13\]"):
            next(iterator)
        read += [batch.tolist() for batch in iterator]
    assert sum(read, []) == [index for index in range(80) if index not in (12, 13)]
    assert "drew random numbers" not in capfd.readouterr().err


@pytest.mark.kill
@pytest.mark.soak
@pytest.mark.parametrize("kind", [Noisy, NoisyBulk, AsyncNoisy])
def test_random_kills_change_no_batch(process_way, kind):
    kills = int(os.environ.get("GLUONLOADER_KILLS", "40")) // (4 if process_way is FORK else 10)
    dataset = kind(120)
    with SERIAL.loader(dataset, 4, True, batchify_fn=and_noise) as loader:
        expected = numbers(loader)
    chance, killed = random.Random(0), 0
    with process_way.loader(
        dataset, 4, True, batchify_fn=and_noise, concurrency=3, **process_way.retrying(1000), seed=0
    ) as loader:
        while killed < kills:
            loader.set_epoch(0)
            read = []
            for batch in loader:
                read += numbers([batch])
                if chance.random() < 0.2 and (pids := workers(loader)):
                    os.kill(chance.choice(pids), signal.SIGKILL)
                    killed += 1
            assert read == expected
