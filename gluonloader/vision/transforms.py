"""Transforms of images, with the names and arguments of `mxnet.gluon.data.vision.transforms`.

They take and return NumPy arrays. Images have shape (height, width, channels), or (channels, height, width) after
`ToTensor`. Random transforms draw from `gluonloader.get_rng()`, so that images do not depend on the executor and the
number of workers. All transforms release the GIL for most of their time and declare this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..declared import is_gil_free
from ..describe import call, describe, short_repr
from ..errors import bad_argument
from ..randomness import get_rng
from . import colors, geometry
from .geometry import Array, Box
from .libraries import opencv

__all__ = [
    "Cast", "CenterCrop", "Compose", "Normalize", "RandomApply", "RandomColorJitter", "RandomCrop",
    "RandomFlipLeftRight", "RandomFlipTopBottom", "RandomResizedCrop", "Resize", "ToTensor",
]  # fmt: skip

Transform = Callable[[Any], Any]


class _Transform:
    """Base class of the transforms: their `repr`."""

    @short_repr
    def __repr__(self) -> str:
        return call(self, *[f"{name}={value}" for name, value in vars(self).items()])


class Compose(_Transform):
    """Applies several transforms one after another.

    Args:
        transforms: functions of one argument.

    >>> Compose([Cast("float32"), lambda x: x + 1])(np.array([1, 2]))
    array([2., 3.], dtype=float32)
    """

    def __init__(self, transforms: Sequence[Transform]) -> None:
        self.transforms = _checked_transforms(transforms)

    def __call__(self, image: Any) -> Any:
        return _applied(self.transforms, image)

    @property
    def _parts(self) -> tuple[Any, ...]:
        return self.transforms

    @short_repr
    def __repr__(self) -> str:
        return call(self, *map(describe, self.transforms))


class RandomApply(_Transform):
    """Applies transforms with probability `p`; otherwise returns the image unchanged.

    Args:
        transforms: a function of one argument, or a list of them, which are applied one after another.
        p: probability, from 0 to 1.
    """

    def __init__(self, transforms: Transform | Sequence[Transform], p: float = 0.5) -> None:
        self.transforms = _checked_transforms([transforms] if callable(transforms) else transforms)
        self.p = _checked_probability(p)

    def __call__(self, image: Any) -> Any:
        return image if get_rng().random() >= self.p else _applied(self.transforms, image)

    @property
    def gil_free(self) -> bool:
        """Whether all transforms release the GIL."""
        return all(map(is_gil_free, self.transforms))


class Cast(_Transform):
    """Converts an array to another dtype.

    Args:
        dtype: a NumPy dtype or its name.
    """

    gil_free = True

    def __init__(self, dtype: DTypeLike = "float32") -> None:
        self.dtype = np.dtype(dtype)

    def __call__(self, image: Array) -> Array:
        return image.astype(self.dtype)


class ToTensor(_Transform):
    """Converts an image of shape (H, W, C) with values 0..255 to float32 of shape (C, H, W) with values 0..1.

    Also converts a batch of shape (N, H, W, C) to (N, C, H, W).
    """

    gil_free = True

    def __call__(self, image: Array) -> Array:
        if image.ndim not in (3, 4):
            raise ValueError(f"the image has shape {image.shape}; pass shape (H, W, C) or (N, H, W, C)")
        channels_first = np.moveaxis(image, -1, -3)
        out = np.empty(channels_first.shape, np.float32)
        np.divide(channels_first, np.float32(255), out=out, dtype=np.float32, casting="unsafe")
        return out


class Normalize(_Transform):
    """Subtracts `mean` and divides by `std`, for each channel of a float image of shape (C, H, W) or (N, C, H, W).

    Args:
        mean: a number, or one number for each channel.
        std: a number, or one number for each channel.
    """

    gil_free = True

    def __init__(self, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0) -> None:
        self.mean, self.std = colors.checked_statistics(mean, std)

    def __call__(self, image: Array) -> Array:
        if image.ndim not in (3, 4) or image.dtype.kind != "f":
            found = f"{image.dtype} of shape {image.shape}"
            raise ValueError(f"the image is {found}; pass floats of shape (C, H, W), as ToTensor returns them")
        return (image - self.mean[:, None, None]) / self.std[:, None, None]


class Resize(_Transform):
    """Resizes an image, or a batch of images of shape (N, H, W, C).

    Args:
        size: an int or a pair (width, height).
        keep_ratio: if `size` is an int, resize the shorter side to `size` and keep the aspect ratio. If False, both
            sides become `size`.
        interpolation: 0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos, 9 cubic or area or linear by the sizes, 10
            random. Area costs about 10 times as much as linear.
    """

    gil_free = True

    def __init__(self, size: int | tuple[int, int], keep_ratio: bool = False, interpolation: int = 1) -> None:
        self.size = geometry.checked_size(size)
        self.keep_ratio = keep_ratio and not isinstance(size, (tuple, list))
        self.interpolation = geometry.checked_interpolation(interpolation)

    def __call__(self, image: Array) -> Array:
        if image.ndim == 4:
            return np.stack([self(one) for one in image])
        geometry.check_image(image)
        height, width = image.shape[:2]
        size = geometry.size_by_shorter_side(width, height, self.size[0]) if self.keep_ratio else self.size
        return geometry.resize(image, size, self.interpolation)


class CenterCrop(_Transform):
    """Cuts out the middle of an image. If the image is smaller than `size`, the largest crop of this shape is enlarged.

    Args:
        size: an int or a pair (width, height).
        interpolation: see `Resize`.
    """

    gil_free = True

    def __init__(self, size: int | tuple[int, int], interpolation: int = 1) -> None:
        self.size = geometry.checked_size(size)
        self.interpolation = geometry.checked_interpolation(interpolation)

    def box(self, width: int, height: int) -> Box:
        """The crop (left, top, width, height) of an image of this size."""
        return geometry.center_box(width, height, self.size)

    def __call__(self, image: Array) -> Array:
        return _cropped(image, self)


class RandomCrop(_Transform):
    """Cuts out a random part of an image. If the image is smaller than `size`, a crop of this shape is enlarged.

    Args:
        size: an int or a pair (width, height).
        pad: pixels to add at each side before the crop: an int, or four ints (top, bottom, left, right).
        pad_value: the value of the pixels that are added.
        interpolation: see `Resize`.
    """

    gil_free = True

    def __init__(
        self,
        size: int | tuple[int, int],
        pad: int | Sequence[int] | None = None,
        pad_value: float = 0,
        interpolation: int = 1,
    ) -> None:
        self.size = geometry.checked_size(size)
        widths = [pad or 0] * 4 if pad is None or isinstance(pad, int) else list(pad)
        if len(widths) != 4 or not all(isinstance(width, int) and width >= 0 for width in widths):
            raise bad_argument("pad", pad, "must be an int >= 0, or four of them: (top, bottom, left, right)")
        self.pad, self.pad_value = tuple(widths), pad_value
        self.interpolation = geometry.checked_interpolation(interpolation)

    def box(self, width: int, height: int) -> Box:
        """Draws a crop (left, top, width, height) of an image of this size, which includes the added pixels."""
        return geometry.random_box(width, height, self.size)

    def __call__(self, image: Array) -> Array:
        if any(self.pad):
            top, bottom, left, right = self.pad
            image = np.pad(image, ((top, bottom), (left, right), (0, 0)), constant_values=self.pad_value)
        return _cropped(image, self)


class RandomResizedCrop(_Transform):
    """Cuts out a part of random area and aspect ratio, and resizes it.

    Args:
        size: of the result: an int or a pair (width, height).
        scale: smallest and largest area of the part, as a fraction of the image.
        ratio: smallest and largest ratio of width to height of the part.
        interpolation: see `Resize`.
    """

    gil_free = True

    def __init__(
        self,
        size: int | tuple[int, int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        interpolation: int = 1,
    ) -> None:
        self.size = geometry.checked_size(size)
        self.scale, self.ratio = geometry.checked_range("scale", scale), geometry.checked_range("ratio", ratio)
        self.interpolation = geometry.checked_interpolation(interpolation)

    def box(self, width: int, height: int) -> Box:
        """Draws a crop (left, top, width, height) of an image of this size."""
        return geometry.random_resized_box(width, height, self.size, self.scale, self.ratio)

    def __call__(self, image: Array) -> Array:
        return _cropped(image, self)


class _RandomFlip(_Transform):
    _axis: int

    def __init__(self, p: float = 0.5) -> None:
        self.p = _checked_probability(p)

    def __call__(self, image: Array) -> Array:
        if get_rng().random() >= self.p:
            return image
        geometry.check_image(image)
        flipped: Array = opencv().flip(image, self._axis)
        return flipped.reshape(image.shape)  # OpenCV drops the axis of a single channel


class RandomFlipLeftRight(_RandomFlip):
    """Mirrors an image left to right with probability `p`.

    Args:
        p: probability, from 0 to 1.
    """

    gil_free = True
    _axis = 1


class RandomFlipTopBottom(_RandomFlip):
    """Mirrors an image top to bottom with probability `p`.

    Args:
        p: probability, from 0 to 1.
    """

    gil_free = True
    _axis = 0


class RandomColorJitter(_Transform):
    """Changes brightness, contrast, saturation and hue by random factors, in random order.

    Args:
        brightness: the factor is drawn from `max(0, 1 - brightness)` to `1 + brightness`; 0 for no change.
        contrast: likewise.
        saturation: likewise, for images with three channels.
        hue: the colour circle is turned by a fraction of a full turn from `-hue` to `hue`, for images with three
            channels.
    """

    gil_free = True

    def __init__(self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0) -> None:
        amounts = {"brightness": brightness, "contrast": contrast, "saturation": saturation, "hue": hue}
        for name, amount in amounts.items():
            if not amount >= 0:
                raise bad_argument(name, amount, "must be a number >= 0")
        self.amounts = amounts

    def __call__(self, image: Array) -> Array:
        geometry.check_image(image)
        rng = get_rng()
        names = [name for name, amount in self.amounts.items() if amount]
        for number in rng.permutation(len(names)).tolist():
            amount = self.amounts[names[number]]
            if names[number] == "hue":
                image = colors.turned_hue(image, rng.uniform(-amount, amount))
            else:
                image = colors.ADJUST[names[number]](image, rng.uniform(max(0, 1 - amount), 1 + amount))
        return image


def _checked_transforms(transforms: Sequence[Transform]) -> tuple[Transform, ...]:
    if not all(map(callable, transforms)):
        raise bad_argument("transforms", transforms, "must be a list of functions of one argument")
    return tuple(transforms)


def _applied(transforms: Sequence[Transform], image: Any) -> Any:
    for transform in transforms:
        image = transform(image)
    return image


def _checked_probability(p: float) -> float:
    if not 0 <= p <= 1:
        raise bad_argument("p", p, "must be a number from 0 to 1")
    return p


def _cropped(image: Array, transform: CenterCrop | RandomCrop | RandomResizedCrop) -> Array:
    geometry.check_image(image)
    height, width = image.shape[:2]
    part = geometry.crop(image, transform.box(width, height))
    return geometry.resize(part, transform.size, transform.interpolation)
