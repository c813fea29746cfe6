"""`ImagePipeline`: decodes, crops, resizes, mirrors and normalizes images, directly into the memory of the batch.

    bytes --decode--> pixels --resize (of the crop)--> scratch --flip--> scratch --tables--> row of the batch
          reused for all images of the batch          H x W x C, uint8          dtype and layout of the batch

Each image is written into an array that `gluonloader.empty` makes. In a worker process, this array lies in the shared
memory of the batch. So the pipeline makes no float array of a single image, and no second copy of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import DTypeLike

from ..checks import as_dtype, check_int, is_number
from ..dataset.base import Dataset
from ..dataset.bulk import bulk_read, each, read
from ..decoders import opencv
from ..describe import call, describe, short_repr
from ..errors import ImageError, bad_argument
from ..indices import as_list, checked_index
from ..memory import empty
from ..randomness import get_rng
from ..rows import Rows
from . import geometry
from .colors import checked_statistics, normalizing_tables
from .decoding import Image, as_bytes, decode_as, scale_for
from .encoded import ImageDataset, check_encoded, pair_of
from .geometry import Array, Box, Size
from .header import Header, read_header
from .transforms import CenterCrop, RandomFlipLeftRight, RandomResizedCrop

_DTYPES: Final = ("uint8", "float16", "float32")
_DEFAULT_RATIO: Final = (3 / 4, 4 / 3)  # the constructor writes it out, for the documentation


class ImagePipeline(Dataset):
    """Decodes, crops, resizes, mirrors and normalizes the images of a dataset; a sample is (image, label).

    The images are equal to the images that the following transforms return; a value may differ by 1/255, before the
    division by `std`. If you pass `scale`, the transforms are `RandomResizedCrop(size, scale, ratio)`, otherwise
    `Resize(resize, keep_ratio=True)` and `CenterCrop(size)`. Then follow `RandomFlipLeftRight(flip)`, `ToTensor()`,
    `Normalize(mean, std)` and `Cast(dtype)`. The pipeline draws its random numbers in the same order as the transforms,
    but in a batch from the generator of the batch, as bulk reads do, and not from the generators of the samples. It
    writes the images directly into the memory of the batch, so `default_batchify` does not copy them.

    Args:
        dataset: an `ImageDataset` without a transform, for example an `ImageFolderDataset`; the pipeline uses its
            `flag`, `orient` and `max_pixels`. Or a dataset whose samples are (bytes of an image file, label).
        size: the size of the images in the batch: an int or a pair (width, height).
        scale: smallest and largest area of a random crop, as in `RandomResizedCrop`. None to crop the centre of the
            image.
        ratio: smallest and largest aspect ratio of a random crop, as in `RandomResizedCrop`. Only allowed together with
            `scale`.
        resize: before the centre is cropped, the shorter side of the image is resized to this length. None for no
            resize. Not allowed together with `scale`.
        flip: probability that an image is mirrored left to right; 0.5 mirrors half of the images.
        mean: number that is subtracted from each channel, whose values are from 0 to 1; or a list with a number for
            each channel.
        std: number by which each channel is divided; or a list with a number for each channel.
        dtype: "float32", "float16" or "uint8". If it is "uint8", the values are 0 to 255, and `mean` and `std` are not
            allowed.
        layout: "CHW" or "HWC".
        interpolation: see `transforms.Resize`.
        scaled_decode: decode JPEGs at 1/2, 1/4 or 1/8 of their size, if the crop then still has `size` pixels. This is
            faster. It changes the pixels, but not which part of an image is cropped. An image that `orient` may rotate
            is always decoded at full size.

    Raises:
        ValueError: an argument is wrong, or the dataset has a transform.
        MissingExtraError: OpenCV is not installed.
        ImageError: raised when a sample is read, if its image cannot be decoded; the text names the file.
    """

    def __init__(
        self,
        dataset: Any,
        size: int | tuple[int, int],
        *,
        scale: tuple[float, float] | None = None,
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        resize: int | None = None,
        flip: float = 0,
        mean: float | Sequence[float] = 0.0,
        std: float | Sequence[float] = 1.0,
        dtype: DTypeLike = "float32",
        layout: Literal["CHW", "HWC"] = "CHW",
        interpolation: int = 1,
        scaled_decode: bool = False,
    ) -> None:
        opencv()
        self._dataset = _checked_dataset(dataset)
        self._encoded = self._dataset.encoded
        self._scaled_decode, self._interpolation = scaled_decode, interpolation
        if not is_number(flip) or not 0 <= flip <= 1:
            raise bad_argument("flip", flip, "must be a probability from 0 to 1; 0.5 mirrors half of the images")
        if scale is not None and resize is not None:
            raise bad_argument("resize", resize, "cannot be used together with scale; remove resize or scale")
        if scale is None and ratio != _DEFAULT_RATIO:
            raise bad_argument("ratio", ratio, "is for random crops; pass scale too, or remove ratio")
        self._shorter = None if resize is None else check_int("resize", resize, 1)
        self._crop: CenterCrop | RandomResizedCrop = (
            CenterCrop(size, interpolation) if scale is None else RandomResizedCrop(size, scale, ratio, interpolation)
        )
        self._flip = RandomFlipLeftRight(flip) if flip else None
        self._size: Size = self._crop.size
        self._rows = _RowWriter(self._size, 3 if self._dataset.flag else 1, as_dtype(dtype), layout, mean, std)

    def __getitem__(self, index: Any) -> Any:
        return self.__getitems__([checked_index(index, len(self))])[0]

    @bulk_read(lambda self: True)
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        keys = as_list(indices)
        images = empty((len(keys), *self._rows.shape), self._rows.dtype)
        rows, scratch = iter(images), _Scratch(self._size, self._rows.channels)
        if hasattr(self._encoded, "__getitems__"):
            samples = iter(read(self._encoded, keys))
        else:  # the samples are read one after another, so that only one image file is in memory at a time
            samples = map(self._encoded.__getitem__, keys)
        labels = each(lambda key: self._fill(key, next(samples), next(rows), scratch), keys, keys)
        return Rows((images, labels))

    def __len__(self) -> int:
        return len(self._encoded)

    @short_repr
    def __repr__(self) -> str:
        return call(self, describe(self._dataset), describe(self._crop))

    @property
    def _parts(self) -> tuple[Any, ...]:
        return (self._encoded, self._crop) if self._flip is None else (self._encoded, self._crop, self._flip)

    def _fill(self, key: Any, sample: Any, row: Array, scratch: _Scratch) -> Any:
        """Writes the image of a sample into `row`, the part of the batch for this sample. Returns the label."""
        data, label = pair_of(sample, key)
        try:
            encoded = as_bytes(data)
            header = read_header(encoded, self._dataset.max_pixels)
            part = self._decoded_part(encoded, header, scratch)
        except ImageError as error:
            raise self._dataset.named(error, key) from None
        pixels = row if self._rows.holds_pixels else scratch.pixels
        geometry.resize(part, self._size, self._interpolation, pixels)
        if self._flip is not None and get_rng().random() < self._flip.p:
            opencv().flip(pixels, 1, dst=pixels)
        self._rows.write(pixels, row)
        return label

    def _decoded_part(self, data: bytes, header: Header, scratch: _Scratch) -> Image:
        """Decodes an image, and returns its crop, which is not resized yet."""
        if self._dataset.orient and header.may_rotate:  # the size of a rotated image is known only after decoding
            image = decode_as(data, header, 1, self._dataset.color, True, None)
            height, width = image.shape[:2]
            box, divisor = self._box(width, height), 1
        else:
            box = self._box(header.width, header.height)
            divisor = self._divisor(header, box)
            out = scratch.decoded(-(-header.height // divisor), -(-header.width // divisor))
            image = decode_as(data, header, divisor, self._dataset.color, False, out)
            width, height = header.width, header.height
        if self._shorter is not None:
            image = geometry.resize(image, self._resized(width, height), self._interpolation)
        elif divisor > 1:
            box = _divided(box, divisor, image.shape)
        return geometry.crop(image, box)

    def _resized(self, width: int, height: int) -> Size:
        """The size of an image before it is cropped."""
        shorter = self._shorter
        return (width, height) if shorter is None else geometry.size_by_shorter_side(width, height, shorter)

    def _box(self, width: int, height: int) -> Box:
        return self._crop.box(*self._resized(width, height))

    def _divisor(self, header: Header, box: Box) -> int:
        """Returns 1, 2, 4 or 8: the decoder decodes the image at 1/1, 1/2, 1/4 or 1/8 of its size."""
        if not self._scaled_decode or not header.scalable:
            return 1
        if self._shorter is not None:
            return scale_for(header, self._shorter)
        (width, height), (_, _, box_width, box_height) = self._size, box
        return next((d for d in (8, 4, 2) if box_width // d >= width and box_height // d >= height), 1)


class _Scratch:
    """Memory that all images of a batch use one after another, so that only the first images cause page faults."""

    def __init__(self, size: Size, channels: int) -> None:
        self.pixels: Image = np.empty((size[1], size[0], channels), np.uint8)
        self._channels = channels
        self._memory: Image = np.empty(0, np.uint8)

    def decoded(self, height: int, width: int) -> Image:
        """Returns an array of shape (height, width, C) for a decoded image."""
        nbytes = height * width * self._channels
        if nbytes > self._memory.size:
            self._memory = np.empty(nbytes, np.uint8)
        return self._memory[:nbytes].reshape(height, width, self._channels)


class _RowWriter:
    """Writes uint8 pixels of shape (H, W, C) into a row of the batch, in the dtype and layout of the batch.

    Attributes:
        holds_pixels: whether the batch contains the uint8 pixels unchanged, so that `write` has nothing to do.
    """

    def __init__(self, size: Size, channels: int, dtype: np.dtype[Any], layout: str, mean: Any, std: Any) -> None:
        if dtype.name not in _DTYPES or not dtype.isnative:
            raise bad_argument("dtype", dtype, f"must be one of {', '.join(_DTYPES)}")
        if layout not in ("CHW", "HWC"):
            raise bad_argument("layout", layout, 'must be "CHW" or "HWC"')
        means, stds = checked_statistics(mean, std)
        if dtype == np.uint8 and (means.any() or (stds != 1).any()):
            raise bad_argument("dtype", dtype.name, "must be a float dtype if you pass mean or std")
        self.channels, self.dtype, self._planar = channels, dtype, layout == "CHW"
        self.shape = (channels, size[1], size[0]) if self._planar else (size[1], size[0], channels)
        self.holds_pixels = dtype == np.uint8 and not self._planar
        self._tables: _Tables | None = None
        if dtype != np.uint8:
            self._tables = _Tables(normalizing_tables(means, stds, channels, dtype), self._planar)

    def write(self, pixels: Image, row: Array) -> None:
        if self._tables is not None:
            self._tables.write(pixels, row)
        elif self._planar:
            pairs = [channel for channel in range(self.channels) for _ in range(2)]  # of pixels, and of row
            opencv().mixChannels([pixels], list(row), pairs)


class _Tables:
    """Writes pixels as normalized floats, by a table for each channel that contains the result for each value."""

    def __init__(self, tables: Array, planar: bool) -> None:
        # OpenCV only copies the entries of the tables; it accepts float16 entries only as uint16.
        self._entries = np.dtype(np.uint16) if tables.dtype == np.float16 else tables.dtype
        self._tables = (tables if planar else np.ascontiguousarray(tables.T)[None]).view(self._entries)
        self._planar = planar

    def write(self, pixels: Image, row: Array) -> None:
        cv2, out = opencv(), row.view(self._entries)
        if not self._planar:
            cv2.LUT(pixels, self._tables, dst=out)
            return
        for plane, table, part in zip(cv2.split(pixels), self._tables, out, strict=True):
            cv2.LUT(plane, table, dst=part)


def _checked_dataset(dataset: Any) -> ImageDataset:
    check_encoded("dataset", dataset)
    if not isinstance(dataset, ImageDataset):
        return ImageDataset(dataset)
    if dataset.transform_fn is not None:
        raise ValueError("dataset: it has a transform; pass a dataset without a transform")
    if type(dataset).__getitem__ is not ImageDataset.__getitem__:
        what = f"ImagePipeline does not call {type(dataset).__name__}.__getitem__"
        raise ValueError(f"dataset: {what}; override __getitem__ of its dataset of image files (encoded) instead")
    if dataset.min_size is not None:
        instead = "remove min_size, and pass scaled_decode=True to ImagePipeline"
        raise ValueError(f"dataset: it has min_size={dataset.min_size}; {instead}")
    return dataset


def _divided(box: Box, divisor: int, shape: tuple[int, ...]) -> Box:
    """Converts a crop of the full image to a crop of the image that was decoded at 1/`divisor` of its size."""
    left, top, width, height = (round(side / divisor) for side in box)
    width, height = min(max(width, 1), shape[1]), min(max(height, 1), shape[0])
    return min(left, shape[1] - width), min(top, shape[0] - height), width, height
