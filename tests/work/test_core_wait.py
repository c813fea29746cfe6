"""How long a thread has waited for a core: each thread for itself, also after a fork; 0 if the system does not say."""

import os
import subprocess
import sys
import threading
import time

import pytest
from conftest import descriptors, eventually, in_child

from gluonloader import DataLoader, SimpleDataset
from gluonloader.work.core_wait import core_wait_ns

STATISTICS = "/proc/thread-self/schedstat"
pytestmark = pytest.mark.skipif(not os.path.exists(STATISTICS), reason="needs the statistics of the scheduler")


def in_thread(call):
    found = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def wait_for_a_core():
    """Shares a core with another program, until this thread has waited for it; how long it waited then."""
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})  # of this thread
    pinned = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    before = core_wait_ns()
    with subprocess.Popen([sys.executable, "-c", pinned]) as other:
        try:
            assert eventually(lambda: sum(range(100_000)) and core_wait_ns() > before + 20_000_000)
        finally:
            other.kill()
    return core_wait_ns()


def test_a_thread_waits_for_a_core_that_another_program_uses():
    assert in_thread(wait_for_a_core) > 20_000_000


def test_a_forked_child_has_its_own_figures_and_no_descriptor_is_left():
    def waited_and_again():
        wait_for_a_core()
        before = descriptors()
        core_wait_ns()
        child = in_child(lambda: f"{core_wait_ns()} {descriptors() - before}")
        return core_wait_ns(), *map(int, child.split())

    core_wait_ns()
    before = descriptors()
    own, of_child, opened = in_thread(waited_and_again)
    assert own > 20_000_000
    assert opened <= 1  # the pipe of `in_child`
    assert descriptors() <= before
    assert of_child != own


def slow(sample):
    time.sleep(0.002)  # so that resources are measured
    return sample


def test_a_closed_loader_without_workers_leaves_no_descriptor_in_a_thread_that_goes_on():
    def opened():
        counts = [descriptors()]
        with DataLoader(SimpleDataset(range(4)).transform(slow), batch_size=1) as loader:
            list(loader)
            counts.append(descriptors())
        return [*counts, descriptors()]

    before, while_open, after = in_thread(opened)
    assert (while_open, after) == (before + 1, before)


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_nothing_is_known_if_the_system_does_not_say(monkeypatch, error):
    def refuse(path, *args):
        assert path == STATISTICS
        raise error

    monkeypatch.setattr(os, "open", refuse)
    assert in_thread(lambda: (core_wait_ns(), core_wait_ns())) == (0, 0)


def test_a_program_that_closes_all_descriptors_gets_no_error():
    def close_all():
        core_wait_ns()
        os.closerange(3, 64)
        return str(core_wait_ns())

    def in_grandchild():  # `in_child` needs its pipe
        read, write = os.pipe()
        if child := os.fork():
            os.waitpid(child, 0)
            return os.read(read, 10).decode()
        kept = os.dup2(write, 100)
        os.write(kept, close_all().encode())
        os._exit(0)

    assert in_child(in_grandchild) == "0"
