"""A trial of `tune`: figures, errors, hangs and deaths in its child process."""

import os
import signal
import time

import numpy as np
import pytest
from conftest import eventually, is_running

from gluonloader import DataLoader, SimpleDataset, get_rng
from gluonloader.tools.tuning.speed import Step, endless, run
from gluonloader.tools.tuning.trial import measure

ROWS = np.zeros((100, 64), np.float32)


def factory(dataset=ROWS):
    return lambda **options: DataLoader(dataset, 10, **options)


def trial(factory, seconds=0.2, limit_s=60.0, step=Step(), **arguments):
    return measure(factory, arguments, seconds, limit_s, step)


@pytest.mark.parametrize("arguments", [{}, {"num_workers": 2}, {"num_workers": 2, "executor": "thread"}], ids=str)
def test_figures(arguments):
    found = trial(factory(), **arguments)
    assert found.error == ""
    assert found.arguments == arguments
    assert 0 < found.low <= found.high
    assert found.samples_per_s > 0
    assert found.first_batch_s > 0
    assert found.batch_nbytes == 10 * 64 * 4
    assert (found.shared_nbytes > 0) == (found.worker_nbytes > 0) == (arguments == {"num_workers": 2})
    assert 0 <= found.waiting <= 1
    assert found.took_s > 0


def test_memory_limit_is_kept():
    big = np.zeros((100, 10_000))
    found = trial(factory(big), num_workers=2, prefetch=8, memory_limit="2MB")
    assert found.error == ""
    assert 0 < found.shared_nbytes <= 2 << 20


def fail(**options):
    raise KeyError("gone")


def read(index):
    raise OSError(f"no photo {index}")


def die(**options):
    os.kill(os.getpid(), signal.SIGKILL)


def test_errors():
    assert trial(fail).error == "KeyError: 'gone'"
    assert trial(factory(), num_workers=-1).error.startswith("ValueError: num_workers=-1: ")
    assert trial(factory([])).error == "ValueError: the loader yields no batch: is its dataset empty?"
    unreadable = SimpleDataset(range(100)).transform(read)
    assert trial(factory(unreadable)).error == "OSError: no photo 0; gluonloader: in dataset[0], batch 0 of epoch 0"
    assert trial(die).error == "its process ended with exit code -9"


class Hanging:
    """A dataset whose workers write their process to a file, and then hang."""

    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 100

    def __getitem__(self, index):
        with open(self.path, "a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(1000)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_trial_that_hangs_is_ended_with_its_workers(tmp_path, workers):
    for limit_s in (0.5, 2.0, 8.0, 32.0):  # on a busy machine workers start slowly
        path = tmp_path / f"pids{limit_s}"
        path.touch()
        found = trial(factory(Hanging(path)), limit_s=limit_s, num_workers=workers)
        late = f"no result after {limit_s} s, so the trial was ended: pass a larger budget, unless the loader hangs"
        assert (found.error, found.samples_per_s) == (late, 0)
        pids = set(path.read_text().split())
        assert eventually(lambda: not any(map(is_running, pids)))
        if len(pids) == max(1, workers):
            return
    raise AssertionError("the workers have not started")


class OneHangs(SimpleDataset):
    """Sample 125 is never read; the others take 1 ms."""

    def __init__(self):
        super().__init__(range(1000))

    def __getitem__(self, index):
        time.sleep(1000 if index == 125 else 0.001)
        return index


@pytest.mark.parametrize("arguments", [{}, {"num_workers": 2}, {"num_workers": 2, "executor": "thread"}], ids=str)
def test_a_trial_that_reaches_a_sample_that_hangs_measures_the_batches_before_it(arguments):
    for seconds in (0.2, 0.8, 3.2, 12.8):  # on a busy machine a short trial may end before it reaches the sample
        found = trial(factory(OneHangs()), seconds=seconds, **arguments)
        assert found.error == ""
        assert found.samples_per_s > 0
        if found.stuck_s:
            assert found.stuck_s >= seconds
            return
    raise AssertionError("no trial has reached the sample that hangs")


class Drawing:
    def __len__(self):
        return 100

    def __getitem__(self, index):
        return index + np.random.random()


def test_samples_that_draw_from_shared_generators_cannot_be_read_in_threads():
    found = trial(factory(Drawing()), num_workers=2, executor="thread")
    assert (found.draws, found.samples_per_s) == (("`numpy.random`",), 0)
    assert found.error.startswith("samples drew from `numpy.random`, which threads share, so runs would differ")
    assert trial(factory(Drawing()), num_workers=2).error == ""
    fair = SimpleDataset(range(100)).transform(lambda index: index + get_rng().random())
    assert trial(factory(fair), num_workers=2, executor="thread").draws == ()


@pytest.mark.parametrize("busy", [False, True])
def test_the_step_is_simulated(busy):
    found = trial(factory(), step=Step(0.01, busy))
    assert 0 < found.samples_per_s <= 10 / 0.01


def test_a_run_reads_as_many_epochs_as_needed():
    batches = endless([1, 2, 3])
    measured = run(batches, 0.0, Step(), workers=4, window=5)
    assert measured.batches == 10
    assert len(measured.ends) == 11
    assert len(measured.rates(burst=5)) == 2
    assert min(measured.rates(burst=5)) <= measured.rate <= max(measured.rates(burst=5))
    assert next(batches) == (5 + 10) % 3 + 1


def test_a_run_that_starts_too_late_still_measures_the_step():
    late = time.perf_counter() - 1
    measured = run(iter(range(100)), 0.1, Step(0.01, busy=True), workers=2, window=4, deadline=late)
    assert measured.batches == 2
    assert 0 < measured.rate <= 1 / 0.01
