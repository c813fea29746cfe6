"""executor="auto": what it chooses and why, and that the batches do not depend on it."""

import contextlib
import functools
import multiprocessing
import os
import sys
import threading

import numpy as np
import pytest

import gluonloader as gl
from gluonloader.loading import choice
from gluonloader.loading import workers as workers_of_loaders
from gluonloader.loading.choice import Options
from gluonloader.loading.workers import Workers
from gluonloader.work.task import Job

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture(autouse=True)
def without_mxnet(monkeypatch):
    monkeypatch.delitem(sys.modules, "mxnet", raising=False)  # where another test has loaded it


@pytest.fixture(autouse=True)
def gil(monkeypatch):
    """Most tests are about a Python with a GIL."""
    set_gil(monkeypatch, enabled=True)


def set_gil(monkeypatch, enabled):
    for module in (choice, workers_of_loaders):
        monkeypatch.setattr(module, "has_gil", lambda: enabled)


class Squares:
    """Samples, and who made them."""

    def __len__(self):
        return 60

    def __getitem__(self, index):
        return index * index, os.getpid(), gl.get_rng().random()


@gl.gil_free
class Decoded(Squares):
    pass


class ReadsItsOwnWay(Decoded):
    def __getitem__(self, index):
        return super().__getitem__(index)


def plain(samples):
    return list(map(list, zip(*samples, strict=True)))


ROWS = gl.ArrayDataset(np.arange(600).reshape(60, 10), list(range(60)))


def load(dataset, **kwargs):
    arguments = {"num_workers": 2, "executor": "auto", "timeout": 60, "seed": 0, **kwargs}
    return gl.DataLoader(dataset, 10, **arguments)


@pytest.mark.parametrize(
    ("dataset", "options", "executor", "why"),
    [
        (Squares(), {}, "process", "the dataset does not declare"),
        (Decoded(), {}, "thread", "dataset and batchify_fn are declared to release the GIL"),
        (ReadsItsOwnWay(), {}, "process", "the dataset does not declare"),
        (Decoded(), {"batchify_fn": plain}, "process", "batchify_fn does not declare"),
        (Decoded(), {"batchify_fn": gl.gil_free(functools.partial(plain))}, "thread", "declared to release the GIL"),
        (gl.Subset(Decoded(), range(30)), {}, "thread", "declared to release the GIL"),
        (gl.ConcatDataset(Decoded(), Squares()), {}, "process", "the dataset does not declare"),
        (gl.StackDataset(Decoded(), ROWS), {}, "thread", "declared to release the GIL"),
        (ROWS.transform(lambda row, number: row), {}, "process", "the dataset does not declare"),
        (ROWS.transform(gl.gil_free(lambda row, number: row)), {}, "thread", "declared to release the GIL"),
        (ROWS, {"worker_init_fn": print}, "thread", "declared to release the GIL"),
        (gl.IterableDataset(lambda: iter(range(60))), {}, "process", "the dataset does not declare"),
        (gl.gil_free(gl.IterableDataset(lambda: iter(range(60)))), {}, "thread", "declared to release the GIL"),
    ],
)
def test_what_is_declared_decides(dataset, options, executor, why, capsys):
    with load(dataset, **options) as loader:
        assert sum(1 for _ in loader) > 0
        stats = loader.stats()
        assert stats.executor == executor
        assert why in stats.why
        assert stats.num_workers == 2


def draw_from_numpy(index):
    threading.Event().wait(0.005)  # so that the program waits for the batch
    return index + np.random.random()


@pytest.mark.parametrize(
    ("dataset", "executor", "why"),
    [
        (Squares(), "process", "the dataset does not declare that threads may share it (gluonloader.thread_safe)"),
        (gl.thread_safe(Squares()), "thread", "declared to be safe in threads, and this Python has no GIL"),
        (Decoded(), "thread", "declared to be safe in threads"),
        (ReadsItsOwnWay(), "process", "the dataset does not declare"),
    ],
)
def test_without_a_gil_threads_are_used_for_what_is_safe_in_threads(monkeypatch, dataset, executor, why):
    set_gil(monkeypatch, enabled=False)
    with gl.DataLoader(dataset, 1, num_workers=2, executor="auto") as loader:
        assert sum(1 for _ in loader) == 60
        stats = loader.stats()
        assert stats.executor == executor
        assert why in stats.why
        assert ("This Python has no GIL, but the dataset does not" in stats.advice) is (executor == "process")


def test_with_a_gil_what_holds_it_runs_in_processes():
    with load(gl.thread_safe(Squares())) as loader:
        assert loader.stats().executor == "process"


def test_without_a_gil_a_draw_from_a_shared_generator_is_an_error_once_and_no_batch_is_lost(monkeypatch):
    set_gil(monkeypatch, enabled=False)
    dataset = gl.SimpleDataset(range(60)).transform(gl.thread_safe(draw_from_numpy))
    with load(dataset) as loader:
        iterator, numbers, errors = iter(loader), [], []
        while True:
            try:
                numbers += next(iterator).astype(int).tolist()
            except RuntimeError as error:
                errors.append(str(error))
            except StopIteration:
                break
        assert numbers == list(range(60))
    (error,) = errors
    assert "drawn from `numpy.random`, which all threads share" in error
    assert "draw from gluonloader.get_rng(), or pass executor='process'" in error


def options(**changes):
    return Options(**{"executor": "auto", "num_workers": 2, "prefetch": None, "start_method": "fork",
                      "memory_limit": None, **changes})  # fmt: skip


@contextlib.contextmanager
def workers(dataset, **changes):
    """The workers of a loader."""
    job = Job(dataset, gl.default_batchify, changes.pop("worker_init_fn", None), 2, 0, changes.pop("iterable", False))
    started = Workers(job, options(**changes), lambda seed: ())
    started.start(0)
    try:
        yield started
    finally:
        started.close()


def test_small_rows_in_memory_are_read_in_the_caller():
    rows = gl.ArrayDataset(np.zeros((60, 256), np.float32), list(range(60)))
    for dataset in (rows, gl.Subset(rows, [1, 2, 3]), list(range(60)), gl.ArrayDataset(np.zeros((0, 10_000)))):
        with workers(dataset) as started:
            stats = started.stats()
            assert (stats.executor, stats.why) == ("serial", "the samples are small rows in memory")
    with workers(gl.ArrayDataset(np.zeros((60, 2000)))) as started:
        assert started.stats().executor == "thread"
    with workers(rows.transform(lambda row, number: row)) as started:
        assert started.stats().executor == "process"


def makers(loader):
    return {int(pid) for _, pids, *_ in loader for pid in pids}


def test_nothing_is_read_here_that_a_process_may_read():
    with load(Squares()) as loader:
        assert os.getpid() not in makers(loader)


def test_in_a_worker_process_it_takes_the_caller_where_nothing_is_said():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(choice_of, (Squares(),)) == "serial"


def choice_of(dataset):
    with load(dataset) as loader:
        list(loader)
        return loader.stats().executor


def test_as_many_workers_as_cores(monkeypatch):
    monkeypatch.setattr("gluonloader.arguments.arguments.available_cores", lambda: 3)
    for arguments in ({"num_workers": "auto"}, {"executor": "auto"}, {"num_workers": "auto", "executor": "auto"}):
        with gl.DataLoader(Decoded(), 10, **arguments) as loader:
            assert (loader.stats().num_workers, loader.stats().executor) == (3, "thread")
    with gl.DataLoader(Decoded(), 10, num_workers="auto", executor="process") as loader:
        assert (loader.stats().num_workers, loader.stats().executor) == (3, "process")
    with pytest.raises(ValueError, match="num_workers='many': must be an int >= 0, or 'auto'"):
        gl.DataLoader(Decoded(), 10, num_workers="many")
    right = "executor='fastest': must be 'serial', 'thread', 'process', 'ray', 'auto', or None"
    with pytest.raises(ValueError, match=right):
        gl.DataLoader(Decoded(), 10, executor="fastest")
