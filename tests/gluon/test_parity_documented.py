"""What MXNet's documentation shows of datasets, samplers and loaders, with the results that it prints."""

import os
from multiprocessing import cpu_count

import numpy as np
import pytest

from .images import idx_gz
from .sides import mx


def test_the_loader_tutorial(gdata, capsys):
    """Ten samples of three variables, in mini-batches of five."""
    mx.random.seed(42)
    inputs, targets = mx.random.uniform(shape=(10, 3)), mx.random.uniform(shape=(10, 1))
    dataset = gdata.dataset.ArrayDataset(inputs, targets)
    sample = dataset[4]
    assert len(sample) == 2
    assert (sample[0].shape, sample[1].shape) == ((3,), (1,))
    for x, y in gdata.DataLoader(dataset, batch_size=5, num_workers=min(2, cpu_count())):
        print(f"X_batch has shape {x.shape}, and y_batch has shape {y.shape}")
    assert capsys.readouterr().out == "X_batch has shape (5, 3), and y_batch has shape (5, 1)\n" * 2


def test_the_classification_tutorial(gdata, tmp_path, monkeypatch):
    """A dense network on images in the format of FashionMNIST, with a shuffled and a plain loader."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 512).astype(np.uint8)
    images = (rng.integers(0, 100, (512, 28, 28)) + 15 * labels[:, None, None]).astype(np.uint8)
    for part in ("train", "t10k"):
        idx_gz(tmp_path / f"{part}-images-idx3-ubyte.gz", images)
        idx_gz(tmp_path / f"{part}-labels-idx1-ubyte.gz", labels)
    monkeypatch.setattr(
        mx.gluon.data.vision.datasets, "download", lambda url, path, sha1_hash: str(tmp_path / os.path.basename(url))
    )

    def transform(data, label):
        return data.astype("float32") / 255, label

    train = gdata.vision.datasets.FashionMNIST(str(tmp_path), train=True, transform=transform)
    valid = gdata.vision.datasets.FashionMNIST(str(tmp_path), train=False, transform=transform)
    data, label = train[234]
    assert f"Data type: {data.dtype}" == "Data type: <class 'numpy.float32'>"
    assert {int(labels[234]): "its name"}[label] == "its name"

    train_loader = gdata.DataLoader(train, 32, shuffle=True, num_workers=2)
    valid_loader = gdata.DataLoader(valid, 32, num_workers=2)
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(32, activation="relu"), mx.gluon.nn.Dense(10))
    net.hybridize()
    net.initialize(mx.init.Xavier(), ctx=mx.cpu())
    criterion = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})

    def losses(loader, train):
        total = mx.nd.zeros(1)
        for data, label in loader:
            data = data.as_in_context(mx.cpu()).reshape((-1, 784))
            label = label.as_in_context(mx.cpu())
            with mx.autograd.record(train):
                loss = criterion(net(data), label)
            if train:
                loss.backward()
                trainer.step(data.shape[0])
            total += loss.sum()
        return total.asscalar() / 512

    before = losses(valid_loader, train=False)
    for _ in range(3):
        losses(train_loader, train=True)
    assert losses(valid_loader, train=False) < before


def test_split_and_load(gdata, way):
    """Batches go to several devices as the MNIST tutorial sends them."""
    loader = gdata.DataLoader(np.arange(12, dtype=np.float32).reshape(4, 3), 4, num_workers=2 * (way != "serial"))
    (batch,) = loader
    parts = mx.gluon.utils.split_and_load(batch, ctx_list=[mx.cpu(0), mx.cpu(1)], batch_axis=0)
    assert [part.asnumpy().tolist() for part in parts] == [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]
    assert [str(part.ctx) for part in parts] == ["cpu(0)", "cpu(1)"]


def test_the_sampler_reference(gdata):
    sampler = gdata.SequentialSampler(10)
    batch_sampler = gdata.BatchSampler(sampler, 3, "keep")
    assert list(batch_sampler) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    interval = getattr(gdata, "IntervalSampler", mx.gluon.contrib.data.IntervalSampler)
    assert list(interval(13, interval=3)) == [0, 3, 6, 9, 12, 1, 4, 7, 10, 2, 5, 8, 11]
    assert list(interval(13, interval=3, rollover=False)) == [0, 3, 6, 9, 12]


def test_a_dataset_may_be_an_array(gdata):
    """The reference says that NumPy's and MXNet's arrays can be used as datasets."""
    for data in (np.arange(6.0).reshape(3, 2), mx.nd.arange(6).reshape((3, 2))):
        assert [batch.shape for batch in gdata.DataLoader(data, 2)] == [(2, 2), (1, 2)]


def test_a_batchify_fn_as_the_reference_shows_it(gdata, way):
    """The reference prints what the default does; a user's copy of it works as batchify_fn."""
    (batch,) = gdata.DataLoader([(mx.nd.ones(2), 1), (mx.nd.zeros(2), 2)], 2, batchify_fn=stack_or_zip,
                                num_workers=2 * (way == "processes"))  # fmt: skip
    assert type(batch) is list
    assert [part.asnumpy().tolist() for part in batch] == [[[1, 1], [0, 0]], [1, 2]]


def stack_or_zip(data):
    if isinstance(data[0], mx.nd.NDArray):
        return mx.nd.stack(*data)
    if isinstance(data[0], tuple):
        return [stack_or_zip(column) for column in zip(*data)]
    data = np.asarray(data)
    return mx.nd.array(data, dtype=data.dtype)


@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
def test_the_three_kinds_of_last_batch(gdata, last_batch):
    loader = gdata.DataLoader(mx.nd.ones((7, 2)), 3, last_batch=last_batch)
    sizes = [[batch.shape[0] for batch in loader] for _ in range(3)]
    wanted = {"keep": [[3, 3, 1]] * 3, "discard": [[3, 3]] * 3, "rollover": [[3, 3], [3, 3], [3, 3, 3]]}
    assert sizes == wanted[last_batch]
