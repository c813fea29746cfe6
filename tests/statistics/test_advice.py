"""The advice follows from the figures: each rule with figures that need it, and with figures that do not."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD
from hypothesis import example, given
from hypothesis import strategies as st
from samples import Numbered

from gluonloader.memory.budget import MemoryStats
from gluonloader.statistics.advice import advise, fault_seconds
from gluonloader.statistics.stats import LoaderStats, summarize
from gluonloader.statistics.tally import EpochTally, Tally
from gluonloader.work.usage import Usage
from gluonloader.work.usage import WorkerStats as Spent

BUSY = Spent(100, 0.9, 0.05, 0.05, 0.1, 0.35, core_wait_s=0.6)
MEMORY = MemoryStats(slabs=4, lent=1, nbytes=10**6, limit=10**6, copies=0, refusals=0)


def stats(tally=None, work=None, **changes):
    """The statistics of 100 batches of 10 samples; the program waited for half of its time."""
    counts = Tally()
    counts.start(0).add(tally or usual())
    summary = summarize(counts, Usage(), work or Spent(100, 0.9, 0.05, 0.05, 0.1, 0.95), executor="process", why="",
                        num_workers=1, window=4)  # fmt: skip
    return replace(summary, **{"cores": 2, "memory": MEMORY, **changes})


def usual(**changes):
    counts = {"batches": 100, "samples": 1000, "waited_s": 1.0, "program_s": 1.0, "made_s": 1.0, "slowest_s": 0.02}
    tally = EpochTally(0, **{**counts, "slowest": 7, **changes})
    tally.waits.extend([0.01] * 100)
    return tally


def test_more_workers_are_advised_only_if_cores_are_free():
    assert advise(stats(), True) == (
        "The program waited 50 % of the time: workers are the limit. Reading samples takes 90 % of the time for a "
        "batch (900 us per sample). 2 workers would take about half as long; this machine has 1 more core."
    )
    assert "All cores are busy" in advise(stats(cores=1), True)
    assert "3 workers would take 33 % less time; this machine has 1 more core." in advise(
        stats(cores=3, num_workers=2), True
    )
    assert "pass num_workers=3" in advise(stats(cores=4, num_workers=0), True)
    assert "pass num_workers=4" in advise(stats(usual(program_s=0.01), cores=4, num_workers=0), True)


def test_a_slow_program_is_the_limit():
    slow = stats(usual(waited_s=0.01), num_workers=4, work=Spent(100, 0.2, 0.0, 0.0, 0.8, 0.2))
    assert advise(slow, True) == (
        "The program waited 1 % of the time: the program is the limit, not the loader. Workers were idle 80 % of the "
        "time, so num_workers=1 is enough."
    )


def test_there_is_advice_if_all_batches_were_made_before():
    """As in a recording that starts when the workers have made the whole epoch."""
    assert advise(stats(work=Spent()), True) == "The program waited 50 % of the time: workers are the limit."


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"work": Spent(100, 0.1, 0.85, 0.05, 0.1, 0.95)}, "batchify_fn takes 85 % of the time for a batch (8.5 ms"),
        ({"work": Spent(100, 0.9, 0.05, 0.05, 0.1, 0.05)}, "Workers spent 95 % of the time waiting: if samples wait"),
        ({"work": BUSY}, "of the time: workers are the limit. Workers waited for a core 60 % of the time for a batch:"),
        ({"work": BUSY}, "other programs or threads use the 2 cores: stop them, or set OMP_NUM_THREADS=1."),
        ({"work": BUSY, "num_workers": 2}, "use the 2 cores: stop them, pass fewer workers, or set OMP_NUM_THREADS=1."),
        ({"work": BUSY, "num_workers": 8}, "8 workers share 2 cores: pass num_workers=2, or stop other programs."),
        ({"work": BUSY, "num_workers": 0, "cores": 1}, "The program waited for a core 60 % of the time for a batch"),
        ({"tally": usual(made_s=0.002, slowest_s=0.0001)}, "Making a batch takes only 20 us, about as long as"),
        ({"tally": usual(made_s=0.002, slowest_s=0.0001), "num_workers": 0}, "from a worker: raise batch_size."),
        ({"tally": usual(waited_s=4.0, first_s=3.0)}, "3 s of this was the wait for the first batch, although making"),
        ({"work": Spent(100, 0.9, 0.05, 0.05, 0.1, 0.95, 10**7)}, "Each sample had 10,000 page faults, about 100 % of"),
        ({"memory": replace(MEMORY, copies=312)}, "memory_limit forced 312 copies of batches: raise memory_limit, or"),
        ({"memory": replace(MEMORY, refusals=50)}, "memory_limit left no room for a batch 50 times: raise"),
    ],
)  # fmt: skip
def test_each_cause_is_named_with_its_figure(changes, expected):
    assert expected in advise(stats(**changes), True)
    assert expected not in advise(stats(), True)


def test_a_few_slow_batches_are_named():
    tally = usual(slowest_s=3.0, made_s=4.0)
    tally.makes.extend([0.01] * 100 + [3.0])
    text = advise(stats(tally), True)
    assert "A few slow batches took 3 s: batch 7 of epoch 0 took 3 s, a usual batch 10 ms" in text
    assert "loader.replay(0, 7)" in text
    assert "A few slow batches" not in advise(stats(tally, epochs=()), True)  # as for a whole program


def test_waiting_for_a_core_is_no_waiting_for_data():
    busy = stats(work=BUSY)
    assert (busy.waiting, busy.waiting_for_core) == (pytest.approx(0.05), pytest.approx(0.6))
    assert "concurrency" not in advise(busy, True)
    both = stats(work=replace(BUSY, cpu_s=0.02, core_wait_s=0.42))
    assert "Workers spent 56 % of the time waiting: if samples wait" in advise(both, True)
    unknown = stats(work=replace(BUSY, core_wait_s=0.0))
    assert "for a core" not in advise(unknown, True)


@given(
    made=st.floats(0.1, 1e4), computed=st.floats(0, 1), workers=st.integers(0, 64), cores=st.integers(1, 64),
    concurrency=st.integers(1, 3), batches=st.integers(2, 99), overlaps=st.booleans(),
)  # fmt: skip
@example(made=1.0, computed=0.0, workers=17, cores=1, concurrency=2, batches=32, overlaps=True)
def test_concurrency_needs_waiting_workers_and_free_cores(
    made, computed, workers, cores, concurrency, batches, overlaps
):
    work = Spent(batches, read_s=made, cpu_s=made * computed)
    some = stats(usual(batches=batches, made_s=made), work, num_workers=workers, cores=cores, concurrency=concurrency)
    text = advise(some, overlaps)
    assert (text == "") == (batches < 32)
    advised = text.partition("pass concurrency=")[2].partition(".")[0]
    if not overlaps or computed > 0.51 or computed * max(1, workers) > cores / 1.9:
        assert advised == ""
    elif batches >= 32 and computed < 0.49 and computed * max(1, workers) < cores / 2.1:
        assert concurrency < int(advised) <= 32


READS = Spent(100, 0.9, 0.05, 0.05, 0.1, 0.05)  # waits for data 95 % of the time


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "95 % of the time waiting: if samples wait for a disk or a network, pass concurrency=16."),
        ({"samples": 200}, "waiting: if samples wait for a disk or a network, pass concurrency=2."),
        ({"samples": 100}, "waiting: if samples wait for a disk or a network, pass num_workers=2."),
        ({"concurrency": 4}, "waiting, although each reads 4 samples at the same time: if samples wait for a disk or a "
                             "network, pass concurrency=16."),
        ({"concurrency": 32}, "although each reads 16 samples at the same time: if samples wait for a disk or a "
                              "network, pass num_workers=2."),
    ],
)  # fmt: skip
def test_no_more_concurrency_is_advised_than_a_batch_has_samples(changes, expected):
    assert expected in advise(stats(work=READS, **changes), True)


def test_the_computing_of_threads_for_samples_is_not_taken_for_waiting():
    text = advise(stats(work=READS, concurrency=4, executor="thread", num_workers=2), True)
    assert "waiting" not in text.partition("Reading")[2]
    assert "Reading samples takes 90 % of the time" in text
    assert "cores are busy" not in text


# -- of real loaders ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_print_shows_a_summary_and_the_advice(way):
    with way.loader(Numbered(80), 2) as loader:
        assert "0 batches (0 samples, 0 bytes); waited 0 us, 0 % of the time" in str(loader.stats())
        assert str(loader.stats()).endswith("\nThere is no advice before 32 batches.")
        list(loader)
        summary, advice = str(loader.stats()).split("\n")
    assert "40 batches (80 samples, 156 kB); waited" in summary
    assert advice.startswith("The program waited")


def test_percentiles_are_those_of_the_waits():
    with FORK.loader(Numbered(400), 4) as loader:
        list(loader)
        found = loader.stats()
    assert 0 <= found.wait_p50_s <= found.wait_p90_s <= found.wait_p99_s <= found.waited_s
    assert 0 <= found.ready <= found.window
    assert isinstance(found, LoaderStats)


def test_memory_counts_slabs_on_loan():
    with FORK.loader(np.ones((40, 10_000)), 4) as loader:  # large batches; small ones are copied
        kept = list(loader)
        memory = loader.stats().memory
        assert memory.lent == len(kept) == 10
        assert memory.slabs >= 10
        del kept
        assert loader.stats().memory.lent == 0
    with SERIAL.loader(Numbered(4), 2) as loader:
        assert loader.stats().memory is None


@pytest.mark.filterwarnings("ignore:memory_limit:RuntimeWarning")
def test_copies_are_counted_beyond_the_limit():
    with FORK.loader(np.ones((400, 2_000)), 8, memory_limit="1MB") as loader:
        kept = list(loader)
        found = loader.stats()
    assert len(kept) == 50
    assert found.memory.copies > 0
    assert f"memory_limit forced {found.memory.copies:,} copies" in found.advice


def test_the_time_of_a_page_fault_is_measured():
    assert fault_seconds() >= 0.2e-6
    assert fault_seconds() == fault_seconds()
