"""Errors, timeouts, dying workers, threads. Gluon hangs or loses batches here, so each test runs in a child process."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading

import pytest
from parity import Custom, Deadly, Spoiled, kill, leave, until_the_end

from .differences import differs
from .sides import GLUON, WAYS, Hung, epoch, in_child


def spoiled_batchify(samples):
    raise Custom("no batch")


@pytest.mark.parametrize("error", [OSError("no file"), KeyError("k"), Custom("mine")], ids=repr)
def test_an_error_in_a_dataset_keeps_its_type(gdata, way, error):
    loader = gdata.DataLoader(Spoiled(2, 1, error), 2, **WAYS[way])
    with pytest.raises(type(error)) as raised:
        list(loader)
    assert raised.value.args == error.args


def test_an_error_in_a_worker_shows_the_workers_traceback(gdata):
    loader = gdata.DataLoader(Spoiled(2, 1, OSError("no file")), 2, **WAYS["processes"])
    with pytest.raises(OSError, match="no file") as raised:
        list(loader)
    assert "in __getitem__" in str(raised.value.__cause__)


def test_an_error_in_a_batchify_fn_keeps_its_type(gdata, way):
    with pytest.raises(Custom, match="no batch"):
        list(gdata.DataLoader([1, 2], 2, batchify_fn=spoiled_batchify, **WAYS[way]))


def test_an_error_comes_after_the_batches_before_it(gdata):
    assert until_the_end(iter(gdata.DataLoader(Spoiled(6, 3, OSError()), 1)))[:4] == [[0], [1], [2], "OSError"]


def test_stop_iteration_in_a_dataset_without_workers_is_an_error(gdata):
    with pytest.raises(RuntimeError):
        epoch(gdata.DataLoader(Spoiled(6, 3, StopIteration()), 1))


ONE_BY_ONE = {"num_workers": 2, "prefetch": 0, "timeout": 2.5}


@differs("worker-death", raises=multiprocessing.TimeoutError)
@pytest.mark.parametrize("end", [kill, leave])
def test_a_worker_that_dies_costs_no_batch(gdata, end, tmp_path):
    dataset = Deadly(end, str(tmp_path / "died"))
    loaded = in_child(lambda: epoch(gdata.DataLoader(dataset, 1, **ONE_BY_ONE)))
    assert loaded == [[i] for i in range(6)]


# A program of its own: whether Gluon hangs depends on what its process did before, and here it hangs nearly always.
DELETES = """
import importlib, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
importlib.import_module("gluonloader.mxnet").patch_numpy()
gdata = importlib.import_module(sys.argv[1])

def large_batchify(samples):
    return np.ones((len(samples), 4_000_000), np.uint8)

print("imported", flush=True)
for _ in range(6):
    loader = gdata.DataLoader(range(100), 1, batchify_fn=large_batchify, num_workers=8, prefetch=40)
    batches = iter(loader)
    next(batches)
    del batches, loader
"""


@differs("deletion", raises=Hung)
def test_a_loader_can_be_deleted_with_work_in_flight(gdata):
    command = [sys.executable, "-c", DELETES, gdata.__name__]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as program:
        try:
            assert program.stdout.readline() == b"imported\n"
            # On a busy machine this takes more than 15 seconds without any fault; Gluon's program never ends.
            assert program.wait(timeout=15 if gdata is GLUON else 120) == 0
        except subprocess.TimeoutExpired:
            raise Hung from None
        finally:
            with contextlib.suppress(ProcessLookupError):  # all have ended
                os.killpg(program.pid, signal.SIGKILL)


def test_a_loader_can_be_used_in_another_thread_than_it_was_made_in(gdata, way):
    loader = gdata.DataLoader(range(4), 2, **WAYS[way])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(epoch, loader).result() == [[0, 1], [2, 3]]


class Drawing:
    """Random numbers of Python's own generator."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return random.getrandbits(40)


def test_workers_have_random_streams_of_pythons_own_generator(gdata):
    assert len(set(sum(epoch(gdata.DataLoader(Drawing(), 1, **WAYS["processes"])), []))) == 6


def test_a_forked_child_has_loaders_of_its_own(gdata):
    def body():
        loader = gdata.DataLoader(range(4), 2, **WAYS["processes"])
        return epoch(loader)

    assert body() == in_child(body) == [[0, 1], [2, 3]]


def test_the_main_program_gets_ctrl_c(gdata):
    """Gluon's workers are made with SIGINT ignored; the main program's handler is as it was."""
    before = signal.getsignal(signal.SIGINT)
    loader = gdata.DataLoader(range(4), 2, **WAYS["processes"])
    assert signal.getsignal(signal.SIGINT) is before
    assert epoch(loader) == [[0, 1], [2, 3]]


def test_loaders_in_several_threads(gdata, way):
    if way == "processes" and gdata is GLUON:
        pytest.skip("Gluon may hang where one thread forks while another one uses MXNet")
    loaders = [gdata.DataLoader(range(8), 2, **WAYS[way]) for _ in range(3)]
    results = {}
    threads = [threading.Thread(target=lambda i=i: results.update({i: epoch(loaders[i])})) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: [[0, 1], [2, 3], [4, 5], [6, 7]] for i in range(3)}
