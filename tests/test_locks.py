"""The lock of the library: reentrant, and never left locked by an exception of a signal handler."""

import gc
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from interrupting import Alarm

from gluonloader.locks import Lock
from gluonloader.randomness import numpy as global_numpy

INTERRUPTS = 1000


@pytest.fixture
def no_collector():
    """The garbage collector may run finalizers at any time, and Python drops what a handler raises in one."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def elsewhere():
    """Tries to take a lock in another thread."""
    with ThreadPoolExecutor(1) as pool:

        def is_free(lock):
            def take():
                taken = lock.acquire(blocking=False)
                if taken:
                    lock.release()
                return taken

            return pool.submit(take).result()

        yield is_free


def test_it_is_reentrant_and_keeps_other_threads_out(elsewhere):
    lock = Lock()
    with lock:
        with lock:
            assert not elsewhere(lock)
        assert not elsewhere(lock)
    assert elsewhere(lock)


def test_an_error_in_the_block_releases_it(elsewhere):
    lock = Lock()
    with pytest.raises(KeyError), lock:
        raise KeyError
    assert elsewhere(lock)


def enter_and_leave(lock, seconds):
    signal.setitimer(signal.ITIMER_REAL, seconds)
    while True:
        with lock:
            pass


def enter_twice(lock, seconds):
    signal.setitimer(signal.ITIMER_REAL, seconds)
    while True:
        with lock, lock:
            pass


@pytest.mark.parametrize("use", [enter_and_leave, enter_twice])
@pytest.mark.usefixtures("no_collector", "alarms")
def test_no_interrupt_leaves_it_locked(elsewhere, use):
    lock, chance = Lock(), random.Random(0)
    try:
        for _ in range(INTERRUPTS):
            with pytest.raises(Alarm):
                use(lock, chance.uniform(2e-5, 2e-4))
            assert elsewhere(lock)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def save_and_restore(seconds):
    signal.setitimer(signal.ITIMER_REAL, seconds)
    while True:
        global_numpy.restore(global_numpy.save())


@pytest.mark.usefixtures("no_collector", "alarms")
def test_no_interrupt_leaves_the_lock_of_numpys_generator_locked(elsewhere):
    chance = random.Random(0)
    try:
        for _ in range(INTERRUPTS):
            with pytest.raises(Alarm):
                save_and_restore(chance.uniform(2e-5, 2e-4))
            assert elsewhere(np.random.mtrand._rand._bit_generator.lock)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_an_interrupt_while_another_thread_has_it_leaves_it_to_that_thread(elsewhere, alarms):
    lock, ended, taken = Lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            taken.set()
            ended.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        taken.wait(60)
        with pytest.raises(Alarm):
            enter_and_leave(lock, 0.01)
        assert not elsewhere(lock)
    finally:
        ended.set()
        holder.join()
    assert elsewhere(lock)
