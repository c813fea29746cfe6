"""MNIST, FashionMNIST, CIFAR10 and CIFAR100: datasets that read the published files from a local folder."""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..checks import check_flags, check_functions
from ..dataset.arrays import ArrayDataset
from ..dataset.base import Dataset, SimpleDataset
from .encoded import Path

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int32]

_CIFAR_URL: Final = "https://www.cs.toronto.edu/~kriz"


class _ImagesInMemory(SimpleDataset):
    """A dataset of images and labels in memory, which supports bulk reads."""

    def __init__(self, images: Pixels, labels: Labels, transform: Callable[..., Any] | None) -> None:
        check_functions(transform=transform)
        data = ArrayDataset(images, labels)
        super().__init__(data if transform is None else data.transform(transform))

    __repr__ = Dataset.__repr__  # it does not show the datasets inside


class MNIST(_ImagesInMemory):
    """Images of handwritten digits; a sample is (image, label).

    The image is a uint8 array of shape (28, 28, 1). The label is an int32.

    Args:
        root: the folder with the files `train-images-idx3-ubyte.gz`, `train-labels-idx1-ubyte.gz`,
            `t10k-images-idx3-ubyte.gz` and `t10k-labels-idx1-ubyte.gz`, or the same files unpacked. The default is the
            folder in which Gluon stores these files: `~/.mxnet/datasets/mnist`.
        train: True to read the training images, False to read the test images.
        transform: function that is called as `transform(image, label)`; its result is the sample.

    Raises:
        FileNotFoundError: a file is missing, since this class downloads nothing. The text says which file to download
            and where to put it.
        ValueError: a file is damaged, or is not a file of this dataset.
    """

    _NAME = "mnist"
    _SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/"

    def __init__(
        self, root: Path | None = None, train: bool = True, transform: Callable[..., Any] | None = None
    ) -> None:
        check_flags(train=train)
        folder = _folder(root, self._NAME)
        part = "train" if train else "t10k"
        images = _read_idx(folder, f"{part}-images-idx3-ubyte", 3, self._SOURCE)
        labels = _read_idx(folder, f"{part}-labels-idx1-ubyte", 1, self._SOURCE)
        if images.shape[1:] != (28, 28) or len(images) != len(labels):
            found = f"{len(labels)} labels, and images of shape {images.shape}"
            expected = "expected N labels and images of shape (N, 28, 28)"
            raise ValueError(f"{folder}: the {part} files have {found}; {expected}; download both files again")
        super().__init__(images[..., None], labels.astype(np.int32), transform)


class FashionMNIST(MNIST):
    """Images of clothes in the format of `MNIST`, with the same arguments and errors as `MNIST`.

    The default of `root` is `~/.mxnet/datasets/fashion-mnist`.
    """

    _NAME = "fashion-mnist"
    _SOURCE = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"


class CIFAR10(_ImagesInMemory):
    """Small photographs of 10 classes; a sample is (image, label).

    The image is an RGB image: a uint8 array of shape (32, 32, 3). The label is an int32.

    Args:
        root: the folder with the files `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin` of the "binary
            version", or the folder above `cifar-10-batches-bin`, which contains these files. The default is the folder
            in which Gluon stores these files: `~/.mxnet/datasets/cifar10`. The class does not read the "python
            version", since its files are pickles, and a pickle can run any code.
        train: True to read the training images, False to read the test images.
        transform: function that is called as `transform(image, label)`; its result is the sample.

    Raises:
        FileNotFoundError: a file is missing, since this class downloads nothing. The text says which file to download
            and where to put it.
        ValueError: a file is damaged.
    """

    def __init__(
        self, root: Path | None = None, train: bool = True, transform: Callable[..., Any] | None = None
    ) -> None:
        check_flags(train=train)
        names = [f"data_batch_{number}.bin" for number in range(1, 6)] if train else ["test_batch.bin"]
        rows = _read_cifar(_folder(root, "cifar10"), "cifar-10", "cifar-10-batches-bin", names, 1)
        super().__init__(*_split_cifar(rows, 1, 0), transform)


class CIFAR100(_ImagesInMemory):
    """Small photographs of 100 classes in 20 groups; a sample has the same form as a sample of `CIFAR10`.

    Args:
        root: the folder with the files `train.bin` and `test.bin` of the "binary version", or the folder above
            `cifar-100-binary`, which contains these files. The default is `~/.mxnet/datasets/cifar100`.
        fine_label: True if the label is the class, from 0 to 99; False if the label is the group, from 0 to 19.
        train: True to read the training images, False to read the test images.
        transform: function that is called as `transform(image, label)`; its result is the sample.

    Raises:
        FileNotFoundError: a file is missing, since this class downloads nothing. The text says which file to download
            and where to put it.
        ValueError: a file is damaged.
    """

    def __init__(
        self,
        root: Path | None = None,
        fine_label: bool = False,
        train: bool = True,
        transform: Callable[..., Any] | None = None,
    ) -> None:
        check_flags(fine_label=fine_label, train=train)
        names = ["train.bin" if train else "test.bin"]
        rows = _read_cifar(_folder(root, "cifar100"), "cifar-100", "cifar-100-binary", names, 2)
        super().__init__(*_split_cifar(rows, 2, int(fine_label)), transform)


def _folder(root: Path | None, name: str) -> str:
    home = os.environ.get("MXNET_HOME", os.path.join("~", ".mxnet"))
    return os.path.expanduser(os.path.join(home, "datasets", name) if root is None else os.fspath(root))


def _read_idx(folder: str, name: str, axes: int, source: str) -> Pixels:
    """Reads a file of the idx format: unsigned bytes with a header that contains the shape."""
    path = os.path.join(folder, name + ".gz")
    if not os.path.exists(path):
        path = os.path.join(folder, name)
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        where = f"download it from {source}, and put it into {folder}"
        raise FileNotFoundError(f"there is no {name}.gz and no {name} in {folder}; {where}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: the file cannot be unpacked ({error}); download it again") from None
    start = 4 + 4 * axes
    header = struct.unpack(f">{1 + axes}I", data[:start]) if len(data) >= start else (0,)
    if header[0] != 0x800 + axes or len(data) - start != np.prod(header[1:], dtype=object):
        expected = f"unsigned bytes with {axes} axes in the idx format"
        what = f"its {len(data):,} bytes are not {expected}, or the file is truncated"
        raise ValueError(f"{path}: {what}; download it again")
    return np.frombuffer(data, np.uint8, offset=start).reshape(header[1:])


def _read_cifar(root: str, title: str, subfolder: str, names: list[str], labels: int) -> list[Pixels]:
    """Reads each file as an array; a row of it contains the bytes of the labels, then 3072 bytes of pixels."""
    folder = next((f for f in (root, os.path.join(root, subfolder)) if os.path.exists(os.path.join(f, names[0]))), root)
    size = labels + 3072
    rows = []
    for name in names:
        path = os.path.join(folder, name)
        try:
            data = np.fromfile(path, np.uint8)
        except FileNotFoundError:
            where = f"download {_CIFAR_URL}/{title}-binary.tar.gz, and unpack it there"
            pickles = os.path.exists(os.path.splitext(path)[0])
            also = " (the files without .bin are the python version, which is not read)" if pickles else ""
            raise FileNotFoundError(f"there is no {name} in {folder}{also}; {where}") from None
        if data.size == 0 or data.size % size:
            expected = f"not a multiple of {size}, the size of an image with its labels; download it again"
            raise ValueError(f"{path}: the file has {data.size:,} bytes, {expected}")
        rows.append(data.reshape(-1, size))
    return rows


def _split_cifar(rows: list[Pixels], labels: int, column: int) -> tuple[Pixels, Labels]:
    """Splits the rows of all files into images and labels; `labels` is the number of labels in a row."""
    joined = np.concatenate(rows)
    images = joined[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), joined[:, column].astype(np.int32)
