"""Deaths of workers that nobody reports, and deaths and hangs of workers that have not made a batch yet."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading

import pytest
from conftest import FORK, eventually, in_child, run_program, workers
from samples import Numbered
from started import first_time

from gluonloader import DataLoader
from gluonloader.errors import BatchTimeout

pytestmark = [pytest.mark.numpy_only, pytest.mark.soak]

KILLS = min(100, int(os.environ.get("GLUONLOADER_KILLS", "5")))


def run_dying(hidden_by, way, fifo, pidfds=True):
    os.mkfifo(fifo)
    code = f"import sys; sys.path[:0] = {sys.path!r}; import dying; dying.main(*sys.argv[1:])"
    every = 1 if KILLS < 10 else 40
    arguments = hidden_by, way.name, KILLS, every, fifo, int(pidfds)
    done = run_program(code, *map(str, arguments), seconds=100 + 10 * KILLS)
    assert done.returncode == 0, done.stderr
    assert f"{KILLS} deaths" in done.stdout
    print(done.stdout)
    assert eventually(lambda: not has_reader(fifo))  # the helpers have ended


def has_reader(fifo):
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@pytest.mark.local
@pytest.mark.kill
@pytest.mark.spawn
@pytest.mark.parametrize("hidden_by", ["ignored signals", "a reaping thread", "helpers", "native helpers"])
def test_hidden_deaths_lose_no_batch(process_way, hidden_by, tmp_path):
    run_dying(hidden_by, process_way, tmp_path / "fifo")


@pytest.mark.kill
@pytest.mark.spawn
@pytest.mark.parametrize("hidden_by", ["ignored signals", "a reaping thread", "helpers"])
def test_without_pidfds_hidden_deaths_lose_no_batch_either(hidden_by, tmp_path):
    run_dying(hidden_by, FORK, tmp_path / "fifo", pidfds=False)


class Exits(Numbered):
    def __getitem__(self, index):
        os._exit(3)


def test_a_death_without_an_exit_code_is_an_error_all_the_same():
    def read():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        with FORK.loader(Exits(), 4) as loader:
            next(iter(loader))

    assert re.search(r"WorkerDied\(.*ended without an exit code while it made batch 0.*2 workers died", in_child(read))


class ExitsOnce(Numbered):
    """Each of the first samples ends its worker when it is read for the first time."""

    def __init__(self, folder):
        super().__init__(8)
        self.folder = folder

    def __getitem__(self, index):
        if index < 4 and first_time(self.folder / str(index)):
            os._exit(3)
        return index


def logged(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "gluonloader"]


@pytest.mark.kill
def test_each_death_is_logged_and_the_statistics_tell_of_it(tmp_path, caplog):
    with FORK.loader(ExitsOnce(tmp_path), 1, num_workers=1, prefetch=8) as loader:
        assert len(list(loader)) == 8
        assert [re.sub(r"pid \d+", "pid", text) for text in logged(caplog)] == [
            f"worker 0 (pid) ended with exit code 3 while it made batch {batch} of epoch 0; another worker replaces it"
            for batch in range(4)
        ]
        assert "\n4 workers died; 4 batches were made again.\n" in str(loader.stats())
        caplog.clear()
        (pid,) = workers(loader)
        os.kill(pid, signal.SIGSEGV)
        assert len(list(loader)) == 8
        text = f"worker 0 (pid {pid}) ended by SIGSEGV while it had no batch to make; another worker replaces it"
        assert logged(caplog) == [text]
        assert "\n5 workers died; 4 batches were made again.\n" in str(loader.stats())


@pytest.mark.kill
def test_the_statistics_count_what_earlier_workers_did(tmp_path):
    with DataLoader(ExitsOnce(tmp_path), 1, num_workers=1, prefetch=8, start_method="fork") as loader:
        list(loader)
        before = loader.stats()
        loader.load_state_dict(DataLoader(range(8), 1, seed=5).state_dict())  # other workers, with another seed
        assert (loader.stats().deaths, loader.stats().work) == (4, before.work)
        list(loader)
        after = loader.stats()
    assert (after.deaths, after.retries, after.batches, after.work.batches) == (4, 4, 16, 16)


def test_a_worker_that_timed_out_is_told_by_its_error_alone(caplog):
    with FORK.loader(Hangs(), 1, num_workers=1, timeout=0.5) as loader:
        iterator = iter(loader)
        with pytest.raises(BatchTimeout):
            next(iterator)
        assert next(iterator).tolist() == [1]
        assert "\n1 worker died.\n" in str(loader.stats())
    assert logged(caplog) == []


class Hangs(Numbered):
    def __getitem__(self, index):
        if index == 0:
            threading.Event().wait()
        return index


@pytest.mark.usefixtures("no_leaks")
def test_a_death_counts_only_against_the_batch_that_had_started(tmp_path):
    """The other batches wait at the same worker; each survives a death of its own, because max_retries is 1."""
    with FORK.loader(ExitsOnce(tmp_path), 1, num_workers=1, prefetch=8) as loader:
        assert [int(batch[0]) for batch in loader] == list(range(8))
        assert loader.stats().deaths == 4


def test_the_batches_of_a_dead_worker_are_made_before_later_ones(tmp_path):
    """A worker gets at most 32 batches, so others still wait in the program when it dies."""
    with FORK.loader(DiesAtThree(tmp_path), 1, num_workers=1, prefetch=60) as loader:
        assert len(list(loader)) == 60
    assert (tmp_path / "made").read_text().split() == list(map(str, range(60)))


class DiesAtThree(Numbered):
    """Writes down each index that it reads; sample 3 ends the worker once, before that."""

    def __init__(self, folder):
        super().__init__(60)
        self.folder = folder

    def __getitem__(self, index):
        if index == 3 and first_time(self.folder / "flag"):
            os._exit(3)
        with (self.folder / "made").open("a") as file:
            file.write(f"{index} ")
        return index


@pytest.mark.usefixtures("no_leaks")
def test_workers_that_are_killed_from_outside_before_their_first_batch_are_replaced():
    with FORK.loader(Numbered(), 4, num_workers=5) as loader:
        for pid in workers(loader):
            os.kill(pid, signal.SIGTERM)
        assert [int(batch[0, 0]) for batch in loader] == list(range(0, 400, 4))
