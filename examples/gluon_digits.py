"""Trains a Gluon network on scikit-learn's digits, with the replacement for `mxnet.gluon.data`.

    pip install ".[examples,mxnet]"
    python examples/gluon_digits.py

To use MXNet's own loader instead, change only the import of `DataLoader`.
"""

from gluonloader.mxnet import patch_numpy

patch_numpy()  # with NumPy 1.24 or newer, this must run before MXNet is imported

# ruff: noqa: E402
import mxnet as mx
import numpy as np
from digits import CLASSES, load_datasets
from mxnet import autograd, gluon
from tqdm import tqdm

from gluonloader.mxnet import DataLoader  # was: from mxnet.gluon.data import DataLoader

EPOCHS, HIDDEN, RATE = 30, 128, 0.15
CONTEXT = mx.cpu()  # a hybridized network refuses the batches of workers, which are in `cpu_shared`


def accuracy(network, loader):
    metric = mx.metric.Accuracy()
    for images, labels in loader:
        metric.update(labels, network(images.as_in_context(CONTEXT)))
    return metric.get()[1]


def main():
    train_data, test_data = load_datasets()
    np.random.seed(0)  # makes the shuffling of the loader reproducible, as in Gluon
    mx.random.seed(0)
    network = gluon.nn.HybridSequential()
    network.add(gluon.nn.Dense(HIDDEN, activation="relu"), gluon.nn.Dense(CLASSES))
    network.initialize(mx.init.Xavier(), ctx=CONTEXT)
    network.hybridize()
    trainer = gluon.Trainer(network.collect_params(), "sgd", {"learning_rate": RATE, "momentum": 0.9})
    cross_entropy = gluon.loss.SoftmaxCrossEntropyLoss()
    loader = DataLoader(train_data, batch_size=32, shuffle=True, last_batch="rollover", num_workers=2)
    for epoch in (bar := tqdm(range(EPOCHS), unit="epoch")):
        trainer.set_learning_rate(RATE * (1 - epoch / EPOCHS))
        for images, labels in loader:
            images, labels = images.as_in_context(CONTEXT), labels.as_in_context(CONTEXT)
            with autograd.record():
                loss = cross_entropy(network(images), labels)
            loss.backward()
            trainer.step(len(labels))
        bar.set_postfix(loss=f"{loss.mean().asscalar():.3f}", refresh=False)
    print(f"test accuracy: {accuracy(network, DataLoader(test_data, batch_size=120)):.4f}")


if __name__ == "__main__":
    main()
