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


def enter_and_leave(lock):
    while True:
        with lock:
            pass


def enter_twice(lock):
    while True:
        with lock, lock:
            pass


def until_alarm(seconds, use, *arguments):
    """Calls `use`, which never ends, until an alarm comes.

    Another one comes each second: once, on a busy machine, the first one had no effect, and the test did not end.
    """
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, 1)
        use(*arguments)
    except Alarm:
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.mark.parametrize("use", [enter_and_leave, enter_twice])
@pytest.mark.usefixtures("no_collector", "alarms")
def test_no_interrupt_leaves_it_locked(elsewhere, use):
    lock, chance = Lock(), random.Random(0)
    for _ in range(INTERRUPTS):
        until_alarm(chance.uniform(2e-5, 2e-4), use, lock)
        assert elsewhere(lock)


def save_and_restore():
    while True:
        global_numpy.restore(global_numpy.save())


@pytest.mark.usefixtures("no_collector", "alarms")
def test_no_interrupt_leaves_the_lock_of_numpys_generator_locked(elsewhere):
    chance = random.Random(0)
    for _ in range(INTERRUPTS):
        until_alarm(chance.uniform(2e-5, 2e-4), save_and_restore)
        assert elsewhere(np.random.mtrand._rand._bit_generator.lock)


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
        until_alarm(0.01, enter_and_leave, lock)
        assert not elsewhere(lock)
    finally:
        ended.set()
        holder.join()
    assert elsewhere(lock)
