"""Datasets with `async def` methods: a worker awaits them on an event loop, in a thread of the loop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import threading

import numpy as np
import pytest
from conftest import SERIAL, THREAD, eventually, run_program
from interrupting import Alarm, SignalAt
from noisy import AsyncNoisy, AsyncNoisyBulk, Noisy, NoisyBulk, add_noise, add_noise_later, and_noise, numbers
from samples import Numbered

import gluonloader as gl

pytestmark = pytest.mark.usefixtures("no_leaks", "quiet")


@pytest.fixture
def quiet(caplog):
    """asyncio reports tasks that were destroyed, and exceptions that nobody saw, only to its log."""
    caplog.set_level(logging.WARNING, "asyncio")
    yield
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


class Arrivals(threading.local):
    """How many samples of the event loop of this thread have started, and a future that every fourth one sets."""

    count, fourth = 0, None


arrivals = Arrivals()


class Meeting(Numbered):
    """A sample ends only when four samples are awaited at the same time."""

    async def __getitem__(self, index):
        if arrivals.count % 4 == 0:
            arrivals.fourth = asyncio.get_running_loop().create_future()
        fourth = arrivals.fourth
        arrivals.count += 1
        if arrivals.count % 4 == 0:
            fourth.set_result(None)
        await fourth
        return np.full(5, index)


def test_samples_of_a_batch_are_awaited_at_the_same_time(every_way):
    with every_way.loader(Meeting(16), 8, concurrency=4) as loader:
        for _ in range(2):
            assert [int(batch[0, 0]) for batch in loader] == [0, 8]


@pytest.mark.parametrize("kinds", [(AsyncNoisy, Noisy), (AsyncNoisyBulk, NoisyBulk)], ids=["samples", "bulk"])
def test_batches_are_those_of_a_dataset_that_is_not_async(every_way, kinds):
    awaited, plain = (kind(30) for kind in kinds)
    with SERIAL.loader(gl.Subset(plain, range(24)).transform(add_noise), 8, True, batchify_fn=and_noise) as loader:
        expected = [numbers(loader) for _ in range(2)]
    for transform in (add_noise, add_noise_later):
        dataset = gl.Subset(awaited, range(24)).transform(transform)
        with every_way.loader(dataset, 8, True, batchify_fn=and_noise, concurrency=3) as loader:
            assert [numbers(loader) for _ in range(2)] == expected


def test_samples_of_joined_datasets_are_awaited():
    dataset = gl.ConcatDataset(gl.SimpleDataset(AsyncNoisy(3)), [(9, 0.0, 0.0, 0)])
    assert next(iter(SERIAL.loader(dataset, 4)))[0].tolist() == [0, 1, 2, 9]


class Failing(Numbered):
    """Sample 3 fails after sample 5 has failed; sample 6 never ends."""

    async def __getitem__(self, index):
        if index == 5:
            raise LookupError("five")
        if index == 3:
            await asyncio.sleep(0.001)
            raise StopIteration if self.size == 9 else KeyError("three")
        if index == 6:
            await asyncio.sleep(3600)
        return index


@pytest.mark.parametrize("size", [8, 9])
def test_the_error_is_that_of_the_first_sample(every_way, size):
    with every_way.loader(Failing(size), 8, concurrency=8) as loader:
        iterator = iter(loader)
        with pytest.raises(KeyError if size == 8 else RuntimeError) as caught:
            next(iterator)
        assert caught.value.__notes__[0] == "gluonloader: in dataset[3], batch 0 of epoch 0"
        assert [batch.tolist() for batch in iterator] == ([] if size == 8 else [[8]])


def test_it_works_inside_of_a_running_event_loop():
    async def main():
        return [batch[0].tolist() for batch in SERIAL.loader(AsyncNoisy(4), 2, concurrency=2)]

    assert asyncio.run(main()) == [[0, 1], [2, 3]]


class Endless(Numbered):
    cancelled = started = 0

    async def __getitem__(self, index):
        self.started += 1
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@pytest.mark.parametrize("way", [SERIAL, THREAD], ids=str)
def test_closing_cancels_what_is_awaited(way):
    dataset = Endless()
    loader = way.loader(dataset, 4, concurrency=3)
    reader = threading.Thread(target=lambda: pytest.raises((gl.errors.LoaderClosed, StopIteration), next, iter(loader)))
    reader.start()
    awaited = 3 if way is SERIAL else 6
    assert eventually(lambda: dataset.started == awaited)
    loader.close()
    reader.join(60)
    assert not reader.is_alive()
    assert dataset.cancelled == dataset.started == awaited
    assert eventually(lambda: "gluonloader-loop" not in {thread.name for thread in threading.enumerate()})


class EndlessInWorker(Numbered):
    """Notes in a file which samples were started (+) and cancelled (-)."""

    def __init__(self, size, notes):
        super().__init__(size)
        self.notes = notes

    def note(self, character):
        with open(self.notes, "a") as file:
            file.write(character)

    async def __getitem__(self, index):
        self.note("+")
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.note("-")
            raise


def test_closing_cancels_what_workers_await(process_way, tmp_path):
    notes = tmp_path / "notes"
    loader = process_way.loader(EndlessInWorker(8, notes), 4, concurrency=3)
    iter(loader)
    assert eventually(lambda: notes.exists() and notes.read_text() == "+" * 6)
    loader.close()
    assert eventually(lambda: notes.read_text() == "+" * 6 + "-" * 6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # as in test_interrupts.py
@pytest.mark.parametrize("bulk", [False, True])
def test_an_interrupt_at_any_point_loses_nothing(alarms, bulk):
    point, where, expected = 0, "start", [[0, 1], [2, 3], [4, 5]]
    while where:
        with SERIAL.loader((AsyncNoisyBulk if bulk else AsyncNoisy)(6), 2, concurrency=2) as loader:
            iterator, read, interrupts = iter(loader), [], 0
            with SignalAt(point, signal.SIGALRM) as signalled:
                try:
                    read.append(next(iterator)[0].tolist())
                except Alarm:
                    interrupts += 1
            read += [batch[0].tolist() for batch in iterator]
        where, point = signalled.where, point + 5
        assert read in (expected, expected[interrupts:]), where


CLOSED_BY_EXIT = """
import asyncio, gluonloader as gl, sys, threading, time
class Endless:
    def __len__(self):
        return 8
    async def __getitem__(self, index):
        if index >= 4:
            await asyncio.sleep(3600)
        return index
loader = gl.DataLoader(Endless(), 4, concurrency=2, **eval(sys.argv[1]))
print(next(iter(loader)).tolist())
"""


@pytest.mark.spawn
@pytest.mark.parametrize("way", [SERIAL, THREAD, "process"], ids=str)
def test_a_program_ends_quietly_while_samples_are_awaited(way):
    arguments = {"num_workers": 2} if way == "process" else way.arguments
    done = run_program(CLOSED_BY_EXIT, repr(arguments))
    assert (done.stdout, done.stderr, done.returncode) == ("[0, 1, 2, 3]\n", "", 0)


def test_samples_that_are_not_awaited_are_an_error():
    sample = asyncio.sleep(0)
    sample.close()  # or Python warns
    with pytest.raises(
        gl.errors.BatchifyError, match="coroutines, which nobody has awaited; .* only if the dataset has an"
    ):
        gl.default_batchify([sample])


@pytest.mark.parametrize("transform", [gl.Dataset.transform, gl.Dataset.transform_first])
def test_a_transform_of_a_dataset_that_is_not_async_must_not_be_async(transform):
    with pytest.raises(ValueError, match=r"fn=.*SimpleDataset are not awaited, .* pass an ordinary function"):
        transform(gl.SimpleDataset([1]), add_noise_later)


def test_datasets_that_cannot_await_their_parts_say_so():
    for dataset in (gl.ArrayDataset(AsyncNoisy(3), [1, 2, 3]), gl.SimpleDataset(gl.StackDataset(x=AsyncNoisy(3)))):
        with pytest.raises(ValueError, match=r"Dataset contains AsyncNoisy, whose samples are awaited, but"):
            SERIAL.loader(dataset, 2)
    awaited = gl.SimpleDataset(AsyncNoisy(3))
    with pytest.raises(ValueError, match="lazy=False: only a loader can await the samples of SimpleDataset"):
        awaited.transform(add_noise, lazy=False)
    with pytest.raises(ValueError, match="batched=True: only a loader can await the samples of SimpleDataset"):
        awaited.transform(add_noise, batched=True)
    with pytest.raises(ValueError, match="filter: the samples of SimpleDataset are awaited, so"):
        awaited.filter(bool)
