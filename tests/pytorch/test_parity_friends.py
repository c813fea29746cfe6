"""The usual recipes of WebDataset and of Hugging Face's datasets; training loops as in torch's tutorials."""

import io
import tarfile
from importlib import import_module

import numpy as np
import pytest

from .sides import compared, epoch, epochs, torch

data, nn = torch.utils.data, torch.nn

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
@compared(state=False, warns=None)
def test_webdataset_reads_each_sample_once_and_shuffles(L, shards, num_workers):
    loader = L(webdataset(shards), 16, num_workers=num_workers)
    for _ in range(2):
        read = numbers(loader)
        assert sorted(read) == list(range(600)) != read


@pytest.mark.parametrize("batched", [False, True])
@compared(state=False, warns=None)
def test_webdataset_in_its_own_order(L, shards, batched):
    wds = pytest.importorskip("webdataset")
    dataset = wds.WebDataset(shards, shardshuffle=False).decode()
    return epoch(L(dataset.to_tuple("cls").batched(10) if batched else dataset, None, num_workers=2))


@pytest.fixture(scope="module")
def table():
    datasets = pytest.importorskip("datasets")
    columns = {
        "x": [[float(i), 1.0] for i in range(20)],
        "label": list(range(20)),
        "text": [f"t{i}" for i in range(20)],
    }
    return datasets.Dataset.from_dict(columns)


def double(batch):
    return {"x": [torch.tensor(x) * 2 for x in batch["x"]], "label": batch["label"]}


def pad(samples):
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(sample["x"]) for sample in samples], batch_first=True)


def by_node(table):
    return import_module("datasets.distributed").split_dataset_by_node(table, rank=1, world_size=2)


HUGGING_FACE = {
    "format torch": lambda L, table, n: L(table.with_format("torch"), 4, shuffle=True, num_workers=n),
    "no format": lambda L, table, n: L(table, 4, num_workers=n),
    "transform": lambda L, table, n: L(table.with_transform(double), 4, num_workers=n),
    # The documented fast way: a batch by one read.
    "batches by a sampler": lambda L, table, n: L(
        table.with_format("torch"),
        batch_size=None,
        sampler=data.BatchSampler(data.RandomSampler(table), 5, False),
        num_workers=n,
    ),
    "collate_fn": lambda L, table, n: L(table, 6, collate_fn=pad, num_workers=n),
    "stream": lambda L, table, n: L(
        table.to_iterable_dataset(num_shards=4).with_format("torch"), 4, num_workers=n + (n > 0)
    ),
    "by node": lambda L, table, n: L(by_node(table.with_format("torch")), 4, num_workers=n),
}


@pytest.mark.parametrize("kind", HUGGING_FACE)
@compared(warns=None)
def test_hugging_face(L, table, kind, workers):
    return epochs(HUGGING_FACE[kind](L, table, workers))


@compared(warns=None)
def test_hugging_face_streams_that_are_shuffled(L, table):
    stream = table.to_iterable_dataset(num_shards=4).shuffle(seed=3, buffer_size=5).with_format("torch")
    loader, seen = L(stream, 4, num_workers=2), []
    for number in range(2):
        stream.set_epoch(number)
        seen.append(epoch(loader))
    return seen


@compared
def test_numpy_files_in_memory_maps(L, tmp_path, workers):
    np.save(tmp_path / "x.npy", np.arange(60, dtype=np.float32).reshape(20, 3))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r+")
    return epoch(L(mapped, 6, shuffle=True, num_workers=workers))


class Images(data.Dataset):
    """Images of 28x28 pixels as in FashionMNIST, made here: the label is where they are bright."""

    def __init__(self, count):
        generator = torch.Generator().manual_seed(count)
        self.labels = torch.randint(10, (count,), generator=generator).tolist()
        self.images = torch.rand(count, 1, 28, 28, generator=generator)
        for image, label in zip(self.images, self.labels):
            image[:, label * 2 : label * 2 + 4] += 1

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


@compared
def test_training_and_validation(L, workers):
    """The loop of beginner/transfer_learning_tutorial.html. Dropout draws from the same generator as the samplers."""
    train, validate = (L(Images(count), 4, shuffle=True, num_workers=workers) for count in (96, 40))
    _, shown = next(iter(train))
    model = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(2):
        for loader in (train, validate):
            model.train(loader is train)
            for inputs, labels in loader:
                optimizer.zero_grad()
                with torch.set_grad_enabled(loader is train):
                    loss = nn.functional.cross_entropy(model(inputs), labels)
                if loader is train:
                    loss.backward()
                    optimizer.step()
                losses.append(loss.item())
    assert sum(losses[-10:]) < sum(losses[:10])
    return shown, losses


@compared
def test_distributed_training(L, workers):
    """The loop of beginner/ddp_series_multigpu.html, in one process on the CPU."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        dataset = data.TensorDataset(torch.rand(128, 20), torch.rand(128, 1))
        model = nn.parallel.DistributedDataParallel(nn.Linear(20, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        loader = L(dataset, 32, shuffle=False, num_workers=workers, sampler=data.DistributedSampler(dataset))
        losses = []
        for epoch in range(3):
            losses.append((epoch, len(next(iter(loader))[0]), len(loader)))
            loader.sampler.set_epoch(epoch)
            for source, targets in loader:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(model(source), targets)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses
    finally:
        torch.distributed.destroy_process_group()
