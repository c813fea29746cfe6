"""Slabs and their pool, without worker processes: growth, recycling, loans, and the memory limit."""

import contextlib
import errno
import gc
import mmap
import os
import re
import resource
import signal
import warnings

import numpy as np
import pytest
from conftest import examples, in_child
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from interrupting import Alarm, SignalAt, raise_alarm

from gluonloader.errors import SharedMemoryError
from gluonloader.frameworks import Lent
from gluonloader.memory.allocator import LARGE, Arena
from gluonloader.memory.loans import BatchBytes, Loan
from gluonloader.memory.reduce import rebuild, reduce
from gluonloader.memory.slab import HEADER, Slab, align, anonymous_file, reserve
from gluonloader.memory.slabs import SlabPool

KB = 1024


@pytest.fixture
def make_slab():
    slabs = []

    def make(size=4096):
        fd = anonymous_file()
        reserve(fd, size)
        slabs.append(Slab(len(slabs), fd, size))
        return slabs[-1]

    yield make
    for slab in slabs:
        if slab.fd >= 0:
            slab.close()


@pytest.fixture
def make_pool():
    pools = []

    def make(window=2, limit=None):
        pools.append(SlabPool(window, limit))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def bytes_of(slab):
    return np.ndarray((slab.size,), np.uint8, slab.memory)


def grow(slab, size):
    Arena(slab, HEADER, 1 << 20).empty((size - HEADER,), np.dtype(np.uint8))


def descriptors():
    gc.collect()
    return set(os.listdir("/dev/fd"))


def make_batch(slab, *arrays):
    """Writes a batch as a worker does; returns its head."""
    head = reduce(list(arrays), Arena(slab, HEADER, slab.allowance))
    assert head is not None
    return head


def delivered(pool, slab, *arrays):
    """The arrays of a batch that was made in a slab, as the program gets them."""
    head = make_batch(slab, *arrays)
    return rebuild(pool.lend(slab, head.offset + head.length), head)


def full(value, nbytes=LARGE):
    return np.full(nbytes, value, np.uint8)


def resident(slab):
    """Bytes of memory that the file of a slab takes."""
    return os.fstat(slab.fd).st_blocks * 512


# -- a slab -----------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**9), st.sampled_from([1, 2, 64, 4096]))
def test_align(offset, to):
    assert 0 <= align(offset, to) - offset < to
    assert align(offset, to) % to == 0


def test_a_slab_that_grows_keeps_its_bytes_and_its_old_views(make_slab):
    slab = make_slab(4096)
    old = bytes_of(slab)
    slab.control[2] = 12345
    grow(slab, 100_000)
    new = bytes_of(slab)
    assert slab.size >= 100_000
    assert slab.control[2] == 12345
    old[-1] = 99
    assert new[4095] == 99


def test_the_other_side_of_a_slab_sees_it_grow(make_slab):
    slab = make_slab(4096)
    other = Slab(slab.number, os.dup(slab.fd), slab.size)
    grow(slab, 100_000)
    bytes_of(slab)[-1] = 7
    other.map(slab.size)
    assert bytes_of(other)[-1] == 7
    other.close()


def test_views_outlive_their_slab(make_slab):
    slab = make_slab()
    head = reduce(np.arange(10), Arena(slab, HEADER, 4096))
    view = rebuild(Loan(slab.memory, slab.size, slab, 0), head)[2:]
    slab.close()
    gc.collect()
    assert view.tolist() == list(range(2, 10))


@pytest.mark.parametrize("has_memfd", [True, False])
def test_a_file_without_a_name_with_and_without_memfd(make_slab, monkeypatch, has_memfd):
    if has_memfd and not hasattr(os, "memfd_create"):
        pytest.skip("this system has no memfd")
    if not has_memfd:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    slab = make_slab()
    assert not os.get_inheritable(slab.fd)
    assert os.fstat(slab.fd).st_nlink == 0, "no name is left"
    head = reduce([np.arange(5000), "a"], Arena(slab, HEADER, 1 << 20))
    array, text = rebuild(BatchBytes(slab.memory, slab.size), head)
    assert array.tolist() == list(range(5000))
    assert text == "a"


def test_missing_memory_is_an_error_that_names_the_size(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(
        SharedMemoryError, match="1,000,000 bytes of shared memory do not fit into .*No space left.*memory_limit"
    ) as caught:
        reserve(0, 1_000_000)
    assert caught.value.errno == errno.ENOSPC


def test_the_limit_on_the_size_of_files_is_named():
    def reserve_more():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        reserve(anonymous_file(), 8192)

    text = in_child(reserve_more)
    assert text.startswith(f"SharedMemoryError({errno.EFBIG}, ")
    assert "8,192 bytes of shared memory exceed the limit on the size of files; raise it with `ulimit -f`" in text


@given(
    allowance=st.integers(4096, 40_000),
    lengths=st.lists(st.integers(1, 5000), min_size=1, max_size=6),
    parts=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), max_size=8),
)
def test_a_batch_needs_as_much_memory_whether_or_not_it_fits(allowance, lengths, parts):
    """Views count once, as tensors over the arrays of a batch do, and as `padded` of test_memory.py returns them."""

    def needed(allowance):
        fd = anonymous_file()
        reserve(fd, 4096)
        arena = Arena(Slab(0, fd, 4096), HEADER, allowance)
        arrays = [arena.empty((length,), np.dtype(np.uint8)) for length in lengths]
        views = [arrays[which % len(arrays)][start:] for which, start in parts]
        views = [np.asarray(memoryview(view)) if len(view) % 2 else view for view in views]
        assert (reduce([*arrays, *views], arena) is None) == arena.overflowed
        os.close(fd)
        return arena.needed

    assert needed(allowance) == needed(1 << 20)


# -- the pool ---------------------------------------------------------------------------------------------------------


@given(st.permutations(range(5)), st.lists(st.booleans(), min_size=5, max_size=5))
def test_slabs_are_free_after_their_last_view_died_in_any_order(order, through_views):
    pool = SlabPool(window=5, limit=None)
    held, slabs = {}, {}
    for number in range(5):
        slabs[number] = pool.take(100, 0)
        (array,) = delivered(pool, slabs[number], full(number))
        held[number] = array.view(np.int32)[1:][::-1] if through_views[number] else array
        del array
    assert len({slab.number for slab in slabs.values()}) == 5
    for number in order:
        del held[number]
        taken = pool.take(100, 0)
        assert taken is slabs[number], "the only slab without a view"
        held[number] = delivered(pool, taken, full(number))
    pool.close()


def test_no_slab_is_used_again_while_any_view_lives(make_pool):
    pool = make_pool()
    slab = pool.take(0, 0)
    first, second = delivered(pool, slab, full(1), full(2))
    del first
    others = [pool.take(0, 0) for _ in range(3)]
    assert slab not in others
    del second
    assert pool.take(0, 0) is slab


def test_small_arrays_do_not_keep_their_slab(make_pool):
    pool = make_pool()
    slab = pool.take(0, 0)
    image, label = delivered(pool, slab, full(1, 1 << 20), full(2, 100))
    del image
    assert pool.take(0, 0) is slab
    make_batch(slab, full(3, 1 << 20), full(4, 100))
    assert (label == 2).all()


def test_a_batch_of_small_arrays_frees_its_slab_at_once(make_pool):
    pool = make_pool()
    slab = pool.take(0, 0)
    batch = delivered(pool, slab, full(1, 1000), full(2, 3000))
    assert pool.stats().lent == 0
    assert pool.take(0, 0) is slab
    make_batch(slab, full(3, 1000), full(4, 3000))
    assert [array[-1] for array in batch] == [1, 2]


@pytest.mark.parametrize("limit", [None, 60 << 20])
def test_the_memory_of_large_arrays_is_given_back_when_others_are_kept(make_pool, limit):
    pool, kept, slabs = make_pool(window=2, limit=limit), [], set()
    for number in range(15):
        slab = pool.take(0, 0)
        slabs.add(slab)
        _, mask, _ = delivered(pool, slab, full(number, 3 << 20), full(number, 100_000), full(number, 1 << 20))
        kept.append(mask)
        del mask
    assert len(slabs) == 15
    assert sum(map(resident, slabs)) < 15 * 120_000 + 5 * (4 << 20)
    assert pool.stats().nbytes < 15 * 120_000 + 5 * (4 << 20)
    assert all((mask == number).all() for number, mask in enumerate(kept))
    kept.clear()
    taken = [pool.take(0, 0) for _ in range(2)]
    assert all(resident(slab) >= slab.size for slab in taken), "no slab lacks memory that a worker will write"
    assert sum(slab.fd >= 0 for slab in slabs) <= 5


def test_a_batch_whose_delivery_was_interrupted_can_be_rebuilt_later(make_pool):
    pool = make_pool()
    slab = pool.take(0, 0)
    head = make_batch(slab, full(1, 300_000), full(2, 200_000))
    source = pool.lend(slab, head.offset + head.length)
    rebuild(source, head)
    kept = [delivered(pool, pool.take(0, 0), full(number)) for number in range(10)]
    first, second = rebuild(source, head)
    assert (first == 1).all()
    assert (second == 2).all()
    assert len(kept) == 10


def test_a_slab_that_somebody_may_still_write_is_not_used_again(make_pool):
    pool = make_pool()
    slab = pool.take(0, 0)
    slab.inherited = True  # as for a worker that could not be killed
    pool.reclaim(slab)
    assert slab.fd == -1
    assert pool.take(0, 0) is not slab


def test_a_delivery_that_is_interrupted_anywhere_can_be_repeated(make_pool):
    before = signal.signal(signal.SIGALRM, raise_alarm)
    try:
        for size in (100, LARGE + 100):
            point, signalled = 0, True
            while signalled:
                pool = make_pool(window=1)
                slabs = [pool.take(0, 0) for _ in range(6)]
                head = make_batch(slabs[0], full(7, size))
                for slab in slabs[1:]:
                    pool.give_back(slab)  # as if a program had dropped many batches: more than stay free
                with SignalAt(point, signal.SIGALRM) as at, contextlib.suppress(Alarm):
                    pool.lend(slabs[0], head.offset + head.length)
                pool.recount({slabs[0].number})
                (array,) = rebuild(pool.lend(slabs[0], head.offset + head.length), head)
                assert (array == 7).all(), at.where
                point, signalled = point + 1, bool(at.where)
                pool.close()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_page_that_two_arrays_share_is_not_given_back(make_pool):
    pool = make_pool()
    slab = pool.take(0, 0)
    arena = Arena(slab, HEADER, slab.allowance)
    whole = arena.empty((400_000,), np.dtype(np.uint8))
    whole[...] = 7
    head = reduce([whole[:200_000], whole[200_000:]], arena)
    pool.has_grown(slab, slab.size)
    first, second = rebuild(pool.lend(slab, head.offset + head.length), head)
    del first
    kept = [delivered(pool, pool.take(0, 0), full(number)) for number in range(10)]
    assert resident(slab) < 300_000
    assert (second == 7).all()
    assert len(kept) == 10


def test_the_memory_of_kept_batches_is_given_back_after_their_pool_was_closed(make_pool):
    pool = make_pool()
    slab = pool.take(0, 0)
    image, mask = delivered(pool, slab, full(1, 3 << 20), full(2, 100_000))
    other = os.dup(slab.fd)
    pool.close()
    del image
    make_pool()
    assert os.fstat(other).st_blocks * 512 < 200_000
    os.close(other)
    assert (mask == 2).all()


def test_a_closed_block_frees_its_memory_although_a_worker_has_it_open(make_pool):
    pool = make_pool(window=1)
    slabs = [pool.take(0, 0) for _ in range(6)]
    others = {slab.number: os.dup(slab.fd) for slab in slabs}
    for slab in slabs:
        pool.give_back(slab)
    pool.take(0, 0)
    assert pool.retired
    assert [os.fstat(others[number]).st_blocks for number in pool.retired] == [0] * len(pool.retired)
    for other in others.values():
        os.close(other)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only a memfd can be sealed")
def test_no_process_can_shorten_a_block(make_pool):
    slab = make_pool().take(0, 0)
    with open(f"/proc/self/fd/{slab.fd}", "rb+") as other, pytest.raises(PermissionError):
        other.truncate(0)


def test_nothing_is_given_back_that_a_forked_child_may_read(make_pool):
    pool = make_pool()
    slab = pool.take(0, 0)
    image, mask = delivered(pool, slab, full(1, 3 << 20), full(2, 100_000))
    ready, go = os.pipe(), os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking while other tests' threads live
        child = os.fork()
    if child == 0:
        try:
            os.read(go[0], 1)
            os._exit(0 if (image == 1).all() and (mask == 2).all() else 1)
        finally:
            os._exit(2)
    del image
    kept = [delivered(pool, pool.take(0, 0), full(1)) for _ in range(10)]
    pool.close()
    make_pool()
    os.write(go[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(kept) == 10
    for end in (*ready, *go):
        os.close(end)


def test_a_worker_gets_the_slab_that_it_wrote_last(make_pool):
    pool = make_pool(window=4)
    slabs = [pool.take(0, writer) for writer in range(4)]
    for slab in slabs:
        pool.give_back(slab)
    assert [pool.take(0, writer) for writer in (2, 0, 3, 1)] == [slabs[writer] for writer in (2, 0, 3, 1)]


def test_a_slab_with_room_for_a_batch_comes_before_one_that_would_have_to_grow(make_pool):
    pool = make_pool(window=4)
    small, large = pool.take(0, writer=0), pool.take(0, writer=1)
    Arena(large, HEADER, large.allowance).empty((20 << 20,), np.dtype(np.uint8))
    pool.has_grown(large, large.size)
    pool.give_back(large)
    pool.give_back(small)
    assert pool.take(0, writer=0) is large
    assert pool.take(0, writer=1) is small


def test_a_task_of_any_size_has_room(make_pool):
    pool = make_pool()
    pool.give_back(pool.take(10, 0))
    slab = pool.take(500_000, 0)
    assert slab.size >= HEADER + 500_000


def test_a_private_copy_frees_its_slab_at_once(make_pool):
    pool = make_pool()
    slab = pool.take(0, 0)
    bytes_of(slab)[64:1000] = 7
    copy = pool.copy_out(slab, 1000)
    assert pool.take(0, 0) is slab
    bytes_of(slab)[64:1000] = 8
    assert bytes(copy.view[64:]) == b"\7" * 936
    head = make_batch(slab, full(3, 200_000))
    (array,) = rebuild(pool.copy_out(slab, head.offset + head.length), head)
    assert array.ctypes.data % mmap.PAGESIZE == 0


def test_without_a_limit_a_user_who_keeps_all_batches_gets_copies_in_the_end_and_no_warning(make_pool):
    pool, held, slabs = make_pool(window=2), [], set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(60):
            slab = pool.take(0, 0)
            slabs.add(slab.number)
            held.append(delivered(pool, slab, full(number))[0])
    assert 2 + 16 <= len(slabs) < 30
    assert all((array == number).all() for number, array in enumerate(held))


def test_batches_that_are_kept_leave_descriptors_for_others(make_pool):
    pool, held, others = make_pool(window=30), [], [os.dup(0)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = max(map(int, descriptors()))
    while others[-1] < most:
        others.append(os.dup(0))  # so that no lower number is free
    resource.setrlimit(resource.RLIMIT_NOFILE, (others[-1] + 40, hard))
    try:
        for number in range(40):
            held.append(delivered(pool, pool.take(0, 0), full(number))[0])
        others += [os.dup(0) for _ in range(10)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for other in others:
            os.close(other)
    assert all((array == number).all() for number, array in enumerate(held))
    slab = pool.take(0, 0)
    assert np.shares_memory(delivered(pool, slab, full(1))[0], bytes_of(slab)), "there is room again"


def test_past_the_limit_batches_are_copies_with_one_warning(make_pool):
    pool, held = make_pool(window=2, limit=1024 * KB), []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for number in range(40):
            held.append(delivered(pool, pool.take(0, 0), full(number, 70 * KB))[0])
    (warning,) = warned
    assert warning.category is RuntimeWarning
    assert re.match(
        "memory_limit=1,048,576 bytes: [0-9,]+ bytes are used by batches that you keep", str(warning.message)
    )
    assert all((array == number).all() for number, array in enumerate(held))


def test_past_the_limit_there_is_no_slab_until_one_comes_back(make_pool):
    pool = make_pool(window=1, limit=256 * KB)
    flying = []
    while (slab := pool.take(0, 0)) is not None:
        flying.append(slab)
    assert flying
    assert sum(slab.allowance for slab in flying) <= 256 * KB
    pool.give_back(flying.pop())
    assert pool.take(0, 0) is not None


def test_a_task_larger_than_the_limit_is_an_error(make_pool):
    text = "memory_limit=262,144 bytes: one batch needs at least 365,664 bytes; raise memory_limit"
    with pytest.raises(SharedMemoryError, match=text):
        make_pool(window=1, limit=256 * KB).take(300_000, 0)


@pytest.mark.parametrize("limit", [1_048_576, 1_050_000, 300_001])
def test_a_task_that_just_fits_gets_a_slab_even_if_the_limit_is_no_multiple_of_the_page_size(make_pool, limit):
    pool = make_pool(window=1, limit=limit)
    most = limit // mmap.PAGESIZE * mmap.PAGESIZE - HEADER - 64 * KB  # memory consists of whole pages
    slab = pool.take(most, 0)
    assert HEADER + most <= slab.size <= slab.allowance <= limit
    with pytest.raises(SharedMemoryError, match="raise memory_limit"):
        pool.take(most + 1, 0)


def test_a_batch_that_needs_more_is_allowed_more_up_to_the_limit(make_pool):
    pool = make_pool(window=4, limit=1024 * KB)
    slab = pool.take(0, 0)
    assert slab.allowance < 700 * KB
    pool.give_back(slab)
    assert pool.demand(700 * KB)
    assert pool.take(0, 0).allowance >= 700 * KB
    assert not pool.demand(1025 * KB)


def test_a_slab_that_could_not_be_made_costs_nothing(make_pool, monkeypatch):
    pool = make_pool(window=1, limit=256 * KB)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = descriptors()
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", full)
        for _ in range(10):
            with pytest.raises(SharedMemoryError):
                pool.take(0, 0)
    assert not descriptors() - before
    assert pool.take(0, 0) is not None


def test_closing_frees_descriptors_and_leaves_delivered_batches(make_pool):
    before = descriptors()
    pool = SlabPool(2, None)
    slab = pool.take(0, 0)
    batch = delivered(pool, slab, full(5))
    pool.take(0, 0)
    pool.close()
    del slab
    assert (batch[0] == 5).all()
    del batch
    assert not descriptors() - before


def test_a_slab_on_loan_at_a_fork_is_not_used_again(make_pool):
    pool = make_pool()
    lent, free = pool.take(0, 0), pool.take(0, 0)
    batch = delivered(pool, lent, full(7))
    pool.give_back(free)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking while other tests' threads live
        child = os.fork()
    if child == 0:
        try:
            closed = lent.fd < 0 and free.fd < 0
            os._exit(0 if closed and (batch[0] == 7).all() else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    del batch
    assert pool.take(0, 0) is free
    assert pool.take(0, 0) is not lent
    assert pool.retired == [lent.number]
    assert lent.fd < 0


class Pool(RuleBasedStateMachine):
    """Batches are made, delivered, kept and dropped in any order, under a limit.

    Batches that are kept never change, and the slabs' files together are never larger than the limit.
    """

    @initialize(window=st.integers(1, 4), limit=st.integers(300 * KB, 2000 * KB))
    def start(self, window, limit):
        self.pool, self.limit = SlabPool(window, limit), limit
        self.slabs, self.flying, self.held = {}, [], []
        self.batches = self.warnings = 0

    @rule(request=st.integers(0, 20 * KB), writer=st.integers(0, 2))
    def take(self, request, writer):
        slab = self.pool.take(request, writer)
        if slab is None:
            assert self.flying or self.held, "with nothing in flight or held there is room"
            return
        self.fly(slab, HEADER + request)

    @precondition(lambda self: not self.flying)
    @rule(needed=st.integers(0, 2000 * KB))
    def take_the_last_room(self, needed):
        limit = self.limit // mmap.PAGESIZE * mmap.PAGESIZE
        kept = sum(align(used, mmap.PAGESIZE) for _, _, used in self.held)
        least = max(needed, HEADER + 64 * KB)
        if least > limit:
            with pytest.raises(SharedMemoryError, match="raise memory_limit, or make the batches smaller"):
                self.pool.take(0, 0, needed, last_room=True)
            return
        slab = self.pool.take(0, 0, needed, last_room=True)
        assert (slab is not None) == (kept + least <= limit), (
            "what fits beside the batches that are kept is not refused"
        )
        if slab is not None:
            assert slab.allowance >= least
            self.fly(slab, HEADER)

    def fly(self, slab, start):
        assert slab.size >= start
        assert slab not in [flying for flying, _ in self.flying]
        self.slabs[slab.number] = slab
        self.flying.append((slab, start))

    @precondition(lambda self: self.flying)
    @rule(
        which=st.integers(0, 9), fill=st.sampled_from([0, 0.3, 0.7, 0.95, 0.97, 0.98, 0.99, 1, 1.1]), keep=st.booleans()
    )
    def deliver(self, which, fill, keep):
        slab, start = self.flying.pop(which % len(self.flying))
        arena = Arena(slab, start, slab.allowance)
        self.batches += 1
        batch = arena.empty((max(0, int((slab.allowance - start) * fill) - 700),), np.dtype(np.uint8))
        batch[...] = self.batches % 251
        head = reduce(batch, arena)
        if head is None:
            assert self.pool.demand(arena.needed) == (arena.needed <= self.limit // mmap.PAGESIZE * mmap.PAGESIZE)
            self.pool.give_back(slab)
            return
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            memory = self.pool.lend(slab, head.offset + head.length)
        self.warnings += len(caught)
        there = rebuild(memory, head)
        assert len(there) == len(batch)
        if keep:
            lent = isinstance(memory, Loan) and isinstance(there.base, Lent)
            self.held.append((there, self.batches % 251, memory.nbytes if lent else 0))

    @precondition(lambda self: self.flying)
    @rule(which=st.integers(0, 9))
    def lose(self, which):
        self.pool.give_back(self.flying.pop(which % len(self.flying))[0])

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 9))
    def drop(self, which):
        self.held.pop(which % len(self.held))

    @invariant()
    def held_batches_do_not_change(self):
        for array, value, _ in getattr(self, "held", ()):
            assert (array == value).all()

    @invariant()
    def memory_is_bounded(self):
        if hasattr(self, "pool"):
            sizes = {number: resident(slab) if slab.fd >= 0 else 0 for number, slab in self.slabs.items()}
            assert sum(sizes.values()) <= self.limit, sizes
            # All slabs in flight may grow at once.
            growth = sum(max(0, slab.allowance - slab.size) for slab, _ in self.flying)
            assert sum(sizes.values()) + growth <= self.limit
            assert self.warnings <= 1

    @invariant()
    def retired_slabs_are_closed(self):
        if hasattr(self, "pool"):
            assert all(self.slabs[number].fd < 0 for number in self.pool.retired)

    def teardown(self):
        if hasattr(self, "pool"):
            self.held.clear()
            self.pool.close()
            assert all(slab.fd < 0 for slab in self.slabs.values())


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=examples(60), stateful_step_count=30)
