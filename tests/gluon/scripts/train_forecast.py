"""Form 2: classes imported by name, `from mxnet.gluon.data import DataLoader`, and batchify functions of the script."""

from collections import namedtuple
from functools import partial

import mxnet as mx
import numpy as np
import record
from mxnet import nd
from mxnet.gluon.data import ArrayDataset, BatchSampler, DataLoader, Dataset, SequentialSampler, SimpleDataset
from mxnet.gluon.data.dataloader import default_batchify_fn, default_mp_batchify_fn

Series = namedtuple("Series", ["past", "future"])


def collate_series(samples, use_shared_mem):
    """Pads each series of a batch on the left, and keeps the names of the items."""
    longest = max(len(past) for past, _ in samples)
    past = np.zeros((len(samples), longest), np.float32)
    for row, (values, _) in zip(past, samples):
        row[longest - len(values) :] = values
    ctx = mx.Context("cpu_shared", 0) if use_shared_mem else mx.cpu()
    return {
        "past": nd.array(past, ctx=ctx),
        "future": default_batchify_fn([future for _, future in samples]),
        "length": np.array([len(values) for values, _ in samples], np.int64),
    }


def named(batchify, samples):
    return Series(*batchify(samples))


def main():
    rng = np.random.RandomState(0)
    windows = rng.standard_normal((50, 12)).astype(np.float32)
    targets = windows[:, -3:].mean(axis=1)
    full = ArrayDataset(nd.array(windows), nd.array(targets))
    assert isinstance(full, Dataset)
    assert len(full) == 50
    train, test = full.take(40), full.filter(lambda sample: sample[1] > 0)
    record.value("filtered", len(test))
    ragged = SimpleDataset([(windows[i, : 1 + i % 12], targets[i]) for i in range(50)])

    workers = record.num_workers()
    loaders = {
        "train": DataLoader(train, batch_size=8, num_workers=workers, last_batch="rollover"),
        "test": DataLoader(test, 8, num_workers=workers, batchify_fn=partial(named, default_batchify_fn)),
        "shared": DataLoader(test.shard(2, 1), 4, num_workers=workers, batchify_fn=default_mp_batchify_fn),
        "ragged": DataLoader(
            ragged.transform(lambda past, future: (np.cumsum(past, dtype=np.float32), np.float32(future))),
            batch_sampler=BatchSampler(SequentialSampler(len(ragged)), 16, "keep"),
            batchify_fn=partial(collate_series, use_shared_mem=workers > 0),
            num_workers=workers,
        ),
        "list": DataLoader([[1, 2], [3, 4], [5, 6]], 2, num_workers=workers),
        "array": DataLoader(windows, 16, num_workers=workers, prefetch=1),
        "threads": DataLoader(
            ragged, 25, batchify_fn=partial(collate_series, use_shared_mem=False), num_workers=workers, thread_pool=True
        ),  # fmt: skip
        "pinned": DataLoader(full, 25, pin_memory=True, num_workers=workers),
    }
    for epoch in range(3):
        for X, y in loaders["train"]:
            record.batch(f"train {epoch}", [X, y])
    for name, loader in loaders.items():
        record.loader(name, loader)
        for batch in loader:
            record.batch(name, batch)


if __name__ == "__main__":
    main()
