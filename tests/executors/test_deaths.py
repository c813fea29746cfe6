"""Deaths of workers that nobody reports, and deaths and hangs of workers that have not made a batch yet."""

from __future__ import annotations

import os
import re
import resource
import signal
import sys
import threading

import pytest
from conftest import FORK, PROCESSES, eventually, in_child, run_program, workers
from samples import Numbered

import gluonloader as gl

pytestmark = [pytest.mark.numpy_only, pytest.mark.soak]

KILLS = min(100, int(os.environ.get("GLUONLOADER_KILLS", "5")))


def run_dying(hidden_by, way, fifo, pidfds=True):
    os.mkfifo(fifo)
    code = f"import sys; sys.path[:0] = {sys.path!r}; import dying; dying.main(*sys.argv[1:])"
    every = 1 if KILLS < 10 else 40
    arguments = hidden_by, way.name, KILLS, every, fifo, int(pidfds)
    done = run_program(code, *map(str, arguments), seconds=100 + 10 * KILLS)
    assert done.returncode == 0, done.stderr
    assert f"{KILLS} deaths" in done.stdout
    print(done.stdout)
    assert eventually(lambda: not has_reader(fifo))  # the helpers have ended


def has_reader(fifo):
    try:
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@pytest.mark.local
@pytest.mark.kill
@pytest.mark.spawn
@pytest.mark.parametrize("hidden_by", ["ignored signals", "a reaping thread", "helpers", "native helpers"])
def test_hidden_deaths_lose_no_batch(process_way, hidden_by, tmp_path):
    run_dying(hidden_by, process_way, tmp_path / "fifo")


@pytest.mark.kill
@pytest.mark.spawn
@pytest.mark.parametrize("hidden_by", ["ignored signals", "a reaping thread", "helpers"])
def test_without_pidfds_hidden_deaths_lose_no_batch_either(hidden_by, tmp_path):
    run_dying(hidden_by, FORK, tmp_path / "fifo", pidfds=False)


class Exits(Numbered):
    def __getitem__(self, index):
        os._exit(3)


def test_a_death_without_an_exit_code_is_an_error_all_the_same():
    def read():
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        with FORK.loader(Exits(), 4) as loader:
            next(iter(loader))

    assert re.search(r"WorkerDied\(.*ended without an exit code while it made batch 0.*2 workers died", in_child(read))


def use_up_descriptors(info):
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    try:
        while True:
            os.dup(0)
    except OSError:
        pass


@pytest.mark.local
@pytest.mark.usefixtures("no_leaks")
def test_workers_that_end_before_their_first_batch_are_an_error_with_the_cause(process_way):
    loader = process_way.loader(Numbered(), 4, worker_init_fn=use_up_descriptors)
    text = r"3 workers in a row ended after worker_init_fn .*, the last worker with exit code 1, because of OSError: .*"
    with pytest.raises(gl.WorkerStartError, match=f"{text}oo many open files.*uses up the file descriptors") as caught:
        list(loader)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.usefixtures("no_leaks")
def test_workers_that_are_killed_from_outside_before_their_first_batch_are_replaced():
    with FORK.loader(Numbered(), 4, num_workers=5) as loader:
        for pid in workers(loader):
            os.kill(pid, signal.SIGTERM)
        assert [int(batch[0, 0]) for batch in loader] == list(range(0, 400, 4))


def hang_and_say_so(info):
    info.payload.touch()
    hang()


def hang():
    threading.Event().wait(60)


@pytest.mark.local
@pytest.mark.usefixtures("no_leaks")
def test_a_worker_init_fn_that_hangs_is_an_error_with_the_stack(process_way, tmp_path):
    hangs = [tmp_path / "0", tmp_path / "1"]
    arguments = {"worker_init_fn": hang_and_say_so, "worker_payload": lambda info, worker: hangs[worker]}
    with process_way.loader(Numbered(), 4, timeout=1, **arguments) as loader:
        assert eventually(lambda: all(hang.exists() for hang in hangs))
        text = r"(?s)batch 0.*timeout=1 .*had not started yet, because worker_init_fn had not returned.*in hang\n"
        with pytest.raises(gl.BatchTimeout, match=text) as caught:
            next(iter(loader))
        assert ("forkserver" in str(caught.value)) == (process_way is FORK)


@pytest.mark.spawn
@pytest.mark.parametrize("way", PROCESSES[1:], ids=str)
def test_a_killed_program_leaves_no_socket_file_and_no_semaphore(way, tmp_path):
    code = f"""if True:
    import os, sys, tempfile
    sys.path[:0] = {sys.path!r}
    tempfile.tempdir = {str(tmp_path)!r}
    from samples import Numbered
    import gluonloader as gl
    loader = gl.DataLoader(Numbered(), 4, num_workers=2, start_method={way.name!r})
    next(iter(loader))
    os.kill(os.getpid(), 9)
    """
    done = run_program(code)
    assert done.returncode == -9, done.stderr
    assert "leaked" not in done.stderr
    assert eventually(lambda: not os.listdir(tmp_path))
