"""executor="auto": what it chooses and says, and that nobody can tell it from the batches."""

import functools
import logging
import multiprocessing
import os

import numpy as np
import pytest
from conftest import SERIAL

import gluonloader as gl
from gluonloader import cores, declared
from gluonloader.declared import is_gil_free
from gluonloader.executors import auto

pytestmark = pytest.mark.usefixtures("no_leaks")


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
LARGE = gl.ArrayDataset(np.ones((200, 1_000_000), np.uint8))  # 10 MB a batch


def load(dataset, **kwargs):
    arguments = {"num_workers": 2, "executor": "auto", "timeout": 60, "seed": 0, **kwargs}
    return gl.DataLoader(dataset, 10, **arguments)


@pytest.mark.parametrize(
    ("dataset", "options", "executor", "why"),
    [
        (Squares(), {}, "process", "the dataset does not say"),
        (Decoded(), {}, "thread", "dataset and batchify_fn leave the GIL"),
        (ReadsItsOwnWay(), {}, "process", "the dataset does not say"),
        (Decoded(), {"batchify_fn": plain}, "process", "batchify_fn does not say"),
        (Decoded(), {"batchify_fn": gl.gil_free(functools.partial(plain))}, "thread", "leave the GIL"),
        (gl.Subset(Decoded(), range(30)), {}, "thread", "leave the GIL"),
        (gl.ConcatDataset(Decoded(), Squares()), {}, "process", "the dataset does not say"),
        (gl.StackDataset(Decoded(), ROWS), {}, "thread", "leave the GIL"),
        (ROWS.transform(lambda row, number: row), {}, "process", "the dataset does not say"),
        (ROWS.transform(gl.gil_free(lambda row, number: row)), {}, "thread", "leave the GIL"),
        (ROWS, {"worker_init_fn": print}, "thread", "leave the GIL"),
        (gl.IterableDataset(lambda: iter(range(60))), {}, "process", "the dataset does not say"),
        (gl.gil_free(gl.IterableDataset(lambda: iter(range(60)))), {}, "thread", "leave the GIL"),
    ],
)
def test_what_is_declared_decides(dataset, options, executor, why, capsys):
    with load(dataset, **options) as loader:
        assert sum(1 for _ in loader) > 0
        stats = loader.stats()
        assert stats.executor == executor
        assert why in stats.why
        assert stats.num_workers == 2


@pytest.mark.parametrize(("cheap", "executor"), [(3600.0, "serial"), (0.0, "thread")])
def test_data_in_memory_are_measured(monkeypatch, caplog, cheap, executor):
    monkeypatch.setattr(auto, "_CHEAP_S", cheap)
    expected = [[part.tolist() for part in batch] for batch in SERIAL.loader(ROWS, 2, True) for _ in range(1)]
    with caplog.at_level(logging.DEBUG, "gluonloader"):
        with gl.DataLoader(ROWS, 2, True, seed=0, num_workers=2, executor="auto") as loader:
            assert loader.stats().executor == "serial"
            assert [[part.tolist() for part in batch] for batch in loader] == expected
            assert loader.stats().executor == executor
            assert len(list(loader)) == 30
            assert loader.stats().batches == 60
    assert "first batches are being timed" in caplog.text
    assert f"executor='auto': {executor}, since the data are in memory, and a batch takes" in caplog.text


def test_large_batches_of_data_in_memory_go_to_threads():
    with load(LARGE) as loader:
        total = sum(int(batch.sum(dtype=np.int64)) for batch in loader)
        assert total == 200_000_000
        assert loader.stats().executor == "thread"


@pytest.mark.parametrize("dataset", [Squares(), Decoded(), ROWS], ids=["process", "thread", "memory"])
@pytest.mark.parametrize("cheap", [3600.0, 0.0])
def test_a_position_goes_to_and_from_any_executor(monkeypatch, dataset, cheap):
    monkeypatch.setattr(auto, "_CHEAP_S", cheap)

    def lists(batches):
        return [[batch[0].tolist(), batch[-1].tolist()] for batch in batches]

    with gl.DataLoader(dataset, 3, True, seed=0) as serial:
        whole = lists(serial)
        for had in (0, 1, 11, 19, 20):
            with gl.DataLoader(dataset, 3, True, seed=0, num_workers=2, executor="auto") as loader:
                iterator = iter(loader)
                assert lists(next(iterator) for _ in range(had)) == whole[:had]
                state = loader.state_dict()
            with gl.DataLoader(dataset, 3, True, seed=0, num_workers=2, executor="auto") as loader:
                loader.load_state_dict(state)
                assert had == 20 or lists(loader) == whole[had:]
            serial.load_state_dict(state)
            assert had == 20 or lists(serial) == whole[had:]


def test_several_iterators_while_it_changes_its_mind(monkeypatch):
    monkeypatch.setattr(auto, "_CHEAP_S", 0.0)
    with gl.DataLoader(ROWS, 2, num_workers=2, executor="auto", prefetch=7) as loader:
        iterators = [iter(loader) for _ in range(3)]
        seen = [[] for _ in iterators]
        for _ in range(30):
            for batches, iterator in zip(seen, iterators, strict=True):
                batches.append(next(iterator)[1].tolist())
        assert all(batches == [[i, i + 1] for i in range(0, 60, 2)] for batches in seen)
        assert loader.stats().executor == "thread"
        abandoned = iter(loader)
        next(abandoned)


def test_closing_while_it_measures():
    loader = load(ROWS)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(gl.LoaderClosed):
        list(iterator)
    assert loader.stats().batches == 1


def test_nothing_is_read_here_that_a_process_may_read():
    with load(Squares()) as loader:
        makers = {pid for _, pids, _ in loader for pid in pids.tolist()}
    assert os.getpid() not in makers


def test_without_a_gil_threads_do_all(monkeypatch):
    monkeypatch.setattr(auto, "gil_enabled", lambda: False)
    with load(Squares()) as loader:
        list(loader)
        assert loader.stats().executor == "thread"
        assert "no GIL" in loader.stats().why
    assert declared.gil_enabled() in (True, False)


def test_in_a_worker_process_it_takes_threads():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(choice_of, (Squares(),)) == "thread"


def choice_of(dataset):
    with load(dataset) as loader:
        list(loader)
        return loader.stats().executor


def test_as_many_workers_as_cores(monkeypatch):
    monkeypatch.setattr("gluonloader.arguments.available_cores", lambda: 3)
    for arguments in ({"num_workers": "auto"}, {"executor": "auto"}, {"num_workers": "auto", "executor": "auto"}):
        with gl.DataLoader(Decoded(), 10, **arguments) as loader:
            assert (loader.stats().num_workers, loader.stats().executor) == (3, "thread")
    with gl.DataLoader(Decoded(), 10, num_workers="auto", executor="process") as loader:
        assert (loader.stats().num_workers, loader.stats().executor) == (3, "process")
    with pytest.raises(ValueError, match="num_workers='many': give an int >= 0, or 'auto'"):
        gl.DataLoader(Decoded(), 10, num_workers="many")
    with pytest.raises(ValueError, match="executor='fastest': give 'serial', 'thread', 'process' or 'auto'"):
        gl.DataLoader(Decoded(), 10, executor="fastest")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 64),
        ({"cpu.max": "max 100000"}, 64),
        ({"cpu.max": "250000 100000"}, 3),
        ({"cpu.max": "10000 100000"}, 1),
        ({"a/cpu.max": "800000 100000", "a/b/cpu.max": "max 100000"}, 8),
        ({"a/cpu.max": "200000 100000", "a/b/cpu.max": "800000 100000"}, 2),
        ({"cpu/a/b/cpu.cfs_quota_us": "400000", "cpu/a/b/cpu.cfs_period_us": "100000"}, 4),
        ({"cpu/a/b/cpu.cfs_quota_us": "-1", "cpu/a/b/cpu.cfs_period_us": "100000"}, 64),
        ({"cpu.max": "what is this"}, 64),
    ],
)
def test_cores_are_those_of_the_container(tmp_path, monkeypatch, files, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    own = tmp_path / "own"
    own.write_text("0::/a/b\n5:cpu,cpuacct:/a/b\n3:memory:/a\n")
    for name, text in files.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    assert cores.available_cores(own, tmp_path / "groups") == expected
    assert 1 <= cores.available_cores() <= 64
    assert cores.available_cores(tmp_path / "none", tmp_path / "nowhere") == 64


def test_gil_free_says_so_of_functions_classes_and_objects():
    @gl.gil_free
    def decode(data):
        return data

    assert is_gil_free(decode, Decoded, Decoded(), gl.gil_free(Squares()), np.ones(2), [1], range(3))
    assert not is_gil_free(decode, Squares())
    assert not is_gil_free(ReadsItsOwnWay())
    with pytest.raises(ValueError, match="it takes no attributes; put it into a function of your own"):
        gl.gil_free(len)
    pairs = gl.Group(gl.Stack(), gl.Pad())
    assert is_gil_free(pairs, gl.Dict({"x": gl.AsList()}), gl.Split(2), gl.default_batchify)
    assert not is_gil_free(gl.Group(gl.Stack(), plain))
