"""Form 6: GluonCV's `RandomTransformDataLoader` changes the image size every few batches, as in its YOLO scripts."""

import mxnet as mx
import numpy as np
import record
from gluoncv import utils as gutils
from gluoncv.data.batchify import Pad, Stack, Tuple
from gluoncv.data.dataloader import RandomTransformDataLoader
from gluoncv.data.transforms.presets.yolo import YOLO3DefaultValTransform
from mxnet import gluon


class Boxes(gluon.data.Dataset):
    def __init__(self, count):
        self._count = count

    def __len__(self):
        return self._count

    def __getitem__(self, idx):
        rng = np.random.RandomState(idx)
        image = mx.nd.array(rng.randint(0, 255, (20, 24, 3)), dtype="uint8")
        label = np.concatenate([rng.randint(0, 8, (1 + idx % 3, 2)), rng.randint(9, 16, (1 + idx % 3, 3))], axis=1)
        return image, label.astype(np.float32)


def get_dataloader(train_dataset, batch_size, num_workers):
    batchify_fn = Tuple(Stack(), Pad(axis=0, pad_val=-1))
    transform_fns = [YOLO3DefaultValTransform(x * 8, x * 8) for x in range(1, 5)]
    return {
        "train": RandomTransformDataLoader(
            transform_fns, train_dataset, batch_size=batch_size, interval=3, last_batch="rollover",
            shuffle=False, batchify_fn=batchify_fn, num_workers=num_workers,
        ),
        "every batch": RandomTransformDataLoader(
            transform_fns[:2], train_dataset, batch_size=batch_size, last_batch="discard",
            batchify_fn=batchify_fn, num_workers=num_workers, prefetch=1,
        ),
        "default batchify": RandomTransformDataLoader(
            [lambda x, y: (x.astype("float32"), y[0])] if num_workers == 0 else [first_box],
            train_dataset, interval=2, batch_size=batch_size, num_workers=num_workers,
        ),
    }  # fmt: skip


def first_box(image, label):
    return image.astype("float32"), label[0]


def main():
    loaders = get_dataloader(Boxes(30), 4, record.num_workers())
    for name, loader in loaders.items():
        record.loader(name, loader)
        record.value(name, [loader._interval, loader._num_workers, loader._prefetch, len(loader._transform_fns)])
        assert isinstance(loader, gluon.data.DataLoader)
    gutils.random.seed(233)

    for epoch in range(3):
        for image, label in loaders["train"]:
            record.batch(f"train {epoch}", (image, label))
        print(f"[Epoch {epoch}] last size {image.shape[2]}")
        for name in ("every batch", "default batchify"):
            for batch in loaders[name]:
                record.batch(f"{name} {epoch}", batch)
    record.value("next random number", np.random.rand())


if __name__ == "__main__":
    main()
