"""The two packages that every test here compares, and helpers to inspect a batch. Skips if MXNet cannot be imported.

`differs` marks a test that must fail with Gluon; `cases` is a table of calls with the results of both.
"""

import importlib
import multiprocessing
import os
import signal
import traceback
import warnings
from multiprocessing.connection import wait

import numpy as np
import pytest
from parity import differences_on, differing, differing_cases
from parity import shown as lists

import gluonloader.mxnet

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of MXNet's import, with every NumPy
    gluonloader.mxnet.patch_numpy()
    mx = pytest.importorskip("mxnet")
    importlib.import_module("mxnet.gluon.contrib.data")

SIDES = {"gluon": mx.gluon.data, "gluonloader": gluonloader.mxnet}
GLUON, OURS = SIDES.values()

DIFFERENCES = differences_on("gluon.md")
differs = differing(DIFFERENCES, "gdata", "gluon")
cases = differing_cases(DIFFERENCES, "gdata", "gluon")

WAYS = {"serial": {}, "threads": {"num_workers": 2, "thread_pool": True}, "processes": {"num_workers": 2}}
CONTEXTS = {"serial": "cpu(0)", "threads": "cpu_shared(0)", "processes": "cpu_shared(0)"}

# For what MXNet itself does not allow in several threads at once: its Blocks, such as the vision transforms.
NOT_THREADS = pytest.mark.parametrize("way", ["serial", "processes"])

# For tests of programs that import MXNet without a call of `patch_numpy`.
needs_old_numpy = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) >= "1.24.0", reason="MXNet itself needs NumPy older than 1.24"
)

BFLOAT16 = np.dtype([("bfloat16", np.uint16)])  # what MXNet 1.9.1 calls it


def facts(batch, context=None):
    """A batch in plain terms: containers by their own type, arrays as (class, context, dtype, values)."""
    if isinstance(batch, dict):
        return {key: facts(value, context) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        parts = [facts(part, context) for part in batch]
        return parts if type(batch) is list else tuple(parts)
    if isinstance(batch, np.ndarray):
        return "numpy", batch.dtype.name, batch.tolist()
    if isinstance(batch, mx.nd.NDArray):
        kind = "np" if isinstance(batch, mx.np.ndarray) else "nd"
        return kind, context or str(batch.ctx), np.dtype(batch.dtype).name, batch.asnumpy().tolist()
    return batch


def epoch(loader):
    return [lists(batch) for batch in loader]


def batch_of(gdata, samples, way="serial", **arguments):
    """The one batch of some samples, in plain terms."""
    (batch,) = gdata.DataLoader(samples, len(samples), **WAYS[way], **arguments)
    return facts(batch)


def interval_sampler(gdata):
    """Gluon 1.9 has it under another name."""
    return getattr(gdata, "IntervalSampler", mx.gluon.contrib.data.IntervalSampler)


def items(dataset):
    return [dataset[i] for i in range(len(dataset))]


class Hung(Exception):
    """A child process did not end in time."""


def in_child(function, *args, seconds=20.0):
    """What `function(*args)` returns or raises in a forked child that is killed, with its children, if it is late.

    For what hangs in Gluon, and for what may leave its pools in a state that hangs later.
    """
    reader, writer = multiprocessing.Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        _serve(function, args, writer)
    writer.close()
    try:
        if not wait([reader], seconds):
            raise Hung(f"no answer within {seconds} seconds")
        raised, value = reader.recv()
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        reader.close()
    if raised:
        raise value
    return value


def _serve(function, args, writer):
    # Its own group, so that grandchildren can be ended with it; all signals as a fresh program has them.
    os.setpgid(0, 0)
    signal.alarm(0)
    warnings.simplefilter("ignore")
    try:
        try:
            answer = False, function(*args)
        except BaseException as error:
            traceback.print_exc()
            answer = True, error if isinstance(error, Exception) else RuntimeError(repr(error))
        writer.send(answer)
        while True:  # each signal that has a handler ends one pause
            signal.pause()
    finally:
        os._exit(1)  # the child must not go on with the tests of its parent
