"""MNIST and CIFAR from files that the tests write in the original formats, compared with what MXNet reads."""

import gzip
import os
import struct

import numpy as np
import pytest
from conftest import WAYS, load_mxnet

from gluonloader import DataLoader
from gluonloader.vision import CIFAR10, CIFAR100, MNIST, FashionMNIST

RNG = np.random.default_rng(0)
COUNT = 7


def idx(array):
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def write_mnist(root, unpacked=False, dotted=False):
    """Returns images and labels of the training and the test part."""
    written = {}
    for part, train in (("train", True), ("t10k", False)):
        count = COUNT if train else 3
        images = RNG.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = RNG.integers(0, 10, count, dtype=np.uint8)
        for name, data in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            if unpacked:
                (root / name).write_bytes(idx(data))
            else:
                (root / f"{name}.gz").write_bytes(gzip.compress(idx(data)))
        written[train] = images[..., None], labels
    return written


def write_cifar(root, names, labels):
    """Returns for each file its images in the order height, width, channels, and its labels, shape (N, labels)."""
    root.mkdir(exist_ok=True, parents=True)
    written = {}
    for name in names:
        rows = RNG.integers(0, 256, (COUNT, labels + 3072), dtype=np.uint8)
        (root / name).write_bytes(rows.tobytes())
        written[name] = rows[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, :labels]
    return written


CIFAR10_FILES = [*[f"data_batch_{number}.bin" for number in range(1, 6)], "test_batch.bin"]


def check(dataset, images, labels):
    assert len(dataset) == len(images)
    for index, (image, label) in enumerate(zip(images, labels, strict=True)):
        found, found_label = dataset[index]
        assert np.array_equal(found, image)
        assert found.dtype == np.uint8
        assert found_label == label
        assert type(found_label) is np.int32


@pytest.mark.parametrize("kind", [MNIST, FashionMNIST])
@pytest.mark.parametrize("unpacked", [False, True])
@pytest.mark.parametrize("train", [True, False])
def test_mnist_is_read(tmp_path, kind, unpacked, train):
    written = write_mnist(tmp_path, unpacked)
    check(kind(tmp_path, train), *written[train])
    check(kind(str(tmp_path), train=train), *written[train])


def test_the_default_folder_is_that_of_mxnet(tmp_path, monkeypatch):
    monkeypatch.setenv("MXNET_HOME", str(tmp_path))
    folder = tmp_path / "datasets" / "fashion-mnist"
    folder.mkdir(parents=True)
    written = write_mnist(folder)
    check(FashionMNIST(), *written[True])
    with pytest.raises(FileNotFoundError, match="datasets/mnist"):
        MNIST()
    monkeypatch.delenv("MXNET_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=rf"{tmp_path}/.mxnet/datasets/cifar10"):
        CIFAR10()


@pytest.mark.parametrize("in_subfolder", [False, True])
def test_cifar10_is_read(tmp_path, in_subfolder):
    written = write_cifar(tmp_path / "cifar-10-batches-bin" if in_subfolder else tmp_path, CIFAR10_FILES, 1)
    *train, test = written.values()
    check(CIFAR10(tmp_path), *(np.concatenate(parts) for parts in zip(*train, strict=True)))
    check(CIFAR10(tmp_path, train=False), *test)


@pytest.mark.parametrize("in_subfolder", [False, True])
@pytest.mark.parametrize("fine_label", [False, True])
def test_cifar100_is_read(tmp_path, in_subfolder, fine_label):
    written = write_cifar(tmp_path / "cifar-100-binary" if in_subfolder else tmp_path, ["train.bin", "test.bin"], 2)
    for train, (images, labels) in zip((True, False), written.values(), strict=True):
        check(CIFAR100(tmp_path, fine_label, train), images, labels[:, int(fine_label)])


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_batches_are_read_in_bulk(tmp_path, way):
    images, labels = write_mnist(tmp_path)[True]
    dataset = MNIST(tmp_path)
    assert hasattr(dataset, "__getitems__")
    with way.loader(dataset, 3, shuffle=True) as loader:
        batches = list(loader)
    order = [int(np.flatnonzero((images == image).all((1, 2, 3)))[0]) for batch, _ in batches for image in batch]
    assert sorted(order) == list(range(COUNT))
    assert np.concatenate([found for _, found in batches]).tolist() == labels[order].tolist()
    assert batches[0][1].dtype == np.int32


def test_the_transform_makes_the_sample(tmp_path):
    images, labels = write_mnist(tmp_path)[True]
    dataset = MNIST(tmp_path, transform=lambda image, label: (image / 2, -label))
    assert np.array_equal(dataset[2][0], images[2] / 2)
    assert dataset[2][1] == -int(labels[2])
    assert len(list(DataLoader(dataset, 2))) == 4


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "train", "fault"),
    [
        (MNIST, True, r"there is no train-images-idx3-ubyte.gz and no train-images-idx3-ubyte in .*; download it from"),
        (MNIST, False, r"there is no t10k-images-idx3-ubyte.gz .*; download it from https://.*, and put it into"),
        (FashionMNIST, False, r"there is no t10k-images-idx3-ubyte.gz .* download it from http.*fashion"),
        (CIFAR10, True, r"there is no data_batch_1.bin in .*; download .*kriz/cifar-10-binary.tar.gz, and unpack it"),
        (CIFAR10, False, r"there is no test_batch.bin in"),
        (CIFAR100, True, r"there is no train.bin in .*; download .*/cifar-100-binary.tar.gz, and unpack it there"),
    ],
)
def test_a_missing_file_is_named_with_its_place(tmp_path, kind, train, fault):
    with pytest.raises(FileNotFoundError, match=fault) as error:
        kind(tmp_path, train=train)
    assert str(tmp_path) in str(error.value)


def test_the_pickles_of_the_python_version_are_not_read(tmp_path):
    (tmp_path / "data_batch_1").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(FileNotFoundError, match=r"the files without .bin are the python version, which is not read"):
        CIFAR10(tmp_path)


def test_one_missing_part_is_named(tmp_path):
    write_cifar(tmp_path, CIFAR10_FILES, 1)
    (tmp_path / "data_batch_4.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"no data_batch_4.bin in"):
        CIFAR10(tmp_path)


@pytest.mark.parametrize("damage", [b"", b"\x1f\x8b", b"no gzip file", "cut", "flip"])
def test_a_damaged_gz_file_is_named(tmp_path, damage):
    write_mnist(tmp_path)
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    data = path.read_bytes()
    flipped = data[:-6] + bytes([data[-6] ^ 255]) + data[-5:]
    path.write_bytes(data[:-9] if damage == "cut" else flipped if damage == "flip" else damage)
    with pytest.raises(ValueError, match=r"train-labels-idx1-ubyte.gz: .*download it again"):
        MNIST(tmp_path)


IMAGES = np.zeros((COUNT, 28, 28), np.uint8)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\0\0\x08\x03", idx(IMAGES)[:-1], idx(IMAGES) + b"x", idx(IMAGES[0]), idx(np.zeros(3, np.uint8)),
        struct.pack(">4I", 0x803, 2**32 - 1, 2**32 - 1, 2**32 - 1), struct.pack(">4I", 0xD03, 1, 28, 28) + b"x" * 784,
    ],
    ids=range(8),
)  # fmt: skip
def test_a_file_of_another_format_is_named(tmp_path, data):
    write_mnist(tmp_path, unpacked=True)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(data)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte: .* unsigned bytes with 3 axes in the idx format"):
        MNIST(tmp_path)


def test_a_wrong_argument_is_named(tmp_path):
    for kind in (MNIST, FashionMNIST, CIFAR10, CIFAR100):
        with pytest.raises(ValueError, match=r"^train='test': must be True or False"):
            kind(tmp_path, train="test")
    with pytest.raises(ValueError, match=r"^fine_label='fine': must be True or False"):
        CIFAR100(tmp_path, "fine")


def test_files_that_do_not_belong_together_are_refused(tmp_path):
    write_mnist(tmp_path, unpacked=True)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(IMAGES[:-1]))
    with pytest.raises(ValueError, match=r"the train files have 7 labels, and images of shape \(6, 28, 28\)"):
        MNIST(tmp_path)


@pytest.mark.parametrize("size", [0, 3072, 2 * 3073 + 1])
def test_a_cifar_file_of_a_wrong_size_is_named(tmp_path, size):
    write_cifar(tmp_path, CIFAR10_FILES, 1)
    (tmp_path / "data_batch_2.bin").write_bytes(b"x" * size)
    with pytest.raises(ValueError, match=rf"data_batch_2.bin: the file has {size:,} bytes, not a multiple of 3073"):
        CIFAR10(tmp_path)


# -- MXNet -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def gluon_vision(monkeypatch):
    """MXNet's datasets, which take the files of the tests for the files that they would download."""
    mxnet = load_mxnet() or pytest.skip("needs mxnet")
    module = mxnet.gluon.data.vision.datasets
    monkeypatch.setattr(module, "download", lambda url, path, sha1_hash: os.path.join(path, os.path.basename(url)))
    monkeypatch.setattr(module, "check_sha1", lambda path, sha1: True)
    return mxnet.gluon.data.vision


def check_equal(ours, theirs):
    assert len(ours) == len(theirs)
    for index in range(len(ours)):
        (image, label), (right, right_label) = ours[index], theirs[index]
        assert np.array_equal(image, right.asnumpy())
        assert label == right_label
        assert label.dtype == right_label.dtype


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of MXNet's own code
@pytest.mark.parametrize("train", [True, False])
def test_samples_are_those_of_mxnet(tmp_path, gluon_vision, train):
    write_mnist(tmp_path)
    write_cifar(tmp_path, CIFAR10_FILES, 1)
    write_cifar(tmp_path, ["train.bin", "test.bin"], 2)
    root = str(tmp_path)
    check_equal(MNIST(root, train), gluon_vision.MNIST(root, train))
    check_equal(FashionMNIST(root, train), gluon_vision.FashionMNIST(root, train))
    check_equal(CIFAR10(root, train), gluon_vision.CIFAR10(root, train))
    for fine_label in (False, True):
        check_equal(CIFAR100(root, fine_label, train), gluon_vision.CIFAR100(root, fine_label, train))
