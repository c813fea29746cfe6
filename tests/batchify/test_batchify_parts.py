"""Stack, Pad, Append, Group, AsList, Dict and NamedTuple: the batches that they make and the errors that they raise."""

import itertools
from collections import namedtuple

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluonloader import Append, AsList, Dict, Group, Pad, Split, Stack
from gluonloader.batchify import NamedTuple
from gluonloader.errors import BatchifyError

Point = namedtuple("Point", ["x", "y"])

arrays = hnp.arrays(
    st.sampled_from([np.int16, np.float32, np.bool_]), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
)


def same(batch, expected):
    return batch.dtype == expected.dtype and batch.shape == expected.shape and batch.tobytes() == expected.tobytes()


# -- Stack ------------------------------------------------------------------------------------------------------------


@given(arrays, st.integers(1, 4))
def test_stack_is_np_stack(array, count):
    samples = [array] * count
    assert same(Stack()(samples), np.stack(samples))
    first, second = Stack()([(sample, 1) for sample in samples])
    assert same(first, np.stack(samples))
    assert same(second, np.array([1] * count))


def test_stack_takes_numbers_and_nests_in_lists():
    assert same(Stack()([1, 2.5]), np.array([1, 2.5]))
    (inner,) = Stack()([([1, 2],), ([3, 4],)])
    assert [column.tolist() for column in inner] == [[1, 3], [2, 4]]


# -- Pad --------------------------------------------------------------------------------------------------------------


def padded(samples, val, dtype, round_to):
    """The model: element by element."""
    samples = [np.asarray(sample) for sample in samples]
    sizes = []
    for axis in range(samples[0].ndim):
        size = max(sample.shape[axis] for sample in samples)
        while size % (round_to or 1):
            size += 1
        sizes.append(size)
    batch = np.full((len(samples), *sizes), val or 0, dtype or np.result_type(*samples))
    for row, sample in enumerate(samples):
        for index in itertools.product(*map(range, sample.shape)):
            batch[(row, *index)] = sample[index]
    return batch


@given(
    shapes=st.integers(1, 3).flatmap(
        lambda rank: st.lists(st.tuples(*[st.integers(0, 4)] * rank), min_size=1, max_size=4)
    ),
    val=st.none() | st.integers(-3, 3),
    dtype=st.none() | st.sampled_from([np.float32, np.int64, "f8"]),
    round_to=st.none() | st.integers(1, 4),
    source=st.sampled_from([np.int32, np.float64, ">i2"]),
)
def test_pad_is_the_model(shapes, val, dtype, round_to, source):
    samples = [np.arange(1, np.prod(shape) + 1).reshape(shape).astype(source) for shape in shapes]
    expected = padded(samples, val, dtype, round_to)
    batch = Pad(val, dtype, round_to)(samples)
    assert batch.dtype.isnative
    assert same(batch, expected.astype(expected.dtype.newbyteorder("=")))


def test_pad_takes_lists_and_finds_their_common_dtype():
    assert same(Pad(val=-1)([[1, 2], [0.5]]), np.array([[1, 2], [0.5, -1]]))


def test_pad_of_numbers_is_a_stack():
    assert same(Pad()([1, 2]), np.array([1, 2]))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_pad_names_the_int_that_does_not_fit_in_its_dtype(dtype):
    samples = [np.array([1, 2]), np.array([], np.int64), np.array([[3]], np.int16)[0]]
    assert Pad(dtype=dtype)(samples).tolist() == [[1, 2], [0, 0], [3, 0]]
    for wrong in (np.array([5, 300]), [np.array(5), np.array(300)]):
        with pytest.raises(BatchifyError, match=rf"sample 2 of the batch: 300 does not fit in dtype={dtype}"):
            Pad(dtype=dtype)([*samples[:2], wrong])
    with pytest.raises(BatchifyError, match="sample 1 of the batch: .*300"):  # some versions of NumPy raise an error
        Pad(dtype=dtype)([[1], [300]])
    with pytest.raises(BatchifyError, match=rf"sample 0 of the batch: 300 does not fit in dtype={dtype}"):
        Pad(dtype=dtype)([np.int64(300)])


# -- Append and AsList ------------------------------------------------------------------------------------------------


@given(st.lists(arrays, min_size=1, max_size=4))
def test_append_keeps_each_array_with_an_axis_for_the_batch(samples):
    batch = Append()(samples)
    assert len(batch) == len(samples)
    for one, sample in zip(batch, samples, strict=True):
        assert same(one, sample[None])
    plain = Append(expand=False)(samples)
    assert all(same(one, sample) for one, sample in zip(plain, samples, strict=True))


def test_append_inserts_the_axis_at_batch_axis():
    samples = [np.zeros((2, 3)), np.zeros((4, 5))]
    assert [one.shape for one in Append(batch_axis=1)(samples)] == [(2, 1, 3), (4, 1, 5)]
    assert [one.shape for one in Append(batch_axis=-1)(samples)] == [(2, 3, 1), (4, 5, 1)]


@pytest.mark.parametrize("expand", [True, False])
def test_append_copies_the_samples(expand):
    sample = np.ones(2)
    frozen, zero = np.array([1.0, 1.0], ">f4"), np.array(1)
    frozen.flags.writeable = False
    batch = Append(expand)([sample, frozen, zero])
    for array in batch:
        array += 1
    assert [array.ravel().tolist() for array in batch] == [[2, 2], [2, 2], [2]]
    assert [array.dtype for array in batch] == ["f8", "f4", "i8"]
    assert sample.tolist() == frozen.tolist() == [1, 1]
    assert zero == 1


def test_as_list_keeps_anything():
    samples = (None, "a", {1})
    batch = AsList()(samples)
    assert type(batch) is list
    assert all(one is other for one, other in zip(batch, samples, strict=True))


# -- Group, Dict, NamedTuple ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [None, list, tuple])
def test_group_has_a_function_for_each_field(kind):
    functions = Stack(), Pad(val=-1), AsList()
    batch = (Group(*functions) if kind is None else Group(kind(functions)))([(1, [1], "a"), [2, [1, 2], "b"]])
    assert type(batch) is tuple
    first, second, third = batch
    assert same(first, np.array([1, 2]))
    assert same(second, np.array([[1, -1], [1, 2]]))
    assert third == ["a", "b"]


def test_dict_has_a_function_for_each_key_and_leaves_out_the_others():
    batch = Dict({"b": AsList(), "a": Stack()})([{"a": 1, "b": "x", "c": None}, {"a": 2, "b": "y"}])
    assert list(batch) == ["b", "a"]
    assert batch["b"] == ["x", "y"]
    assert same(batch["a"], np.array([1, 2]))


@pytest.mark.parametrize("fns", [[Stack(), AsList()], (Stack(), AsList()), {"y": AsList(), "x": Stack()}])
def test_named_tuple_has_a_function_for_each_field(fns):
    batch = NamedTuple(Point, fns)([Point(1, "a"), Point(2, "b")])
    assert type(batch) is Point
    assert same(batch.x, np.array([1, 2]))
    assert batch.y == ["a", "b"]


def test_batchify_functions_nest():
    nested = Dict({"x": Group(Pad(), NamedTuple(Point, [Stack(), AsList()]))})
    padded, point = nested([{"x": ([1], Point(1, "a"))}, {"x": ([1, 2], Point(2, "b"))}])["x"]
    assert padded.tolist() == [[1, 0], [1, 2]]
    assert point.x.tolist() == [1, 2]
    assert point.y == ["a", "b"]


@pytest.mark.parametrize(("fn", "samples", "position", "path", "text"), [
    (Stack(), [np.zeros(2), np.zeros(2), np.zeros(3)], 2, "", r"shape \(3,\), but other samples have shape \(2,\)"),
    (Stack(), [[1, 2], [1, 2], [1]], 2, "", "1 fields, but other samples have 2 fields"),
    (Stack(), [1, None], 1, "", "it is None, which cannot be stacked"),
    (Stack(), [(0, np.zeros(2)), (0, np.zeros(2)), (0, np.zeros(3))], 2, "[1]", r"shape \(3,\)"),
    (Stack(), [(0, {}), (0, {})], 0, "[1]", "a dict cannot be converted to an array of numbers"),
    (Pad(), [[1], [2], [[3]]], 2, "", "2 axes, but other samples have 1 axes"),
    (Pad(), [[1], 2, [3]], 1, "", "0 axes, but other samples have 1 axes"),
    (Pad(), [[1], [None]], 1, "", "a list cannot be converted to an array of numbers"),
    (Pad(), [[1], ["a", {}]], 1, "", "a list cannot be converted to an array of numbers"),
    (Pad(dtype=np.float32), [[1], ["a"]], 1, "", "converted to an array of numbers .*could not convert"),
    (Pad(dtype="int64"), [np.uint64([2**63])], 0, "", f"{2**63} does not fit in dtype=int64"),
    (Pad(dtype="int64"), [np.uint64([2**63]), np.array([-1])], 0, "", f"{2**63} does not fit in dtype=int64"),
    (Append(), [1, None], 1, "", "it is None, which cannot be stacked"),
    *[(fn, [np.ma.array([1, 2], mask=[0, 1])] * 2, 0, "", "whose mask would be lost")
      for fn in (Pad(), Stack(), Append())],
    *[(Group(Stack(), Stack()), [sample] * 2, 0, "", "Group needs a tuple or list of 2 fields")
      for sample in ({1, 2}, "ab", b"ab")],
    (Group(Stack(), Stack()), [(1, 2), (1, 2, 3)], 1, "", "3 fields, but Group has 2 functions"),
    (Group(AsList(), Pad()), [(1, [1]), (1, [[1]]), (1, [1])], 1, "[1]", "2 axes, but other samples have 1 axes"),
    (Dict({"a": Stack(), "b": Stack()}), [{"a": 1, "b": 2}, {"c": 1}], 1, "", "no key 'a', 'b'"),
    (Dict({"a": Stack()}), [{"a": 1}, {"a": None}], 1, "['a']", "it is None, which cannot be stacked"),
    (Dict({"a": Group(Stack(), Pad(axis=0))}), [{"a": (1, np.ones((1, n)))} for n in (2, 2, 3)], 2, "['a'][1]",
     "it has size 3 along axis 1"),
    (NamedTuple(Point, [Stack(), Stack()]), [Point(1, 2), (1, 2)], 1, "",
     "it has type tuple, but this NamedTuple needs Point"),
    (NamedTuple(Point, [Stack(), Stack()]), [Point(1, 2), Point(1, None)], 1, ".y",
     "it is None, which cannot be stacked"),
    (Dict({"a": Group(AsList(), NamedTuple(Point, [AsList(), Stack()]))}),
     [{"a": (1, Point(1, 2))}, {"a": (1, Point(1, [2]))}], 1, "['a'][1].y",
     r"shape \(1,\), but other samples have shape \(\)"),
])  # fmt: skip
def test_errors_name_the_sample_and_the_way_to_the_leaf(fn, samples, position, path, text):
    with pytest.raises(BatchifyError, match=text) as caught:
        fn(samples)
    assert (caught.value.row, caught.value.path) == (position, path)


def test_errors_of_the_users_own_functions_pass_as_they_are():
    def refuse(samples):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Group(refuse)([(1,)])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Group(Stack(), 3), "fn=3: pass a function that makes a batch"),
        (lambda: Group([Stack(), "x"]), "fn='x': pass a function that makes a batch"),
        (lambda: Group(3), "fn=3"),
        (lambda: Dict([Stack()]), r"fns=\[.*pass a dict from each key to its batchify function"),
        (lambda: Dict({"a": 1}), "fns=1: pass a function that makes a batch"),
        (lambda: NamedTuple(Point, [Stack()]), r"pass one function for each field of Point: \('x', 'y'\)"),
        (lambda: NamedTuple(Point, [Stack()] * 3), "one function for each field"),
        (lambda: NamedTuple(Point, {"x": Stack(), "z": Stack()}), "one function for each field"),
        (lambda: NamedTuple(Point, [Stack(), 3]), "fns=3: pass a function that makes a batch"),
        (lambda: NamedTuple(Point, 3), "fns=3"),
        (lambda: NamedTuple(tuple, []), "one function for each field of tuple"),
    ],
)
def test_wrong_functions_are_refused_at_once(make, text):
    with pytest.raises(ValueError, match=text):
        make()


# -- repr --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (Stack(), "Stack()"), (AsList(), "AsList()"), (Append(), "Append()"), (Pad(), "Pad()"),
        (Pad(val=-1), "Pad(val=-1)"),
        (Append(expand=False, batch_axis=1), "Append(expand=False, batch_axis=1)"),
        (Pad(0, np.float32, 8, axis=0, ret_length=True, mask=True),
         "Pad(val=0, dtype='float32', round_to=8, axis=0, ret_length=True, mask=True)"),
        (Group(Pad(), Stack()), "Group(Pad(), Stack())"), (Group([len, Group(Stack())]), "Group(len, Group(Stack()))"),
        (Dict({"x": Pad(), 3: len}), "Dict({'x': Pad(), 3: len})"),
        (NamedTuple(Point, [Stack(), AsList()]), "NamedTuple(Point, Stack(), AsList())"),
        (Split(2), "Split(2)"), (Split(3, Pad(), even_split=False), "Split(3, batchify_fn=Pad(), even_split=False)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_repr_is_the_call_that_makes_the_function(function, text):
    assert repr(function) == text
