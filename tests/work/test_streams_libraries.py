"""Streams of other libraries' datasets, and of iterators that are there only once, as MXNet's are."""

import numpy as np
import pytest
from conftest import load_mxnet
from stream_reads import ask, flat, read_all, through_json

from gluonloader import IterableDataset
from gluonloader.randomness import set_current_seed
from gluonloader.work.streams import Streams


@pytest.fixture(autouse=True)
def _no_batch():
    yield
    set_current_seed(None)


class Rewound:
    """Its own iterator, as MXNet's are."""

    def __init__(self, length):
        self.length, self.position = length, length

    def reset(self):
        self.position = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.position == self.length:
            raise StopIteration
        self.position += 1
        return self.position - 1


def test_an_iterator_with_reset_is_reset_before_each_reading():
    rewound = Rewound(7)
    for epoch in range(2):
        assert read_all(rewound, epoch=epoch)[0] == [[0, 1, 2], [3, 4, 5], [6]]
        assert flat(read_all(IterableDataset(rewound), shard=1, num_shards=2)[0]) == [1, 3, 5]


def test_an_iterator_that_two_streams_read_is_an_error():
    streams = Streams(Rewound(12))
    ask(streams, 0, 0, 2)
    ask(streams, 0, 1, 2)
    with pytest.raises(RuntimeError, match=r"Rewound is a single iterator.*IterableDataset\(make\)"):
        ask(streams, 1, 0, 2)
    assert ask(streams, 1, 1, 2).samples == [7, 9, 11]

    def make():
        rewound = Rewound(12)
        rewound.reset()
        return rewound

    streams = Streams(IterableDataset(make))
    assert [ask(streams, number, shard, 2).samples[0] for number in (0, 1) for shard in (0, 1)] == [0, 1, 6, 7]


def test_tensorflows_datasets_are_read_as_numpy():
    class Tensors:
        """Stands in for tf.data.Dataset, which shards by position."""

        def __init__(self, numbers):
            self.numbers = numbers

        def shard(self, num_shards, index):
            return Tensors(self.numbers[index::num_shards])

        def __iter__(self):
            raise AssertionError("tensors are not wanted")

        def as_numpy_iterator(self):
            return map(np.int64, self.numbers)

    assert flat(read_all(Tensors(range(10)), shard=1, num_shards=3)[0]) == [1, 4, 7]


@pytest.fixture
def hugging(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("datasets")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("num_shards", [1, 2, 4, 6])
@pytest.mark.parametrize("kind", ["plain", "mapped", "batched", "filtered", "joined", "shuffled"])
def test_hugging_face_datasets(hugging, kind, num_shards):
    base = hugging.Dataset.from_dict({"a": list(range(40))}).to_iterable_dataset(num_shards=4)
    dataset = {
        "plain": lambda: base,
        "mapped": lambda: base.map(lambda x: {"a": x["a"] + 1}),
        "batched": lambda: base.map(lambda x: {"a": [v + 1 for v in x["a"]]}, batched=True, batch_size=4),
        "filtered": lambda: base.filter(lambda x: x["a"] % 3),
        "joined": lambda: hugging.concatenate_datasets([base, base.map(lambda x: {"a": x["a"] + 100})]),
        "shuffled": lambda: base.shuffle(seed=1, buffer_size=8).map(lambda x: {"a": x["a"] + 1}),
    }[kind]()
    seen = []
    for shard in range(num_shards):
        about = {"shard": shard, "num_shards": num_shards, "epoch": 1, "buffer": 6}
        chunks, hints = read_all(dataset, **about)
        seen += [sample["a"] for sample in flat(chunks)]
        for number, samples in enumerate(chunks):
            assert ask(Streams(dataset), number, hint=through_json(hints[number]), **about).samples == samples
        # A shuffle buffer of its own is not in its state, so that has to be left alone.
        assert (kind == "shuffled") == (not any(hints))
    assert sorted(seen) == sorted(sample["a"] for sample in dataset)


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_iterations_at_once(hugging):
    base = hugging.Dataset.from_dict({"a": list(range(12))}).to_iterable_dataset()
    streams, hints = Streams(base), {}
    for number in range(3):
        for iteration, epoch in [(0, 0), (1, 1)]:
            read = ask(streams, number, iteration=iteration, epoch=epoch)
            assert [sample["a"] for sample in read.samples] == [3 * number, 3 * number + 1, 3 * number + 2]
            hints[iteration] = read.hint
    for iteration, epoch in [(0, 0), (1, 1)]:
        read = ask(Streams(base), 3, hint=through_json(hints[iteration]), epoch=epoch)
        assert [sample["a"] for sample in read.samples] == [9, 10, 11]


@pytest.mark.filterwarnings("ignore")
def test_webdataset(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    for part in range(2):
        with webdataset.TarWriter(str(tmp_path / f"part-{part}.tar")) as writer:
            for number in range(5):
                writer.write({"__key__": f"{part}{number}", "cls": 5 * part + number})
    files = str(tmp_path / "part-{0..1}.tar")
    dataset = webdataset.WebDataset(files, shardshuffle=False).decode().to_tuple("cls")
    for num_shards in (1, 3):
        chunks = [read_all(dataset, shard=shard, num_shards=num_shards)[0] for shard in range(num_shards)]
        assert sorted(flat(flat(chunks))) == [(number,) for number in range(10)]


@pytest.mark.filterwarnings("ignore")
def test_mxnets_iterators():
    mx = load_mxnet()
    if mx is None:
        pytest.skip("needs mxnet")
    data, labels = mx.nd.array(np.arange(20).reshape(10, 2)), mx.nd.array(np.arange(10))
    batches = mx.io.NDArrayIter(data, labels, batch_size=2)
    dataset = IterableDataset(batches).transform(lambda batch: batch.label[0].asnumpy().tolist())
    for epoch in range(2):
        assert read_all(dataset, size=1, epoch=epoch)[0] == [[[0, 1]], [[2, 3]], [[4, 5]], [[6, 7]], [[8, 9]], []]
    assert flat(read_all(dataset, size=1, shard=1, num_shards=2)[0]) == [[2, 3], [6, 7]]
