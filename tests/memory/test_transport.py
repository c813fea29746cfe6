"""How a batch travels, without worker processes: reduce and rebuild, records, and packed jobs."""

import mmap
import os
import pickle
import threading
from collections import OrderedDict, namedtuple

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluonloader import DataLoader, default_batchify
from gluonloader.errors import SharedMemoryError, TransportError
from gluonloader.executors.lanes.messages import REPLY_BYTES, Reply, Request, RequestReader, Status, Verb, read_replies
from gluonloader.executors.process.mapped_job import pickle_for, read_job, write_job
from gluonloader.memory import slab as slab_module
from gluonloader.memory.allocator import ALIGNMENT, LARGE, Arena
from gluonloader.memory.loans import Loan
from gluonloader.memory.reduce import rebuild, reduce
from gluonloader.memory.slab import HEADER, Head, Slab, align, anonymous_file, reserve
from gluonloader.work.task import Job

Point = namedtuple("Point", ["x", "y"])
PLENTY = 1 << 24


class Tagged(np.ndarray):
    """A subclass of arrays, which NumPy pickles in its own way."""


def anonymous_file_of(size):
    fd = anonymous_file()
    reserve(fd, size)
    return fd


@pytest.fixture
def make_slab():
    slabs = []

    def make(size=4096):
        slabs.append(Slab(len(slabs), anonymous_file_of(size), size))
        return slabs[-1]

    yield make
    for slab in slabs:
        slab.close()


def mapped(slab):
    """The parent's own mapping of the slab."""
    return mmap.mmap(slab.fd, os.fstat(slab.fd).st_size)


def source_of(slab, head, least=LARGE):
    """From which the parent rebuilds the batch; arrays of at least `least` bytes are lent, others are copied."""
    return Loan(mapped(slab), head.offset + head.length, slab, least)


def there_and_back(batch, slab):
    head = reduce(batch, Arena(slab, HEADER, PLENTY))
    return rebuild(source_of(slab, head), head)


def address(array):
    return array.__array_interface__["data"][0]


def check_same(value, other):
    assert type(value) is type(other)
    if isinstance(value, np.ndarray):
        # NumPy's own pickles, of subclasses and in jobs, may come back in native byte order.
        native = value.dtype.newbyteorder("=")
        assert native == other.dtype.newbyteorder("=")
        assert value.shape == other.shape
        if native.hasobject:
            assert repr(value.tolist()) == repr(other.tolist())
        else:
            assert value.astype(native).tobytes() == other.astype(native).tobytes()
    elif isinstance(value, dict):
        assert list(value) == list(other)
        for key in value:
            check_same(value[key], other[key])
    elif isinstance(value, (list, tuple)):
        assert len(value) == len(other)
        for one, two in zip(value, other, strict=True):
            check_same(one, two)
    else:
        assert value == other


dtypes = st.one_of(
    hnp.boolean_dtypes(), hnp.integer_dtypes(endianness="?"), hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(), hnp.datetime64_dtypes(), hnp.timedelta64_dtypes(), hnp.unicode_string_dtypes(),
    hnp.byte_string_dtypes(), st.sampled_from([np.dtype([("a", "<i2"), ("b", ">f8", (2,))]), np.dtype("V3")]),
)  # fmt: skip
layouts = st.sampled_from([
    lambda a: a, np.asfortranarray, lambda a: a[::-1] if a.ndim else a, lambda a: a[..., ::2] if a.ndim else a,
    lambda a: np.broadcast_to(a, (2, *a.shape)), lambda a: a.astype(object), lambda a: a.view(Tagged),
])  # fmt: skip


@st.composite
def arrays(draw):
    dtype, shape = draw(dtypes), draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    values = np.random.default_rng(draw(st.integers(0, 99))).integers(48, 58, (*shape, dtype.itemsize), np.uint8)
    if dtype.kind == "U":
        return draw(layouts)(np.full(shape, "text", dtype))
    if dtype.kind == "b":
        values = values % 2
    return draw(layouts)(np.frombuffer(values.tobytes(), dtype, int(np.prod(shape))).reshape(shape))


leaves = st.one_of(arrays(), st.text(max_size=5), st.binary(max_size=5), st.integers(), st.none(), st.booleans())
batches = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.tuples(inner, inner), st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.builds(Point, inner, inner), st.builds(lambda value: OrderedDict(b=value, a=1), inner),
    ),
    max_leaves=8,
)  # fmt: skip


# -- reduce and rebuild -----------------------------------------------------------------------------------------------


@given(batches)
def test_batches_come_back_equal(batch):
    slab = Slab(0, anonymous_file_of(4096), 4096)
    check_same(there_and_back(batch, slab), batch)
    slab.close()


@given(st.lists(arrays().filter(lambda array: type(array) is np.ndarray and not array.dtype.hasobject), max_size=5))
def test_arrays_are_aligned_views_of_the_slab_if_the_batch_is_lent_as_a_whole(batch):
    slab = Slab(0, anonymous_file_of(4096), 4096)
    head = reduce(batch, Arena(slab, HEADER, PLENTY))
    source = source_of(slab, head, least=0)
    memory = np.frombuffer(source.view, np.uint8)
    for array in rebuild(source, head):
        at = address(array) - address(memory)
        assert HEADER <= at
        assert at + array.nbytes <= head.offset
        assert at % ALIGNMENT == 0
        assert array.flags.c_contiguous
        assert array.flags.writeable
        if array.size:
            assert np.shares_memory(array, memory)
    slab.close()


@given(batches, st.sampled_from([0, 1, 10, 1 << 62]))
def test_batches_come_back_equal_whatever_is_lent_and_copied(batch, least):
    slab = Slab(0, anonymous_file_of(4096), 4096)
    head = reduce(batch, Arena(slab, HEADER, PLENTY))
    check_same(rebuild(source_of(slab, head, least), head), batch)
    slab.close()


VIEWS = {
    "whole": lambda a: a,
    "slice": lambda a: a[2:5],
    "one axis less": lambda a: a[1],
    "reshaped": lambda a: a.reshape(-1),
    "transposed": lambda a: a.T,
    "backwards": lambda a: a[::-1, ::-1],
    "strided": lambda a: a[::3, 1::2],
    "other dtype": lambda a: a.view(np.uint8),
    "broadcast": lambda a: np.broadcast_to(a[0, :7], (4, 7)),
    "view of a view": lambda a: a[1:].T[::-1][2:4],
    "empty": lambda a: a[8:],
    "0-d": lambda a: a[3, 4, ...],
}


@pytest.mark.parametrize("grown", [False, True], ids=["as it was", "grown in between"])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_arrays_made_in_the_arena_and_views_of_them_are_not_copied(make_slab, view, grown):
    slab = make_slab()
    arena = Arena(slab, HEADER, PLENTY)
    made = arena.empty((8, 7), np.dtype(np.int32))
    made[...] = np.arange(56).reshape(8, 7)
    if grown:
        arena.empty((100_000,), np.dtype(np.uint8))
        assert slab.size > 100_000
    needed = arena.needed
    batch = view(made)
    head = reduce(batch, arena)
    assert arena.needed - needed < 64 + 400, "only the head was added"
    there = rebuild(source_of(slab, head, least=0), head)
    check_same(there, batch)
    if batch.size:
        made[...] += 1000  # shared, so the change is seen on the other side
        check_same(there, batch)
    assert there.strides == batch.strides or not batch.size


def test_an_empty_array_backwards_starts_after_the_end_of_its_batch(make_slab):
    slab = make_slab()
    arena = Arena(slab, HEADER, PLENTY)
    head = reduce(arena.empty((64, 0, 4), np.dtype(np.float64))[::-1], arena)
    assert rebuild(source_of(slab, head), head).shape == (64, 0, 4)


@pytest.mark.filterwarnings("ignore:Setting the strides:DeprecationWarning")
def test_an_array_made_in_the_arena_may_get_other_strides(make_slab):
    slab = make_slab()
    arena = Arena(slab, HEADER, PLENTY)
    batch = arena.empty((2, 3), np.dtype(np.int64))
    batch[...] = np.arange(6).reshape(2, 3)
    batch.strides = (8, 16)
    head = reduce(batch, arena)
    assert rebuild(source_of(slab, head), head).tolist() == [[0, 2, 4], [1, 3, 5]]


SIZES = {"small": (8, 7), "large": (300, 400)}


@pytest.mark.parametrize("container", [list, lambda arrays: [*arrays, "text"]], ids=["arrays", "pickled"])
@pytest.mark.parametrize("shape", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_arrays_that_share_memory_in_the_worker_share_it_in_the_program(make_slab, view, shape, container):
    slab = make_slab()
    arena = Arena(slab, HEADER, PLENTY)
    arena.empty((5,), np.dtype(np.uint8))
    made = arena.empty(shape, np.dtype(np.int32))
    made[...] = np.arange(made.size).reshape(shape)
    alone = np.arange(30)
    head = reduce(container([view(made), alone, made, alone]), arena)
    part, one, whole, other = rebuild(source_of(slab, head), head)[:4]
    check_same(part, view(made))
    check_same(whole, made)
    check_same(one, alone)
    assert np.shares_memory(part, whole) == bool(part.size)
    assert np.shares_memory(one, other)
    whole[...] += 1000
    check_same(part, view(whole))


def test_small_arrays_are_copied_and_large_ones_are_not(make_slab):
    slab = make_slab()
    head = reduce({"x": np.zeros(LARGE, np.uint8), "y": np.zeros(LARGE - 1, np.uint8)}, Arena(slab, HEADER, PLENTY))
    source = source_of(slab, head)
    batch = rebuild(source, head)
    assert [np.shares_memory(array, np.frombuffer(source.view, np.uint8)) for array in batch.values()] == [True, False]


def test_arrays_made_in_the_arena_are_aligned_and_apart(make_slab):
    slab = make_slab()
    arena = Arena(slab, HEADER + 5, PLENTY)
    made = [
        arena.empty((size,), np.dtype(np.uint8)) for size in (1, 0, 63, 64, 65, 4097, 10_000, 3, 70_000, 5, 1 << 16)
    ]
    for number, array in enumerate(made):
        array[...] = number
    head = reduce(made, arena)
    back = rebuild(source_of(slab, head, least=0), head)
    for number, array in enumerate(back):
        assert (array == number).all()
        assert address(array) % (ALIGNMENT if array.nbytes < 1 << 16 else mmap.PAGESIZE) == 0


def test_an_array_twice_in_a_batch_takes_its_room_once(make_slab):
    arena = Arena(make_slab(), HEADER, PLENTY)
    array = np.ones(10_000, np.uint8)
    assert reduce([array] * 5, arena)
    assert arena.needed < 12_000


@pytest.mark.parametrize("value", [
    pickle.PickleBuffer(bytearray(b"abc" * 100)),
    pickle.PickleBuffer(b"abc" * 100),
    bytearray(b"abc"),
    np.arange(6.0).view(Tagged),
    np.arange(12.0).reshape(3, 4).T.view(Tagged),
    np.arange(12.0).reshape(3, 4)[:, ::2].view(Tagged),
    np.rec.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")]),
    np.ma.masked_array([1, 2, 3], [False, True, False]),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_other_types_that_offer_their_buffers(make_slab, value):
    there = there_and_back({"value": value, "again": [value, np.arange(3)]}, make_slab())["value"]
    if isinstance(value, pickle.PickleBuffer):
        assert bytes(there) == bytes(value)
    elif isinstance(value, np.ma.MaskedArray):
        assert there.mask.tolist() == value.mask.tolist()
        assert there.filled(0).tolist() == value.filled(0).tolist()
    else:
        assert type(there) is type(value)
        assert bytes(there) == bytes(value)


def test_buffers_out_of_band_are_not_copied_into_the_head(make_slab):
    head = reduce([pickle.PickleBuffer(bytearray(100_000)), np.zeros(100_000)], Arena(make_slab(), HEADER, PLENTY))
    assert head.length < 1000


@pytest.mark.parametrize("dtype", [">i2", "=U3", "S2", "M8[25s]", "m8", "V3", "?", [("a", ">i2"), ("b", "f8", 2)]])
def test_plain_arrays_keep_their_dtype_exactly(make_slab, dtype):
    array = np.zeros(3, dtype)
    assert there_and_back(array, make_slab()).dtype.descr == array.dtype.descr


def test_a_dtype_with_metadata_and_one_of_another_package_are_kept(make_slab):
    for unit in ("m", "s"):  # these dtypes are equal
        labelled = np.zeros(3, np.dtype("i4", metadata={"unit": unit}))
        assert there_and_back(labelled, make_slab()).dtype.metadata == {"unit": unit}
    for kind in (np.void, np.record):
        rows = np.zeros(3, (kind, [("a", "i4")]))
        assert there_and_back(rows, make_slab()).dtype.type is kind
    try:
        from numpy._core._rational_tests import rational
    except ImportError:
        from numpy.core._rational_tests import rational
    fractions = np.array([rational(1, 3), rational(2, 5)])
    there = there_and_back(fractions, make_slab())
    assert there.dtype == fractions.dtype
    assert there.tolist() == fractions.tolist()


@given(batch=batches, size=st.integers(128, 2048))
def test_a_batch_past_the_allowance_says_how_much_it_needs(batch, size):
    slab = Slab(0, anonymous_file_of(size), size)
    arena = Arena(slab, HEADER, size)
    head = reduce(batch, arena)
    assert (head is None) == arena.overflowed == (arena.needed > size)
    if head is None:
        slab.close()
        slab = Slab(0, anonymous_file_of(arena.needed), arena.needed)
        head = reduce(batch, Arena(slab, HEADER, arena.needed))
        assert head is not None, "`needed` is enough"
    check_same(rebuild(source_of(slab, head), head), batch)
    slab.close()


def test_a_private_array_twice_past_the_allowance_is_counted_once(make_slab):
    arena = Arena(make_slab(), HEADER, 4096)
    assert reduce([np.ones(100_000, np.uint8), np.ones(3)], arena) is None
    once = arena.needed
    arena, array = Arena(make_slab(), HEADER, 4096), np.ones(100_000, np.uint8)
    assert reduce([array, array, np.ones(3)], arena) is None
    assert arena.needed < once + 1000


def test_a_slab_never_grows_past_its_allowance(make_slab):
    for allowance in range(1_000_000, 1_020_000, 5_000):
        slab = make_slab(990_000)
        arena = Arena(slab, HEADER, allowance)
        while not arena.overflowed:
            arena.empty((1000,), np.dtype(np.uint8))
        assert os.fstat(slab.fd).st_size <= align(allowance, mmap.PAGESIZE)


@pytest.mark.parametrize(
    ("batch", "path", "kind"),
    [
        ({"a": [1, (2, threading.Lock())]}, r"\['a'\]\[1\]\[1\]", "_thread.lock"),
        ([np.zeros(3), lambda: 0], r"\[1\]", "builtins.function"),
        ({("k", 1): {"x": (i for i in ())}}, r"\[\('k', 1\)\]\['x'\]", "builtins.generator"),
        (threading.Lock(), "it", "_thread.lock"),
        ([np.array([1, threading.Lock()], object)], r"\[0\]", "numpy.ndarray"),
    ],
)
def test_what_cannot_be_pickled_is_named(make_slab, batch, path, kind):
    with pytest.raises(TransportError, match=rf"{path} is a {kind}, which cannot be pickled"):
        reduce(batch, Arena(make_slab(), HEADER, PLENTY))


class Exhausted:
    def __reduce__(self):
        return next, (iter(()),)


def test_a_class_that_raises_stop_iteration_when_it_is_unpickled_does_not_end_the_epoch(make_slab):
    slab = make_slab()
    head = reduce([Exhausted()], Arena(slab, HEADER, PLENTY))
    with pytest.raises(RuntimeError, match="unpickling the batch raised StopIteration"):
        rebuild(source_of(slab, head), head)


def test_missing_memory_is_not_reported_as_an_unpicklable_batch(make_slab, monkeypatch):
    def full(fd, size):
        raise SharedMemoryError(28, f"no room for {size} bytes")

    arena = Arena(make_slab(), HEADER, PLENTY)
    monkeypatch.setattr(slab_module, "reserve", full)
    with pytest.raises(SharedMemoryError, match="no room"):
        reduce([np.zeros(100_000)], arena)


# -- records ----------------------------------------------------------------------------------------------------------

words = st.integers(0, 2**64 - 1)
numbers = st.integers(0, 2**32 - 1)
requests = st.builds(Request, st.sampled_from(Verb), st.booleans(), st.booleans(), numbers, words, words, words, words)
replies = st.builds(Reply, st.sampled_from(Status), numbers, words, words, st.builds(Head, words, words, words))


class Replies:
    """Reads replies as a lane does: what was read is removed from the socket, a part of a reply stays there."""

    def __init__(self):
        self.socket = b""

    def read(self, data):
        self.socket += data
        received = read_replies(self.socket)
        self.socket = self.socket[len(received) * REPLY_BYTES :]
        return received


@pytest.mark.parametrize(("records", "reader"), [(requests, RequestReader), (replies, Replies)])
@given(data=st.data())
def test_records_come_whole_however_the_stream_is_cut(records, reader, data):
    sent = data.draw(st.lists(records, max_size=6))
    stream = b"".join(record.encode() for record in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    read, received = reader(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += read.read(stream[start:end])
    assert received == sent


# -- jobs -------------------------------------------------------------------------------------------------------------


def job_of(dataset):
    return Job(dataset, default_batchify, None, num_workers=1, seed=0)


@given(batches)
def test_a_packed_job_comes_back_equal(dataset):
    packed = write_job(pickle_for("spawn", job_of(dataset)))
    try:
        check_same(read_job(packed).dataset, dataset)
    finally:
        os.close(packed.fd)


def test_a_jobs_arrays_are_shared_until_they_are_written():
    data = np.arange(100_000)
    packed = write_job(pickle_for("spawn", job_of([data, "text"])))
    try:
        assert packed.length < 1000 < data.nbytes < packed.size
        (one, text), (other, _) = read_job(packed).dataset, read_job(packed).dataset
        assert text == "text"
        assert address(one) % ALIGNMENT == 0
        assert not one.flags.owndata
        one[0] = -1
        assert other[0] == 0
        assert data[0] == 0
        assert one[1:].tolist() == other[1:].tolist()
    finally:
        os.close(packed.fd)


def test_an_on_error_function_that_cannot_be_pickled_is_named():
    with pytest.raises(TransportError, match="start_method='spawn' needs to pickle on_error, but this failed"):
        DataLoader([1, 2], 1, num_workers=1, start_method="spawn", on_error=lambda error, index: -1)


def test_a_job_that_cannot_be_pickled_leaves_no_descriptor():
    before = set(os.listdir("/dev/fd"))
    with pytest.raises(TransportError, match="start_method='spawn' needs to pickle dataset, but this failed: .*lock"):
        pickle_for("spawn", job_of([np.zeros(10), threading.Lock()]))
    assert not set(os.listdir("/dev/fd")) - before
