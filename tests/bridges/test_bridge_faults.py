"""Bridges: errors of the source, sources that are stuck, and how a bridge ends."""

import gc
import os
import signal
import subprocess
import sys
import threading
import traceback

import numpy as np
import pytest
from bridge_sources import Counted, Resetting, Spoiled, no_threads_are_left, read_all, threads  # noqa: F401, the fixture is used by its presence
from conftest import eventually
from interrupting import Alarm, SignalAt

from gluonloader import bridge
from gluonloader.errors import BatchTimeout, LoaderClosed

resuming = pytest.mark.filterwarnings("ignore:resuming:RuntimeWarning")


# -- errors ------------------------------------------------------------------------------------------------------------


def test_an_error_replaces_its_batch_and_iteration_continues():
    with bridge(Spoiled()) as batches:
        for _ in range(2):
            assert read_all(iter(batches)) == [1, 2, "cannot read 3", 4, 5, "cannot read 6", 7, 8]
        assert batches.stats().batches == 12


def test_an_error_ends_a_generator():
    def breaks():
        yield 1
        raise KeyError("x")

    with bridge(breaks) as batches:
        for epoch in range(2):
            iterator = iter(batches)
            assert next(iterator) == 1
            with pytest.raises(KeyError) as raised:
                next(iterator)
            assert raised.value.__notes__ == [
                f"gluonloader: in the source of a bridge, batch 1 of epoch {epoch}"
            ] or sys.version_info < (3, 11)
            assert "in breaks" in "".join(traceback.format_tb(raised.value.__traceback__))
            assert list(iterator) == []


@resuming
def test_after_an_error_the_position_is_after_the_last_batch():
    with bridge(Spoiled()) as batches:
        iterator = iter(batches)
        next(iterator), next(iterator)
        with pytest.raises(OSError):
            next(iterator)
        states = [batches.state_dict()]
        assert next(iterator) == 4
        states.append(batches.state_dict())
    rests = []
    for state in states:
        with bridge(Spoiled()) as batches:
            batches.load_state_dict(state)
            rests.append(read_all(iter(batches)))
    # An error before the position is raised again, since it cannot be known whether the source skipped a batch there.
    assert rests == [["cannot read 3", 4, 5, "cannot read 6", 7, 8], ["cannot read 3", 5, "cannot read 6", 7, 8]]


@resuming
def test_a_batch_for_which_output_raises_is_skipped():
    def odd(array):
        if array[0] == 1:
            raise ValueError("no ones")
        return array.tolist()

    source = [np.array([i]) for i in range(4)]
    with bridge(source, output=odd) as batches:
        iterator = iter(batches)
        assert next(iterator) == [0]
        with pytest.raises(ValueError, match="no ones"):
            next(iterator)
        assert next(iterator) == [2]
        state = batches.state_dict()
    with bridge(source, output=odd) as batches:
        batches.load_state_dict(state)
        assert list(batches) == [[3]]


def stops(*_):
    raise StopIteration


@pytest.mark.parametrize("where", ["source", "output"])
def test_a_stray_stop_iteration_is_an_error(where):
    batches = bridge(stops) if where == "source" else bridge([np.ones(1)], output=stops)
    with pytest.raises(RuntimeError, match="StopIteration") as raised:
        list(batches)
    assert isinstance(raised.value.__cause__, StopIteration)


def test_an_epoch_that_cannot_start_is_tried_again():
    tries = []

    def opens(epoch):
        tries.append(epoch)
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return [epoch]

    with bridge(opens) as batches:
        for _ in range(2):
            iterator = iter(batches)
            with pytest.raises(ConnectionError):
                next(iterator)
            assert list(iterator) == []
        assert list(batches) == [0]
        assert list(batches) == [1]


def test_a_function_that_returns_no_iterable_is_an_error():
    with bridge(lambda: 5) as batches, pytest.raises(TypeError, match="not iterable"):
        next(iter(batches))


class Blocking:
    """Yields a batch, then waits until `go` is set."""

    def __init__(self):
        self.waits, self.go = threading.Event(), threading.Event()

    def __iter__(self):
        yield 0
        self.waits.set()
        self.go.wait()
        yield 1


@pytest.fixture
def blocking():
    source = Blocking()
    yield source
    source.go.set()


def test_a_late_batch_shows_where_the_source_is_stuck_and_can_be_waited_for_again(blocking):
    def patient(iterator):
        while True:
            try:
                return next(iterator)
            except BatchTimeout:
                pass

    with bridge(blocking, timeout=0.1) as batches:
        iterator = iter(batches)
        assert patient(iterator) == 0
        assert blocking.waits.wait(30)
        with pytest.raises(BatchTimeout, match=r"(?s)batch 1 of epoch 0 .*timeout=0\.1.*self\.go\.wait\(\)"):
            next(iterator)
        blocking.go.set()
        assert patient(iterator) == 1


def test_close_returns_while_the_source_is_stuck(blocking):
    batches = bridge(blocking)
    iterator = iter(batches)
    next(iterator)
    assert blocking.waits.wait(30)
    batches.close()
    batches.close()
    with pytest.raises(LoaderClosed):
        next(iterator)


def test_close_wakes_waiting_threads(blocking):
    batches = bridge(blocking, timeout=None)
    iterator = iter(batches)
    next(iterator)
    raised = []

    def wait():
        try:
            next(iterator)
        except LoaderClosed as error:
            raised.append(error)

    waiters = [threading.Thread(target=wait) for _ in range(2)]
    for waiter in waiters:
        waiter.start()
    assert blocking.waits.wait(30)
    batches.close()
    for waiter in waiters:
        waiter.join(30)
    assert len(raised) == 2


@resuming
def test_timeout_applies_to_each_skipped_batch():
    """Reading all skipped batches takes longer than `timeout`, but no single batch does."""

    def slow():
        for number in range(60):
            threading.Event().wait(pause)
            yield number

    pause = 0
    with bridge(slow) as batches:
        iterator = iter(batches)
        for _ in range(58):
            next(iterator)
        state = batches.state_dict()
    pause = 0.05
    with bridge(slow, timeout=2) as batches:
        batches.load_state_dict(state)
        assert list(batches) == [58, 59]


# -- ends --------------------------------------------------------------------------------------------------------------


def test_after_a_break_the_next_epoch_starts_with_its_first_batch():
    closed = []

    def source(epoch):
        try:
            for number in range(100):
                yield epoch, number
        finally:
            closed.append(epoch)

    with bridge(source, prefetch=5) as batches:
        for epoch in range(4):
            for batch in batches:
                assert batch[0] == epoch
                if batch[1] == 2:
                    break
        assert eventually(lambda: closed == [0, 1, 2, 3])
        assert len(list(batches)) == 100


def test_an_older_iterator_raises_loader_closed():
    with bridge(Resetting()) as batches:
        older = iter(batches)
        assert next(older) == 0
        newer = iter(batches)
        assert next(newer) == 0
        with pytest.raises(LoaderClosed, match="a newer iteration of this bridge has started"):
            next(older)
        older.close()
        assert list(newer) == [1, 2, 3, 4]
        assert list(older) == []
        assert batches.state_dict()["epoch"] == 2


def test_an_epoch_that_was_left_reads_nothing_after_the_next_one_has_started():
    class Slow(Resetting):
        """An iterator with `reset` that waits in its second batch."""

        waits, go = threading.Event(), threading.Event()

        def __next__(self):
            if self.at == 1 and not self.resets:
                self.waits.set()
                self.go.wait(30)
            return super().__next__()

    with bridge(Slow(9), prefetch=4) as batches:
        older = iter(batches)
        assert next(older) == 0
        assert Slow.waits.wait(30)
        newer = iter(batches)
        Slow.go.set()
        assert list(newer) == list(range(9))
        with pytest.raises(LoaderClosed, match="a newer iteration"):
            next(older)


def test_an_exception_of_a_signal_handler_loses_no_batch_without_an_error(alarms):
    point, where = 0, "the start"
    while where:
        signalled, found, lost = SignalAt(point, signal.SIGALRM), [], []
        with bridge(range(6)) as batches:
            iterator = iter(batches)
            try:
                with signalled:
                    found.append(next(iterator))
            except Alarm:
                pass
            for _ in range(2):
                try:
                    found += iterator
                except RuntimeError as error:
                    lost.append(error)
        where, point = signalled.where, point + 1
        assert found == list(range(len(lost), 6)), where


@pytest.mark.parametrize("used", ["not at all", "iterated", "stopped early", "started", "after an error"])
def test_a_hundred_deleted_bridges_leave_no_thread(used):
    for _ in range(100):
        batches = bridge(Spoiled() if used == "after an error" else Counted(20), prefetch=3)
        if used == "iterated":
            assert len(list(batches)) == 20
        elif used == "stopped early":
            for _ in batches:
                break
        elif used == "started":
            iterator = iter(batches)
            del iterator
        elif used == "after an error":
            with pytest.raises(OSError):
                list(batches)
        del batches
    assert eventually(lambda: not threads())


def test_an_iteration_keeps_its_bridge_open():
    iterator = iter(bridge(Counted(10)))
    gc.collect()
    assert list(iterator) == list(range(10))
    assert eventually(lambda: not threads())


def test_a_closed_bridge_cannot_be_iterated():
    with bridge(Counted()) as batches:
        iterator = iter(batches)
    with pytest.raises(LoaderClosed, match="the `with` block of the loader has ended"):
        list(iterator)  # a batch that the thread has read before may still come
    with pytest.raises(LoaderClosed, match="is closed; make a new one"):
        iter(batches)


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


@pytest.mark.spawn
@pytest.mark.parametrize("source", ["itertools.count()", "stuck"])
def test_the_program_ends_while_a_bridge_is_iterated(source):
    done = run(
        "import itertools, threading\n"
        "from gluonloader import bridge\n"
        "def stuck():\n"
        "    yield 0\n"
        "    threading.Event().wait()\n"
        f"batches = bridge({source})\n"
        "iterator = iter(batches)\n"
        "print(next(iterator))\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_a_forked_child_must_make_a_new_bridge():
    with bridge(Counted(5)) as batches:
        iterator = iter(batches)
        next(iterator)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for use in (lambda: next(iterator), lambda: iter(batches)):
                    try:
                        use()
                    except RuntimeError as error:
                        status = 0 if "forked child" in str(error) else 2
                    else:
                        status = 3
                        break
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert list(iterator) == [1, 2, 3, 4]
