"""Form 1: the attribute `gluon.data.DataLoader`, over a dataset of `vision`, as in MXNet's MNIST example."""

import mxnet as mx
import numpy as np
import record
from mxnet import autograd, gluon
from mxnet.gluon import nn
from mxnet.gluon.data.vision import transforms

batch_size, workers = 16, record.num_workers()


class Digits(gluon.data.dataset._DownloadedDataset):
    """Each image contains a bright bar, and the row of the bar is the label. Nothing is downloaded."""

    def __init__(self, root, train=True, transform=None):
        self._train = train
        super().__init__(root, transform)

    def _get_data(self):
        rng = np.random.RandomState(1 if self._train else 2)
        label = rng.randint(0, 10, 84 if self._train else 40).astype(np.int32)
        data = rng.randint(0, 64, (len(label), 20, 20, 1)).astype(np.uint8)
        for image, row in zip(data, label):
            image[2 * row : 2 * row + 2] += 128
        self._data = mx.nd.array(data, dtype=data.dtype)
        self._label = label


mx.random.seed(42)
transformer = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.13, 0.31)])

train_data = gluon.data.DataLoader(
    Digits("digits", train=True).transform_first(transformer),
    batch_size=batch_size,
    shuffle=False,
    last_batch="discard",
    num_workers=workers,
)
val_data = gluon.data.DataLoader(
    Digits("digits", train=False, transform=lambda data, label: (data.astype(np.float32) / 255, label)),
    batch_size,
    False,
    num_workers=workers,
)
shuffled_data = gluon.data.DataLoader(
    Digits("digits", train=True).transform_first(transformer, lazy=False),
    batch_size=batch_size,
    shuffle=True,
    num_workers=workers,
)
record.loader("train", train_data)
record.loader("validation", val_data)
record.loader("shuffled", shuffled_data)


def test(net, ctx):
    metric = mx.metric.Accuracy()
    for data, label in val_data:
        record.batch("validation", [data, label])
        data = data.as_in_context(ctx).transpose((0, 3, 1, 2))
        label = label.as_in_context(ctx)
        metric.update([label], [net(data)])
    return metric.get()


def train(net, epochs, ctx):
    net.initialize(mx.init.Xavier(magnitude=2.24), ctx=ctx)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    metric = mx.metric.Accuracy()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    for epoch in range(epochs):
        metric.reset()
        for i, batch in enumerate(train_data):
            record.batch(f"train {epoch} {i}", batch)
            data = gluon.utils.split_and_load(batch[0], ctx_list=[ctx], batch_axis=0)
            label = gluon.utils.split_and_load(batch[1], ctx_list=[ctx], batch_axis=0)
            with autograd.record():
                output = [net(x) for x in data]
                losses = [loss(z, y) for z, y in zip(output, label)]
            for each in losses:
                each.backward()
            trainer.step(batch[0].shape[0])
            metric.update(label, output)
        name, acc = metric.get()
        print(f"[Epoch {epoch}] Training: {name}={acc:.2f}")
        name, acc = test(net, ctx)
        print(f"[Epoch {epoch}] Validation: {name}={acc:.2f}")


if __name__ == "__main__":
    net = nn.HybridSequential()
    net.add(nn.Dense(32, activation="relu"), nn.Dense(10))
    net.hybridize()
    train(net, 2, mx.cpu())
    record.samples("shuffled", shuffled_data)
