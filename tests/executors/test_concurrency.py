"""`concurrency`: samples of one batch are read at the same time, and the batches are those of `concurrency=1`."""

from __future__ import annotations

import logging
import os
import random
import threading

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD, eventually
from noisy import Noisy, add_noise, and_noise, numbers
from samples import Numbered

import gluonloader as gl
from gluonloader import get_rng

pytestmark = pytest.mark.usefixtures("no_leaks")

meeting = threading.Barrier(4)  # of each process


class Meeting(Numbered):
    """A sample ends only when three other samples are read at the same time."""

    def __getitem__(self, index):
        meeting.wait(60)
        return super().__getitem__(index)


class Ordered(Numbered):
    """Sample 3 fails after sample 5 has failed."""

    def __init__(self):
        super().__init__(12)

    def __getitem__(self, index):
        global failed
        if index == 5:
            failed.set()
            raise LookupError("five")
        if index == 3:
            failed.wait(60)
            raise KeyError("three")
        return index


failed = threading.Event()


def test_samples_of_a_batch_are_read_at_the_same_time(every_way):
    with every_way.loader(Meeting(16), 8, concurrency=4) as loader:
        for _ in range(2):
            assert [int(batch[0, 0]) for batch in loader] == [0, 8]


def test_batches_are_those_of_reading_one_by_one(way):
    dataset = gl.SimpleDataset(Noisy(30)).transform(add_noise)
    with SERIAL.loader(dataset, 8, True, batchify_fn=and_noise) as loader:
        expected = [numbers(loader) for _ in range(2)]
    for concurrency in (2, 7) if way.quick else (7,):
        with way.loader(dataset, 8, True, batchify_fn=and_noise, concurrency=concurrency) as loader:
            assert [numbers(loader) for _ in range(2)] == expected


def error_of(loader):
    with pytest.raises(Exception) as caught:
        list(loader)
    return caught.value


def test_the_error_is_that_of_the_first_sample(every_way):
    with every_way.loader(Ordered(), 12, concurrency=6) as loader:
        error = error_of(loader)
    assert isinstance(error, KeyError)
    assert error.args == ("three",)
    assert error.__notes__[0] == "gluonloader: in dataset[3], batch 0 of epoch 0"


class Counting(Numbered):
    """Counts the samples that are being read; sample 2 fails."""

    reading, most, lock = 0, 0, threading.Lock()

    def __getitem__(self, index):
        with self.lock:
            self.reading += 1
            self.most = max(self.most, self.reading)
        try:
            if index == 2:
                raise KeyError(index)
            return index
        finally:
            with self.lock:
                self.reading -= 1


@pytest.mark.parametrize("way", [SERIAL, THREAD], ids=str)
def test_nothing_is_read_after_an_error(way):
    dataset = Counting(40)
    with way.loader(dataset, 40, concurrency=8) as loader:
        for _ in range(10):
            error_of(loader)
            assert dataset.reading == 0
    assert 0 < dataset.most <= 8


class Fatal(Numbered):
    def __getitem__(self, index):
        if index == 6:
            os._exit(3)
        return index


def test_a_sample_that_kills_its_worker_is_named(process_way):
    with process_way.loader(Fatal(12), 4, concurrency=4) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(gl.errors.WorkerDied, match=r"dataset\[6\] \(sample 2 of the batch\)"):
            next(iterator)
        assert next(iterator).tolist() == [8, 9, 10, 11]


class Outer(Numbered):
    """Each sample uses a loader of its own, between two draws."""

    def __init__(self, inner):
        super().__init__(6)
        self.inner = inner

    def __getitem__(self, index):
        before = get_rng().random()
        with gl.DataLoader(self.inner, 2) as loader:
            list(loader)
        return before, get_rng().random()


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize(
    "inner", [[1, 2, 3, 4], range(4), np.arange(4), Noisy(4)], ids=["list", "range", "array", "noisy"]
)
@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_a_loader_inside_of_a_sample_leaves_the_generator_of_that_sample(way, inner, concurrency):
    with SERIAL.loader(gl.SimpleDataset(range(6)).transform(two_draws), 3) as loader:
        expected = [np.asarray(batch).tolist() for batch in loader]
    with way.loader(Outer(inner), 3, concurrency=concurrency) as loader:
        assert [np.asarray(batch).tolist() for batch in loader] == expected


def two_draws(_):
    return get_rng().random(), get_rng().random()


@pytest.mark.parametrize("way", [SERIAL, THREAD], ids=str)
def test_the_threads_end_with_the_loader(way):
    with way.loader(Meeting(16), 8, concurrency=4) as loader:
        list(loader)
        assert "gluonloader-read" in {thread.name for thread in threading.enumerate()}
    assert eventually(lambda: "gluonloader-read" not in {thread.name for thread in threading.enumerate()})


class Draws(Numbered):
    """Draws from one generator of several kinds."""

    def __init__(self, kind):
        super().__init__(24)
        self.kind, self.rng = kind, np.random.default_rng(3)

    def __getitem__(self, index):
        draw = {
            "get_rng": lambda: get_rng().random(),
            "random": random.random,
            "numpy": np.random.random,
            "held": self.rng.random,
        }
        return draw[self.kind]()


class DrawsInBulk(Draws):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


DREW = "samples drew random numbers from %s, which several threads share because of concurrency=3"


@pytest.mark.parametrize("dataset", [Draws, DrawsInBulk])
@pytest.mark.parametrize(
    ("kind", "name"),
    [("get_rng", ""), ("random", "`random`"), ("numpy", "`numpy.random`"), ("held", "a generator of the dataset")],
)
def test_draws_from_generators_that_threads_share_are_logged_once(dataset, kind, name, capfd, caplog):
    """A worker process has the handlers of the program, so its log is looked for in what it prints."""
    handler = logging.StreamHandler(os.fdopen(os.dup(2), "w"))
    logging.getLogger("gluonloader").addHandler(handler)
    try:
        with FORK.loader(dataset(kind), 4, num_workers=1, concurrency=3) as loader:
            for _ in range(2):
                list(loader)
    finally:
        logging.getLogger("gluonloader").removeHandler(handler)
        handler.stream.close()
    assert capfd.readouterr().err.count(DREW % name if name else "drew") == (1 if name else 0)
    caplog.clear()
    if dataset is Draws:  # in the caller, only one bulk read runs at a time
        list(SERIAL.loader(dataset(kind), 4, concurrency=3))
        list(THREAD.loader(dataset(kind), 4, concurrency=3))  # never seeds these generators
        found = [record.getMessage() for record in caplog.records]
        assert [text.partition(":")[0] for text in found] == ([DREW % name] if name else [])


def test_the_numbers_of_batchify_fn_are_seeded(every_way):
    with SERIAL.loader(Noisy(12), 4, batchify_fn=global_noise) as loader:
        expected = list(loader)
    if every_way is not THREAD:
        with every_way.loader(Noisy(12), 4, batchify_fn=global_noise, concurrency=3) as loader:
            assert list(loader) == expected


def global_noise(samples):
    return np.random.random(), random.random()
