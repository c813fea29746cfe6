"""The datasets of the cases: plain classes, as users write them, and the functions that make their data."""

from __future__ import annotations

import importlib
import math
import random
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
Maker = Callable[[int], Any]  # makes a dataset from the number of samples

SIDE: Final = 224  # width and height of a sample that is made from a photo
AREA: Final = (0.08, 1.0)  # smallest and largest area of the crop, as a fraction of the area of the photo
RATIO: Final = (3 / 4, 4 / 3)  # smallest and largest aspect ratio of the crop (width / height)
MEAN: Final = (0.485, 0.456, 0.406)  # the usual means of red, green and blue
STD: Final = (0.229, 0.224, 0.225)  # the usual standard deviations


class Recycled:
    """A long dataset that repeats few samples: an epoch takes long enough to be timed, but needs little memory."""

    def __init__(self, samples: Sequence[Any], length: int) -> None:
        self._samples, self._length = samples, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._samples[index % len(self._samples)]


class Columns:
    """A dataset of arrays; a sample contains an element of each array. For a list of indices, it returns a batch."""

    def __init__(self, *columns: Array) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple([column[index] for column in self.columns])


class Photos:
    """A dataset that repeats JPEGs in memory; a sample is a random crop as 3 x 224 x 224 float32, and a label.

    The crop depends only on the index, so all loaders make the same batches. Each channel is normalized directly into
    the memory of the sample, which is the fastest way with NumPy.
    """

    gil_free = True

    def __init__(self, files: Sequence[bytes], length: int) -> None:
        self.files, self._length = files, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Array, int]:
        cv2, rng = opencv(), random.Random(index)
        pixels = cv2.imdecode(np.frombuffer(self.files[index % len(self.files)], np.uint8), cv2.IMREAD_COLOR)
        left, top, width, height = random_crop(pixels.shape[1], pixels.shape[0], rng)
        pixels = cv2.resize(pixels[top : top + height, left : left + width], (SIDE, SIDE))
        pixels = cv2.flip(pixels, 1) if rng.random() < 0.5 else pixels
        image = np.empty((3, SIDE, SIDE), np.float32)
        for channel, (plane, mean, std) in enumerate(zip(image, MEAN, STD, strict=True)):
            np.multiply(pixels[..., 2 - channel], np.float32(1 / 255 / std), out=plane)  # OpenCV: blue is first
            plane -= np.float32(mean / std)
        return image, index % 10


def random_crop(width: int, height: int, rng: random.Random) -> tuple[int, int, int, int]:
    """Draws a crop (left, top, width, height) with an area in AREA and an aspect ratio in RATIO."""
    for _ in range(10):
        area = width * height * rng.uniform(*AREA)
        ratio = math.exp(rng.uniform(*map(math.log, RATIO)))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if wide <= width and high <= height:
            return rng.randint(0, width - wide), rng.randint(0, height - high), wide, high
    return 0, 0, width, height


class Windows:
    """A dataset of a mapped file of int32 tokens; sample i is the i-th window. A pickle contains only the path."""

    def __init__(self, path: Path, width: int) -> None:
        self._path, self._width = path, width
        self._tokens = np.memmap(path, np.int32, "c")  # "c", because torch warns about read-only arrays

    def __len__(self) -> int:
        return len(self._tokens) // self._width

    def __getitem__(self, index: int) -> Array:
        return self._tokens[index * self._width : (index + 1) * self._width]

    def __reduce__(self) -> tuple[Any, ...]:
        return Windows, (self._path, self._width)


def recycled(samples: Callable[[], Sequence[Any]]) -> Maker:
    """Returns a function that makes a dataset of any length, which repeats these samples."""
    return lambda length: Recycled(samples(), length)


def columns(dtype: DTypeLike) -> Maker:
    """Returns a function that makes a dataset of images of 28 x 28 x 1 and int64 labels."""

    def make(length: int) -> Columns:
        images = np.random.default_rng(0).integers(0, 256, (length, 28, 28, 1), np.uint8).astype(dtype)
        return Columns(images, np.arange(length, dtype=np.int64) % 10)

    return make


def photos(width: int, height: int, different: int) -> Maker:
    """Returns a function that makes a dataset of JPEGs of this size; at most `different` of them differ.

    The JPEGs are crops of the sample pictures of scikit-learn.
    """
    return lambda length: Photos(_files(min(length, different), width, height), length)


def windows(width: int) -> Maker:
    """Returns a function that makes a dataset of windows of random tokens, in a temporary file."""

    def make(length: int) -> Windows:
        path = temporary_file(f"{length}x{width}.tokens")
        np.random.default_rng(0).integers(0, 50_000, length * width, np.int32).tofile(path)
        dataset = Windows(path, width)
        for index in range(length):
            dataset[index].max()  # so that every page of the file is mapped in this process
        return dataset

    return make


@cache
def opencv() -> Any:
    """Returns the module of OpenCV. OpenCV must not start threads, because every loader has workers."""
    cv2 = importlib.import_module("cv2")
    cv2.setNumThreads(0)
    return cv2


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="benchmarks-")


def temporary_file(name: str) -> Path:
    """Returns a path in a folder that is deleted when the program ends."""
    return Path(_folder().name) / name


@cache
def _files(count: int, width: int, height: int) -> Sequence[bytes]:
    # Another process makes the files. If this process freed large blocks, glibc would keep freed memory in all workers
    # that are forked later, and the benchmark would not measure their page faults.
    paths = [temporary_file(f"{width}x{height}-{number}.jpg") for number in range(count)]
    with get_context("fork").Pool(1) as pool:
        pool.starmap(_write_photo, [(path, number, width, height) for number, path in enumerate(paths)])
    return [path.read_bytes() for path in paths]


def _write_photo(path: Path, number: int, width: int, height: int) -> None:
    cv2, rng, scenes = opencv(), np.random.default_rng(number), _scenes()
    scene = scenes[number % len(scenes)]
    high = int(rng.integers(240, scene.shape[0] + 1))
    wide = high * 4 // 3
    top, left = rng.integers(0, scene.shape[0] - high + 1), rng.integers(0, scene.shape[1] - wide + 1)
    crop = cv2.resize(scene[top : top + high, left : left + wide], (width, height))
    crop = cv2.flip(crop, 1) if number % 4 >= 2 else crop
    cv2.imwrite(str(path), crop, [cv2.IMWRITE_JPEG_QUALITY, 90])


@cache
def _scenes() -> list[Array]:
    samples = Path(str(importlib.import_module("sklearn.datasets").__file__)).parent / "images"
    return [opencv().imread(str(path)) for path in sorted(samples.glob("*.jpg"))]
