"""GluonNLP's batchify functions, and GluonNLP itself beside ours where it is installed."""

import itertools
from collections import namedtuple

import numpy as np
import pytest
from conftest import FORK, SERIAL, load_or_skip
from hypothesis import given
from hypothesis import strategies as st

from gluonloader import AsList, Group, Pad, Stack, batchify
from gluonloader.buckets import (
    ConstWidthBucket,
    ExpWidthBucket,
    FixedBucketSampler,
    LinearWidthBucket,
    SortedBucketSampler,
    SortedSampler,
    SplitSampler,
)
from gluonloader.errors import BatchifyError

Point = namedtuple("Point", ["x", "y"])


def same(batch, expected):
    return batch.dtype == expected.dtype and batch.shape == expected.shape and batch.tobytes() == expected.tobytes()


# -- Pad: one axis ----------------------------------------------------------------------------------------------------


@st.composite
def differing(draw):
    """Samples that differ along one axis, and that axis."""
    rank = draw(st.integers(1, 3))
    axis = draw(st.integers(-rank, rank - 1))
    shape = draw(st.tuples(*[st.integers(0, 3)] * rank))
    dtype = draw(st.sampled_from([np.int16, np.float32, np.float64]))
    samples = []
    for size in draw(st.lists(st.integers(0, 5), min_size=1, max_size=5)):
        one = list(shape)
        one[axis] = size
        samples.append(np.arange(1, 1 + np.prod(one)).reshape(one).astype(dtype))
    return samples, axis


@given(differing(), st.none() | st.integers(-3, 3), st.none() | st.integers(1, 4))
def test_one_axis_is_padded_and_lengths_are_those_of_the_samples(samples_and_axis, val, round_to):
    samples, axis = samples_and_axis
    sizes = list(samples[0].shape)
    sizes[axis] = max(sample.shape[axis] for sample in samples)
    while sizes[axis] % (round_to or 1):
        sizes[axis] += 1
    expected = np.full((len(samples), *sizes), val or 0, samples[0].dtype)
    for row, sample in enumerate(samples):
        for index in itertools.product(*map(range, sample.shape)):
            expected[(row, *index)] = sample[index]
    assert same(Pad(val, None, round_to, axis=axis)(samples), expected)
    batch, lengths = Pad(val, None, round_to, axis=axis, ret_length=True)(samples)
    assert same(batch, expected)
    assert same(lengths, np.array([sample.shape[axis] for sample in samples], np.int32))


def test_lengths_without_an_axis_are_those_of_the_first():
    batch, lengths = Pad(ret_length=True)([np.ones((1, 4)), np.ones((3, 2))])
    assert batch.shape == (2, 3, 4)
    assert same(lengths, np.int32([1, 3]))
    batch = Pad(ret_length=True)([[1, 2], [3]])
    assert type(batch) is tuple


@given(differing(), st.none() | st.integers(1, 4), st.booleans())
def test_the_mask_is_true_for_data_and_false_for_padding(samples_and_axis, round_to, ret_length):
    samples, axis = samples_and_axis
    batch, *lengths, mask = Pad(-1, None, round_to, axis=axis, ret_length=ret_length, mask=True)(samples)
    sizes = [sample.shape[axis] for sample in samples]
    assert same(batch, Pad(-1, None, round_to, axis=axis)(samples))
    assert same(mask, np.arange(batch.shape[axis % samples[0].ndim + 1]) < np.array(sizes)[:, None])
    assert [length.tolist() for length in lengths] == [sizes] * ret_length


@given(st.integers(0, 3).flatmap(lambda rank: st.lists(st.tuples(*[st.integers(0, 4)] * rank), min_size=1, max_size=5)),
       st.none() | st.integers(1, 4))  # fmt: skip
def test_without_an_axis_the_mask_has_the_shape_of_the_batch(shapes, round_to):
    batch, mask = Pad(-1, None, round_to, mask=True)([np.ones(shape, np.float32) for shape in shapes])
    assert same(mask, batch == 1)
    assert batch.shape == (len(shapes), *batch.shape[1:])


@pytest.mark.parametrize(
    ("pad", "samples", "position", "text"),
    [
        (
            Pad(axis=0),
            [np.ones((1, 2)), np.ones((2, 2)), np.ones((1, 3))],
            2,
            "size 3 along axis 1, but .* have size 2",
        ),
        (Pad(axis=-1), [np.ones((1, 2)), np.ones((2, 5)), np.ones((1, 3))], 1, "size 2 along axis 0, but .* size 1"),
        (Pad(axis=0), [[1], [2], [[3]]], 2, "2 axes, but other samples have 1 axes"),
        (Pad(axis=1), [[1], [2]], 0, "1 axes, so there is no axis 1 to pad"),
        (Pad(axis=1, mask=True), [[1], [2]], 0, "1 axes, so there is no axis 1 to pad"),
        (Pad(axis=-2), [[1], [2]], 0, "1 axes, so there is no axis -2 to pad"),
        (Pad(axis=0), [1, 2], 0, "0 axes, so there is no axis 0 to pad"),
        (Pad(ret_length=True), [1, 2], 0, "0 axes"),
    ],
)
def test_a_sample_that_differs_elsewhere_is_named(pad, samples, position, text):
    with pytest.raises(BatchifyError, match=f"sample {position} of the batch: it has {text}") as caught:
        pad(samples)
    assert caught.value.row == position


# -- Pad: value and dtype ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("val", "dtype"),
    [
        (0.5, np.int64), (np.nan, np.int32), (np.inf, np.int8), (-1, np.uint8), (300, np.uint8), (2, np.bool_),
        (1e300, np.float32), (1e5, np.float16), (2**63, np.int64), (1j, np.float64), ("x", np.int64),
        ([1, 2], np.int64),
    ],
)  # fmt: skip
def test_a_value_that_the_batch_does_not_hold_is_an_error(val, dtype):
    name = np.dtype(dtype).name
    with pytest.raises(
        BatchifyError, match=rf"{name} cannot represent val=.*; pass another val or dtype to Pad"
    ) as caught:
        Pad(val)([np.ones(1, dtype), np.ones(2, dtype)])
    assert caught.value.row is None
    with pytest.raises(ValueError, match=f"val=.*: dtype={name} cannot represent it; pass another val or dtype"):
        Pad(val, dtype)


@pytest.mark.parametrize(
    ("val", "dtype"),
    [
        (-1.0, np.int8), (255, np.uint8), (True, np.int32), (1, np.bool_), (np.int64(3), np.uint16), (0.1, np.float16),
        (np.nan, np.float32), (-np.inf, np.float16), (2**24 + 1, np.float32), (2, np.complex64), (1j, np.complex128),
        (np.float32(0.1), np.float64), (2**63, np.uint64), ("pad", "U3"), (np.datetime64("NaT", "s"), "M8[s]"),
    ],
)  # fmt: skip
def test_a_value_that_the_batch_holds_fills_it(val, dtype):
    batch = Pad(val)([np.zeros(1, dtype), np.zeros(2, dtype)])
    assert same(batch, np.array([[np.zeros((), dtype)[()], val], np.zeros(2, dtype)], dtype))


def test_without_a_value_even_text_and_times_are_filled_with_nothing():
    assert Pad()([["a"], ["b", "cd"]]).tolist() == [["a", ""], ["b", "cd"]]
    assert Pad()([np.array(["2020"], "M8[Y]"), np.array([], "M8[Y]")]).astype(int).tolist() == [[50], [0]]


def test_lists_of_floats_stay_floats_beside_an_integer_value():
    assert same(Pad(val=0)([[1.5, 2.5], [3.5]]), np.array([[1.5, 2.5], [3.5, 0]]))
    assert same(Pad(val=0.5, dtype=np.float32)([[1, 2], [3]]), np.float32([[1, 2], [3, 0.5]]))


def test_an_empty_list_has_no_dtype():
    assert same(Pad(val=-1)([[], [1, 2], []]), np.array([[-1, -1], [1, 2], [-1, -1]]))
    assert same(Pad()([[], np.ones(1, np.float32)]), np.float32([[0], [1]]))
    assert same(Pad()([np.ones(1, np.float32), np.ones(0)]), np.array([[1.0], [0.0]])), "an empty array has one"
    assert Pad()([[], []]).shape == (2, 0)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"axis": 1.0}, "axis=1.0: pass the axis"),
        ({"axis": (0, 1)}, r"axis=\(0, 1\): pass the axis"),
        ({"axis": True}, "axis=True: pass the axis"),
        ({"dtype": "integer"}, "dtype='integer': must be a dtype of NumPy, e.g. 'float32', or None"),
        ({"round_to": 1.5}, "round_to=1.5: must be an int >= 1"),
        ({"round_to": 0}, "round_to=0: must be an int >= 1"),
        ({"round_to": -1}, "round_to=-1: must be an int >= 1"),
        ({"mask": "causal"}, "mask='causal': must be True or False"),
        ({"ret_length": "yes"}, "ret_length='yes': must be True or False"),
    ],
)
def test_wrong_arguments_are_named(arguments, text):
    with pytest.raises(ValueError, match=text):
        Pad(**arguments)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16"])
def test_tensors_give_tensors(dtype):
    torch = pytest.importorskip("torch")
    samples = [torch.ones(size, dtype=getattr(torch, dtype)) for size in (1, 3)]
    for val in (None, 0):
        batch, lengths, mask = Pad(val, ret_length=True, mask=True)(samples)
        assert mask.dtype is torch.bool
        assert mask.tolist() == [[True, False, False], [True, True, True]]
        assert batch.dtype is getattr(torch, dtype)
        assert batch.tolist() == [[1, 0, 0], [1, 1, 1]]
        assert lengths.dtype is torch.int32
        assert lengths.tolist() == [1, 3]


def test_an_int_of_a_tensor_that_does_not_fit_in_the_dtype_is_an_error():
    torch = pytest.importorskip("torch")
    with pytest.raises(BatchifyError, match="sample 1 of the batch: 300 does not fit in dtype=int8"):
        Pad(dtype="int8")([torch.tensor([1, 2]), torch.tensor([300])])


@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_a_loader_yields_batches_lengths_and_masks(way):
    data = [(list(range(i + 1)), i) for i in range(6)]
    fn = Group(Pad(-1, np.int32, axis=0, ret_length=True, mask=True), Stack())
    with way.loader(data, 3, batchify_fn=fn) as loader:
        (first, lengths, mask), numbers = list(loader)[1]
    assert same(mask, first >= 0)
    assert first.tolist() == [[0, 1, 2, 3, -1, -1], [0, 1, 2, 3, 4, -1], [0, 1, 2, 3, 4, 5]]
    assert same(lengths, np.int32([4, 5, 6]))
    assert numbers.tolist() == [3, 4, 5]


# -- GluonNLP's names -------------------------------------------------------------------------------------------------


def test_tuple_and_list_are_group_and_as_list():
    assert (batchify.Tuple, batchify.List) == (Group, AsList)
    assert {"Tuple", "List"} <= set(batchify.__all__)


# -- Beside GluonNLP itself -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nlp():
    return load_or_skip("gluonnlp").data


beside = pytest.mark.filterwarnings("ignore")  # it warns of a missing pad_val, empty buckets, arguments without effect

positive = st.one_of(
    st.lists(st.integers(1, 40), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=40),
)
sizes = st.integers(1, 9)


@beside
@given(samples_and_axis=differing(), val=st.integers(0, 3), round_to=st.none() | st.integers(1, 4))
def test_pad_is_gluonnlps(nlp, samples_and_axis, val, round_to):
    samples, axis = samples_and_axis
    samples = [sample.astype(np.int32) if sample.dtype == np.int16 else sample for sample in samples]  # MXNet has none
    ours = Pad(val, None, round_to, axis=axis, ret_length=True)(samples)
    if 0 in ours[0].shape:
        return  # MXNet has no arrays without elements
    theirs = nlp.batchify.Pad(axis, val, True, None, round_to)(samples)
    assert all(same(one, other.asnumpy()) for one, other in zip(ours, theirs, strict=True))


@beside
@pytest.mark.parametrize("kind", ["Tuple", "Dict", "NamedTuple"])
def test_structures_are_gluonnlps(nlp, kind):
    fields = [(np.arange(n, dtype=np.float32), n) for n in (2, 4, 3)]
    make = {
        "Tuple": (lambda b: b.Tuple(b.Pad(), b.Stack()), lambda x, y: (x, y)),
        "Dict": (lambda b: b.Dict({"x": b.Pad(), "y": b.Stack()}), lambda x, y: {"x": x, "y": y, "z": None}),
        "NamedTuple": (lambda b: b.NamedTuple(Point, {"y": b.Stack(), "x": b.Pad()}), Point),
    }[kind]
    samples = [make[1](*field) for field in fields]
    ours, theirs = make[0](batchify)(samples), make[0](nlp.batchify)(samples)
    assert type(ours) is type(theirs)
    pairs = [(ours[key], theirs[key]) for key in theirs] if kind == "Dict" else zip(ours, theirs, strict=True)
    assert all(same(one, other.asnumpy()) for one, other in pairs)


@beside
@given(least=st.integers(1, 60), range_=st.integers(0, 300), number=st.integers(1, 20),
       step=st.sampled_from([1.1, 1.5, 2, 0.5]))  # fmt: skip
def test_keys_are_gluonnlps(nlp, least, range_, number, step):
    most = least + range_
    assert ConstWidthBucket()(most, least, number) == sorted(nlp.ConstWidthBucket()(most, least, number))
    assert ExpWidthBucket(step)(most, least, number) == nlp.ExpWidthBucket(step)(most, least, number)
    theirs = nlp.LinearWidthBucket()(most, least, number)  # past the end, where the range is short
    assert LinearWidthBucket()(most, least, number) == [min(key, most) for key in theirs]


@beside
@given(lengths=positive, size=sizes, number=st.integers(1, 12), scheme=st.sampled_from(["Const", "Exp"]),
       sizing=st.sampled_from([{}, {"ratio": 0.5}, {"ratio": 1.7}, {"use_average_length": True},
                               {"ratio": 0.5, "use_average_length": True}]))  # fmt: skip
def test_buckets_are_gluonnlps(nlp, lengths, size, number, scheme, sizing):
    size *= 20 if "use_average_length" in sizing else 1
    ours = {"Const": ConstWidthBucket, "Exp": ExpWidthBucket}[scheme]()
    theirs = getattr(nlp, f"{scheme}WidthBucket")()
    one = FixedBucketSampler(lengths, size, number, bucket_scheme=ours, **sizing)
    other = nlp.FixedBucketSampler(lengths, size, number, bucket_scheme=theirs, **sizing)
    assert one.stats() == other.stats()
    assert list(one) == list(other)


@beside
@given(lengths=positive, size=sizes, keys=st.lists(st.integers(1, 45), max_size=4), ratio=st.floats(0, 3))
def test_buckets_of_given_keys_are_gluonnlps(nlp, lengths, size, keys, ratio):
    keys = [(key, 40 - key // 2) if isinstance(lengths[0], tuple) else key for key in keys]
    keys.append((40, 40) if isinstance(lengths[0], tuple) else 40)
    one = FixedBucketSampler(lengths, size, bucket_keys=keys, ratio=ratio)
    other = nlp.FixedBucketSampler(lengths, size, bucket_keys=keys, ratio=ratio)
    assert one.stats() == other.stats()
    assert list(one) == list(other)


@beside
@given(keys=st.lists(st.integers(0, 9), min_size=1, max_size=50), size=sizes, mult=st.sampled_from([1, 2, 2.5, 100]),
       reverse=st.booleans())  # fmt: skip
def test_sorted_samplers_are_gluonnlps(nlp, keys, size, mult, reverse):
    assert list(SortedSampler(keys, reverse)) == list(nlp.SortedSampler(keys, reverse))
    theirs = nlp.SortedBucketSampler(keys, size, mult, reverse)
    assert list(SortedBucketSampler(keys, size, mult, reverse)) == list(theirs)


@beside
@given(parts=st.integers(1, 6), more=st.integers(0, 30), repeat=st.integers(1, 3))
def test_parts_are_gluonnlps(nlp, parts, more, repeat):
    length = parts + more
    for index in range(parts):
        arguments = (length, parts, index, False, repeat, False)
        assert list(SplitSampler(*arguments)) == list(nlp.SplitSampler(*arguments))
        arguments = (length, parts, index, False, repeat, True)
        assert sorted(SplitSampler(*arguments)) == sorted(nlp.SplitSampler(*arguments))
        arguments = (length, parts, index, True, repeat, True)
        assert len(SplitSampler(*arguments)) == len(nlp.SplitSampler(*arguments))
