"""Gluon's vision datasets and transforms, on files that are written here: our loader makes the batches of Gluon's."""

import gzip
import struct

import numpy as np
import pytest
from written_images import png

from .sides import GLUON, NOT_THREADS, OURS, WAYS, epoch, facts, mx

vision, transforms = GLUON.vision, GLUON.vision.transforms
DIGITS = np.arange(40 * 28 * 28).reshape(40, 28, 28).astype(np.uint8)


def write_idx(path, array):
    """Writes an array of uint8 in the compressed format of MNIST."""
    with gzip.open(path, "wb") as file:
        file.write(struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes())


def plain_png(height, width, value):
    return png(np.full((height, width, 3), value, np.uint8), 8)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with 40 digits for MNIST, which downloads nothing, six images of two classes, and five image records."""
    for part in ("train", "t10k"):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", DIGITS)
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", (np.arange(40) % 10).astype(np.uint8))
    for name, value in (("bus", 20), ("car", 200)):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(3):
            (tmp_path / "images" / name / f"{i}.png").write_bytes(plain_png(6 + i, 8, value + i))
    record = mx.recordio.MXIndexedRecordIO(str(tmp_path / "i.idx"), str(tmp_path / "i.rec"), "w")
    for i in range(5):
        record.write_idx(i, mx.recordio.pack(mx.recordio.IRHeader(0, float(i), i, 0), plain_png(4, 4, i * 9)))
    record.close()
    monkeypatch.setattr(vision.datasets, "download", lambda url, **_: str(tmp_path / url.rsplit("/", 1)[1]))
    return str(tmp_path)


def scale(data, label):
    return data.astype("float32") / 255, label


NORMALIZE = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.13, 0.31)])
RESIZE = transforms.Compose([transforms.Resize((8, 8)), transforms.ToTensor()])
DATASETS = {
    "MNIST": lambda files: vision.MNIST(files, train=False),
    "FashionMNIST": lambda files: vision.FashionMNIST(files, train=False, transform=scale),
    "transforms": lambda files: vision.MNIST(files).transform_first(NORMALIZE),
    "folder": lambda files: vision.ImageFolderDataset(f"{files}/images", flag=1).transform_first(RESIZE),
    "records": lambda files: vision.ImageRecordDataset(f"{files}/i.rec"),
}


@NOT_THREADS
@pytest.mark.parametrize("kind", DATASETS)
def test_datasets(kind, way, files):
    dataset = DATASETS[kind](files)
    ours, theirs = (list(map(facts, side.DataLoader(dataset, 4, **WAYS[way]))) for side in (OURS, GLUON))
    assert ours == theirs
    assert sum(len(labels[3]) for _, labels in ours) == len(dataset) > 4


AUGMENTATIONS = {
    "RandomResizedCrop": {"size": (20, 20), "scale": (0.1, 1), "ratio": (0.5, 2)},
    "RandomFlipLeftRight": {},
    "RandomFlipTopBottom": {},
    "RandomBrightness": {"brightness": 0.5},
    "RandomContrast": {"contrast": 0.5},
    "RandomSaturation": {"saturation": 0.5},
    "RandomHue": {"hue": 0.5},
    "RandomColorJitter": {"brightness": 0.5, "contrast": 0.5, "saturation": 0.5, "hue": 0.5},
    "RandomLighting": {"alpha": 1},
}


@NOT_THREADS
def test_augmentations_differ_from_batch_to_batch(way):
    steps = [transforms.Cast("float32"), *(getattr(transforms, name)(**a) for name, a in AUGMENTATIONS.items())]
    image = mx.nd.random.uniform(0, 255, (24, 24, 3)).astype("uint8")
    dataset = OURS.SimpleDataset([image] * 8).transform(transforms.Compose(steps))
    batches = list(OURS.DataLoader(dataset, 2, **WAYS[way]))
    assert [(batch.shape, np.dtype(batch.dtype).name) for batch in batches] == [((2, 20, 20, 3), "float32")] * 4
    assert len({str(each) for batch in batches for each in epoch(batch)}) == 8
