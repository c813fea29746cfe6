"""Rows of documents whose lengths are not known: each token once, the same rows whoever reads them, exact positions."""

import json
import os
import signal
from itertools import islice

import numpy as np
import pytest
from conftest import ANY, FORK, SERIAL, THREAD
from hypothesis import given
from hypothesis import strategies as st

from gluonloader import DataLoader, IterableDataset, MixtureSampler, RandomSampler
from gluonloader.errors import TokenError
from gluonloader.text import PackedStream, PackingSampler, PackRows

SIZE = 16
METHODS = ["best_fit", "in_order", "split"]


def tokens_of(number):
    """The tokens of a document: its number, then others that tell their place; document 0 is empty."""
    return [number * 100 + place for place in range(number * 7 % 23)]


class Texts:
    """A dataset that notes which documents are read."""

    def __init__(self, count):
        self.count, self.read = count, []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.read.append(index)
        return tokens_of(index)


class Stream:
    """A stream of documents whose iterators have a state, if `stateful`; `shard` takes every n-th document."""

    def __init__(self, count, stateful=True, part=slice(None)):
        self.numbers, self.stateful = range(count)[part], stateful

    def shard(self, num_shards, index):
        return Stream(self.numbers.stop, self.stateful, slice(index, None, num_shards))

    def __iter__(self):
        return (StatefulIterator if self.stateful else map)(tokens_of, self.numbers)


class StatefulIterator:
    def __init__(self, function, numbers):
        self.function, self.numbers, self.used = function, numbers, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.used == len(self.numbers):
            raise StopIteration
        self.used += 1
        return self.function(self.numbers[self.used - 1])

    def state_dict(self):
        return {"used": self.used}

    def load_state_dict(self, state):
        self.used = state["used"]


SOURCES = {
    "indexed": lambda: (Texts(120), RandomSampler(120, seed=3)),
    "stateful stream": lambda: (Stream(120), None),
    "stream": lambda: (Stream(120, stateful=False), None),
    "generator": lambda: (IterableDataset(lambda: map(tokens_of, range(120))), None),
}


def packed(source, method="best_fit", **options):
    documents, sampler = SOURCES[source]()
    return PackedStream(documents, SIZE, sampler, method, **{"window": 20, **options})


def loader_of(dataset, way=SERIAL, num_shards=3, **options):
    return way.loader(IterableDataset(dataset, num_shards=num_shards), 2, batchify_fn=PackRows(), **options)


def shards_of(source):
    return 1 if source == "generator" else 3  # a generator makes no shards


def read(loader, count=None):
    return [batch["tokens"].tolist() for batch in islice(loader, count)]


def tokens_in(batches):
    return sorted(token for batch in batches for row in batch for token in row if token)


def all_tokens(count=120):
    return sorted(token for number in range(count) for token in tokens_of(number))


@pytest.mark.parametrize("method", METHODS)
@given(
    lengths=st.lists(st.integers(0, 40), max_size=30),
    window=st.integers(1, 8),
    long=st.sampled_from(["split", "truncate", "drop"]),
)
def test_every_token_is_in_one_row(method, lengths, window, long):
    long = "split" if method == "split" else long
    documents = [np.arange(length) + 100 * number for number, length in enumerate(lengths)]
    rows = list(PackedStream(documents, SIZE, method=method, window=window, long=long))
    found: dict[int, list[int]] = {}
    for sample in rows:
        row = sample.row
        assert 0 < sum(row.lengths) <= SIZE
        for number, start, stop, tokens in zip(row.documents, row.starts, row.stops, sample.tokens, strict=True):
            assert tokens.tolist() == documents[number][start : stop + 1].tolist()
            found.setdefault(number, []).extend(range(start, stop))
    kept = {
        number: list(range(min(length, SIZE) if long == "truncate" else length))
        for number, length in enumerate(lengths)
        if length and not (long == "drop" and length > SIZE)
    }
    assert {number: sorted(places) for number, places in found.items()} == kept
    if method == "split":
        assert all(sum(sample.row.lengths) == SIZE for sample in rows[:-1])


@pytest.mark.parametrize("way", ANY, ids=str)
@pytest.mark.parametrize(("source", "method"), list(zip(SOURCES, [*METHODS, "split"], strict=True)))
def test_rows_are_the_same_over_each_executor(way, source, method):
    expected = read(loader_of(packed(source, method), num_shards=shards_of(source)))
    assert tokens_in(expected) == all_tokens()
    with loader_of(packed(source, method), way, shards_of(source)) as loader:
        assert read(loader) == expected


@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("method", ["best_fit", "split"])
@pytest.mark.filterwarnings("ignore:resuming .* again")
def test_a_position_is_exact(way, source, method):
    def loader(way=SERIAL):
        return loader_of(packed(source, method), way, shards_of(source))

    with loader() as whole_loader:
        whole = read(whole_loader)
    for taken in range(0, len(whole), 5 if way is SERIAL else 13):
        with loader(way) as stopped, loader() as resumed:
            assert read(stopped, taken) == whole[:taken]
            resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
            assert read(resumed) == whole[taken:]


def test_a_resume_reads_only_the_last_window_again():
    data = packed("indexed", window=4)
    with DataLoader(data, 2, batchify_fn=PackRows()) as loader:
        iterator = iter(loader)
        for _ in range(20):
            next(iterator)
        state = loader.state_dict()
        rest = read(iterator)
    texts = Texts(120)
    again = PackedStream(texts, SIZE, RandomSampler(120, seed=3), window=4)
    with DataLoader(again, 2, batchify_fn=PackRows()) as resumed:
        resumed.load_state_dict(state)
        assert read(resumed) == rest
    order = list(RandomSampler(120, seed=3))
    assert texts.read == order[order.index(texts.read[0]) :]
    assert order.index(texts.read[0]) >= 40


STATEFUL = "stateful stream"


def mixed(weights):
    mixture = MixtureSampler([100, 20], weights=weights, num_samples=100, seed=0)
    return PackedStream(Texts(120), SIZE, mixture, window=20)


def in_order_of(sampler):
    return PackedStream(Texts(120), SIZE, sampler, window=20)


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (packed("indexed"), in_order_of(RandomSampler(120, seed=4)), "sampler"),
        (packed("indexed"), in_order_of(RandomSampler(119, seed=3)), "sampler"),
        (packed("indexed"), in_order_of(None), "sampler"),
        (packed(STATEFUL), packed(STATEFUL, window=30), "window.*must be the same as in the state"),
        (packed(STATEFUL), packed(STATEFUL, "in_order"), "method.*must be the same as in the state"),
        (packed(STATEFUL), packed(STATEFUL, align=2), "align.*must be the same as in the state"),
        (mixed([0.6, 0.4]), mixed([0.1, 0.9]), "sampler.*must be the same"),
    ],
)
def test_a_position_of_another_order_or_other_arguments_is_refused(before, after, text):
    with DataLoader(before, 2, batchify_fn=PackRows()) as loader:
        list(islice(loader, 5))
        state = loader.state_dict()
    with DataLoader(after, 2, batchify_fn=PackRows()) as loader:
        loader.load_state_dict(state)
        with pytest.raises(ValueError, match=text):
            next(iter(loader))


def test_a_mixture_whose_weights_were_changed_is_refused():
    mixture = MixtureSampler([100, 20], num_samples=100, seed=0)
    mixture.weights = [0.1, 0.9]
    with pytest.raises(ValueError, match="its weights were changed"):
        list(PackedStream(Texts(120), SIZE, mixture))


class Unsteady(Texts):
    """One document is shorter in the first reading, or an error that does not come again."""

    def __init__(self, count, broken):
        super().__init__(count)
        self.broken = broken

    def __getitem__(self, index):
        tokens = super().__getitem__(index)
        if index == 30 and self.broken == "error":
            raise OSError("disk")
        return tokens[:-3] if index == 30 and self.broken else tokens


@pytest.mark.parametrize("first", ["shorter", "error"])
def test_documents_that_differ_after_a_resume_are_an_error(first):
    with DataLoader(PackedStream(Unsteady(120, first), SIZE, window=20), 2, batchify_fn=PackRows()) as loader:
        iterator = iter(loader)
        seen = until_the_end(iterator, 14)
        state = loader.state_dict()
        iterator.close()
    assert ("disk" in str(seen)) == (first == "error")
    with DataLoader(PackedStream(Unsteady(120, ""), SIZE, window=20), 2, batchify_fn=PackRows()) as resumed:
        resumed.load_state_dict(state)
        with pytest.raises(RuntimeError, match="have other lengths than when they were read first"):
            list(resumed)


def test_documents_that_make_no_shards_need_a_single_one():
    with DataLoader(IterableDataset(packed("generator"), num_shards=2), 2, batchify_fn=PackRows()) as loader:
        with pytest.raises(
            ValueError, match=r"only 1 shard, but .* reads 2; pass IterableDataset\(..., num_shards=1\)"
        ):
            next(iter(loader))
    with pytest.raises(ValueError, match="makes only 1 shard"):
        list(PackedStream(IterableDataset(Stream(9)).take(3), SIZE).shard(2, 0))


def test_an_iterator_that_was_read_is_not_read_again():
    made = iter([[1, 2], [3]])

    class Same:
        def __iter__(self):
            return made

    stream = PackedStream(Same(), SIZE)
    assert len(list(stream)) == 1
    with pytest.raises(RuntimeError, match="returned the same iterator again"):
        list(stream)


def test_stop_iteration_in_a_dataset_or_a_transform_does_not_end_the_stream():
    class Ending(Texts):
        def __getitem__(self, index):
            return next(iter([]))

    with pytest.raises(RuntimeError, match="document 0 of Ending.* raised StopIteration"):
        list(PackedStream(Ending(3), SIZE))
    with pytest.raises(RuntimeError, match=r"^transform raised StopIteration\(\)$"):
        list(PackedStream(IterableDataset([[1]]).transform(lambda document: next(iter([]))), SIZE))


def test_tokens_that_were_carried_keep_their_dtype_after_a_resume():
    documents = [np.arange(1, 6, dtype=np.uint16)] * 12
    data = PackedStream(documents, 4, method="split", window=1)
    with DataLoader(data, 1, batchify_fn=list) as loader:
        whole = [[tokens.dtype for tokens in row.tokens] for (row,) in loader]
        assert {dtype for row in whole for dtype in row} == {np.dtype(np.uint16)}
        for taken in range(len(whole)):
            iterator = iter(loader)
            list(islice(iterator, taken))
            state = json.loads(json.dumps(loader.state_dict()))
            iterator.close()
            with DataLoader(data, 1, batchify_fn=list) as resumed:
                resumed.load_state_dict(state)
                assert [[tokens.dtype for tokens in row.tokens] for (row,) in resumed] == whole[taken:]


@pytest.mark.parametrize(
    "carried",
    [
        [0, 1, np.array([1.5]), {}],
        [0, 1, np.array(1), {}],
        [0, 1, np.array([[1]]), {}],
        [0, 1, np.array([1, 2]), {"labels": np.array([1])}],
        [0, 1, np.array([1, 2]), {"labels": [1, 2]}],
        [0, 1, np.array([1, 2]), []],
        [0, 1, np.array([1, 2])],
    ],
)
def test_a_state_with_carried_tokens_that_are_wrong_is_an_error(carried):
    rows = iter(PackedStream([[1, 2, 3, 4, 5]] * 3, 4, method="split", window=1))
    next(rows)
    state = rows.state_dict()
    with pytest.raises(
        ValueError, match="carried=.*: must be the number of a document, a place in it, its tokens, and"
    ):
        rows.load_state_dict({**state, "carried": [carried]})


def test_each_epoch_has_its_own_order_and_can_be_replayed():
    with loader_of(packed("indexed")) as loader:
        first, second = read(loader), read(loader)
        assert first != second
        assert tokens_in(first) == tokens_in(second) == all_tokens()
        assert loader.replay(0, 3, read=True)["tokens"].tolist() == first[3]
        assert loader.replay(1, 4, read=True)["tokens"].tolist() == second[4]


def test_a_mixture_can_be_the_order():
    mixture = MixtureSampler([100, 20], weights=[0.5, 0.5], num_samples=40, seed=0)
    data = PackedStream(Texts(120), SIZE, mixture, "split", window=10)
    rows = [sample.row for sample in data]
    documents = [number for row in rows for number, start in zip(row.documents, row.starts, strict=True) if not start]
    assert documents == [number for number in mixture if tokens_of(number)]


def test_a_stream_of_hugging_face_resumes_without_reading_it_again():
    datasets = pytest.importorskip("datasets")
    texts = datasets.Dataset.from_dict({"ids": [tokens_of(number) for number in range(120)]})
    rows = PackedStream(texts.to_iterable_dataset(num_shards=4), SIZE, method="split", window=16, field="ids")
    with DataLoader(IterableDataset(rows, num_shards=2), 2, batchify_fn=PackRows()) as loader:
        whole = read(loader)
        assert tokens_in(whole) == all_tokens()
        for taken in range(0, len(whole), 4):
            loader.set_epoch(0)
            iterator = iter(loader)
            assert read(iterator, taken) == whole[:taken]
            state = json.loads(json.dumps(loader.state_dict()))
            iterator.close()
            with DataLoader(IterableDataset(rows, num_shards=2), 2, batchify_fn=PackRows()) as resumed:
                resumed.load_state_dict(state)  # a warning would say that the samples are read again
                assert read(resumed) == whole[taken:]


class Deadly(Texts):
    """Kills its process at one document, the first time."""

    def __init__(self, count, flag):
        super().__init__(count)
        self.flag = flag

    def __getitem__(self, index):
        if index == 60 and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@pytest.mark.kill
@pytest.mark.filterwarnings("ignore:worker")
def test_a_worker_that_is_killed_costs_no_row(tmp_path):
    expected = read(loader_of(PackedStream(Texts(120), SIZE, window=20)))
    with loader_of(PackedStream(Deadly(120, tmp_path / "died"), SIZE, window=20), FORK) as loader:
        assert read(loader) == expected
    assert (tmp_path / "died").exists()


class Spoiled(Texts):
    """One document is an error."""

    def __getitem__(self, index):
        if index == 41:
            raise OSError("disk")
        return super().__getitem__(index)


def until_the_end(iterator, most=1000):
    """The batches of an iterator, and the errors between them as text."""
    seen = []
    while len(seen) < most:
        try:
            seen.append(next(iterator)["tokens"].tolist())
        except StopIteration:
            break
        except OSError as error:
            seen.append(str(error))
    return seen


def test_after_an_error_the_rows_go_on_also_after_a_resume():
    def spoiled():
        return SERIAL.loader(PackedStream(Spoiled(120), SIZE, window=20), 2, batchify_fn=PackRows())

    with spoiled() as loader:
        whole = until_the_end(iter(loader))
    (place,) = [number for number, batch in enumerate(whole) if "disk" in batch]
    for taken in (place - 1, place + 1, place + 2, place + 3):
        with spoiled() as first, spoiled() as second:
            until_the_end(iter(first), taken)
            second.load_state_dict(json.loads(json.dumps(first.state_dict())))
            assert until_the_end(iter(second)) == whole[taken:]


def test_an_error_names_the_document():
    with pytest.raises(OSError, match="disk") as raised:
        list(PackedStream(Spoiled(120), SIZE))
    assert "document 41 of Spoiled" in "".join(raised.value.__notes__)


@pytest.mark.parametrize("wrong", [1.5, [1.5], [[1, 2]], {"ids": [1]}])
def test_a_document_that_is_no_array_of_ints_is_named(wrong):
    with pytest.raises(TokenError, match=r"document 1 is (an array of|a dict with the keys) .*; check `field`"):
        list(PackedStream([[1], wrong], SIZE))


def test_a_document_that_is_too_long_can_be_an_error():
    rows = iter(PackedStream([[1] * 20, [2, 3]], SIZE, long="error"))
    with pytest.raises(ValueError, match="document 0 has 20 tokens, but a row has only size=16; pass long='split'"):
        next(rows)
    assert next(rows).row.documents == (1,)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: PackedStream(Stream(3), SIZE, RandomSampler(3)),
            "sampler.*an iterable dataset has its own order; pass shuffle=True",
        ),
        (lambda: PackedStream(Texts(3), SIZE, iter([1])), "sampler.*must be a sampler of gluonloader"),
        (lambda: PackedStream(Texts(3), SIZE, RandomSampler(3)), "sampler.*all need the same one; pass seed="),
        (lambda: PackedStream(Texts(3), SIZE, PackingSampler([1], SIZE, seed=0)), "sampler.*must yield documents"),
        (lambda: PackedStream(iter([[1]]), SIZE), r"documents.*single iterator; pass IterableDataset\(make\)"),
        (
            lambda: PackedStream(lambda: iter([[1]]), SIZE),
            r"documents.*it is a function; pass IterableDataset\(function\)",
        ),
        (lambda: PackedStream(Texts(3), SIZE, method="best"), "method"),
        (lambda: PackedStream(Texts(3), SIZE, window=0), "window"),
        (lambda: PackedStream(3, SIZE), "documents"),
        (lambda: PackedStream(Texts(3), SIZE).shard(2, 2), "index"),
    ],
)
def test_mistakes(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_repr_names_the_documents_and_the_size():
    text = repr(PackedStream(Texts(3), SIZE).shard(2, 1))
    assert "Texts" in text
    assert "size=16" in text
    assert "shard 1 of 2" in text
