"""Form 4: `loader._dataset` sets mixup between the epochs, as in GluonCV's YOLO and Faster R-CNN scripts."""

import mxnet as mx
import numpy as np
import record
from gluoncv.data import MixupDetection
from gluoncv.data.batchify import Pad, Stack, Tuple
from gluoncv.data.transforms.presets.yolo import YOLO3DefaultValTransform
from mxnet import gluon


class Boxes(gluon.data.Dataset):
    """Images of different sizes, with one to three boxes each."""

    def __len__(self):
        return 14

    def __getitem__(self, idx):
        rng = np.random.RandomState(idx)
        image = rng.randint(0, 255, (24 + idx, 30 - idx, 3)).astype(np.uint8)
        label = np.concatenate([rng.randint(0, 8, (1 + idx % 3, 2)), rng.randint(9, 16, (1 + idx % 3, 3))], axis=1)
        return mx.nd.array(image, dtype="uint8"), label.astype(np.float32)


class RepeatableMixup(MixupDetection):
    """Seeds the generator for each sample, so the sample has the same random numbers in each run and each worker."""

    def __getitem__(self, idx):
        np.random.seed(233 + idx)
        return super().__getitem__(idx)


class TrainTransform:
    """A fast transform that returns the same fields as a training transform: image, boxes, ratios of the mixup."""

    def __init__(self, width, height):
        self._width, self._height = width, height

    def __call__(self, image, label):
        image = mx.image.imresize(image, self._width, self._height, 1).astype("float32")
        return mx.nd.transpose(image, (2, 0, 1)), label[:, :5].astype(np.float32), label[:, 5].astype(np.float64)


def get_dataloader(train_dataset, val_dataset, workers):
    size, batch_size = 32, 4
    batchify_fn = Tuple(Stack(), Pad(axis=0, pad_val=-1), Pad(axis=0, pad_val=1))
    train_loader = gluon.data.DataLoader(
        train_dataset.transform(TrainTransform(size, size)),
        batch_size,
        False,
        batchify_fn=batchify_fn,
        last_batch="rollover",
        num_workers=workers,
    )
    val_loader = gluon.data.DataLoader(
        val_dataset.transform(YOLO3DefaultValTransform(size, size)),
        batch_size,
        False,
        batchify_fn=Tuple(Stack(), Pad(pad_val=-1)),
        last_batch="keep",
        num_workers=workers,
    )
    return train_loader, val_loader


def train(train_data, val_data):
    for epoch in range(4):
        try:
            train_data._dataset.set_mixup(np.random.beta, 1.5, 1.5)
        except AttributeError:
            train_data._dataset._data.set_mixup(np.random.beta, 1.5, 1.5)
        if epoch >= 2:
            try:
                train_data._dataset.set_mixup(None)
            except AttributeError:
                train_data._dataset._data.set_mixup(None)
        mixed = 0
        for batch in train_data:
            record.batch(f"train {epoch}", batch)
            mixed += int((batch[2] < 1).sum().asscalar())
        print(f"[Epoch {epoch}] {'mixed' if mixed else 'not mixed'}")
        for batch in val_data:
            record.batch(f"validation {epoch}", batch)


if __name__ == "__main__":
    workers = record.num_workers()
    loaders = get_dataloader(RepeatableMixup(Boxes()), Boxes(), workers)
    for name, loader in zip(("train", "validation"), loaders):
        record.loader(name, loader)
        record.value(name, [loader._num_workers, loader._prefetch, len(loader._dataset)])
    train(*loaders)

    # The script for Faster R-CNN mixes images evenly, and passes the mixup dataset to the loader without a transform.
    even = gluon.data.DataLoader(
        RepeatableMixup(Boxes().take(6)), 1, last_batch="keep", batchify_fn=Tuple(Stack(), Stack()),
        num_workers=workers,
    )  # fmt: skip
    even._dataset.set_mixup(np.random.uniform, 0.5, 0.5)
    for batch in even:
        record.batch("even", batch)
    even._dataset.set_mixup(None)
    for batch in even:
        record.batch("uneven", batch)
