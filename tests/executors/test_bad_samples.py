"""Samples that kill or stop their worker process, with `on_error`: only they are left out of their batch."""

from __future__ import annotations

import os
import random
import signal
import threading

import numpy as np
import pytest
from conftest import FORK, FORKSERVER, SPAWN, workers
from faulty import AsyncDangerous, AsyncDangerousInBulk, Dangerous, DangerousInBulk, Explosive, load

import gluonloader as gl
from gluonloader.options import OnError

pytestmark = [pytest.mark.usefixtures("no_leaks"), pytest.mark.numpy_only, pytest.mark.soak]

SAMPLES = int(os.environ.get("GLUONLOADER_BAD_SAMPLES", "2000"))  # 100000 for the full test
FULL = SAMPLES >= 100_000


def indices_of(batches):
    return [row[0] for batch in batches for row in batch]


@pytest.mark.parametrize(
    ("way", "kind"), [(FORK, Dangerous), (FORK, DangerousInBulk), (FORKSERVER, Dangerous), (SPAWN, DangerousInBulk)]
)
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_samples_that_kill_their_worker_are_left_out(way, kind, policy):
    dataset = kind(kills=(3, 4, 40), raises=(5, 41))  # several of them in the same batch
    batches = load(way, dataset, 8, on_error=policy)
    # The same samples in the same places as if they had raised an error.
    assert batches == load(FORK, kind(raises=(3, 4, 5, 40, 41)), 8, on_error=policy)
    if policy == "skip":
        assert indices_of(batches) == dataset.good()
    else:
        assert [len(batch) for batch in batches] == [8] * 7 + [4]


@pytest.mark.slow
@pytest.mark.parametrize(("way", "kind"), [(FORK, Dangerous), (FORK, DangerousInBulk), (SPAWN, Dangerous)])
def test_samples_that_hang_are_left_out(way, kind):
    dataset = kind(20, hangs=(3, 5), raises=(4,), kills=(11,))
    timeout = 2 if way is FORK else 5
    assert indices_of(load(way, dataset, 8, on_error="skip", timeout=timeout)) == dataset.good()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Dangerous, DangerousInBulk, AsyncDangerous, AsyncDangerousInBulk])
def test_they_are_left_out_although_several_samples_are_read_at_a_time(kind):
    dataset = kind(32, hangs=(3,), raises=(4, 21), kills=(11, 12, 31))
    expected = load(
        FORK,
        (DangerousInBulk if hasattr(kind, "__getitems__") else Dangerous)(32, raises=(3, 4, 21, 11, 12, 31)),
        8,
        on_error="skip",
    )
    assert load(FORK, dataset, 8, on_error="skip", timeout=2, concurrency=4) == expected


def name_of(error, index):
    return np.array([-index, {gl.errors.WorkerDied: 1, gl.errors.BatchTimeout: 2, OSError: 3}[type(error)]])


def test_a_function_gets_the_errors_of_the_workers():
    dataset = Dangerous(8, kills=(3,), hangs=(5,), raises=(6,))
    (batch,) = load(FORK, dataset, 8, on_error=name_of, timeout=2)
    assert [row for row in batch if row[0] < 0] == [[-3, 1], [-5, 2], [-6, 3]]


@pytest.mark.parametrize("max_retries", [0, 1, 3])
@pytest.mark.parametrize("kind", [Dangerous, DangerousInBulk])
def test_the_error_names_the_sample_and_how_many_workers_died(max_retries, kind):
    with FORK.loader(kind(8, kills=(3,)), 4, on_error=OnError("skip", 0), **FORK.retrying(max_retries)) as loader:
        died = f"{max_retries + 1} worker{'s' * (max_retries > 0)} died on this sample"
        text = (
            rf"dataset\[3\]: WorkerDied: .* with exit code 3 while it read dataset\[3\] .*{died}; .* raise max_retries"
        )
        with pytest.raises(gl.errors.TooManyErrors, match=text):
            list(loader)


def test_a_sample_that_is_tried_in_place_of_another_may_kill_its_worker_too():
    dataset = Dangerous(8, kills=(1, 2, 4, 6, 7), raises=(3,))
    (batch,) = load(FORK, dataset, 8, on_error="replace", **FORK.retrying(0))
    assert len(batch) == 8
    assert set(indices_of([batch])) <= {0, 5}


def test_a_batchify_fn_that_kills_its_worker_is_an_error(process_way):
    with process_way.loader(Dangerous(12), 4, on_error=OnError("skip", 9), batchify_fn=Explosive()) as loader:
        iterator = iter(loader)
        assert len(next(iterator)) == 4
        with pytest.raises(gl.errors.WorkerDied, match="batch 1 of epoch 0"):
            next(iterator)
        assert len(next(iterator)) == 4
        assert loader.stats().errors == 0


def test_a_batchify_fn_that_hangs_is_an_error():
    def batchify(samples):
        if 5 in indices_of([samples]):
            threading.Event().wait(3600)
        return np.stack(samples)

    with FORK.loader(Dangerous(12), 4, on_error=OnError("skip", 9), batchify_fn=batchify, timeout=2) as loader:
        iterator = iter(loader)
        assert len(next(iterator)) == 4
        with pytest.raises(gl.errors.BatchTimeout, match=r"(?s)batch 1 of epoch 0.*in batchify"):
            next(iterator)
        assert len(next(iterator)) == 4


def crash(error, index):
    os._exit(5)


def hang(error, index):
    threading.Event().wait(3600)


@pytest.mark.parametrize("kind", [Dangerous, AsyncDangerous, DangerousInBulk])
@pytest.mark.parametrize(
    ("on_error", "error"),
    [
        pytest.param(crash, gl.errors.WorkerDied, id="crash"),
        pytest.param(hang, gl.errors.BatchTimeout, id="hang", marks=pytest.mark.slow),
    ],
)
def test_a_function_that_kills_or_stops_its_worker_is_an_error(kind, on_error, error):
    arguments = {"on_error": OnError(on_error, 9), **FORK.retrying(0), "timeout": 2}
    with FORK.loader(kind(12, raises=(4, 7)), 4, num_workers=1, **arguments) as loader:
        iterator = iter(loader)
        assert len(next(iterator)) == 4
        text = "batchify_fn, or with on_error" if error is gl.errors.WorkerDied else "hang"
        with pytest.raises(error, match=rf"(?s)batch 1 of epoch 0.*{text}"):
            next(iterator)
        assert len(next(iterator)) == 4


class BadInBulk(Dangerous):
    """Only its bulk reads kill or stop the worker; single reads do not."""

    def __init__(self, fault):
        super().__init__(8)
        self.fault = fault

    def __getitems__(self, indices):
        if 5 in indices:
            self.fault(None, None)
        return [self[index] for index in indices]


@pytest.mark.parametrize("fault", [crash, pytest.param(hang, marks=pytest.mark.slow)])
@pytest.mark.parametrize("max_retries", [0, 1])
def test_if_only_bulk_reads_fail_all_samples_are_read_one_by_one(fault, max_retries):
    arguments = {"on_error": OnError("skip", 0), **FORK.retrying(max_retries), "timeout": 2}
    assert indices_of(load(FORK, BadInBulk(fault), 4, **arguments)) == list(range(8))


def test_a_bad_sample_is_left_out_again_after_a_resume():
    dataset = Dangerous(20, kills=(9, 10), hangs=(13,))
    arguments = {"on_error": OnError("skip", 3), "timeout": 2}
    with FORK.loader(dataset, 4, **arguments) as loader:
        iterator = iter(loader)
        next(iterator), next(iterator), next(iterator)
        state = loader.state_dict()
        assert state["errors"] == 2
    with FORK.loader(dataset, 4, **arguments) as loader:
        loader.load_state_dict(state)
        assert indices_of(batch.tolist() for batch in loader) == [12, 14, 15, 16, 17, 18, 19]
        assert loader.stats().errors == 1


# -- with workers that are killed at random ----------------------------------------------------------------------------


def kill_some(loader, kills, stopping):
    """Kills random workers until it is told to stop."""
    chooser = random.Random(0)
    while not stopping.wait(chooser.uniform(0.0, 0.1)):
        pids = workers(loader)
        if pids:
            try:
                os.kill(chooser.choice(pids), signal.SIGKILL)
            except ProcessLookupError:
                continue  # it was dying already
            kills.append(None)


@pytest.mark.kill
@pytest.mark.parametrize("kind", [Dangerous, DangerousInBulk])
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_every_good_sample_comes_once_although_workers_are_killed_at_random(kind, policy):
    chooser = random.Random(1)
    chosen = chooser.sample(range(SAMPLES), SAMPLES // 100 + 15)
    kills, hangs, raises = (chosen[:10], chosen[10:15], chosen[15:]) if FULL else (chosen[:4], chosen[4:5], chosen[5:])
    dataset, timeout = kind(SAMPLES, kills, hangs, raises), 5 if FULL else 2
    expected = load(FORK, kind(SAMPLES, (), (), chosen), 32, True, on_error=policy)
    # Random kills may hit the same sample again and again; that is what the retries are for.
    arguments = {"on_error": OnError(policy, len(chosen)), "timeout": timeout, **FORK.retrying(5)}
    with FORK.loader(dataset, 32, True, **arguments) as loader:
        killed, stopping = [], threading.Event()
        killer = threading.Thread(target=kill_some, args=(loader, killed, stopping))
        killer.start()
        try:
            batches = [batch.tolist() for batch in loader]
        finally:
            stopping.set()
            killer.join()
        assert batches == expected
        assert loader.stats().errors == len(chosen)
    assert killed
    if policy == "skip":
        assert sorted(indices_of(batches)) == dataset.good()
