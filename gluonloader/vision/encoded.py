"""`ImageDataset`: decodes the images of a dataset whose samples are (bytes of an image file, label)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..checks import check_functions, check_indexed
from ..dataset.base import Dataset
from ..dataset.compact import CompactList
from ..errors import ImageError, bad_argument
from ..indices import checked_index
from .decoding import Color, check_options, decode
from .header import MAX_PIXELS
from .lists import read_file

Path = str | os.PathLike[str]


class ImageDataset(Dataset):
    """Decodes the image files of another dataset; a sample is (image, label), or what `transform` returns.

    It is the base class of the datasets of image files.

    Args:
        encoded: a dataset whose samples are (bytes of an image file, label).
        flag: 1 for RGB images of shape (H, W, 3), 0 for gray images of shape (H, W, 1). The dtype is uint8.
        transform: function that is called as `transform(image, label)`; its result is the sample.
        min_size: see `decode`.
        orient: see `decode`.
        max_pixels: see `decode`.

    The object has an attribute for each argument; the name of the attribute for `transform` is `transform_fn`. If
    `encoded` has a method `name_of(index)`, an error text contains the name that this method returns.
    """

    def __init__(
        self,
        encoded: Any,
        flag: int = 1,
        transform: Callable[..., Any] | None = None,
        *,
        min_size: int | None = None,
        orient: bool = False,
        max_pixels: int | None = MAX_PIXELS,
    ) -> None:
        check_encoded("encoded", encoded)
        check_functions(transform=transform)
        if flag not in (0, 1):
            raise bad_argument("flag", flag, "must be 1 for RGB or 0 for gray")
        check_options(min_size, orient, max_pixels)
        self.encoded, self.flag, self.transform_fn = encoded, flag, transform
        self.min_size, self.orient, self.max_pixels = min_size, orient, max_pixels

    def __getitem__(self, index: Any) -> Any:
        data, label = pair_of(self.encoded[index], index)
        try:
            image = decode(data, None, self.min_size, self.color, orient=self.orient, max_pixels=self.max_pixels)
        except ImageError as error:
            raise self.named(error, index) from None
        return (image, label) if self.transform_fn is None else self.transform_fn(image, label)

    def __len__(self) -> int:
        return len(self.encoded)

    @property
    def color(self) -> Color:
        """The value for the argument `color` of `decode`."""
        return "rgb" if self.flag else "gray"

    def named(self, error: ImageError, index: Any) -> ImageError:
        """Returns the error about an image with the name of the image file added."""
        name_of = getattr(self.encoded, "name_of", None)
        return ImageError(f"{f'sample {index}' if name_of is None else name_of(index)}: {error}")

    @property
    def _parts(self) -> tuple[Any, ...]:
        return (self.encoded,) if self.transform_fn is None else (self.encoded, self.transform_fn)


def check_encoded(name: str, dataset: Any) -> None:
    """Raises ValueError if the argument cannot be a dataset of image files."""
    if isinstance(dataset, (str, os.PathLike)):
        raise bad_argument(name, dataset, "it is a path; pass a dataset, for example ImageFolderDataset(path)")
    if isinstance(dataset, (bytes, bytearray)):
        raise bad_argument(name, dataset, "it is a single image file; pass a list of (bytes of an image file, label)")
    check_indexed(name, dataset)


def pair_of(sample: Any, index: Any) -> tuple[Any, Any]:
    """Returns data and label of a sample."""
    try:
        if isinstance(sample, (str, bytes, Mapping)):
            raise TypeError
        data, label = sample
    except (TypeError, ValueError):
        expected = "must be (bytes of an image file, label)"
        raise TypeError(f"sample {index} {expected}, but it is {sample!r:.80}") from None
    return data, label


class ImageFiles(Dataset):
    """A dataset of image files that are not decoded. A sample is (bytes of the file, label)."""

    def __init__(self, paths: Iterable[str], labels: Any) -> None:
        self._paths, self._labels = CompactList(paths), labels

    def __getitem__(self, index: Any) -> tuple[bytes, Any]:
        index = checked_index(index, len(self))
        return read_file(self.name_of(index)), self.label_of(index)

    def __len__(self) -> int:
        return len(self._paths)

    _parts = ()

    def name_of(self, index: Any) -> str:
        """Returns the path of an image file."""
        path: str = self._paths[index]
        return path

    def label_of(self, index: Any) -> Any:
        label = self._labels[index]
        return label.item() if isinstance(label, np.generic) else label


class Items(Sequence[tuple[str, Any]]):
    """A sequence of (path, label), one tuple for each image. It makes a tuple only when the tuple is read."""

    def __init__(self, files: ImageFiles) -> None:
        self._files = files

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[row] for row in range(*index.indices(len(self)))]
        return self._files.name_of(index), self._files.label_of(index)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        return f"[{self[0]!r}, ... {len(self)} in all]"
