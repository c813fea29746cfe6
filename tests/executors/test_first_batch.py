"""The first batch of an epoch: read by all workers at once, and the same as if one had read it."""

import os
import random
import signal
import sys
import threading
import time
from collections import Counter, namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
from conftest import FORK, ONE_FORK, SERIAL, SPAWN, THREAD, eventually, load_mxnet, load_or_skip, workers
from hypothesis import given, settings
from hypothesis import strategies as st

import gluonloader as gl
from gluonloader.work import maker as making

pytestmark = pytest.mark.usefixtures("no_leaks")

SIZE, LENGTH = 8, 36  # of a batch, of a dataset


@pytest.fixture(autouse=True)
def however_quick(monkeypatch):
    """Batches are split also where samples are read in no time; a spawned worker says so by itself."""
    monkeypatch.setattr(making, "_SPLIT_S", 0.0)
    monkeypatch.setattr(making, "_BYTE_S", 0.0)


def always_split(info):
    making._SPLIT_S = making._BYTE_S = 0.0


def read_log(folder):
    """How often each sample was read."""
    return Counter(map(int, (folder / "log").read_text().split()))


class Plain:
    """Samples that say which they are; reads are noted in a file, if there is one."""

    def __init__(self, folder=None):
        self.folder = folder

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        if self.folder is not None:
            with (self.folder / "log").open("a") as file:
                file.write(f"{index}\n")
        return self.sample(index)

    def sample(self, index):
        return np.full(3, index)


class Meets(Plain):
    """A sample of the first batch is there when its counterpart in the other half was begun, in the same epoch."""

    def sample(self, index):
        if index >= SIZE:
            return index, True
        epoch = gl.get_worker_info().epoch
        (self.folder / f"{epoch}-{index}").touch()
        other, patience = self.folder / f"{epoch}-{(index + SIZE // 2) % SIZE}", 3000
        while patience and not other.exists():
            patience -= 1
            time.sleep(0.005)
        return index, other.exists()


@pytest.mark.parametrize("way", [THREAD, FORK, SPAWN], ids=str)
def test_all_workers_read_the_first_batch_of_each_epoch(way, tmp_path):
    with way.loader(Meets(tmp_path), SIZE, worker_init_fn=always_split) as loader:
        for _ in range(2):
            indices, met = zip(*[(batch[0].tolist(), batch[1].all()) for batch in loader], strict=True)
            assert indices == tuple(list(range(LENGTH))[i : i + SIZE] for i in range(0, LENGTH, SIZE))
            assert all(met)
    assert set(read_log(tmp_path).values()) == {2}


class Waits(Plain):
    """Samples behind the first batch wait until that is made."""

    def sample(self, index):
        made, patience = self.folder / "made", 3000
        while index >= SIZE and patience and not made.exists():
            patience -= 1
            time.sleep(0.005)
        return index, index < SIZE or made.exists()

    def batchify(self, samples):
        (self.folder / "made").touch()
        return samples


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
@pytest.mark.parametrize("num_workers", [2, 3])
def test_a_worker_is_free_for_the_first_batch_when_it_is_read(way, num_workers, tmp_path):
    dataset = Waits(tmp_path)
    with way.loader(dataset, SIZE, batchify_fn=dataset.batchify, num_workers=num_workers) as loader:
        assert all(made for batch in loader for _, made in batch)


Point = namedtuple("Point", "x y")


@dataclass
class Pair:
    left: object
    right: object


def nested(index):
    row = np.arange(6).reshape(2, 3).T + index
    return {"point": Point(index, row), "text": f"#{index}", "pair": Pair(np.float32(index), [index, b"x"])}


class Key:
    """Compared by identity, as all objects whose class does not say otherwise."""


KEY, MISSING = Key(), object()

SAMPLES = {
    "plain": lambda index: np.full(3, index),
    "large": lambda index: np.full(50_000, index, np.uint8),
    "nested": nested,
    "python": lambda index: (index, random.random()),
    "numpy": lambda index: (index, np.random.randn()),
    "get_rng": lambda index: (index, gl.get_rng().integers(1 << 40)),
    "late": lambda index: (index, gl.get_rng().random() if index % SIZE in (3, 7) else 0.0),
    "torch": lambda index: sys.modules["torch"].rand(2) + index,
    "tensors": lambda index: sys.modules["torch"].full((2, index % 3 + 1), index),
    "mxnet": lambda index: sys.modules["mxnet"].nd.random.uniform(shape=2) + index,
    "locks": lambda index: (index, threading.Lock() if index % 5 == 3 else None),  # which nothing can pickle
    "marks": lambda index: MISSING if index % 3 else index,
    "keys": lambda index: (KEY, index),
    "who": lambda index: gl.get_worker_info().id,
}


class Gives(Plain):
    """Samples of one kind."""

    def __init__(self, kind, folder=None):
        super().__init__(folder)
        self.kind = kind

    def sample(self, index):
        return SAMPLES[self.kind](index)


def as_it_is(samples):
    return list(samples)


def without_locks(samples):
    return [(index, lock is None) for index, lock in samples]


def without_marks(samples):
    return [None if sample is MISSING else sample for sample in samples]


def by_key(samples):
    return [index if key == KEY else -1 for key, index in samples]


def shuffled(samples):
    gl.get_rng().shuffle(order := np.arange(len(samples)))
    return np.stack(samples)[order]


def in_place(samples):
    for sample in samples:
        sample *= 2
    return np.stack(samples)


class KeepsOne:
    """Each batch says whether the first sample that this worker has seen is still what it was."""

    kept = None

    def __call__(self, samples):
        self.kept = self.kept or (samples[0], samples[0].copy())
        return [np.array_equal(*self.kept), *samples]


def flat(value):
    """Anything of a batch as what `==` compares."""
    if isinstance(value, dict):
        return {key: flat(item) for key, item in value.items()}
    if isinstance(value, Pair):
        return flat(vars(value))
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [flat(item) for item in value]
    if hasattr(value, "tolist"):
        return type(value).__name__, str(value.dtype), value.tolist()
    return value.asnumpy().tolist() if hasattr(value, "asnumpy") else value


def epochs(way, dataset, number=2, **options):
    with way.loader(dataset, **{"batch_size": SIZE, **options}) as loader:
        return [[flat(batch) for batch in loader] for _ in range(number)]


KINDS = [
    ("plain", None), ("get_rng", None), ("late", None), ("python", None), ("numpy", None), ("nested", None),
    ("nested", as_it_is), ("locks", without_locks), ("marks", without_marks), ("keys", by_key), ("plain", shuffled),
    ("get_rng", as_it_is), ("plain", in_place), ("plain", KeepsOne()),
]  # fmt: skip


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
@pytest.mark.parametrize(("kind", "batchify"), KINDS)
def test_the_batches_are_the_same(way, kind, batchify):
    if way is THREAD and kind in ("python", "numpy"):
        pytest.skip("threads share these generators")
    assert epochs(way, Gives(kind), batchify_fn=batchify) == epochs(SERIAL, Gives(kind), batchify_fn=batchify)


@pytest.mark.parametrize("kind", ["plain", "numpy", "nested"])
def test_the_batches_are_the_same_where_workers_are_spawned(kind):
    expected = epochs(SERIAL, Gives(kind))
    assert epochs(SPAWN, Gives(kind), worker_init_fn=always_split) == expected


@pytest.mark.parametrize("kind", ["torch", "tensors", "plain"])
def test_with_torch(kind):
    load_or_skip("torch")
    batchify = as_it_is if kind == "tensors" else None
    expected = epochs(SERIAL, Gives(kind), batchify_fn=batchify)
    assert epochs(FORK, Gives(kind), batchify_fn=batchify) == expected


@pytest.mark.parametrize("kind", ["mxnet", "plain"])
def test_with_mxnet(kind, tmp_path):
    if load_mxnet() is None:
        pytest.skip("needs mxnet")
    expected = epochs(ONE_FORK, Gives(kind))
    assert epochs(FORK, Gives(kind, tmp_path)) == expected
    assert set(read_log(tmp_path).values()) == ({2} if kind == "plain" else {2, 3})  # 3: the first of a part


OPTIONS = [
    {"shuffle": True},
    {"prefetch": 1},
    {"prefetch": 20},
    {"max_per_worker": 1},
    {"auto_reload": True},
    {"memory_limit": "2MB"},
    {"memory_limit": "1MiB"},
    {"num_workers": 5},
    {"num_workers": 3, "batch_size": 7},
    {"batch_size": LENGTH},
    {"last_batch": "rollover"},
    {"batch_size": None, "batch_sampler": [[3, 1, 2], [5] * 9, list(range(20))]},
    {"batch_size": None, "batch_sampler": [list(range(20)), [0]]},
    {"output": "numpy"},
    {"executor": "auto", "num_workers": "auto"},
]


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_batches_are_the_same_whatever_the_options(way, options):
    if way is THREAD and "executor" in options:
        options = {**options, "thread_pool": False}
    alone = {key: value for key, value in options.items() if key not in ("num_workers", "executor", "thread_pool")}
    assert epochs(way, Plain(), 3, **options) == epochs(SERIAL, Plain(), 3, **alone)


@pytest.mark.parametrize("limit", ["1MiB", "1300kB", "2MB", "4MB"])
def test_where_memory_is_short(limit):
    with FORK.loader(Gives("large"), SIZE, memory_limit=limit) as loader:
        for _ in range(3):
            found = [(batch.min(axis=1).tolist(), batch.max(axis=1).tolist()) for batch in loader]
            rows = [list(range(LENGTH))[i : i + SIZE] for i in range(0, LENGTH, SIZE)]
            assert found == [(row, row) for row in rows]


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
def test_as_they_come(way, tmp_path):
    with way.loader(Plain(tmp_path), 4, in_order=False) as loader:
        for _ in range(3):
            assert sorted(batch[:, 0].tolist() for batch in loader) == [list(range(i, i + 4)) for i in range(0, 36, 4)]
    assert set(read_log(tmp_path).values()) == {3}


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, LENGTH - 1), min_size=1, max_size=30), max_size=6),
    st.integers(2, 7),
    st.integers(1, 5),
)
def test_batches_of_any_size_are_cut_and_joined(batches, num_workers, prefetch):
    arguments = {"batch_sampler": batches, "batchify_fn": as_it_is, "num_workers": num_workers, "prefetch": prefetch}
    with gl.DataLoader(gl.SimpleDataset(range(LENGTH)).transform(str), executor="thread", **arguments) as loader:
        for _ in range(2):
            assert list(loader) == [list(map(str, batch)) for batch in batches]


class Raises(Plain):
    def __init__(self, *bad):
        super().__init__()
        self.bad = bad

    def sample(self, index):
        if index in self.bad:
            raise LookupError(f"no sample {index}")
        return np.full(index // 30 + 1, index)


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
@pytest.mark.parametrize("bad", [(0,), (3,), (5,), (7, 2)])
def test_an_error_in_a_part_is_that_of_the_batch(way, bad):
    with way.loader(Raises(*bad), SIZE) as loader:
        for epoch in range(2):
            iterator = iter(loader)
            with pytest.raises(LookupError, match=f"no sample {min(bad)}") as caught:
                next(iterator)
            assert f"gluonloader: in dataset[{min(bad)}], batch 0 of epoch {epoch}" in caught.value.__notes__
            assert [batch[0, 0] for _, batch in zip(range(2), iterator)] == [8, 16]


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
def test_an_error_of_batchify_is_that_of_the_batch(way):
    with way.loader(Raises(), batch_sampler=[[0, 1, 2, 3, 4, 31], [5, 6]]) as loader:
        iterator = iter(loader)
        with pytest.raises(gl.BatchifyError, match=r"sample 31 \(batch 0, position 5\)"):
            next(iterator)
        assert next(iterator).tolist() == [[5], [6]]


class Deadly(Plain):
    """Sample `victim` ends its worker, the first `times` times."""

    def __init__(self, folder, victim, times):
        super().__init__(folder)
        self.victim, self.times = victim, times

    def sample(self, index):
        if index == self.victim and read_log(self.folder)[index] <= self.times:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().sample(index)


@pytest.mark.parametrize("victim", [0, 6])
@pytest.mark.parametrize("times", [1, 2, 3, 4])
def test_a_worker_that_dies_in_a_part_loses_nothing(victim, times, tmp_path):
    dataset = Deadly(tmp_path, victim, times)
    with FORK.loader(dataset, SIZE, max_retries=4) as loader:
        for _ in range(2):
            assert [batch[:, 0].tolist() for batch in loader] == [
                list(range(LENGTH))[i : i + SIZE] for i in range(0, LENGTH, SIZE)
            ]


@pytest.mark.parametrize("victim", [0, 6])
def test_a_sample_that_always_kills_is_named_by_its_place_in_the_batch(victim, tmp_path):
    with FORK.loader(Deadly(tmp_path, victim, 99), SIZE) as loader:
        iterator = iter(loader)
        with pytest.raises(
            gl.WorkerDied, match=rf"batch 0 of epoch 0, at sample dataset\[{victim}\] \(position {victim}\); 2 workers"
        ):
            next(iterator)
        assert [batch[0, 0] for batch in iterator] == [8, 16, 24, 32]


def die_once(samples):
    """A batchify that ends the first worker that calls it for the first batch."""
    if samples[0][0]:
        return in_place(samples)
    try:
        os.close(os.open(die_once.flag, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return in_place(samples)
    in_place(samples)
    os._exit(4)


def test_a_worker_that_dies_in_batchify_loses_nothing(tmp_path):
    die_once.flag = str(tmp_path / "flag")
    expected = epochs(SERIAL, Plain(), 1, batchify_fn=in_place)
    assert epochs(FORK, Plain(), 1, batchify_fn=die_once) == expected


class Stuck(Plain):
    def __init__(self, *bad):
        super().__init__()
        self.bad, self.over = bad, threading.Event()

    def sample(self, index):
        if index in self.bad:
            self.linger()
        return index

    def linger(self):
        self.over.wait(60)


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
@pytest.mark.parametrize("bad", [(1,), (5,), (2, 6)])
def test_a_part_past_its_timeout_is_the_batch_past_its_timeout(way, bad):
    dataset = Stuck(*bad)
    with way.loader(dataset, SIZE, timeout=1) as loader:
        before = set(workers(loader)) if way.processes else set()
        iterator = iter(loader)
        with pytest.raises(gl.BatchTimeout, match=r"(?s)batch 0 of epoch 0 took more than timeout=1 .*in linger"):
            next(iterator)
        assert eventually(lambda: not way.processes or len(before.intersection(workers(loader))) == 2 - len(bad))
        dataset.over.set()  # a stuck thread cannot be ended
        assert [batch[0] for batch in iterator] == [8, 16, 24, 32]


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
def test_positions_before_and_after_and_changes_of_mind(way):
    whole = epochs(SERIAL, Plain(), 2, shuffle=True)
    for had in range(3):
        with way.loader(Plain(), SIZE, shuffle=True) as loader:
            iterator = iter(loader)
            assert [flat(next(iterator)) for _ in range(had)] == whole[0][:had]
            state = iterator.state_dict()
            iterator.flush()
            assert flat(next(iterator)) == whole[0][had]
            iterator.load_state_dict(state)
            assert list(map(flat, iterator)) == whole[0][had:]
            assert list(map(flat, loader)) == whole[1]
            loader.load_state_dict(state)
            assert list(map(flat, loader)) == whole[0][had:]


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
def test_breaking_off_and_several_at_once(way):
    with way.loader(Plain(), SIZE) as loader:
        for _ in range(5):
            iter(loader).close()
            iter(loader)
        for first, second in zip(loader, loader, strict=True):
            assert flat(first) == flat(second)
        iterator = iter(loader)
    with pytest.raises(gl.LoaderClosed):
        list(iterator)


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
@pytest.mark.parametrize("kind", ["plain", "get_rng"])
def test_what_is_not_worth_it_or_draws_is_soon_known_and_once(way, kind, monkeypatch, tmp_path):
    if kind == "plain":
        monkeypatch.setattr(making, "_SPLIT_S", 3600.0)
    with way.loader(Gives(kind, tmp_path), SIZE) as loader:
        for had in (1, 2):
            assert len(list(loader)) == 5
            reads = read_log(tmp_path)
            assert {index for index, times in reads.items() if times > had} <= {0, 4}  # the first of each part
            assert reads.total() <= had * LENGTH + 2


class Bulk(Plain):
    def __getitems__(self, indices):
        with (self.folder / "calls").open("a") as file:
            file.write(f"{len(indices)} ")
        return list(map(self.sample, indices))


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
def test_what_is_read_in_bulk_is_read_by_one(way, tmp_path):
    with way.loader(Bulk(tmp_path), SIZE) as loader:
        assert len(list(loader)) == 5
    assert sorted((tmp_path / "calls").read_text().split()) == ["4", "8", "8", "8", "8"]


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
@pytest.mark.parametrize("options", [{"batch_size": 3}, {"num_workers": 1}, {"auto_reload": True}], ids=str)
def test_others_are_read_by_one(way, options):
    with way.loader(Gives("who"), **{"batch_size": SIZE, **options}) as loader:
        assert len(set(next(iter(loader)).tolist())) == 1
