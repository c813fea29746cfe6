"""Streams: chunks of an iterable dataset in any order, opened again anywhere, are those of one plain reading."""

import io
import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stream_reads import ask, flat, read_all, through_json

from gluonloader import IterableDataset, get_rng
from gluonloader.randomness import set_current_seed
from gluonloader.work.streams import Hint, Streams


@pytest.fixture(autouse=True)
def _no_batch():
    yield
    set_current_seed(None)


class Stateful:
    """torchdata's convention: the dataset knows where its iterator stands."""

    opened_at = ()

    def __init__(self, length, start=0, epoch=None):
        self.length, self.position, self.epoch = length, start, epoch
        self.opened_at = []

    def __iter__(self):
        self.opened_at.append(self.position)
        while self.position < self.length:
            self.position += 1
            yield self.position - 1
        self.position = 0

    def state_dict(self):
        return {"position": np.int64(self.position)}

    def load_state_dict(self, state):
        self.position = state["position"]


class StatefulIterator:
    """The other convention: the iterator knows, and is put where it stood."""

    def __init__(self, length):
        self.length, self.position = length, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.position == self.length:
            raise StopIteration
        self.position += 1
        return self.position - 1

    def state_dict(self):
        return [self.position]

    def load_state_dict(self, state):
        self.position = state[0]


class Parted:
    """Has parts of its own: at most `num_shards`."""

    def __init__(self, parts, epoch=None):
        self.parts, self.num_shards = parts, len(parts)

    def shard(self, num_shards, index):
        assert num_shards <= len(self.parts)
        return Parted(self.parts[index::num_shards])

    def __iter__(self):
        return itertools.chain.from_iterable(self.parts)


def dataset_of(kind, length):
    if kind == "generator":
        return IterableDataset(lambda: (number for number in range(length)))
    if kind == "stateful":
        return Stateful(length)
    if kind == "iterator":
        return IterableDataset(lambda: StatefulIterator(length))
    if kind == "parted":
        return Parted([range(length)[part::3] for part in range(3)])
    return IterableDataset(Stateful(2 * length)).filter(lambda x: x % 2 == 0).transform(lambda x: x // 2)


KINDS = ["generator", "stateful", "iterator", "parted", "piped"]


@given(
    kind=st.sampled_from(KINDS),
    length=st.integers(0, 40),
    num_shards=st.integers(1, 5),
    size=st.integers(1, 6),
    buffer=st.sampled_from([0, 0, 2, 7, 20]),
    epoch=st.integers(0, 2),
    data=st.data(),
)
def test_any_order_of_asking_gives_the_samples_of_one_plain_reading(
    kind, length, num_shards, size, buffer, epoch, data
):
    dataset = dataset_of(kind, length)
    about = {"num_shards": num_shards, "size": size, "buffer": buffer, "epoch": epoch}
    plain = [read_all(dataset, shard=shard, **about) for shard in range(num_shards)]
    assert sorted(flat(flat(chunks) for chunks, _ in plain)) == list(range(length))
    workers = [Streams(dataset), Streams(dataset)]
    for _ in range(data.draw(st.integers(0, 12), "asks")):
        shard = data.draw(st.integers(0, num_shards - 1), "shard")
        chunks, hints = plain[shard]
        number = data.draw(st.integers(0, len(chunks) + 1), "number")
        hint = hints[data.draw(st.integers(0, min(number, len(hints) - 1)), "hint")]
        worker = data.draw(st.integers(-1, 1), "worker")
        streams = workers[worker] if worker >= 0 else Streams(dataset)
        read = ask(streams, number, shard, hint=through_json(hint), **about)
        assert read.samples == (chunks[number] if number < len(chunks) else [])
        assert len(read.samples) < size or read.hint == hints[number + 1]


def test_without_shuffling_the_order_is_that_of_the_source():
    chunks, _ = read_all(dataset_of("generator", 8), size=3)
    assert chunks == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert flat(read_all(dataset_of("generator", 8), shard=1, num_shards=3)[0]) == [1, 4, 7]
    assert flat(read_all(dataset_of("parted", 8), shard=1, num_shards=3)[0]) == [1, 4, 7]
    assert flat(read_all(Parted([[1, 2, 3], [4, 5, 6]]), shard=1, num_shards=2)[0]) == [4, 5, 6]
    more = [flat(read_all(Parted([[1, 2, 3], [4, 5, 6]]), shard=shard, num_shards=3)[0]) for shard in range(3)]
    assert more == [[1, 3], [4, 5, 6], [2]]  # more shards than it has


def test_the_buffer_shuffles_by_seed_epoch_and_shard_alone():
    def order(**about):
        return flat(read_all(dataset_of("generator", 60), size=3, buffer=12, **about)[0])

    np.random.seed(0)
    first = order()
    np.random.seed(1)
    assert first == order()
    assert first != sorted(first) == list(range(60))
    assert order(epoch=1) != first
    assert [x // 12 for x in first] == [x // 12 for x in range(60)]  # within blocks of twelve
    halves = [order(shard=shard, num_shards=2) for shard in range(2)]
    assert [x // 2 for x in halves[0]] != [x // 2 for x in halves[1]]


@given(size=st.integers(1, 5), buffer=st.integers(0, 30), num_shards=st.integers(1, 3))
def test_no_more_samples_live_than_the_buffer_holds_and_a_few_batches(size, buffer, num_shards):
    class Sample:
        living = most = 0

        def __init__(self):
            Sample.living += 1
            Sample.most = max(Sample.most, Sample.living)

        def __del__(self):
            Sample.living -= 1

    streams = Streams(IterableDataset(lambda: (Sample() for _ in range(200))))
    for number in range(200 // size // num_shards):
        ask(streams, number, 0, num_shards, size, buffer)
    assert Sample.most <= max(buffer, size) + 3 * size + 1


# -- random numbers ----------------------------------------------------------------------------------------------------


def drawing():
    for number in range(30):
        yield number, random.random(), np.random.rand(), get_rng().random()


def drawing_in_random_order():
    order = list(range(30))
    random.shuffle(order)
    while order:
        yield order.pop(np.random.randint(len(order))), get_rng().random()


def drawing_at_once():
    return iter([(int(number), get_rng().random()) for number in np.random.permutation(30)])


def augment(number, *drawn):
    return number, *drawn, np.random.rand(), get_rng().random()


@pytest.mark.parametrize("make", [drawing, drawing_in_random_order, drawing_at_once])
@pytest.mark.parametrize("buffer", [0, 9])
@pytest.mark.parametrize("num_shards", [1, 3])
def test_random_numbers_are_the_same_after_opening_again(make, buffer, num_shards):
    dataset = IterableDataset(make).transform(augment)
    seen = []
    for shard in range(num_shards):
        about = {"size": 2, "buffer": buffer, "epoch": 1, "shard": shard, "num_shards": num_shards}
        chunks, _ = read_all(dataset, **about)
        for number, samples in enumerate(chunks):
            assert ask(Streams(dataset), number, **about).samples == samples
        seen += flat(chunks)
    assert sorted(sample[0] for sample in seen) == list(range(30))  # shards agree on a random order, too
    assert len({sample[-1] for sample in seen}) == len({sample[-2] for sample in seen}) == 30


@pytest.mark.parametrize("buffer", [0, 6])
def test_the_generators_have_the_same_state_after_a_chunk_was_read(buffer):
    """What batchify draws does not depend on how the chunk was come by."""
    dataset, streams, drawn = IterableDataset(drawing).transform(augment), Streams(IterableDataset(drawing)), []
    for streams, number in [(Streams(dataset), 3), (again := Streams(dataset), 2), (again, 3), (again, 3)]:
        ask(streams, number, buffer=buffer)
        drawn.append((random.random(), np.random.rand(), get_rng().random()))
    assert drawn[0] == drawn[2] == drawn[3] != drawn[1]


# -- what is read how often --------------------------------------------------------------------------------------------


def test_a_stream_continues_and_reads_nothing_twice():
    read = []
    streams = Streams(IterableDataset(lambda: (read.append(n) or n for n in range(20))))
    for number in [0, 1, 1, 0, 2, 4, 6, 7, 100]:  # 1 and 0 are asked for again, as if their batches had had no room
        ask(streams, number)
    assert read == list(range(20))
    assert ask(streams, 3).samples == [9, 10, 11]
    assert len(read) == 20 + 12


def test_a_dataset_with_a_state_reads_less():
    dataset = Stateful(100)
    _, hints = read_all(dataset)
    dataset.opened_at.clear()
    assert ask(Streams(dataset), 20, hint=through_json(hints[20])).samples == [60, 61, 62]
    assert ask(Streams(dataset), 22, hint=through_json(hints[20])).samples == [66, 67, 68]
    assert ask(Streams(dataset), 20, hint=through_json(hints[21])).samples == [60, 61, 62]  # a hint beyond is no use
    assert dataset.opened_at == [60, 60, 0]
    assert dataset.position == 0, "streams read copies"


def test_hints_with_shuffling_lie_before_a_fill_of_the_buffer():
    _, hints = read_all(Stateful(40), size=2, buffer=8)
    assert [hint and hint.group for hint in hints] == [
        None,
        *[0] * 3,
        *[4] * 4,
        *[8] * 4,
        *[12] * 4,
        *[16] * 4,
        20,
        None,
    ]


def test_a_dataset_without_state_gives_no_hints():
    for dataset in [dataset_of("generator", 9), IterableDataset(Stateful(9)).take(8)]:
        assert set(read_all(dataset, buffer=6)[1]) == {None}


def test_each_iteration_and_epoch_has_its_own_stream():
    opened = []

    def make():
        opened.append(1)
        return iter(range(20))

    streams = Streams(IterableDataset(make))
    for number in range(3):
        expected = [3 * number, 3 * number + 1, 3 * number + 2]
        assert [ask(streams, number, iteration=iteration).samples for iteration in (0, 1)] == [expected] * 2
    assert len(opened) == 2
    assert ask(streams, 0, iteration=1, epoch=1).samples == [0, 1, 2]
    assert ask(streams, 3, iteration=1).samples == [9, 10, 11]
    assert len(opened) == 3
    assert ask(streams, 3, iteration=0).samples == [9, 10, 11]  # let go of; it is opened again
    assert len(opened) == 4


def test_transforms_run_only_for_samples_that_are_asked_for():
    ran = []
    dataset = IterableDataset(range(30)).transform(lambda x: ran.append(x) or -x)
    assert ask(Streams(dataset), 2, shard=1, num_shards=2).samples == [-13, -15, -17]
    assert ran == [13, 15, 17]
    ran.clear()
    filtered = dataset.filter(lambda x: x % 2 == 0).take(4)  # these have to see all
    assert [flat(read_all(filtered, shard=shard, num_shards=2)[0]) for shard in (0, 1)] == [[0, -4], [-2, -6]]


def test_a_caller_may_change_the_list_of_samples():
    streams = Streams(IterableDataset(range(9)))
    ask(streams, 0).samples.clear()
    assert ask(streams, 0).samples == [0, 1, 2]


def test_set_epoch_is_called_on_a_copy():
    class Files:
        epoch = None

        def set_epoch(self, epoch):
            self.epoch = epoch

        def __iter__(self):
            return iter([self.epoch] * 4)

    files = Files()
    assert flat(read_all(files, epoch=7)[0]) == [7] * 4
    assert files.epoch is None


class Lines:
    """Twelve lines, whose shards are what `wrap` makes of a new iterator."""

    def __init__(self, wrap):
        self.wrap = wrap

    def shard(self, num_shards, index):
        return self.wrap(range(index, 12, num_shards))

    def __iter__(self):
        raise AssertionError("only the shards are wanted")


def generated(numbers):
    yield from numbers


@pytest.mark.parametrize(
    "wrap",
    [
        generated, list, tuple, np.array, iter, lambda numbers: map(int, numbers),
        lambda numbers: (number for (number,) in zip(numbers, strict=True)),
        lambda numbers: map(int, io.StringIO("\n".join(map(str, numbers)))),
    ],
    ids=["generator", "list", "tuple", "array", "iterator", "map", "zip", "file"],
)  # fmt: skip
@pytest.mark.parametrize("buffer", [0, 6])
def test_a_shard_may_be_anything_that_is_iterated_once(wrap, buffer):
    dataset = Lines(wrap)
    for epoch in range(2):
        streams = Streams(dataset)
        for shard in range(2):
            about = {"shard": shard, "num_shards": 2, "buffer": buffer, "epoch": epoch}
            chunks = [ask(streams, number, **about).samples for number in range(3)]
            assert sorted(flat(chunks)) == list(range(shard, 12, 2))
            assert [ask(streams, number, **about).samples for number in range(3)] == chunks  # a new iterator again
            assert ask(Streams(dataset), 1, **about).samples == chunks[1]


def test_a_shard_that_is_a_generator_knows_the_epoch():
    class Epochs(Lines):
        epoch = None

        def set_epoch(self, epoch):
            self.epoch = epoch

        def shard(self, num_shards, index):
            yield from [(self.epoch, index)] * 2

    dataset = Epochs(None)
    assert flat(read_all(dataset, shard=1, num_shards=2, epoch=4)[0]) == [(4, 1)] * 2
    assert dataset.epoch is None


def test_a_shard_that_returns_the_same_iterator_again_is_an_error():
    numbers = iter(range(12))
    for again in ({"shard": 1}, {"epoch": 1}):
        streams = Streams(Lines(lambda shard: numbers))
        ask(streams, 0, num_shards=2)
        with pytest.raises(RuntimeError, match="Lines.shard returned the same iterator again, which was read already"):
            ask(streams, 0, num_shards=2, **again)


@pytest.mark.parametrize("shard", [None, 5, {1, 2}])
def test_a_shard_that_cannot_be_read_is_an_error(shard):
    with pytest.raises(TypeError, match=r"Lines.shard\(2, 1\) returned .*; return the samples of the shard in a fixed"):
        ask(Streams(Lines(lambda numbers: shard)), 0, shard=1, num_shards=2)


# -- joined datasets ---------------------------------------------------------------------------------------------------


class Sharded(IterableDataset):
    """Has shards, an epoch, and an order that it draws."""

    def __init__(self, numbers, most=None, epoch=None):
        self.numbers, self.epoch = numbers, epoch
        if most is not None:
            self.num_shards = most

    def set_epoch(self, epoch):
        self.epoch = epoch

    def shard(self, num_shards, index):
        yield from Sharded(self.numbers[index::num_shards], epoch=self.epoch)

    def __iter__(self):
        for number in get_rng().permutation(self.numbers):
            yield self.epoch, int(number)


def shuffled(numbers):
    """A dataset without shards that draws its order."""
    return IterableDataset(lambda: ((None, int(number)) for number in get_rng().permutation(numbers)))


JOINED = {
    "shards": lambda: Sharded(range(11)) + Sharded(range(20, 28)),
    "shards, transformed": lambda: Sharded(range(11)) + Sharded(range(20, 28)).filter(len).transform(lambda *x: x),
    "shards of one": lambda: Sharded(range(11)) + shuffled(range(20, 28)),
    "no shards": lambda: shuffled(range(11)) + shuffled(range(20, 28)),
    "too few shards": lambda: Sharded(range(11), most=2) + Sharded(range(20, 28), most=1),
    "a sum in a sum": lambda: (Sharded(range(11)) + Sharded([])).filter(len) + Sharded(range(20, 28)),
    "counted": lambda: Sharded(range(11)) + Sharded(range(20, 28)).take(8),
}


@pytest.mark.parametrize("kind", JOINED)
@pytest.mark.parametrize("buffer", [0, 6])
@pytest.mark.parametrize("num_shards", [1, 3])
def test_joined_datasets_are_read_one_after_the_other_and_each_sample_once(kind, buffer, num_shards):
    dataset = JOINED[kind]()
    streams, seen = Streams(dataset), []
    for shard in range(num_shards):
        about = {"shard": shard, "num_shards": num_shards, "buffer": buffer, "epoch": 5}
        chunks = read_all(dataset, **about)[0]
        seen += flat(chunks)
        for number in (1, 0, len(chunks) - 1):  # also if they are opened again, or read beside each other
            assert ask(streams, number, **about).samples == chunks[number]
    assert sorted(number for _, number in seen) == [*range(11), *range(20, 28)]
    assert {epoch for epoch, _ in seen} <= {5, None}
    if not buffer and num_shards == 1:
        assert [number < 20 for _, number in seen] == [True] * 11 + [False] * 8


def test_joined_datasets_do_not_share_their_epochs():
    streams = Streams(Sharded(range(4)) + Sharded(range(4)))
    for number in range(3):
        for epoch in (0, 1):
            assert {seen for seen, _ in ask(streams, number, epoch=epoch, iteration=epoch).samples} == {epoch}


def test_a_joined_dataset_with_a_state_is_read_by_two_streams():
    streams = Streams(IterableDataset(Stateful(7)) + [10, 11])
    for number, expected in enumerate([[0, 1, 2], [3, 4, 5], [6, 10, 11]]):
        for iteration in (0, 1):
            assert ask(streams, number, iteration=iteration).samples == expected


def test_a_shard_of_a_joined_dataset_that_is_read_again_is_an_error():
    numbers = iter(range(12))
    streams = Streams(IterableDataset(Lines(lambda shard: numbers)) + Lines(lambda shard: [1, 2]))
    ask(streams, 0, num_shards=2)
    with pytest.raises(RuntimeError, match="shard returned the same iterator again"):
        ask(streams, 0, shard=1, num_shards=2)


# -- errors ------------------------------------------------------------------------------------------------------------


class GoesOn:
    """Its iterator raises at some samples and continues after them."""

    def __init__(self, length, bad, error=KeyError):
        self.length, self.bad, self.error = length, bad, error

    def __iter__(self):
        return map(self.check, range(self.length))

    def check(self, number):
        if number in self.bad:
            raise self.error(number)
        return number


def outcomes(dataset, streams=None, **about):
    """What comes of each chunk until the shard ends: samples, or the error."""
    streams, found = streams or Streams(dataset), []
    for number in range(100):
        try:
            found.append(ask(streams, number, **about).samples)
        except Exception as error:
            found.append(error)
            continue
        if len(found[-1]) < about.get("size", 3):
            return found
    raise AssertionError("it never ends")


def test_an_error_names_its_sample_and_costs_one_chunk():
    found = outcomes(GoesOn(10, {5}), size=2)
    assert found[:2] + found[3:] == [[0, 1], [2, 3], [6, 7], [8, 9], []]
    (note,) = found[2].__notes__
    assert note == "gluonloader: in sample 5 of shard 0 of 1 (chunk 2), iterable dataset GoesOn"


@pytest.mark.parametrize("buffer", [0, 8])
def test_samples_after_an_error_are_the_same_as_without_it(buffer):
    dataset = GoesOn(40, {5, 22, 23})
    found = outcomes(dataset, size=2, buffer=buffer)
    assert sum(isinstance(read, KeyError) for read in found) == 3
    assert sorted(flat(read for read in found if isinstance(read, list))) == sorted({*range(40)} - {4, 5, 22, 23})
    for number, read in enumerate(found):  # another worker does not repeat the errors before it
        if isinstance(read, list):
            assert ask(Streams(dataset), number, size=2, buffer=buffer).samples == read


@pytest.mark.parametrize("bad", [0, 3, 4])
def test_the_error_of_a_sample_is_reported_by_its_own_shard(bad):
    found = [outcomes(GoesOn(12, {bad}), size=2, shard=shard, num_shards=2) for shard in (0, 1)]
    assert [any(isinstance(read, KeyError) for read in chunks) for chunks in found] == [bad % 2 == 0, bad % 2 == 1]
    assert flat(read for read in found[1 - bad % 2] if isinstance(read, list)) == [*range(1 - bad % 2, 12, 2)]


def test_take_and_shard_continue_after_an_error():
    assert outcomes(IterableDataset(GoesOn(20, {5})).take(9), size=2)[3:] == [[6, 7], [8]]
    bad = IterableDataset(range(20)).filter(lambda x: 1 // (x - 5))  # raises at 5, and keeps 6
    assert outcomes(bad.take(7), size=2)[-1] == [6]
    assert outcomes(IterableDataset(GoesOn(12, {5})).shard(2, 1), size=2)[2:] == [[7, 9], [11]]


@pytest.mark.parametrize("buffer", [0, 4])
@pytest.mark.parametrize("shard", [0, 1, 2])
def test_a_broken_generator_is_reported_by_every_shard_that_loses_samples(shard, buffer):
    def breaks():
        yield from range(12)
        raise OSError("disk")

    found = outcomes(IterableDataset(breaks), size=2, buffer=buffer, shard=shard, num_shards=3)
    assert [type(read) for read in found] == [list, list, OSError, list]
    assert sorted(flat(found[:2])) == [shard, shard + 3, shard + 6, shard + 9]
    assert found[3] == []
    with pytest.raises(OSError, match="disk"):  # another worker cannot know that the error was reported
        ask(Streams(IterableDataset(breaks)), 3, size=2, buffer=buffer, shard=shard, num_shards=3)
    beyond = ask(Streams(IterableDataset(breaks)), 4, size=2, buffer=buffer, shard=shard, num_shards=3)
    assert beyond.samples == []


def test_system_exit_and_stop_iteration_become_errors():
    (error, *rest) = outcomes(GoesOn(7, {1}, SystemExit), size=3)
    assert isinstance(error, RuntimeError)
    assert "GoesOn raised SystemExit(1)" in str(error)
    assert rest == [[2, 3, 4], [5, 6]]
    numbers = IterableDataset(range(4))
    stop = numbers.transform(lambda x: next(iter(())))
    for dataset in (stop, stop.filter(bool), numbers.filter(lambda x: next(iter(()))), stop.take(4)):
        *stops, rest = outcomes(dataset, size=1)
        assert ([type(error) for error in stops], rest) == ([RuntimeError] * 4, [])


def test_an_error_of_a_transform_costs_one_chunk():
    found = outcomes(IterableDataset(range(8)).transform(lambda x: 12 // (x - 4)), size=3)
    assert [type(read) for read in found] == [list, ZeroDivisionError, list]
    assert "in transform, of sample 4 of shard 0 of 1 (chunk 1), iterable dataset range" in found[1].__notes__[0]


def test_a_source_that_cannot_be_opened_is_reported_once():
    class Closed:
        def __iter__(self):
            raise PermissionError("no")

    error, end = outcomes(Closed())
    assert isinstance(error, PermissionError)
    assert "shard 0 of 1 (chunk 0), iterable dataset Closed" in error.__notes__[0]
    assert end == []
    with pytest.raises(PermissionError):
        ask(Streams(Closed()), 4)


def test_a_state_that_is_not_json_is_refused():
    class Pickled(Stateful):
        def state_dict(self):
            return {"position": object()}

    error, *rest = outcomes(Pickled(9))
    assert isinstance(error, TypeError)
    assert "Pickled.state_dict() returned something that JSON cannot store" in str(error)
    assert rest == [[]]
    with pytest.raises(ValueError, match=r"range has no state_dict\(\) here, but it had one when the state was saved"):
        ask(Streams(range(9)), 2, hint=Hint(1, {"position": 3}))


def test_an_interrupted_read_leaves_no_half_read_chunk():
    class Interrupted(GoesOn):
        def check(self, number):
            if number in self.bad:
                self.bad = set()
                raise KeyboardInterrupt
            return number

    streams = Streams(Interrupted(9, {4}))
    assert ask(streams, 0).samples == [0, 1, 2]
    with pytest.raises(KeyboardInterrupt):
        ask(streams, 1)
    assert ask(streams, 1).samples == [3, 4, 5]


def test_marks_come_before_the_samples_that_they_name():
    rows = []
    dataset = IterableDataset(lambda: (rows.append(f"read {n}") or n for n in range(9)))
    transformed = dataset.transform(lambda x: rows.append(f"made {x}") or x)
    ask(Streams(transformed), 1, size=2, on_row=rows.append)
    assert rows == ["read 0", "read 1", 0, "read 2", 1, "read 3", 0, "made 2", 1, "made 3"]
