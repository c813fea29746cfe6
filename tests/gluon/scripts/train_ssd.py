"""Form 3: the script derives from `DataLoader`, `Dataset` and `Sampler`, like GluonCV's `DetectionDataLoader`."""

import mxnet as mx
import numpy as np
import record
from mxnet import gluon, nd
from mxnet.gluon.data.dataloader import DataLoader
from mxnet.gluon.data.dataset import Dataset
from mxnet.gluon.data.sampler import Sampler


def pad_batchify_fn(data):
    """Stacks images, and pads labels with -1 to the same number of objects."""
    if isinstance(data[0], nd.NDArray):
        return nd.stack(*data)
    if isinstance(data[0], tuple):
        return [pad_batchify_fn(field) for field in zip(*data)]
    most = max(len(label) for label in data)
    padded = np.full((len(data), most, data[0].shape[1]), -1, data[0].dtype)
    for row, label in zip(padded, data):
        row[: len(label)] = label
    return nd.array(padded, dtype=padded.dtype)


def mp_pad_batchify_fn(data):
    """Does the same as `pad_batchify_fn`, in shared memory."""
    shared = mx.Context("cpu_shared", 0)
    if isinstance(data[0], nd.NDArray):
        out = nd.empty((len(data),) + data[0].shape, dtype=data[0].dtype, ctx=shared)
        return nd.stack(*data, out=out)
    if isinstance(data[0], tuple):
        return [mp_pad_batchify_fn(field) for field in zip(*data)]
    return pad_batchify_fn(data).as_in_context(shared)


class DetectionLoader(DataLoader):
    """Pads the labels of a batch, unless another `batchify_fn` is passed."""

    def __init__(self, dataset, batch_size=None, shuffle=False, sampler=None, last_batch="keep",
                 batch_sampler=None, batchify_fn=None, num_workers=0):  # fmt: skip
        if batchify_fn is None:
            batchify_fn = mp_pad_batchify_fn if num_workers > 0 else pad_batchify_fn
        self.epochs_read = 0
        super().__init__(dataset, batch_size, shuffle, sampler, last_batch, batch_sampler, batchify_fn, num_workers)

    def __iter__(self):
        self.epochs_read += 1
        return super().__iter__()


class Shapes(Dataset):
    """Images with one to four boxes; a sample is (image, [[x0, y0, x1, y1, class], ...])."""

    CLASSES = ("square", "bar")

    def __init__(self, count, size):
        self._count, self._size = count, size

    @property
    def classes(self):
        return type(self).CLASSES

    def __len__(self):
        return self._count

    def __getitem__(self, idx):
        rng = np.random.RandomState(idx)
        image = np.zeros((self._size, self._size, 3), np.uint8)
        label = np.zeros((1 + idx % 4, 5), np.float32)
        for box in label:
            x, y, width, height = rng.randint(0, 8), rng.randint(0, 8), rng.randint(3, 8), rng.randint(3, 8)
            image[y : y + height, x : x + width] = rng.randint(64, 256, 3)
            box[:] = x, y, x + width, y + height, width > height
        return nd.array(image, dtype="uint8"), label


class SplitSampler(Sampler):
    """Yields one of `num_parts` parts of `range(length)`, as in the examples for training on several machines."""

    def __init__(self, length, num_parts=1, part_index=0):
        self.part_len = length // num_parts
        self.start = self.part_len * part_index
        self.end = self.start + self.part_len

    def __iter__(self):
        indices = list(range(self.start, self.end))
        indices.reverse()
        return iter(indices)

    def __len__(self):
        return self.part_len


def flip(image, label):
    return image.flip(axis=1).astype("float32"), label


def main():
    workers = record.num_workers()
    dataset = Shapes(33, 16)
    store_rank, store_size = 1, 2
    train = DetectionLoader(
        dataset.transform(flip),
        5,
        sampler=SplitSampler(len(dataset), store_size, store_rank),
        last_batch="rollover",
        num_workers=workers,
    )
    plain = DetectionLoader(dataset, 5, num_workers=workers)
    assert isinstance(train, DataLoader)
    assert isinstance(train, gluon.data.DataLoader)
    assert isinstance(dataset, gluon.data.Dataset)
    record.loader("train", train)
    record.loader("plain", plain)
    for epoch in range(3):
        for image, label in train:
            record.batch(f"train {epoch}", [image, label])
        print(f"[Epoch {epoch}] {train.epochs_read} read, the next has {len(train)} batches")
    for batch in plain:
        record.batch("plain", batch)
    record.samples("shuffled", DetectionLoader(dataset.transform(lambda image, label: (image, label[:1])), 8, True))
    print("classes:", *dataset.classes)


if __name__ == "__main__":
    main()
