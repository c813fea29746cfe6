"""Form 7: `fit` and `evaluate` of an Estimator, with loaders for training and validation, and with event handlers."""

import logging

import mxnet as mx
import numpy as np
import record
from mxnet import gluon
from mxnet.gluon import nn
from mxnet.gluon.contrib.estimator import estimator
from mxnet.gluon.contrib.estimator.event_handler import BatchBegin, EarlyStoppingHandler, EpochEnd, TrainBegin

workers = record.num_workers()


class RecordHandler(TrainBegin, BatchBegin, EpochEnd):
    def __init__(self, name):
        self.name = name

    def train_begin(self, estimator, *args, **kwargs):
        self.batches = 0

    def batch_begin(self, estimator, *args, **kwargs):
        record.batch(f"{self.name} {self.batches}", kwargs["batch"])
        self.batches += 1

    def epoch_end(self, estimator, *args, **kwargs):
        print(f"{self.batches} batches so far")


def get_data(count, seed):
    rng = np.random.RandomState(seed)
    data = rng.uniform(0, 1, (count, 1, 6, 6)).astype(np.float32)
    return gluon.data.ArrayDataset(data, (data[:, 0, 0].sum(axis=1) > 3).astype(np.float32))


def main():
    mx.random.seed(7)
    train_data = gluon.data.DataLoader(get_data(90, 0), batch_size=16, num_workers=workers)
    val_data = gluon.data.DataLoader(get_data(40, 1), batch_size=16, num_workers=workers)
    record.loader("train", train_data)
    record.loader("validation", val_data)

    net = nn.HybridSequential()
    net.add(nn.Dense(16, activation="relu"), nn.Dense(2))
    net.initialize(mx.init.Xavier(), ctx=mx.cpu())
    est = estimator.Estimator(
        net=net,
        loss=gluon.loss.SoftmaxCrossEntropyLoss(),
        train_metrics=mx.metric.Accuracy(),
        trainer=gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01}),
        context=mx.cpu(),
    )
    est.logger.setLevel(logging.WARNING)
    early_stopping = EarlyStoppingHandler(monitor=est.val_metrics[0], mode="max", patience=10)
    handlers = [RecordHandler("epochs"), early_stopping]
    est.fit(train_data=train_data, val_data=val_data, epochs=3, event_handlers=handlers)
    est.fit(train_data=train_data, batches=8, event_handlers=[RecordHandler("batches")])
    evaluation = RecordHandler("evaluate")
    evaluation.train_begin(est)
    est.evaluate(val_data=val_data, event_handlers=[evaluation])
    for metric in est.train_metrics + est.val_metrics:
        name, result = metric.get()
        print(f"{name}: {result:.2f}")
    try:
        est.fit(train_data=[get_data(4, 2)[:]], epochs=1)
    except ValueError as error:
        print(error)


if __name__ == "__main__":
    main()
