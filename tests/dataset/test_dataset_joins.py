"""`ConcatDataset`, `Subset`, `random_split`, `StackDataset`: which samples they hold, and what wrong arguments meet."""

import pickle
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluonloader import (
    ArrayDataset,
    CompactList,
    ConcatDataset,
    IterableDataset,
    RandomSampler,
    Rows,
    SimpleDataset,
    StackDataset,
    Subset,
    default_batchify,
    random_split,
)

values = st.lists(st.integers(-9, 9), max_size=6)


@given(st.lists(values, min_size=1, max_size=5))
def test_concatenated_datasets_come_one_after_the_other(parts):
    expected = [value for part in parts for value in part]
    for dataset in (ConcatDataset(*map(SimpleDataset, parts)), ConcatDataset(parts), ConcatDataset(tuple(parts))):
        if len(parts) == 1 and not isinstance(dataset.datasets[0], (list, SimpleDataset)):
            continue  # one list of numbers is the list of datasets
        assert len(dataset) == len(expected)
        assert list(dataset) == expected
        assert [dataset[-i - 1] for i in range(len(expected))] == expected[::-1]
        assert [dataset[np.int64(i)] for i in range(len(expected))] == expected
        for outside in (len(expected), -len(expected) - 1):
            with pytest.raises(IndexError):
                dataset[outside]


def test_a_sum_of_datasets_is_flat():
    first, second, third = SimpleDataset([1, 2]), ArrayDataset(np.array([3, 4])), SimpleDataset([5])
    joined = first + second + [6, 7] + (third + third)
    assert type(joined) is ConcatDataset
    assert joined.datasets == [first, second, [6, 7], third, third]
    assert list(joined) == [1, 2, 3, 4, 6, 7, 5, 5]
    assert list(pickle.loads(pickle.dumps(joined))) == list(joined)
    assert list(first.transform(str) + second.take(1) + np.zeros(1)) == ["1", "2", 3, 0.0]


def test_a_subclass_of_the_concatenated_dataset_stays_whole_in_a_sum():
    class Negative(ConcatDataset):
        def __getitem__(self, index):
            return -super().__getitem__(index)

    negative = Negative([1, 2], [3])
    assert list(negative + [4] + negative) == [-1, -2, -3, 4, -1, -2, -3]


def test_datasets_of_torch_on_the_right_of_a_sum():
    torch = pytest.importorskip("torch")
    tensors = torch.utils.data.TensorDataset(torch.arange(2))
    assert [int(sample[0]) for sample in SimpleDataset([(5,)]) + tensors] == [5, 0, 1]

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([1])

    with pytest.raises(ValueError, match=r"datasets\[1\]=.*: it cannot be indexed; join iterable datasets: Iterable"):
        SimpleDataset([1]) + Stream()
    assert list(IterableDataset([0]) + Stream()) == [0, 1]


@given(data=st.lists(st.integers(), min_size=1, max_size=10), picks=st.lists(st.integers(-10, 9), max_size=15))
def test_a_subset_is_what_sample_gives(data, picks):
    picks = [pick % len(data) for pick in picks]
    for indices in (picks, np.array(picks, int), tuple(picks)):
        assert (
            list(Subset(data, indices)) == [data[pick] for pick in picks] == list(SimpleDataset(data).sample(indices))
        )
    assert list(Subset(data, range(len(data)))) == data


class Keyed:
    """A dataset of any keys, which says what type they have."""

    def __len__(self):
        return 3

    def __getitem__(self, key):
        return type(key), key


def test_a_subset_hands_on_python_ints_and_all_other_keys():
    assert list(Subset(Keyed(), np.array([2, 1], np.uint8))) == [(int, 2), (int, 1)]
    assert list(Subset(Keyed(), [np.int32(2), 1])) == [(int, 2), (int, 1)]
    assert list(Subset(Keyed(), ["a", True, (1, 2), 2**70])) == [
        (str, "a"),
        (bool, True),
        (tuple, (1, 2)),
        (int, 2**70),
    ]


def test_the_indices_of_a_subset_may_be_anything_that_is_iterated_once():
    for indices in (iter([2, 1]), {2: "x", 1: "y"}, RandomSampler(3, seed=0)):
        assert sorted(Subset("abc", indices))[-2:] == ["b", "c"]
    assert list(SimpleDataset("abc").sample(iter([2, 1]))) == ["c", "b"]


@pytest.mark.parametrize("mask", [np.array([True, False]), [True, False], (np.bool_(False),) * 2])
def test_a_mask_is_not_taken_for_indices(mask):
    for make in (lambda: Subset("ab", mask), lambda: SimpleDataset("ab").sample(mask)):
        with pytest.raises(
            ValueError, match=r"indices=.*: it is a mask; pass the indices where it is true: np.flatnonzero\(mask\)"
        ):
            make()


@pytest.mark.parametrize("library", ["pandas", "polars", "torch"])
def test_a_mask_of_another_library_is_not_taken_for_indices(library):
    module = pytest.importorskip(library)
    mask = getattr(module, "Series", getattr(module, "tensor", None))([True, False])
    with pytest.raises(ValueError, match="a mask; pass"):
        Subset("ab", mask)


@pytest.mark.parametrize("index", [1, np.int64(1), np.array(1)], ids=repr)
def test_a_single_index_is_refused(index):
    with pytest.raises(ValueError, match=r"^indices=.*1.*: pass a list or an array of ints"):
        Subset("ab", index)


def test_a_large_subset_is_kept_in_one_array():
    indices = list(range(5000))[::-1]
    assert len(pickle.dumps(Subset(range(5000), indices))) == pytest.approx(8 * 5000, rel=0.05)


@given(st.integers(0, 40), st.lists(st.floats(0.01, 1), min_size=1, max_size=5), st.integers(-5, 2**64 - 1))
def test_a_split_by_fractions_holds_every_sample_once(count, shares, seed):
    fractions = [share / sum(shares) for share in shares]
    parts = random_split(range(count), fractions, seed)
    assert sorted(value for part in parts for value in part) == list(range(count))
    assert len(parts) == len(fractions)
    for part, fraction in zip(parts, fractions, strict=True):
        assert count * fraction - 1 < len(part) <= count * fraction + 1
    assert [list(part) for part in parts] == [list(part) for part in random_split(range(count), fractions, seed)]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_a_split_by_lengths(lengths):
    if sum(lengths) == 1:
        return
    parts = random_split(list(range(sum(lengths))), lengths, seed=3)
    assert list(map(len, parts)) == lengths
    assert sorted(value for part in parts for value in part) == list(range(sum(lengths)))


def test_what_is_left_over_goes_to_the_first_parts():
    assert [len(part) for part in random_split(range(10), [0.25] * 4, seed=0)] == [3, 3, 2, 2]
    assert [len(part) for part in random_split(range(7), [0.1] * 10, seed=0)] == [1] * 7 + [0] * 3


def test_a_split_is_random_and_repeats_with_its_seed():
    def order(seed):
        return [value for part in random_split(range(100), [60, 40], seed) for value in part]

    assert order(1) == order(1) != order(2)
    np.random.seed(5)
    first = order(None)
    assert order(None) != first
    np.random.seed(5)
    assert order(None) == first


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda part: ConcatDataset([1], part), r"datasets\[1\]=.*: it has no length; pass"),
        (lambda part: SimpleDataset([1]) + part, r"datasets\[1\]=.*: it has no length; pass"),
        (lambda part: ArrayDataset([1], part), r"arrays\[1\]=.*: it has no length; pass"),
        (lambda part: StackDataset(x=[1], y=part), r"datasets\['y'\]=.*: it has no length; pass"),
        (lambda part: Rows({"x": [1], "y": part}), r"columns\['y'\]=.*: it has no length; pass"),
        (lambda part: Rows(part), r"columns\[0\]=.*: it has no length; pass"),
    ],
    ids=["concat", "sum", "array", "stack", "rows", "row"],
)
@pytest.mark.parametrize("part", [iter([1]), 5, np.array(5)], ids=["iterator", "int", "no axis"])
def test_a_part_without_a_length_is_named(make, text, part):
    with pytest.raises(ValueError, match=text):
        make(part)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ConcatDataset(), ValueError, "at least one dataset"),
        (lambda: ConcatDataset([]), ValueError, "at least one dataset"),
        (
            lambda: SimpleDataset([1]) + None,
            ValueError,
            r"datasets\[1\]=None: it has no length; .* with __len__",
        ),
        (
            lambda: SimpleDataset([1]) + IterableDataset(lambda: iter([1])),
            ValueError,
            r"datasets\[1\]=IterableDataset\(.*\): it cannot be indexed; join iterable datasets: "
            r"IterableDataset\(first\) \+ IterableDataset\(second\)",
        ),
        (
            lambda: SimpleDataset([1]) + IterableDataset([1]),
            ValueError,
            r"datasets\[1\]=IterableDataset\(list\(1\)\): it cannot be indexed",
        ),
        (lambda: StackDataset(), ValueError, r"StackDataset\(\) needs datasets: pass all"),
        (lambda: StackDataset([1], x=[1]), ValueError, "all of them by position or all by keyword"),
        (lambda: StackDataset([1], [1, 2]), ValueError, r"lengths \[1, 2\]"),
        (lambda: StackDataset(x=[1], y=[]), ValueError, "lengths {'x': 1, 'y': 0}"),
        *[
            (lambda lengths=lengths: random_split(range(10), lengths, seed=0), ValueError, "lengths=")
            for lengths in ([5, 4], [11], [0.5, 0.4], [-1, 11], [1.5, 8.5], [], [float("nan")], ["a"], "10", 3)
        ],
        (
            lambda: random_split(range(10), [5, 5], generator=np.random.default_rng(0)),  # torch's word
            TypeError,
            r"random_split\(\) has no argument generator: pass an int as seed instead",
        ),
    ],
)
def test_mistakes(make, error, text):
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize("index", ["a", 1.0, None, slice(2), [0]])
def test_a_wrong_index_is_refused(index):
    for dataset in (ConcatDataset([1], [2]), CompactList([1, 2])):
        if isinstance(index, slice) and isinstance(dataset, CompactList):
            continue  # which has slices, as a list has
        with pytest.raises(
            TypeError, match=r"index=.*: must be an int; for several samples, use Subset\(dataset, indices\)"
        ):
            dataset[index]


def test_repr_shows_the_datasets_inside():
    assert repr(Subset(range(10), [3, 1])) == "Subset(2 of range(10))"
    assert repr(ConcatDataset([1, 2], [3])) == "ConcatDataset(list(2), list(1))"
    assert repr(CompactList("abc")) == "CompactList(3)"
    assert repr(StackDataset(x=[1, 2], y=[3, 4])) == "StackDataset(2)"


def test_stacked_datasets_are_side_by_side():
    letters, numbers = SimpleDataset(["a", "b"]), np.array([1, 2])
    assert list(StackDataset(letters, numbers)) == [("a", 1), ("b", 2)]
    assert list(StackDataset(letters)) == [("a",), ("b",)]
    assert list(StackDataset(x=letters, y=numbers)) == [{"x": "a", "y": 1}, {"x": "b", "y": 2}]
    assert len(StackDataset(x=letters)) == 2


@pytest.mark.parametrize("width", [7, 10_000])
@pytest.mark.parametrize("fields", [1, 2])
def test_a_batch_of_several_datasets_has_their_rows_in_order(width, fields):
    rows = np.arange(12 * width).reshape(12, width)
    columns = [rows, np.arange(12)][:fields]
    parts = [ArrayDataset(*(column[start : start + 4] for column in columns)) for start in (0, 4, 8)]
    joined = ConcatDataset(parts[0], parts[1].take(3), parts[2].transform(lambda rows: rows, batched=True))
    found = [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    for indices in ([10, 0, 5], [3, 4, 3, 8, 4], [1, 2], [6]):
        batch = default_batchify(joined.__getitems__(indices))
        assert np.array_equal(batch if fields == 1 else batch[0], rows[[found[i] for i in indices]])
        assert fields == 1 or batch[1].tolist() == [found[i] for i in indices]


def test_large_rows_of_several_datasets_are_copied_once():
    images = np.ones((8, 500_000), np.uint8)
    joined = ConcatDataset(ArrayDataset(images), ArrayDataset(images))
    tracemalloc.start()
    try:
        assert default_batchify(joined.__getitems__([9, 0, 3, 12])).all()
        assert tracemalloc.get_traced_memory()[1] < 3e6  # the batch has 2 MB
    finally:
        tracemalloc.stop()
