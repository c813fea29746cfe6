"""Batchify: batches keep structure, values and dtypes; errors name sample, path and difference."""

import dataclasses
from collections import Counter, OrderedDict, UserDict, defaultdict, namedtuple
from enum import IntEnum
from types import MappingProxyType

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluonloader import Dict, Group, Pad, Split, Stack, default_batchify
from gluonloader.batchify import NamedTuple
from gluonloader.errors import BatchifyError
from gluonloader.memory import set_allocator
from gluonloader.tree import children, leaves

Point = namedtuple("Point", ["x", "y"])


@dataclasses.dataclass
class Record:
    image: object
    label: object = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    image: object
    label: object


@dataclasses.dataclass
class Checked:
    size: int

    def __post_init__(self):
        if not isinstance(self.size, int):
            raise TypeError("a single sample's size is an int")


class Names(list):
    pass


class Colour(IntEnum):
    RED = 1
    BLUE = 7


dtypes = st.one_of(
    hnp.boolean_dtypes(), hnp.integer_dtypes(endianness="?"), hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"), hnp.complex_number_dtypes(endianness="?"), hnp.datetime64_dtypes(),
    hnp.timedelta64_dtypes(endianness="?"), hnp.byte_string_dtypes(), hnp.unicode_string_dtypes(endianness="?"),
    st.just(np.dtype([("a", "<i2"), ("b", ">f8", (2,))])),
)  # fmt: skip


def as_it_is(array):
    return array


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def strided(array):
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    return wide[..., 0]


def backwards(array):
    everywhere = (slice(None, None, -1),) * array.ndim
    return array[everywhere].copy()[everywhere]


layouts = st.sampled_from([as_it_is, read_only, strided, backwards, np.asfortranarray])


def same(batch, expected):
    """Equal to the last bit, NaN and NaT too; strings padded alike; whatever lies between fields."""
    if expected.dtype.names:
        # NumPy calls a record native whose fields of several values are not.
        fields = [(batch[name].astype(expected[name].dtype), expected[name]) for name in expected.dtype.names]
        return batch.dtype.names == expected.dtype.names and all(same(mine, theirs) for mine, theirs in fields)
    return batch.dtype == expected.dtype and batch.shape == expected.shape and batch.tobytes() == expected.tobytes()


@st.composite
def stackable(draw):
    dtype, count = draw(dtypes), draw(st.integers(1, 4))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
    size = count * int(np.prod(shape)) * dtype.itemsize
    # Any bits at all, except in text, where not all are characters.
    if dtype.kind == "U":
        rows = draw(hnp.arrays(dtype, (count, *shape)))
    elif dtype.kind == "b":
        rows = draw(hnp.arrays(dtype, (count, *shape)))
    else:
        bits = np.random.default_rng(draw(st.integers(0, 2**32))).bytes(size)
        rows = np.frombuffer(bits, dtype, count * int(np.prod(shape))).reshape(count, *shape)
    return [draw(layouts)(row) if isinstance(row, np.ndarray) else np.asarray(row, dtype) for row in rows]


@given(stackable())
def test_arrays_come_out_as_from_np_stack_in_native_byte_order(arrays):
    native = arrays[0].dtype.newbyteorder("=")
    expected = np.stack([np.ascontiguousarray(array).reshape(array.shape) for array in arrays]).astype(native)
    for batch in (default_batchify(arrays), default_batchify([{"x": array} for array in arrays])["x"]):
        assert batch.dtype.isnative
        assert batch.flags.c_contiguous
        assert batch.flags.writeable
        assert same(batch, expected)


@given(stackable())
def test_a_batch_does_not_look_into_its_samples(arrays):
    batch = default_batchify(arrays)
    assert not any(np.may_share_memory(batch, array) for array in arrays)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (st.booleans(), "?"),
        (st.integers(-(2**63), 2**63 - 1), "i8"),
        (st.floats(), "f8"),
        (st.complex_numbers(), "c16"),
    ],
)
@given(data=st.data())
def test_numbers_become_arrays_of_their_own_kind(values, dtype, data):
    samples = data.draw(st.lists(values, min_size=1, max_size=6))
    assert same(default_batchify(samples), np.array(samples, dtype))


@given(hnp.arrays(dtypes.filter(lambda dtype: dtype.isnative and not dtype.names), st.integers(1, 5)))
def test_numpy_scalars_keep_their_dtype(values):
    scalars = list(values)
    batch = default_batchify(scalars)
    assert same(batch, np.array(scalars))
    assert batch.dtype == values.dtype or values.dtype.kind in "SU"


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([True, 2], np.array([1, 2])),
        ([1, 2.5], np.array([1, 2.5])),
        ([1.0, 2j], np.array([1, 2j])),
        ([np.float32(1), 2.0], np.array([1, 2.0])),
        ([np.int8(1), np.int16(300)], np.array([1, 300], np.int16)),
        ([np.zeros(2, np.float32), np.ones(2)], np.array([[0, 0], [1, 1.0]])),
        ([np.zeros((), np.int32), 1.5], np.array([0, 1.5])),
        ([Colour.RED, Colour.BLUE], np.array([1, 7])),
        ([Colour.RED, 2], np.array([1, 2])),
    ],
)
def test_mixed_numbers_get_a_dtype_that_holds_both(samples, expected):
    assert same(default_batchify(samples), expected)


@pytest.mark.parametrize(("samples", "expected"), [
    ([np.array(["a"]), np.array(["long"])], np.array([["a"], ["long"]])),
    ([np.array([b"long"]), np.array([b"a"])], np.array([[b"long"], [b"a"]])),
    ([np.datetime64("2020"), np.datetime64("2021-03-01")], np.array(["2020-01-01", "2021-03-01"], "M8[D]")),
    ([np.array(["2020"], "M8[Y]"), np.array([1], "M8[s]")],
     np.array([["2020-01-01T00:00:00"], ["1970-01-01T00:00:01"]], "M8[s]")),
    ([np.timedelta64(1, "m"), np.timedelta64(1, "s")], np.array([60, 1], "m8[s]")),
    ([np.array([1], ">i4"), np.array([2], "<i4")], np.array([[1], [2]], np.int32)),
])  # fmt: skip
def test_lengths_of_text_and_units_of_time_may_differ(samples, expected):
    assert same(default_batchify(samples), expected)


def test_object_arrays_stay_object_arrays():
    samples = [np.array([1, "a"], object), np.array([None, [2]], object)]
    assert default_batchify(samples).tolist() == [[1, "a"], [None, [2]]]
    scalars = [np.array({"a": 1}, object), np.array([1], object).reshape(())]
    assert default_batchify(scalars).tolist() == [{"a": 1}, 1]


def test_a_recarray_with_a_field_mask_is_no_masked_array():
    sample = np.rec.array([(1, True)], dtype=[("image", int), ("mask", bool)])
    assert default_batchify([sample, sample])["mask"].tolist() == [[True], [True]]


def test_subclasses_of_arrays_become_plain_arrays():
    batch = default_batchify([np.arange(2).view(np.recarray), np.arange(2).view(np.recarray)])
    assert type(batch) is np.ndarray
    assert batch.tolist() == [[0, 1], [0, 1]]


@pytest.mark.parametrize("samples", [["a", "bb"], [b"a", b""], ["a", b"a"]])
def test_text_and_bytes_stay_a_list(samples):
    assert default_batchify(samples) == samples
    assert default_batchify([(text, 0) for text in samples])[0] == samples


leaf = np.array([1, 2])


@pytest.mark.parametrize(
    "make",
    [
        Names,
        lambda fields: OrderedDict(zip("ba", fields)),
        lambda fields: UserDict(zip("ba", fields)),
        lambda fields: defaultdict(int, zip("ba", fields)),
        lambda fields: MappingProxyType(dict(zip("ba", fields))),
        lambda fields: Frozen(*fields),
    ],
)
def test_containers_of_every_type_are_kept(make):
    """`test_any_nesting_is_kept` has the usual types."""
    samples = [make([1, "a"]), make([2, "b"])]
    batch = default_batchify(samples)
    assert type(batch) is (dict if isinstance(samples[0], MappingProxyType) else type(samples[0]))
    (first, numbers), (second, texts) = children(batch)
    assert children(samples[0]) == [(first, 1), (second, "a")], "the samples stay as they were"
    assert same(numbers, leaf)
    assert texts == ["a", "b"]
    if isinstance(batch, defaultdict):
        assert batch["new"] == 0


def test_a_counter_is_a_mapping_like_any_other():
    batch = default_batchify([Counter(a=1), Counter(a=2)])
    assert same(batch["a"], leaf)


def test_a_dataclasses_check_of_single_samples_is_passed_by():
    assert same(default_batchify([Checked(1), Checked(2)]).size, leaf)


def test_empty_structures():
    assert default_batchify([(), ()]) == ()
    assert default_batchify([{}, {}]) == {}
    assert default_batchify([[]]) == []


trees = st.recursive(
    st.sampled_from([1, 2.5, True, "a", b"b", np.float32(3), np.ones((2, 1)), np.zeros((), ">i4")]),
    lambda inner: st.lists(inner, min_size=1, max_size=3).flatmap(
        lambda fields: st.sampled_from([
            fields, tuple(fields), dict(enumerate(fields)), Record(fields[0], fields[-1]), Point(fields[0], fields[-1]),
        ])
    ),
    max_leaves=12,
)  # fmt: skip


def check_tree(sample, batch, count):
    if isinstance(sample, (tuple, list)):
        children = zip(sample, batch, strict=True)
    elif isinstance(sample, dict):
        assert sample.keys() == batch.keys()
        children = [(sample[key], batch[key]) for key in sample]
    elif isinstance(sample, Record):
        children = [(sample.image, batch.image), (sample.label, batch.label)]
    elif isinstance(sample, (str, bytes)):
        assert batch == [sample] * count
        return
    else:
        expected = np.stack([np.asarray(sample)] * count)
        assert same(batch, expected.astype(expected.dtype.newbyteorder("=")))
        return
    assert type(batch) is type(sample)
    for one, many in children:
        check_tree(one, many, count)


@given(trees, st.integers(1, 3))
def test_any_nesting_is_kept(sample, count):
    check_tree(sample, default_batchify([sample] * count), count)


IMAGE = np.zeros((3, 4))


@pytest.mark.parametrize(
    ("samples", "position", "path", "text"),
    [
        ([IMAGE, IMAGE[:, 1:], IMAGE], 1, "", r"shape \(3, 3\), but other samples have shape \(3, 4\)"),
        ([IMAGE[1:], IMAGE, IMAGE], 0, "", r"shape \(2, 4\), but other samples have shape \(3, 4\)"),
        ([IMAGE, IMAGE, IMAGE[0]], 2, "", r"shape \(4,\), but other samples have shape \(3, 4\)"),
        ([IMAGE, IMAGE, IMAGE[..., None]], 2, "", r"shape \(3, 4, 1\), but other samples have"),
        ([IMAGE[0], IMAGE[0], IMAGE[0, :0]], 2, "", r"shape \(0,\), but other samples have shape \(4,\)"),
        ([IMAGE[:0], IMAGE[:0], IMAGE], 2, "", r"shape \(3, 4\), but other samples have shape \(0, 4\)"),
        ([IMAGE[0], IMAGE[0], np.zeros(())], 2, "", r"shape \(\), but other samples have shape \(4,\)"),
        ([IMAGE[0], IMAGE[0], 1.5], 2, "", r"shape \(\), but other samples have shape \(4,\)"),
        ([np.zeros(()), np.zeros(()), IMAGE], 2, "", r"shape \(3, 4\), but other samples have shape \(\)"),
        (
            [{"image": IMAGE}, {"image": IMAGE}, {"image": IMAGE.T}],
            2,
            "['image']",
            r"shape \(4, 3\), but other samples have",
        ),
        ([(0, [IMAGE]), (0, [IMAGE]), (0, [IMAGE.T])], 2, "[1][0]", "shape"),
        ([Record(IMAGE), Record(IMAGE), Record(IMAGE.T)], 2, ".image", "shape"),
        (
            [{"a": (Record(1, 1),)}, {"a": (Record(1, "x"),)}],
            1,
            "['a'][0].label",
            "type str, but other samples have type int",
        ),
        (
            [np.zeros(2, [("a", "f8")]), np.zeros(2, [("b", "f8")])],
            1,
            "",
            r"dtype \[\('b'.*but other samples have dtype \[\('a'",
        ),
        (
            [np.zeros(2), np.zeros(2), np.zeros(2, "M8[s]")],
            2,
            "",
            r"dtype datetime64\[s\], but other samples have dtype float64",
        ),
        ([{"a": 1, "b": 2}, {"a": 1}], 1, "", "no key 'b', but other samples have"),
        ([{"a": 1}, {"a": 1, "b": 2}], 1, "", "extra key 'b'"),
        ([{"a": 1}, {"a": 1}, {"c": 1}], 2, "", "no key 'a' and extra key 'c'"),
        ([{"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2}], 0, "", "no key 'b', but other samples have 'a', 'b'"),
        ([{}, {}, {"a": 1}], 2, "", "extra key 'a', but other samples have no keys"),
        ([({"a": 1},), ({"b": 1},)], 1, "[0]", "no key 'a'"),
        ([(1, 2), (1, 2, 3), (1, 2)], 1, "", "3 fields, but other samples have 2 fields"),
        ([{"x": [1]}, {"x": [1]}, {"x": []}], 2, "['x']", "0 fields, but other samples have 1 fields"),
        ([1, 2, "a"], 2, "", "type str, but other samples have type int"),
        ([None, 1, 2], 0, "", "it is None, which cannot be stacked .* remove such samples from the dataset"),
        ([1, None, None], 1, "", "it is None, which cannot be stacked"),
        ([(1, 2), [1, 2], (3, 4)], 1, "", "type list, but other samples have type tuple"),
        ([{"a": 1}, OrderedDict(a=1), {"a": 1}], 1, "", "type OrderedDict, but other samples have type dict"),
        ([None, None], 0, "", "it is None, which cannot be stacked .* pass a batchify_fn that drops None"),
        ([(1, {2}), (1, {3})], 0, "[1]", "builtins.set objects"),
        ([object()], 0, "", r"builtins.object objects.*AsList\(\)"),
        ([1, 2**63], 1, "", "the int 9223372036854775808 does not fit into int64.*np.uint64"),
        ([{"id": -(2**63)}, {"id": -(2**63) - 1}], 1, "['id']", "the int -9223372036854775809 does not fit into int64"),
        ([2.5, 2**70], 1, "", "the int 1180591620717411303424 does not fit"),
        (
            [np.zeros(2), np.ma.masked_array([1.0, 2.0], [True, False])],
            1,
            "",
            "a masked array, whose mask would be lost",
        ),
        ([{"x": np.ma.masked_array([1], [True])}] * 2, 0, "['x']", r"return its data and its mask, or array\.filled"),
    ],
)
def test_errors_name_sample_path_and_difference(samples, position, path, text):
    with pytest.raises(BatchifyError, match=text) as caught:
        default_batchify(samples)
    assert (caught.value.row, caught.value.path) == (position, path)
    where = f"sample {position} of the batch at {path}: " if path else f"sample {position} of the batch: "
    assert str(caught.value).startswith(where)


def test_a_batchify_error_is_a_value_error():
    with pytest.raises(ValueError, match="sample 1 of the batch"):
        default_batchify([1, "a"])


@pytest.mark.parametrize(
    ("make", "samples"),
    [
        (default_batchify, [IMAGE, IMAGE]),
        (default_batchify, [1, 2]),
        (default_batchify, [np.float32(1), np.float32(2)]),
        (default_batchify, [1, 2.5]),
        (default_batchify, [np.array(["a"]), np.array(["bb"])]),
        (Stack(), [[1, 2], [3, 4]]),
        (Pad(), [[1, 2], [3]]),
        (Dict({"x": Stack()}), [{"x": 1}, {"x": 2}]),
        (NamedTuple(Point, [Stack(), Pad()]), [Point(1, [1]), Point(2, [1, 2])]),
        (Split(2, Group(Stack(), Pad(ret_length=True))), [(i, [i] * i) for i in range(1, 5)]),
    ],
)
def test_arrays_are_made_where_the_executor_wants_them(make, samples):
    made = []

    def allocate(shape, dtype):
        made.append(np.empty(shape, dtype))
        return made[-1]

    set_allocator(allocate)
    try:
        batch = make(samples)
    finally:
        set_allocator(None)
    arrays = [array for _, array in leaves(batch)]
    assert len(made) == len(arrays) + (arrays[0].dtype.kind == "U"), "longer text needs a second array"
    assert all(array is own for array, own in zip(arrays, made[-len(arrays) :], strict=True))
