"""Errors, timeouts, dying workers, threads. Gluon hangs or loses batches here, so each test runs in a child process."""

import concurrent.futures
import contextlib
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from parity import Deadly, kill

from .differences import differs
from .sides import GLUON, WAYS, Hung, epoch, in_child, lists, mx


class Spoiled:
    """Numbers, and one that is an error."""

    def __init__(self, length, bad, error):
        self.length, self.bad, self.error = length, bad, error

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.bad:
            raise self.error
        return index


class Custom(Exception):
    """An error class of the user's."""


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
    batches = iter(gdata.DataLoader(Spoiled(6, 3, OSError()), 1))
    assert [lists(next(batches)) for _ in range(3)] == [[0], [1], [2]]
    with pytest.raises(OSError):
        next(batches)


@differs("errors-and-epochs", raises=StopIteration)
def test_the_batches_after_an_error_still_come(gdata):
    batches = iter(gdata.DataLoader(Spoiled(6, 3, OSError()), 2))
    assert lists(next(batches)) == [0, 1]
    with pytest.raises(OSError):
        next(batches)
    assert lists(next(batches)) == [4, 5]


@differs("errors-and-epochs", raises=ValueError)
def test_the_next_epoch_after_an_error_still_comes(gdata):
    loader = gdata.DataLoader(Spoiled(2, 1, OSError()), 2, **WAYS["processes"])
    for _ in range(2):
        with pytest.raises(OSError):
            list(loader)


@differs("sampler-errors", raises=Custom)
def test_an_error_in_a_sampler_comes_after_the_batches_before_it(gdata):
    class Broken:
        def __len__(self):
            return 3

        def __iter__(self):
            yield [0]
            yield [1]
            raise Custom

    batches = iter(gdata.DataLoader(range(3), batch_sampler=Broken(), **WAYS["threads"]))
    assert [lists(next(batches)), lists(next(batches))] == [[0], [1]]
    with pytest.raises(Custom):
        next(batches)


@differs("stop-iteration", raises=pytest.fail.Exception)
def test_stop_iteration_in_a_dataset_does_not_cut_the_epoch_short(gdata):
    with pytest.raises(RuntimeError):
        in_child(lambda: epoch(gdata.DataLoader(Spoiled(6, 3, StopIteration()), 1, **WAYS["processes"])))


def test_stop_iteration_in_a_dataset_without_workers_is_an_error(gdata):
    with pytest.raises(RuntimeError):
        epoch(gdata.DataLoader(Spoiled(6, 3, StopIteration()), 1))


class Stuck:
    """Numbers; the second one takes for ever."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        if index == 1:
            time.sleep(100)
        return index


def late_batch(gdata):
    batches = iter(gdata.DataLoader(Stuck(), 1, timeout=1.2, num_workers=1))
    assert lists(next(batches)) == [0]
    try:
        next(batches)
    except multiprocessing.TimeoutError as error:
        return batches, str(error)
    return None


def test_a_late_batch_is_a_timeout_error(gdata):
    assert in_child(lambda: late_batch(gdata) is not None)


@differs("late-batches")
def test_a_late_batch_says_where_it_is_stuck(gdata):
    assert "in __getitem__" in in_child(lambda: late_batch(gdata)[1])


@differs("late-batches", raises=StopIteration)
def test_the_batches_after_a_late_one_still_come(gdata):
    assert in_child(lambda: lists(next(late_batch(gdata)[0]))) == [2]


ONE_BY_ONE = {"num_workers": 2, "prefetch": 0, "timeout": 2.5}


@differs("worker-death", raises=multiprocessing.TimeoutError)
@pytest.mark.parametrize("end", [kill, lambda: os._exit(1)], ids=["killed", "exits"])
def test_a_worker_that_dies_costs_no_batch(gdata, end, tmp_path):
    dataset = Deadly(end, str(tmp_path / "died"))
    loaded = in_child(lambda: epoch(gdata.DataLoader(dataset, 1, **ONE_BY_ONE)))
    assert loaded == [[i] for i in range(6)]


@differs("worker-death", raises=multiprocessing.TimeoutError)
def test_a_batch_that_keeps_killing_workers_is_an_error_that_says_so(gdata):
    def body():
        batches = iter(gdata.DataLoader(Deadly(lambda: os._exit(1)), 2, **ONE_BY_ONE))
        assert lists(next(batches)) == [0, 1]
        try:
            next(batches)
        except RuntimeError as error:
            return str(error), lists(next(batches))

    text, following = in_child(body)
    assert "dataset[3]" in text
    assert following == [4, 5]


@differs("worker-exit", raises=multiprocessing.TimeoutError)
def test_a_dataset_that_exits_is_an_error(gdata):
    with pytest.raises(RuntimeError):
        in_child(lambda: epoch(gdata.DataLoader(Deadly(sys.exit), 2, **ONE_BY_ONE)))


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


@differs("any-thread", raises=ValueError)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loader_can_be_made_in_any_thread(gdata):
    def body():
        loader = gdata.DataLoader(range(4), 2, **WAYS["processes"])
        return epoch(loader)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(body).result() == [[0, 1], [2, 3]]


def test_a_loader_can_be_used_in_another_thread_than_it_was_made_in(gdata, way):
    loader = gdata.DataLoader(range(4), 2, **WAYS[way])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert pool.submit(epoch, loader).result() == [[0, 1], [2, 3]]


@differs("any-process", raises=AssertionError)
def test_a_loader_can_be_made_in_a_daemonic_process(gdata):
    def daemon(writer):
        try:
            writer.send(epoch(gdata.DataLoader(range(4), 2, **WAYS["processes"])))
        except AssertionError as error:
            writer.send(str(error))

    def body():
        reader, writer = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(target=daemon, args=(writer,), daemon=True)
        process.start()
        return reader.recv()

    assert in_child(body) == [[0, 1], [2, 3]]


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


def draw_mxnet():
    return int(mx.nd.random.randint(0, 1 << 30).asscalar())


@differs("random-streams")
@pytest.mark.parametrize("draw", [lambda: np.random.randint(1 << 30), draw_mxnet], ids=["numpy", "mxnet"])
def test_workers_do_not_share_one_random_stream(gdata, draw):
    numbers = sum(epoch(gdata.DataLoader(Meeting(draw), 1, **WAYS["processes"])), [])
    assert len(set(numbers)) == 6


def test_workers_have_random_streams_of_pythons_own_generator(gdata):
    numbers = sum(epoch(gdata.DataLoader(Meeting(lambda: random.getrandbits(40)), 1, **WAYS["processes"])), [])
    assert len(set(numbers)) == 6


@differs("descriptors", raises=(RuntimeError, OSError))
def test_kept_batches_do_not_exhaust_descriptors(gdata):
    def body():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        samples = [tuple(np.full(4, i, np.float32) for _ in range(6)) for i in range(80)]
        kept = list(gdata.DataLoader(samples, 1, **WAYS["processes"]))
        return [batch[5].asnumpy()[0, 3] for batch in kept]

    assert in_child(body) == list(range(80))


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
