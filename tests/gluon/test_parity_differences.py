"""What differs from Gluon, as a table: a call, and its result with both. docs/gluon.md has the reasons.

Differences that need a fixture are below the tables and in the other files, marked with `differs`.
"""

import concurrent.futures
import contextlib
import gc
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest
from parity import (
    OTHER,
    Case,
    Custom,
    Deadly,
    Drawn,
    Spoiled,
    Stuck,
    check_case,
    check_that_each_has_a_test,
    error_names,
    in_a_daemonic_process,
    kill,
    late,
    leave,
    until_the_end,
)

from .sides import (
    BFLOAT16,
    DIFFERENCES,
    GLUON,
    WAYS,
    Hung,
    batch_of,
    cases,
    differs,
    epoch,
    in_child,
    interval_sampler,
    lists,
    mx,
)  # fmt: skip

PROCESSES, THREADS = WAYS["processes"], WAYS["threads"]
ONE_BY_ONE = {"num_workers": 2, "prefetch": 0, "timeout": 2.5}

# Gluon's loader has a __del__ that fails when its constructor failed.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*nested sequences"),
    pytest.mark.filterwarnings("ignore:pin_memory=True, but:RuntimeWarning"),
]

Pair = namedtuple("Pair", "first second")


# -- Interface --------------------------------------------------------------------------------------------------------


def refused(text, make):
    """A call that fails with a ValueError that names something."""
    return lambda gdata: error_names(text, lambda: make(gdata))


def refused_loader(text, dataset=(1, 2, 3, 4), **arguments):
    return refused(text, lambda gdata: gdata.DataLoader(dataset, **arguments))


def closed(gdata):
    loader = gdata.DataLoader(range(4), 2)
    with loader:
        batches = epoch(loader)
    loader.close()
    return batches, error_names("closed", lambda: iter(loader), RuntimeError)


def with_options(gdata):
    loaders = [gdata.DataLoader(range(9), 3, True, seed=5, num_workers=n, memory_limit="64MB") for n in (0, 2)]
    return epoch(loaders[0]) == epoch(loaders[1])


def twice(samples):
    return np.array(samples) * 2


@cases(
    Case("gluon-2-names", lambda g: issubclass(g.IntervalSampler, mx.gluon.data.Sampler), "AttributeError", True),
    Case("gluon-2-names", lambda g: {"Append", "AsList", "Group"} <= vars(g.batchify).keys(), "AttributeError",
         True),
    Case("loader-options", with_options, "TypeError", True),
    Case("close", closed, OTHER, ([[0, 1], [2, 3]], True)),
    Case("no-timeout", lambda g: epoch(g.DataLoader([1, 2], 2, timeout=None)), "TypeError", [[1, 2]]),
    Case("arguments-checked", refused_loader("batch_size", batch_size=0), None, True),
    Case("arguments-checked", refused_loader("batch_size", batch_size=-1), None, True),
    Case("arguments-checked", refused_loader("last_batch", batch_size=2, last_batch="drop"), None, True),
    Case("arguments-checked", refused("", lambda g: g.BatchSampler(range(4), 0, "keep")), None, True),
    Case("arguments-checked", refused("", lambda g: g.BatchSampler(range(4), 2, "drop")), None, True),
    Case("arguments-checked", refused("count", lambda g: g.SimpleDataset([1]).take(-1)), None, True),
    Case("value-errors", refused_loader("timeout", batch_size=1, timeout=0), "AssertionError", True),
    Case("value-errors", refused_loader("timeout", batch_size=1, timeout=-1), "AssertionError", True),
    Case("value-errors", refused("", lambda g: g.ArrayDataset([1, 2], [1])), "AssertionError", True),
    Case("value-errors", refused("", lambda g: g.SimpleDataset([1, 2]).shard(2, 2)), "AssertionError", True),
    Case("value-errors", refused("", lambda g: g.SimpleDataset([1, 2]).shard(0, 0)), "AssertionError", True),
    Case("value-errors", refused("", lambda g: g.SimpleDataset([1, 2]).shard(2, -1)), "AssertionError", True),
    Case("one-shot-samplers", refused_loader("once", batch_size=1, sampler=iter([0, 1])), None, True),
    Case("one-shot-samplers", refused_loader("once", batch_sampler=iter([[0], [1]])), None, True),
    Case("any-sampler", lambda g: list(g.SimpleDataset([10, 11, 12]).sample([2, 0])), "TypeError", [12, 10]),
    Case("lambda-batchify",
         lambda g: epoch(g.DataLoader(range(4), 2, batchify_fn=lambda samples: twice(samples), **PROCESSES)),
         OTHER, [[0, 2], [4, 6]]),
)  # fmt: skip
def test_the_interface(gdata, case, wanted):
    check_case(gdata, case, wanted)


@differs("quiet-failure")
def test_a_constructor_that_fails_leaves_no_second_error(gdata, monkeypatch):
    later = []
    gc.collect()  # the loaders of other tests
    monkeypatch.setattr("sys.unraisablehook", later.append)
    with pytest.raises(ValueError):
        gdata.DataLoader([1, 2])
    assert later == []


# -- Order and length -------------------------------------------------------------------------------------------------


def after_a_break(batches):
    """The first batch of the third epoch, if the second one was left at its beginning."""
    list(batches)
    for _ in batches:
        break
    return lists(next(iter(list(batches))))


def lengths_within_an_epoch(gdata):
    loader = gdata.DataLoader(range(10), 4, last_batch="rollover")
    epoch(loader)
    batches = iter(loader)
    within = [(lists(next(batches))[0], len(loader)) for _ in range(2)]
    return within, len(epoch(batches)), len(loader)


def same_order_after_other_draws(gdata):
    orders = []
    for others in (0, 5):
        np.random.seed(7)
        loader = gdata.DataLoader(range(20), 20, shuffle=True)
        np.random.random(others)
        orders.append(epoch(loader))
    return orders[0] == orders[1]


class Wraps:
    """Its reads never end by an IndexError: a modulo, a generator of data, a file that is read around."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        if index > 1000:
            raise RuntimeError("reads on and on")
        return index % 3


def drawn_by_iter(gdata):
    drawn = Drawn(8)
    batches = iter(gdata.DataLoader(range(8), batch_sampler=drawn, prefetch=3, **THREADS))
    return drawn.drawn, len(epoch(batches))


def wraps(gdata):
    return type("Wrapping", (Wraps, gdata.Dataset), {})()


@cases(
    Case("rollover-kept", lambda g: after_a_break(g.DataLoader(range(10), 4, last_batch="rollover")), OTHER,
         [8, 9, 0, 1]),
    Case("rollover-kept", lambda g: after_a_break(g.BatchSampler(range(5), 3, "rollover")), OTHER, [3, 4, 0]),
    Case("rollover-length", lengths_within_an_epoch, OTHER, ([(8, 3), (2, 3)], 1, 2)),
    Case("shuffle-order", same_order_after_other_draws, False, True),
    Case("interval-length", lambda g: len(interval_sampler(g)(10, 3, rollover=False)), 10, 4),
    Case("dataset-length", lambda g: list(wraps(g).filter(bool)), "RuntimeError", [1, 2]),
    Case("dataset-length", lambda g: list(wraps(g).transform(bool, lazy=False)), "RuntimeError",
         [False, True, True]),
    Case("eager-iterators", drawn_by_iter, (0, 8), (3, 8)),
)  # fmt: skip
def test_order_and_length(gdata, case, wanted):
    check_case(gdata, case, wanted)


# -- Batches ----------------------------------------------------------------------------------------------------------


def nd(dtype, values):
    return "nd", "cpu(0)", dtype, values


def zero_size(gdata):
    (batch,) = gdata.DataLoader(np.ones((3, 0, 2), np.float32), 3, **PROCESSES)
    return batch.dtype == np.float32


def bfloat16(gdata):
    samples = [mx.nd.array([i, 1]).astype(BFLOAT16) for i in (0, 1)]
    (batch,) = gdata.DataLoader(samples, 2, num_workers=1)
    return batch.dtype == BFLOAT16, batch.astype("float32").asnumpy().tolist()


def in_the_numpy_mode(gdata):
    with mx.util.np_shape(True), mx.util.np_array(True):
        return batch_of(gdata, [mx.nd.ones(1)] * 2)[1:]


def pinned(gdata, batchify):
    (batch,) = gdata.DataLoader([1, 2], 2, batchify_fn=batchify, pin_memory=True)
    return type(batch), str((batch["x"] if isinstance(batch, dict) else batch[0]).ctx)


NOT_A_BATCH = [
    [np.ones(2), np.ones(3)],
    [[1], [1, 2]],
    [None, None],
    [np.ones(1), mx.nd.ones(1)],
    [2**70, 1],
    [[mx.nd.ones(1)], [mx.nd.ones(1)]],
]
SHAPES = [(3,), (2, 1), (1, 2), (4,), (2, 2)]


def shapes_in_the_error(shape):
    samples = [(mx.nd.ones(each), 0) for each in [(2,), (2,), shape, (2,)]]
    text = f"[0]: it has shape {shape}, but other samples have shape (2,)"
    return lambda gdata: error_names(text, lambda: batch_of(gdata, samples))


@cases(
    Case("structures", lambda g: batch_of(g, [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]), "KeyError",
         {"x": nd("int64", [1, 2]), "y": ["a", "b"]}),
    Case("structures", lambda g: batch_of(g, ["a", "b"]), "KeyError", ["a", "b"]),
    Case("structures", lambda g: batch_of(g, [b"a", b"b"]), "KeyError", [b"a", b"b"]),
    Case("structures", lambda g: batch_of(g, [(1, "a"), (2, "b")]), "KeyError", [nd("int64", [1, 2]), ["a", "b"]]),
    Case("short-tuples", refused("2 fields", lambda g: batch_of(g, [(1, 2), (1,)])), None, True),
    *(Case("batchify-errors", refused("(row ", lambda g, s=s: batch_of(g, s)), OTHER, True) for s in NOT_A_BATCH),
    *(Case("batchify-errors", shapes_in_the_error(shape), OTHER, True) for shape in SHAPES),
    *(Case("other-types", refused("(row ", lambda g, s=s: batch_of(g, s)), None, True)
      for s in ([range(2)] * 2, [np.ma.array([1, 2], mask=[0, 1])] * 2, [np.zeros(2), [1, 2]])),
    Case("ndarray-dtypes", lambda g: batch_of(g, [mx.nd.ones(1), mx.nd.ones(1, dtype="float64")]), "MXNetError",
         nd("float64", [[1], [1]])),
    Case("foreign-arrays", lambda g: batch_of(g, [mx.np.ones(1)] * 2)[1:], "TypeError",
         nd("float32", [[1], [1]])[1:]),
    Case("foreign-arrays", in_the_numpy_mode, "TypeError", nd("float32", [[1], [1]])[1:]),
    Case("zero-size", zero_size, "MXNetError", True),
    Case("bfloat16", bfloat16, "KeyError", (True, [[0, 1], [1, 1]])),
    Case("pinned-containers", lambda g: pinned(g, lambda samples: {"x": mx.nd.array(samples)}), OTHER,
         (dict, "cpu_pinned(0)")),
    Case("pinned-containers", lambda g: pinned(g, lambda samples: Pair(mx.nd.array(samples), 1)), OTHER,
         (Pair, "cpu_pinned(0)")),
)  # fmt: skip
def test_batches(gdata, case, wanted):
    check_case(gdata, case, wanted)


# -- Faults -----------------------------------------------------------------------------------------------------------


class Broken:
    """A batch sampler that fails after two batches."""

    def __len__(self):
        return 3

    def __iter__(self):
        yield [0]
        yield [1]
        raise Custom


def late_with(gdata):
    batches = iter(gdata.DataLoader(Stuck(100), 1, timeout=1.2, num_workers=1))
    return late(batches, multiprocessing.TimeoutError)


def with_exits(gdata, end):
    return in_child(lambda: until_the_end(iter(gdata.DataLoader(Deadly(end), 2, **ONE_BY_ONE))))


def death_is_named(gdata):
    def body():
        batches = iter(gdata.DataLoader(Deadly(kill), 2, **ONE_BY_ONE))
        next(batches)
        return error_names("dataset[3]", lambda: next(batches), RuntimeError)

    return in_child(body)


def two_epochs_with_errors(gdata):
    loader = gdata.DataLoader(Spoiled(2, 1, OSError()), 2, **PROCESSES)
    return [until_the_end(iter(loader)) for _ in range(2)]


def in_a_thread(gdata):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: epoch(gdata.DataLoader(range(4), 2, **PROCESSES))).result()


class Meeting:
    """A random number for each sample; the first two are loaded by two workers."""

    def __init__(self, draw):
        self.draw, self.both = draw, multiprocessing.get_context("fork").Barrier(2)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        if index < 2:
            self.both.wait(20)
        return self.draw()


def streams(gdata, draw):
    """How many of six random numbers from two workers differ."""
    return len(set(sum(epoch(gdata.DataLoader(Meeting(draw), 1, **PROCESSES)), [])))


def kept_batches(gdata):
    def body():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        samples = [tuple(np.full(4, i, np.float32) for _ in range(6)) for i in range(80)]
        kept = list(gdata.DataLoader(samples, 1, **PROCESSES))
        return [batch[5].asnumpy()[0, 3] for batch in kept]

    return in_child(body)


@cases(
    Case("errors-and-epochs", lambda g: until_the_end(iter(g.DataLoader(Spoiled(6, 3, OSError()), 2))),
         [[0, 1], "OSError", "end"], [[0, 1], "OSError", [4, 5], "end"]),
    Case("errors-and-epochs", two_epochs_with_errors, OTHER, [["OSError", "end"]] * 2),
    Case("sampler-errors",
         lambda g: until_the_end(iter(g.DataLoader(range(3), batch_sampler=Broken(), **THREADS))), OTHER,
         [[0], [1], "Custom", "end"]),
    Case("stop-iteration",
         lambda g: in_child(lambda: epoch(g.DataLoader(Spoiled(6, 3, StopIteration()), 1, **PROCESSES))),
         [[0], [1], [2]], "RuntimeError"),
    Case("late-batches", lambda g: in_child(lambda: late_with(g)), ([0], False, ["end"]),
         ([0], True, [[2], "end"])),
    Case("worker-death", lambda g: with_exits(g, leave), OTHER, [[0, 1], "WorkerDied", [4, 5], "end"]),
    Case("worker-death", death_is_named, "TimeoutError", True),
    Case("worker-exit", lambda g: with_exits(g, sys.exit), OTHER, [[0, 1], "RuntimeError", [4, 5], "end"]),
    Case("any-thread", in_a_thread, "ValueError", [[0, 1], [2, 3]]),
    Case("any-process",
         lambda g: in_child(in_a_daemonic_process, lambda: epoch(g.DataLoader(range(4), 2, **PROCESSES))),
         "AssertionError", [[0, 1], [2, 3]]),
    Case("random-streams", lambda g: streams(g, lambda: np.random.randint(1 << 30)), OTHER, 6),
    Case("random-streams", lambda g: streams(g, lambda: int(mx.nd.random.randint(0, 1 << 30).asscalar())), OTHER,
         6),
    Case("descriptors", kept_batches, OTHER, list(range(80))),
)  # fmt: skip
def test_faults(gdata, case, wanted):
    check_case(gdata, case, wanted)


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


def test_each_difference_on_the_page_has_a_test():
    check_that_each_has_a_test(DIFFERENCES, "gluon")
