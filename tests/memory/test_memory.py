"""Bounds on memory: the limit, a small /dev/shm, a full machine, and datasets that are not copied per worker.

`nox -s soak` sets GLUONLOADER_LIMITS to 500, the number of loaders with random sizes and limits.
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import subprocess
import sys
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest
from conftest import FORK, FORKSERVER, NEW_INTERPRETERS, ONE_FORK, THREAD, Way, eventually, scarce_descriptors, workers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples import MB, Images

import gluonloader as gl
from gluonloader.frameworks import Lent

pytestmark = [pytest.mark.usefixtures("no_leaks"), pytest.mark.numpy_only, pytest.mark.soak]

BIG = os.environ.get("GLUONLOADER_BIG") == "1"  # the sizes that the soak run uses
LIMITS = int(os.environ.get("GLUONLOADER_LIMITS", "12"))


def slab_bytes():
    """Memory of all slabs that this process holds, each counted once."""
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try:
            if "gluonloader" in os.readlink(f"/proc/self/fd/{fd}"):
                status = os.stat(f"/proc/self/fd/{fd}")
                found[status.st_ino] = status.st_blocks * 512
        except FileNotFoundError:
            continue
    return sum(found.values())


def test_a_consumer_that_keeps_everything_gets_private_copies_within_the_limit(process_way):
    images, limit = (2048, 256) if BIG else (192, 32)
    with process_way.loader(Images(images), 4, memory_limit=f"{limit}MB") as loader:
        kept, most = [], 0
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for batch in loader:
                kept.append(batch)
                most = max(most, slab_bytes())
        assert most <= limit * MB
        assert [int(batch[0, 0]) for batch in kept] == list(range(0, images, 4))
        assert all((batch == batch[:, :1]).all() for batch in kept)
        said = [str(warning.message) for warning in caught if "memory_limit" in str(warning.message)]
        assert len(said) == 1
        assert "private copies" in said[0]


@pytest.mark.parametrize("prefetch", [2, 3, 5])
def test_large_batches_take_as_many_slabs_as_the_window_and_the_last_two_delivered(prefetch):
    with ONE_FORK.loader(Images(160), 16, prefetch=prefetch) as loader:
        for _ in range(2):
            assert [int(batch[0, 0]) for batch in loader] == list(range(0, 160, 16))
            assert slab_bytes() <= (prefetch + 2) * 16.6 * MB  # room for header and head beside each 16 MB


def test_where_descriptors_run_out_fewer_batches_are_in_flight():
    with FORK.loader(range(200), 2) as loader:
        iterator = iter(loader)
        found = [next(iterator)[0]]
        with scarce_descriptors(10, left=0):
            found += [batch[0] for batch in iterator]
    assert found == list(range(0, 200, 2))


@pytest.mark.parametrize("prefetch", [1, 6])
@pytest.mark.parametrize("neighbours", [0, 1])
def test_where_there_is_none_for_a_single_one_the_batch_that_is_waited_for_is_lost_and_no_other(prefetch, neighbours):
    dataset = [np.full(40_000, index, np.uint8) for index in range(60)]  # a kept batch keeps its slab
    with ONE_FORK.loader(dataset, 2, prefetch=prefetch, timeout=None) as loader:
        others = [iter(loader) for _ in range(neighbours)]  # which nobody waits for
        iterator, kept = iter(loader), []
        with scarce_descriptors(10, left=0), pytest.raises(OSError, match="Too many open files"):
            kept += iterator  # all of them held, so no slab comes back
        lost = len(kept)
        kept.clear()
        assert [batch[0, 0] for batch in iterator] == list(range(2 * (lost + 1), 60, 2))
        for other in others:
            assert [batch[0, 0] for batch in other] == list(range(0, 60, 2))


@pytest.mark.parametrize(("shape", "window"), [((2, 30_000), 8), ((5, 30_000), 4)], ids=["0.5 MB", "1.2 MB"])
@pytest.mark.parametrize("options", [{}, {"prefetch": 4}, {"memory_limit": "100MB"}], ids=["default", "given", "limit"])
def test_more_small_batches_are_in_flight_unless_prefetch_is_given(shape, window, options):
    drawn = []

    class Order:
        def __iter__(self):
            for index in range(40):
                drawn.append(index)
                yield [index]

    dataset = [np.full(shape, index, np.float64) for index in range(40)]
    with FORK.loader(dataset, batch_sampler=Order(), **options) as loader:
        for number, batch in enumerate(loader):
            assert (batch == number).all()
            if number == 20:
                assert len(drawn) - (number + 1) == (4 if "prefetch" in options else window)


class Noted(Images):
    """Images that note in a file when they are read."""

    def __init__(self, size, path):
        super().__init__(size)
        self.path = path

    def __getitem__(self, index):
        with open(self.path, "a") as file:
            print(index, file=file)
        return super().__getitem__(index)


def test_with_nothing_else_in_flight_a_large_batch_is_asked_for_at_once(tmp_path):
    log = tmp_path / "log"
    with ONE_FORK.loader(Noted(80, log), 16, prefetch=1) as loader:
        iterator = iter(loader)
        for number in range(4):
            kept = next(iterator)
            assert kept[0, 0] == 16 * number
            assert eventually(lambda done=16 * (number + 2): len(log.read_text().split()) == done), "while it is used"


def test_batches_larger_than_their_share_make_the_window_smaller(process_way):
    with process_way.loader(Images(40), 10, memory_limit="24MB", prefetch=8) as loader:
        for _ in range(2):
            assert [int(batch[0, 0]) for batch in loader] == [0, 10, 20, 30]
            assert slab_bytes() <= 24 * MB


def test_a_batch_larger_than_the_limit_is_an_error_that_says_so(process_way):
    with (
        process_way.loader(Images(12), 6, memory_limit="4MB") as loader,
        pytest.raises(
            gl.errors.SharedMemoryError, match=r"batch 0 of epoch 0 needs 6,\d+,\d+ bytes, but memory_limit=4,194,304"
        ),
    ):
        next(iter(loader))


def test_without_a_limit_kept_batches_are_lent_only_so_far():
    with FORK.loader(Images(100), 1) as loader:
        kept = list(loader)
        assert slab_bytes() <= 40 * 1.1 * MB
        assert [int(batch[0, 0]) for batch in kept] == list(range(100))
        del kept
        for _ in loader:
            pass
        assert slab_bytes() <= 12 * 1.1 * MB  # what was lent is given back, not kept for ever


def test_uneven_batches_under_a_limit():
    sizes = [3, 900_000, 5, 2_500_000, 7, 11, 3_900_000, 1] * 6
    with FORK.loader(
        [np.full(size, size % 127, np.uint8) for size in sizes], 1, memory_limit="16MB", prefetch=6
    ) as loader:
        for _ in range(2):
            for size, batch in zip(sizes, loader, strict=True):
                assert batch.shape == (1, size)
                assert (batch == size % 127).all()
                assert slab_bytes() <= 16 * MB


class Ragged:
    """Sample i has `sizes[i]` bytes, all equal to i modulo 251."""

    def __init__(self, sizes):
        self.sizes = sizes

    def __len__(self):
        return len(self.sizes)

    def __getitem__(self, index):
        return np.full(self.sizes[index], index % 251, np.uint8)


def shared_bytes(batches):
    """Shared memory that batches of one array use, in whole pages; a private copy uses none."""
    loans = {id(batch.base): batch.base for batch in batches if isinstance(batch.base, Lent)}
    return sum(-(-loan.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE for loan in loans.values())


def error_of(call):
    """What the call returns, or the SharedMemoryError that it raises."""
    try:
        return call()
    except gl.errors.SharedMemoryError as error:
        return error.with_traceback(None)  # which refers to what the call has used


def read_and_keep(loader, sizes, kept_at_a_time):
    """Reads batches of one array each, keeps some, and returns the sizes of those that were refused.

    Checks that no batch is refused that fits beside the batches that are kept, and that the limit holds.
    """
    limit, iterator, kept, refused = loader.stats().memory.limit, iter(loader), [], []
    for number, (size, keep) in enumerate(zip(sizes, kept_at_a_time, strict=True)):
        batch = error_of(lambda: next(iterator))
        if isinstance(batch, gl.errors.SharedMemoryError):
            least = max(size + 512, 64 * 1024) + 2 * mmap.PAGESIZE  # with task and head, in whole pages
            assert shared_bytes(kept) + least > limit, f"{batch}, but it fits"
            assert re.search(r"make the batches smaller \(batch_size\)", str(batch))
            refused.append(size)
        else:
            assert batch.shape == (1, size)
            assert (batch == number % 251).all()
            kept.append(batch)
        del batch
        assert slab_bytes() <= limit
        del kept[: len(kept) - keep]
        assert all((batch == batch[0, 0]).all() for batch in kept)
    assert next(iterator, None) is None
    return refused


@pytest.mark.slow
@settings(max_examples=LIMITS, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    limit=st.integers(1 * MB, 4 * MB),
    batches=st.lists(st.tuples(st.integers(1, 22), st.floats(1, 2), st.integers(0, 5)), min_size=1, max_size=40),
    workers=st.integers(1, 2),
    prefetch=st.one_of(st.none(), st.integers(1, 6)),
)
def test_no_batch_that_fits_is_refused_and_the_limit_holds(limit, batches, workers, prefetch):
    sizes = [int((1 << power) * factor) for power, factor, _ in batches]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # some are private copies
        with FORK.loader(Ragged(sizes), 1, num_workers=workers, memory_limit=limit, prefetch=prefetch) as loader:
            read_and_keep(loader, sizes, [keep for _, _, keep in batches])


@pytest.mark.parametrize("prefetch", [1, 2, None])
def test_small_batches_are_not_refused_after_large_ones_while_one_is_kept(prefetch):
    sizes = [8000 << power for power in range(10)] * 3  # up to 4,096,000 bytes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with FORK.loader(Ragged(sizes), 1, memory_limit="4MB", prefetch=prefetch) as loader:
            refused = read_and_keep(loader, sizes, [1] * len(sizes))
            assert set(refused) <= {4_096_000}  # it does not fit beside one of 2,048,000


def test_a_batch_that_does_not_fit_beside_those_that_are_kept_is_made_as_soon_as_they_are_deleted():
    sizes = [1_800_000, 3_000_000, 3_000_000]
    with ONE_FORK.loader(Ragged(sizes), 1, memory_limit="4MB", prefetch=1) as loader:
        iterator = iter(loader)
        kept = next(iterator)
        text = (
            r"batch 1 of epoch 0 needs 3,00\d,\d+ bytes, but batches that you keep use 1,80\d,\d+ of memory_limit="
            r"4,194,304 bytes; keep fewer batches, make the batches smaller \(batch_size\), or raise memory_limit"
        )
        with pytest.raises(gl.errors.SharedMemoryError, match=text):
            next(iterator)
        del kept
        assert next(iterator).shape == (1, 3_000_000)


def padded(samples):
    batch = gl.empty((len(samples), max(map(len, samples)) + 1), np.int64)
    batch[:] = -1
    for row, sample in zip(batch, samples):
        row[: len(sample)] = sample
    return {"views": (batch[:, :-1], batch.T), "same": batch, "other": np.arange(3)}


def test_batchify_functions_may_write_into_the_batch_and_return_views_of_it(process_way):
    with process_way.loader([[1, 2, 3], [4], [5, 6]], 2, batchify_fn=padded) as loader:
        first, second = loader
    assert first["views"][0].tolist() == [[1, 2, 3], [4, -1, -1]]
    assert first["views"][1].tolist() == [[1, 4], [2, -1], [3, -1], [-1, -1]]
    assert first["same"].tolist() == [[1, 2, 3, -1], [4, -1, -1, -1]]
    assert np.shares_memory(first["same"], first["views"][0])
    assert second["other"].tolist() == [0, 1, 2]


class Keeps(gl.Dataset):
    """Makes the arrays of its samples with functions of the library, and keeps them for all epochs."""

    def __init__(self, length):
        self.length, self.kept = length, {}

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index not in self.kept:
            self.kept[index] = gl.default_batchify([np.full((3, 5), index), np.full((3, 5), -index)])
        return self.kept[index]


class ReadsAhead:
    def __iter__(self):
        kept = Keeps(100)
        samples = [kept[index] for index in range(50)]
        for index in range(50, 100):
            samples.append(kept[index])
            yield samples.pop(0)
        yield from samples


def joined_with_bulk_reads():
    return Keeps(90) + gl.ArrayDataset(np.array([np.full((2, 3, 5), index) for index in range(90, 100)]))


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (lambda: Keeps(100), {}),
        (lambda: Keeps(100), {"concurrency": 2}),
        (joined_with_bulk_reads, {}),
        (lambda: gl.IterableDataset(ReadsAhead()), {}),
    ],
    ids=["one by one", "concurrency", "joined with bulk reads", "iterable"],
)
def test_datasets_may_keep_arrays_that_functions_of_the_library_make(make, options, way):
    with way.loader(make(), 4, **options) as loader:
        for _ in range(3):
            samples = [sample for batch in loader for sample in batch]
            assert sorted(sample[0].min() for sample in samples) == list(range(100))
            assert all(np.ptp(sample[0]) == 0 for sample in samples)


def padded_by_numpy(samples):
    lengths = np.array(list(map(len, samples)))
    batch = gl.empty((len(samples), lengths.max()), np.float32)
    batch[:] = 0
    for row, sample in zip(batch, samples):
        row[: len(sample)] = sample
    kept = gl.empty(np.int64(len(lengths)), np.int64)
    kept[:] = lengths
    return batch, kept


def test_shapes_may_be_numpys_ints(way):
    samples = [np.ones(length) for length in (3, 1, 30_000, 2)]
    with way.loader(samples, 2, batchify_fn=padded_by_numpy) as loader:
        for (batch, lengths), expected in zip(loader, ([3, 1], [30_000, 2]), strict=True):
            assert batch.shape == (2, max(expected))
            assert batch.sum(1).tolist() == lengths.tolist() == expected


def begin_at_pages(arrays):
    return all(array.__array_interface__["data"][0] % mmap.PAGESIZE == 0 for array in arrays)


def test_large_arrays_of_a_batch_begin_at_a_page(way):
    sizes = (40_000, 9_000, 90_000, 70_001)
    samples = [(np.full(size, i, np.int8), i, np.full((size, 3), i, np.int16)) for i, size in enumerate(sizes)]
    with way.loader(samples, batch_sampler=[[0, 0], [1] * 8, [2, 2, 2], [3]]) as loader:
        for first, numbers, second in loader:
            assert begin_at_pages((first, second))
            assert (first == numbers[:, None]).all()
            assert (second == numbers[:, None, None]).all()


def joined(samples):
    return np.concatenate(samples), len(samples), np.stack(samples)


def test_large_arrays_that_are_copied_to_the_parent_begin_at_a_page(process_way):
    samples = [np.full(50_000, i, np.uint8) for i in range(40)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # memory_limit: some are private copies
        with process_way.loader(samples, 2, batchify_fn=joined, memory_limit="2MB") as loader:
            batches = list(loader)
    assert all(begin_at_pages((joined, stacked)) for joined, _, stacked in batches)
    assert [int(stacked[1, 0]) for _, _, stacked in batches] == list(range(1, 40, 2))


def test_named_shared_memory_where_there_is_no_memfd(start_way, monkeypatch):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    with start_way.loader(Images(12), 3) as loader:
        for _ in range(2):
            assert [int(batch[0, 0]) for batch in loader] == [0, 3, 6, 9]


SMALL_SHM = """
import sys
sys.path[:0] = {path!r}
import os
import numpy as np
import gluonloader as gl
from samples import Images
assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize == 64 << 20
if not {memfd}:
    del os.memfd_create
with gl.DataLoader(Images(240), 40, num_workers=2, memory_limit={limit}) as loader:
    iterator, firsts = iter(loader), []
    while True:
        try:
            firsts.append(int(next(iterator)[0, 0]))
        except StopIteration:
            break
        except OSError as error:
            firsts.append(str(error))
print(firsts)
"""


@pytest.mark.spawn
@pytest.mark.parametrize(
    ("memfd", "limit", "expected"),
    [(True, None, "0, 40, 80"), (False, "'60MB'", "0, 40, 80"), (False, None, "No space left on device")],
)
def test_with_64_mb_of_dev_shm(memfd, limit, expected, tmp_path):
    script = tmp_path / "small.py"
    script.write_text(SMALL_SHM.format(path=sys.path, memfd=memfd, limit=limit))
    command = f"mount -t tmpfs -o size=64m tmpfs /dev/shm && exec {sys.executable} {script}"
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-m", "true"], capture_output=True).returncode:
        pytest.skip("needs the right to make a mount namespace")
    done = subprocess.run([unshare, "-m", "sh", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


FULL = """
import resource, sys
sys.path[:0] = sys.argv[1:]
import gluonloader as gl
from samples import Images
resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
with gl.DataLoader(Images(8), 4, num_workers=2) as loader:
    try:
        next(iter(loader))
    except OSError as error:
        print(type(error).__name__, error)
    with gl.DataLoader([1, 2], 2, num_workers=1) as small:
        print(next(iter(small)))
"""


@pytest.mark.spawn
def test_a_full_machine_is_an_os_error_that_says_so():
    done = subprocess.run([sys.executable, "-c", FULL, *sys.path], capture_output=True, text=True, timeout=60)
    assert "SharedMemoryError" in done.stdout, done.stderr
    assert "bytes of shared memory" in done.stdout
    assert "[1 2]" in done.stdout


def private_bytes(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


@pytest.mark.parametrize("way", NEW_INTERPRETERS, ids=str)
def test_a_large_dataset_is_not_copied_per_worker(way: Way):
    rows = 1024 if BIG else 256
    array = np.zeros((rows, MB // 8))
    array[:, 0] = np.arange(rows)
    with way.loader(gl.ArrayDataset([0] * 8, [1] * 8), 4) as loader:
        next(iter(loader))
        small = max(map(private_bytes, workers(loader)))
    with way.loader(gl.ArrayDataset(array, np.arange(rows)), 8) as loader:
        assert [int(first[0, 0]) for first, _ in [next(iter(loader))]] == [0]
        for first, label in loader:
            assert first[:, 0].tolist() == label.tolist()
        pids = workers(loader)
        grown = [(private_bytes(pid) - small) / MB for pid in pids]
    assert len(pids) == 2
    assert max(grown) < 50, grown


@pytest.mark.spawn
def test_workers_write_to_their_own_copy_of_the_dataset():
    with FORKSERVER.loader(Scribbler(), 1) as loader:
        assert sorted(set(np.concatenate(list(loader)).tolist())) == [0]


class Scribbler:
    """Writes to its array after reading it; no other sample must see that."""

    def __init__(self):
        self.data = np.zeros(20)

    def __len__(self):
        return 20

    def __getitem__(self, index):
        value = self.data[index]
        self.data[index] = 1
        return value


class LargeFirst:
    """The first batch is large, and made after four others: these wait in slabs whose memory it needs."""

    def __init__(self, log):
        self.log = log

    def __len__(self):
        return 60

    def __getitem__(self, index):
        if index == 0:
            assert eventually(lambda: self.log.exists() and self.log.stat().st_size >= 4, 30)
        else:
            with self.log.open("a") as file:
                file.write(".")
        return np.full(4_000_000 if index == 0 else 400_000, index, np.uint8)


def test_batches_that_wait_make_room_for_the_one_that_is_waited_for(tmp_path):
    with FORK.loader(LargeFirst(tmp_path / "log"), 1, memory_limit="6MB", prefetch=12) as loader:
        for index, batch in enumerate(loader):
            assert (batch == index).all()
            assert slab_bytes() <= 6 * MB


@pytest.mark.local
def test_idle_threads_keep_no_batch_of_an_iterator_that_was_deleted():
    made = []

    def batchify(samples):
        batch = np.stack(samples)
        made.append(weakref.ref(batch))
        return batch

    with THREAD.loader(Images(64), 8, batchify_fn=batchify, prefetch=4) as loader:
        iterator = iter(loader)
        next(iterator)
        assert eventually(lambda: len(made) == 5)  # the window is full
        del iterator
        assert eventually(lambda: all(batch() is None for batch in made))
