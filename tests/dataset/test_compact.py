"""`CompactList`: it gives back what was put in, and workers do not copy it."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import ONE_FORK, workers
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gluonloader import CompactList, SimpleDataset

MB = 1 << 20

texts = st.text(st.characters(), max_size=5)  # surrogates, too
ragged = st.tuples(st.sampled_from(["f8", ">i4", "?", "U3", "M8[s]", "c8"]), st.integers(0, 3)).flatmap(
    lambda kind: st.lists(
        hnp.arrays(kind[0], hnp.array_shapes(min_dims=kind[1], max_dims=kind[1], min_side=0, max_side=3)), max_size=5
    )
)
objects = st.recursive(
    st.none() | st.booleans() | st.integers() | texts | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=5,
)


def same(left, right):
    if isinstance(left, np.ndarray):
        equal = left.tobytes() == right.tobytes() and left.dtype == right.dtype and left.shape == right.shape
        return type(left) is type(right) and equal
    return type(left) is type(right) and left == right


@given(st.one_of(st.lists(texts), st.lists(st.binary()), ragged, st.lists(objects), st.lists(texts | objects)))
def test_it_gives_back_what_was_put_in(items):
    for packed in (CompactList(items), CompactList(iter(items)), pickle.loads(pickle.dumps(CompactList(items)))):
        assert len(packed) == len(items)
        for index, item in enumerate(items):
            assert same(packed[index], item)
            assert same(packed[np.int64(index - len(items))], item)
        assert all(map(same, packed, items))
        for outside in (len(items), -len(items) - 1):
            with pytest.raises(IndexError, match="out of range"):
                packed[outside]


def test_mixtures_are_read_once_and_in_order():
    items = [np.arange(3), np.arange(2), np.arange(2.0), "text", b"", None, np.array(["a", None])]
    packed = CompactList(item for item in items)
    assert [str(item) for item in packed] == [str(item) for item in items]
    assert packed[2].dtype == np.float64
    assert list(packed[3:6]) == ["text", b"", None]


def test_what_cannot_be_pickled_is_an_error_at_once():
    with pytest.raises((AttributeError, pickle.PicklingError, TypeError)):
        CompactList([1, lambda: None])


def test_text_and_arrays_are_stored_as_they_are():
    assert CompactList(["abc"] * 1000).nbytes == 3 * 1000 + 8 * 1001
    arrays = CompactList([np.zeros((2, 3), np.float32)] * 100)
    assert arrays.nbytes == 24 * 100 + 8 * 101 + 2 * 8 * 100
    assert arrays[7].base is not None  # a view


def test_an_array_is_a_view_as_in_a_list_of_arrays():
    packed = CompactList([np.zeros(2), np.ones(3)])
    packed[1][:] = 5
    assert packed[1].tolist() == [5, 5, 5]
    assert packed[0].tolist() == [0, 0]


def private_memory(dataset):
    """Bytes that a forked worker has for itself after an epoch."""
    with ONE_FORK.loader(dataset, 1000, batchify_fn=count) as loader:
        assert sum(loader) == len(dataset)
        (pid,) = workers(loader)
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Private_Dirty: +(\d+) kB", rollup, re.MULTILINE)[1]) * 1024


def count(samples):
    return len(samples)


def sample(number):
    return number, float(number), f"sample {number}"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's /proc/<pid>/smaps_rollup")
def test_workers_do_not_copy_it():
    number = 200_000
    computed = private_memory(SimpleDataset(range(number)).transform(sample))  # with no samples in memory
    packed = private_memory(CompactList(map(sample, range(number))))
    plain = private_memory(SimpleDataset(list(map(sample, range(number)))))
    print(f"private bytes per worker: computed {computed:,}, packed {packed:,}, list {plain:,}")
    assert packed - computed < 2 * MB
    assert plain - computed > 8 * max(packed - computed, MB)
