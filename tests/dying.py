"""A program whose workers are killed at random moments, while something hides their deaths from it.

It checks every batch, and prints how long it took to notice a death. `test_deaths.py` runs it by itself, because it
would disturb other tests of its process.
"""

import ctypes
import os
import random
import select
import signal
import threading
import time

import numpy as np
from conftest import children, crew, eventually
from samples import Numbered

import gluonloader as gl
from gluonloader.options import Processes

SAMPLES, SIZE = 100, 4
held = []  # the program's end of the FIFO, which forked processes inherit


class Forking(Numbered):
    """Leaves a process behind at its first read in each worker, and at every `every`th read after it."""

    def __init__(self, fifo, every, native):
        super().__init__(SAMPLES)
        self.fifo, self.every, self.native, self.reads = fifo, every, native, 0

    def __getitem__(self, index):
        if self.reads % self.every == 0:
            # A library's own fork runs none of Python's hooks. PyDLL does not release the GIL, which the child needs.
            leave_helper(self.fifo, ctypes.PyDLL(None).fork if self.native else os.fork)
        self.reads += 1
        return super().__getitem__(index)


def leave_helper(fifo, fork):
    """Forks a process that lives until the program closes the FIFO, a minute at most."""
    pipe = os.open(fifo, os.O_RDONLY)
    if fork() == 0:
        try:
            for inherited in held:
                os.close(inherited)
            select.select([pipe], [], [], 60)
        finally:
            os._exit(0)
    os.close(pipe)


def reap_all_children():
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            time.sleep(0.001)


def make_dataset(hidden_by, fifo, every):
    if hidden_by == "ignored signals":
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    elif hidden_by == "a reaping thread":
        threading.Thread(target=reap_all_children, daemon=True).start()
    else:
        return Forking(fifo, every, hidden_by == "native helpers")
    return Numbered(SAMPLES)


class Killer(threading.Thread):
    """Kills random workers, one after the other, and measures how long it takes until the loader has buried each."""

    def __init__(self, loader, kills, pause):
        super().__init__(daemon=True)
        self.loader, self.kills, self.pause, self.random = loader, kills, pause, random.Random(0)
        self.noticed = []

    def lanes(self):
        return list(crew(self.loader).lanes.values())

    def run(self):
        while len(self.noticed) < self.kills:
            time.sleep(self.random.uniform(0, self.pause))
            assert eventually(lambda: any(lane.ready for lane in self.lanes()))  # 100 failed starts would be an error
            pid = self.random.choice(self.lanes()).process.pid
            os.kill(pid, signal.SIGKILL)
            killed = time.monotonic()
            assert eventually(lambda: all(lane.process.pid != pid for lane in self.lanes()))
            self.noticed.append(time.monotonic() - killed)


def main(hidden_by, start_method, kills, every, fifo, pidfds):
    if not int(pidfds):
        del os.pidfd_open  # as in a Python that was built for an old system
    held.append(os.open(fifo, os.O_RDWR))
    dataset = make_dataset(hidden_by, fifo, int(every))
    with gl.DataLoader(
        dataset, SIZE, num_workers=2, start_method=start_method, executor=Processes(max_retries=1000), timeout=60
    ) as loader:
        killer = Killer(loader, int(kills), 0.03 if start_method == "fork" else 0.3)
        killer.start()
        while killer.is_alive():
            for first, batch in zip(range(0, SAMPLES, SIZE), loader, strict=True):
                expected = np.full((SIZE, 500), np.arange(first, first + SIZE)[:, None], np.int32)
                assert batch.dtype == expected.dtype
                assert batch.tobytes() == expected.tobytes()
                time.sleep(0.002)  # so that there are not too many helpers
        assert len(killer.noticed) == killer.kills
    assert eventually(lambda: not children())
    os.close(held.pop())
    print(f"{hidden_by}, {start_method}: {kills} deaths, each noticed within {max(killer.noticed):.3f} s")
