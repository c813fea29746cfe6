"""The datasets of the cases: plain classes, as users write them, and the data in them, made here."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = [
    "MEAN",
    "STD",
    "Columns",
    "Photos",
    "Recycled",
    "Windows",
    "columns",
    "opencv",
    "photos",
    "recycled",
    "temporary_file",
    "windows",
]

Array = NDArray[Any]
Maker = Callable[[int], Any]  # the number of samples -> a dataset

_PHOTOS: Final = 600
_HEIGHT, _WIDTH, _SIDE = 375, 500, 224  # of a photo, and of what is made of it
MEAN: Final = (0.485, 0.456, 0.406)  # of red, green and blue, as is usual
STD: Final = (0.229, 0.224, 0.225)


class Recycled:
    """A long dataset over few samples: an epoch takes long enough to be timed, and little memory."""

    def __init__(self, samples: Sequence[Any], length: int) -> None:
        self._samples, self._length = samples, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._samples[index % len(self._samples)]


class Columns:
    """Arrays side by side. With a list of indices it gives a batch, as arrays do."""

    def __init__(self, *columns: Array) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, index: Any) -> tuple[Any, ...]:
        return tuple([column[index] for column in self.columns])


class Photos:
    """JPEGs in memory, over and over: decoded, resized, flipped and normalised to 3 x 224 x 224 float32, and a label.

    The normalisation is the cheap one: channel by channel into the sample's own memory.
    """

    gil_free = True

    def __init__(self, files: Sequence[bytes], length: int) -> None:
        self.files, self._length = files, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Array, int]:
        cv2 = opencv()
        pixels = cv2.imdecode(np.frombuffer(self.files[index % len(self.files)], np.uint8), cv2.IMREAD_COLOR)
        pixels = cv2.flip(cv2.resize(pixels, (_SIDE, _SIDE)), 1)
        image = np.empty((3, _SIDE, _SIDE), np.float32)
        for channel, (plane, mean, std) in enumerate(zip(image, MEAN, STD, strict=True)):
            np.multiply(pixels[..., 2 - channel], np.float32(1 / 255 / std), out=plane)  # OpenCV has blue first
            plane -= np.float32(mean / std)
        return image, index % 10


class Windows:
    """A file of int32 tokens, mapped into memory: sample i is the i-th window. Pickled it is a path."""

    def __init__(self, path: Path, width: int) -> None:
        self._path, self._width = path, width
        self._tokens = np.memmap(path, np.int32, "c")  # "c": torch warns of arrays that cannot be written

    def __len__(self) -> int:
        return len(self._tokens) // self._width

    def __getitem__(self, index: int) -> Array:
        return self._tokens[index * self._width : (index + 1) * self._width]

    def __reduce__(self) -> tuple[Any, ...]:
        return Windows, (self._path, self._width)


def recycled(samples: Callable[[], Sequence[Any]]) -> Maker:
    """A dataset of any length over these samples."""
    return lambda length: Recycled(samples(), length)


def columns(dtype: DTypeLike) -> Maker:
    """Images of 28 x 28 x 1 and int64 labels."""

    def make(length: int) -> Columns:
        images = np.random.default_rng(0).integers(0, 256, (length, 28, 28, 1), np.uint8).astype(dtype)
        return Columns(images, np.arange(length, dtype=np.int64) % 10)

    return make


def photos(length: int) -> Photos:
    """JPEGs cut from the sample photos of scikit-learn, at most 600 different ones."""
    return Photos(_files(min(length, _PHOTOS)), length)


def windows(width: int) -> Maker:
    """As many windows of random tokens in a file that goes with the program."""

    def make(length: int) -> Windows:
        path = temporary_file(f"{length}x{width}.tokens")
        np.random.default_rng(0).integers(0, 50_000, length * width, np.int32).tofile(path)
        dataset = Windows(path, width)
        for index in range(length):
            dataset[index].max()  # every page of it is in this process's memory from now on
        return dataset

    return make


@cache
def opencv() -> Any:
    """OpenCV, which is not to start threads of its own: every loader has its workers."""
    cv2 = importlib.import_module("cv2")
    cv2.setNumThreads(0)
    return cv2


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="benchmarks-")


def temporary_file(name: str) -> Path:
    """A path in a folder that goes with the program."""
    return Path(_folder().name) / name


@cache
def _files(count: int) -> Sequence[bytes]:
    # Another process makes the files. If this process freed large blocks, glibc would keep freed memory in all workers
    # that are forked later, and the benchmark would not measure their page faults.
    with get_context("fork").Pool(1) as pool:
        return list(pool.imap(_file, range(count)))


def _file(number: int) -> bytes:
    cv2, rng, scenes = opencv(), np.random.default_rng(number), _scenes()
    scene = scenes[number % len(scenes)]
    height = int(rng.integers(240, scene.shape[0] + 1))
    width = height * _WIDTH // _HEIGHT
    top, left = rng.integers(0, scene.shape[0] - height + 1), rng.integers(0, scene.shape[1] - width + 1)
    crop = cv2.resize(scene[top : top + height, left : left + width], (_WIDTH, _HEIGHT))
    crop = cv2.flip(crop, 1) if number % 4 >= 2 else crop
    encoded: bytes = cv2.imencode(".jpg", crop, [cv2.IMWRITE_JPEG_QUALITY, 90])[1].tobytes()
    return encoded


@cache
def _scenes() -> list[Array]:
    samples = Path(str(importlib.import_module("sklearn.datasets").__file__)).parent / "images"
    return [opencv().imread(str(path)) for path in sorted(samples.glob("*.jpg"))]
