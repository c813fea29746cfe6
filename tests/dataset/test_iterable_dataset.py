"""`IterableDataset`, and which objects count as iterable."""

import pickle

import numpy as np
import pytest

from gluonloader import ArrayDataset, DataLoader, IterableDataset, SimpleDataset
from gluonloader.dataset.iterable import check_iterable, is_iterable


def count():
    yield from range(6)


def test_it_can_be_iterated_again_and_again():
    for dataset in [IterableDataset(count), IterableDataset(range(6)), IterableDataset(lambda: list(range(6)))]:
        assert list(dataset) == list(dataset) == [0, 1, 2, 3, 4, 5]


def test_steps_are_applied_in_their_order():
    dataset = IterableDataset(count)
    assert list(dataset.transform(lambda x: x + 1).filter(lambda x: x % 2)) == [1, 3, 5]
    assert list(dataset.filter(lambda x: x % 2).transform(lambda x: x + 1)) == [2, 4, 6]
    assert list(dataset.take(4).filter(lambda x: x % 2)) == [1, 3]
    assert list(dataset.filter(lambda x: x % 2).take(2)) == [1, 3]
    assert list(dataset) == [0, 1, 2, 3, 4, 5]


def test_a_loader_and_shards_apply_steps_in_the_same_order():
    dataset = IterableDataset(range(20))
    for steps in (
        dataset.transform(lambda x: x + 1).filter(lambda x: x % 2),
        dataset.filter(lambda x: x % 2).transform(lambda x: x + 1),
        dataset.take(9).filter(lambda x: x % 2).transform(lambda x: -x).take(3),
    ):
        with DataLoader(steps, 1) as loader:
            assert [int(batch[0]) for batch in loader] == list(steps)
        shards = [list(steps.shard(3, index)) for index in range(3)]
        assert sorted(x for shard in shards for x in shard) == sorted(steps)


def test_transform_spreads_tuples_and_filter_does_not():
    pairs = IterableDataset([(1, 2), (3, 4)])
    assert list(pairs.transform(lambda a, b: a + b)) == [3, 7]
    assert list(pairs.filter(lambda pair: pair[0] > 1)) == [(3, 4)]


def test_a_length_where_the_source_has_one():
    sized = IterableDataset([1, 2, 3])
    assert [len(sized), len(sized.transform(str)), len(sized.take(2)), len(sized.take(9).take(8))] == [3, 3, 2, 3]
    for unsized in [
        IterableDataset(count),
        sized.filter(bool),
        sized.filter(bool).take(1),
        IterableDataset(count).take(2),
    ]:
        assert not hasattr(unsized, "__len__")


class Countdown(IterableDataset):
    def __init__(self, start, step=1):
        self.start, self.step = start, step

    def __iter__(self):
        return iter(range(self.start, 0, -self.step))


def test_a_subclass_defines_how_it_is_iterated():
    assert list(Countdown(3)) == [3, 2, 1]
    assert list(Countdown(5, step=2).transform(lambda x: -x).take(2)) == [-5, -3]

    class Nothing(IterableDataset):
        def __init__(self):
            pass

    with pytest.raises(NotImplementedError, match="Nothing must define __iter__"):
        iter(Nothing())


def test_it_can_be_pickled():
    for dataset in [
        IterableDataset(count),
        IterableDataset([1, 2]),
        Countdown(3),
        IterableDataset([1, 2]).transform(str),
    ]:
        copy = pickle.loads(pickle.dumps(dataset))
        assert list(copy) == list(dataset)
        assert hasattr(copy, "__len__") == hasattr(dataset, "__len__")


class Rewound:
    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration

    def reset(self):
        pass


def test_what_can_be_iterated_only_once_is_refused():
    for once in [count(), iter([1]), map(str, [1])]:
        with pytest.raises(
            ValueError, match=r"source=.*only once; pass a function that makes a new iterator: IterableDataset\(make"
        ):
            IterableDataset(once)
        with pytest.raises(ValueError, match="dataset=.*only once"):
            check_iterable(once)
    for again in [IterableDataset(count), Rewound(), IterableDataset(Rewound()).transform(str), [1], Countdown(2)]:
        check_iterable(again)


NUMBERS = IterableDataset(count)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: IterableDataset(5), "source=5: pass an iterable, or a function that returns an iterator"),
        (lambda: NUMBERS + 5, "source=5: pass an iterable, or a function that returns an iterator"),
        (lambda: NUMBERS + count(), "source=.*only once"),
        (lambda: NUMBERS.take(-1), "count=-1: must be an int >= 0"),
        (lambda: NUMBERS + Rewound(), "it is a single iterator; pass a function that makes a new one"),
        (lambda: IterableDataset(Rewound()).transform(str) + NUMBERS, "it is a single iterator; pass a function that"),
    ],
)
def test_mistakes(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_what_counts_as_iterable():
    class Alone:
        def __iter__(self):
            return iter(())

    for iterable in [Alone(), IterableDataset(count), Countdown(2), IterableDataset([1]), Rewound(), {1, 2}, count()]:
        assert is_iterable(iterable)
    columns = np.arange(3)
    for other in [
        [1],
        (1,),
        "text",
        {},
        columns,
        range(3),
        SimpleDataset([1]),
        ArrayDataset(columns),
        count,
        Alone,
        5,
        None,
    ]:
        assert not is_iterable(other)


def test_torchs_iterable_datasets_count():
    data = pytest.importorskip("torch.utils.data")

    class Iterable(data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    class Indexed(data.Dataset):
        def __getitem__(self, index):
            return index

    assert is_iterable(Iterable())
    assert not is_iterable(Indexed())


def test_iterable_datasets_are_joined():
    ones, twos = IterableDataset(count).take(2), IterableDataset([7, 8])
    joined = ones + twos + Countdown(2)
    assert list(joined) == list(joined) == [0, 1, 7, 8, 2, 1]
    assert list(joined.filter(lambda x: x > 1).transform(str).take(2)) == ["7", "8"]
    assert list(joined.transform(lambda x: -x) + ones) == [0, -1, -7, -8, -2, -1, 0, 1]
    assert list(pickle.loads(pickle.dumps(joined))) == list(joined)
    assert repr(ones + twos + twos) == (
        "(IterableDataset(count).take(2) + IterableDataset(list(2)) + IterableDataset(list(2)))"
    )
    assert repr((twos + twos).take(3)) == "(IterableDataset(list(2)) + IterableDataset(list(2))).take(3)"


def test_whatever_iterable_datasets_accept_is_joined():
    for other in ([5, 6], lambda: iter([5, 6]), SimpleDataset([5, 6]), IterableDataset([5, 6])):
        assert list(Countdown(2) + other) == [2, 1, 5, 6]


def test_joined_datasets_have_a_length_if_all_have_one():
    sized = IterableDataset([1, 2, 3]) + [4] + (IterableDataset([5]) + [6]).transform(str)
    assert len(sized) == len(list(sized)) == 6
    assert len(sized.take(4) + [1]) == 5
    assert not hasattr(sized + count, "__len__")


def test_a_joined_dataset_that_returns_the_same_iterator_again_is_an_error():
    class Once:
        numbers = iter(range(3))

        def __iter__(self):
            return self.numbers

    joined = IterableDataset([8]) + Once()
    assert list(joined) == [8, 0, 1, 2]
    with pytest.raises(RuntimeError, match="Once.__iter__ returned the same iterator again"):
        list(joined)


def test_repr_shows_the_source_and_the_steps():
    def numbers():
        yield 1

    assert repr(IterableDataset(numbers)) == "IterableDataset(numbers)"
    assert repr(IterableDataset(range(9)).filter(bool).take(2)) == "IterableDataset(range(9)).filter(bool).take(2)"
    assert repr(Countdown(3)) == "Countdown()"
    assert repr(Countdown(3).transform(float)) == "Countdown().transform(float)"
