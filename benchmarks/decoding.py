"""Loaders that decode and transform images with their own functions, instead of the dataset `Photos`.

Their samples have the same form as the samples of `Photos`: a random crop of a photo, resized to 224 x 224, normalized,
as float32, and a label. The crops have the same distribution as in `Photos`, but they are not the same crops.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gluonloader import vision
from gluonloader.records import IndexedRecordIO, IRHeader, pack

from .cases import Array, Case
from .datasets import AREA, MEAN, RATIO, SIDE, STD, Recycled, random_crop, temporary_file
from .loaders import SPDL, Chunks, EndlessRun, GluonLoader, Loader, MXNet, Run, for_ever


class Pipeline(GluonLoader):
    """`ImagePipeline` in worker processes."""

    name, peer = "ImagePipeline", "torch"
    scaled_decode: ClassVar[bool] = False

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        files = Recycled([(data, label % 10) for label, data in enumerate(dataset.files)], len(dataset))
        images = vision.ImagePipeline(
            files, SIDE, scale=AREA, ratio=RATIO, flip=0.5, mean=MEAN, std=STD, scaled_decode=self.scaled_decode
        )
        with self._make(images, case.batch_size, **self._means(workers)) as loader:
            yield Run(loader, case.batches)


class ScaledPipeline(Pipeline):
    """`ImagePipeline` in worker processes, which decodes large photos at a fraction of their size."""

    name = "scaled decode"
    scaled_decode = True


class GluonVision(MXNet):
    """MXNet's loader with MXNet's dataset of records, decoder and transforms."""

    name, peer = "Gluon vision", None

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        with _record_file(dataset) as path:
            vision = self.imported().vision
            transforms = vision.transforms
            steps = [
                transforms.RandomResizedCrop(SIDE, AREA, RATIO),
                transforms.RandomFlipLeftRight(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
            images = vision.ImageRecordDataset(str(path)).transform_first(transforms.Compose(steps))
            with super().open(case, images, workers) as run:
                yield run


class ImageRecordIter(Loader):
    """MXNet's native reader: threads in C++ that decode, crop and normalize."""

    name, module = "ImageRecordIter", "mxnet"

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        scaled = np.multiply([MEAN, STD], 255).tolist()
        means, deviations = (dict(zip("rgb", values, strict=True)) for values in scaled)
        with _record_file(dataset) as path:
            source = self.imported().io.ImageRecordIter(
                path_imgrec=str(path),
                data_shape=(3, SIDE, SIDE),
                batch_size=case.batch_size,
                random_resized_crop=True,
                min_random_area=AREA[0],
                max_random_area=AREA[1],
                min_aspect_ratio=RATIO[0],
                max_aspect_ratio=RATIO[1],
                rand_mirror=True,
                preprocess_threads=workers,
                verbose=False,
                **{f"mean_{colour}": value for colour, value in means.items()},
                **{f"std_{colour}": value for colour, value in deviations.items()},
            )
            yield Run(RecordBatches(source), case.batches)
            del source


class RecordBatches:
    """Yields the batches of an epoch each time it is iterated; waits until MXNet has computed each batch."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        self._source.reset()
        for batch in self._source:
            batch.data[0].wait_to_read()
            yield batch.data[0], batch.label[0]


class SPDLDecoder(SPDL):
    """SPDL with its own decoder FFmpeg, which decodes, crops and resizes; NumPy normalizes the batch."""

    name, module = "SPDL decoder", "spdl.io"

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        io = self.imported()
        resize = io.get_video_filter_desc(
            scale_width=SIDE, scale_height=SIDE, scale_mode=None, scale_algo="bilinear", pix_fmt="rgb24"
        )

        def decode(index: int) -> Any:
            packets, rng = io.demux_image(dataset.files[index % len(dataset.files)]), random.Random(index)
            left, top, width, height = random_crop(packets.width, packets.height, rng)
            crop = f"crop={width}:{height}:{left}:{top}," + ("hflip," if rng.random() < 0.5 else "")
            return io.decode_packets(packets, filter_desc=crop + resize)

        def load(indices: Array) -> tuple[Array, Array]:
            pixels = io.to_numpy(io.convert_frames([decode(index) for index in indices.tolist()]))
            batch = np.empty((len(indices), 3, SIDE, SIDE), np.float32)
            for channel, (mean, std) in enumerate(zip(MEAN, STD, strict=True)):
                np.multiply(pixels[..., channel], np.float32(1 / 255 / std), out=batch[:, channel])
                batch[:, channel] -= np.float32(mean / std)
            return batch, indices % 10

        with self.pipeline(Chunks(len(dataset), case.batch_size, case.shuffled), load, workers) as pipeline:
            yield EndlessRun(for_ever(pipeline), case.batches, 4 * workers)


@contextmanager
def _record_file(dataset: Any) -> Iterator[Path]:
    """Writes all samples into a RecordIO file with an index; deletes both files at the end of the block."""
    path = temporary_file(f"photos-{os.getpid()}.rec")
    with IndexedRecordIO(path, "w") as file:
        for index in range(len(dataset)):
            header = IRHeader(0, index % 10, index, 0)
            file.write_idx(index, pack(header, dataset.files[index % len(dataset.files)]))
    yield path
    path.unlink()
    path.with_suffix(".idx").unlink()
