"""What a dataset shares with the program: locks, queues, pipes, values, sockets; tests/pytorch compares with torch."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal

import pytest
from conftest import NEW_INTERPRETERS, START_METHODS, eventually, is_running, workers
from inherited import KINDS, Sharing

import gluonloader as gl

pytestmark = [pytest.mark.usefixtures("no_leaks"), pytest.mark.numpy_only, pytest.mark.local]

NAMES = [way.arguments.get("start_method") for way in START_METHODS]


@pytest.fixture
def made(request):
    """Makes a dataset of some kinds for a start method, and ends it with the test."""
    datasets = []

    def make(kinds, start_method):
        datasets.append(Sharing(kinds, multiprocessing.get_context(start_method)))
        return datasets[-1]

    yield make
    for dataset in datasets:
        dataset.end()


@pytest.mark.parametrize("start_method", NAMES)
def test_workers_see_what_the_program_does_and_the_reverse(made, start_method):
    """With one worker: of two, both may make a batch that has waited behind a slow one."""
    dataset = made(KINDS.values(), start_method)
    with gl.DataLoader(dataset, 4, num_workers=1, start_method=start_method, timeout=60) as loader:
        dataset.hand_over()
        for _ in range(2):
            dataset.tell()
            assert dataset.missing(loader) == []


@pytest.mark.parametrize("start_method", NAMES)
def test_a_worker_that_replaces_a_dead_one_has_them_too(made, start_method):
    left_out = {"AnswerQueue"} | ({"Pipe", "Socket"} if start_method == "fork" else set())
    dataset = made([kind for name, kind in KINDS.items() if name not in left_out], start_method)
    with gl.DataLoader(dataset, 4, num_workers=1, start_method=start_method, timeout=60) as loader:
        dataset.hand_over()
        dataset.tell()
        assert dataset.missing(loader) == []
        for pid in workers(loader):
            os.kill(pid, signal.SIGKILL)
            assert eventually(lambda pid=pid: not is_running(pid))
        dataset.tell()
        assert dataset.missing(loader) == []
        assert loader.stats().deaths == 1


@pytest.mark.parametrize("start_method", [way.arguments["start_method"] for way in NEW_INTERPRETERS])
@pytest.mark.parametrize(("kind", "place"), [("Value", ""), ("Lock", ""), ("Barrier", ""), ("Queue", "")])
def test_locks_for_forked_workers_are_refused(made, start_method, kind, place):
    text = (
        f"start_method='{start_method}' needs to pickle dataset, but this failed: dataset.shared[0]{place}: "
        "multiprocessing has made it for forked processes. Make it with "
        f"multiprocessing.get_context('{start_method}'), or use start_method='fork'"
    )
    dataset = made([KINDS[kind]], "fork")
    with pytest.raises(gl.errors.TransportError, match=f"^{re.escape(text)}$"):
        gl.DataLoader(dataset, 1, num_workers=1, start_method=start_method)


def test_too_many_descriptors_for_the_fork_server(made):
    dataset = made([KINDS["Socket"]] * 260, "forkserver")
    with pytest.raises(
        gl.errors.TransportError, match="passes at most 250 open files.*contains 260.*start_method='spawn'"
    ):
        gl.DataLoader(dataset, 1, num_workers=1, start_method="forkserver")
