"""The search of `tune`, over models of datasets: it finds a fast and simple setting within its budget."""

import itertools
import random
from dataclasses import dataclass, replace

import pytest
from conftest import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from gluonloader.tools.tuning.search import Search
from gluonloader.tools.tuning.setting import Setting
from gluonloader.tools.tuning.trial import Trial

BATCH = 32


@dataclass
class Model:
    """A dataset whose samples compute for `cpu_s` and wait for `wait_s`; times in seconds.

    It counts what the search measures. `noise` is the largest relative error of a speed.
    """

    cores: int
    cpu_s: float
    wait_s: float
    transport_s: float  # for a batch from a worker process
    gil: bool = True
    start_s: float = 0.02
    noise: float = 0.0
    worker_nbytes: int = 0
    broken: frozenset = frozenset()  # executors that raise an error
    hanging: frozenset = frozenset()

    def __post_init__(self):
        self.random, self.measured, self.took_s = random.Random(0), [], 0.0

    def speed(self, setting):
        lanes = max(1, setting.num_workers)
        wait_s = self.wait_s / min(setting.concurrency, BATCH)
        cores = 1 if setting.executor == "serial" or (self.gil and setting.executor == "thread") else self.cores
        speed = min(lanes / (self.cpu_s + wait_s), cores / self.cpu_s)
        if setting.executor == "process":
            speed = min(speed, BATCH / self.transport_s, 1 / (1 / speed + self.transport_s / BATCH / lanes))
        return speed

    def measure(self, setting, seconds, limit_s):
        self.measured.append(setting)
        assert 0 < limit_s
        took_s = min(limit_s, seconds + self.start_s * setting.num_workers)
        speed, error = self.speed(setting) * self.random.uniform(1 - self.noise, 1 + self.noise), ""
        if setting.executor in self.hanging:
            took_s, speed, error = limit_s, 0.0, "no result"
        if setting.executor in self.broken:
            took_s, speed, error = 0.01, 0.0, "ValueError: no"
        self.took_s += took_s
        waiting = self.wait_s / (self.cpu_s + self.wait_s)
        nbytes = self.worker_nbytes * (setting.executor == "process")
        return Trial(
            setting.arguments,
            speed,
            worker_nbytes=nbytes,
            waiting=waiting if speed else 0.0,
            took_s=took_s,
            error=error,
        )

    def search(self, budget_s=60.0, **more):
        search = Search(self.measure, self.cores, budget_s, **more)
        return search, search.run()

    def best_of_all(self):
        """The speed of the best of all settings that the search may choose."""
        workers = [1 << power for power in range(12) if 1 << power <= 2 * self.cores] + [self.cores]
        settings = [Setting(concurrency=concurrency) for concurrency in (1, 4, 8, 16, 32)]
        settings += itertools.starmap(Setting, itertools.product(["thread", "process"], workers, [1, 4, 8, 16, 32]))
        return max(map(self.speed, settings))


seconds = st.floats(-5.5, -1.5).map(lambda power: 10**power)
models = st.builds(
    Model,
    cores=st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 32]),
    cpu_s=seconds,
    wait_s=st.one_of(st.just(0.0), seconds),
    transport_s=st.floats(2e-5, 5e-3),
    gil=st.booleans(),
)


@settings(max_examples=examples(400))
@given(models)
def test_it_finds_a_setting_near_the_best(model):
    search, best = model.search()
    assert model.speed(best) >= 0.85 * model.best_of_all()
    assert model.took_s <= 60 + 1e-9
    assert len(search.trials) <= 30


@settings(max_examples=examples(200))
@given(models, st.floats(0, 0.1), st.sampled_from([5.0, 20.0, 60.0]))
def test_it_stays_in_its_budget_and_knows_noise(model, noise, budget_s):
    noisy = replace(model, noise=noise)
    _, best = noisy.search(budget_s)
    assert noisy.took_s <= budget_s + 1e-9
    assert model.speed(best) >= 0.7 * max(map(model.speed, noisy.measured))


@settings(max_examples=examples(100))
@given(models, st.sets(st.sampled_from(["serial", "thread", "process"])))
def test_settings_that_fail_or_hang_are_not_chosen(model, bad):
    for name in ("broken", "hanging"):
        changed = replace(model, **{name: frozenset(bad)})
        search, best = changed.search()
        assert changed.took_s <= 60 + 1e-9
        assert (best is None) == (len(bad) == 3)
        assert best is None or best.executor not in bad
        assert all(setting.executor not in bad for setting in search.finals)


def test_equal_speeds_give_the_simplest_setting():
    model = Model(cores=8, cpu_s=1e-4, wait_s=0.0, transport_s=1e-5)
    model.speed = lambda setting: 100.0
    assert model.search()[1] == Setting()


def test_finalists_are_measured_in_turn():
    model = Model(cores=8, cpu_s=1e-3, wait_s=0.0, transport_s=1e-5)
    search, best = model.search()
    assert best == Setting("process", 8)
    assert best in search.finals
    rounds = len(search.finals[best])
    assert rounds >= 3
    in_turn = list(search.finals) * rounds
    assert model.measured[len(search.trials) :][: len(in_turn)] == in_turn


def test_a_clear_result_needs_no_finals():
    model = Model(cores=1, cpu_s=1e-5, wait_s=0.0, transport_s=1e-1)
    model.speed = lambda setting: 1000.0 if setting == Setting() else 10.0
    search, best = model.search()
    assert best == Setting()
    assert search.finals == {}
    assert model.took_s < 20


def test_workers_that_need_much_memory_are_not_started():
    model = Model(cores=8, cpu_s=1e-3, wait_s=0.0, transport_s=1e-5, worker_nbytes=100)
    _, best = model.search(memory=450)
    assert best == Setting("process", 4)
    assert max(setting.num_workers for setting in model.measured if setting.executor == "process") == 4


def test_another_start_method_must_be_much_faster():
    model = Model(cores=2, cpu_s=1e-3, wait_s=0.0, transport_s=1e-5)
    speed = model.speed
    for gain, expected in ((1.1, None), (1.5, "spawn")):
        model.speed = lambda setting: speed(setting) * (gain if setting.start_method else 1)
        _, best = model.search(start_methods=("spawn",))
        assert best.start_method == expected
        assert Setting("process", 2, start_method="spawn") in model.measured


@settings(max_examples=examples(100))
@given(models)
def test_without_threads_no_samples_are_read_side_by_side(model):
    search, best = model.search(threads=False)
    assert all(setting.executor != "thread" and setting.concurrency == 1 for setting in search.trials)
    assert best is not None


def test_no_threads_are_tried_after_samples_drew_from_shared_generators():
    model = Model(cores=4, cpu_s=1e-4, wait_s=1e-3, transport_s=1e-5)
    measure = model.measure

    def draw(setting, seconds, limit_s):
        trial = measure(setting, seconds, limit_s)
        return (
            replace(trial, samples_per_s=0.0, draws=("`numpy.random`",), error="no") if setting.has_threads else trial
        )

    model.measure = draw
    search, best = model.search()
    assert [setting.has_threads for setting in model.measured].count(True) == 1
    assert not best.has_threads
    assert all(not setting.has_threads for setting in search.finals)


@pytest.mark.parametrize("iterable", [False, True])
def test_concurrency_is_tried_if_samples_wait(iterable):
    model = Model(cores=2, cpu_s=1e-5, wait_s=1e-2, transport_s=1e-5)
    measure = model.measure

    def refuse(setting, seconds, limit_s):
        trial = measure(setting, seconds, limit_s)
        return replace(trial, samples_per_s=0.0, error="no") if setting.concurrency > 1 else trial

    if iterable:
        model.measure = refuse
    _, best = model.search()
    assert best.concurrency == (1 if iterable else 32)
    assert best.num_workers == 4
