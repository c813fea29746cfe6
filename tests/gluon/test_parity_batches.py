"""Batches: dtype, container, context, shape and class; what a batchify_fn may return; MXNet's NumPy mode."""

from collections import namedtuple

import numpy as np
import pytest

from .differences import differs
from .sides import BFLOAT16, CONTEXTS, DTYPES, WAYS, epoch, facts, lists, mx

Pair = namedtuple("Pair", "first second")
FLOAT = np.float32


def only(gdata, way, samples, **arguments):
    """The one batch of some samples, in plain terms."""
    (batch,) = list(gdata.DataLoader(samples, len(samples), **WAYS[way], **arguments))
    return facts(batch)


def groups(gdata, way, *groups, **arguments):
    """One batch of each group of samples, from one loader."""
    samples = [sample for group in groups for sample in group]
    ends = np.cumsum([len(group) for group in groups]).tolist()
    indices = [list(range(end - len(group), end)) for group, end in zip(groups, ends)]
    return [facts(batch) for batch in gdata.DataLoader(samples, batch_sampler=indices, **WAYS[way], **arguments)]


def nd(way, dtype, values):
    return "nd", CONTEXTS.get(way, way), dtype, values


def test_arrays_keep_their_dtype(gdata, way):
    samples = [tuple(np.array([i, 1], dtype) for dtype in DTYPES) for i in (0, 1)]
    wanted = [nd(way, dtype, np.array([[0, 1], [1, 1]], dtype).tolist()) for dtype in DTYPES]
    assert only(gdata, way, samples) == wanted


def test_scalars_of_numpy_keep_their_dtype(gdata, way):
    samples = [tuple(np.dtype(dtype).type(i) for dtype in DTYPES) for i in (0, 1)]
    wanted = [nd(way, dtype, np.array([0, 1], dtype).tolist()) for dtype in DTYPES]
    assert only(gdata, way, samples) == wanted


def test_ndarrays_keep_their_dtype(gdata, way):
    samples = [tuple(mx.nd.array([i, 1], dtype=dtype) for dtype in DTYPES[:-1]) for i in (0, 1)]
    wanted = [nd(way, dtype, np.array([[0, 1], [1, 1]], dtype).tolist()) for dtype in DTYPES[:-1]]
    assert only(gdata, way, samples) == wanted


def test_numbers_of_python(gdata, way):
    values = [[1, 2], [1.5, 2.5], [True, False], [1, 2.5], [1, True]]
    dtypes = ["int64", "float64", "bool", "float64", "int64"]
    wanted = [nd(way, dtype, np.array(numbers, dtype).tolist()) for numbers, dtype in zip(values, dtypes)]
    assert groups(gdata, way, *values) == wanted


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("int8", "int32"), ("uint8", "float16"), (">f4", ">f4")])
def test_mixed_and_foreign_dtypes_meet_in_numpys_common_one(gdata, dtypes):
    samples = [np.array([i], dtype) for i, dtype in enumerate(dtypes)]
    common = np.result_type(*dtypes).newbyteorder("=").name
    assert only(gdata, "serial", samples) == nd("serial", common, [[0], [1]])


@pytest.mark.parametrize("dtype", ["uint16", "int16", "uint32", "uint64", "complex64"])
def test_a_dtype_that_mxnet_lacks_is_an_error(gdata, dtype):
    with pytest.raises((KeyError, TypeError), match=dtype):
        only(gdata, "serial", [np.ones(2, dtype)] * 2)


def test_bfloat16(gdata):
    (batch,) = gdata.DataLoader([mx.nd.array([i, 1]).astype(BFLOAT16) for i in (0, 1)], 2)
    assert batch.dtype == BFLOAT16
    assert batch.astype("float32").asnumpy().tolist() == [[0, 1], [1, 1]]


@differs("bfloat16", raises=KeyError)
def test_bfloat16_from_workers(gdata):
    samples = [mx.nd.array([i, 1]).astype(BFLOAT16) for i in (0, 1)]
    (batch,) = gdata.DataLoader(samples, 2, num_workers=1)
    assert batch.dtype == BFLOAT16
    assert batch.astype("float32").asnumpy().tolist() == [[0, 1], [1, 1]]


# Samples, and the batch of them.
CONTAINERS = {
    "bare": lambda way: ([FLOAT(0), FLOAT(1)], nd(way, "float32", [0, 1])),
    "tuple": lambda way: ([(0, 0.5), (1, 1.5)], [nd(way, "int64", [0, 1]), nd(way, "float64", [0.5, 1.5])]),
    "tuple of one": lambda way: ([(0,), (1,)], [nd(way, "int64", [0, 1])]),
    "empty tuple": lambda way: ([(), ()], []),
    "named tuple": lambda way: (
        [Pair(0, True), Pair(1, False)],
        [nd(way, "int64", [0, 1]), nd(way, "bool", [True, False])],
    ),
    "nested": lambda way: (
        [(0, (1, np.ones(2, FLOAT)))] * 2,
        [nd(way, "int64", [0, 0]), [nd(way, "int64", [1, 1]), nd(way, "float32", [[1, 1], [1, 1]])]],
    ),
    "a list is one array": lambda way: ([[0, 1], [2, 3]], nd(way, "int64", [[0, 1], [2, 3]])),
    "a list of tuples too": lambda way: ([[(0, 1)], [(2, 3)]], nd(way, "int64", [[[0, 1]], [[2, 3]]])),
    "a list in a tuple": lambda way: (
        [([0, 1], 2), ([3, 4], 5)],
        [nd(way, "int64", [[0, 1], [3, 4]]), nd(way, "int64", [2, 5])],
    ),
    "NDArray": lambda way: ([mx.nd.zeros(1), mx.nd.ones(1)], nd(way, "float32", [[0], [1]])),
    "NDArray and number": lambda way: (
        [(mx.nd.zeros(1), 5), (mx.nd.ones(1), 6)],
        [nd(way, "float32", [[0], [1]]), nd(way, "int64", [5, 6])],
    ),
    "0-d arrays": lambda way: ([np.array(0.0), np.array(1.0)], nd(way, "float64", [0, 1])),
    "one sample": lambda way: ([(7,)], [nd(way, "int64", [7])]),
}


def test_containers(gdata, way):
    samples, wanted = zip(*(container(CONTEXTS[way]) for container in CONTAINERS.values()))
    batches = groups(gdata, way, *samples)
    assert dict(zip(CONTAINERS, batches)) == dict(zip(CONTAINERS, wanted))
    assert list(map(type, batches)) == list(map(type, wanted))


def test_sparse_samples_become_dense(gdata):
    sample = mx.nd.array([[0, 2], [1, 0]]).tostype("csr")
    assert only(gdata, "serial", [sample, sample]) == nd("serial", "float32", [[[0, 2], [1, 0]]] * 2)


def test_a_sample_with_a_gradient_gives_a_batch_without(gdata):
    sample = mx.nd.ones((2,))
    sample.attach_grad()
    (batch,) = gdata.DataLoader([sample, sample], 2)
    assert facts(batch) == nd("serial", "float32", [[1, 1], [1, 1]])
    assert batch.grad is None


def test_shapes(gdata, way):
    shapes = [(1,), (3,), (1, 2, 3), (2, 1, 1, 2, 1)]
    samples = [tuple(np.ones(shape, FLOAT) for shape in shapes)] * 5
    for length, batch in zip((2, 2, 1), gdata.DataLoader(samples, 2, **WAYS[way])):
        assert [part.shape for part in batch] == [(length, *shape) for shape in shapes]


def test_a_large_batch(gdata, way):
    data = np.random.default_rng(0).random((4, 3, 100, 1000)).astype(FLOAT)
    loader = gdata.DataLoader(data, 2, **WAYS[way])
    assert [(batch.asnumpy() == part).all() for batch, part in zip(loader, (data[:2], data[2:]))] == [True, True]


@differs("zero-size", raises=mx.base.MXNetError)
def test_samples_without_elements_from_workers(gdata):
    (batch,) = gdata.DataLoader(np.ones((3, 0, 2), FLOAT), 3, **WAYS["processes"])
    assert batch.dtype == FLOAT


@differs("structures", raises=KeyError)
@pytest.mark.parametrize(
    ("samples", "wanted"),
    [
        ([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}], {"x": nd("serial", "int64", [1, 2]), "y": ["a", "b"]}),
        (["a", "b"], ["a", "b"]),
        ([b"a", b"b"], [b"a", b"b"]),
        ([(1, "a"), (2, "b")], [nd("serial", "int64", [1, 2]), ["a", "b"]]),
    ],
    ids=["dict", "str", "bytes", "str in tuple"],
)
def test_structures_that_gluon_cannot_batch(gdata, samples, wanted):
    assert only(gdata, "serial", samples) == wanted


RAGGED = {
    "shapes": [np.ones(2), np.ones(3)],
    "lists": [[1], [1, 2]],
    "None": [None, None],
    "mixed": [np.ones(1), mx.nd.ones(1)],
    "too large": [2**70, 1],
    "arrays in a list": [[mx.nd.ones(1)], [mx.nd.ones(1)]],
}


@pytest.mark.parametrize("name", RAGGED)
@pytest.mark.filterwarnings("ignore:.*nested sequences")
def test_what_cannot_be_one_batch_is_an_error(gdata, name):
    with pytest.raises((KeyError, ValueError)):
        only(gdata, "serial", RAGGED[name])


@differs("batchify-errors", raises=(KeyError, ValueError, AssertionError))
@pytest.mark.parametrize("name", RAGGED)
@pytest.mark.filterwarnings("ignore:.*nested sequences")
def test_the_error_names_the_sample(gdata, name):
    import gluonloader

    with pytest.raises(gluonloader.errors.BatchifyError, match=r"sample \d \(row \d of batch 0\)"):
        only(gdata, "serial", RAGGED[name])


@differs("short-tuples", raises=pytest.fail.Exception)
def test_tuples_of_different_lengths_are_an_error(gdata):
    with pytest.raises(ValueError, match="2 fields"):
        only(gdata, "serial", [(1, 2), (1,)])


@differs("ndarray-dtypes", raises=mx.base.MXNetError)
def test_ndarrays_of_different_dtypes_meet_in_the_common_one(gdata):
    samples = [mx.nd.ones(1), mx.nd.ones(1, dtype="float64")]
    assert only(gdata, "serial", samples) == nd("serial", "float64", [[1], [1]])


SHAPES = [(8,), (28, 28), (3, 32, 32), (1, 2, 1, 3)]


def random_arrays(dtype, shape, count):
    """`count` arrays with values from 0 to 99, or of 0 and 1 for bool."""
    return (np.random.default_rng(0).random((count, *shape)) * 100).astype("uint8").astype(dtype)


@pytest.mark.parametrize("numpy_like", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_ndarrays_of_any_shape(gdata, way, dtype, numpy_like):
    arrays = [random_arrays(dtype, shape, 5) for shape in SHAPES]
    with mx.util.np_shape(numpy_like), mx.util.np_array(numpy_like):
        kind, new = (mx.np.ndarray, mx.np.array) if numpy_like else (mx.nd.NDArray, mx.nd.array)
        samples = [(*(new(array[i], dtype=dtype) for array in arrays), i) for i in range(5)]
        for start, batch in zip((0, 2, 4), gdata.DataLoader(samples, 2, **WAYS[way])):
            for part, array in zip(batch, [*arrays, np.arange(5)]):
                assert (type(part), str(part.ctx), part.dtype) == (kind, CONTEXTS[way], array.dtype)
                np.testing.assert_array_equal(part.asnumpy(), array[start : start + 2])


@pytest.mark.parametrize("shape", [(3, 224, 224), (3, 300, 300)])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_large_ndarrays(gdata, way, dtype, shape):
    images = random_arrays(dtype, shape, 3)
    (batch,) = gdata.DataLoader([mx.nd.array(image, dtype=dtype) for image in images], 3, **WAYS[way])
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


def test_a_batch_of_ndarrays_is_a_copy(gdata, way):
    sample = mx.nd.zeros((2, 2))
    (batch,) = gdata.DataLoader([sample], 1, **WAYS[way])
    sample[:] = 1
    batch += 5
    assert (sample.asnumpy().tolist(), batch.asnumpy().tolist()) == ([[1, 1]] * 2, [[[5, 5]] * 2])


def test_ndarrays_without_axes(gdata, way, np_mode):
    samples = [np_mode.array(i, dtype="float32") for i in (1, 2)]
    assert only(gdata, way, samples) == ("np", CONTEXTS[way], "float32", [1, 2])


def test_ndarrays_without_elements(gdata, np_mode):
    (batch,) = gdata.DataLoader([np_mode.ones((0, 3)), np_mode.ones((0, 3))], 2)
    assert (type(batch), batch.shape, batch.dtype) == (np_mode.ndarray, (2, 0, 3), FLOAT)


def test_row_sparse_samples_become_dense(gdata):
    samples = [(mx.nd.array([[0, i], [0, 0]]).tostype("row_sparse"), i) for i in (1, 2)]
    wanted = [nd("serial", "float32", [[[0, 1], [0, 0]], [[0, 2], [0, 0]]]), nd("serial", "int64", [1, 2])]
    assert only(gdata, "serial", samples) == wanted


@differs("batchify-errors", raises=(pytest.fail.Exception, mx.base.MXNetError))
@pytest.mark.parametrize("other", [(3,), (2, 1), (1, 2), (4,), (2, 2)])
def test_the_error_for_ndarrays_of_different_shapes_names_the_sample(gdata, other):
    import gluonloader

    samples = [(mx.nd.ones(shape), 0) for shape in [(2,), (2,), other, (2,)]]
    with pytest.raises(gluonloader.errors.BatchifyError) as raised:
        only(gdata, "serial", samples)
    assert "sample 2 (row 2 of batch 0)" in str(raised.value)
    assert f"[0]: it has shape {other}, but other samples have shape (2,)" in str(raised.value)


def test_an_operation_that_fails_in_mxnets_engine_raises_an_error(gdata, way):
    class Dataset:
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return mx.nd.random.normal(0, -1 if index == 1 else 1, (3,)), index

    with pytest.raises(mx.base.MXNetError, match="scale"):
        [lists(batch) for batch in gdata.DataLoader(Dataset(), 2, **WAYS[way])]


def test_batches_are_writable_and_apart(gdata, way):
    first, second = list(gdata.DataLoader(np.zeros((4, 3), FLOAT), 2, **WAYS[way]))
    first[:] = 7
    first += 1
    assert first.asnumpy().tolist() == [[8, 8, 8]] * 2
    assert second.asnumpy().tolist() == [[0, 0, 0]] * 2


def test_a_write_to_a_batch_does_not_reach_the_dataset(gdata, way):
    data = np.zeros((2, 3), FLOAT)
    for batch in gdata.DataLoader(data, 2, **WAYS[way]):
        batch[:] = 7
        batch.wait_to_read()
    assert data.sum() == 0


def test_batches_stay_valid_without_their_loader(gdata, way):
    loader = gdata.DataLoader(np.arange(6, dtype=FLOAT), 2, **WAYS[way])
    batches = list(loader)
    del loader
    assert [facts(batch)[3] for batch in batches] == [[0, 1], [2, 3], [4, 5]]


def test_batches_compute_and_move(gdata, way):
    (batch,) = gdata.DataLoader(np.arange(6, dtype=FLOAT).reshape(2, 3), 2, **WAYS[way])
    assert (batch * 2).sum(axis=1).asnumpy().tolist() == [6, 24]
    copy = batch.as_in_context(mx.cpu())
    assert str(copy.ctx) == "cpu(0)"
    batch.attach_grad()
    with mx.autograd.record():
        loss = (batch * batch).sum()
    loss.backward()
    assert batch.grad.asnumpy().tolist() == [[0, 2, 4], [6, 8, 10]]
    assert mx.nd.concat(batch, mx.nd.ones((1, 3)), dim=0).shape == (3, 3)


def test_threads_without_workers_are_none(gdata):
    (batch,) = gdata.DataLoader([1, 2], 2, thread_pool=True)
    assert facts(batch) == nd("serial", "int64", [1, 2])


@pytest.mark.filterwarnings("ignore:pin_memory=True, but:RuntimeWarning")
def test_pinned_memory_of_another_device(gdata):
    assert only(gdata, "serial", [1, 2], pin_memory=True, pin_device_id=1) == nd("cpu_pinned(1)", "int64", [1, 2])


@pytest.mark.filterwarnings("ignore:pin_memory=True, but:RuntimeWarning")
def test_pinned_memory(gdata, way):
    samples, wanted = zip(*(container("cpu_pinned(0)") for container in CONTAINERS.values()))
    batches = groups(gdata, way, *samples, pin_memory=True, pin_device_id=0)
    assert dict(zip(CONTAINERS, batches)) == dict(zip(CONTAINERS, wanted))


def dict_batchify(samples):
    return {"x": mx.nd.array(samples), "n": len(samples)}


def pair_batchify(samples):
    return Pair(np.array(samples), mx.nd.array(samples))


class Each:
    """One kind of batch for each sample."""

    def __call__(self, samples):
        return [
            lambda: np.array(samples),
            lambda: dict_batchify(samples),
            lambda: (mx.nd.array(samples), ("text", None)),
            lambda: [np.array(samples), samples],
            lambda: pair_batchify(samples),
        ][samples[0] - 1]()


def test_a_batchify_fn_returns_the_batch_as_it_is(gdata, way):
    loader = gdata.DataLoader([1, 2, 3, 4, 5], 1, batchify_fn=Each(), **WAYS[way])
    array, mapping, pair, several, named = loader
    assert type(array) is np.ndarray
    assert array.tolist() == [1]
    assert mapping["x"].asnumpy().tolist() == [2]
    assert mapping.keys() == {"x", "n"}
    assert str(mapping["x"].ctx) == ("cpu_shared(0)" if way == "processes" else "cpu(0)")
    assert type(pair) is tuple
    assert (lists(pair[0]), pair[1]) == ([3], ("text", None))
    assert type(several) is list
    assert (type(several[0]), several[1]) == (np.ndarray, [4])
    assert type(named) is Pair


def test_gluons_own_batchify_functions(gdata, way):
    functions = mx.gluon.data.dataloader
    for function in (functions.default_batchify_fn, functions.default_mp_batchify_fn):
        (batch,) = gdata.DataLoader([(1, 0.5), (2, 1.5)], 2, batchify_fn=function, **WAYS[way])
        assert type(batch) is list
        assert [(np.dtype(part.dtype).name, part.asnumpy().tolist()) for part in batch] == [
            ("int64", [1, 2]),
            ("float64", [0.5, 1.5]),
        ]


def test_the_default_batchify_functions_called_directly(gdata):
    for way, function in (("serial", "default_batchify_fn"), ("processes", "default_mp_batchify_fn")):
        for name, container in CONTAINERS.items():
            samples, wanted = container(CONTEXTS[way])
            assert (name, facts(getattr(gdata.dataloader, function)(samples))) == (name, wanted)


@differs("lambda-batchify", raises=(AttributeError, TypeError, Exception))
def test_a_batchify_fn_need_not_be_picklable(gdata):
    loader = gdata.DataLoader(range(4), 2, batchify_fn=lambda samples: np.array(samples) * 2, **WAYS["processes"])
    assert epoch(loader) == [[0, 2], [4, 6]]


@differs("pinned-containers")
@pytest.mark.filterwarnings("ignore:pin_memory=True, but:RuntimeWarning")
def test_pinned_memory_keeps_containers(gdata):
    (batch,) = gdata.DataLoader([1, 2], 2, batchify_fn=dict_batchify, pin_memory=True)
    assert str(batch["x"].ctx) == "cpu_pinned(0)"
    (batch,) = gdata.DataLoader([1, 2], 2, batchify_fn=lambda samples: Pair(mx.nd.array(samples), 1), pin_memory=True)
    assert type(batch) is Pair
    assert str(batch.first.ctx) == "cpu_pinned(0)"


def test_the_numpy_mode(gdata, way, np_mode):
    samples = [(np_mode.array([0, 1]), 5, 0.5, np.ones((), FLOAT), [1, 2]) for _ in range(2)]
    batch = only(gdata, way, samples)
    assert {part[0] for part in batch} == {"np"}
    assert [part[1:] for part in batch] == [
        nd(way, "float32", [[0, 1], [0, 1]])[1:],
        nd(way, "int64", [5, 5])[1:],
        nd(way, "float64", [0.5, 0.5])[1:],
        nd(way, "float32", [1, 1])[1:],
        nd(way, "int64", [[1, 2], [1, 2]])[1:],
    ]


def test_the_numpy_mode_holds_inside_workers(gdata, way, np_mode):
    class Modes:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return mx.util.is_np_array(), mx.util.is_np_shape()

    batch = only(gdata, way, Modes())
    assert [part[3] for part in batch] == [[True, True]] * 2


def test_the_numpy_mode_as_a_scope(gdata, way):
    with mx.util.np_shape(True), mx.util.np_array(True):
        assert only(gdata, way, [1, 2])[0] == "np"
    assert only(gdata, way, [1, 2])[0] == "nd"


def test_lists_of_arrays_are_an_error_in_the_numpy_mode_too(gdata, np_mode):
    with pytest.raises((KeyError, ValueError, TypeError)):
        only(gdata, "serial", [[mx.nd.ones(1)], [mx.nd.ones(1)]])


@differs("foreign-arrays", raises=TypeError)
def test_arrays_of_the_numpy_mode_without_it(gdata):
    assert only(gdata, "serial", [mx.np.ones(1)] * 2)[1:] == ("cpu(0)", "float32", [[1], [1]])


@differs("foreign-arrays", raises=TypeError)
def test_ndarrays_in_the_numpy_mode(gdata, np_mode):
    assert only(gdata, "serial", [mx.nd.ones(1)] * 2)[1:] == ("cpu(0)", "float32", [[1], [1]])
