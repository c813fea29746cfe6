"""`NodeCache` under faults: killed processes, full disks, damaged files, and stores that fail or do not answer."""

import contextlib
import gc
import itertools
import json
import os
import pickle
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from conftest import FORK, FORKSERVER, SERIAL, SPAWN, Way, eventually, in_child, is_running, scarce_descriptors, workers
from interrupting import SignalAt
from stores.store_server import store_server

import gluonloader
from gluonloader import BlockShuffleSampler, NodeCache
from gluonloader.errors import StoreError
from gluonloader.options import Processes
from gluonloader.records import IndexedRecordIO, RecordFileDataset
from gluonloader.stores.cache import tell
from gluonloader.stores.client import address_of
from gluonloader.stores.folder import path_of
from gluonloader.stores.requests import Requests
from gluonloader.wire.greeting import MESSAGE_BYTES, Welcome, encode
from gluonloader.wire.names import listen

pytest.importorskip("obstore")

pytestmark = [pytest.mark.local, pytest.mark.usefixtures("no_leaks")]

RECORDS = 400
BLOCK = 4096
SPACE = 8192  # of the disk, for a block that is not smaller than BLOCK
SMALL = 24 * SPACE  # a limit with room for some of the blocks
URL = "s3://bucket/a.rec"
ROOT = str(Path(gluonloader.__file__).parent.parent)
TESTS = str(Path(__file__).parent.parent)
OWN = {"lock", "fetcher.log", "blocks", "new", "unchecked"}  # in the folder of a cache
NOBODY = 65534
THREADS = Way("thread-4", {"num_workers": 4, "executor": "thread"})

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


class Place:
    """An object in a store, the same file on the local disk, and a folder for caches."""

    def __init__(self, server, root):
        self.server, self.file, self.folder = server, root / "bucket" / "a.rec", root / "cache"
        self.local = RecordFileDataset(str(self.file))

    def cache(self, limit=1 << 22, block=BLOCK, timeout=120, **options):
        return NodeCache(self.folder, limit, block=block, timeout=timeout, **options)

    def dataset(self, *args, **options):
        return RecordFileDataset(URL, cache=self.cache(*args, **options))

    def is_right(self, dataset, numbers=range(RECORDS)):
        """Whether these records are those of the local file."""
        return dataset.__getitems__(list(numbers)) == self.local.__getitems__(list(numbers))

    def loader(self, dataset, blocks, way=SERIAL, **arguments):
        sampler = BlockShuffleSampler(blocks, buffer=4, seed=1)
        return way.loader(dataset.transform(zlib.crc32), 8, sampler=sampler, **arguments)

    @contextlib.contextmanager
    def loaders(self, dataset, way=SERIAL, **arguments):
        """A loader over a dataset, and one with the same order over the local file."""
        blocks = dataset.blocks
        with self.loader(dataset, blocks, way, **arguments) as one, self.loader(self.local, blocks) as other:
            yield one, other

    def epochs(self, dataset, way=SERIAL, count=2, **arguments):
        """Reads some epochs; returns whether all batches are those of the local file."""
        with self.loaders(dataset, way, **arguments) as (one, other):
            return all(same(list(one), list(other)) for _ in range(count))

    @property
    def fetchers(self):
        """The processes that fetch for this folder, also those that start just now."""
        found = []
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                line = (process / "cmdline").read_bytes() if process.name.isdigit() else b""
                if b"gluonloader.stores.fetcher" in line and f'"{self.folder}"'.encode() in line:
                    found.append(int(process.name))
        return [pid for pid in found if is_running(pid)]

    def blocks(self, state="blocks"):
        return sorted(file for file in (self.folder / state).rglob("*") if file.is_file())

    def new_files(self):
        return list((self.folder / "new").iterdir())

    @property
    def is_clean(self):
        """Whether the folder contains nothing that a cache does not need."""
        return {file.name for file in self.folder.iterdir()} <= OWN

    def stop(self):
        """Kills the fetcher."""
        gc.collect()
        for pid in self.fetchers:
            kill(pid)
        assert eventually(lambda: not self.fetchers)

    def occupied(self):
        """The space of all files but the lock and the log, by their sizes and by what is allocated."""
        sizes = allocated = 0
        for file in self.folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):
                status = file.stat()
                if file.name not in ("lock", "fetcher.log") and file.is_file():
                    sizes, allocated = sizes + status.st_size, allocated + status.st_blocks * 512
        return max(sizes, allocated)


def same(batches, others):
    return len(batches) == len(others) and all(map(np.array_equal, batches, others))


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    root = tmp_path_factory.mktemp("objects")
    (root / "bucket").mkdir()
    rng = np.random.default_rng(0)
    with IndexedRecordIO(str(root / "bucket" / "a.rec"), "w") as file:
        for number in range(RECORDS):
            file.write_idx(number, rng.bytes(int(rng.integers(500, 1500))))
    return root


@pytest.fixture(scope="module")
def server(objects):
    with store_server(objects) as server:
        yield server


@pytest.fixture
def place(objects, server, tmp_path, monkeypatch):
    shutil.copytree(objects / "bucket", tmp_path / "bucket")
    server.restart(tmp_path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    place = Place(server, tmp_path)
    yield place
    place.stop()


# A program that reads epochs of the object, and checks each batch. Its arguments are those of `started`.
PROGRAM = """
import json, sys, zlib
sys.path[:0] = [{root!r}, {tests!r}]
from stores.test_cache_faults import Place
given = json.loads(sys.argv[1])

def main():
    import pathlib
    place = Place(None, pathlib.Path(given["root"]))
    dataset = place.dataset(**given["options"])
    sys.stdin.readline() if given["waits"] else None
    from gluonloader import BlockShuffleSampler, DataLoader
    loaders = []
    for data, workers in [(dataset, given["workers"]), (place.local, 0)]:
        sampler = BlockShuffleSampler(dataset.blocks, buffer=4, seed=given["seed"])
        loaders.append(DataLoader(data.transform(zlib.crc32), 8, sampler=sampler, num_workers=workers, seed=0))
    for epoch in range(given["epochs"]):
        for batch, other in zip(*loaders, strict=True):
            assert (batch == other).all()
        print("epoch", dataset_pid(dataset), flush=True)
    sys.stdin.readline()

def dataset_pid(dataset):
    return dataset._records._cache.stats().pid

if __name__ == "__main__":
    main()
"""


class Program:
    """A program that reads epochs, in a process group of its own."""

    def __init__(self, place, workers=2, seed=1, epochs=1, waits=False, **options):
        given = {
            "root": str(place.folder.parent), "workers": workers, "seed": seed, "epochs": epochs, "waits": waits,
            "options": options,
        }  # fmt: skip
        command = [sys.executable, "-c", PROGRAM.format(root=ROOT, tests=TESTS), json.dumps(given)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )

    def epoch(self):
        """The fetcher's pid, when the program has read an epoch, and all was right."""
        line = self.process.stdout.readline()
        if not line.startswith("epoch"):
            pytest.fail(f"the program has failed: {line}{self.process.communicate(timeout=60)[1]}")
        return int(line.split()[1])

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        assert self.process.communicate("\n\n", timeout=60)[1] == ""
        assert self.process.returncode == 0

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


# -- killed processes --------------------------------------------------------------------------------------------------

# Each fetcher runs this before its own code: it is killed at the moment that comes first in a file.
DIES = """
import os, signal, sys

rename, replace, unlink, write = os.rename, os.replace, os.unlink, os.write

def at(moment, path=""):
    kind = next((part for part in ("new", "unchecked", "blocks") if f"/{part}/" in str(path)), "")
    list_path = os.environ["TEST_MOMENTS"]
    with open(list_path) as file:
        first, *others = [*file.read().splitlines(), ""]
    if "gluonloader.stores.fetcher" in sys.modules and first == f"{moment} {kind}".strip():
        with open(list_path + ".next", "w") as file:
            file.write("\\n".join(others))
        replace(list_path + ".next", list_path)
        os.kill(os.getpid(), signal.SIGKILL)

def dying(name, call):
    def changed(path, *args):
        at(f"before {name}", path)
        call(path, *args)
        at(f"after {name}", path)
    return changed

def half_write(descriptor, data):
    count = write(descriptor, bytes(data)[: max(1, len(data) // 2)])
    at("half write")
    return count

os.rename, os.unlink, os.write = dying("rename", rename), dying("unlink", unlink), half_write
"""
MOMENTS = [
    "half write", "before rename new", "after rename new",  # a block is written
    "before unlink blocks", "after unlink blocks",  # a block is removed
    "before rename blocks", "after rename blocks",  # a fetcher takes over what an earlier one has left
    "before rename unchecked", "after rename unchecked",  # a block was checked
]  # fmt: skip


@pytest.fixture
def moments(tmp_path, monkeypatch):
    """A file with the moments at which fetchers are killed, one a line; they are removed when they have come."""
    (tmp_path / "dies").mkdir()
    (tmp_path / "dies" / "sitecustomize.py").write_text(DIES)
    (tmp_path / "moments").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "dies"))
    monkeypatch.setenv("TEST_MOMENTS", str(tmp_path / "moments"))
    return tmp_path / "moments"


@pytest.mark.kill
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_fetcher_killed_at_a_moment(place, moments, moment):
    place.is_right(place.dataset(SMALL))
    place.stop()  # the next fetcher has something to take over
    moments.write_text(f"{moment}\n{moment}")
    assert place.epochs(place.dataset(SMALL))
    assert place.epochs(place.dataset(SMALL), FORK)
    assert moments.read_text() == ""  # it was killed twice
    assert eventually(lambda: place.new_files() == [])  # blocks of the next epoch may still come
    assert place.is_clean


def test_a_fetcher_that_ends_after_it_has_welcomed_a_reader(place):
    cache = place.cache()
    listener = listen(address_of(place.folder), 1)

    def welcome():
        connection, _ = listener.accept()
        connection.recv(MESSAGE_BYTES)
        listener.close()
        connection.shutdown(socket.SHUT_RD)  # so that the next message to it fails
        connection.send(encode(Welcome(os.getpid())))
        connection.close()

    thread = threading.Thread(target=welcome)
    thread.start()
    assert place.is_right(RecordFileDataset(URL, cache=cache))
    thread.join()


@pytest.mark.kill
@pytest.mark.parametrize("way", [SERIAL, FORK, THREADS], ids=str)
def test_a_fetcher_killed_at_any_time(place, way):
    place.server.set(delay_s=0.002)
    chance, ended, kills = random.Random(0), threading.Event(), []

    def kill_them():
        while not ended.wait(chance.uniform(0, 0.8)) and len(kills) < 6:
            if fetchers := place.fetchers:
                kill(fetchers[0])
                kills.append(fetchers[0])

    thread = threading.Thread(target=kill_them)
    thread.start()
    try:
        dataset = place.dataset(SMALL, timeout=60)
        with place.loaders(dataset, way) as (one, other):
            for _ in range(1000):
                assert same(list(one), list(other))
                if not thread.is_alive():
                    break
            assert same(list(one), list(other))
    finally:
        ended.set()
        thread.join()
    assert len(kills) == 6
    dataset._records._cache.stats()  # a fetcher has started after the last kill
    assert eventually(lambda: place.new_files() == [])  # blocks of the next epoch may still come


@pytest.mark.kill
def test_killed_workers(place):
    place.server.set(delay_s=0.005)
    dataset = place.dataset(SMALL)
    chance, kills = random.Random(0), 0
    with place.loaders(dataset, FORK, executor=Processes(max_retries=20)) as (one, other):
        for _ in range(3):
            for batch, right in zip(one, other, strict=True):
                assert np.array_equal(batch, right)
                if chance.random() < 0.1:
                    kill(chance.choice(workers(one)))
                    kills += 1
    assert kills >= 5


@pytest.mark.kill
@pytest.mark.spawn
def test_killed_programs_and_fetchers(place):
    chance = random.Random(0)
    for _ in range(4):
        program = Program(place, epochs=1000, limit=SMALL)
        program.epoch()
        time.sleep(chance.uniform(0, 0.2))  # any moment is right
        program.kill()
        for pid in place.fetchers:
            kill(pid)
    assert place.epochs(place.dataset(SMALL))
    assert eventually(lambda: place.new_files() == [])  # blocks of the next epoch may still come
    assert place.is_clean


@pytest.mark.kill
@pytest.mark.spawn
def test_the_fetcher_of_a_killed_program_ends(place):
    program = Program(place, epochs=1000, limit=SMALL)
    fetcher = program.epoch()
    program.kill()
    assert eventually(lambda: not is_running(fetcher))
    assert place.is_clean


# -- several programs --------------------------------------------------------------------------------------------------


def test_a_path_of_modules_that_contains_more_than_texts(place, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, Path("/none")])
    assert place.is_right(place.dataset(timeout=10))


@pytest.mark.spawn
def test_programs_that_start_at_the_same_time_share_one_fetcher(place):
    programs = [Program(place, workers=0, seed=seed, limit=SMALL) for seed in range(4)]
    assert len({program.epoch() for program in programs}) == 1
    for program in programs:
        program.end()
    assert place.is_clean


@pytest.mark.parametrize(
    ("name", "options"),
    [("limit", {"limit": 1 << 23}), ("block", {"block": 2 * BLOCK}), ("requests", {"requests": 3})],
)
def test_another_cache_in_the_same_folder_has_other_arguments(place, name, options):
    dataset = place.dataset()
    with pytest.raises(StoreError, match=rf"{name}=\d+ here, but {name}=\d+ in another program \(pid {os.getpid()}\)"):
        place.dataset(**options)
    assert place.is_right(dataset)
    del dataset
    assert place.is_right(place.dataset(**options))  # nobody else uses the folder now


def test_another_program_has_another_environment(place, monkeypatch):
    dataset = place.dataset()
    with monkeypatch.context() as changed:
        changed.setenv("AWS_SECRET_ACCESS_KEY", "another one")
        with pytest.raises(StoreError, match="another value of AWS_SECRET_ACCESS_KEY"):
            place.dataset()
    assert place.is_right(dataset)
    assert b"another one" not in b"".join(file.read_bytes() for file in place.folder.rglob("*") if file.is_file())


# -- folders -----------------------------------------------------------------------------------------------------------


def as_nobody(call):
    """What a call returns as another user, in a forked child; skips the test if that user cannot run Python."""

    def called():
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        return str(call()) if os.access(sys.executable, os.X_OK) else "no Python"

    if (text := in_child(called)) == "no Python":
        pytest.skip("another user cannot run this Python")
    return text


def open_to_all(folder):
    """Lets other users reach a folder."""
    for parent in [folder, *folder.parents]:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o755)


def test_the_log_alone_is_left_of_a_program_that_was_killed_early(place):
    place.folder.mkdir()
    (place.folder / "fetcher.log").touch()
    assert place.is_right(place.dataset())


@as_root
def test_a_read_only_folder(place):
    place.folder.mkdir()
    os.chown(place.folder, NOBODY, NOBODY)
    place.folder.chmod(0o555)
    open_to_all(place.folder.parent)
    assert "pass a folder that you may write to" in as_nobody(place.cache)


@as_root
def test_a_folder_of_another_user(place):
    place.dataset()
    open_to_all(place.folder)
    text = as_nobody(place.cache)
    assert text.startswith("StoreError")
    assert "another user" in text


@as_root
def test_another_user(place):
    place.folder.mkdir()
    os.chown(place.folder, NOBODY, NOBODY)
    open_to_all(place.folder)
    place.folder.chmod(0o700)
    assert as_nobody(lambda: place.is_right(place.dataset(SMALL))) == "True"
    assert {file.stat().st_uid for file in place.folder.rglob("*")} == {NOBODY}


def test_files_that_are_not_ours_stay(place):
    dataset = place.dataset(SMALL)
    place.is_right(dataset)
    part, block = place.blocks()[0].parent.name, place.blocks()[0].name
    del dataset
    place.stop()
    mine = ["mine.txt", "new/mine.txt", "blocks/mine.txt", "blocks/mine/0-100", "unchecked/0-100", "unchecked/mine/1-2"]
    for name in mine:
        (place.folder / name).parent.mkdir(exist_ok=True)
        (place.folder / name).write_text(name)
    (place.folder / "new" / "folder").mkdir()
    names = [f"{number:02x}" for number in range(256)]
    other = next(name for name in names if not (place.folder / "blocks" / name).exists())
    (place.folder / "blocks" / other).mkdir()
    strange = ["mine.txt", "00-100", f"{block}.txt", f"{part}-1-2", f"{block[:32]}-5-6", f"{block[:32]}-7-8"]
    for name in strange[:4]:
        (place.folder / "blocks" / part / name).write_text(name)
    (place.folder / "blocks" / part / strange[4]).symlink_to(place.file)
    (place.folder / "blocks" / part / strange[5]).mkdir()
    (place.folder / "blocks" / other / block).write_text("in the wrong folder")
    assert place.epochs(place.dataset(SMALL))
    assert not place.is_clean
    assert [(place.folder / name).read_text() for name in mine] == mine
    folders = [place.folder / state / name for state in ("blocks", "unchecked") for name in (part, other)]
    found = {file.name for folder in folders if folder.exists() for file in folder.iterdir()}
    assert found >= {*strange, block}
    assert b"in the wrong folder" in [file.read_bytes() for folder in folders for file in folder.glob(block)]
    assert (place.folder / "new" / "folder").is_dir()
    assert place.file.exists()


def test_blocks_that_somebody_removes_are_fetched_again(place):
    dataset = place.dataset()
    place.is_right(dataset)
    for file in place.blocks():
        file.unlink()
    del dataset._records._cache._local.reader  # it keeps some of them open
    assert place.is_right(dataset, range(100))


def test_a_folder_that_is_removed(place):
    dataset = place.dataset(timeout=8)
    shutil.rmtree(place.folder)
    with pytest.raises(StoreError, match=rf"{URL}: bytes .*No such file"):
        place.is_right(dataset)
    assert place.is_right(place.dataset())


@pytest.fixture
def small_disk(tmp_path):
    """A disk with 256 KB."""
    folder = tmp_path / "cache"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k,nr_inodes=1000", "tmpfs", str(folder)]
    if os.geteuid() or not shutil.which("mount") or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("cannot mount a tmpfs")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_a_full_disk(small_disk, place, way):
    dataset = place.dataset()  # the limit is larger than the disk
    assert place.epochs(dataset, way)
    stats = dataset._records._cache.stats()
    assert stats.nbytes <= stats.limit <= 256 << 10
    assert stats.limit > 64 << 10


def test_a_disk_that_is_full_of_other_files(small_disk, place):
    dataset = place.dataset(timeout=8)
    other = small_disk / "new" / "other files"
    fill(other)
    assert place.is_right(dataset, range(60))  # in the room of the blocks that were there
    assert dataset._records._cache.stats().limit <= 32 << 10
    del dataset._records._cache._local.reader  # it keeps some of them open
    for file in place.blocks():
        file.unlink()
    fill(other)
    with pytest.raises(StoreError, match=rf"{URL}: bytes .* the disk of {small_disk} is full"):
        place.is_right(dataset)
    other.unlink()

    def has_grown():
        assert place.is_right(dataset)
        return dataset._records._cache.stats().limit > 64 << 10

    assert eventually(has_grown)


def fill(path):
    """Makes a file larger until the disk is full."""
    with open(path, "ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize("more", range(8))
def test_too_many_open_files(place, more):
    if more % 2:
        place.dataset(timeout=20)
    with scarce_descriptors(more, left=more):
        try:
            assert place.is_right(place.dataset(timeout=20))
        except StoreError as error:
            text = str(error)
        else:
            text = "Too many open files"
    assert "Too many open files" in text
    assert place.is_right(place.dataset(timeout=20))


# -- stores ------------------------------------------------------------------------------------------------------------

FAULTS = {
    "busy": {"busy": 0.1, "burst": 3},
    "no etag": {"no_etag": 1},
    "all": {"busy": 0.03, "cut": 0.05, "freeze": 0.03, "stall": 0.03, "ignore_range": 0.05, "wrong_length": 0.05},
}


@pytest.mark.parametrize("faults", FAULTS.values(), ids=FAULTS)
def test_a_store_that_often_fails(place, faults):
    place.server.set(**faults)
    dataset = place.dataset(SMALL, timeout=16)  # an answer that does not come is asked for again after 4 s
    assert place.epochs(dataset, FORK)
    stats, counts = dataset._records._cache.stats(), place.server.counts()
    assert all(counts[fault] for fault in faults if fault != "burst")
    assert stats.failed or "no_etag" in faults


@pytest.mark.parametrize(
    ("faults", "trouble"),
    [
        ({"busy": 1}, "503"),
        ({"cut": 1}, "error"),
        ({"freeze": 1}, "error"),
        ({"stall": 1}, "error"),
        ({"ignore_range": 1}, "range"),
        ({"wrong_length": 1}, r"has 4\d+ bytes instead of 4\d+"),
    ],
    ids=str,
)
def test_a_store_that_always_fails(place, faults, trouble):
    dataset = place.dataset(timeout=8)
    place.server.set(**faults)
    with pytest.raises(StoreError, match=rf"{URL}: bytes \d+ to \d+ did not come within 8.*{trouble}"):
        place.is_right(dataset)
    place.server.set(**dict.fromkeys(faults, 0))
    assert place.is_right(dataset)  # it goes on


@pytest.mark.parametrize("faults", [{"busy": 1}, {"stall": 1}], ids=str)
def test_a_store_that_does_not_tell_of_an_object(place, faults):
    place.server.set(**faults)
    with pytest.raises(StoreError, match=rf"{URL}: its length and version did not come within 8.*last: \w+Error"):
        place.dataset(timeout=8)
    place.server.set(**dict.fromkeys(faults, 0))
    place.server.counts()
    assert place.is_right(place.dataset())
    assert place.server.counts()["head"] == 2  # of the object and its index; nobody waits for the others any more


def test_a_find_is_tried_again(place):
    place.server.set(busy_next=2)
    assert place.is_right(place.dataset())


def test_slow_answers_are_asked_for_again(place):
    dataset = place.dataset()
    place.is_right(dataset, range(200))  # so it is known how long answers take
    place.server.set(slow=0.02, slow_s=2)
    assert place.is_right(dataset)
    for _ in range(5):
        if (stats := dataset._records._cache.stats()).repeated:
            break
        for file in place.blocks():
            file.unlink()
        del dataset._records._cache._local.reader
        assert place.is_right(dataset)
    assert 0 < stats.repeated <= 1 + stats.requests // 50


def test_a_store_that_refuses(place):
    dataset = place.dataset()
    place.server.set(refused=1)
    with pytest.raises(StoreError, match=f"{URL}: .*403|{URL}: .*Denied"):
        place.is_right(dataset)
    with pytest.raises(StoreError, match="403|Denied"):
        place.dataset()
    place.server.set(refused=0)
    assert place.is_right(dataset)


def test_a_block_that_is_needed_next_is_asked_for_again_although_it_was_refused(place):
    dataset = place.dataset()
    (needed,) = dataset.needed_blocks(range(RECORDS))
    place.server.set(refused=1)
    tell(needed.cache, place, needed.blocks, needed.remotes)
    with pytest.raises(StoreError, match="403|Denied"):
        place.is_right(dataset)
    place.server.set(refused=0)
    assert place.is_right(dataset)


@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_an_object_that_is_removed(place, way):
    dataset = place.dataset(SMALL)
    with place.loaders(dataset, way) as (one, _):
        iterator = iter(one)
        next(iterator)
        place.file.unlink()
        with pytest.raises(FileNotFoundError, match="a.rec"):
            list(iterator)


@pytest.mark.parametrize("etags", [True, False], ids=["etags", "no etags"])
@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_an_object_that_is_replaced(place, way, etags):
    place.server.set(no_etag=not etags)
    dataset = place.dataset(SMALL)
    content = place.file.read_bytes()
    with place.loaders(dataset, way) as (one, other):
        right = list(other)
        iterator = iter(one)
        assert np.array_equal(next(iterator), right[0])
        place.file.write_bytes(content[:-100] + bytes(100))
        os.utime(place.file, (1e9, 1e9))
        batches = []
        with pytest.raises(
            StoreError, match=rf"{URL}: the object was changed: it had the ETag \S+.*, and has \S+.* now"
        ):
            batches.extend(iterator)
        assert same(batches, right[1 : 1 + len(batches)])
    place.file.write_bytes(content)
    assert place.is_right(place.dataset(SMALL))


def test_an_empty_object(place):
    (place.file.parent / "empty").touch()
    file = place.cache().open("s3://bucket/empty")
    assert (len(file), file.read(0, 0)) == (0, b"")


def test_a_second_copy_of_a_request_that_fails_while_the_first_answer_is_written():
    asked, written, ends = itertools.count(), threading.Event(), threading.Semaphore(0)

    def get(what):
        if next(asked) == 1:
            raise ValueError("the second copy has failed")
        return b"data"

    def keep(what, data):
        assert written.wait(60)

    requests = Requests(get, keep, ends.release, 4, 1.0)
    requests.start("a")
    (request,) = requests.running.values()
    request.copies = 2
    requests._run(request)
    assert ends.acquire(timeout=60)  # of the second copy
    assert requests.ended() == []
    assert "a" in requests.running
    written.set()
    assert ends.acquire(timeout=60)
    (end,) = requests.ended()
    assert (end.error, requests.fetched, requests.running) == (None, 4, {})


# -- damaged files -----------------------------------------------------------------------------------------------------


def flipped(file, chance):
    content = bytearray(file.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    file.write_bytes(content)


def cut(file, chance):
    with open(file, "r+b") as open_file:
        open_file.truncate(chance.randrange(file.stat().st_size))


def emptied(file, chance):
    file.write_bytes(b"")


def longer(file, chance):
    with open(file, "ab") as open_file:
        open_file.write(b"more")


def moved(file, chance):
    other = next(other for other in sorted(file.parent.iterdir()) if other != file)
    file.write_bytes(other.read_bytes())


@pytest.mark.parametrize("damage", [flipped, cut, emptied, longer, moved])
def test_damaged_files(place, damage):
    place.is_right(place.dataset())
    place.stop()
    chance, files = random.Random(0), place.blocks()
    damaged = [file for file in files if chance.random() < 0.3]
    for file in damaged:
        damage(file, chance)
    assert place.epochs(dataset := place.dataset(), FORK)
    stats = dataset._records._cache.stats()
    assert stats.damaged == len(damaged)
    assert stats.blocks == len(files)
    assert place.blocks("unchecked") == []


def test_a_damaged_block_is_fetched_although_nobody_asks_for_anything_else(place):
    place.is_right(place.dataset())
    place.stop()
    for file in place.blocks():
        flipped(file, random.Random(0))
    assert place.is_right(place.dataset(timeout=20), [0])


def test_files_that_go_before_they_are_checked(place):
    place.is_right(place.dataset())
    place.stop()
    dataset = place.dataset()
    for file in place.blocks("unchecked"):
        file.unlink()
    assert place.is_right(dataset)


def test_a_reader_of_another_program_looks_at_no_file_before_the_fetcher(place):
    dataset = place.dataset()
    place.is_right(dataset)
    file = pickle.dumps(dataset._records._file)  # has no connection, and asks for nothing when it is loaded
    del dataset
    place.stop()
    for block in place.blocks():
        flipped(block, random.Random(0))
    assert pickle.loads(file).read(0, place.file.stat().st_size) == place.file.read_bytes()


def test_a_lower_limit(place):
    place.is_right(place.dataset())
    assert place.occupied() > SMALL
    place.stop()
    assert place.dataset(SMALL)._records._cache.stats().nbytes <= SMALL
    assert place.occupied() <= SMALL


# -- processes and threads ---------------------------------------------------------------------------------------------


def test_a_fork_while_a_thread_waits(place):
    dataset = place.dataset(SMALL)
    place.server.set(stall=1)
    thread = threading.Thread(target=place.is_right, args=(dataset, range(50)))
    thread.start()
    try:
        assert eventually(lambda: place.server.counts()["stall"])
        place.server.set(stall=0, delay_s=0.5)
        assert in_child(lambda: str(place.is_right(dataset, range(50)))) == "True"
    finally:
        thread.join()


def test_forks_while_threads_read_keep_no_block(place):
    dataset, ended = place.dataset(SMALL), threading.Event()

    def read():
        while not ended.is_set():
            place.is_right(dataset)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(30):
            assert in_child(lambda: str([name for name in map(os.path.realpath, mapped()) if "blocks" in name])) == "[]"
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def mapped():
    """The files that this process has mapped."""
    return {line.split(maxsplit=5)[5] for line in Path("/proc/self/maps").read_text().splitlines() if "/" in line}


# Python itself swallows an exception of a signal handler that runs in `__del__`.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", [SERIAL, THREADS, FORK], ids=str)
def test_interrupts(place, way):
    """An interrupt at any point of `next` loses nothing."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        dataset = place.dataset(SMALL)
        chance = random.Random(0)
        with place.loaders(dataset, way) as (one, other):
            for _ in range(3):
                right, iterator, batches, interrupts = list(other), iter(one), [], 0
                with contextlib.suppress(StopIteration):
                    while True:
                        with contextlib.suppress(KeyboardInterrupt), SignalAt(chance.randrange(800), signal.SIGINT):
                            interrupts += 1
                            batches.append(next(iterator))
                            interrupts -= 1
                        batches.append(next(iterator))
                numbers = [batch.tolist() for batch in batches]
                expected = [batch.tolist() for batch in right]
                assert numbers == [batch for batch in expected if batch in numbers]
                assert len(expected) - len(numbers) <= interrupts
                if way is SERIAL:
                    assert numbers == expected
    finally:
        signal.signal(signal.SIGINT, before)
    assert place.is_right(dataset)


def test_interrupts_while_it_waits(place):
    """Ctrl-C ends the wait for a block, and the next read goes on."""
    dataset = place.dataset(SMALL, timeout=16)
    place.server.set(stall=1)
    main = threading.main_thread().ident
    interrupting = threading.Thread(
        target=lambda: eventually(lambda: place.server.counts()["stall"]) and signal.pthread_kill(main, signal.SIGINT)
    )
    interrupting.start()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            place.is_right(dataset)
        interrupting.join()
    finally:
        signal.signal(signal.SIGINT, before)
    place.server.set(stall=0)
    assert place.is_right(dataset)


# -- the limit, and who keeps what -------------------------------------------------------------------------------------


@contextlib.contextmanager
def stopped(pids):
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert eventually(lambda: all(map(is_stopped, pids)))
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def is_stopped(pid):
    try:
        return all("\nState:\tT" in (task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):  # a thread has ended meanwhile
        return False


@pytest.mark.parametrize("way", [SERIAL, THREADS, FORK], ids=str)
def test_the_limit(place, way):
    dataset, ended, most = place.dataset(SMALL), threading.Event(), [0]
    place.server.set(delay_s=0.002, slow=0.01, slow_s=1)

    def watch():
        while not ended.is_set():
            with stopped(place.fetchers):  # otherwise files might go while others are counted
                most[0] = max(most[0], place.occupied())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        assert place.epochs(dataset, way)
    finally:
        ended.set()
        thread.join()
    assert SMALL // 2 < most[0] <= SMALL


def test_threads_with_different_blocks_in_a_small_cache(place):
    """More threads than blocks for which there is room."""
    dataset = place.dataset(16 * SPACE)
    place.server.set(delay_s=0.002)
    order, right = [random.Random(number).sample(range(RECORDS), 60) for number in range(24)], []
    threads = [threading.Thread(target=lambda some=some: right.append(place.is_right(dataset, some))) for some in order]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 24


@pytest.mark.spawn
def test_stopped_programs_keep_little_from_others(place):
    program = Program(place, workers=2, epochs=1000, limit=SMALL)
    program.epoch()
    try:
        os.killpg(program.process.pid, signal.SIGSTOP)
        assert place.epochs(place.dataset(SMALL))
    finally:
        program.kill()


def test_a_fetcher_that_is_stopped(place):
    dataset = place.dataset(timeout=8)
    fetcher = dataset._records._cache.stats().pid
    os.kill(fetcher, signal.SIGSTOP)
    try:
        with pytest.raises(StoreError, match=f"{URL}: bytes .* did not come within 8"):
            place.is_right(dataset)
        with pytest.raises(StoreError, match="is it stopped"):
            place.dataset(timeout=1)
    finally:
        os.kill(fetcher, signal.SIGCONT)
    assert place.is_right(dataset)


def test_a_batch_of_very_many_blocks(place):
    records = [b"%04d" % number * 1000 for number in range(2000)]
    with IndexedRecordIO(str(place.file.parent / "many.rec"), "w") as file:
        for number, record in enumerate(records):
            file.write_idx(number, record)
    dataset = RecordFileDataset("s3://bucket/many.rec", cache=place.cache(timeout=60))
    assert sum(dataset.blocks) / len(dataset.blocks) < 3
    assert dataset.__getitems__(list(range(2000))) == records


def test_the_next_fetcher_is_told_what_comes_next(place):
    dataset = place.dataset()
    (needed,) = dataset.needed_blocks(range(200))
    place.stop()
    files = {Path(path_of(str(place.folder), block)) for block in needed.blocks}

    def all_come():
        # The last fetcher may have received the message before.
        tell(needed.cache, place, needed.blocks, needed.remotes)
        return files <= set(place.blocks())

    assert eventually(all_come)


# -- what is left ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [SERIAL, THREADS, FORK, FORKSERVER, SPAWN], ids=str)
def test_nothing_is_left_of_any_way(place, way):
    sockets = open_sockets()
    dataset = place.dataset(SMALL)
    assert place.is_right(dataset)
    assert place.epochs(dataset, way)
    assert place.is_right(pickle.loads(pickle.dumps(dataset)))
    assert children_and_zombies() == set()
    del dataset
    gc.collect()
    assert eventually(lambda: open_sockets() == sockets)
    assert eventually(lambda: not place.fetchers)
    assert children_and_zombies() == set()


def open_sockets():
    names = [f"/proc/self/fd/{descriptor}" for descriptor in os.listdir("/proc/self/fd")]
    return sorted(os.readlink(name) for name in names if os.path.lexists(name) and "socket" in os.readlink(name))


def children_and_zombies():
    """The children whose program is a fetcher, or that have ended and were not waited for."""
    text = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "stat=,args="], capture_output=True, text=True
    ).stdout
    return {line for line in text.splitlines() if "gluonloader.stores" in line or line.startswith("Z")}


def cpu_ticks(pid):
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))


@pytest.mark.parametrize("state", ["idle", "waiting"])
def test_the_fetcher_does_not_poll_in_a_loop(place, state):
    dataset = place.dataset(timeout=60)
    fetcher = dataset._records._cache.stats().pid
    place.server.set(stall=state == "waiting")
    thread = threading.Thread(target=lambda: state == "idle" or place.is_right(dataset))
    thread.start()
    try:
        assert state == "idle" or eventually(lambda: dataset._records._cache.stats().requests > 2)
        before = cpu_ticks(fetcher)
        time.sleep(1)
        assert cpu_ticks(fetcher) - before < os.sysconf("SC_CLK_TCK") // 5
    finally:
        place.server.set(stall=0)
        thread.join()
