"""Closing at an awkward moment: in a signal handler, at exit, in another thread, during garbage collection.

`nox -s soak` sets GLUONLOADER_CLOSES to 300, the number of programs that close their loader in a handler of SIGTERM,
and GLUONLOADER_EXITS to 300, the number of programs of each kind that could hang when they close a loader or exit.
"""

import gc
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from conftest import FORK, FORKSERVER, SERIAL, THREAD, children, eventually, run_program, workers
from interrupting import SignalAt

from gluonloader import DataLoader
from gluonloader.errors import LoaderClosed
from gluonloader.limits import has_gil

pytestmark = [pytest.mark.usefixtures("no_leaks"), pytest.mark.numpy_only, pytest.mark.soak]

CLOSES = int(os.environ.get("GLUONLOADER_CLOSES", "8"))
EXITS = int(os.environ.get("GLUONLOADER_EXITS", "2"))

PROGRAM = """
import signal, sys
sys.path[:0] = {path!r}
import gluonloader as gl
from gluonloader.errors import LoaderClosed
from samples import Numbered
if __name__ == "__main__":
    loader = gl.DataLoader(Numbered(64), 4, timeout=60, **{arguments!r})

    def terminate(number, frame):
        loader.close()
        if {exits!r}:
            sys.exit(7)

    signal.signal(signal.SIGTERM, terminate)
    next(iter(loader))
    print("reading", flush=True)
    try:
        while True:
            for batch in loader:
                pass
    except LoaderClosed:
        sys.exit(5)
"""


@pytest.mark.spawn
@pytest.mark.parametrize("exits", [False, True], ids=["close", "close and sys.exit"])
@pytest.mark.parametrize("closing_way", [SERIAL, THREAD, FORK, FORKSERVER], ids=str)
def test_a_program_that_closes_its_loader_on_sigterm_ends_as_it_asked(closing_way, exits, tmp_path):
    script, chance, longest = tmp_path / "program.py", random.Random(2), 0.0
    script.write_text(PROGRAM.format(path=sys.path, arguments=closing_way.arguments, exits=exits))
    for _ in range(max(1, CLOSES // 8)):
        program = subprocess.Popen(
            [sys.executable, script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert program.stdout.readline() == "reading\n", program.communicate()
        threading.Event().wait(chance.uniform(0, 0.05))  # any moment is right: the program reads all the time
        program.send_signal(signal.SIGTERM)
        sent = time.monotonic()
        _, errors = program.communicate(timeout=60)
        longest = max(longest, time.monotonic() - sent)
        assert (program.returncode, errors) == (7 if exits else 5, "")
        assert eventually(lambda leader=program.pid: not session_members(leader))
    print(f"{closing_way}: the slowest program took {longest:.3f} s to end")


def session_members(leader):
    """The live processes of the session that a process has started."""
    members = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            members.append(int(pid))
    return members


class Samples:
    def __len__(self):
        return 48

    def __getitem__(self, index):
        return np.full(500, index)


@pytest.mark.parametrize("closing_way", [SERIAL, THREAD, FORK, FORKSERVER], ids=str)
def test_close_in_a_handler_at_any_point_of_next_ends_the_workers(closing_way, alarms):
    """The interrupted call raises LoaderClosed, or returns its batch and the next call raises LoaderClosed."""
    chance = random.Random(3)
    for _ in range(max(3, CLOSES // 2)):
        loader = closing_way.loader(Samples(), 4)
        signal.signal(signal.SIGALRM, lambda *_, loader=loader: loader.close())
        iterator = iter(loader)
        next(iterator)
        with SignalAt(chance.randrange(400), signal.SIGALRM) as signalled:
            read, closed = read_to_the_end(iterator)
        assert closed == (read < 11)
        assert signalled.where or not closed
        loader.close()
        assert not (children() if closing_way is not FORKSERVER else None)


def read_to_the_end(iterator):
    """The number of batches that are left, and whether the loader was closed meanwhile."""
    count = 0
    try:
        for _ in iterator:
            count += 1
    except LoaderClosed:
        return count, True
    return count, False


@pytest.mark.parametrize("closing_way", [THREAD, FORK], ids=str)
def test_close_in_another_thread_ends_a_call_of_next(closing_way):
    release = threading.Event()

    class Stuck(Samples):
        def __getitem__(self, index):
            if index == 8:
                release.wait(60)
            return super().__getitem__(index)

    loader = closing_way.loader(Stuck(), 4)
    iterator, reads = iter(loader), []

    def read():
        try:
            for batch in iterator:
                reads.append(batch[:, 0].tolist())
        except LoaderClosed as error:
            reads.append(type(error))

    thread = threading.Thread(target=read)
    thread.start()
    assert eventually(lambda: len(reads) == 2)
    closer = threading.Thread(target=loader.close)
    closer.start()
    assert eventually(lambda: loader.epochs.workers.closed)
    release.set()
    closer.join(30)
    thread.join(30)
    assert not thread.is_alive()
    assert reads[-1] is LoaderClosed


@pytest.mark.parametrize("in_order", [True, False])
def test_an_iterator_that_another_thread_closes_just_ends(any_way, in_order):
    with any_way.loader(Samples(), 4, in_order=in_order) as loader:
        for round_ in range(20):
            iterator, ends = iter(loader), []

            def read(iterator=iterator, ends=ends):
                try:
                    ends.append([int(batch[0, 0]) for batch in iterator])
                except BaseException as error:
                    ends.append(error)

            thread = threading.Thread(target=read)
            thread.start()
            for _ in range(10 * round_):
                time.sleep(0)  # lets the other thread run; wherever it is then, closing is right
            iterator.close()
            thread.join(60)
            assert not thread.is_alive()
            assert isinstance(ends[0], list), ends[0]
            assert len(set(ends[0])) == len(ends[0])
        assert len(list(loader)) == 12


def test_a_loader_in_a_reference_cycle_is_closed_by_the_garbage_collector(any_way):
    cycle = [any_way.loader(Samples(), 4)]
    cycle.append(cycle)
    iterator = iter(cycle[0])
    next(iterator)
    del iterator, cycle
    gc.collect()
    assert eventually(lambda: not children())


def test_the_last_reference_to_a_loader_may_end_in_one_of_its_threads(no_leaks):
    held, began, goes_on, threads = [], threading.Event(), threading.Event(), set()

    class Dropping:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            if index:
                threads.add(threading.current_thread())
                began.set()
                assert goes_on.wait(30)
                held.clear()
            return index

    loader = THREAD.loader(Dropping(), 1)
    iterator, closed = iter(loader), weakref.ref(loader)
    held += [loader, iterator]
    assert next(iterator) == [0]
    del loader, iterator
    assert began.wait(30)
    goes_on.set()
    assert eventually(lambda: closed() is None and not any(thread.is_alive() for thread in threads))


@pytest.mark.spawn
def test_closing_at_exit_while_a_daemon_thread_reads_is_silent():
    code = """
import atexit, threading
import gluonloader as gl
from gluonloader.errors import LoaderClosed
loader = gl.DataLoader(list(range(100)), 1, num_workers=2, start_method="fork", timeout=60)
atexit.register(loader.close)
started = threading.Event()
def read():
    try:
        while True:
            for batch in loader:
                started.set()
    except LoaderClosed:
        pass
threading.Thread(target=read, daemon=True).start()
started.wait(60)
"""
    done = run_program(code, seconds=60)
    assert (done.returncode, done.stderr) == (0, "")


STOPS_SERVER = """
from multiprocessing import forkserver
from gluonloader import DataLoader
if __name__ == "__main__":
    for _ in range(2):
        with DataLoader(list(range(4)), 2, num_workers=1, start_method="forkserver") as loader:
            print(len(list(loader)))
        forkserver._forkserver._stop()
"""


@pytest.mark.spawn
def test_a_program_may_stop_its_fork_server():
    done = run_program(STOPS_SERVER)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n2\n", "")


def test_a_del_method_in_a_reference_cycle_may_read_on(any_way):
    found = []

    class Reader:
        def __init__(self, iterator):
            self.iterator, self.cycle = iterator, self

        def __del__(self):
            found.extend(int(batch[0, 0]) for batch in self.iterator)

    with any_way.loader(Samples(), 4) as loader:
        for read in (0, 3):
            iterator, other = iter(loader), iter(loader)
            for _ in range(read):
                next(iterator)
            assert next(other)[0, 0] == 0
            Reader(iterator)
            del iterator
            gc.collect()
            assert found == list(range(4 * read, 48, 4))
            assert [int(batch[0, 0]) for batch in other] == list(range(4, 48, 4)), "other iterators read on as well"
            found.clear()


READS_AT_EXIT = """
import builtins, sys
from gluonloader import DataLoader
from gluonloader.errors import LoaderClosed
if __name__ == "__main__":
    read, keeper = int(sys.argv[1]), sys.argv[2]

    class Reader:
        def __del__(self):
            try:
                for batch in self.iterator:
                    pass
            except LoaderClosed:
                print("closed", flush=True)

    loader = DataLoader(list(range(4000)), 2, timeout=None, **{arguments!r})
    reader = Reader()
    reader.iterator = iter(loader)
    for _ in range(read):
        next(reader.iterator)
    if keeper == "cycle":
        reader.cycle = reader
    elif keeper == "cycle with the loader":
        reader.cycle = [reader, loader]
    elif keeper == "modules":
        sys.modules["reader"] = reader
    elif keeper == "builtins":
        builtins.reader = reader
"""


@pytest.mark.spawn
@pytest.mark.parametrize("closing_way", [SERIAL, THREAD, FORK, FORKSERVER], ids=str)
def test_a_program_whose_objects_read_on_at_its_exit_ends(closing_way, tmp_path):
    script, keepers = tmp_path / "program.py", ["cycle", "modules", "builtins", "cycle with the loader"]
    script.write_text(READS_AT_EXIT.format(arguments=closing_way.arguments))
    for number in range(EXITS):
        read, keeper = 3 * (number // len(keepers) % 2), keepers[number % len(keepers)]
        done = run_script(script, str(read), keeper)
        assert done.returncode == 0, (read, keeper)
        # Without a GIL, Python 3.13 deletes objects of a program with threads never, or after the names in all modules.
        if has_gil() or sys.version_info >= (3, 14):
            assert (done.stdout, done.stderr) == ("closed\n", ""), (read, keeper)


def run_script(*command):
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=60)


BLOCKS_SIGCHLD = """
import signal, sys
from multiprocessing import forkserver
from gluonloader import DataLoader
if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    if sys.argv[1] == "before":
        forkserver.set_forkserver_preload(["__main__"])
        forkserver.ensure_running()
    with DataLoader(list(range(40)), 2, num_workers=2, start_method="forkserver", timeout=None) as loader:
        print(len(list(loader)))
"""


@pytest.mark.spawn
@pytest.mark.parametrize("started", ["before", "by the loader"])
def test_a_program_that_blocks_sigchld_while_the_fork_server_starts_closes_its_loader(started, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(BLOCKS_SIGCHLD)
    for _ in range(max(1, EXITS // 2)):
        done = run_script(script, started)
        assert (done.returncode, done.stdout, done.stderr) == (0, "20\n", "")


FORKS_WHILE_OPEN = """
import os, sys, warnings
from gluonloader import DataLoader
warnings.simplefilter("ignore", DeprecationWarning)  # a program with threads that forks
if __name__ == "__main__":
    with DataLoader(list(range(40)), 2, num_workers=2, start_method=sys.argv[1], timeout=60) as loader:
        iterator = iter(loader)
        next(iterator)
        child = os.fork()
        if child == 0:
            sys.exit(3)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(list(iterator)), loader.stats().deaths)
"""


@pytest.mark.spawn
@pytest.mark.parametrize("forking_way", [FORK, FORKSERVER], ids=str)
def test_a_forked_child_that_exits_is_silent_and_leaves_the_workers_alone(forking_way, tmp_path):
    script = tmp_path / "program.py"
    script.write_text(FORKS_WHILE_OPEN)
    for _ in range(max(1, EXITS // 2)):
        done = run_script(script, forking_way.arguments["start_method"])
        # In Python 3.13.5, the tracker of multiprocessing itself complains in a forked child.
        errors = re.sub(
            r"Exception ignored in: <function ResourceTracker(.|\n)*?\nChildProcessError.*\n", "", done.stderr
        )
        assert (done.returncode, done.stdout, errors) == (0, "3 19 0\n", "")


HOLDS_THE_GIL = """
import ctypes, os
from gluonloader import DataLoader

class Busy:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        if index == 1:
            os.write(started, b"!")
            ctypes.PyDLL(None).sleep(300)  # no thread of the worker can end it meanwhile
        return index

read, started = os.pipe()
loader = DataLoader(Busy(), 1, num_workers=1, start_method="fork")
batch = next(iter(loader))
os.read(read, 1)
loader.close()
print("closed")
"""


def test_close_ends_a_worker_that_holds_its_gil():
    assert run_program(HOLDS_THE_GIL, seconds=60).stdout == "closed\n"


FORKS_WHILE_ANOTHER_CLOSES = """
import os, threading, warnings
from gluonloader.wire.ends import close_end, open_pair
from gluonloader.memory.slabs import SlabPool
warnings.simplefilter("ignore")  # a program with threads that forks

def open_and_close():
    for _ in range(100):
        pool, ends = SlabPool(8, None), open_pair()
        for slab in [pool.take(0, 0) for _ in range(8)]:
            pool.give_back(slab)
        pool.close()
        for end in ends:
            close_end(end)

def descriptors():
    return len(os.listdir("/dev/fd"))

usual, codes = descriptors(), set()
thread = threading.Thread(target=open_and_close)
thread.start()
while thread.is_alive():
    child = os.fork()
    if child == 0:
        os._exit(descriptors() > usual)
    codes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(codes)
"""


@pytest.mark.spawn
def test_a_child_that_is_forked_while_another_thread_closes_keeps_nothing_open(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(FORKS_WHILE_ANOTHER_CLOSES)
    for _ in range(max(1, EXITS // 2)):
        done = run_script(script)
        assert (done.returncode, done.stdout, done.stderr) == (0, "{0}\n", "")


@pytest.mark.parametrize("closing_way", [THREAD, FORK], ids=str)
def test_without_garbage_collection_a_closed_loader_leaves_no_descriptor(closing_way):
    closing_way.loader(Samples(), 4).close()  # the first one may start helpers that stay
    gc.collect()
    gc.disable()
    try:
        before = len(os.listdir("/dev/fd"))
        for _ in range(3):
            with closing_way.loader(Samples(), 4) as loader:
                next(iter(loader))
        assert eventually(lambda: len(os.listdir("/dev/fd")) <= before)
    finally:
        gc.enable()


def test_a_loader_that_is_deleted_in_a_thread_of_its_own_pool():
    """The garbage collector runs in whatever thread allocates memory, so also in the one that looks after workers."""
    ended, armed = threading.Event(), threading.Event()

    def collect(frame, event, argument):
        if armed.is_set() and frame.f_code.co_name == "_join_exited_workers":
            armed.clear()
            gc.collect()
            ended.set()

    threading.setprofile(collect)  # in threads that start from now on
    try:
        loader = DataLoader(np.arange(8), 2, num_workers=1, start_method="fork", timeout=60)
        assert len(list(loader)) == 4
    finally:
        threading.setprofile(None)
    (pid,) = workers(loader)
    gone = weakref.ref(loader)
    gc.disable()
    try:
        cycle = [loader]
        cycle.append(cycle)
        del loader, cycle
        armed.set()
        os.kill(pid, signal.SIGKILL)  # wakes the thread
        assert ended.wait(60)
    finally:
        gc.enable()
    assert gone() is None
    assert eventually(lambda: not any("_handle_" in thread.name for thread in threading.enumerate()))
