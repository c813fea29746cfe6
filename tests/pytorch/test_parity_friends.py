"""The usual recipes of WebDataset and of Hugging Face's datasets."""

import io
import tarfile

import numpy as np
import pytest

from .sides import epoch, epochs, same, torch

data = torch.utils.data

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """600 samples in 6 tar files."""
    folder = tmp_path_factory.mktemp("shards")
    for shard in range(6):
        with tarfile.open(folder / f"part-{shard}.tar", "w") as tar:
            for i in range(shard * 100, shard * 100 + 100):
                content = str(i).encode()
                info = tarfile.TarInfo(f"{i:06d}.cls")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return str(folder / "part-{0..5}.tar")


def webdataset(shards):
    wds = pytest.importorskip("webdataset")
    return wds.WebDataset(shards, shardshuffle=100, seed=4).shuffle(100).decode().to_tuple("cls")


def numbers(loader):
    return [int(number) for (column,) in loader for number in column]


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_webdataset_reads_each_sample_once(shards, num_workers):
    """600 of 600 samples in each epoch, also with torch."""

    def pipeline(L):
        loader = L(webdataset(shards), 16, num_workers=num_workers)
        return [sorted(numbers(loader)) for _ in range(2)]

    returned = same(pipeline, state=False, warns=None)
    assert returned[1][0][1] == list(range(600))


def test_webdataset_shuffles(shards):
    def pipeline(L):
        read = numbers(L(webdataset(shards), 16, num_workers=2))
        return read == sorted(read)

    assert same(pipeline, state=False, warns=None) is False


def test_webdataset_in_its_own_order(shards):
    def pipeline(L):
        wds = pytest.importorskip("webdataset")
        return epoch(L(wds.WebDataset(shards, shardshuffle=False).decode(), None, num_workers=2))

    same(pipeline, state=False, warns=None)


def test_webdataset_that_batches_itself(shards):
    def pipeline(L):
        wds = pytest.importorskip("webdataset")
        batched = wds.WebDataset(shards, shardshuffle=False).decode().to_tuple("cls").batched(10)
        return epoch(L(batched, None, num_workers=2))

    same(pipeline, state=False, warns=None)


@pytest.fixture
def table():
    datasets = pytest.importorskip("datasets")
    columns = {
        "x": [[float(i), 1.0] for i in range(20)],
        "label": list(range(20)),
        "text": [f"t{i}" for i in range(20)],
    }
    return datasets.Dataset.from_dict(columns)


def test_hugging_face_with_format_torch(table, workers):
    same(lambda L: epochs(L(table.with_format("torch"), 4, shuffle=True, num_workers=workers)), warns=None)


def test_hugging_face_without_a_format(table, workers):
    same(lambda L: epoch(L(table, 4, num_workers=workers)), warns=None)


def test_hugging_face_with_a_transform(table, workers):
    def double(batch):
        return {"x": [torch.tensor(x) * 2 for x in batch["x"]], "label": batch["label"]}

    same(lambda L: epoch(L(table.with_transform(double), 4, num_workers=workers)), warns=None)


def test_hugging_face_with_batches_by_a_sampler(table, workers):
    """The documented fast way: a batch by one read."""

    def pipeline(L):
        sampler = data.BatchSampler(data.RandomSampler(table), 5, False)
        return epochs(L(table.with_format("torch"), batch_size=None, sampler=sampler, num_workers=workers))

    same(pipeline, warns=None)


def test_hugging_face_with_a_collate_fn(table, workers):
    def pad(samples):
        return torch.nn.utils.rnn.pad_sequence([torch.tensor(sample["x"]) for sample in samples], batch_first=True)

    same(lambda L: epoch(L(table, 6, collate_fn=pad, num_workers=workers)), warns=None)


@pytest.mark.parametrize("num_workers", [0, 2, 3])
def test_hugging_face_streams_are_split_by_worker(table, num_workers):
    def pipeline(L):
        stream = table.to_iterable_dataset(num_shards=4).with_format("torch")
        return epoch(L(stream, 4, num_workers=num_workers))

    same(pipeline, warns=None)


def test_hugging_face_streams_that_are_shuffled(table):
    def pipeline(L):
        stream = table.to_iterable_dataset(num_shards=4).shuffle(seed=3, buffer_size=5).with_format("torch")
        loader, seen = L(stream, 4, num_workers=2), []
        for number in range(2):
            stream.set_epoch(number)
            seen.append(epoch(loader))
        return seen

    same(pipeline, warns=None)


def test_hugging_face_split_by_node(table):
    from importlib import import_module

    def pipeline(L):
        split = import_module("datasets.distributed").split_dataset_by_node
        return epoch(L(split(table.with_format("torch"), rank=1, world_size=2), 4, num_workers=1))

    same(pipeline, warns=None)


def test_numpy_files_in_memory_maps(tmp_path, workers):
    np.save(tmp_path / "x.npy", np.arange(60, dtype=np.float32).reshape(20, 3))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r+")
    same(lambda L: epoch(L(mapped, 6, shuffle=True, num_workers=workers)))
