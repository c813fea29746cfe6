"""Workers that all ranks of a node share: who starts them, what ranks get, what happens if someone dies."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import multiprocessing.connection
import os
import random
import re
import resource
import signal
import socket
import threading
import time
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from conftest import crew, descriptors, eventually, in_child, is_running, workers
from inherited import KINDS, Sharing
from open_streams import Finally, Notes
from samples import Numbered, Shards
from sharing import Rank, full_queue, lists, loader_of, new_name, nothing_left, over_ranks
from started import first_time

import gluonloader as gl
from gluonloader.executors.shared.crew import SharedWorker
from gluonloader.executors.shared.messages import RankHello, send
from gluonloader.memory.slabs import SlabPool
from gluonloader.options import Processes
from gluonloader.wire.greeting import library_version

pytestmark = [pytest.mark.numpy_only, pytest.mark.filterwarnings("ignore:resuming")]

KILLS = int(os.environ.get("GLUONLOADER_KILLS", "5"))
ACCEPTS_CONNECTIONS = 1 << 16  # a flag of a socket in /proc/net/unix


class Pids(Numbered):
    """Each sample is the pid of its worker."""

    def __getitem__(self, index):
        return os.getpid()


class Noted:
    """A function that returns the dataset, and notes in a folder that it was called."""

    def __init__(self, folder, length=40):
        self.folder, self.length = folder, length

    def __call__(self):
        (self.folder / f"{os.getpid()} {time.monotonic_ns()}").touch()
        return Numbered(self.length)

    def calls(self):
        return len(list(self.folder.iterdir()))


# -- what ranks get ---------------------------------------------------------------------------------------------------


def read_pids(rank, number, name, start_method, together):
    with loader_of(rank, number, name, Pids(200), start_method=start_method) as loader:
        together.wait()  # or the others may be at the end, and their workers gone, before this rank has started
        return {pid for batch in lists(loader) for pid in batch}


@pytest.mark.parametrize(
    "start_method", ["fork", *(pytest.param(method, marks=pytest.mark.spawn) for method in ("forkserver", "spawn"))]
)
def test_all_ranks_use_the_same_workers(start_method):
    found = over_ranks(3, read_pids, 3, new_name(), start_method, multiprocessing.Barrier(3))
    assert len(set().union(*found)) <= 2
    assert nothing_left(set().union(*found))


def read_epochs(rank, number, name, dataset, epochs):
    with loader_of(rank, number, name, dataset, shuffle=True) as loader:
        return [lists(loader) for _ in range(epochs)]


@pytest.mark.parametrize("number", [1, 4])
def test_batches_are_those_of_a_loader_with_its_own_workers(number):
    shared = over_ranks(number, read_epochs, number, new_name(), Numbered(50), 2)
    assert shared == [read_epochs(rank, number, None, Numbered(50), 2) for rank in range(number)]


def read_function(rank, number, name, noted, together):
    with loader_of(rank, number, name, noted.__call__, shuffle=True, on_error="replace") as loader:
        together.wait()
        again = loader.replay(0, 1)
        return lists(loader), len(loader), len(loader.dataset), again.tolist()


def test_a_dataset_that_a_function_returns_is_built_once(tmp_path):
    noted = Noted(tmp_path)
    shared = over_ranks(3, read_function, 3, new_name(), noted, multiprocessing.Barrier(3))
    assert noted.calls() == 1 + 3  # once by the server, and once by each rank for `replay`
    for rank, (batches, length, samples, again) in enumerate(shared):
        own = lists(loader_of(rank, 3, None, Numbered(40), shuffle=True))
        assert (batches, length, samples, again) == (own, len(own), 40, own[1])


def test_a_function_may_return_a_dataset_whose_sampler_decides_its_length():
    documents = [[1, 2, 3], [4, 5], [6]] * 10

    def packed(dataset, **options):
        sampler = gl.text.PackingSampler([3, 2, 1] * 10, 4, seed=0)
        return gl.DataLoader(dataset, 2, sampler=sampler, batchify_fn=tokens_of, **options)

    def tokens_of(rows):
        return [np.concatenate(row.tokens).tolist() for row in rows]

    def build():
        return gl.text.PackedDataset(documents)

    with packed(build(), seed=0) as loader:
        own = list(loader)
    with packed(build, seed=0, num_workers=1, ranks=gl.Ranks(0, 1, share=new_name())) as loader:
        assert list(loader) == own
        with pytest.raises(TypeError, match="has no length; pass a sampler"):
            len(loader.dataset)


def read_with_few_files(rank, number, name, workers, together):
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    with loader_of(rank, number, name, Pids(400 * number), num_workers=workers, prefetch=30) as loader:
        together.wait()
        return {pid for batch in lists(loader) for pid in batch}


def test_many_ranks_and_workers_with_few_open_files():
    """Each worker gets some 30 slabs of each of 8 ranks, and each takes one or two descriptors."""
    found = over_ranks(8, read_with_few_files, 8, new_name(), 3, multiprocessing.Barrier(8))
    assert len(set().union(*found)) == 3  # no worker has died


def read_shards(rank, number, name):
    with loader_of(rank, number, name, gl.IterableDataset(Shards(), num_shards=6), shuffle=True) as loader:
        first = list(islice(loader, 2))
        state = loader.state_dict()
    with loader_of(rank, number, name, gl.IterableDataset(Shards(), num_shards=6), shuffle=True) as loader:
        loader.load_state_dict(state)
        return [batch.tolist() for batch in first] + lists(loader)


def test_iterable_datasets_and_resumes():
    assert over_ranks(2, read_shards, 2, new_name()) == [read_shards(rank, 2, None) for rank in range(2)]


def leave_streams(rank, number, name, notes):
    with loader_of(rank, number, name, gl.IterableDataset(Finally(notes), num_shards=4)) as loader:
        for _ in range(10):
            next(iter(loader))
        return eventually(lambda: not notes.open)  # while the workers go on


def test_streams_that_a_rank_leaves_are_closed(tmp_path):
    notes = Notes(tmp_path)
    assert over_ranks(2, leave_streams, 2, new_name(), notes) == [True, True]
    assert notes.opened >= 20


@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
@pytest.mark.parametrize("kind", ["Value", "RawValue", "Lock", "Queue", "Pipe", "Socket"])
def test_what_a_rank_cannot_share_with_the_workers_is_refused(start_method, kind):
    dataset = Sharing([KINDS[kind]], multiprocessing.get_context(start_method))
    cure = (
        f"start_method='{start_method}' needs to pickle dataset, but this failed: dataset\\.shared\\[0\\].*: \\w+ "
        "objects should only be shared between processes through inheritance\\. Workers of several ranks cannot "
        "share it with one of them; leave it out, or remove share$"
    )
    try:
        with pytest.raises(gl.errors.TransportError, match=cure):
            loader_of(0, 1, new_name(), dataset, start_method=start_method)
    finally:
        dataset.end()


def read_two_names(rank, number, name):
    with loader_of(rank, number, name, Numbered(20)) as train, loader_of(rank, number, f"{name}2", Numbered(9)) as test:
        return [lists(train), lists(test), lists(train)]


def test_loaders_with_different_names_share_separately():
    shared = over_ranks(2, read_two_names, 2, new_name())
    for rank, (train, test, again) in enumerate(shared):
        assert train == again == lists(loader_of(rank, 2, None, Numbered(20)))
        assert test == lists(loader_of(rank, 2, None, Numbered(9)))


def leave_early(rank, number, name):
    with loader_of(rank, number, name, Numbered(400)) as loader:
        batches = [batch.tolist() for batch in islice(loader, 3 if rank == 0 else None)]
        pids = workers(loader)
    return batches, pids


def test_the_first_rank_may_leave_first():
    (first, _), (second, pids) = over_ranks(2, leave_early, 2, new_name())
    assert first == lists(loader_of(0, 2, None, Numbered(400)))[:3]
    assert second == lists(loader_of(1, 2, None, Numbered(400)))
    assert nothing_left(pids)


def test_close_of_the_last_rank_waits_until_nothing_is_left():
    with loader_of(0, 1, new_name(), Numbered(40)) as loader:
        list(loader)
        pids = [*workers(loader), *server_of(loader)]
    assert not any(map(is_running, pids))


def mapped_slabs(pid):
    """How many slabs a process has mapped."""
    with open(f"/proc/{pid}/maps") as file:
        return sum("memfd:gluonloader" in line for line in file)


def read_and_leave(rank, number, name, together, look):
    """Rank 1 reads all and leaves; `look` watches what that does to the workers, in rank 0."""
    with loader_of(rank, number, name, Numbered(800), num_workers=1) as loader:
        list(loader)
        together.wait(60)
        if not rank:
            return look(loader, together)
        list(loader)
        together.wait(60)
        together.wait(60)
    together.wait(60)
    return None


def slabs_before_and_after(loader, together):
    (worker,) = workers(loader)
    together.wait(60)
    before = mapped_slabs(worker)
    together.wait(60)
    together.wait(60)
    return eventually(lambda: mapped_slabs(worker) < before)


def test_workers_unmap_the_memory_of_a_rank_that_leaves():
    found = over_ranks(2, read_and_leave, 2, new_name(), multiprocessing.Barrier(2), slabs_before_and_after)
    assert found == [True, None]


def server_after_a_stop(loader, together):
    (server,) = server_of(loader)
    together.wait(60)
    os.kill(server, signal.SIGSTOP)
    together.wait(60)
    together.wait(60)
    os.kill(server, signal.SIGCONT)
    return len(lists(loader)), server_of(loader) == [server]


def test_a_rank_that_leaves_a_stopped_server_does_not_end_it_for_the_others():
    found = over_ranks(2, read_and_leave, 2, new_name(), multiprocessing.Barrier(2), server_after_a_stop)
    assert found == [(100, True), None]


def stopped_server(rank, number, name, together):
    """Rank 0 stops the server while the other rank joins it."""
    if rank:
        together.wait(60)
        try:
            loader_of(rank, number, name, Numbered(40), timeout=1).close()
        except gl.errors.WorkerStartError as error:
            return str(error)
        finally:
            together.wait(60)
        return ""
    with loader_of(rank, number, name, Numbered(40)) as loader:
        lists(loader)
        (server,) = server_of(loader)
        os.kill(server, signal.SIGSTOP)
        try:
            together.wait(60)
            together.wait(60)
        finally:
            os.kill(server, signal.SIGCONT)
        return server


def test_a_rank_that_joins_a_stopped_server_gets_an_error_that_names_it():
    server, text = over_ranks(2, stopped_server, 2, new_name(), multiprocessing.Barrier(2))
    assert f"(pid {server}) is stopped, and has not answered for timeout=1 seconds" in text
    assert f"kill -CONT {server}" in text


def test_the_last_rank_ends_a_server_that_is_stopped():
    with loader_of(0, 1, new_name(), Numbered(40)) as loader:
        list(loader)
        pids = [*workers(loader), *server_of(loader)]
        os.kill(*server_of(loader), signal.SIGSTOP)
    assert nothing_left(pids)


def test_no_descriptors_are_left():
    with loader_of(0, 1, new_name(), Numbered(40)) as loader:
        list(loader)
    before = descriptors()
    for _ in range(3):
        with loader_of(0, 1, new_name(), Numbered(40)) as loader:
            list(loader)
    assert descriptors() <= before


# -- deaths -----------------------------------------------------------------------------------------------------------


def server_of(loader):
    """The pid of the server, if the rank has joined one now."""
    server = crew(loader)._server
    return [] if server is None else [server.welcome.pid]


def read_while_someone_dies(rank, number, name, victim, seed):
    rng, batches = random.Random(seed * 10 + rank), []
    with loader_of(rank, number, name, Numbered(4 * 60 * number), executor=Processes(max_retries=100)) as loader:
        for step, batch in enumerate(loader):
            batches.append(batch.tolist())
            if step % 20 == 10 and rng.random() < 0.7:
                pids = workers(loader) if victim == "worker" else server_of(loader)
                for pid in pids[:1]:
                    with contextlib.suppress(ProcessLookupError):  # the other rank has killed it
                        os.kill(pid, signal.SIGKILL)
        pids = workers(loader)
    return batches, pids


@pytest.mark.kill
@pytest.mark.parametrize("seed", range(KILLS))
@pytest.mark.parametrize("victim", ["worker", "server"])
def test_a_death_loses_no_batch(victim, seed):
    found = over_ranks(2, read_while_someone_dies, 2, new_name(), victim, seed)
    for rank, (batches, _) in enumerate(found):
        assert batches == lists(loader_of(rank, 2, None, Numbered(4 * 60 * 2)))
    assert nothing_left({pid for _, pids in found for pid in pids})


def read_or_die(rank, number, name, steps):
    with loader_of(rank, number, name, Numbered(4 * 50 * number)) as loader:
        batches = []
        for step, batch in enumerate(loader):
            batches.append(batch.tolist())
            if rank and step == steps:
                os.kill(os.getpid(), signal.SIGKILL)
        return batches, workers(loader)


@pytest.mark.parametrize("steps", [0, 30])
def test_a_rank_that_dies_costs_the_others_nothing(steps):
    (batches, pids), *dead = over_ranks(3, read_or_die, 3, new_name(), steps)
    assert dead == [None, None]
    assert batches == lists(loader_of(0, 3, None, Numbered(4 * 50 * 3)))
    assert nothing_left(pids)


def has_listening_socket(pid):
    """Whether a process holds a socket by which ranks find a server."""
    sockets = [line.split() for line in Path("/proc/net/unix").read_text().splitlines() if "@gluonloader-" in line]
    listening = {f"socket:[{inode}]" for *_, flags, _, _, inode, _ in sockets if int(flags, 16) & ACCEPTS_CONNECTIONS}
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed just now
            if os.readlink(file) in listening:
                return True
    return False


def test_only_the_server_holds_its_name():
    """So the name is free when the server has ended, in whatever way."""
    with loader_of(0, 1, new_name(), Numbered(40)) as loader:
        next(iter(loader))
        (server,) = server_of(loader)
        assert [pid for pid in (os.getpid(), server, *workers(loader)) if has_listening_socket(pid)] == [server]


def connected(where):
    guest = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    guest.settimeout(60)
    guest.connect(where)
    return guest


@contextlib.contextmanager
def joins_while_stopped(loader):
    """Rank 1 has sent its greeting to the server, which is stopped; within the block, that is its connection."""
    (server,), meeting = server_of(loader), crew(loader)._meeting
    with connected(meeting.address) as other:
        with connected(meeting.address) as later:
            later.send(b"no message")
            assert later.recv(10) == b""  # so the server has accepted both
        os.kill(server, signal.SIGSTOP)
        send(other, RankHello(library_version(), meeting._facts, 1, [0]))
        yield other


def test_the_server_ends_if_the_last_rank_is_gone_before_its_answer():
    with loader_of(0, 2, new_name(), Numbered(40)) as loader:
        (server,) = server_of(loader)
        with joins_while_stopped(loader):
            pass
        crew(loader)._server.connection.shutdown(socket.SHUT_WR)
        os.kill(server, signal.SIGCONT)
        assert nothing_left([server])


def test_a_rank_that_leaves_while_another_one_joins_hears_that_the_server_goes_on():
    """Otherwise it waits for the end of the server, and kills it."""
    with loader_of(0, 2, new_name(), Numbered(40)) as loader:
        (server,) = server_of(loader)
        with joins_while_stopped(loader) as other:
            leaving = crew(loader)._server.connection
            leaving.shutdown(socket.SHUT_WR)
            os.kill(server, signal.SIGCONT)
            assert b"RankWelcome" in other.recv(10_000)
            leaving.settimeout(10)
            assert any(b"Goodbye" in message for message in iter(lambda: leaving.recv(10_000), b""))


def stopped_rank(rank, number, name):
    with loader_of(rank, number, name, Numbered(4 * 50 * number)) as loader:
        iterator = iter(loader)
        batches = [next(iterator).tolist()]
        if rank:
            os.kill(os.getpid(), signal.SIGSTOP)
        return batches + [batch.tolist() for batch in iterator]


def test_a_rank_that_is_stopped_does_not_stop_the_others():
    name = new_name()
    stopped, other = Rank(1, stopped_rank, 2, name), Rank(0, stopped_rank, 2, name)
    assert other.answer() == lists(loader_of(0, 2, None, Numbered(400)))
    os.kill(stopped.pid, signal.SIGCONT)
    assert stopped.answer() == lists(loader_of(1, 2, None, Numbered(400)))


class ExitsAtFirst(Numbered):
    """Some samples end their worker, each of them once."""

    def __init__(self, folder, size=80, every=8):
        super().__init__(size)
        self.folder, self.every = folder, every

    def __getitem__(self, index):
        if index % self.every == 3 and first_time(self.folder / str(index)):
            os._exit(3)
        return super().__getitem__(index)


class EndsServer(ExitsAtFirst):
    """Some samples end the server of their worker, each of them once."""

    def __getitem__(self, index):
        if index % self.every == 3 and first_time(self.folder / str(index)):
            with contextlib.suppress(ProcessLookupError):  # another worker has ended it
                os.kill(multiprocessing.parent_process().pid, signal.SIGKILL)
            signal.pause()
        return super().__getitem__(index)


def test_the_end_of_the_server_does_not_count_as_a_death_of_its_workers(tmp_path):
    with loader_of(0, 1, new_name(), EndsServer(tmp_path, every=40), executor=Processes(max_retries=0)) as loader:
        assert lists(loader) == lists(loader_of(0, 1, None, Numbered(80)))


def stopped_while_workers_end(rank, number, name, dataset):
    with loader_of(rank, number, name, dataset, timeout=30) as loader:
        iterator = iter(loader)
        batches = [next(iterator)]
        if not rank:
            os.kill(os.getpid(), signal.SIGSTOP)
        return first_columns([*batches, *iterator])


def first_columns(batches):
    return [batch[:, 0].tolist() for batch in batches]


@pytest.mark.kill
def test_messages_to_a_rank_that_is_stopped_wait_until_it_reads_them(tmp_path):
    """Each worker that has ended, and the next one, are two messages: more than the queue of the rank takes."""
    name, dataset = new_name(), ExitsAtFirst(tmp_path, 1600, every=40)  # each fifth batch of rank 1
    stopped, other = (Rank(rank, stopped_while_workers_end, 2, name, dataset) for rank in range(2))
    try:
        assert other.answer() == first_columns(loader_of(1, 2, None, Numbered(1600)))
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    assert stopped.answer() == first_columns(loader_of(0, 2, None, Numbered(1600)))


def read_beside_an_immortal_worker(rank, number, name, dataset):
    """As if a worker could not be killed: whether each slab that it may write is closed."""
    end, reclaim, closed = SharedWorker.end, SlabPool.reclaim, []

    def note(pool, slab):
        reclaim(pool, slab)
        closed.append(slab.fd == -1)

    SharedWorker.end = lambda worker: end(worker) and False
    SlabPool.reclaim = note
    with loader_of(rank, number, name, dataset) as loader:
        return lists(loader), closed


def test_a_slab_that_a_worker_may_still_write_is_not_used_again(tmp_path):
    found = over_ranks(2, read_beside_an_immortal_worker, 2, new_name(), ExitsAtFirst(tmp_path))
    assert [batches for batches, _ in found] == [lists(loader_of(rank, 2, None, Numbered(80))) for rank in range(2)]
    closed = [is_closed for _, some in found for is_closed in some]
    assert closed
    assert all(closed)


class Exits(Numbered):
    def __getitem__(self, index):
        if index == 5:
            os._exit(3)
        return super().__getitem__(index)


def read_after_error(rank, number, name):
    with loader_of(rank, number, name, Exits(40)) as loader:
        iterator, found = iter(loader), []
        while True:
            try:
                found.append(next(iterator).tolist())
            except StopIteration:
                return found
            except gl.errors.WorkerDied as error:
                found.append(str(error))


def test_a_sample_that_always_ends_its_worker_is_an_error_of_its_rank_only():
    first, second = over_ranks(2, read_after_error, 2, new_name())
    assert first == lists(loader_of(0, 2, None, Numbered(40)))
    own = lists(loader_of(1, 2, None, Numbered(40)))
    assert second[1:] == own[1:]
    assert re.search("with exit code 3.*dataset", second[0])


def test_the_death_of_the_first_rank_is_noticed_at_once():
    """The server and the workers hold no end of its pipes."""
    name, together, later = new_name(), multiprocessing.Barrier(2), multiprocessing.Event()
    first = Rank(0, first_of_two, name, together, later)
    second = Rank(1, first_of_two, name, together, later)
    assert multiprocessing.connection.wait([first.process.sentinel], 30) == [first.process.sentinel]
    assert not later.is_set()
    later.set()
    assert first.answer() is None
    assert second.answer() == lists(loader_of(1, 2, None, Numbered(400)))


def first_of_two(rank, name, together, later):
    with loader_of(rank, 2, name, Numbered(400)) as loader:
        iterator = iter(loader)
        batches = [next(iterator).tolist()]
        together.wait()
        if not rank:
            os.kill(os.getpid(), signal.SIGKILL)
        later.wait()
        return batches + [batch.tolist() for batch in iterator]


class Slow(Numbered):
    """Sample 0 waits until a file exists."""

    def __init__(self, folder):
        super().__init__(16)
        self.folder = folder

    def __getitem__(self, index):
        if index == 0:
            (self.folder / "begun").touch()
            assert eventually((self.folder / "go on").exists)
        return super().__getitem__(index)


def wait_behind(rank, number, name, folder):
    with loader_of(rank, number, name, Slow(folder), num_workers=1, timeout=60 if rank == 0 else 0.3) as loader:
        if rank == 0:
            return lists(loader)
        assert eventually((folder / "begun").exists)
        with pytest.raises(gl.errors.BatchTimeout, match="still makes batches of other ranks; pass a larger timeout"):
            next(iter(loader))
        (folder / "go on").touch()
        return None


def test_a_timeout_does_not_kill_a_worker_that_makes_a_batch_of_another_rank(tmp_path):
    first, _ = over_ranks(2, wait_behind, 2, new_name(), tmp_path)
    assert first == lists(loader_of(0, 2, None, Numbered(16)))


def read_beside_slow(rank, number, name, folder):
    with loader_of(rank, number, name, Slow(folder), prefetch=1) as loader:
        if rank == 0:
            return lists(loader)
        assert eventually((folder / "begun").exists)
        batches = lists(loader)
        (folder / "go on").touch()
        return batches


def test_a_batch_behind_the_slow_batch_of_another_rank_moves_to_an_idle_worker(tmp_path):
    found = over_ranks(2, read_beside_slow, 2, new_name(), tmp_path)
    assert found == [lists(loader_of(rank, 2, None, Numbered(16))) for rank in range(2)]


def read_again_in_child(rank, number, name):
    with loader_of(rank, number, name, Numbered(40)) as loader:
        next(iter(loader))
        inside = in_child(lambda: repr(first_columns(loader)))
        return inside, first_columns(loader)


def test_a_forked_child_has_workers_of_its_own():
    ((inside, outside),) = over_ranks(1, read_again_in_child, 1, new_name())
    assert inside == repr(outside) == repr(first_columns(loader_of(0, 1, None, Numbered(40))))


class Growing:
    """A function that returns one more sample at each call."""

    def __init__(self, folder):
        self.folder = folder

    def __call__(self):
        (self.folder / str(time.monotonic_ns())).touch()
        return Numbered(4000 + len(list(self.folder.iterdir())))


def test_a_dataset_that_changes_when_it_is_built_again_is_an_error(tmp_path):
    with loader_of(0, 1, new_name(), Growing(tmp_path).__call__) as loader:
        iterator = iter(loader)
        next(iterator)
        os.kill(*server_of(loader), signal.SIGKILL)
        with pytest.raises(gl.errors.WorkerStartError, match="its length or its content had changed"):
            list(iterator)


def payload_of(info, worker):
    return 7


class Payloads(Numbered):
    def __getitem__(self, index):
        return gl.get_worker_info().payload


def test_a_payload_reaches_the_workers():
    for dataset in (Payloads(8), lambda: Payloads(8)):
        with loader_of(0, 1, new_name(), dataset, worker_payload=payload_of) as loader:
            assert lists(loader) == [[7] * 4] * 2


class Cores(Numbered):
    def __getitem__(self, index):
        return sum(1 << core for core in os.sched_getaffinity(0))


def read_cores(rank, number, name, cores, together):
    os.sched_setaffinity(0, {cores[rank]})
    with loader_of(rank, number, name, Cores(400)) as loader:
        next(iter(loader))
        together.wait()
        return lists(loader)[-1][0]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_workers_run_on_the_cores_of_all_ranks():
    cores = sorted(os.sched_getaffinity(0))[:2]
    found = over_ranks(2, read_cores, 2, new_name(), cores, multiprocessing.Barrier(2))
    assert found == [sum(1 << core for core in cores)] * 2


# -- errors at the start ----------------------------------------------------------------------------------------------


def message_of(rank, number, name, *different):
    """The text of the error of a loader with other arguments on each rank; empty if there is none."""
    try:
        with loader_of(rank, number, name, **{"dataset": Numbered(40), **different[rank]}) as loader:
            list(loader)
            time.sleep(0.2)  # the other rank must find the server
            return ""
    except (ValueError, gl.errors.WorkerStartError) as error:
        return str(error)


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (
            {},
            {"batch_size": 8},
            "batch_size=8 on this rank, but batch_size=4 on|batch_size=4 on this rank, but batch_size=8 on",
        ),
        ({"num_workers": 1}, {"num_workers": 3}, "num_workers="),
        ({"seed": 1}, {"seed": 2}, "seed="),
        ({"shuffle": True}, {}, "shuffle="),
    ],
)
def test_ranks_with_other_arguments_are_refused(first, second, text):
    texts = over_ranks(2, message_of, 2, new_name(), first, second)
    assert sorted(map(bool, texts)) == [False, True]
    assert re.search(f"share: (?:{text}).*share='node:validation'", max(texts))


def fails():
    raise OSError("no such disk")


def ends():
    os._exit(7)


def test_an_error_of_the_function_reaches_each_rank():
    for text in over_ranks(2, message_of, 2, new_name(), {"dataset": fails}, {"dataset": fails}):
        assert re.search("the server of the workers.*could not start: OSError: no such disk", text)


def test_a_function_that_ends_the_server():
    assert "has ended 3 times while it started" in message_of(0, 1, new_name(), {"dataset": ends})


def test_an_error_of_worker_init_fn():
    def init(worker):
        raise OSError("no such disk")

    with pytest.raises(gl.errors.WorkerStartError, match="no such disk"):
        with loader_of(0, 1, new_name(), Numbered(9), worker_init_fn=init) as loader:
            list(loader)


class WithState(Numbered):
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"share": "yes"}, "must be 'node' or 'node:NAME'"),
        ({"share": "node:"}, "must be 'node' or 'node:NAME'"),
        ({"share": 3}, "must be 'node' or 'node:NAME'"),
        ({"num_workers": 0}, "num_workers=0 starts no workers"),
        ({"thread_pool": True}, "executor='thread' has no worker processes"),
        ({"dataset": WithState(8)}, r"WithState has a state_dict\(\)"),
        ({"dataset": lambda: iter("abc")}, "it returned str_ascii_iterator|it returned str_iterator"),
        ({"dataset": lambda: WithState(8)}, r"WithState has a state_dict\(\)"),
    ],
)
def test_bad_arguments(arguments, text):
    passed = {"dataset": Numbered(8), "share": new_name(), **arguments}
    dataset, share = passed.pop("dataset"), passed.pop("share")
    with pytest.raises((ValueError, gl.errors.WorkerStartError), match=text):
        loader_of(0, 1, share, dataset, **passed)


def test_two_datasets_by_one_name_are_refused():
    name = new_name()
    with loader_of(0, 1, name, Numbered(8)), pytest.raises(ValueError, match="another open loader of this process"):
        loader_of(0, 1, name, Numbered(8))
    with loader_of(0, 1, name, Numbered(8)) as loader:  # the first one is closed
        assert len(lists(loader)) == 2


# -- ranks that do not belong together --------------------------------------------------------------------------------


def reads(path):
    return [float(path)] * 8


class Locked(Numbered):
    """Its first attribute cannot be pickled."""

    def __init__(self, x):
        self.lock = threading.Lock()
        super().__init__(8)
        self.x = x


@pytest.mark.parametrize(
    ("contents", "part"),
    [
        ([[1.0] * 8, [2.0] * 8], "dataset"),
        ([np.zeros(8), np.ones(8)], "dataset"),
        ([partial(reads, "1"), partial(reads, "2")], "dataset"),
        ([lambda: [1.0] * 8, lambda: [2.0] * 8], "dataset"),
        ([Locked(1), Locked(2)], "dataset.x"),
    ],
    ids=["lists", "arrays", "partial functions", "lambdas", "attributes after a lock"],
)
def test_ranks_with_another_dataset_are_refused(contents, part):
    found = over_ranks(2, message_of, 2, new_name(), *({"dataset": content} for content in contents))
    (refused,) = filter(None, found)
    assert f"share: {part} has one content on this rank, but another one on the rank that has started" in refused


class Noisy(Numbered):
    """What differs between processes that do the same: generators, and the order of sets."""

    def __init__(self):
        super().__init__(40)
        self.rng = np.random.default_rng()
        self.numbers = set(np.random.default_rng(os.getpid()).permutation(100).tolist())


def read_noisy(rank, number, name):
    with loader_of(rank, number, name, Noisy()) as loader:
        return lists(loader)


def test_generators_and_sets_may_differ():
    assert len(over_ranks(2, read_noisy, 2, new_name())) == 2


def same_rank(rank, number, name):
    return message_of(0, number, name, {})


def test_two_programs_that_use_one_name_are_refused():
    texts = over_ranks(2, same_rank, 2, new_name())
    assert sorted(map(bool, texts)) == [False, True]
    assert re.search("rank 0 is connected already .*set the environment variable GLUONLOADER_PROGRAM", max(texts))


def make_in_daemon(rank, number, name):
    multiprocessing.current_process()._config["daemon"] = True
    return message_of(rank, number, name, {})


def test_a_daemonic_process_cannot_share():
    (text,) = over_ranks(1, make_in_daemon, 1, new_name())
    assert "this process is daemonic, so it cannot start workers" in text


# -- who may use the workers ------------------------------------------------------------------------------------------


def address(loader):
    return loader.epochs.workers.options.meeting.address


def test_bytes_that_are_no_message_do_not_disturb_the_server():
    rng = random.Random(1)
    with loader_of(0, 1, new_name(), Numbered(40)) as loader:
        for _ in range(200):
            with connected(address(loader)) as stranger:
                stranger.send(rng.randbytes(rng.randint(1, 200)))
                if rng.random() < 0.3:
                    assert stranger.recv(10) == b""
        assert lists(loader) == lists(loader_of(0, 1, None, Numbered(40)))


def test_guests_that_say_nothing_stop_nobody():
    with contextlib.ExitStack() as guests, loader_of(0, 1, new_name(), Numbered(40)) as loader:
        list(loader)
        silent = [guests.enter_context(connected(address(loader))) for _ in range(300)]
        assert all(guest.recv(1) == b"" for guest in silent[:200])  # they were dropped
        assert over_ranks(1, join_as_first, 1, address(loader)) == [True]
        assert lists(loader) == lists(loader_of(0, 1, None, Numbered(40)))


def join_as_first(rank, number, where):
    """Whether the server answers a `Hello`, by a refusal."""
    with connected(where) as connection:
        send(connection, RankHello("0", {}, 0, [0]))
        return b"Refused" in connection.recv(10_000)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused():
    def connect(where):
        os.setuid(12345)
        with connected(where) as stranger:
            return repr(stranger.recv(10))

    with loader_of(0, 1, new_name(), Numbered(40)) as loader:
        where = address(loader)
        assert in_child(lambda: connect(where)) == "b''"
        assert lists(loader) == lists(loader_of(0, 1, None, Numbered(40)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_name_that_another_user_has_taken_is_an_error():
    with loader_of(0, 1, new_name(), Numbered(8)) as loader:
        loader.epochs.workers.stop()
        where = address(loader)
        assert eventually(lambda: cannot_connect(where))
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.setuid(12345)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as taker:
                taker.bind(where)
                taker.listen()
                os.write(write, b"!")
                time.sleep(60)
        os.read(read, 1)
        try:
            with pytest.raises(ValueError, match="a process of another user"):
                iter(loader)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(read)
            os.close(write)


def test_a_name_whose_owner_accepts_nobody_is_an_error():
    """Its queue is full, and a connection that blocks would wait for ever."""
    with loader_of(0, 1, new_name(), Numbered(8), timeout=1) as loader:
        loader.epochs.workers.stop()
        assert eventually(lambda: cannot_connect(address(loader)))
        with full_queue(address(loader)):
            with pytest.raises(gl.errors.WorkerStartError, match="does not answer: it is stopped, .*pass another name"):
                iter(loader)


def cannot_connect(where):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        return stranger.connect_ex(where) == errno.ECONNREFUSED
