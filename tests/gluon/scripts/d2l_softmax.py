"""Form 8: `mx.np` arrays under `set_np`, several epochs, rollover and `len(loader)`, as in the notebooks of d2l.ai."""

import argparse

import record
from mxnet import autograd, gluon, init, np, npx
from mxnet.gluon import nn

npx.set_np()

parser = argparse.ArgumentParser()
parser.add_argument("--num-workers", type=int, default=0)
args = parser.parse_args()


def get_dataloader_workers():
    return args.num_workers


def synthetic_data(w, b, num_examples):
    """y = Xw + b"""
    rows = np.arange(num_examples * len(w), dtype="float32").reshape(num_examples, len(w))
    X = np.sin(rows)
    return X, np.dot(X, w) + b


def load_array(data_arrays, batch_size, is_train=True):
    dataset = gluon.data.ArrayDataset(*data_arrays)
    return gluon.data.DataLoader(dataset, batch_size, shuffle=is_train)


def load_data(batch_size, last_batch, features, labels):
    trans = gluon.data.vision.transforms.Cast("float64")
    dataset = gluon.data.ArrayDataset(features, labels).transform_first(trans)
    return gluon.data.DataLoader(
        dataset, batch_size, shuffle=False, last_batch=last_batch, num_workers=get_dataloader_workers()
    )


def stack_pairs(samples):
    """Returns a tuple of an array and a list of arrays."""
    return np.stack([x for x, _ in samples]), [y.reshape(1) if hasattr(y, "reshape") else y for _, y in samples]


true_w, true_b = np.array([2, -3.4]), 4.2
features, labels = synthetic_data(true_w, true_b, 50)

net = nn.Sequential()
net.add(nn.Dense(1))
net.initialize(init.Constant(0.01))
loss = gluon.loss.L2Loss()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.03})
train_iter = gluon.data.DataLoader(
    gluon.data.ArrayDataset(features, labels), 8, last_batch="rollover", num_workers=get_dataloader_workers()
)
record.loader("train", train_iter)
for epoch in range(3):
    print("epoch", epoch, "has", len(train_iter), "batches")
    for X, y in train_iter:
        record.batch(f"train {epoch}", [X, y])
        with autograd.record():
            l = loss(net(X), y)  # noqa: E741
        l.backward()
        trainer.step(X.shape[0])
print(f"loss {float(loss(net(features), labels).mean()):.2f}")

for last_batch in ("keep", "discard", "rollover"):
    data_iter = load_data(12, last_batch, features, labels)
    record.loader(last_batch, data_iter)
    for epoch in range(2):
        for batch in data_iter:
            record.batch(f"{last_batch} {epoch}", batch)
        record.value(last_batch, len(data_iter))

scalars = gluon.data.DataLoader([(1, 2.5, np.zeros(())), (3, 4.5, np.ones(()))], 2, num_workers=args.num_workers)
pairs = gluon.data.DataLoader(
    gluon.data.ArrayDataset(features, labels.reshape(-1, 1)).take(7), 3, batchify_fn=stack_pairs,
    num_workers=args.num_workers,
)  # fmt: skip
for name, loader in (("scalars", scalars), ("pairs", pairs), ("features", gluon.data.DataLoader(features, 20))):
    record.loader(name, loader)
    for batch in loader:
        record.batch(name, batch)
record.samples("shuffled", load_array((features, labels), 10))
X, y = next(iter(load_array((features, labels), 10, is_train=False)))
record.batch("first", [X, y])
