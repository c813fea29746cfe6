"""Batches: dtype, container, context, shape and class; what a batchify_fn may return; MXNet's NumPy mode."""

from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import outcome

from .sides import BFLOAT16, CONTEXTS, GLUON, OURS, WAYS, batch_of, facts, lists, mx

Pair = namedtuple("Pair", "first second")
FLOAT = np.float32
DTYPES = ["float16", "float32", "float64", "uint8", "int8", "int32", "int64", "bool"]


def nd(way, dtype, values):
    return "nd", CONTEXTS.get(way, way), dtype, values


def gluons(samples, context="cpu(0)"):
    """The batch that Gluon makes of some samples, in a context."""
    return facts(GLUON.dataloader.default_batchify_fn(samples), context)


def leaf(kind, dtypes, shape=()):
    """A function of the number of a sample."""
    if kind == "NDArray":
        return lambda i: mx.nd.ones(shape or (1,), dtype="uint8" if dtypes[0] == "bool" else dtypes[0]) * i
    if kind == "number":
        return lambda i: np.dtype(dtypes[i]).type(i).item()
    if kind == "list":
        return lambda i: [np.dtype(dtypes[i]).type(i).item()] * len(shape)
    return lambda i: np.full(shape, i, dtypes[i]) if kind == "array" else np.dtype(dtypes[i]).type(i)


LEAVES = st.builds(
    leaf,
    st.sampled_from(["array", "scalar", "number", "list", "NDArray"]),
    st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    st.lists(st.integers(1, 4), max_size=4).map(tuple),
)
STRUCTURES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4).map(tuple), max_leaves=8)


def sample(structure, i):
    return tuple(sample(part, i) for part in structure) if isinstance(structure, tuple) else structure(i)


@settings(max_examples=200)
@given(STRUCTURES)
def test_any_samples_are_the_batch_that_gluon_makes(structure):
    """Also of different dtypes, and of lists, which are one array. Both raise an error if MXNet lacks the dtype."""
    samples = [sample(structure, i) for i in (0, 1)]
    theirs, ours = outcome(gluons, samples), outcome(batch_of, OURS, samples)
    assert ours == theirs or (isinstance(ours, str) and isinstance(theirs, str))


class Picture:
    """Can be made an array, as an image of Pillow."""

    def __init__(self, value):
        self.pixels = np.full((2, 3), value, np.uint8)

    def __array__(self, dtype=None, copy=None):
        return self.pixels if dtype is None else self.pixels.astype(dtype)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "1.24.0", reason="NumPy did not make one array of pictures")
@pytest.mark.parametrize(
    "samples", [[[1, 2], np.zeros(2)], [[], np.zeros(0)], [Picture(1), Picture(2)], [(Picture(1), 3), (Picture(2), 4)]]
)
def test_what_can_be_made_an_array_is_stacked(samples):
    assert batch_of(OURS, samples) == gluons(samples)


@pytest.mark.parametrize("dtype", [">f4", ">i8"])
def test_foreign_byte_orders(gdata, dtype):
    assert batch_of(gdata, [np.array([i], dtype) for i in (0, 1)])[2:] == (np.dtype(dtype[1:]).name, [[0], [1]])


@pytest.mark.parametrize("dtype", ["uint16", "int16", "uint32", "uint64", "complex64"])
def test_a_dtype_that_mxnet_lacks_is_an_error(gdata, dtype):
    with pytest.raises((KeyError, TypeError), match=dtype):
        batch_of(gdata, [np.ones(2, dtype)] * 2)


def test_bfloat16(gdata):
    (batch,) = gdata.DataLoader([mx.nd.array([i, 1]).astype(BFLOAT16) for i in (0, 1)], 2)
    assert batch.dtype == BFLOAT16
    assert batch.astype("float32").asnumpy().tolist() == [[0, 1], [1, 1]]


CONTAINERS = {
    "bare": [FLOAT(0), FLOAT(1)],
    "dtypes": [tuple(np.array([i, 1], dtype) for dtype in DTYPES) for i in (0, 1)],
    "tuple": [(0, 0.5), (1, 1.5)],
    "tuple of one": [(0,), (1,)],
    "empty tuple": [(), ()],
    "named tuple": [Pair(0, True), Pair(1, False)],
    "nested": [(0, (1, np.ones(2, FLOAT)))] * 2,
    "list": [[0, 1], [2, 3]],
    "list of tuples": [[(0, 1)], [(2, 3)]],
    "list in a tuple": [([0, 1], 2), ([3, 4], 5)],
    "NDArray": [mx.nd.zeros(1), mx.nd.ones(1)],
    "NDArray and number": [(mx.nd.zeros(1), 5), (mx.nd.ones(1), 6)],
    "0-d": [np.array(0.0), np.array(1.0)],
    "one sample": [(7,)],
}


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.filterwarnings("ignore:pin_memory=True, but:RuntimeWarning")
def test_containers(gdata, way, pinned):
    samples = [sample for group in CONTAINERS.values() for sample in group]
    ends = np.cumsum([len(group) for group in CONTAINERS.values()]).tolist()
    indices = [list(range(end - len(group), end)) for group, end in zip(CONTAINERS.values(), ends)]
    batches = list(gdata.DataLoader(samples, batch_sampler=indices, pin_memory=pinned, **WAYS[way]))
    context = "cpu_pinned(0)" if pinned else CONTEXTS[way]
    for name, batch in zip(CONTAINERS, batches, strict=True):
        wanted = gluons(CONTAINERS[name], context)
        assert (name, facts(batch)) == (name, wanted)
        assert type(batch) is (mx.nd.NDArray if type(wanted) is tuple else type(wanted))


@pytest.mark.parametrize("kind", ["csr", "row_sparse"])
def test_sparse_samples_become_dense(gdata, kind):
    sample = mx.nd.array([[0, 2], [1, 0]]).tostype(kind)
    wanted = [nd("serial", "float32", [[[0, 2], [1, 0]]] * 2), nd("serial", "int64", [1, 1])]
    assert batch_of(gdata, [(sample, 1), (sample, 1)]) == wanted


def test_a_sample_with_a_gradient_gives_a_batch_without(gdata):
    sample = mx.nd.ones((2,))
    sample.attach_grad()
    (batch,) = gdata.DataLoader([sample, sample], 2)
    assert facts(batch) == nd("serial", "float32", [[1, 1], [1, 1]])
    assert batch.grad is None


SHAPES = [(8,), (28, 28), (3, 32, 32), (1, 2, 1, 3)]


def random_arrays(dtype, shape, count):
    """`count` arrays with values from 0 to 99, or of 0 and 1 for bool."""
    return (np.random.default_rng(0).random((count, *shape)) * 100).astype("uint8").astype(dtype)


@pytest.mark.parametrize("numpy_like", [False, True])
def test_ndarrays_of_any_dtype_and_shape(gdata, way, numpy_like):
    arrays = [random_arrays(dtype, shape, 5) for dtype in DTYPES for shape in SHAPES]
    arrays += [random_arrays(dtype, (3, 224, 300), 5) for dtype in ("float32", "uint8")]
    with mx.util.np_shape(numpy_like), mx.util.np_array(numpy_like):
        kind, new = (mx.np.ndarray, mx.np.array) if numpy_like else (mx.nd.NDArray, mx.nd.array)
        samples = [(*(new(array[i], dtype=array.dtype) for array in arrays), i) for i in range(5)]
        for start, batch in zip((0, 2, 4), gdata.DataLoader(samples, 2, **WAYS[way]), strict=True):
            for part, array in zip(batch, [*arrays, np.arange(5)], strict=True):
                assert (type(part), str(part.ctx), part.dtype) == (kind, CONTEXTS[way], array.dtype)
                np.testing.assert_array_equal(part.asnumpy(), array[start : start + 2])


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_large_arrays_of_numpy(gdata, way, dtype):
    images = random_arrays(dtype, (3, 224, 300), 3)
    (batch,) = gdata.DataLoader(list(images), 3, **WAYS[way])
    assert (type(batch), str(batch.ctx), batch.dtype) == (mx.nd.NDArray, CONTEXTS[way], images.dtype)
    np.testing.assert_array_equal(batch.asnumpy(), images)


def test_ndarrays_that_are_slices_or_still_being_computed(gdata, way):
    class Dataset:
        data = mx.nd.arange(60).reshape((4, 3, 5))

        def __len__(self):
            return 4

        def __getitem__(self, index):
            part = self.data[index]
            return part[1], part * 2 + 1, mx.nd.dot(part, part.T), part.reshape((-1,)), part.astype("int32")

    data = np.arange(60, dtype=FLOAT).reshape(4, 3, 5)
    wanted = [data[:, 1], data * 2 + 1, data @ data.transpose(0, 2, 1), data.reshape(4, 15), data.astype("int32")]
    (batch,) = gdata.DataLoader(Dataset(), 4, **WAYS[way])
    for part, array in zip(batch, wanted):
        assert (str(part.ctx), part.dtype, part.asnumpy().tolist()) == (CONTEXTS[way], array.dtype, array.tolist())


def test_ndarrays_without_axes_or_elements(gdata, way, np_mode):
    samples = [np_mode.array(i, dtype="float32") for i in (1, 2)]
    assert batch_of(gdata, samples, way) == ("np", CONTEXTS[way], "float32", [1, 2])
    (batch,) = gdata.DataLoader([np_mode.ones((0, 3)), np_mode.ones((0, 3))], 2)
    assert (type(batch), batch.shape, batch.dtype) == (np_mode.ndarray, (2, 0, 3), FLOAT)


def test_an_operation_that_fails_in_mxnets_engine_raises_an_error(gdata, way):
    class Dataset:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return mx.nd.random.normal(0, -1 if index == 1 else 1, (3,)), index

    with pytest.raises(mx.base.MXNetError, match="scale"):
        [lists(batch) for batch in gdata.DataLoader(Dataset(), 2, **WAYS[way])]


@pytest.mark.parametrize("make", [lambda zeros: zeros, lambda zeros: list(map(mx.nd.array, zeros))])
def test_batches_are_writable_and_apart_from_each_other_and_the_samples(gdata, way, make):
    data = make(np.zeros((4, 3), FLOAT))
    first, second = list(gdata.DataLoader(data, 2, **WAYS[way]))
    first[:] = 7
    first += 1
    assert (lists(first), lists(second), lists(list(data))) == ([[8] * 3] * 2, [[0] * 3] * 2, [[0] * 3] * 4)


def test_batches_compute_and_move(gdata, way):
    (batch,) = gdata.DataLoader(np.arange(6, dtype=FLOAT).reshape(2, 3), 2, **WAYS[way])
    assert (batch * 2).sum(axis=1).asnumpy().tolist() == [6, 24]
    assert str(batch.as_in_context(mx.cpu()).ctx) == "cpu(0)"
    parts = mx.gluon.utils.split_and_load(batch, [mx.cpu(0), mx.cpu(1)])
    assert [(lists(part), str(part.ctx)) for part in parts] == [([[0, 1, 2]], "cpu(0)"), ([[3, 4, 5]], "cpu(1)")]
    batch.attach_grad()
    with mx.autograd.record():
        loss = (batch * batch).sum()
    loss.backward()
    assert batch.grad.asnumpy().tolist() == [[0, 2, 4], [6, 8, 10]]
    assert mx.nd.concat(batch, mx.nd.ones((1, 3)), dim=0).shape == (3, 3)


def test_threads_without_workers_are_none(gdata):
    assert batch_of(gdata, [1, 2], thread_pool=True) == nd("serial", "int64", [1, 2])


@pytest.mark.filterwarnings("ignore:pin_memory=True, but:RuntimeWarning")
def test_pinned_memory_of_another_device(gdata):
    assert batch_of(gdata, [1, 2], pin_memory=True, pin_device_id=1) == nd("cpu_pinned(1)", "int64", [1, 2])


BATCHES = {
    "array": np.array,
    "dict": lambda samples: {"x": mx.nd.array(samples), "n": len(samples)},
    "tuple": lambda samples: (mx.nd.array(samples), ("text", None)),
    "list": lambda samples: [np.array(samples), samples],
    "named tuple": lambda samples: Pair(np.array(samples), mx.nd.array(samples)),
}


class ByKind:
    """The batch of one kind."""

    def __call__(self, samples):
        (kind,) = samples
        return BATCHES[kind]([1])


def test_a_batchify_fn_returns_the_batch_as_it_is(gdata, way):
    kinds = list(BATCHES)
    for kind, batch in zip(kinds, gdata.DataLoader(kinds, 1, batchify_fn=ByKind(), **WAYS[way]), strict=True):
        wanted = BATCHES[kind]([1])
        assert type(batch) is type(wanted)
        assert facts(batch) == facts(wanted, "cpu_shared(0)" if way == "processes" else "cpu(0)")


@pytest.mark.parametrize("name", ["default_batchify_fn", "default_mp_batchify_fn"])
def test_the_default_batchify_functions(gdata, way, name):
    """Gluon's in our loader, and those of both called directly."""
    function = getattr(GLUON.dataloader, name)
    (batch,) = gdata.DataLoader([(1, 0.5), (2, 1.5)], 2, batchify_fn=function, **WAYS[way])
    assert facts(batch, "any") == gluons([(1, 0.5), (2, 1.5)], "any")
    for kind, samples in CONTAINERS.items():
        assert (kind, facts(getattr(gdata.dataloader, name)(samples))) == (kind, facts(function(samples)))


class Modes:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return mx.np.array([0, 1]), 5, 0.5, np.ones((), FLOAT), [1, 2], mx.util.is_np_array(), mx.util.is_np_shape()


def test_the_numpy_mode(gdata, way, np_mode):
    batch = batch_of(gdata, Modes(), way)
    assert batch == gluons([Modes()[0]] * 2, CONTEXTS[way])
    assert {part[0] for part in batch} == {"np"}
    assert [part[3] for part in batch[-2:]] == [[True, True]] * 2


def test_the_numpy_mode_as_a_scope(gdata, way):
    with mx.util.np_shape(True), mx.util.np_array(True):
        assert batch_of(gdata, [1, 2], way)[0] == "np"
    assert batch_of(gdata, [1, 2], way)[0] == "nd"


def test_lists_of_arrays_are_an_error_in_the_numpy_mode_too(gdata, np_mode):
    with pytest.raises((KeyError, ValueError, TypeError)):
        batch_of(gdata, [[mx.nd.ones(1)], [mx.nd.ones(1)]])
