"""The reports of workers on their time: each batch is divided into stages, and the sums are exact."""

import os
import time

import numpy as np
import pytest
from conftest import ANY, WAYS
from hypothesis import given
from hypothesis import strategies as st
from samples import Numbered

from gluonloader.work.usage import Resources, Timer, Usage, WorkerStats, process_resources, thread_resources

MS = 1_000_000


class Clock:
    """Stands for `time.perf_counter_ns`; each call of `pass_ms` moves it."""

    def __init__(self, monkeypatch):
        self.now = 1
        monkeypatch.setattr(time, "perf_counter_ns", lambda: self.now)

    def pass_ms(self, ms):
        self.now += int(ms * MS)


class Broken(Numbered):
    def __getitem__(self, index):
        raise KeyError(index)


def test_a_report_divides_a_batch_into_stages(monkeypatch):
    clock, usage = Clock(monkeypatch), Usage()
    used = iter([Resources(10 * MS, 5, 20 * MS), Resources(13 * MS, 8, 22 * MS)])
    timer = Timer(lambda: next(used))
    clock.pass_ms(7)
    timer.start()
    clock.pass_ms(4)
    timer.note_read()
    clock.pass_ms(2)
    timer.note_made()
    clock.pass_ms(1)
    usage.add(3, timer.stop(0, 0))
    assert timer.took == 7 * MS
    spent = usage.fold()[3]
    times = (pytest.approx(ms / 1000) for ms in (4, 2, 1, 7, 3))
    assert spent == WorkerStats(1, *times, page_faults=3, core_wait_s=0.002)
    assert spent.made_s == pytest.approx(0.007)


def test_resources_are_asked_for_only_after_a_long_batch(monkeypatch):
    clock, usage, asked = Clock(monkeypatch), Usage(), []
    timer = Timer(lambda: asked.append(0) or Resources(MS // 4 * len(asked)))
    counts = []
    for ms in (5, 0.5, 0.5, 5, 5):
        timer.start()
        clock.pass_ms(ms)
        timer.note_read()
        usage.add(0, timer.stop(0, 0))
        counts.append(len(asked))
    assert counts == [2, 4, 4, 4, 6]
    # Batches after a short batch count as computed.
    assert usage.fold()[0].cpu_s == pytest.approx((0.25 + 0.25 + 0.5 + 5 + 0.25) / 1000)


@pytest.mark.parametrize(("cpu", "core_wait", "expected"), [(1, 5, 5), (1, 9, 6), (9, 5, 0), (1, -3, 0)])
def test_a_wait_for_a_core_is_a_part_of_the_time_that_is_not_cpu_time(monkeypatch, cpu, core_wait, expected):
    """The counters are read before and after the clock, and other threads of a process compute, too."""
    clock, usage = Clock(monkeypatch), Usage()
    used = iter([Resources(0, 0, 5 * MS), Resources(cpu * MS, 0, (5 + core_wait) * MS)])
    timer = Timer(lambda: next(used))
    timer.start()
    clock.pass_ms(7)
    usage.add(0, timer.stop(0, 0))
    spent = usage.fold()[0]
    assert spent.core_wait_s == pytest.approx(expected / 1000)
    assert spent.cpu_s + spent.core_wait_s <= spent.made_s + 1e-9


@pytest.mark.parametrize("noted", ["", "read", "made"])
def test_a_batch_that_fails_counts_up_to_its_end(monkeypatch, noted):
    clock, usage = Clock(monkeypatch), Usage()
    timer = Timer(lambda: Resources(0))
    timer.start()
    if noted:
        timer.note_read()
    if noted == "made":
        timer.note_made()
    clock.pass_ms(3)
    usage.add(0, timer.stop(0, 0))
    spent = usage.fold()[0]
    stages = {"": spent.read_s, "read": spent.batchify_s, "made": spent.transport_s}
    assert stages[noted] == pytest.approx(spent.made_s) == pytest.approx(0.003)


WORDS = st.lists(st.integers(0, 2**40), min_size=9, max_size=9)


@given(reports=st.lists(st.tuples(st.integers(0, 3), WORDS), max_size=20))
def test_sums_do_not_depend_on_when_they_are_computed(reports):
    once, often = Usage(), Usage()
    for worker, words in reports:
        report = np.array(words, np.int64).tobytes()
        once.add(worker, report)
        often.add(worker, report)
        often.fold()
    assert once.fold() == often.fold() == often.fold()
    assert sum(spent.batches for spent in once.fold().values()) == len(reports)


def test_a_log_stays_short():
    usage = Usage()
    for _ in range(3 * 4096):
        usage.add(0, bytes(9 * 8))
    assert len(usage.logs[0]) <= 4096
    assert usage.fold()[0].batches == 3 * 4096


@pytest.mark.parametrize("resources", [process_resources, thread_resources])
def test_resources_grow(resources):
    before = resources()
    until = before.cpu_ns + 2 * MS
    pages = [bytearray(os.urandom(1) * 4096 * 64) for _ in range(20)]
    while (after := resources()).cpu_ns < until:
        pass
    assert after.page_faults >= before.page_faults
    assert len(pages) == 20


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_batch_of_every_worker_is_reported(way):
    with way.loader(Numbered(60), 4) as loader:
        for _ in range(2):
            assert len(list(loader)) == 15
        stats = loader.stats()
    assert sum(spent.batches for spent in stats.workers) >= 30  # a process may have made batches that are not wanted
    assert stats.batches == 30
    assert stats.samples == 120
    assert stats.work.made_s > 0
    assert min(stats.work.read_s, stats.work.batchify_s, stats.work.transport_s, stats.work.idle_s) >= 0
    assert stats.work.made_s >= stats.made_s * 0.999
    assert [epoch.batches for epoch in stats.epochs] == [15, 15]


@pytest.mark.parametrize("way", ANY, ids=str)
def test_batches_that_raise_an_error_are_reported(way):
    with way.loader(Broken(), 2) as loader:
        for _ in range(3):
            with pytest.raises(KeyError):
                next(iter(loader))
        stats = loader.stats()
    assert stats.batches == 0
    assert sum(spent.batches for spent in stats.workers) >= 3
