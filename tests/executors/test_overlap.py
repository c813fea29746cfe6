"""Samples that share memory: a first batch is what it would be if one worker had read it."""

import sys
import threading

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD, load_or_skip
from hypothesis import given
from hypothesis import strategies as st
from test_first_batch import SIZE, Pair, Plain, epochs, however_quick, read_log  # noqa: F401

from gluonloader.executors.overlap import overlap

pytestmark = pytest.mark.usefixtures("no_leaks")

LARGE = 50_000


def stacked(samples):
    return np.stack(samples)


def marked(samples):
    return [sample[0] for sample in samples]


RECORD = [("x", "i4"), ("y", "f8")]

# A sample, made of what one thread has filled anew for it.
REFILLED = {
    "small": lambda own, index: own.memory[:3],
    "large": lambda own, index: own.memory[:LARGE],
    "both": lambda own, index: {"image": own.memory[:LARGE], "label": own.memory[-3:]},
    "in part": lambda own, index: own.memory[index % 3 : index % 3 + 4],
    "backwards": lambda own, index: own.memory[9 - index % 3 : 5 - index % 3 : -2],
    "nested": lambda own, index: (index, Pair(index, {"x": [own.memory[:2]]})),
    "record": lambda own, index: own.memory[:48].view(RECORD)[index % 2],
    "list": lambda own, index: own.numbers,
    "tensor": lambda own, index: sys.modules["torch"].from_numpy(own.memory[:5]),
}


class Refills(Plain):
    """Every sample in the same memory: each thread, and each process, has its own."""

    def __init__(self, kind, folder=None):
        super().__init__(folder)
        self.kind, self.own = kind, threading.local()

    def sample(self, index):
        if not hasattr(self.own, "memory"):
            self.own.memory, self.own.numbers = np.zeros(2 * LARGE, np.uint8), [0]
        self.own.memory[:] = self.own.numbers[0] = index
        return REFILLED[self.kind](self.own, index)


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
@pytest.mark.parametrize("num_workers", [2, 3])
@pytest.mark.parametrize("kind", REFILLED)
def test_one_memory_for_all_samples(way, num_workers, kind):
    if kind == "tensor":
        load_or_skip("torch")
    assert epochs(way, Refills(kind), num_workers=num_workers) == epochs(SERIAL, Refills(kind))


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
@pytest.mark.parametrize(("kind", "batchify"), [("small", stacked), ("large", stacked), ("list", marked)])
def test_one_memory_for_all_samples_with_a_batchify_of_ones_own(way, kind, batchify):
    expected = epochs(SERIAL, Refills(kind), batchify_fn=batchify)
    assert epochs(way, Refills(kind), batchify_fn=batchify) == expected


@pytest.mark.parametrize("way", [THREAD, FORK], ids=str)
@pytest.mark.parametrize(("kind", "once"), [("large", True), ("both", False)])
def test_what_is_copied_as_it_is_read_may_be_read_in_parts(way, kind, once, tmp_path):
    with way.loader(Refills(kind, tmp_path), SIZE) as loader:
        assert [len(list(loader)) for _ in range(2)] == [5, 5]
    times = read_log(tmp_path)
    # Once more if the part had to be given up; not where it was taken back before it was begun.
    assert max(times[index] for index in range(SIZE)) == (2 if once else 3)
    assert min(times.values()) == 2
    assert {times[index] for index in range(SIZE, 36)} == {2}


spans = st.tuples(st.integers(0, 20), st.integers(0, 6), st.sampled_from([1, -1]))


@given(st.lists(st.lists(spans, max_size=3), max_size=5))
def test_slices_of_one_array(samples):
    array = np.arange(30)
    parts = [[array[start : start + length][::step] for start, length, step in sample] for sample in samples]
    expected = any(
        np.shares_memory(left, right)
        for number, sample in enumerate(parts)
        for left in sample
        for other in parts[:number]
        for right in other
    )
    assert overlap(list(map(tuple, parts))) == expected


SAME = np.arange(4)


@pytest.mark.parametrize(
    ("sample", "shared"),
    [
        (SAME, True), ((1, {"x": SAME}), True), (Pair(0, SAME), True), (np.array([SAME, None], object), True),
        ([], True), (bytearray(), True), ((), False), ("text", False), (None, False), (np.int64(3), False),
        (SAME[:0], False), (5, False), (b"", False), (np.ndarray, False),
    ],
)  # fmt: skip
def test_the_same_twice(sample, shared):
    assert overlap([sample, sample]) is shared
    assert not overlap([(sample, sample)])


def test_rows_of_columns_and_what_is_new_do_not_overlap():
    assert not overlap(list(np.zeros((4, 3))))
    assert not overlap([{"x": [np.zeros(index)], "y": Pair(index, [])} for index in range(5)])
    assert overlap(list(np.zeros((4, 3), order="F")))  # between each other: it is not looked at more closely
