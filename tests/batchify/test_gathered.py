"""Large arrays go into the batch while samples are read: the same batch, or the same error, as of a list of them."""

import gc
import weakref

import numpy as np
import pytest
from conftest import SERIAL, WAYS
from hypothesis import given
from hypothesis import strategies as st

import gluonloader as gl
from gluonloader import default_batchify
from gluonloader.batchify import Gathered, holds_large_array
from gluonloader.batchify.default import LARGE_BYTES

LARGE = 40_000  # bytes

arrays = st.builds(
    lambda shape, dtype, value: np.full(shape, value, dtype),
    st.sampled_from([(LARGE,), (2, LARGE), (LARGE + 1,), (3,), (), (0,)]),
    st.sampled_from(["u1", "f4", ">f4", "M8[s]", "M8[D]", "?", "U9", "O"]),
    st.integers(0, 1),
)
fields = st.one_of(arrays, st.integers(-9, 9), st.text(max_size=3), st.just(2**70), st.none())
samples = st.one_of(
    arrays,
    st.tuples(arrays, fields),
    st.tuples(fields, arrays, st.tuples(arrays, fields)),
    st.fixed_dictionaries({"x": arrays, 3: fields}),
    st.lists(arrays, min_size=1, max_size=2),
)


def outcome_of(make):
    """What there is to compare of a batch or an error."""
    try:
        return described(make())
    except gl.errors.BatchifyError as error:
        return str(error)


def described(batch):
    if isinstance(batch, dict):
        return {key: described(part) for key, part in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch), [described(part) for part in batch]
    if isinstance(batch, np.ndarray):
        return batch.shape, batch.dtype, batch.tolist() if batch.dtype.hasobject else batch.tobytes()
    return batch


def batch_as_read(samples):
    first, *others = samples
    gathered = Gathered(first, len(samples)) if holds_large_array(first) else [first]
    for sample in others:
        gathered.append(sample)
    return gathered.batch() if isinstance(gathered, Gathered) else default_batchify(gathered)


@pytest.mark.slow
@given(first=samples, others=st.lists(samples, max_size=2), copies=st.integers(0, 3))
def test_it_is_the_same_batch_or_the_same_error(first, others, copies):
    rows = [first] * (copies + 1) + others + [first] * (copies // 2)
    assert outcome_of(lambda: batch_as_read(rows)) == outcome_of(lambda: default_batchify(rows))


@pytest.mark.parametrize("other", [np.full(LARGE, 1 / 3, "f8"), np.full(LARGE, 2, "i8"), np.zeros(LARGE, ">f4")])
def test_a_sample_of_another_dtype_is_not_cast(other):
    rows = [np.ones(LARGE, "f4"), other, np.zeros(LARGE, "f4")]
    assert described(batch_as_read(rows)) == described(default_batchify(rows))


class Photos:
    """Large arrays, of which it counts those that are alive."""

    def __init__(self):
        self.alive = weakref.WeakSet()

    def __len__(self):
        return 32

    def __getitem__(self, index):
        photo = np.full((100, 200), index, np.float32)
        self.alive.add(Owner(photo))
        return photo.view(), index, len(self.alive)


class Owner:
    """Lives as long as the memory of an array, which takes no weak references to itself."""

    def __init__(self, array):
        weakref.finalize(array, lambda owner: None, self)


@pytest.mark.parametrize("way", [way for way in WAYS if way.quick], ids=str)
def test_a_loader_makes_the_same_batches(way):
    with way.loader(Photos(), 16) as loader:
        for number, (photos, indices, alive) in enumerate(loader):
            assert indices.tolist() == list(range(16 * number, 16 * number + 16))
            assert (photos == indices[:, None, None]).all()
            assert alive.max() < 12, "samples that were copied are let go of"
    gc.collect()


def test_only_large_arrays_are_copied_while_samples_are_read():
    assert not holds_large_array(np.zeros(10))
    assert not holds_large_array((np.zeros(10), 1))
    assert holds_large_array((np.zeros(LARGE_BYTES, np.uint8), 1))
    assert not holds_large_array([np.zeros(LARGE_BYTES, np.uint8)])


class Uneven(Photos):
    def __getitem__(self, index):
        return np.zeros((100, 200 + (index == 2)), np.float32)


@pytest.mark.parametrize("way", [way for way in WAYS if way.quick], ids=str)
def test_an_error_names_the_sample(way):
    with way.loader(Uneven(), 4) as loader:
        with pytest.raises(
            gl.errors.BatchifyError,
            match=r"sample 2 \(row 2 of batch 0\): it has shape \(100, 201\), but other samples have ",
        ):
            list(loader)


class Endless:
    """Samples that no memory has room for two of."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return np.broadcast_to(np.uint8(index), (1 << 46,))


def test_memory_that_a_batch_cannot_have_is_no_fault_of_a_sample():
    with SERIAL.loader(Endless(), 4) as loader, pytest.raises(MemoryError) as caught:
        next(iter(loader))
    assert caught.value.__notes__ == ["gluonloader: in batchify_fn, batch 0 of epoch 0"]
