"""Streams of iterable datasets are closed when their epoch is left, in whatever way, and when their worker ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import pytest
from conftest import eventually, is_running, run_program, workers
from open_streams import KINDS, Closed, Deleted, Finally, Notes

from gluonloader import IterableDataset

pytestmark = [pytest.mark.usefixtures("no_leaks"), pytest.mark.numpy_only]

ROUNDS = int(os.environ.get("GLUONLOADER_ROUNDS", "1"))  # each round leaves about 130 epochs with each executor


class LeftByProgramError(Exception):
    pass


def by_break(loader):
    for _ in loader:
        break


def by_an_error_of_the_program(loader):
    with contextlib.suppress(LeftByProgramError):
        for _ in loader:
            raise LeftByProgramError


def by_an_error_of_the_dataset_or_at_the_end(loader):
    with contextlib.suppress(ValueError):
        for _ in loader:
            pass


def by_close(loader):
    iterator = iter(loader)
    next(iterator)
    iterator.close()
    return iterator


def by_del(loader):
    iterator = iter(loader)
    next(iterator)


def before_the_first_batch(loader):
    iter(loader)


def by_the_next_epoch(loader):
    iterator = iter(loader)
    next(iterator)
    iterator = iter(loader)
    next(iterator)


def two_at_once(loader):
    for _ in zip(loader, loader):
        break


def by_flush(loader):
    iterator = iter(loader)
    next(iterator)
    iterator.flush()
    next(iterator)


def by_another_position(loader):
    iterator = iter(loader)
    state = iterator.state_dict()
    next(iterator)
    iterator.load_state_dict(state)
    next(iterator)


WAYS_OUT = (
    *(by_break, by_an_error_of_the_program, by_an_error_of_the_dataset_or_at_the_end, by_close, by_del),
    *(before_the_first_batch, by_the_next_epoch, two_at_once, by_flush, by_another_position),
)


@pytest.fixture
def notes(tmp_path):
    return Notes(tmp_path)


def loader_over(way, dataset, **arguments):
    return way.loader(IterableDataset(dataset, num_shards=2), 3, batchify_fn=list, **arguments)


# Over Ray one kind is enough, since actors start slowly.
@pytest.mark.parametrize(
    "kind",
    [KINDS[0], *(pytest.param(kind, marks=pytest.mark.local) for kind in KINDS[1:])],
    ids=lambda kind: kind.__name__,
)
def test_no_stream_stays_open(every_way, kind, notes):
    with loader_over(every_way, kind(notes)) as loader:
        for _ in range(ROUNDS):
            for leave in WAYS_OUT:
                kept = leave(loader)
                assert eventually(lambda: not notes.open), leave.__name__
                del kept
    assert notes.opened >= ROUNDS


@pytest.mark.parametrize("kind", [Finally, Deleted, Closed], ids=lambda kind: kind.__name__)
def test_closing_the_loader_closes_the_streams_of_iterators_that_are_not_left(every_way, kind, notes):
    loader = loader_over(every_way, kind(notes))
    iterators = [iter(loader), iter(loader)]
    for iterator in iterators:
        next(iterator)
    assert notes.open > 0
    loader.close()
    assert eventually(lambda: not notes.open)  # close() does not wait long for busy threads


PROGRAM = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from conftest import {way}
from open_streams import Finally, Notes
from gluonloader import IterableDataset
if __name__ == "__main__":
    stream = IterableDataset(Finally(Notes(Path({folder!r}))), num_shards=2)
    loader = {way}.loader(stream, 3, batchify_fn=list)
    iterator = iter(loader)
    print(next(iterator))
"""


@pytest.mark.spawn
@pytest.mark.local
@pytest.mark.parametrize("name", ["SERIAL", "THREAD", "FORK", "FORKSERVER"])
def test_the_end_of_the_program_closes_streams(name, notes, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(path=sys.path, way=name, folder=str(notes.folder)))
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert (ended.stdout, ended.returncode) == ("[0, 2, 4]\n", 0), ended.stderr
    assert notes.opened > 0
    assert eventually(lambda: not notes.open)


class Stuck(Finally):
    """A generator that never ends once it is closed."""

    def samples(self):
        try:
            yield from super().samples()
        finally:
            time.sleep(1000)


@pytest.mark.local  # with Ray, this takes half a minute
def test_a_stream_that_does_not_close_does_not_keep_its_worker(process_way, notes):
    with loader_over(process_way, Stuck(notes)) as loader:
        next(iter(loader))
        assert eventually(lambda: not notes.open)  # a worker is stuck
        pids = workers(loader)
    assert eventually(lambda: not any(map(is_running, pids)))


class FailingToClose(Finally):
    """A generator that fails when it is closed."""

    def samples(self):
        try:
            yield from super().samples()
        finally:
            raise ValueError("close")


@pytest.mark.local
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_error_of_closing_a_stream_costs_no_batch(every_way, notes):
    with loader_over(every_way, FailingToClose(notes)) as loader:
        for _ in range(3):
            assert next(iter(loader)) == [0, 2, 4]
            assert eventually(lambda: not notes.open)


MANY_CYCLES = """
import gc
from contextvars import ContextVar, copy_context
from gluonloader import DataLoader, IterableDataset

variables = [ContextVar(f"variable {number}") for number in range(21)]
loader = DataLoader(IterableDataset(lambda: iter(range(9))), 2, seed=1)
gc.set_threshold(3)
for number in range(3000):
    cycle = [iter(loader)]
    next(cycle[0])
    cycle.append(cycle)
    del cycle
    for variable in variables:
        variable.set(number)
    assert set(map(copy_context().get, variables)) == {number}
print("all kept")
"""


def test_an_epoch_that_the_garbage_collector_ends_costs_no_context_variable():
    done = run_program(MANY_CYCLES)
    assert (done.stdout, done.stderr) == ("all kept\n", "")
