"""Vision datasets and transforms of Gluon through the loader, on files that are written here."""

import numpy as np
import pytest

from .images import idx_gz, plain, png
from .sides import NOT_THREADS, WAYS, epoch, facts, mx

DIGITS = np.arange(40 * 28 * 28).reshape(40, 28, 28).astype(np.uint8)
LABELS = (np.arange(40) % 10).astype(np.uint8)


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """A folder where MNIST and FashionMNIST find 40 digits, for training and for test, and download nothing."""
    for part in ("train", "t10k"):
        idx_gz(tmp_path / f"{part}-images-idx3-ubyte.gz", DIGITS)
        idx_gz(tmp_path / f"{part}-labels-idx1-ubyte.gz", LABELS)

    def found(url, path, sha1_hash):
        return str(tmp_path / url.rsplit("/", 1)[1])

    monkeypatch.setattr(mx.gluon.data.vision.datasets, "download", found)
    return str(tmp_path)


@pytest.fixture
def folder(tmp_path):
    """Two classes with three images each, of different sizes."""
    for name, value in (("bus", 20), ("car", 200)):
        (tmp_path / name).mkdir()
        for i in range(3):
            (tmp_path / name / f"{i}.png").write_bytes(png(plain(6 + i, 8, value + i)))
    return str(tmp_path)


def scale(data, label):
    return data.astype("float32") / 255, label


@pytest.mark.parametrize("transform", [None, scale])
@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST"])
def test_mnist(gdata, way, mnist, name, transform):
    dataset = getattr(gdata.vision, name)(mnist, train=False, transform=transform)
    images, labels = next(iter([*gdata.DataLoader(dataset, 16, last_batch="discard", **WAYS[way])]))
    wanted = DIGITS[:16] if transform is None else DIGITS[:16].astype(np.float32) / 255
    assert (images.shape, np.dtype(images.dtype).name) == ((16, 28, 28, 1), wanted.dtype.name)
    assert np.allclose(images.asnumpy()[..., 0], wanted)
    assert facts(labels)[2:] == ("int32", LABELS[:16].tolist())


@NOT_THREADS
def test_transforms_through_a_loader(gdata, way, mnist):
    transforms = gdata.vision.transforms
    steps = transforms.Compose([transforms.ToTensor(), transforms.Normalize(0.13, 0.31)])
    loader = gdata.DataLoader(gdata.vision.MNIST(mnist).transform_first(steps), 20, **WAYS[way])
    images = np.concatenate([images.asnumpy() for images, _ in loader])
    assert (images.shape, images.dtype.name) == ((40, 1, 28, 28), "float32")
    assert np.allclose(images[:, 0], (DIGITS / 255 - 0.13) / 0.31, atol=1e-5)


@NOT_THREADS
def test_an_image_folder_through_a_loader(gdata, way, folder):
    transforms = gdata.vision.transforms
    steps = transforms.Compose([transforms.Resize((8, 8)), transforms.ToTensor()])
    dataset = gdata.vision.ImageFolderDataset(folder, flag=1).transform_first(steps)
    batches = [
        (images.shape, labels.asnumpy().tolist()) for images, labels in gdata.DataLoader(dataset, 4, **WAYS[way])
    ]
    assert batches == [((4, 3, 8, 8), [0, 0, 0, 1]), ((2, 3, 8, 8), [1, 1])]


@NOT_THREADS
def test_image_records(gdata, way, tmp_path):
    record = mx.recordio.MXIndexedRecordIO(str(tmp_path / "i.idx"), str(tmp_path / "i.rec"), "w")
    for i in range(5):
        record.write_idx(i, mx.recordio.pack(mx.recordio.IRHeader(0, float(i), i, 0), png(plain(4, 4, i * 9))))
    record.close()
    dataset = gdata.vision.ImageRecordDataset(str(tmp_path / "i.rec"))
    batches = [*gdata.DataLoader(dataset, 3, **WAYS[way])]
    assert [images.shape for images, _ in batches] == [(3, 4, 4, 3), (2, 4, 4, 3)]
    assert [int(image[0, 0, 0].asscalar()) for images, _ in batches for image in images] == [0, 9, 18, 27, 36]
    assert sum((labels.asnumpy().tolist() for _, labels in batches), []) == [0, 1, 2, 3, 4]


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
def test_augmentations_through_a_loader(gdata, way):
    transforms = gdata.vision.transforms
    steps = [transforms.Cast("float32"), *(getattr(transforms, name)(**a) for name, a in AUGMENTATIONS.items())]
    images = [mx.nd.random.uniform(0, 255, (24, 24, 3)).astype("uint8") for _ in range(4)]
    dataset = gdata.SimpleDataset(images).transform(transforms.Compose(steps))
    batches = list(gdata.DataLoader(dataset, 2, **WAYS[way]))
    assert [(batch.shape, np.dtype(batch.dtype).name) for batch in batches] == [((2, 20, 20, 3), "float32")] * 2


@NOT_THREADS
def test_random_transforms_differ_from_batch_to_batch(gdata, way):
    flip = gdata.vision.transforms.RandomFlipLeftRight()
    image = mx.nd.arange(12).reshape((2, 2, 3))
    loader = gdata.DataLoader(gdata.SimpleDataset([image] * 60).transform(flip), 1, **WAYS[way])
    assert len({str(batch) for batch in epoch(loader)}) == 2
