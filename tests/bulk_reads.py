"""Datasets' columns for hypothesis, and the comparison of a bulk read with its samples one by one."""

import numpy as np
from conftest import OVER_RAY
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gluonloader import default_batchify
from gluonloader.errors import BatchifyError

NUMBERS = ["?", "i1", "<u2", ">i4", "i8", "f2", ">f4", "f8", "c8", "M8[s]", ">m8[ms]"]


DTYPES = [*NUMBERS, "S3", "U2", ">U3", "V2", [("a", "<i2"), ("b", ">i4")]]


def assert_same(left, right):
    """The same in every respect that a user could see."""
    assert type(left) is type(right)
    if isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        assert left.dtype.isnative == right.dtype.isnative
        assert left.shape == right.shape
        assert left.tolist() == right.tolist() if left.dtype.hasobject else left.tobytes() == right.tobytes()
        assert left.flags.c_contiguous
        assert left.flags.writeable or OVER_RAY
    elif isinstance(left, (tuple, list)):
        assert len(left) == len(right)
        for one, other in zip(left, right):
            assert_same(one, other)
    elif isinstance(left, dict):
        assert list(left) == list(right)
        for key in left:
            assert_same(left[key], right[key])
    else:
        assert left == right or left is right


def outcome(make):
    """The batch, or the error that it ends in."""
    try:
        return make()
    except (BatchifyError, IndexError) as error:
        return type(error), str(error) if isinstance(error, BatchifyError) else ""


def assert_bulk_is_the_same(dataset, indices):
    samples = dataset.__getitems__(indices)
    assert len(samples) == len(indices)
    single = [dataset[index] for index in indices]
    assert_same(outcome(lambda: default_batchify(samples)), outcome(lambda: default_batchify(single)))
    for one, other in zip(samples, single, strict=True):
        assert type(one) is type(other)
    assert_same(outcome(lambda: default_batchify(list(samples))), outcome(lambda: default_batchify(single)))


@st.composite
def arrays(draw, length):
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = (length, *draw(hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=3)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    if dtype.kind in "U":
        array = rng.integers(0, 10**6, shape).astype(dtype)
    else:
        array = np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)
        array = array != 0 if dtype.kind == "b" else array
    layout = draw(st.sampled_from(["plain", "frozen", "stepped", "fortran"]))
    if layout == "stepped":
        return np.repeat(array, 2, axis=0)[::2]
    array = array.copy("F" if layout == "fortran" else "C")
    array.flags.writeable = layout != "frozen"
    return array


def items(length):
    mixed = st.one_of(st.text(max_size=2), st.integers(-(2**64), 2**64), st.floats(allow_nan=False), st.none())
    same = st.sampled_from([st.text(max_size=2), st.integers(-9, 9), st.booleans(), st.binary(max_size=2), mixed])
    return same.flatmap(lambda kind: st.lists(kind, min_size=length, max_size=length))


def columns(length):
    return st.one_of(arrays(length), arrays(length), items(length))
