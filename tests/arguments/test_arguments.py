"""Wrong arguments fail in the constructor, with the argument, its value and what would be right (P9)."""

from __future__ import annotations

import inspect
import multiprocessing
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import FORK, run_program
from mistakes import mistakes

import gluonloader as gl
from gluonloader.limits import available_cores
from gluonloader.options import Processes, Threads

DATA = [1, 2, 3, 4, 5]
FILE = Path("train.parquet")
PAIR = np.array([1, 2])


@mistakes(
    globals(),
    r"""
gl.DataLoader(DATA, 0) -> batch_size=0: must be the number of samples in a batch, an int >= 1
gl.DataLoader(DATA, True) -> batch_size=True: must be the number of samples in a batch, an int >= 1
gl.DataLoader(DATA, 1, shuffle=True, sampler=[1]) -> ...shuffle and sampler both...
gl.DataLoader(DATA, 1, sampler=[True, False])
    -> sampler=[True, False]: it is a mask; pass the indices where it is true: np.flatnonzero(mask)
gl.DataLoader(DATA, batch_sampler=7.5) -> batch_sampler=7.5: must be an iterable of lists of indices
gl.DataLoader(DATA, batch_sampler=iter([[0]])) -> ...it can be iterated only once...
gl.DataLoader(DATA, 1, worker_init_fn="f") -> worker_init_fn='f': must be a function or None
gl.DataLoader(DATA, 1, num_workers=-1) -> num_workers=-1: must be an int >= 0...
gl.DataLoader(DATA, 1, num_workers=1.5) -> num_workers=1.5: must be an int >= 0...
gl.DataLoader(DATA, 1, pin_memory="yes") -> pin_memory='yes': must be True or False
gl.DataLoader(DATA, 1, pin_device_id=-1) -> pin_device_id=-1: must be an int >= 0
gl.DataLoader(DATA, 1, pin_memory=True, output="numpy")
    -> pin_memory=True: output='numpy' has no page-locked memory; remove pin_memory
gl.DataLoader(DATA, 1, prefetch=-2) -> prefetch=-2: must be an int >= 0
gl.DataLoader(DATA, 1, timeout=float("nan")) -> timeout=nan: must be a number of seconds > 0, or None...
gl.DataLoader(DATA, 1, timeout=0) -> timeout=0: must be a number of seconds > 0, or None...
gl.DataLoader(DATA, 1, timeout="5") -> timeout='5': must be a number of seconds > 0, or None...
gl.DataLoader(DATA, 1, timeout=10**400) -> timeout=10000...: must be a number of seconds > 0...
gl.DataLoader(DATA, 1, executor="serial", num_workers=2) -> num_workers=2: executor='serial' has no workers...
gl.DataLoader(DATA, 1, executor="process") -> num_workers=0: executor='process' needs num_workers >= 1...
gl.DataLoader(DATA, 1, executor=Processes()) -> num_workers=0: executor='process' needs num_workers >= 1...
gl.DataLoader(DATA, 1, executor=Threads()) -> num_workers=0: executor='thread' needs num_workers >= 1...
gl.DataLoader(DATA, 1, executor=gl.options.Ray()) -> num_workers=0: executor='ray' needs num_workers >= 1...
gl.DataLoader(DATA, 1, executor="process", num_workers=1, thread_pool=True) -> ...thread_pool=True...
gl.DataLoader(DATA, 1, seed="a") -> seed='a': must be an int
gl.DataLoader(DATA, 1, seed=1.5) -> seed=1.5: must be an int
gl.DataLoader(DATA, 1, start_method="fork") -> ...executor='serial' has no processes; remove start_method...
gl.DataLoader(DATA, 1, memory_limit=1000) -> memory_limit=1000: pass at least 1,048,576 bytes...
gl.DataLoader(DATA, 1, memory_limit=1.5) -> memory_limit=1.5: pass at least 1,048,576 bytes...
gl.DataLoader(DATA, 1).set_epoch(-1) -> epoch=-1: must be an int >= 0
gl.DataLoader(DATA, 1).load_state_dict(gl.bridge(DATA).state_dict())
    -> state: it was saved by a bridge, not by a DataLoader; load it into a bridge
gl.DataLoader(gl.IterableDataset([1]).take, 1) -> dataset: <class 'method'> has no __len__...
gl.DataLoader(FILE, 1) -> dataset: <class '...PosixPath'>; pass ... ArrowDataset(path)...
# arrays, which are compared element by element, and have no order if they have no dimension
gl.DataLoader(DATA, 1, last_batch=PAIR) -> last_batch=array([1, 2]): must be 'keep', 'discard' or 'rollover'
gl.DataLoader(DATA, 1, pin_memory=PAIR) -> pin_memory=array([1, 2]): must be True or False
gl.DataLoader(DATA, 1, thread_pool=PAIR) -> thread_pool=array([1, 2]): must be True or False
gl.DataLoader(DATA, 1, num_workers=PAIR) -> num_workers=array([1, 2]): must be an int >= 0
gl.DataLoader(DATA, 1, executor=PAIR) -> executor=array([1, 2]): must be 'serial', 'thread', 'process', ...
gl.DataLoader(DATA, 1, num_workers=1, start_method=PAIR) -> start_method=array([1, 2]): must be one of [...
gl.DataLoader(DATA, 1, on_error=PAIR) -> on_error=array([1, 2]): must be 'raise', 'skip', 'replace' or a function...
gl.DataLoader(DATA, 1, output=PAIR) -> output=array([1, 2]): must be one of 'numpy', ...
gl.DataLoader(DATA, 1, sampler=np.int64(2)) -> sampler=...2...: must be an iterable of indices
gl.DataLoader(DATA, batch_sampler=np.array(2)) -> batch_sampler=array(2): must be an iterable of lists of indices
# words of torch, and arguments that have moved
gl.DataLoader(DATA, 1, generator=None)
    -> TypeError: DataLoader() has no argument generator: pass an int as seed instead...
gl.DataLoader(DATA, 1, multiprocessing_context=None)
    -> TypeError: DataLoader() has no argument multiprocessing_context: pass start_method instead...
gl.DataLoader(DATA, 1, persistent_workers=None)
    -> TypeError: DataLoader() has no argument persistent_workers: remove persistent_workers; workers always stay...
gl.DataLoader(DATA, 1, pin_memory_device=None)
    -> TypeError: DataLoader() has no argument pin_memory_device: remove pin_memory_device; pin_memory=True...
gl.DataLoader(DATA, 1, prefetch_factor=None)
    -> TypeError: DataLoader() has no argument prefetch_factor: pass prefetch=prefetch_factor * num_workers, ...
gl.DataLoader(DATA, 1, max_retries=3)
    -> TypeError: DataLoader() has no argument max_retries: pass executor=Processes(max_retries=...), from
    gluonloader.options
gl.DataLoader(DATA, 1, max_per_worker=1)
    -> TypeError: DataLoader() has no argument max_per_worker: pass executor=Processes(max_per_worker=...), from
    gluonloader.options
gl.DataLoader(DATA, 1, ray_options={"num_cpus": 2})
    -> TypeError: DataLoader() has no argument ray_options: pass executor=Ray(num_cpus=...), from gluonloader.options
gl.DataLoader(DATA, 1, max_errors=3)
    -> TypeError: DataLoader() has no argument max_errors: pass on_error=OnError("skip", limit=...), from
    gluonloader.options
gl.DataLoader(DATA, 1, reseed_generators=False)
    -> TypeError: DataLoader() has no argument reseed_generators: pass seed=Seed(..., reseed_generators=False), from
    gluonloader.options
gl.DataLoader(DATA, 1, num_shards=8)
    -> TypeError: DataLoader() has no argument num_shards: pass IterableDataset(dataset, num_shards=...) as dataset
gl.DataLoader(DATA, 1, shuffle_buffer=9)
    -> TypeError: DataLoader() has no argument shuffle_buffer: pass IterableDataset(dataset, shuffle_buffer=...) as
    dataset, and shuffle=True
gl.DataLoader(DATA, 1, share="node")
    -> TypeError: DataLoader() has no argument share: pass ranks=Ranks(index, count, share="node"), or Ranks.of("env",
    share="node")
# options
Processes(max_retries=-1) -> max_retries=-1: must be an int >= 0
Processes(max_per_worker=0) -> max_per_worker=0: must be an int >= 1
gl.options.Ray(max_retries="no") -> max_retries='no': must be an int >= 0
gl.options.Ray(lifetime="detached") -> lifetime='detached': the loader sets this option of an actor itself; remove it
""",
)
def test_a_wrong_argument_is_named_with_its_value_and_what_is_right(mistake):
    """Common mistakes are in ../test_mistakes.py."""
    before = set(multiprocessing.active_children())
    mistake.check()
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.parametrize("memory_limit", [2**64, 10**400, f"{10**400} TB"], ids=["2**64", "10**400", "text"])
def test_any_large_memory_limit_is_accepted(memory_limit):
    with FORK.loader(DATA, 1, memory_limit=memory_limit) as loader:
        assert len(list(loader)) == len(DATA)


@pytest.mark.parametrize("timeout", [5, 0.5, np.int64(5), np.float32(0.5), None])
def test_numbers_of_numpy_are_seconds_too(timeout):
    assert len(list(gl.DataLoader(DATA, 1, timeout=timeout))) == len(DATA)


@pytest.mark.parametrize("sampler", [None, [0, 2, 1, 2]])
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_table_is_no_dataset_until_it_is_one_of_rows(library, sampler):
    module = pytest.importorskip(library)
    pytest.importorskip("pyarrow")
    table = getattr(module, "DataFrame", getattr(module, "table", None))({"x": [1, 2, 3], "y": [4, 5, 6]})
    with pytest.raises(ValueError, match=rf"dataset: <class '{library}.*'>; pass ArrowDataset\(table\)"):
        gl.DataLoader(table, 2, sampler=sampler)
    assert next(iter(gl.DataLoader(gl.tables.ArrowDataset(table), 3)))["y"].tolist() == [4, 5, 6]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_column_of_a_frame_is_a_dataset(library):
    column = pytest.importorskip(library).Series([1, 2, 3])
    assert [batch.tolist() for batch in gl.DataLoader(column, 2)] == [[1, 2], [3]]


def test_a_mapping_is_read_by_its_keys():
    assert next(iter(gl.DataLoader({0: 5, 1: 6}, 2))).tolist() == [5, 6]
    assert next(iter(gl.DataLoader({"a": 5, "b": 6}, 2, sampler=["b", "a"]))).tolist() == [6, 5]
    assert next(iter(gl.DataLoader({"a": 5, "b": 6}, batch_sampler=[["b", "a"]]))).tolist() == [6, 5]


@pytest.mark.parametrize("arguments", [{}, {"executor": "process"}, {"executor": "auto"}])
def test_many_worker_processes_per_core_warn(arguments):
    cores = available_cores()
    text = rf"^num_workers={8 * cores + 1}: more than 8 worker processes per core .* use {cores} cores\); pass"
    arguments = {"num_workers": 8 * cores + 1, "start_method": "fork", **arguments}
    with pytest.warns(RuntimeWarning, match=text) as caught:
        with gl.DataLoader(gl.SimpleDataset(DATA), 5, **arguments) as loader:
            assert next(iter(loader)).tolist() == DATA
    assert caught[0].filename == __file__


@pytest.mark.parametrize("arguments", [{"num_workers": 8}, {"num_workers": 100, "thread_pool": True}])
def test_8_worker_processes_or_any_number_of_threads_do_not_warn(arguments):
    with gl.DataLoader(DATA, 5, **arguments) as loader:
        assert next(iter(loader)).tolist() == DATA


GEVENT = """
import sys
from gevent import monkey
monkey.patch_all(**eval(sys.argv[1]))
import gluonloader as gl
dataset = gl.SimpleDataset(range(4)).transform(int)
print([batch.tolist() for batch in gl.DataLoader(dataset, 2, **eval(sys.argv[2]))])
"""


@pytest.mark.spawn
@pytest.mark.parametrize("workers", [{"num_workers": 2}, {"num_workers": 2, "executor": "auto"}])
def test_worker_processes_under_gevent_are_refused_with_the_cure(workers):
    pytest.importorskip("gevent")
    cure = {"thread": False, "queue": False}
    for patched in ({}, {"thread": False}, {"queue": False}):
        run = run_program(GEVENT, repr(patched), repr(workers))
        assert "ValueError: num_workers: gevent.monkey.patch_all() was called" in run.stderr
        assert "pass num_workers=0, or call gevent.monkey.patch_all(thread=False, queue=False)" in run.stderr
    for patched, arguments in (({}, {"num_workers": 0}), (cure, workers)):
        run = run_program(GEVENT, repr(patched), repr(arguments))
        assert (run.stdout, run.stderr) == ("[[0, 1], [2, 3]]\n", "")


def test_numpy_numbers_are_numbers():
    arguments = {"num_workers": np.int64(0), "shuffle": np.bool_(True), "seed": np.int32(3), "prefetch": np.uint8(2)}
    with gl.DataLoader(DATA, np.int64(2), **arguments) as loader:
        loader.set_epoch(np.int64(2))
        assert sorted(np.concatenate(list(loader)).tolist()) == DATA


def test_gluon_order_of_the_positional_arguments():
    loader = gl.DataLoader(DATA, 2, False, None, "discard", None, None, 0, False, 0, None, False, 120, False)
    assert [batch.tolist() for batch in loader] == [[1, 2], [3, 4]]
    with pytest.raises(TypeError):
        gl.DataLoader(DATA, 2, False, None, "discard", None, None, 0, False, 0, None, False, 120, False, "serial")


@pytest.mark.parametrize("limit", [1 << 21, np.int64(1 << 21), "2MB", "2 MiB", "2m", "0.002GB", "2048K"])
def test_memory_limits_are_read(limit):
    with gl.DataLoader(DATA, 5, num_workers=1, memory_limit=limit) as loader:
        assert next(iter(loader)).tolist() == DATA


def test_the_start_method_follows_the_program_s_own_choice(monkeypatch):
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: "spawn")
    with pytest.raises(gl.errors.TransportError, match="start_method='spawn'"):
        gl.DataLoader([lambda: 0], 1, num_workers=1)


START_METHOD = """
import multiprocessing
from gluonloader import DataLoader
{}
for number in range(2):
    with DataLoader([lambda: 0], 1, num_workers=1, batchify_fn=len{}) as loader:
        print(*loader, loader.epochs.workers.options.start_method)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Python's default is used")
@pytest.mark.parametrize(
    "history", ["", "multiprocessing.Value('i')", "multiprocessing.get_context()", "multiprocessing.Pool(1).close()"]
)
def test_the_start_method_does_not_depend_on_what_the_program_did_before(history):
    done = run_program(START_METHOD.format(history, ""))
    assert done.stdout == "1 fork\n" * 2
    # Once: what Python has set may be what the program wants.
    warns = history and multiprocessing.get_all_start_methods()[0] != "fork"
    assert done.stderr.count("pass start_method='fork' or start_method='forkserver'") == (1 if warns else 0)
    assert run_program(START_METHOD.format(history, ", start_method='fork'")).stderr == ""


@pytest.mark.parametrize("wrong", [1, []])
def test_a_batch_sampler_that_gives_no_indices_is_an_error_after_the_batches_before_it(wrong):
    with gl.DataLoader(DATA, batch_sampler=[[0], wrong]) as loader:
        batches = iter(loader)
        assert next(batches).tolist() == [1]
        text = rf"batch_sampler=\[\[0\], .*: it yielded {re.escape(str(wrong))} for batch 1; it must yield lists of at "
        text += "least one index"
        with pytest.raises(ValueError, match=text):
            next(batches)


def test_threads_and_processes_are_chosen_by_their_objects():
    for executor in (Processes(max_retries=2), Threads()):
        with gl.DataLoader(DATA, 2, num_workers=1, executor=executor) as loader:
            assert [len(batch) for batch in loader] == [2, 2, 1]
            assert loader.stats().executor == executor.name


def test_tools_see_the_arguments_as_they_are():
    assert list(inspect.signature(gl.DataLoader).parameters)[:3] == ["dataset", "batch_size", "shuffle"]


def test_set_epoch_reaches_a_sampler_of_the_user_s():
    class Sampler(gl.SequentialSampler):
        def set_epoch(self, epoch):
            self.epoch = epoch

    sampler = Sampler(5)
    with gl.DataLoader(DATA, 2, sampler=sampler) as loader:
        loader.set_epoch(4)
        assert sampler.epoch == 4


def test_seeds_come_from_numpy_where_none_is_given():
    def order():
        np.random.seed(7)
        with gl.DataLoader(list(range(50)), 50, shuffle=True) as loader:
            return next(iter(loader)).tolist()

    assert order() == order()
