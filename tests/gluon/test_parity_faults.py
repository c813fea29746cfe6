"""Errors of the user's code, dying workers, and the deletion of a loader with work in flight."""

import contextlib
import functools
import multiprocessing
import os
import signal
import subprocess
import sys

import pytest
from parity import Custom, Deadly, Spoiled, kill, leave

from .sides import GLUON, WAYS, Hung, differs, epoch, in_child


def fail(error, samples):
    raise error


@pytest.mark.parametrize("error", [OSError("no file"), KeyError("k"), Custom("mine")], ids=repr)
def test_an_error_of_a_dataset_or_a_batchify_fn_keeps_its_type(gdata, way, error):
    for dataset, batchify_fn in ((Spoiled(2, 1, error), None), ([1, 2], functools.partial(fail, error))):
        with pytest.raises(type(error)) as raised:
            list(gdata.DataLoader(dataset, 2, batchify_fn=batchify_fn, **WAYS[way]))
        assert raised.value.args == error.args


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


# A separate program: whether Gluon hangs depends on what its process did before, and here it hangs nearly always.
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
