"""The contract of a start method: what fork, forkserver and spawn can get wrong, each of them in a way of its own.

All other tests of worker processes run over fork; `nox -s soak` runs them over each start method as well.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
from conftest import (
    AUTO,
    FORK,
    FORKSERVER,
    NEW_INTERPRETERS,
    ONE_FORK,
    OVER_RAY,
    START_METHODS,
    Way,
    eventually,
    in_child,
    is_running,
    workers,
)
from samples import Numbered, plain
from started import (
    Awaited,
    BadPickle,
    Deadly,
    DiesUnpickling,
    Environment,
    Failing,
    InBulk,
    Known,
    Nested,
    Pair,
    Ragged,
    Rows,
    SometimesBad,
    Stuck,
    TwoArguments,
    Varied,
    fail,
    hang_and_say_so,
    negative,
    padded,
    payload,
    remember,
    use_up_descriptors,
)

import gluonloader as gl
from gluonloader.options import OnError

pytestmark = [pytest.mark.usefixtures("no_leaks"), pytest.mark.numpy_only]

MORE_WAYS = START_METHODS if OVER_RAY else [*START_METHODS, ONE_FORK, AUTO]


def numbers(loader):
    return [int(batch[0, 0]) for batch in loader]


# -- the job arrives ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", MORE_WAYS, ids=str)
def test_batches_and_random_numbers_are_those_of_the_serial_loader(way):
    arguments = {"shuffle": True, "seed": 5, "last_batch": "rollover"}
    with gl.DataLoader(Varied(23), 4, **arguments) as serial, way.loader(Varied(23), 4, **arguments) as loader:
        for _ in range(3):
            expected, epoch = list(map(plain, serial)), list(loader)
            assert list(map(plain, epoch)) == expected
            assert type(epoch[0]["pair"]) is Pair
        iterator = iter(serial)
        next(iterator), next(iterator)
        loader.load_state_dict(serial.state_dict())
        assert list(map(plain, loader)) == list(map(plain, iterator))


@pytest.mark.parametrize("way", MORE_WAYS, ids=str)
@pytest.mark.parametrize("size", [0, 1])
def test_short_epochs_end(way, size):
    with way.loader(range(size), 4) as loader:
        for _ in range(2):
            assert sum((batch.tolist() for batch in loader), []) == list(range(size))


@pytest.mark.parametrize(
    ("make", "arguments"),
    [(InBulk, {}), (Awaited, {}), (Numbered, {"concurrency": 3}), (lambda size: gl.ArrayDataset(range(size)), {})],
    ids=["bulk", "async", "concurrency", "arrays"],
)
def test_each_kind_of_dataset_arrives(start_way, make, arguments):
    with start_way.loader(make(40), 4, num_workers=1, **arguments) as loader:
        assert [int(np.ravel(batch)[0]) for batch in loader] == list(range(0, 40, 4))


@pytest.mark.local
def test_the_environment_arrives(start_way, monkeypatch):
    monkeypatch.setenv("GLUONLOADER_TEST_GONE", "early")
    with start_way.loader(range(2), 2, num_workers=1) as loader:  # it starts the fork server
        list(loader)
    monkeypatch.delenv("GLUONLOADER_TEST_GONE")
    monkeypatch.setenv("GLUONLOADER_TEST_NEW", "now")
    with start_way.loader(Environment(), 2, num_workers=1, batchify_fn=list) as loader:
        assert list(loader) == [["now", None]]


@pytest.mark.filterwarnings("ignore:.*on_error")
def test_what_to_do_on_errors_arrives(start_way):
    with start_way.loader(SometimesBad(), 5, num_workers=1, on_error=OnError(negative, 1.0)) as loader:
        found = sum((batch.tolist() for batch in loader), [])
    assert found == [-index if index % 10 == 3 else index for index in range(30)]


@pytest.mark.local
@pytest.mark.parametrize("in_order", [True, False])
def test_a_shard_whose_worker_dies_goes_on(start_way, in_order, tmp_path):
    dataset = gl.IterableDataset(Rows(str(tmp_path / "died")))
    with start_way.loader(gl.IterableDataset(dataset, num_shards=2), 4, in_order=in_order) as loader:
        for _ in range(2):
            batches = [batch.tolist() for batch in loader]
            assert sorted(sum(batches, [])) == list(range(20))
            assert [batch for batch in batches if len(batch) < 4] == []
        assert loader.stats().deaths == 1


def test_large_and_growing_batches_stay_as_they_are(start_way):
    with start_way.loader(Ragged(), 1, batchify_fn=padded, memory_limit="4MB") as loader:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # memory_limit: some are private copies
            kept = [batch for _ in range(4) for batch in loader]
    assert len(kept) == 4 * len(Ragged.lengths)
    for number, (batch, other) in enumerate(kept):
        index = number % len(Ragged.lengths)
        assert batch.shape == (1, Ragged.lengths[index])
        assert (batch == index).all()
        assert other.tolist() == [0, 1, 2]


# -- errors and deaths -------------------------------------------------------------------------------------------------


def test_errors_arrive_and_the_next_batch_comes(start_way):
    with start_way.loader(Failing(), 1, num_workers=1, batchify_fn=list) as loader:
        iterator, seen = iter(loader), {}
        for index in range(8):
            try:
                seen[index] = next(iterator)
            except BaseException as error:
                seen[index] = error
    assert seen[0] == [0]
    assert type(seen[1]) is KeyError
    assert "dataset[1], batch 1 of epoch 0" in "".join(seen[1].__notes__)
    assert any("pid" in note for note in seen[1].__notes__)
    assert "__getitem__" in str(seen[1].__cause__)
    assert type(seen[2]) is TwoArguments
    assert seen[2].number == 5
    assert "a class that cannot be pickled" in str(seen[3])
    assert isinstance(seen[4], (RuntimeError, SystemExit))
    assert "enough" in str(seen[4])
    assert isinstance(seen[5], gl.errors.TransportError)
    assert "[0]['parts'][1] is a _thread.lock" in str(seen[5])
    assert type(seen[6]) is ValueError
    assert str(seen[6]) == "not here"
    assert "rebuilding batch 6" in "".join(seen[6].__notes__)
    assert seen[7] == [7]


@pytest.mark.local
def test_batches_of_dead_workers_are_made_again(start_way, tmp_path):
    with start_way.loader(Deadly(str(tmp_path / "died")), 4) as loader:
        assert numbers(loader) == list(range(0, 40, 4))
        for pid in workers(loader):  # idle ones
            os.kill(pid, signal.SIGKILL)
        assert numbers(loader) == list(range(0, 40, 4))
        assert loader.stats().deaths >= 2  # if one worker makes all batches, nobody notices the other's death


@pytest.mark.local
def test_a_sample_that_always_kills_is_named(start_way):
    with start_way.loader(Deadly(), 4, num_workers=1) as loader:
        iterator = iter(loader)
        assert next(iterator)[:, 0].tolist() == [0, 1, 2, 3]
        counted = "the kernel has counted no out-of-memory kill in this cgroup"
        text = rf"pid \d+\).*SIGKILL.*{counted}.*batch 1 of epoch 0.*dataset\[7\].*2 workers died"
        with pytest.raises(gl.errors.WorkerDied, match=text):
            next(iterator)
        assert numbers(iterator) == list(range(8, 40, 4))


def test_a_batch_past_its_timeout_is_an_error_with_the_stack(start_way, tmp_path):
    begun = tmp_path / "begun"
    with start_way.loader(Stuck(str(begun)), 1, num_workers=1, timeout=2) as loader:
        iterator = iter(loader)
        assert eventually(begun.exists)
        with pytest.raises(gl.errors.BatchTimeout, match=r"(?s)batch 0.*timeout=2.*linger_for_ever"):
            next(iterator)


# -- the start ---------------------------------------------------------------------------------------------------------


def test_worker_init_fn_gets_what_it_needs(start_way):
    kwargs = {"worker_init_fn": remember, "worker_payload": payload, "batchify_fn": list, "seed": 5}
    with start_way.loader(Known(), 1, **kwargs) as loader:
        for epoch in range(2):
            for ((at_start, now),) in loader:
                worker = at_start[0]
                assert at_start[:4] == [worker, 2, 0, worker * 100 + 1 + 8 + 2]
                assert at_start[5:] == [worker, "Known"]
                assert now == [worker, 2, epoch, at_start[3], 8]


def test_an_error_in_worker_init_fn_is_raised_once_and_ends_the_loader(start_way):
    loader = start_way.loader(range(8), 1, worker_init_fn=fail)
    with pytest.raises(gl.errors.WorkerStartError, match="has no disk"):
        next(iter(loader))
    with pytest.raises(gl.errors.LoaderClosed):
        iter(loader)


@pytest.mark.local
def test_workers_that_end_before_their_first_batch_are_an_error_with_the_cause(start_way):
    loader = start_way.loader(Numbered(), 4, num_workers=1, worker_init_fn=use_up_descriptors)
    text = r"3 workers in a row ended after worker_init_fn .*, the last worker with exit code 1, because of OSError: .*"
    with pytest.raises(
        gl.errors.WorkerStartError, match=f"{text}oo many open files.*uses up the file descriptors"
    ) as caught:
        list(loader)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.local
def test_a_worker_init_fn_that_hangs_is_an_error_with_the_stack(start_way, tmp_path):
    hangs = [tmp_path / "0", tmp_path / "1"]
    arguments = {"worker_init_fn": hang_and_say_so, "worker_payload": lambda info, worker: hangs[worker]}
    with start_way.loader(Numbered(), 4, timeout=1, **arguments) as loader:
        assert eventually(lambda: all(hang.exists() for hang in hangs))
        text = r"(?s)batch 0.*timeout=1 .*had not started yet, because worker_init_fn had not returned.*linger_for_ever"
        with pytest.raises(gl.errors.BatchTimeout, match=text) as caught:
            next(iter(loader))
        assert ("forkserver" in str(caught.value)) == (start_way is FORK)


@pytest.mark.parametrize("way", NEW_INTERPRETERS, ids=str)
def test_a_dataset_that_cannot_be_unpickled_is_an_error_once(way: Way):
    loader = way.loader(BadPickle(), 4)
    with pytest.raises(gl.errors.WorkerStartError, match="LookupError: the file is gone"):
        list(loader)
    with pytest.raises(
        gl.errors.WorkerStartError,
        match="3 workers in a row ended while they started, the last worker with exit code 9",
    ):
        list(way.loader(DiesUnpickling(), 4, num_workers=1))


@pytest.mark.parametrize("way", NEW_INTERPRETERS, ids=str)
def test_a_dataset_that_cannot_be_pickled_is_an_error_in_the_constructor(way: Way):
    for dataset, batchify, part in (
        (gl.SimpleDataset([lambda: 0]), None, "dataset"),
        ([1], lambda s: s, "batchify_fn"),
    ):
        with pytest.raises(gl.errors.TransportError, match=rf"pickle {part}.*start_method='fork'"):
            way.loader(dataset, 1, batchify_fn=batchify)


def test_fork_takes_any_dataset():
    with FORK.loader(gl.SimpleDataset([1, 2]).transform(lambda x: -x), 2, batchify_fn=lambda s: s) as loader:
        assert list(loader) == [[-1, -2]]


# -- where a loader is made --------------------------------------------------------------------------------------------


@pytest.mark.local
def test_a_loader_inside_a_worker_uses_threads_and_says_so(start_way):
    with start_way.loader(Nested(2), 1, num_workers=1) as loader:
        for batch, said, warned in loader:
            assert batch.tolist() == [[1, 2, 3]]
            assert said.tolist() == warned.tolist() == [1]


def in_daemon(call):
    """What a call returns in a daemonic process, with the texts of its warnings."""

    def run():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            writer.send((call(), [str(warning.message) for warning in caught]))

    reader, writer = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=run, daemon=True)
    process.start()
    process.join(60)
    return reader.recv()


@pytest.mark.local
@pytest.mark.parametrize("earlier", [True, False])
def test_a_loader_in_a_daemonic_process_uses_threads_and_says_so_once(start_way, earlier):
    """Also a loader that another process has made, and one that was made there with start_method=..."""

    def read():
        with loader or start_way.loader(range(6), 2, num_workers=1) as inner:
            return [[batch.tolist() for batch in inner] for _ in range(2)], inner.stats().executor

    with start_way.loader(range(6), 2, num_workers=1) if earlier else contextlib.nullcontext() as loader:
        (epochs, executor), said = in_daemon(read)
        assert epochs == [[[0, 1], [2, 3], [4, 5]]] * 2
        assert executor == "thread"
        assert len(said) == 1
        assert "cannot start worker processes, so this DataLoader uses threads" in said[0]
        if earlier:
            assert len(list(loader)) == 3
            assert loader.stats().executor == "process"


@pytest.mark.local
def test_a_forked_child_and_its_child_have_workers_with_every_start_method(start_way):
    """The fork server of multiprocessing belongs to the parent process."""

    def read():
        assert in_child(lambda: str([batch.tolist() for batch in loader])) == expected
        with loader, start_way.loader(range(6), 2, num_workers=1) as new:
            return str([batch.tolist() for batch in loader] + [batch.tolist() for batch in new])[: len(expected)]

    expected = str([[0, 1], [2, 3], [4, 5]])
    with start_way.loader(range(6), 2, num_workers=1) as loader:
        assert str([batch.tolist() for batch in loader]) == expected
        for _ in range(2):
            assert in_child(read)[: len(expected) - 1] == expected[:-1]
        assert str([batch.tolist() for batch in loader]) == expected


# -- the end -----------------------------------------------------------------------------------------------------------


def test_closed_deleted_and_abandoned_loaders_end_their_workers(start_way):
    loader = start_way.loader(Numbered(), 2)
    iterator = iter(loader)
    batch = next(iterator)
    loader.close()
    loader.close()
    assert batch[:, 0].tolist() == [0, 1]
    with pytest.raises(gl.errors.LoaderClosed):
        iter(loader)
    iterator = iter(start_way.loader(Numbered(), 2))
    next(iterator)
    del iterator  # the fixture checks that nothing stays


PARENT = """
import os, signal, sys, tempfile
sys.path[:0] = {path!r}
tempfile.tempdir = {folder!r}
import gluonloader as gl
from conftest import eventually, workers
from samples import Sleepless
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in a shell's background ignores it
    loader = gl.DataLoader(Sleepless({begun!r}), 1, num_workers=2, start_method={start_method!r})
    iterator = iter(loader)
    next(iterator)
    assert eventually(lambda: os.path.exists({begun!r}), 50)
    print(*workers(loader), flush=True)
    {end}
    next(iterator)
"""


def run_parent(tmp_path, way, end):
    """Runs a program with two busy workers, in a session of its own, to a bad end; returns it and the workers' pids."""
    script, begun = tmp_path / "parent.py", tmp_path / "begun"
    text = PARENT.format(path=sys.path, start_method=way.name, end=end, begun=str(begun), folder=str(tmp_path))
    script.write_text(text)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, start_new_session=True, timeout=120)
    pids = list(map(int, done.stdout.split()))
    assert len(pids) == 2, done.stderr
    return done, pids


@pytest.mark.local
@pytest.mark.spawn
@pytest.mark.parametrize(
    ("way", "end"),
    [
        *((way, "os.kill(os.getpid(), 9)") for way in START_METHODS),
        (FORK, "os.kill(os.getpid(), signal.SIGTERM)"),
        (FORKSERVER, "sys.exit(3)"),
    ],
    ids=str,
)
def test_workers_end_with_their_parent(way, end, tmp_path):
    done, pids = run_parent(tmp_path, way, end)
    assert "leaked" not in done.stderr  # no semaphore
    assert eventually(lambda: sorted(os.listdir(tmp_path)) == ["begun", "parent.py"])  # no socket
    assert eventually(lambda: not any(map(is_running, pids)))


@pytest.mark.local
@pytest.mark.spawn
def test_ctrl_c_gives_one_traceback_and_leaves_no_worker(start_way, tmp_path):
    done, pids = run_parent(tmp_path, start_way, "os.killpg(0, signal.SIGINT)")
    assert done.stderr.count("Traceback") == 1, done.stderr
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert eventually(lambda: not any(map(is_running, pids)))
