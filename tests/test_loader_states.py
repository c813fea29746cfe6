"""A loader's state in unusual sequences: auto_reload, old iterators, late batches, closing, other threads."""

import errno
import json
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD, children, eventually, in_child, run_program
from rank_models import Restarting

from gluonloader import DataLoader, IterableDataset, SimpleDataset, WeightedSampler, get_worker_info
from gluonloader.errors import BatchTimeout, LoaderClosed, WorkerStartError
from gluonloader.state import add_checksum

WAYS = [SERIAL, THREAD, FORK]


def lists(loader):
    return [batch.tolist() for batch in loader]


def test_an_epoch_that_auto_reload_started_starts_again_in_a_forked_child():
    loader = DataLoader(range(6), 2, True, auto_reload=True, seed=1)
    expected = lists(DataLoader(range(6), 2, True, seed=1))
    assert json.loads(in_child(lambda: json.dumps(lists(loader)))) == expected == lists(loader)


def test_a_forked_child_counts_its_own_batches(any_way):
    def in_the_child():
        with loader:
            return str((lists(loader), loader.stats().batches))

    with any_way.loader(range(6), 2) as loader:
        expected = lists(loader)
        assert in_child(in_the_child) == str((expected, 3))
        assert lists(loader) == expected
        assert loader.stats().batches == 6


def test_a_position_restores_the_samples_that_were_carried_over(any_way):
    def make():
        return any_way.loader(IterableDataset(lambda: iter(range(8)), num_shards=1), 3, last_batch="rollover")

    with make() as loader:
        list(loader)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        del iterator
        expected = lists(loader)
    assert [len(batch) for batch in expected] == [3, 3, 3]
    for carries in (False, True):
        with make() as loader:
            if carries:
                list(loader)
            with pytest.warns(RuntimeWarning, match="resuming"):
                loader.load_state_dict(state)
            next(iter(loader))
            assert lists(loader) == expected


def test_an_old_iterator_carries_nothing_over_into_a_loaded_position():
    def make():
        return DataLoader(range(8), 3, True, last_batch="rollover", seed=1)

    loader = make()
    lists(loader)
    lists(loader)
    state = loader.state_dict()
    expected = lists(loader)
    loader = make()
    old = iter(loader)
    next(old)
    loader.load_state_dict(state)
    list(old)
    assert lists(loader) == expected


@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
@pytest.mark.parametrize("dataset", [range(8), IterableDataset(lambda: iter(range(8)), num_shards=1)], ids=type)
def test_iterators_that_overlap_warn_of_samples_that_only_one_can_carry_over(way, dataset):
    with way.loader(dataset, 3, last_batch="rollover") as loader:
        next(first := iter(loader))
        assert len(lists(loader)) == 2  # without a warning, since the first iterator may be dropped
        with pytest.warns(RuntimeWarning, match="the other has lost 2 samples"):
            assert len(list(first)) == 1
        assert [len(batch) for batch in lists(iter(loader))] == [3, 3, 3]


class Slow:
    def __init__(self, slow):
        self.slow, self.go_on = slow, threading.Event()

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == self.slow:
            self.go_on.wait(30)
        return index


def read_despite_timeouts(go_on, dataset, **arguments):
    """The samples, and the number of timeouts; the first timeout sets the event for which the dataset waits."""
    seen, late = [], 0
    with THREAD.loader(dataset, 1, num_workers=1, timeout=0.2, prefetch=2, **arguments) as loader:
        iterator = iter(loader)
        while True:
            try:
                seen.append(int(next(iterator)[0]))
            except BatchTimeout:
                late += 1
                go_on.set()
            except StopIteration:
                break
    assert late >= 1
    return seen, late


def test_a_batch_that_completes_after_its_timeout_is_not_taken_for_another():
    dataset = Slow(2)
    seen, late = read_despite_timeouts(dataset.go_on, dataset, in_order=False)
    assert len(seen) + late == 12
    assert len(set(seen)) == len(seen)


def test_a_stream_that_a_thread_reads_goes_on_after_a_timeout():
    go_on = threading.Event()

    def numbers():
        yield 0
        go_on.wait(30)
        yield from range(1, 6)

    seen, _ = read_despite_timeouts(go_on, IterableDataset(numbers))
    assert seen == [0, 1, 2, 3, 4, 5]


class Level:
    def __init__(self):
        self.level = 0

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return self.level * 100 + index

    def state_dict(self):
        return {"level": np.full(2, self.level, "f4")}

    def load_state_dict(self, state):
        assert state["level"].dtype == np.float32
        self.level = int(state["level"][0])


def test_the_datasets_state_is_restored_before_workers_read_it(any_way):
    dataset = Level()
    dataset.level = 3
    with any_way.loader(dataset, 2) as loader:
        next(iter(loader))
        state = json.loads(json.dumps(loader.state_dict()))
    with any_way.loader(Level(), 2) as loader:
        loader.load_state_dict(state)
        assert lists(loader) == [[302, 303], [304, 305]]
    with any_way.loader(Level(), 2) as loader:
        iterator = iter(loader)
        assert next(iterator).tolist() == [0, 1]
        iterator.load_state_dict(state)
        assert lists(iterator) == [[302, 303], [304, 305]]
    with any_way.loader(range(6), 2) as loader, pytest.raises(ValueError, match="state: dataset: "):
        loader.load_state_dict(state)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_an_iterator_of_a_closed_loader_raises_loader_closed(way):
    loader = way.loader(range(40), 2, prefetch=2)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(LoaderClosed, match="closed before this batch was delivered"):
        list(iterator)


def test_a_batch_that_was_not_delivered_before_closing_is_in_the_position():
    with FORK.loader(range(6), 2, num_workers=1) as loader:
        other, iterator = iter(loader), iter(loader)
        next(iterator), next(iterator)
        other.flush()
        next(other)  # the worker makes it after the last batch of the iterator, which has arrived
    with pytest.raises(LoaderClosed):
        next(iterator)
    state = loader.state_dict()
    assert (state["epoch"], state["batch"]) == (1, 2)
    with FORK.loader(range(6), 2) as loader:
        loader.load_state_dict(state)
        assert lists(loader) == [[4, 5]]


CLOSES_IN_A_HANDLER = """
import signal
from gluonloader import DataLoader
from gluonloader.errors import LoaderClosed

class Index(int):
    def __reduce__(self):  # called while the loader gives the batch to a worker
        if self == 30:
            signal.raise_signal(signal.SIGUSR1)
        return int, (int(self),)

signal.signal(signal.SIGUSR1, lambda *_: loader.close())
loader = DataLoader(range(40), batch_sampler=[[Index(index)] for index in range(40)], num_workers=2)
try:
    while True:  # the handler returns at once, and another thread closes the loader soon after
        for _ in loader:
            pass
except LoaderClosed:
    print("closed")
"""


@pytest.mark.spawn
def test_a_signal_handler_may_close_the_loader_while_it_gives_out_a_batch():
    process = subprocess.Popen([sys.executable, "-c", CLOSES_IN_A_HANDLER], stdout=subprocess.PIPE, text=True)
    try:
        assert process.communicate(timeout=60)[0] == "closed\n"
    finally:
        process.kill()


class Endless:
    """Reading sample 0 waits for a file; any read creates another file first."""

    def __init__(self, folder):
        self.asked, self.go_on = folder / "asked", folder / "go on"

    def __len__(self):
        return 12

    def __getitem__(self, index):
        self.asked.touch()
        while index == 0 and not self.go_on.exists():
            time.sleep(0.01)
        return index


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
def test_closing_an_iterator_wakes_a_thread_that_waits_in_it(way, tmp_path):
    dataset, got = Endless(tmp_path), []
    with way.loader(dataset, 1, timeout=None) as loader:
        iterator = iter(loader)
        thread = threading.Thread(target=lambda: got.append(list(iterator)))
        thread.start()
        assert eventually(dataset.asked.exists, 30)
        iterator.close()
        thread.join(30)
        waits = thread.is_alive()
        dataset.go_on.touch()
        thread.join(30)
        assert not waits
        assert got == [[]]
        assert len(list(loader)) == 12


@pytest.mark.parametrize("call", [lambda it: it.flush(), lambda it: it.load_state_dict(it.state_dict()), next])
def test_an_iterator_of_the_parent_raises_in_a_forked_child(call):
    with FORK.loader(range(12), 2) as loader:
        iterator = iter(loader)
        assert "belongs to the parent" in in_child(lambda: str(call(iterator)))
        assert len(list(iterator)) == 6


AT_EXIT = """
import sys, threading
from gluonloader import DataLoader

def read():
    for _ in range(1_000_000):
        for number, batch in enumerate(loader):
            if number == 20:
                running.set()

if __name__ == "__main__":
    running = threading.Event()
    loader = DataLoader(range(1000), 2, **eval(sys.argv[1]))
    threading.Thread(target=read, daemon=True).start()
    running.wait()
"""


@pytest.mark.spawn
@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_a_daemon_thread_that_iterates_when_the_program_ends_prints_nothing(way):
    for _ in range(5):
        run = run_program(AT_EXIT, repr(way.arguments))
        assert (run.returncode, run.stderr) == (0, "")


def remember(info):
    global start
    start = info


class Starts:
    """Each sample is what its worker knows: its seed, its payload, and the epoch in which it started."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return np.array([start.seed, get_worker_info().payload, start.epoch], np.uint64)


def payload(info, worker):
    return info.seed


def test_workers_know_the_seed_and_the_epoch_of_a_position(any_way):
    """A loader without a seed takes the seed of the position that it loads, and so do its workers."""
    kwargs = {"seed": None, "worker_init_fn": remember, "worker_payload": payload}
    kwargs["num_workers"] = int(any_way.parallel)  # several workers would have different seeds
    with any_way.loader(Starts(), 2, True, **kwargs) as loader:
        loader.set_epoch(3)
        first, state = next(iter(loader)).tolist(), loader.state_dict()
    with any_way.loader(Starts(), 2, True, **kwargs) as loader:
        loader.load_state_dict(state)  # before the workers start
        assert lists(loader) == [first]
        assert [row[2] for row in first] == [3, 3]
    with any_way.loader(Starts(), 2, True, **kwargs) as loader:
        assert next(iter(loader)).tolist()[0][0] != first[0][0]
        loader.load_state_dict(state)
        assert [row[:2] for batch in lists(loader) for row in batch] == [first[0][:2]] * 2
        assert [row[:2] for batch in lists(loader) for row in batch] == [first[0][:2]] * 4


def test_a_state_that_the_dataset_refuses_changes_nothing(any_way):
    """The sampler has its own weights again, too."""

    class Picky(Level):
        def load_state_dict(self, state):
            raise OSError("no such level")

    sampler = WeightedSampler(np.ones(6), seed=1)
    with any_way.loader(Picky(), 2, sampler=sampler) as loader:
        iterator = iter(loader)
        next(iterator)
        sampler.weights = np.arange(1, 7)
        other = {key: value for key, value in loader.state_dict().items() if key not in ("check", "version")}
        sampler.weights = np.arange(6, 0, -1)
        there = loader.state_dict()
        assert other["sampler"] != there["sampler"]
        with pytest.raises(OSError, match="no such level"):
            loader.load_state_dict(add_checksum({**other, "batch": 2, "offset": 4, "dataset": {"level": 2}}))
        assert loader.state_dict() == there
        assert len(list(iterator)) == 2


def test_a_position_replaces_carried_indices_that_json_cannot_hold():
    keys = {("a", 1): 1, ("b", 2): 2, ("c", 3): 3}
    with SERIAL.loader(keys, 2, sampler=list(keys), last_batch="rollover") as loader:
        state = loader.state_dict()
        assert lists(loader) == [[1, 2]]  # and one is carried over
        with pytest.raises(ValueError, match="batch='x'"):
            loader.load_state_dict(
                add_checksum({name: state[name] for name in state if name not in ("version", "check")} | {"batch": "x"})
            )
        assert lists(loader) == [[3, 1], [2, 3]]
        assert lists(loader) == [[1, 2]]
        loader.load_state_dict(state)
        assert lists(loader) == [[1, 2]]


def test_a_copy_starts_no_workers_before_it_is_used(no_leaks):
    with FORK.loader(range(6), 2, auto_reload=True) as loader:
        before = set(children())
        with pickle.loads(pickle.dumps(loader)) as copy:
            assert len(copy) == 3
            assert set(children()) == before
            assert len(list(copy)) == 3
        pickle.loads(pickle.dumps(loader)).close()


def test_an_exit_in_worker_init_fn_is_an_error_at_once():
    def leave(info):
        sys.exit(3)

    with pytest.raises(WorkerStartError, match="SystemExit"):
        next(iter(THREAD.loader(range(4), 2, worker_init_fn=leave)))


class Continuing(Restarting):
    """A sampler that continues where it stopped."""

    def __init__(self):
        super().__init__(range(6))
        self.drawn = 0

    def __iter__(self):
        for _ in self.order:
            self.drawn += 1
            yield self.drawn - 1

    def state_dict(self):
        return {"drawn": self.drawn}

    def load_state_dict(self, state):
        self.drawn = state["drawn"]


class ContinuingEpochs(Continuing):
    def set_epoch(self, epoch):
        pass


@pytest.mark.parametrize("kind", [Continuing, ContinuingEpochs])
def test_set_epoch_loses_nothing_that_auto_reload_has_drawn(any_way, kind):
    with any_way.loader(range(20), 2, sampler=kind(), auto_reload=True) as loader:
        assert lists(loader) == [[0, 1], [2, 3], [4, 5]]
        loader.set_epoch(5)
        assert loader.state_dict()["epoch"] == 5
        assert lists(loader) == [[6, 7], [8, 9], [10, 11]]
        assert lists(loader) == [[12, 13], [14, 15], [16, 17]]


class FailsOnce(Restarting):
    """A sampler that fails to start the next pass if `fails` is set."""

    fails = False

    def __iter__(self):
        if self.fails:
            self.fails = False
            raise RuntimeError("not yet")
        return super().__iter__()


def test_a_sampler_that_fails_to_start_loses_no_batch_of_the_epoch_before():
    sampler = FailsOnce(range(4))
    loader = DataLoader(range(4), 2, sampler=sampler, auto_reload=True)
    iterator = iter(loader)
    sampler.fails = True  # when auto_reload starts the next epoch
    assert lists(iterator) == lists(loader) == [[0, 1], [2, 3]]
    assert not sampler.fails


def test_a_sampler_that_fails_to_start_does_not_lose_a_loaded_position():
    sampler = FailsOnce(range(6))
    loader = DataLoader(range(6), 2, sampler=sampler, seed=0)
    next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    sampler.fails = True
    with pytest.raises(RuntimeError, match="not yet"):
        iter(loader)
    assert lists(loader) == [[2, 3], [4, 5]]


def fail_to_start(index):
    """Raises what a loader inside the dataset would raise."""
    if index == 0:
        raise WorkerStartError("workers of another loader")
    return index


def test_a_start_error_of_a_loader_in_the_dataset_does_not_close_this_one(any_way):
    with any_way.loader(SimpleDataset(range(4)).transform(fail_to_start), 2) as loader:
        iterator = iter(loader)
        with pytest.raises(WorkerStartError, match="of another loader"):
            next(iterator)
        assert lists(iterator) == [[2, 3]]


def test_workers_that_could_not_start_again_start_at_the_next_try(monkeypatch):
    with FORK.loader(range(6), 2) as loader:
        loader.epochs.workers.stop()  # as a load does if workers have to start with another dataset
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socketpair", refuse)
            with pytest.raises(OSError, match="too many"):
                iter(loader)
        assert lists(loader) == [[0, 1], [2, 3], [4, 5]]


def refuse():
    raise OSError(errno.EMFILE, "too many")


def test_another_thread_may_ask_for_the_position():
    """Every state that it gets is one that the loader was in."""

    class Counted:
        at = 0

        def __len__(self):
            return 4000

        def __iter__(self):
            while self.at < 4000:
                self.at += 1
                yield self.at - 1

        def state_dict(self):
            return {"at": self.at}

        def load_state_dict(self, state):
            self.at = state["at"]

    interval, states, over = sys.getswitchinterval(), [], threading.Event()
    with THREAD.loader(range(4000), 2, sampler=Counted()) as loader:
        iterator = iter(loader)

        def ask():
            while not over.is_set():
                states.append(loader.state_dict())

        thread = threading.Thread(target=ask)
        sys.setswitchinterval(1e-6)
        try:
            thread.start()
            count = sum(1 for _ in iterator)
        finally:
            over.set()
            thread.join()
            sys.setswitchinterval(interval)
    assert count == 2000
    wrong = [s for s in states if s["epoch"] == 0 and s["snapshot"]["at"] != 2 * s["batch"]]
    assert not wrong, wrong[:3]


def test_leftovers_hold_no_shared_memory_that_batches_need():
    def rows():
        for _ in range(8):
            yield np.zeros(16_000, np.float32)

    with DataLoader(IterableDataset(rows, num_shards=2), 3, num_workers=1, memory_limit="2MB", timeout=60) as loader:
        assert sorted(len(batch) for batch in loader) == [2, 3, 3]


@pytest.mark.slow
def test_a_signal_handler_may_ask_for_the_position(any_way):
    """The handler may run in the middle of `next`; a loader must be able to resume from every state that it gets."""
    size, states = 3000, []

    def save(*_):
        states.append((len(seen), loader.state_dict()))

    with any_way.loader(range(size), 1, True, seed=1) as loader:
        order = lists(loader)
        before = signal.signal(signal.SIGALRM, save)
        try:
            seen, iterator = [], iter(loader)
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
            for batch in iterator:
                seen.append(batch.tolist())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    assert states
    with SERIAL.loader(range(size), 1, True, seed=1) as loader:
        for delivered, state in states[:: max(1, len(states) // 20)]:
            if state["epoch"] != 1:
                continue  # before the epoch, or after it
            loader.load_state_dict(state)
            assert state["batch"] - delivered in (0, 1)  # 1: the handler ran after `next`, but before the loop body
            assert lists(loader) == seen[state["batch"] :]
    assert sorted(order) == sorted(seen)


def test_an_iterator_from_before_a_load_raises_loader_closed(any_way):
    with any_way.loader(range(40), 2, True, seed=None) as other:
        next(iter(other))
        state = other.state_dict()
    with any_way.loader(range(40), 2, True, seed=None) as loader:
        old = iter(loader)
        next(old)
        loader.load_state_dict(state)
        with pytest.raises(
            LoaderClosed,
            match=r"a state was loaded after this iterator started.*make a new iterator with iter\(loader\)",
        ):
            list(old)
        assert len(lists(loader)) == 19


@pytest.mark.filterwarnings("error", "ignore:.* ranks divide its order")
@pytest.mark.parametrize("arguments", [{}, {"ranks": (0, 2)}], ids=str)
def test_a_load_warns_if_the_sampler_cannot_be_moved_to_the_epoch(arguments):
    loader = DataLoader(range(12), 2, sampler=Restarting(range(12)), seed=0, **arguments)
    batches = lists(loader)
    text = "a Restarting has no epoch and no state, so it restarts from the beginning"
    with pytest.warns(RuntimeWarning, match=text) as caught:
        loader.load_state_dict(loader.state_dict())
    assert caught[0].filename == __file__
    assert lists(loader) == batches


def test_several_threads_may_iterate_a_loader_without_workers():
    results, size = [], 2000
    rows = np.zeros((size, 30_000), np.uint8)  # copied outside the GIL
    rows[:, :2] = np.arange(size, dtype="<u2").view(np.uint8).reshape(size, 2)
    with SERIAL.loader(rows, 1) as loader:
        threads = [
            threading.Thread(target=lambda: results.append([int(batch[0, :2].view("<u2")[0]) for batch in loader]))
            for _ in range(4)
        ]
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        finally:
            sys.setswitchinterval(before)
    assert results == 4 * [list(range(size))]
