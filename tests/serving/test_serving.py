"""Programs that attach to a server: what they get, what happens if someone dies, stalls or keeps batches."""

from __future__ import annotations

import collections
import contextlib
import copy
import ctypes
import errno
import gc
import itertools
import mmap
import multiprocessing
import os
import pickle
import random
import re
import resource
import signal
import socket
import threading
import time
from itertools import chain, islice, repeat

import numpy as np
import pytest
from conftest import SERIAL, THREAD, descriptors, eventually, in_child, open_files, run_program, scarce_descriptors
from interrupting import Alarm, SignalAt
from samples import Numbered, Shards
from served import Served, consumers, new_server_name, read_epochs
from sharing import Rank

import gluonloader as gl
from gluonloader.options import Processes
from gluonloader.serving.messages import address_of
from gluonloader.wire.greeting import library_version

pytestmark = pytest.mark.numpy_only

KILLS = int(os.environ.get("GLUONLOADER_KILLS", "5"))
PROCESS = {"num_workers": 2, "start_method": "fork"}


def loader_of(executor=PROCESS, length=60, **options):
    return gl.DataLoader(Numbered(length), **{"batch_size": 4, "shuffle": True, "seed": 1, **executor, **options})


def numbered(executor=PROCESS, length=60, **options):
    return lambda: loader_of(executor, length, **options)


def own(epochs=1, length=60):
    with loader_of({}, length) as loader:
        return [[batch.tolist() for batch in loader] for _ in range(epochs)]


# -- what consumers get -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", [SERIAL.arguments, THREAD.arguments, PROCESS], ids=["serial", "thread", "process"])
def test_each_consumer_gets_all_batches(executor):
    name = new_server_name()
    readers = consumers(3, read_epochs, name, 2)
    with Served(numbered(executor), name, consumers=3) as server:
        assert [reader.answer() for reader in readers] == [own(2)] * 3
        stats = server.ask("stats")
    assert stats.batches >= 30
    assert (stats.copies > 0) == (executor != PROCESS)


class Mixed:
    """Samples of many kinds."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return {
            "text": f"sample {index}",
            "float": float(index),
            "array": np.full((2, 3), index, np.int16),
            "empty": np.empty((0, 3)),
            "nested": (index, [np.arange(4) + index]),
        }


class Turned:
    """A batchify function whose array is not in C order."""

    def __call__(self, samples):
        return gl.default_batchify(samples).T


@pytest.mark.parametrize("executor", [SERIAL.arguments, PROCESS], ids=["serial", "process"])
def test_any_batch(executor):
    with Served(lambda: gl.DataLoader(Mixed(), 5, **executor)) as server, gl.attach(server.name) as loader:
        for batch, expected in zip(loader, gl.DataLoader(Mixed(), 5), strict=True):
            assert repr(batch) == repr(expected)


def test_a_batch_in_another_order_of_axes():
    with (
        Served(lambda: gl.DataLoader(Numbered(8), 4, batchify_fn=Turned(), **PROCESS)) as server,
        gl.attach(server.name) as loader,
    ):
        batches = list(loader)
        assert loader.stats().copies == 0
    assert [batch[0].tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert batches[0].shape == (500, 4)


def test_output_belongs_to_the_consumer():
    with Served(numbered({})) as server, gl.attach(server.name, output=np.sum) as loader:
        assert [int(total) for total in loader] == [sum(sum(row) for row in batch) for batch in own()[0]]
    with pytest.raises(ValueError, match="remove output and pin_memory here, and pass them to attach"):
        gl.serve(gl.DataLoader(range(4), 1, output="numpy"), "x")


def test_an_error_of_output_costs_one_batch():
    calls = []

    def fails_once(array):
        calls.append(array)
        if len(calls) == 2:
            raise RuntimeError("on purpose")
        return array

    with Served(numbered({})) as server, gl.attach(server.name, output=fails_once) as loader:
        iterator = iter(loader)
        found = [next(iterator).tolist()]
        with pytest.raises(RuntimeError, match="on purpose"):
            next(iterator)
        found += [batch.tolist() for batch in iterator]
    expected = own()[0]
    assert found == [expected[0], *expected[2:]]


class Fails(Numbered):
    def __getitem__(self, index):
        if index == 9:
            raise KeyError("no such sample")
        return super().__getitem__(index)


def test_an_error_of_the_dataset_comes_in_its_place():
    with Served(lambda: gl.DataLoader(Fails(20), 4, **PROCESS)) as server, gl.attach(server.name) as loader:
        iterator = iter(loader)
        first = [int(batch[0, 0]) for batch in islice(iterator, 2)]
        with pytest.raises(KeyError, match="no such sample") as error:
            next(iterator)
        assert "in dataset[9], batch 2 of epoch 0" in str(error.value.__notes__)
        assert first + [int(batch[0, 0]) for batch in iterator] == [0, 4, 12, 16]


def test_a_loader_that_cannot_go_on_ends_the_server():
    with (
        Served(lambda: gl.DataLoader(Numbered(20), 4, worker_init_fn=fail_to_start, **PROCESS)) as server,
        gl.attach(server.name) as loader,
    ):
        with pytest.raises(
            gl.errors.LoaderClosed, match=r"has ended: its loader raised WorkerStartError: worker .* on purpose"
        ):
            next(iter(loader))


def fail_to_start(worker):
    raise RuntimeError("on purpose")


def test_iterable_datasets():
    def make(**options):
        return gl.DataLoader(gl.IterableDataset(Shards(), num_shards=3), 4, seed=1, **options)

    with Served(lambda: make(**PROCESS)) as server, gl.attach(server.name) as loader:
        found = [batch.tolist() for batch in loader]
        with pytest.raises(TypeError, match="has no length"):
            len(loader)
    assert found == [batch.tolist() for batch in make(num_workers=0)]


def test_it_looks_like_a_loader():
    with Served(numbered({})) as server, gl.attach(server.name) as loader:
        assert (len(loader), loader.batch_size, loader.epoch) == (15, 4, None)
        loader.set_epoch(0)
        assert len(list(loader)) == 15
        assert loader.epoch == 1
        loader.set_epoch(1)
        with pytest.warns(RuntimeWarning, match=r"set_epoch\(0\) has no effect: .* epoch 1 comes next"):
            loader.set_epoch(0)
        loader.set_epoch(0)  # warns once
        assert re.fullmatch(r"ServedLoader\('test.*', pid \d+\)", repr(loader))
        assert str(server.pid) in repr(loader)


def test_a_late_consumer_joins_the_running_epoch():
    with Served(numbered()) as server, gl.attach(server.name) as first:
        iterator, expected = iter(first), own(2)
        before = [batch.tolist() for batch in islice(iterator, 8)]
        late = Rank(0, read_epochs, server.name, 2)
        assert eventually(lambda: len(first.stats().consumers) == 2)
        rest = [batch.tolist() for batch in iterator]
        second = [batch.tolist() for batch in first]
        joined, whole = late.answer()
    assert [before + rest, second] == expected
    assert whole == expected[1]
    assert joined
    assert joined == expected[0][-len(joined) :]
    assert len(joined) <= 15 - 8 + 1


def test_iter_after_a_break_starts_the_next_epoch():
    with Served(numbered({})) as server, gl.attach(server.name) as loader:
        expected = own(3)
        assert next(iter(loader)).tolist() == expected[0][0]
        assert [batch.tolist() for batch in islice(loader, 5)] == expected[1][:5]
        assert [batch.tolist() for batch in loader] == expected[2]


def test_threads_may_read_one_iterator():
    with Served(numbered({})) as server, gl.attach(server.name) as loader:
        found, iterator = [], iter(loader)

        def read():
            found.extend(batch.tolist() for batch in iterator)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(found) == sorted(own()[0])


# -- memory -----------------------------------------------------------------------------------------------------------


def test_batches_that_are_kept_do_not_change():
    with Served(numbered()) as server, gl.attach(server.name) as loader:
        kept = [batch for _ in range(3) for batch in loader]
        assert loader.stats().consumers[0].kept <= 4
    assert [batch.tolist() for batch in kept] == sum(own(3), [])


def labelled():
    """A loader of large images and small labels."""
    return gl.DataLoader([(np.full(40_000, index), index) for index in range(40)], 4, **PROCESS)


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="Linux")
def test_the_thread_of_a_server_does_not_push_other_threads_off_their_core():
    """If it did, a consumer that acknowledges a batch would wait until the server has handled it."""
    before = os.sched_getscheduler(0)
    with loader_of({}) as loader, gl.serve(loader, new_server_name()) as server, gl.attach(server.name) as consumer:
        next(iter(consumer))
        policies = {thread.name: os.sched_getscheduler(thread.native_id) for thread in threading.enumerate()}
    assert policies["gluonloader-serve"] == os.SCHED_BATCH
    assert policies[threading.main_thread().name] == os.sched_getscheduler(0) == before


def test_a_kept_label_does_not_keep_the_memory_of_its_batch():
    with Served(labelled) as server, gl.attach(server.name) as loader:
        labels = [label for _, label in loader]
        next(iter(loader))
        assert loader.stats().consumers[0].kept <= 1
        assert loader.stats().copies == 0
        assert np.concatenate(labels).tolist() == list(range(40))


def test_memory_is_free_when_the_last_array_has_died():
    with Served(labelled) as server, gl.attach(server.name) as loader:
        iterator = iter(loader)
        row = next(iterator)[0][2]
        values = row.copy()
        kept = []
        for _ in range(5):
            kept.append(loader.stats().consumers[0].kept)
            next(iterator)
        assert kept == [1, 1, 1, 1, 1]
        assert (row == values).all()
        del row
        next(iterator)
        assert loader.stats().consumers[0].kept == 0


def mapped_slabs():
    """How many blocks of shared memory of a server this process has mapped."""
    with open("/proc/self/maps") as file:
        return len({line.split()[4] for line in file if "memfd:gluonloader" in line})


def keep_and_die(one, name):
    kept = list(islice(gl.attach(name), 3))
    os.kill(os.getpid(), signal.SIGKILL)
    return kept


def keep_and_close(one, name):
    with gl.attach(name) as loader:
        kept = list(islice(loader, 3))
    return len(kept)


@pytest.mark.parametrize("leave", [keep_and_die, keep_and_close])
def test_consumers_that_leave_with_batches_pin_no_memory_in_the_others(leave):
    with Served(labelled) as server, gl.attach(server.name) as loader:
        batches = itertools.chain.from_iterable(itertools.repeat(loader))
        for _ in range(15):
            (other,) = consumers(1, leave, server.name)
            while other.process.is_alive():
                next(batches)
            other.answer()
        for _ in range(20):
            next(batches)
        assert mapped_slabs() <= 4 * (2 + 1) + 8  # of two consumers, and in flight


def test_a_consumer_cannot_write_into_the_memory_of_the_server():
    with Served(labelled) as server, gl.attach(server.name) as loader:
        images = next(iter(loader))[0]
        assert not images.flags.writeable
        page = images.__array_interface__["data"][0] // mmap.PAGESIZE * mmap.PAGESIZE
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_WRITE)
        assert ctypes.get_errno() == errno.EACCES


def test_a_consumer_cannot_shorten_the_memory_of_the_server():
    with Served(labelled) as server, gl.attach(server.name) as loader:
        iterator, refused = iter(loader), 0
        first = next(iterator)[0]
        folder = f"/proc/{server.pid}/fd"
        for file in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):  # the server closes descriptors meanwhile
                if "memfd:gluonloader" in os.readlink(f"{folder}/{file}"):
                    with open(f"{folder}/{file}", "rb+") as slab:
                        if os.fstat(slab.fileno()).st_size >= first.nbytes:
                            pytest.raises(PermissionError, slab.truncate, 0)
                            refused += 1
        assert refused
        assert (first[:, 0] == range(4)).all()
        assert len(list(iterator)) == 9


def limited(limit):
    """A loader without workers, whose batches of 1.3 MB the server copies."""
    return lambda: gl.DataLoader([np.full(40_000, index) for index in range(40)], 4, memory_limit=limit)


def test_memory_limit_counts_the_copies_of_the_server():
    with Served(limited("6MB")) as server, gl.attach(server.name) as loader:
        assert [int(batch[0, 0]) for batch in loader] == list(range(0, 40, 4))
        kept = list(islice(loader, 4))
        assert [int(batch[0, 0]) for batch in kept] == [0, 4, 8, 12]
        kept = list(loader)  # more than the limit
        assert [int(batch[0, 0]) for batch in kept] == list(range(0, 40, 4))
    with Served(limited("1MB")) as server, gl.attach(server.name) as loader:
        with pytest.raises(gl.errors.SharedMemoryError, match=r"needs 1,284,158 bytes, but memory_limit=1,048,576"):
            next(iter(loader))


@pytest.mark.parametrize("timeout", [0.5, pytest.param(12, marks=pytest.mark.slow)])  # a server waits 10 s for others
def test_memory_that_a_slow_consumer_uses_is_waited_for(timeout):
    with Served(limited("4MB")) as server, gl.attach(server.name, timeout=timeout) as loader:
        iterator, slow = iter(loader), gl.attach(server.name)
        found = [int(next(iterator)[0, 0])]
        with pytest.raises(
            gl.errors.BatchTimeout, match="waits for another loader of this program.* or raise memory_limit"
        ):
            found.extend(int(batch[0, 0]) for batch in iterator)
        assert [one.batches for one in server.ask("stats").consumers if one.is_waited_for] == [0]
        slow.close()
        found += [int(batch[0, 0]) for batch in iterator]
    assert found == list(range(0, 40, 4))


def read_twice(one, name):
    return read_epochs(one, name, 2)


def test_batches_stay_valid_after_their_loader_is_closed():
    with Served(numbered()) as server:
        with gl.attach(server.name) as loader:
            kept = list(islice(loader, 4))
        deleted = gl.attach(server.name)
        kept += islice(deleted, 4)
        del deleted
        values = [batch.copy() for batch in kept]
        assert len(Rank(0, read_twice, server.name).answer()) == 2
    assert all((batch == value).all() for batch, value in zip(kept, values, strict=True))


def test_a_forked_child_may_read_batches_that_its_parent_drops():
    with Served(numbered(length=600, batch_size=40)) as server, gl.attach(server.name) as loader:
        iterator, go_on = iter(loader), multiprocessing.Event()
        batch = next(iterator)
        values = batch.tolist()
        assert loader.stats().consumers[0].kept == 1  # it is large enough to be no copy

        def read(one, kept=batch):
            assert go_on.wait(60)
            return kept.tolist()

        child = Rank(0, read)
        del batch, read
        assert len(list(iterator)) == 14
        assert len(list(loader)) == 15
        go_on.set()
        assert child.answer() == values


def test_few_descriptors():
    def read(one, name):
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        with gl.attach(name) as loader:
            kept = [batch for _ in range(3) for batch in loader]
            return [batch.tolist() for batch in kept]

    name = new_server_name()
    (reader,) = consumers(1, read, name)

    def make():
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        return loader_of()

    with Served(make, name):
        assert reader.answer() == sum(own(3), [])


def test_no_descriptor_at_all_is_an_error_and_loses_nothing():
    with Served(numbered()) as server, gl.attach(server.name) as loader:
        iterator = iter(loader)
        text = "too many open files: the memory of a batch cannot be mapped"
        with scarce_descriptors(1, left=0), pytest.raises(OSError, match=text):
            next(iterator)
        assert [batch.tolist() for batch in iterator] == own()[0]


def test_nothing_is_left():
    for _ in range(2):  # the first pass imports modules and fills caches
        gc.collect()  # what other tests have left
        before = threads_and_files()
        loader = loader_of({})
        with gl.serve(loader, name := new_server_name()) as server:
            (reader,) = consumers(1, read_epochs, name)
            assert len(reader.answer()[0]) == 15
            with gl.attach(name) as attached:
                assert next(iter(attached)).shape == (4, 500)
        del attached, server, loader, reader
        gc.collect()
        assert eventually(lambda before=before: threads_and_files() == before), (before, open_files())


def threads_and_files():
    return threading.active_count(), descriptors()


def hold_and_die(one, name, pipe):
    loader = gl.attach(name)
    batch = next(iter(loader))
    values = batch.tolist()
    if os.fork():
        os._exit(0)
    pipe.send(values)
    pipe.recv()  # the parent is dead, and the server goes on
    pipe.send(batch.tolist())


def test_a_forked_child_of_a_dead_consumer_may_read_its_batches():
    here, there = multiprocessing.Pipe()
    with Served(numbered(length=600, batch_size=40)) as server:
        Rank(0, hold_and_die, server.name, there)
        values = here.recv()
        assert eventually(lambda: not server.ask("stats").consumers)
        assert len(Rank(0, read_twice, server.name).answer()) == 2
        here.send(None)
        assert here.recv() == values


# -- deaths -----------------------------------------------------------------------------------------------------------


def note_and_die(one, name, folder, steps):
    """Notes each batch in a file, and dies after so many of them."""
    with gl.attach(name) as loader, open(folder / str(one), "w", buffering=1) as file:
        for step, batch in enumerate(loader):
            file.write(f"{batch[:, 0].tolist()}\n")
            if step == steps[one]:
                os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.kill
@pytest.mark.parametrize("seed", range(KILLS))
def test_the_death_of_consumers_loses_and_doubles_no_batch(seed, tmp_path):
    rng, name = random.Random(seed), new_server_name()
    steps = [10**9, 0, *(rng.randint(1, 30) for _ in range(2))]
    readers = consumers(4, note_and_die, name, tmp_path, steps)
    with Served(numbered(length=320), name, consumers=4) as server:
        for reader in readers:
            assert reader.answer() is None
        assert eventually(lambda: not server.ask("stats").consumers)
    found = [(tmp_path / str(one)).read_text().splitlines() for one in range(4)]
    expected = [str([row[0] for row in batch]) for batch in own(length=320)[0]]
    assert found == [expected, *(expected[: step + 1] for step in steps[1:])]


def read_while_killing(one, name, seed):
    rng, found = random.Random(seed * 10 + one), []
    with gl.attach(name) as loader:
        for epoch in range(2):
            for step, batch in enumerate(loader):
                found.append((epoch, batch.tolist()))
                if step % 10 == 5 and rng.random() < 0.3:
                    for pid in worker_pids(loader.stats().pid)[:1]:
                        os.kill(pid, signal.SIGKILL)
    return found


def worker_pids(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


@pytest.mark.kill
@pytest.mark.parametrize("seed", range(KILLS))
def test_the_death_of_a_worker_loses_no_batch(seed):
    name = new_server_name()
    readers = consumers(2, read_while_killing, name, seed)
    with Served(numbered({**PROCESS, "executor": Processes(max_retries=100)}, 160), name, consumers=2):
        found = [reader.answer() for reader in readers]
    expected = [(epoch, batch) for epoch, batches in enumerate(own(2, length=160)) for batch in batches]
    assert found == [expected, expected]


def read_over_servers(one, name, total):
    """Reads so many batches, from as many servers as it takes."""
    found = []
    with gl.attach(name, wait=60) as loader:
        while len(found) < total:
            try:
                for batch in loader:
                    found.append(batch.tolist())
                    if len(found) == total:
                        break
            except gl.errors.LoaderClosed:
                loader.reconnect(wait=60)
    return found


@pytest.mark.kill
@pytest.mark.parametrize("seed", range(KILLS))
def test_a_new_server_continues_from_the_last_state(seed):
    rng, name = random.Random(seed), new_server_name()
    readers = consumers(2, read_over_servers, name, 150)
    state, states = None, []
    for run in range(4):
        with Served(numbered(length=200), name, state, consumers=2) as server:
            if run == 3:
                found = [reader.answer() for reader in readers]
                break
            until = len(states) + rng.randint(5, 25)
            while len(states) < until:
                state = server.ask("state_dict")
                states.append(state)
            server.kill()
    assert found == [sum(own(4, length=200), [])[:150]] * 2


def test_reconnect_to_a_server_that_runs_loses_nothing():
    with Served(numbered()) as server, gl.attach(server.name) as slow:
        with gl.attach(server.name) as fast:
            iterator, found = iter(fast), [batch.tolist() for batch in islice(slow, 3)]
            for _ in range(6):
                next(iterator)
            slow.reconnect()
        assert found + [batch.tolist() for batch in islice(slow, 12)] == own()[0]


def test_the_end_of_a_server_is_an_error_at_once_that_says_why():
    with Served(numbered()) as server, gl.attach(server.name) as loader:
        iterator = iter(loader)
        next(iterator)
        server.ask("close")
        with pytest.raises(gl.errors.LoaderClosed, match=r"\(pid \d+\) has ended: it was closed; start it again"):
            list(iterator)
        with pytest.raises(gl.errors.LoaderClosed, match="it was closed"):
            loader.stats()
    with Served(numbered()) as server, gl.attach(server.name) as loader:
        iterator = iter(loader)
        next(iterator)
        server.kill()
        with pytest.raises(gl.errors.LoaderClosed, match="it sent no message, so it was probably killed"):
            list(iterator)
        assert "no server" in repr(loader)


ENDLESS = """
import os, select, signal, sys
import gluonloader as gl

class Endless:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        if index:
            os.write(started[1], b"!")
            select.select([], [], [])
        return index

started = os.pipe()
loader = gl.DataLoader(Endless(), 1)
server = gl.serve(loader, sys.argv[1])
consumer = gl.attach(sys.argv[1])
print(next(iter(consumer)), os.read(started[0], 1))
if sys.argv[2] == "close":
    server.close()
    loader.close()
elif sys.argv[2] == "interrupt":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in a shell's background ignores it
    signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.spawn
@pytest.mark.parametrize("end", ["close", "interrupt", "exit"])
def test_no_end_of_a_server_waits_for_a_sample_that_never_ends(end):
    done = run_program(ENDLESS, new_server_name(), end, seconds=30)
    assert done.stdout == "[0] b'!'\n"
    assert done.stderr.endswith("\nKeyboardInterrupt\n") if end == "interrupt" else done.stderr == ""


def test_a_consumer_that_is_stopped():
    name = new_server_name()
    stopped = Rank(0, stop_after_first, name)
    with Served(numbered(length=200), name, consumers=2) as server, gl.attach(name, timeout=2) as loader:
        assert eventually(lambda: len(server.ask("stats").consumers) == 2)
        iterator = iter(loader)
        found = [next(iterator).tolist()]
        text = f"since it waits for the consumer with pid {stopped.pid}; end it, or pass slow"
        with pytest.raises(gl.errors.BatchTimeout, match=text):
            found.extend(batch.tolist() for batch in iterator)
        assert [one.pid for one in server.ask("stats").consumers if one.is_waited_for] == [stopped.pid]
        os.kill(stopped.pid, signal.SIGCONT)
        found += [batch.tolist() for batch in iterator]
        assert stopped.answer() == 50
    assert found == own(length=200)[0]


def stop_after_first(one, name):
    with gl.attach(name) as loader:
        iterator = iter(loader)
        next(iterator)
        os.kill(os.getpid(), signal.SIGSTOP)
        return 1 + len(list(iterator))


def test_a_timeout_names_another_loader_of_this_program():
    with Served(numbered({})) as server, gl.attach(server.name, timeout=0.5) as loader:
        with gl.attach(server.name) as other:
            assert next(iter(other)).shape == (4, 500)
            with pytest.raises(gl.errors.BatchTimeout, match="waits for another loader of this program, .*; end it"):
                list(loader)


def test_a_consumer_that_is_stopped_may_skip():
    name = new_server_name()
    stopped = Rank(0, stop_after_first, name)
    with Served(numbered(length=200), name, consumers=2, slow="skip") as server, gl.attach(name) as loader:
        assert [batch.tolist() for batch in loader] == own(length=200)[0]
        (skipped,) = [one for one in server.ask("stats").consumers if one.pid == stopped.pid]
        assert skipped.skipped >= 50 - 1 - 2 - 4
        os.kill(stopped.pid, signal.SIGCONT)
        assert stopped.answer() + skipped.skipped == 50


# -- interrupts -------------------------------------------------------------------------------------------------------


def test_an_interrupt_anywhere_in_next_loses_no_batch(alarms):
    found, arrived = [], 0
    with Served(numbered(length=4000)) as server, gl.attach(server.name, timeout=20) as loader:
        iterator = iter(loader)
        for point in chain(range(400), range(200)):  # at first, descriptors come with the batches
            time.sleep(0.002)  # at any time it has to be right; mostly, a batch has arrived then
            try:
                with SignalAt(point, signal.SIGALRM):
                    found.append(next(iterator).tolist())
            except Alarm:
                arrived += 1
        found += [batch.tolist() for batch in iterator]
    assert found == own(length=4000)[0]
    assert arrived > 50


@pytest.mark.parametrize("point", range(30, 130, 5))
def test_an_interrupt_in_next_before_the_server_ends(alarms, point):
    with loader_of({}) as loader, gl.serve(loader, new_server_name()) as server:
        iterator = iter(gl.attach(server.name))
        next(iterator)
        with contextlib.suppress(Alarm), SignalAt(point, signal.SIGALRM):
            next(iterator)
        server.close()
        with pytest.raises(gl.errors.LoaderClosed, match="it was closed"):
            list(iterator)


class Interrupted(Numbered):
    def __getitem__(self, index):
        if index == 5:
            raise KeyboardInterrupt
        return super().__getitem__(index)


def test_an_interrupt_that_the_dataset_raises_is_an_error_of_its_batch():
    with Served(lambda: gl.DataLoader(Interrupted(12), 4)) as server, gl.attach(server.name) as loader:
        iterator = iter(loader)
        assert int(next(iterator)[0, 0]) == 0
        with pytest.raises(RuntimeError, match=r"^dataset\[5\] raised KeyboardInterrupt"):
            next(iterator)
        assert [int(batch[0, 0]) for batch in iterator] == [8]


def test_a_signal_handler_may_close_the_server(alarms):
    with loader_of({}) as loader, gl.serve(loader, new_server_name()) as server:
        signal.signal(signal.SIGALRM, lambda *_: server.close())
        for point in range(40):
            with SignalAt(point, signal.SIGALRM):
                server.stats()
                server.state_dict()
        server.close()
        server.wait()


@pytest.mark.parametrize("method", ["stats", "state_dict"])
def test_an_interrupted_question_does_not_answer_the_next_one(alarms, method):
    with Served(numbered(length=4000)) as server, gl.attach(server.name) as loader:
        iterator = iter(loader)
        for point in range(0, 300, 3):
            with contextlib.suppress(Alarm), SignalAt(point, signal.SIGALRM):
                getattr(loader, method)()
            next(iterator)
            received = loader.state_dict()["batch"], loader.stats().consumers[0].batches
            assert received == (point // 3 + 1, point // 3 + 1)


def is_held(lock):
    """Whether another thread holds a lock."""
    if lock.acquire(blocking=False):
        lock.release()
        return False
    return True


def test_close_ends_a_next_that_waits():
    name = new_server_name()
    with Served(numbered({}), name, consumers=2):
        loader, errors = gl.attach(name, timeout=None), []

        def wait():
            try:
                next(iter(loader))
            except gl.errors.LoaderClosed as error:
                errors.append(str(error))

        thread = threading.Thread(target=wait)
        thread.start()
        assert eventually(lambda: is_held(loader._lock))
        loader.close()
        thread.join()
    assert errors == ["this loader is closed; call attach again"]


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_a_name_that_nobody_serves():
    with Served(numbered({})) as server:
        with pytest.raises(
            ConnectionRefusedError, match=rf"no server 'nobody' of this user runs .*{re.escape(server.name)}.*serve\("
        ):
            gl.attach("nobody", wait=0)


def test_attach_waits_for_the_server():
    name = new_server_name()
    (reader,) = consumers(1, read_epochs, name)
    with Served(numbered(), name):
        assert reader.answer() == own()


def test_a_wait_may_be_longer_than_the_system_allows():
    longest = 1e300
    with loader_of({}) as loader, gl.serve(loader, new_server_name()) as server:
        with gl.attach(server.name, wait=longest, timeout=longest) as attached:
            assert [batch.tolist() for batch in attached] == own()[0]
        threading.Thread(target=server.close).start()
        assert server.wait(longest)


def test_a_second_server_of_a_name_is_refused():
    with Served(numbered({})) as server:
        with pytest.raises(ValueError, match="a server of this name runs already"):
            Served(numbered({}), server.name)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([1], "x"), "loader=.*must be a gluonloader.DataLoader"),
        ((None, "a b"), "name='a b': must be 1 to 64 ASCII letters"),
        ((None, "zwölf"), "name='zwölf': must be 1 to 64 ASCII letters"),
        ((None, "x", "some"), 'slow=\'some\': must be "wait" or "skip"'),
        ((None, "x", "wait", 0), "consumers=0"),
    ],
)
def test_wrong_arguments_of_serve(arguments, text):
    loader, *others = arguments
    with pytest.raises(ValueError, match=text):
        gl.serve(loader or gl.DataLoader([1, 2], 1), *others)


def test_an_argument_that_was_taken_out_says_what_to_use():
    with pytest.raises(TypeError, match='no argument each: each consumer gets each batch; .*share="node"'):
        gl.serve(gl.DataLoader([1, 2], 1), "x", each="one")


def test_wrong_arguments_of_attach():
    with pytest.raises(ValueError, match="output='tensor'"):
        gl.attach("x", output="tensor")
    with pytest.raises(ValueError, match="timeout=0"):
        gl.attach("x", timeout=0)
    with pytest.raises(ValueError, match="name=3"):
        gl.attach(3)


def test_another_version_is_refused(monkeypatch):
    with Served(numbered({})) as server:
        monkeypatch.setattr("gluonloader.serving.connection.library_version", lambda: "9.9")
        with pytest.raises(ConnectionRefusedError, match="gluonloader 9.9 here, but .* install the same version"):
            gl.attach(server.name)


Point = collections.namedtuple("Point", "values")


def points(samples):
    return gl.default_batchify(samples) if samples[0][0] else Point(np.zeros(3))


def test_a_batch_that_the_consumer_cannot_build_is_an_error_of_that_batch(monkeypatch):
    with Served(lambda: gl.DataLoader(Numbered(12), 4, batchify_fn=points)) as server, gl.attach(server.name) as loader:
        monkeypatch.delattr(f"{__name__}.Point")
        iterator, text = iter(loader), "cannot import a class of the batch .*Point.*; define it in a module"
        with pytest.raises(gl.errors.TransportError, match=text):
            next(iterator)
        assert [int(batch[0, 0]) for batch in iterator] == [4, 8]


class Stateful(gl.SequentialSampler):
    """A sampler with a long state."""

    def __init__(self):
        super().__init__(12)

    def state_dict(self):
        return {"text": "x" * 500_000}

    def load_state_dict(self, state):
        pass


def stateful():
    return gl.DataLoader(Numbered(12), 4, sampler=Stateful())


def test_a_long_state():
    with Served(stateful) as server, gl.attach(server.name) as loader:
        assert next(iter(loader)).shape == (4, 500)
        assert "x" * 500_000 in str(loader.state_dict())


def test_a_long_answer_comes_at_once_while_others_wait():
    with Served(stateful) as server, gl.attach(server.name, timeout=0.5) as loader:
        with gl.attach(server.name) as other:
            assert next(iter(other)).shape == (4, 500)
            with pytest.raises(gl.errors.BatchTimeout, match="waits for another loader"):
                list(chain.from_iterable(repeat(loader)))


def test_a_loader_that_was_partly_read():
    def make():
        loader = loader_of()
        next(iter(loader))
        return loader

    with Served(make) as server, gl.attach(server.name) as loader:
        first = server.ask("state_dict")
        assert (first["epoch"], first["batch"]) == (1, 0)
        iterator = iter(loader)
        found = [next(iterator).tolist() for _ in range(3)]
        state = loader.state_dict()
        assert (state["epoch"], state["batch"]) == (1, 3)
        found += [batch.tolist() for batch in iterator]
    assert found == own(2)[1]


def test_the_state_of_a_closed_server_counts_all_that_was_received():
    for _ in range(10):
        with loader_of({}) as loader, gl.serve(loader, new_server_name()) as server:
            (reader,) = consumers(1, read_some, server.name)
            assert reader.answer() == 7
            server.close()
            assert server.state_dict()["batch"] == 7


def read_some(one, name):
    loader = gl.attach(name)
    count = len(list(islice(loader, 7)))
    os.kill(os.getpid(), 0)
    return count


def test_copies_attach_to_the_server():
    with Served(numbered({})) as server, gl.attach(server.name) as loader:
        with copy.copy(loader) as second, pickle.loads(pickle.dumps(loader)) as third:
            assert len(server.ask("stats").consumers) == 3
            assert second.name == third.name == server.name
        assert [batch.tolist() for batch in loader] == own()[0]
        with pytest.raises(TypeError, match="load the state into the loader of the server"):
            loader.load_state_dict({})


def test_a_forked_child_needs_its_own_loader():
    with Served(numbered()) as server, gl.attach(server.name) as loader:
        iterator = iter(loader)
        first = next(iterator).tolist()
        assert "call attach in the forked child" in in_child(lambda: str(next(iterator)))
        assert [first, *(batch.tolist() for batch in iterator)] == own()[0]


def test_a_closed_loader_says_so():
    with Served(numbered({})) as server:
        loader = gl.attach(server.name)
        loader.close()
        loader.close()
        with pytest.raises(gl.errors.LoaderClosed, match="this loader is closed; call attach again"):
            next(iter(loader))


# -- who may attach ---------------------------------------------------------------------------------------------------


def test_bytes_that_are_no_message_do_not_disturb_the_server():
    rng = random.Random(1)
    with Served(numbered({})) as server:
        for turn in range(int(os.environ.get("GLUONLOADER_MESSAGES", "200"))):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
                stranger.connect(address_of(server.name))
                if turn % 2:  # as a consumer
                    stranger.send(b'["Hello", {"version": "%s", "epoch": 0, "received": [[0, 1]]}]' % VERSION)
                with contextlib.suppress(BrokenPipeError):  # the server has refused the greeting before
                    stranger.send(rng.randbytes(rng.choice([1, 9, 18, 200])))
        with gl.attach(server.name) as loader:
            assert len(list(loader)) > 0
            assert [batch.tolist() for batch in loader] == own(2)[1]


VERSION = library_version().encode()
