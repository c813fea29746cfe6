"""Workers that are actors of Ray: what differs from processes, and what Ray itself brings. Needs Ray.

Each test that starts Ray or a cluster does so in a program of its own, and looks at what that program leaves behind.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import RAY, crew, eventually, is_running, run_program
from inherited import KINDS, Sharing

from gluonloader.errors import MissingExtraError, TransportError, WorkerStartError
from gluonloader.executors.ray.actor_lane import RayLane
from gluonloader.options import Ray

NODES = int(os.environ.get("GLUONLOADER_NODES", "3"))  # how many nodes are taken away

pytest.importorskip("ray")


def test_batches_are_read_only_and_outlive_the_loader():
    with RAY.loader(range(8), 4) as loader:
        batches = list(loader)
    assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(ValueError, match="read-only"):
        batches[0][:] = 1


def test_a_function_as_output_makes_copies_that_may_be_written():
    with RAY.loader(range(8), 4, output=np.array) as loader:
        for batch in loader:
            batch += 1


def test_lambdas_and_classes_of_the_program_need_no_module():
    class Local:
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return index * 10

    with RAY.loader(Local(), 3, batchify_fn=lambda samples: samples[::-1]) as loader:
        assert list(loader) == [[20, 10, 0], [50, 40, 30]]


def test_a_part_that_cannot_be_pickled_is_named():
    lock = threading.Lock()
    with pytest.raises(TransportError, match="needs to pickle batchify_fn"):
        RAY.loader(range(4), 2, batchify_fn=lambda samples: lock and samples)


@pytest.mark.parametrize("kind", ["Value", "RawValue", "Lock", "Queue", "Pipe", "Socket", "Managed"])
def test_what_actors_cannot_share_is_refused(kind):
    dataset = Sharing([KINDS[kind]], multiprocessing.get_context("spawn"))
    cure = (
        r"executor='ray' needs to pickle dataset, but this failed: dataset\.shared\[0\].*: \w+ objects should only be "
        r"shared between processes through inheritance\. Actors of Ray may run on other machines, so they cannot share "
        r"it with this program; leave it out, or use executor='process'$"
    )
    try:
        with pytest.raises(TransportError, match=cure):
            RAY.loader(dataset, 1)
    finally:
        dataset.end()


def test_options_of_actors_are_passed_on():
    import ray

    class Where:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return ray.get_runtime_context().get_assigned_resources(), os.environ.get("COLOUR")

    options = {"num_cpus": 0.5, "runtime_env": {"env_vars": {"COLOUR": "blue"}}}
    with RAY.loader(Where(), 1, batchify_fn=list, executor=Ray(**options)) as loader:
        assert list(loader) == [[({"CPU": 0.5}, "blue")]] * 2


@pytest.mark.parametrize("name", ["max_restarts", "max_task_retries", "max_concurrency"])
def test_options_that_the_loader_sets_are_refused(name):
    with pytest.raises(ValueError, match=f"{name}=1: the loader sets this option of an actor itself"):
        Ray(**{name: 1})


def test_workers_without_room_are_named_in_the_timeout():
    with RAY.loader(range(4), 2, timeout=2, executor=Ray(resources={"nowhere": 1})) as loader:
        with pytest.raises(TimeoutError, match="no free resources for it"):
            next(iter(loader))


@pytest.mark.parametrize("limit", [None, "4MB"])
def test_a_cluster_with_room_for_one_of_two_workers_gives_all_batches(limit):
    with RAY.loader(range(40), 4, memory_limit=limit, executor=Ray(num_cpus=3)) as loader:
        for _ in range(2):
            assert [batch.tolist() for batch in loader] == [list(range(i, i + 4)) for i in range(0, 40, 4)]
        assert sum(lane.ready for lane in crew(loader).lanes.values()) == 1


@pytest.mark.parametrize("found", [None, SimpleNamespace(__file__=None)], ids=["nothing", "a folder"])
def test_without_ray_the_error_says_how_to_install_it(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", found)
    with pytest.raises(MissingExtraError, match=r'pip install "gluonloader\[ray\]"'):
        RAY.loader(range(4), 2)


def test_a_ray_that_the_program_uses_is_left_alone():
    import ray

    with RAY.loader(range(4), 2) as loader:
        list(loader)
    assert ray.is_initialized()
    assert ray.get(ray.put(1)) == 1


SHUT_DOWN_WHILE_WAITING = """
import threading, time
import ray
from gluonloader import DataLoader

class Stuck:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        time.sleep(1000 if index > 1 else 0)
        return index

loader = DataLoader(Stuck(), 2, num_workers=1, executor="ray", timeout=1000)
batches = iter(loader)
next(batches)
threading.Timer(1, ray.shutdown).start()
try:
    next(batches)
except RuntimeError as error:
    print(error)
"""


def test_a_thread_that_waits_for_a_batch_notices_that_ray_was_shut_down():
    done = run_program(SHUT_DOWN_WHILE_WAITING)
    assert "Ray was shut down while a loader used it" in done.stdout, done.stderr


COLLECTED = """
import gc, threading, time
import ray
from gluonloader import DataLoader

gc.disable()
loader = DataLoader(range(400), 4, num_workers=1, executor="ray")
cycle = [loader, iter(loader)]
cycle.append(cycle)
next(cycle[1])
call = ray.remote(num_cpus=0)(lambda: time.sleep(1)).remote()
del loader, cycle
ended = threading.Event()
call.future().add_done_callback(lambda _: (gc.collect(), ended.set()))  # runs in a thread of Ray
print("collected:", ended.wait(60))
while ray.available_resources().get("CPU", 0) < ray.cluster_resources()["CPU"]:  # the actor has not ended
    time.sleep(0.01)
"""


def test_a_loader_that_is_collected_in_a_thread_of_ray_is_closed():
    done = run_program(COLLECTED)
    assert "collected: True" in done.stdout, done.stderr
    assert done.returncode == 0, done.stderr


ANOTHER_RAY = """
import ray
from gluonloader import DataLoader

def error_of(batches):
    try:
        list(batches)
    except RuntimeError as error:
        return error

loader, earlier = (DataLoader(range(100), 2, num_workers=1, executor="ray", prefetch=1) for _ in range(2))
next(iter(loader))
batches = iter(earlier)
next(batches)
ray.shutdown()
print(error_of(batches))
earlier.close()
ray.init(address="local", num_cpus=1, include_dashboard=False, logging_level="error")
print(error_of(loader))
loader.close()
with DataLoader(range(4), 2, num_workers=1, executor="ray") as other:
    print(*other)
print(ray.is_initialized())
"""


def test_a_worker_is_told_once_of_each_batch_that_nobody_waits_for(monkeypatch):
    tell, told = RayLane.has_cancelled, []

    def note(lane, attempt):
        told.append(attempt)
        tell(lane, attempt)

    monkeypatch.setattr(RayLane, "has_cancelled", note)
    with RAY.loader(range(60), 2) as loader:
        list(loader)  # the workers have started
        for _ in range(20):
            iter(loader)
        assert 0 < len(told) == len({id(attempt) for attempt in told})
        assert len(list(loader)) == 30


def test_a_ray_that_was_shut_down_is_an_error_and_another_ray_of_the_program_is_not_shut_down():
    done = run_program(ANOTHER_RAY)
    first, second, *others = done.stdout.splitlines()
    assert "Ray was shut down while a loader used it" in first, done.stderr
    assert "Ray was shut down while a loader used it" in second, done.stderr
    assert others == ["[0 1] [2 3]", "True"], done.stderr


ENDING = """
import sys, time
from gluonloader import DataLoader

class Slow:
    def __len__(self):
        return 100

    def __getitem__(self, index):
        time.sleep(0.05)
        return index

if __name__ == "__main__":
    loader = DataLoader(Slow(), 2, num_workers=2, executor="ray")
    for batch in loader:
        print("batch", flush=True)
        if sys.argv[1] == "close":
            loader.close()
            break
"""


def descendants(pid):
    found = [pid]
    for parent in found:
        try:
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except FileNotFoundError:
            continue
    return found[1:]


@pytest.mark.parametrize("end", ["close", "interrupt"])
def test_no_process_is_left(end, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(ENDING)
    program = subprocess.Popen([sys.executable, script, end], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert program.stdout.readline() == b"batch\n"
        started = descendants(program.pid)
        if end == "close":
            program.communicate(timeout=60)
        else:
            assert len(started) > 4  # servers of Ray, and two actors
            program.send_signal(signal.SIGINT)
            program.communicate(timeout=60)
        assert eventually(lambda: not any(map(is_running, started)), 120), [pid for pid in started if is_running(pid)]
    finally:
        program.kill()


def test_close_leaves_no_actor_and_no_object():
    import ray

    with RAY.loader(np.zeros((64, 100_000)), 8, prefetch=4) as loader:
        batches = iter(loader)
        kept = next(batches)
        assert ray.available_resources()["object_store_memory"] < ray.cluster_resources()["object_store_memory"]
    del kept, batches

    def free():
        left, whole = ray.available_resources(), ray.cluster_resources()
        return left["object_store_memory"] == whole["object_store_memory"]

    assert eventually(free)


NODE_GOES = """
import random, sys, time
import numpy as np
import ray
from ray.cluster_utils import Cluster
from gluonloader import DataLoader

class Images:
    def __len__(self):
        return 400

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        time.sleep(0.002)
        return rng.integers(0, 255, (64, 64, 3), np.uint8), index, np.random.random()

def read_until_both_work(loader):
    lanes = []
    while sum(lane.answered for lane in lanes) < 2:
        loader.set_epoch(1)
        for batch in loader:
            lanes = list(loader.epochs.workers.executor(0).crew.lanes.values())

if __name__ == "__main__":
    rounds, choose = int(sys.argv[1]), random.Random(int(sys.argv[2]))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    node = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, logging_level="error", log_to_driver=False)
    with DataLoader(Images(), 8, num_workers=0, seed=3) as serial:
        expected = [[part.copy() for part in batch] for batch in serial]
    with DataLoader(Images(), 8, num_workers=2, executor="ray", seed=3) as loader:
        for _ in range(rounds):
            read_until_both_work(loader)
            loader.set_epoch(0)
            goes_at, kindly, longest, got = choose.randrange(1, 49), choose.random() < 0.5, 0.0, []
            batches = iter(loader)
            while True:
                if len(got) == goes_at:
                    cluster.remove_node(node, allow_graceful=kindly)
                start = time.monotonic()
                try:
                    got.append(next(batches))
                except StopIteration:
                    break
                longest = max(longest, time.monotonic() - start)
            assert len(got) == len(expected), len(got)
            for mine, its in zip(got, expected):
                for part, other in zip(mine, its):
                    np.testing.assert_array_equal(part, other)
            print(f"batch {goes_at}, {'terminated' if kindly else 'killed'}: waited {longest:.1f} s", flush=True)
            node = cluster.add_node(num_cpus=1)
            del got, mine, part
    ray.shutdown()
    cluster.shutdown()
    print("done")
"""


@pytest.mark.kill
def test_no_batch_is_lost_when_a_node_goes_away(tmp_path):
    """Two nodes; one goes away at a random moment of each epoch, and comes back for the next."""
    script = tmp_path / "script.py"
    script.write_text(NODE_GOES)
    seed = int(time.time())
    command = [sys.executable, script, str(NODES), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120 + 60 * NODES)
    assert done.stdout.endswith("done\n"), (seed, done.stdout, done.stderr)
    print(done.stdout)


def test_a_dataset_that_cannot_be_unpickled_stops_the_loader():
    class Broken:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return index

        def __reduce__(self):
            return exec, ("raise OSError('no such disk')",)

    with pytest.raises(WorkerStartError, match="no such disk"), RAY.loader(Broken(), 2) as loader:
        next(iter(loader))
