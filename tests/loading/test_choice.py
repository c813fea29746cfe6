"""executor="auto": what it chooses and says, and that nobody can tell it from the batches."""

import functools
import logging
import multiprocessing
import os
import pickle
import sys
import types

import numpy as np
import pytest
from conftest import in_child

import gluonloader as gl
from gluonloader import limits
from gluonloader.declared import is_gil_free
from gluonloader.loading import choice as auto

pytestmark = pytest.mark.usefixtures("no_leaks")


@pytest.fixture(autouse=True)
def without_mxnet(monkeypatch):
    monkeypatch.delitem(sys.modules, "mxnet", raising=False)  # where another test has loaded it


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


class Numbered:
    def __len__(self):
        return 60

    def __getitem__(self, index):
        return np.array([index, gl.get_rng().integers(1000)]), index


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


def epochs_of(loader, number):
    return [[[part.tolist() for part in batch] for batch in loader] for _ in range(number)]


@pytest.mark.parametrize("dataset", [Numbered(), gl.gil_free(Numbered())], ids=["process", "thread"])
def test_what_is_made_in_no_time_is_made_in_the_caller_from_the_next_epoch_on(monkeypatch, caplog, dataset):
    monkeypatch.setattr(auto, "_CALLER_S", -3600.0)
    arguments = {"batch_size": 1, "shuffle": True, "seed": 0}
    expected = epochs_of(gl.DataLoader(dataset, **arguments), 3)
    with caplog.at_level(logging.DEBUG, "gluonloader"):
        with gl.DataLoader(dataset, num_workers=2, executor="auto", **arguments) as loader:
            first = loader.stats().executor
            assert first in ("thread", "process")
            assert epochs_of(loader, 1) == expected[:1]
            assert loader.stats().executor == first
            assert epochs_of(loader, 2) == expected[1:]
            stats = loader.stats()
            assert (stats.executor, stats.num_workers, stats.batches) == ("serial", 0, 180)
            assert "us to get" in stats.why
            assert multiprocessing.active_children() == []
    assert f"executor='auto': {first}, since" in caplog.text
    assert "executor='auto': serial, since a batch is made in" in caplog.text


@pytest.mark.parametrize(("options", "epochs"), [({"prefetch": 128}, 1), ({"sampler": range(10)}, 4)])
def test_short_epochs_are_measured_too(monkeypatch, options, epochs):
    monkeypatch.setattr(auto, "_CALLER_S", -3600.0)
    with gl.DataLoader(Squares(), 1, num_workers=2, executor="auto", **options) as loader:
        for _ in range(epochs):
            assert os.getpid() not in makers(loader)
        assert makers(loader) == {os.getpid()}


@pytest.mark.parametrize("prefetch", [1, 128])
def test_a_trial_in_the_caller_comes_to_its_end(monkeypatch, prefetch):
    monkeypatch.setattr(auto, "_CALLER_S", -3600.0)
    with gl.DataLoader(ROWS, 1, num_workers=2, executor="auto", prefetch=prefetch) as loader:
        for _ in range(5):
            assert len(list(loader)) == 60
        assert "in the caller" in loader.stats().why


@pytest.mark.parametrize(
    ("waits", "executor"),
    [
        ([200e-6, 100e-6, 200e-6, 100e-6], "serial"),
        ([100e-6, 200e-6, 100e-6, 200e-6], "thread"),
        ([100e-6, 250e-6, 100e-6, 90e-6], "serial"),  # the machine was busy in the second epoch
    ],
)
def test_data_in_memory_are_tried_both_ways(monkeypatch, waits, executor):
    measured = iter(waits)
    monkeypatch.setattr(auto, "in_a_row", lambda waits, burst: next(measured))
    monkeypatch.setattr(auto, "trimmed_mean", lambda values: 100e-6)
    arguments = {"batch_size": 1, "shuffle": True, "seed": 0}
    expected = epochs_of(gl.DataLoader(ROWS, **arguments), 6)
    with gl.DataLoader(ROWS, num_workers=2, executor="auto", **arguments) as loader:
        for epoch, tried in enumerate(("thread", "serial", "thread", "serial")):
            assert epochs_of(loader, 1) == expected[epoch : epoch + 1]
            assert loader.stats().executor == tried
        assert f"threads took {min(waits[::2]) * 1e6:.0f} us" in loader.stats().why
        assert epochs_of(loader, 2) == expected[4:]
        assert loader.stats().executor == executor
        assert f"{min(waits[1::2]) * 1e6:.0f} us in the caller" in loader.stats().why


@pytest.mark.parametrize(("waits", "executor"), [([100e-6, 400e-6], "thread"), ([400e-6, 100e-6], "serial")])
def test_a_clear_trial_ends_after_one_epoch_of_each(monkeypatch, waits, executor):
    measured = iter(waits)
    monkeypatch.setattr(auto, "in_a_row", lambda waits, burst: next(measured))
    monkeypatch.setattr(auto, "trimmed_mean", lambda values: 50e-6)
    with gl.DataLoader(ROWS, 1, num_workers=2, executor="auto") as loader:
        for tried in ("thread", "serial", executor, executor):
            assert len(list(loader)) == 60
            assert loader.stats().executor == tried


@pytest.mark.parametrize("wait", [5e-6, 85e-6, 310e-6])
def test_the_caller_is_not_tried_where_it_cannot_win(monkeypatch, wait):
    monkeypatch.setattr(auto, "in_a_row", lambda waits, burst: wait)
    monkeypatch.setattr(auto, "trimmed_mean", lambda values: 620e-6)
    with gl.DataLoader(ROWS, 1, num_workers=2, executor="auto") as loader:
        for _ in range(3):
            assert len(list(loader)) == 60
            assert loader.stats().executor == "thread"


@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (ROWS, {"worker_init_fn": repr}),
        (ROWS, {"executor": "thread"}),
        (gl.IterableDataset(lambda: iter(range(600))), {"num_shards": 2}),
    ],
    ids=["worker_init_fn", "told", "iterable"],
)
def test_what_is_for_workers_stays_with_workers(monkeypatch, dataset, options):
    monkeypatch.setattr(auto, "_CALLER_S", -3600.0)
    with gl.DataLoader(dataset, 1, num_workers=2, **{"executor": "auto", **options}) as loader:
        for _ in range(3):
            list(loader)
        assert loader.stats().executor in ("thread", "process")


def test_where_mxnet_may_be_drawn_from_workers_stay(monkeypatch):
    monkeypatch.setattr(auto, "_CALLER_S", -3600.0)
    monkeypatch.setitem(sys.modules, "mxnet", types.ModuleType("mxnet"))
    for dataset, executor in ((gl.gil_free(Numbered()), "thread"), (gl.ArrayDataset(np.ones(60)), "serial")):
        with gl.DataLoader(dataset, 1, num_workers=2, executor="auto") as loader:
            for _ in range(2):
                list(loader)
            assert loader.stats().executor == executor


def test_a_batch_that_takes_its_time_stays_with_workers():
    with gl.DataLoader(LARGE, 10, num_workers=2, executor="auto") as loader:
        for _ in range(4):
            list(loader)
        stats = loader.stats()
        assert stats.batches == 80
        assert stats.made_s > 0
        assert stats.waited_s > 0


def test_large_batches_of_data_in_memory_go_to_threads():
    with load(LARGE) as loader:
        total = sum(int(batch.sum(dtype=np.int64)) for batch in loader)
        assert total == 200_000_000
        assert loader.stats().executor == "thread"


@pytest.mark.parametrize("dataset", [Squares(), Decoded(), ROWS], ids=["process", "thread", "memory"])
@pytest.mark.parametrize("cheap", [-3600.0, 0.0])
def test_a_position_goes_to_and_from_any_executor(monkeypatch, dataset, cheap):
    monkeypatch.setattr(auto, "_CALLER_S", cheap)
    monkeypatch.setattr(auto, "_ENOUGH", 1)

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


def test_while_another_epoch_is_under_way_nothing_changes(monkeypatch):
    monkeypatch.setattr(auto, "_CALLER_S", -3600.0)
    with gl.DataLoader(ROWS, 1, num_workers=2, executor="auto") as loader:
        list(loader)
        held = iter(gl.DataLoader(ROWS, 1))  # of another loader
        with gl.DataLoader(ROWS, 1, num_workers=2, executor="auto") as other:
            under_way = iter(other)
            first = [next(under_way)[1].tolist() for _ in range(40)]
            second = [batch[1].tolist() for batch in other]
            assert other.stats().executor == "thread"
            assert first + [batch[1].tolist() for batch in under_way] == second == [[i] for i in range(60)]
            assert len(list(other)) == 60
            assert other.stats().executor == "serial"
        next(held)
        broken_off = iter(loader)
        next(broken_off)
        assert loader.stats().executor == "serial"


@pytest.mark.parametrize("epochs", [0, 1, 2])
def test_closing_at_any_time(monkeypatch, epochs):
    monkeypatch.setattr(auto, "_CALLER_S", -3600.0)
    loader = gl.DataLoader(ROWS, 1, num_workers=2, executor="auto")
    for _ in range(epochs):
        list(loader)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(gl.LoaderClosed):
        list(iterator)
    assert loader.stats().batches >= 60 * epochs + 1


def test_a_copy_of_a_loader_chooses_anew(monkeypatch):
    monkeypatch.setattr(auto, "_CALLER_S", -3600.0)
    with gl.DataLoader(ROWS, 1, num_workers=2, executor="auto") as loader:
        for _ in range(2):
            list(loader)
        copy = pickle.loads(pickle.dumps(loader))
        assert (copy.stats().executor, copy.stats().batches) == ("auto", 0)
        with copy:
            assert len(list(copy)) == 60
            assert copy.stats().executor == "thread"


class Moving(Squares):
    """It has a state of its own."""

    def __init__(self):
        self.level = 0

    def state_dict(self):
        return {"level": self.level}

    def load_state_dict(self, state):
        self.level = state["level"]


def makers(loader):
    return {pid for _, pids, _ in loader for pid in pids.tolist()}


@pytest.mark.parametrize("dataset", [Squares(), Moving()], ids=["seed", "state of the dataset"])
def test_the_caller_is_final_also_where_the_loader_begins_anew(monkeypatch, dataset):
    # It may have opened a file by now, whose position workers that are forked would share.
    monkeypatch.setattr(auto, "_CALLER_S", -3600.0)
    with gl.DataLoader(dataset, 1, num_workers=2, executor="auto") as loader:
        state = gl.DataLoader(dataset, 1).state_dict()
        assert os.getpid() not in makers(loader)
        dataset.level = 1
        assert makers(loader) == {os.getpid()}
        why = loader.stats().why
        loader.load_state_dict(state)
        for _ in range(3):
            assert makers(loader) == {os.getpid()}
            assert (loader.stats().executor, loader.stats().why) == ("serial", why)


def test_the_caller_is_final_in_a_forked_child_too(monkeypatch):
    monkeypatch.setattr(auto, "_CALLER_S", -3600.0)
    with gl.DataLoader(Squares(), 1, num_workers=2, executor="auto") as loader:
        for _ in range(2):
            list(loader)
        assert in_child(lambda: str((makers(loader) == {os.getpid()}, loader.stats().executor))) == "(True, 'serial')"


def test_a_loader_that_begins_anew_measures_anew(monkeypatch):
    monkeypatch.setattr(auto, "_CALLER_S", -3600.0)
    with gl.DataLoader(Squares(), 1, num_workers=2, executor="auto") as loader:
        state = gl.DataLoader(Squares(), 1).state_dict()
        list(loader)
        loader.load_state_dict(state)
        assert os.getpid() not in makers(loader)
        assert makers(loader) == {os.getpid()}


def test_nothing_is_read_here_that_a_process_may_read():
    with load(Squares()) as loader:
        assert os.getpid() not in makers(loader)


def test_in_a_worker_process_it_takes_the_caller_where_nothing_is_said():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(choice_of, (Squares(),)) == "serial"


def choice_of(dataset):
    with load(dataset) as loader:
        list(loader)
        return loader.stats().executor


def test_as_many_workers_as_cores(monkeypatch):
    monkeypatch.setattr("gluonloader.loading.arguments.available_cores", lambda: 3)
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
        ({"cpu.max": "\u00b2 100000"}, 64),
    ],
)
def test_cores_are_those_of_the_container(tmp_path, monkeypatch, files, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    own = tmp_path / "own"
    own.write_text("0::/a/b\n5:cpu,cpuacct:/a/b\n3:memory:/a\nnonsense\n")
    for name, text in files.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    assert limits.available_cores(own, tmp_path / "groups") == expected
    assert 1 <= limits.available_cores() <= 64
    assert limits.available_cores(tmp_path / "none", tmp_path / "nowhere") == 64


def test_gil_free_says_so_of_functions_classes_and_objects():
    @gl.gil_free
    def decode(data):
        return data

    said = (decode, Decoded, Decoded(), gl.gil_free(Squares()), np.ones(2), [1], range(3))
    assert all(map(is_gil_free, said))
    assert not is_gil_free(Squares())
    assert not is_gil_free(ReadsItsOwnWay())
    with pytest.raises(ValueError, match="it takes no attributes; put it into a function of your own"):
        gl.gil_free(len)

    @functools.wraps(decode)
    def wrapper(data):
        return decode(data)

    assert not is_gil_free(wrapper), "what is said of a function is not said of what wraps it"
    assert is_gil_free(gl.gil_free(wrapper))
    pairs = gl.Group(gl.Stack(), gl.Pad())
    assert all(map(is_gil_free, (pairs, gl.Dict({"x": gl.AsList()}), gl.Split(2), gl.default_batchify)))
    assert not is_gil_free(gl.Group(gl.Stack(), plain))
