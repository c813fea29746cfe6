"""Form 8: `mx.np` arrays under `set_np`, several epochs, rollover and `len(loader)`, as in the notebooks of d2l.ai."""

import record
from mxnet import autograd, gluon, np, npx

npx.set_np()
workers = record.num_workers()


def load_data(batch_size, last_batch):
    cast = gluon.data.vision.transforms.Cast("float64")
    dataset = gluon.data.ArrayDataset(features, labels).transform_first(cast)
    return gluon.data.DataLoader(dataset, batch_size, shuffle=False, last_batch=last_batch, num_workers=workers)


def stack_pairs(samples):
    """Returns a tuple of an array and a list of arrays."""
    return np.stack([x for x, _ in samples]), [y.reshape(1) if hasattr(y, "reshape") else y for _, y in samples]


features = np.sin(np.arange(100, dtype="float32").reshape(50, 2))
labels = np.dot(features, np.array([2, -3.4])) + 4.2
dataset = gluon.data.ArrayDataset(features, labels)

net = gluon.nn.Dense(1)
net.initialize()
train_iter = gluon.data.DataLoader(dataset, 8, last_batch="rollover", num_workers=workers)
record.loader("train", train_iter)
for epoch in range(3):
    print("epoch", epoch, "has", len(train_iter), "batches")
    for X, y in train_iter:
        record.batch(f"train {epoch}", [X, y])
        with autograd.record():
            loss = (net(X)[:, 0] - y) ** 2
        loss.backward()

for last_batch in ("keep", "discard", "rollover"):
    data_iter = load_data(12, last_batch)
    record.loader(last_batch, data_iter)
    for epoch in range(2):
        for batch in data_iter:
            record.batch(f"{last_batch} {epoch}", batch)
        record.value(last_batch, len(data_iter))

few = gluon.data.ArrayDataset(features, labels.reshape(-1, 1)).take(7)
for name, loader in {
    "scalars": gluon.data.DataLoader([(1, 2.5, np.zeros(())), (3, 4.5, np.ones(()))], 2, num_workers=workers),
    "pairs": gluon.data.DataLoader(few, 3, batchify_fn=stack_pairs, num_workers=workers),
    "features": gluon.data.DataLoader(features, 20),
}.items():
    record.loader(name, loader)
    for batch in loader:
        record.batch(name, batch)
record.samples("shuffled", gluon.data.DataLoader(dataset, 10, shuffle=True))
X, y = next(iter(gluon.data.DataLoader(dataset, 10)))
record.batch("first", [X, y])
