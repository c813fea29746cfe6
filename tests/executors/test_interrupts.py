"""An interrupted main program: Ctrl-C and other handlers that raise lose no batch, whenever the signal arrives.

`nox -s soak` sets GLUONLOADER_INTERRUPTS to 1000. Every run counts a few hundred interrupts.
"""

import functools
import gc
import multiprocessing
import os
import random
import signal
import sys
import time

import numpy as np
import pytest
from conftest import FORK, FORKSERVER, SERIAL, THREAD, Way
from interrupting import Alarm, SignalAt, raise_alarm

from gluonloader import DataLoader, IterableDataset
from gluonloader.memory import set_allocator

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.numpy_only,
    pytest.mark.soak,
    # Python itself swallows an exception of a signal handler that runs in `__del__` or in the callback of a weakref.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

INTERRUPTS = int(os.environ.get("GLUONLOADER_INTERRUPTS", "60"))
SIGNALS = [signal.SIGINT, signal.SIGALRM]
INTERRUPTED = (KeyboardInterrupt, Alarm)
LIMITED = Way("fork-limited", {**FORK.arguments, "memory_limit": "4MB"})
LIMITED_FORKSERVER = Way("forkserver-limited", {**FORKSERVER.arguments, "memory_limit": "4MB"})


@pytest.fixture(params=[SERIAL, THREAD, FORK, LIMITED, FORKSERVER, LIMITED_FORKSERVER], ids=str)
def interrupted_way(request):
    return request.param


@pytest.fixture(autouse=True)
def handlers():
    before = signal.signal(signal.SIGALRM, raise_alarm), signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    set_allocator(None)  # if a batch was interrupted at its very end, only the next batch would restore the allocator
    signal.signal(signal.SIGALRM, before[0])
    signal.signal(signal.SIGINT, before[1])


class Samples:
    """Each sample has 16 kB, filled with its index."""

    def __len__(self):
        return 48

    def __getitem__(self, index):
        return np.full(2000, index)


class Reader:
    """Reads epochs of a loader with interrupts, and compares each with the same epoch of a second, serial loader."""

    def __init__(self, way, **arguments):
        self.loader = way.loader(Samples(), 4, True, **arguments)
        self.other = DataLoader(Samples(), 4, True, seed=0)
        self.epoch = -1
        for _ in range(2):
            self.start()
            self.read()
            self.check()
        self.before = self.resources()

    def start(self):
        self.epoch += 1
        self.iterator, self.batches, self.interrupts = None, [], 0

    def read(self, count=None):
        """Reads `count` batches, or all that are left."""
        if self.iterator is None:
            self.loader.set_epoch(self.epoch)  # perhaps again: an interrupted `iter` may have started the epoch
            self.iterator = iter(self.loader)
        while count is None or count > 0:
            try:
                batch = next(self.iterator)
            except StopIteration:
                return
            assert (batch == batch[:, :1]).all()
            self.batches.append(tuple(batch[:, 0]))
            count = count and count - 1

    def check(self):
        """All batches have come, in order; each interrupt may have hit one that `next` was just returning."""
        self.other.set_epoch(self.epoch)
        expected = [tuple(batch[:, 0]) for batch in self.other]
        assert self.batches == [batch for batch in expected if batch in set(self.batches)]
        assert len(expected) - len(self.batches) <= self.interrupts

    def resources(self):
        gc.collect()
        children = sorted(child.pid for child in multiprocessing.active_children())
        names = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if _is_open(fd)]
        return children, sum("memfd" not in name for name in names), sum("memfd" in name for name in names)

    def close(self):
        for _ in range(20):  # a worker that had no core may still have to skip the batches of many cancelled epochs
            self.iterator = None
            gc.collect()
            self.start()
            self.read()
            self.check()
            self.iterator = None
            workers, descriptors, slabs = self.resources()
            if slabs <= self.before[2] + 8:  # up to two descriptors each: a few may have been made, as in any epoch
                break
        self.loader.close()
        assert (workers, descriptors) == self.before[:2]
        assert slabs <= self.before[2] + 8


def _is_open(fd):
    return os.path.lexists(f"/proc/self/fd/{fd}") and not os.readlink(f"/proc/self/fd/{fd}").endswith("/fd")


class SignalsItself(Samples):
    """Sample 17 raises the signal when it is read for the first time."""

    raised = False

    def __getitem__(self, index):
        if index == 17 and not self.raised:
            self.raised = True
            signal.raise_signal(signal.SIGALRM)
        return super().__getitem__(index)

    def __iter__(self):
        return map(self.__getitem__, range(48))


def exit_program(number, frame):
    sys.exit(4)


@pytest.mark.parametrize(
    "handler", [raise_alarm, signal.default_int_handler, exit_program, functools.partial(raise_alarm)]
)
@pytest.mark.parametrize("kind", [SignalsItself, lambda: IterableDataset(SignalsItself())], ids=["map", "iterable"])
def test_a_signal_inside_of_a_sample_is_no_error_of_the_sample(handler, kind):
    signal.signal(signal.SIGALRM, handler)
    with SERIAL.loader(kind(), 4) as loader:
        iterator, numbers, interrupts = iter(loader), [], 0
        while len(numbers) < 48:
            try:
                numbers += next(iterator)[:, 0].tolist()
            except (Alarm, KeyboardInterrupt, SystemExit):
                interrupts += 1
        assert (numbers, interrupts) == (list(range(48)), 1)


@pytest.mark.parametrize("continues", [True, False], ids=["same iterator", "new epoch"])
def test_an_interrupt_at_any_point_of_next_loses_nothing(interrupted_way, continues):
    reader, chance = Reader(interrupted_way), random.Random(0)
    for number in range(INTERRUPTS):
        reader.start()
        reader.read(chance.randrange(1, 12))
        with SignalAt(chance.choice([chance.randrange(30), chance.randrange(600)]), SIGNALS[number % 2]) as signalled:
            try:
                reader.read(1)
            except INTERRUPTED:
                reader.interrupts += 1
        if continues:
            reader.read()
            reader.check()
        else:
            reader.start()
            reader.read()
            assert len(reader.batches) == 12, signalled.where
            reader.check()
    reader.close()


@pytest.mark.parametrize("continues", [True, False], ids=["same iterator", "new epoch"])
def test_an_interrupt_at_any_time_loses_nothing(interrupted_way, continues):
    reader, chance, longest = Reader(interrupted_way), random.Random(1), 0.0
    usual, interrupts = 0.01, 0
    while interrupts < INTERRUPTS:
        reader.start()
        started = time.monotonic()
        signal.signal(signal.SIGALRM, SIGALRM_HANDLERS[interrupts % 2])
        while True:
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, usual))
                reader.read()
                signal.setitimer(signal.ITIMER_REAL, 0)
                break
            except INTERRUPTED:
                reader.interrupts += 1
                interrupts += 1
                if not continues:
                    reader.start()
        usual = min(max(usual * (1.1 if reader.interrupts else 0.95), 1e-3), 0.2)
        reader.check()
        longest = max(longest, time.monotonic() - started)
    print(f"{interrupted_way}: {interrupts} interrupts, {reader.epoch} epochs, longest epoch {longest:.3f} s")
    reader.close()


SIGALRM_HANDLERS = [raise_alarm, signal.default_int_handler]
