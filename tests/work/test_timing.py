"""How much of its time a worker waits, and the advice that follows from it."""

import time

import pytest
from conftest import FORK, SERIAL, THREAD
from hypothesis import given
from hypothesis import strategies as st
from samples import Numbered

from gluonloader.loading.stats import Tally, advice_on_waiting
from gluonloader.work.maker import Timer


class Sleepy(Numbered):
    def __getitem__(self, index):
        time.sleep(0.003)
        return index


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_stats_say_that_workers_wait_and_what_to_pass(way, concurrency):
    with way.loader(Sleepy(80), 2, concurrency=concurrency) as loader:
        assert loader.stats().waiting == 0
        list(loader)
        stats = loader.stats()
    assert 0.1 < stats.waiting <= 1
    if concurrency == 1 and stats.waiting > 0.5:  # on a busy machine, it may have waited less than it took to start
        assert "pass concurrency=" in stats.advice
    if concurrency > 1:
        assert stats.advice == ""


def test_batches_that_take_no_time_count_as_computed():
    with SERIAL.loader(range(400), 2) as loader:
        list(loader)
        assert loader.stats().waiting < 0.5
        assert loader.stats().advice == ""


def test_a_timer_asks_for_the_cpu_time_only_after_a_long_batch(monkeypatch):
    asked, now = [], iter([0.0, 0.5, 1.0, 1.0001, 2.0, 2.0001, 3.0, 4.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    timer = Timer(lambda: asked.append(0) or 0.1 * len(asked))
    measured = []
    for _ in range(4):
        timer.start()
        measured.append((timer.stop(), len(asked)))
    assert [(pytest.approx(took), pytest.approx(cpu), count) for (took, cpu), count in measured] == [
        (0.5, 0.1, 2), (0.0001, 0.0001, 4), (0.0001, 0.0001, 4), (1.0, 1.0, 4),
    ]  # fmt: skip


@given(
    made=st.floats(0.01, 1e4), computed=st.floats(0, 1), workers=st.integers(0, 64), cores=st.integers(1, 64),
    concurrency=st.integers(1, 3), batches=st.integers(0, 99),
)  # fmt: skip
def test_advice_needs_waiting_workers_and_free_cores(made, computed, workers, cores, concurrency, batches):
    tally = Tally(batches=batches, made_s=made, cpu_s=made * computed)
    advice = advice_on_waiting(tally, workers, concurrency, cores)
    if concurrency > 1 or batches < 32 or computed > 0.51 or computed * max(1, workers) > cores / 1.9:
        assert advice == ""
    if concurrency == 1 and batches >= 32 and computed < 0.49 and computed * max(1, workers) < cores / 2.1:
        assert 2 <= int(advice.rpartition("=")[2]) <= 32
