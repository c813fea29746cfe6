"""What happens when things go wrong: workers that die at any moment, that hang, that cannot start; bad pickles."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import FORK, ONE_FORK, OVER_RAY, children, eventually, scarce_descriptors, workers
from samples import Numbered

import gluonloader as gl

pytestmark = [pytest.mark.usefixtures("no_leaks"), pytest.mark.numpy_only, pytest.mark.soak]

KILLS = int(os.environ.get("GLUONLOADER_KILLS", "40"))


class SlowToUnpickle(Numbered):
    def __setstate__(self, state):
        time.sleep(0.1)
        self.__dict__.update(state)


class Deadly(Numbered):
    """Sample 7 ends its worker."""

    def __init__(self, how):
        super().__init__(40)
        self.how = how

    def __getitem__(self, index):
        if index == 7 and self.how == "exit":
            os._exit(3)
        if index == 7:
            signal.signal(signal.SIGSEGV, signal.SIG_DFL)
            ctypes.string_at(0)
        return super().__getitem__(index)


def is_batch(batch, first, size):
    return batch.shape == (size, 500) and (batch == np.arange(first, first + size)[:, None]).all()


class Killer(threading.Thread):
    """Kills random workers of a loader, at random moments, a given number of times."""

    def __init__(self, loader, kills, pause, seed=0):
        super().__init__()
        self.loader, self.kills, self.pause, self.random = loader, kills, pause, random.Random(seed)
        self.killed, self.stopping = 0, threading.Event()

    def run(self):
        while self.killed < self.kills and not self.stopping.wait(self.random.uniform(*self.pause)):
            pids = workers(self.loader)
            if pids:
                try:
                    os.kill(self.random.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    continue  # it was dying already
                self.killed += 1


@pytest.mark.kill
@pytest.mark.parametrize("dataset", [Numbered, SlowToUnpickle])
def test_random_kills_lose_no_batch_and_double_none(process_way, dataset):
    slow = dataset is SlowToUnpickle or process_way is not FORK
    pause = (0.05, 0.4) if slow else (0.0, 0.03)
    # A kill may hit the same batch again and again; that is what the retries are for.
    with process_way.loader(dataset(), 4, **process_way.retrying(1000), prefetch=6) as loader:
        killer = Killer(loader, KILLS if not slow else max(8, KILLS // 5), pause)
        killer.start()
        epochs = 0
        while killer.is_alive():
            for first, batch in zip(range(0, 400, 4), loader, strict=True):
                assert is_batch(batch, first, 4)
                if killer.random.random() < 0.05:
                    time.sleep(0.02)  # idle workers get killed, too
            epochs += 1
        killer.join()
        assert killer.killed == killer.kills
        assert epochs > 0
        assert [int(batch[0, 0]) for batch in loader] == list(range(0, 400, 4))


@pytest.mark.local
def test_workers_are_forked_in_the_thread_that_asks_for_batches(monkeypatch):
    """Also those that replace dead ones: a fork in another thread would copy the locks that this thread holds."""
    threads, fork = [], os.fork

    def noted_fork():
        threads.append(threading.current_thread())
        return fork()

    monkeypatch.setattr(os, "fork", noted_fork)
    with FORK.loader(Numbered(40), 4) as loader:
        for batch in loader:
            if batch[0, 0] == 0:
                for pid in workers(loader):
                    os.kill(pid, signal.SIGKILL)
    assert len(threads) > 2
    assert set(threads) == {threading.current_thread()}


@pytest.mark.local
@pytest.mark.parametrize(("how", "said"), [("exit", "exit code 3"), ("segfault", "SIGSEGV")])
def test_a_sample_that_always_kills_is_named(process_way, how, said):
    with process_way.loader(Deadly(how), 4) as loader:
        iterator = iter(loader)
        assert is_batch(next(iterator), 0, 4)
        with pytest.raises(
            gl.errors.WorkerDied, match=rf"pid \d+\).*{said}.*batch 1 of epoch 0.*dataset\[7\].*2 workers died"
        ):
            next(iterator)
        assert [int(batch[0, 0]) for batch in iterator] == list(range(8, 40, 4))


def test_without_retries_the_error_names_all_samples_of_the_batch():
    with FORK.loader(Deadly("exit"), 4, **FORK.retrying(0)) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(gl.errors.WorkerDied, match=r"one of its samples \[4, 5, 6, 7\]"):
            next(iterator)


class SlowFirst(Numbered):
    """Sample 0 takes as long as it takes until samples 2 to 39 have been made, and these until it was begun.

    Half a minute at most.
    """

    def __init__(self, folder):
        super().__init__(80)
        self.begun, self.made = folder / "begun", folder / "made"

    def __getitem__(self, index):
        if index == 0:
            self.begun.touch()
            eventually(lambda: self.made.exists() and self.made.stat().st_size >= 38, 30)
        if index >= 2:
            eventually(self.begun.exists, 30)
            with self.made.open("a") as file:
                file.write(".")
        return index, gl.get_worker_info().id


class Counted(Numbered):
    """Counts how often each sample is read; sample 0 waits until it may end."""

    def __init__(self, size):
        super().__init__(size)
        self.reads, self.may_end = multiprocessing.RawArray("i", size), multiprocessing.Event()

    def __getitem__(self, index):
        self.reads[index] += 1
        if index == 0:
            assert self.may_end.wait(60)
        return super().__getitem__(index)


@pytest.mark.local
def test_a_worker_skips_the_batches_of_an_iterator_that_was_left():
    dataset = Counted(4)
    with ONE_FORK.loader(dataset, 1, prefetch=4) as loader:
        left = iter(loader)
        assert eventually(lambda: dataset.reads[0])
        del left
        iterator = iter(loader)
        dataset.may_end.set()
        assert len(list(iterator)) == 4
    assert list(dataset.reads) == [2, 1, 1, 1]


def test_a_slow_batch_keeps_its_place_and_does_not_idle_the_others(parallel_way, tmp_path):
    with parallel_way.loader(SlowFirst(tmp_path), 2, prefetch=20) as loader:
        if parallel_way.arguments["num_workers"] == 1:
            pytest.skip("there is no other worker")
        batches = [(indices.tolist(), set(ids.tolist())) for indices, ids in loader]
    assert [indices for indices, _ in batches] == [[i, i + 1] for i in range(0, 80, 2)]
    (slow,) = batches[0][1]
    # Meanwhile the other worker made the rest of the window, also what had been queued behind the first batch.
    assert all(ids == {1 - slow} for _, ids in batches[1:20])


class Stuck(Numbered):
    def __getitem__(self, index):
        if index == 1:
            linger_for_ever()
        return index


def linger_for_ever():
    threading.Event().wait(60)


def test_a_batch_past_its_timeout_is_an_error_with_the_stack(parallel_way):
    seconds = 3 if parallel_way.quick else 15  # a new interpreter on a busy machine starts late
    with parallel_way.loader(Stuck(6), 1, timeout=seconds) as loader:
        iterator = iter(loader)
        assert next(iterator).tolist() == [0]
        with pytest.raises(gl.errors.BatchTimeout, match=rf"(?s)batch 1.*timeout={seconds}.*linger_for_ever") as caught:
            next(iterator)
        assert isinstance(caught.value, TimeoutError)
        if parallel_way.processes:  # a stuck thread cannot be ended, and keeps its interpreter for a while
            assert [batch.tolist() for batch in iterator] == [[2], [3], [4], [5]]
            assert workers(loader)


NO_SHM = """
import sys
sys.path[:0] = {path!r}
import gluonloader as gl
if __name__ == "__main__":
    methods = [{{"start_method": method}} for method in ("fork", "forkserver", "spawn")]
    for arguments in (*methods, {{"thread_pool": True}}):
        with gl.DataLoader(range(6), 2, num_workers=2, **arguments) as loader:
            assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]], arguments
    print("good")
"""


@pytest.mark.spawn
@pytest.mark.parametrize("options", ["ro", "nr_inodes=1"], ids=["read-only", "full"])
def test_a_loader_does_not_need_dev_shm(options, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(NO_SHM.format(path=sys.path))
    mount = f"mount -t tmpfs -o {options} none /dev/shm"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("needs a user namespace, to replace /dev/shm")
    check = "! touch /dev/shm/file 2> /dev/null"
    command = f"{mount} && {check} && exec {sys.executable} {program}"
    run = subprocess.run(["unshare", "-rm", "sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert (run.stdout, run.stderr) == ("good\n", "")


def test_a_forked_child_starts_workers_of_its_own():
    with FORK.loader(Numbered(), 4) as loader:
        iterator = iter(loader)
        kept = next(iterator)
        mine = set(workers(loader))
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                good = all(is_batch(batch, first, 4) for first, batch in zip(range(0, 400, 4), loader, strict=True))
                with pytest.raises(RuntimeError, match="belongs to the parent"):
                    next(iterator)
                good = good and not mine & set(workers(loader)) and is_batch(kept, 0, 4)
                loader.close()
                os.write(write, b"good" if good else b"bad")
            finally:
                os._exit(0)
        for _ in range(3):  # the parent goes on meanwhile; the child's batch must not be overwritten
            assert all(is_batch(batch, first, 4) for first, batch in zip(range(0, 400, 4), loader, strict=True))
        os.close(write)
        assert os.read(read, 10) == b"good"
        os.close(read)
        os.waitpid(child, 0)
        assert set(workers(loader)) == mine


def test_too_few_descriptors_for_the_workers_are_an_error_that_says_how_to_raise_the_limit():
    with scarce_descriptors(40, left=24), pytest.raises(OSError, match="Too many open files: .*`ulimit -n`"):
        with FORK.loader(Numbered(40), 4, num_workers=16) as loader:
            list(loader)


@pytest.mark.slow
def test_300_epochs_half_of_them_broken_off_leave_nothing(process_way):
    epochs = 300 if process_way is FORK else 60
    with process_way.loader(Numbered(40), 4, shuffle=True) as loader:

        def use(epochs):
            for epoch in range(epochs):
                for count, batch in enumerate(loader):
                    assert (batch == batch[:, :1]).all()
                    if epoch % 2 and count == epoch % 9:
                        break

        use(400 if OVER_RAY else 60)  # Ray itself takes memory in its first seconds
        before = children(), len(os.listdir("/proc/self/fd"))
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        use(epochs)
        assert children() == before[0]
        assert len(os.listdir("/proc/self/fd")) <= before[1] + 4
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < resident + 4096
