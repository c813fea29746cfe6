"""An interrupted main program: Ctrl-C and other handlers that raise lose no batch, whenever the signal arrives.

`nox -s soak` sets GLUONLOADER_INTERRUPTS to 1000. Every run counts a few hundred interrupts, a quick one fewer.
"""

import contextlib
import dis
import functools
import gc
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import FORK, FORKSERVER, OVER_ALL, OVER_RAY, RAY, SERIAL, SPAWN, THREAD, Way, examples
from interrupting import Alarm, SignalAt, raise_alarm

import gluonloader
from gluonloader import DataLoader, IterableDataset, RandomSampler, get_worker_info
from gluonloader.interrupts import Uninterrupted
from gluonloader.memory import set_allocator

pytestmark = [
    pytest.mark.usefixtures("no_leaks"),
    pytest.mark.numpy_only,
    pytest.mark.soak,
    # Python itself swallows an exception of a signal handler that runs in `__del__` or in the callback of a weakref.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PACKAGE = Path(gluonloader.__file__).parent
INTERRUPTS = int(os.environ.get("GLUONLOADER_INTERRUPTS", "60"))
SLABS = 2 * 16  # two descriptors each; as many may be kept or made in other epochs. A leak would grow with INTERRUPTS
SIGNALS = [signal.SIGINT, signal.SIGALRM]
INTERRUPTED = (KeyboardInterrupt, Alarm)
CONCURRENT = Way("serial-concurrent", {"concurrency": 3})
LIMITED = Way("fork-limited", {**FORK.arguments, "memory_limit": "4MB"})
LIMITED_FORKSERVER = Way("forkserver-limited", {**FORKSERVER.arguments, "memory_limit": "4MB"})


LOCAL_WAYS = [SERIAL, CONCURRENT, THREAD, FORK, LIMITED, FORKSERVER, LIMITED_FORKSERVER, *([SPAWN] if OVER_ALL else [])]
INTERRUPTED_WAYS = [RAY] if OVER_RAY else LOCAL_WAYS


@pytest.fixture(params=INTERRUPTED_WAYS, ids=str)
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
        # A thread opens its statistics at its first long batch, and keeps them open until the loader is closed.
        others = [name for name in names if "memfd" not in name and not name.endswith("/schedstat")]
        return children, len(others), sum("memfd" in name for name in names)

    def close(self):
        for _ in range(20):  # a worker that had no core may still have to skip the batches of many cancelled epochs
            self.iterator = None
            gc.collect()
            self.start()
            self.read()
            self.check()
            self.iterator = None
            workers, descriptors, slabs = self.resources()
            if slabs <= self.before[2] + SLABS:
                break
        self.loader.close()
        assert workers == self.before[0]
        more = descriptors - self.before[1]
        assert more <= 4 if OVER_RAY else more == 0  # Ray opens sockets of its own when it is busy
        assert slabs <= self.before[2] + SLABS


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
    for number in range(examples(INTERRUPTS)):
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


@pytest.mark.slow
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
                    usual *= 1.05  # an epoch has to end before the next interrupt
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)  # pytest reports a failure without an interrupt
        usual = min(max(usual * (1.1 if reader.interrupts else 0.95), 1e-3), 0.2)
        reader.check()
        longest = max(longest, time.monotonic() - started)
    print(f"{interrupted_way}: {interrupts} interrupts, {reader.epoch} epochs, longest epoch {longest:.3f} s")
    reader.close()


class Noise:
    """Each sample is drawn from the global generators."""

    def __len__(self):
        return 8000

    def __getitem__(self, index):
        return random.random() + np.random.standard_normal()


@pytest.mark.skipif(OVER_RAY, reason="the batches are made in this process")
@pytest.mark.parametrize("normals", [0, 1])
@pytest.mark.parametrize("way", [SERIAL, CONCURRENT], ids=str)
def test_an_interrupt_leaves_the_generators_of_the_program_as_they_were(way, normals):
    random.seed(1)
    np.random.seed(1)
    np.random.standard_normal(normals)  # of a pair, NumPy stores the second one
    before = random.getstate(), repr(np.random.get_state()), None
    with way.loader(Noise(), 2) as loader:
        iterator = iter(loader)
        for signalled in at_every_point(1):
            with signalled, contextlib.suppress(Alarm):
                next(iterator)
            assert (random.getstate(), repr(np.random.get_state()), get_worker_info()) == before, signalled.where


@pytest.mark.skipif(OVER_RAY, reason="the batches are made in this process")
@pytest.mark.parametrize("way", [SERIAL, CONCURRENT], ids=str)
def test_the_worker_info_is_that_of_the_program_also_if_the_error_of_an_interrupt_is_kept(way):
    with way.loader(Noise(), 2) as loader:
        iterator, kept = iter(loader), []
        for signalled in at_every_point(1):
            with signalled:
                try:
                    next(iterator)
                except Alarm as error:
                    kept.append(error)
            assert get_worker_info() is None, signalled.where
            next(iterator)
            kept.clear()
            assert get_worker_info() is None, signalled.where


class Slow(Samples):
    """Interrupts the program while it reads sample 0, and ends the read when the program is interrupted again."""

    def __init__(self):
        self.reads, self.released = 0, threading.Event()

    def __getitem__(self, index):
        if index == 0:
            self.reads += 1
            os.kill(os.getpid(), signal.SIGALRM)
            assert self.released.wait(60)
        return super().__getitem__(index)


@pytest.mark.skipif(OVER_RAY, reason="about threads of this process")
def test_a_thread_does_not_make_a_batch_that_another_thread_is_making():
    dataset = Slow()
    with THREAD.loader(dataset, 4) as loader:
        iterator = iter(loader)
        with pytest.raises(Alarm):
            next(iterator)
        signal.signal(signal.SIGALRM, lambda number, frame: dataset.released.set())
        signal.setitimer(signal.ITIMER_REAL, 0.2)  # the other thread has this time to make the mistake
        assert first_items(iterator) == list(range(0, 48, 4))
    assert dataset.reads == 1


SIGALRM_HANDLERS = [raise_alarm, signal.default_int_handler]


def at_every_point(step, number=signal.SIGALRM, start=0):
    """Yields blocks in which a signal arrives, at every `step`-th point, until a block has no such point."""
    point, step = start, 10 * step if OVER_RAY else step
    while True:
        signalled = SignalAt(point, number)
        yield signalled
        if not signalled.where:
            return
        point += step


def first_items(iterator):
    return [int(batch[0, 0]) for batch in iterator]


@pytest.mark.slow
@pytest.mark.parametrize("call", ["flush", "load_state_dict"])
def test_an_interrupted_flush_or_load_loses_nothing(any_way, call):
    """Whether the call had its effect or not, the epoch goes on with the next batch."""
    with any_way.loader(Samples(), 4, timeout=20) as loader:
        start = loader.state_dict()
        for signalled in at_every_point(1 if any_way is SERIAL else 7):
            loader.load_state_dict(start)
            iterator = iter(loader)
            seen = [int(next(iterator)[0, 0]) for _ in range(3)]
            state = iterator.state_dict()
            with signalled, contextlib.suppress(Alarm):
                iterator.flush() if call == "flush" else iterator.load_state_dict(state)
            assert seen + first_items(iterator) == list(range(0, 48, 4)), signalled.where


@pytest.mark.slow
def test_an_interrupted_start_leaves_no_second_error(monkeypatch):
    later = []
    monkeypatch.setattr("sys.unraisablehook", later.append)
    for signalled in at_every_point(1):
        loader = SERIAL.loader(IterableDataset(lambda: iter(range(4))), 2)
        with signalled, contextlib.suppress(Alarm):
            next(iter(loader))
        assert not later, signalled.where


@pytest.mark.slow
def test_an_interrupted_start_of_an_epoch_forgets_no_loaded_position(any_way):
    with any_way.loader(Samples(), 4, timeout=20) as loader:
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        state = loader.state_dict()
        for signalled in at_every_point(1 if any_way is SERIAL else 7):
            loader.load_state_dict(state)
            iterator = None
            with signalled:
                try:
                    iterator = iter(loader)
                except Alarm:
                    if signalled.where.endswith((" next", " __init__")):
                        continue  # the epoch had started
            assert first_items(iterator or loader) == list(range(12, 48, 4)), signalled.where


@pytest.mark.slow
@pytest.mark.parametrize("way", [THREAD, FORK, FORKSERVER], ids=str)
def test_an_interrupted_constructor_leaves_nothing(way):
    for signalled in at_every_point(7):
        with contextlib.suppress(Alarm), signalled:
            way.loader(Samples(), 4)


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_output_function_gets_the_batch_as_it_was(any_way, number):
    def add(array):
        array = array if array.flags.writeable else array.copy()
        array += 1000
        return array

    with any_way.loader(Samples(), 4, output=add, timeout=20) as loader:
        for signalled in at_every_point(1 if any_way is SERIAL else 11, number):
            iterator = iter(loader)
            items = [int(next(iterator)[0, 0])]
            with signalled, contextlib.suppress(*INTERRUPTED):
                items.append(int(next(iterator)[0, 0]))
            items += first_items(iterator)
            expected = list(range(1000, 1048, 4))
            assert items in (expected, [item for item in expected if item != 1004]), signalled.where


@pytest.mark.slow
@pytest.mark.parametrize("way", [SERIAL, THREAD], ids=str)
def test_a_position_saved_by_a_handler_disturbs_no_iterable_dataset(way):
    states = []

    def rows():
        return map(Samples().__getitem__, range(26))

    with way.loader(IterableDataset(rows), 4, timeout=20) as loader:
        signal.signal(signal.SIGALRM, lambda *_: states.append(loader.state_dict()))
        for signalled in at_every_point(29):
            with signalled:
                batches = [batch[:, 0].tolist() for batch in loader]
            assert sorted(sum(batches, [])) == list(range(26)), signalled.where
    assert states


@pytest.mark.slow
@pytest.mark.local
def test_an_interrupted_close_can_be_repeated(any_way):
    for signalled in at_every_point(23):
        loader = any_way.loader(Samples(), 4)
        next(iter(loader))
        with signalled, contextlib.suppress(Alarm):
            loader.close()
        loader.close()


def test_a_position_loaded_after_an_interrupted_start_keeps_its_order():
    with SERIAL.loader(Samples(), 4, True) as loader, SERIAL.loader(Samples(), 4, True) as other:
        for _ in range(3):
            list(other)
        state = other.state_dict()
        expected = first_items(other)
        for signalled in at_every_point(3):
            with signalled, contextlib.suppress(Alarm):
                iter(loader)
            loader.load_state_dict(state)
            assert first_items(loader) == expected, signalled.where


def test_an_interrupted_start_counts_no_epoch_of_the_sampler():
    sampler = RandomSampler(len(Samples()), seed=1)
    with SERIAL.loader(Samples(), 4, sampler=sampler) as loader:
        for signalled in at_every_point(3):
            with signalled, contextlib.suppress(Alarm):
                iter(loader)
            iterator = iter(loader)
            next(iterator)
            assert iterator.last.indices == sampler.order(iterator.epoch)[0:4].tolist(), signalled.where


@pytest.mark.slow
def test_a_batch_that_an_interrupt_kept_back_does_not_survive_a_load_or_close():
    with SERIAL.loader(Samples(), 4) as loader:
        for signalled in at_every_point(1):
            iterator = iter(loader)
            start = iterator.state_dict()
            for _ in range(11):
                next(iterator)
            with signalled, contextlib.suppress(Alarm):
                next(iterator)
            if iterator.ended:
                continue
            iterator.load_state_dict(start)
            assert first_items(iterator) == list(range(0, 48, 4)), signalled.where


@pytest.mark.skipif(sys.version_info < (3, 13), reason="Python 3.12 has more such jumps, and older ones none")
def test_no_loop_jumps_back_outside_of_its_try():
    """NOTE [loops and try] in gluonloader/interrupts.py."""
    outside = [
        f"{file.relative_to(PACKAGE)}: {code.co_qualname}, line {jump.positions.lineno}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for code in codes_in(compile(file.read_text(), str(file), "exec"))
        for jump in jumps_out_of_try(code)
    ]
    assert not outside, f"put the loop into a function of its own: {outside}"


def codes_in(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, type(code)):
            yield from codes_in(constant)


def jumps_out_of_try(code):
    """Jumps back into a `try` or `with` that they do not belong to; those of comprehensions restore only variables."""
    entries = dis.Bytecode(code).exception_entries
    if not entries:
        return
    names = {instruction.offset: instruction.opname for instruction in dis.get_instructions(code)}

    def handlers(offset):
        targets = {entry.target for entry in entries if entry.start <= offset < entry.end}
        return {target for target in targets if names[target] == "PUSH_EXC_INFO"}

    for jump in dis.get_instructions(code):
        if jump.opname == "JUMP_BACKWARD" and handlers(jump.argval) - handlers(jump.offset):
            yield jump


def test_delayed_handlers_all_run_and_are_restored():
    calls = []
    signal.signal(signal.SIGUSR1, lambda *_: calls.append("delayed"))
    try:
        for signalled in at_every_point(1):
            calls.clear()
            entered = False
            with signalled, contextlib.suppress(Alarm):
                with Uninterrupted():
                    entered = True
                    signal.raise_signal(signal.SIGUSR1)
                    assert not calls
            assert signal.getsignal(signal.SIGALRM) is raise_alarm, signalled.where
            assert calls == ["delayed"] * entered, signalled.where
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


@pytest.mark.slow
def test_a_handler_that_reads_the_interrupted_loader_gets_an_error_and_no_batch_is_lost(any_way):
    errors = []
    with any_way.loader(Samples(), 4, timeout=20) as loader:

        def read(number, frame):
            try:
                next(iterator)
            except RuntimeError as error:
                errors.append(str(error))  # the error itself would keep batches alive

        for signalled in at_every_point(37):
            iterator = iter(loader)
            signal.signal(signal.SIGALRM, read)
            with signalled:
                items = first_items(iterator)
            missing = set(range(0, 48, 4)) - set(items)
            assert len(missing) <= 1, signalled.where  # 1: the handler has read it, between two calls of `next`
            assert len(items) == len(set(items))
    assert "a signal handler called next()" in errors[0]
