"""Transforms of images, with the names and arguments of `mxnet.gluon.data.vision.transforms`.

The transforms accept and return NumPy arrays. Images have shape (height, width, channels), or, after `ToTensor`,
(channels, height, width). Random transforms draw from `gluonloader.get_rng()`, so that images depend neither on the
executor nor on the number of workers. All transforms release the GIL most of the time, and declare this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..checks import as_dtype, check_number, is_number
from ..declared import is_gil_free
from ..decoders import opencv
from ..describe import call, describe, short_repr
from ..errors import bad_argument
from ..randomness import get_rng
from . import colors, geometry
from .geometry import Array, Box

__all__ = [
    "Cast", "CenterCrop", "Compose", "Normalize", "RandomApply", "RandomBrightness", "RandomColorJitter",
    "RandomContrast", "RandomCrop", "RandomFlipLeftRight", "RandomFlipTopBottom", "RandomHue", "RandomLighting",
    "RandomResizedCrop", "RandomSaturation", "Resize", "ToTensor",
]  # fmt: skip

Transform = Callable[[Any], Any]


class _ImageTransform:
    """Base class of the transforms, with their `repr`."""

    @short_repr
    def __repr__(self) -> str:
        return call(self, *[f"{name}={value}" for name, value in vars(self).items()])


class Compose(_ImageTransform):
    """Applies several transforms one after another.

    Args:
        transforms: list of functions; each has the image as its only argument, and returns the changed image.

    >>> Compose([Cast("float32"), lambda x: x + 1])(np.array([1, 2]))
    array([2., 3.], dtype=float32)
    """

    def __init__(self, transforms: Iterable[Transform]) -> None:
        self.transforms = _checked_transforms(transforms)

    def __call__(self, image: Any) -> Any:
        return _applied(self.transforms, image)

    @property
    def _parts(self) -> tuple[Any, ...]:
        return self.transforms

    @short_repr
    def __repr__(self) -> str:
        return call(self, *map(describe, self.transforms))


class RandomApply(_ImageTransform):
    """Applies transforms with probability `p`; otherwise returns the image unchanged.

    Args:
        transforms: function of the image, or a list of such functions, which are applied one after another.
        p: probability of a change, from 0 to 1.
    """

    def __init__(self, transforms: Transform | Iterable[Transform], p: float = 0.5) -> None:
        self.transforms = _checked_transforms([transforms] if callable(transforms) else transforms)
        self.p = _checked_probability(p)

    def __call__(self, image: Any) -> Any:
        return image if get_rng().random() >= self.p else _applied(self.transforms, image)

    @property
    def gil_free(self) -> bool:
        """Whether all transforms release the GIL."""
        return all(map(is_gil_free, self.transforms))


class Cast(_ImageTransform):
    """Converts an array to another dtype.

    Args:
        dtype: NumPy dtype, or the name of a dtype.
    """

    gil_free = True

    def __init__(self, dtype: DTypeLike = "float32") -> None:
        self.dtype = as_dtype(dtype)

    def __call__(self, image: Array) -> Array:
        geometry.check_array(image)
        return image.astype(self.dtype)


class ToTensor(_ImageTransform):
    """Converts an image of shape (H, W, C) with values 0..255 to float32 of shape (C, H, W) with values 0..1.

    It also converts a batch of images, from shape (N, H, W, C) to (N, C, H, W).
    """

    gil_free = True

    def __call__(self, image: Array) -> Array:
        geometry.check_array(image)
        if image.ndim not in (3, 4):
            raise ValueError(f"the image has shape {image.shape}; pass an array of shape (H, W, C) or (N, H, W, C)")
        channels_first = np.moveaxis(image, -1, -3)
        out = np.empty(channels_first.shape, np.float32)
        np.divide(channels_first, np.float32(255), out=out, dtype=np.float32, casting="unsafe")
        return out


class Normalize(_ImageTransform):
    """Subtracts `mean` from each channel of a float image of shape (C, H, W) or (N, C, H, W), and divides by `std`.

    Args:
        mean: a number, or a list with a number for each channel.
        std: a number, or a list with a number for each channel.
    """

    gil_free = True

    def __init__(self, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0) -> None:
        self.mean, self.std = colors.checked_statistics(mean, std)

    def __call__(self, image: Array) -> Array:
        geometry.check_array(image)
        if image.ndim not in (3, 4) or image.dtype.kind != "f":
            found = f"{image.dtype} of shape {image.shape}"
            raise ValueError(f"the image is {found}; pass a float array of shape (C, H, W), as ToTensor returns it")
        colors.check_lengths(self.mean, self.std, image.shape[-3], f"this image of shape {image.shape}")
        return (image - self.mean[:, None, None]) / self.std[:, None, None]


class Resize(_ImageTransform):
    """Resizes an image, or a batch of images of shape (N, H, W, C).

    Args:
        size: an int or a pair (width, height).
        keep_ratio: only used if `size` is an int. If True, the shorter side is resized to `size`, and the aspect ratio
            stays. If False, both sides become `size`.
        interpolation: 0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos, 9 chosen by the sizes (cubic if both sides
            grow, area if both sides shrink, otherwise linear), 10 random (0 to 4). Area takes at least 10 times as
            long as linear.
    """

    gil_free = True

    def __init__(self, size: int | tuple[int, int], keep_ratio: bool = False, interpolation: int = 1) -> None:
        self.size = geometry.checked_size(size)
        self.keep_ratio = keep_ratio and not isinstance(size, (tuple, list))
        self.interpolation = geometry.checked_interpolation(interpolation)

    def __call__(self, image: Array) -> Array:
        if isinstance(image, np.ndarray) and image.ndim == 4:
            return np.stack([self(one) for one in image])
        geometry.check_image(image)
        height, width = image.shape[:2]
        size = geometry.size_by_shorter_side(width, height, self.size[0]) if self.keep_ratio else self.size
        return geometry.resize(image, size, self.interpolation)


class CenterCrop(_ImageTransform):
    """Crops the centre of an image. If the image is smaller than `size`, a smaller crop is enlarged to `size`.

    Args:
        size: an int or a pair (width, height).
        interpolation: see `Resize`.
    """

    gil_free = True

    def __init__(self, size: int | tuple[int, int], interpolation: int = 1) -> None:
        self.size = geometry.checked_size(size)
        self.interpolation = geometry.checked_interpolation(interpolation)

    def box(self, width: int, height: int) -> Box:
        """Returns the crop (left, top, width, height) of an image with this width and height."""
        return geometry.center_box(width, height, self.size)

    def __call__(self, image: Array) -> Array:
        return _cropped(image, self)


class RandomCrop(_ImageTransform):
    """Crops an image at a random place. If the image is smaller than `size`, a smaller crop is enlarged to `size`.

    Args:
        size: an int or a pair (width, height).
        pad: number of pixels that are added at each side before the crop: an int, or four ints (top, bottom, left,
            right).
        pad_value: value of the added pixels.
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
        widths = [pad or 0] * 4 if pad is None or isinstance(pad, (int, np.integer)) else pad
        ints = isinstance(widths, (list, tuple)) and all(isinstance(width, (int, np.integer)) for width in widths)
        if not ints or len(widths) != 4 or min(widths) < 0:
            raise bad_argument("pad", pad, "must be an int >= 0, or four such ints: (top, bottom, left, right)")
        if not is_number(pad_value) or not np.isfinite(pad_value):
            raise bad_argument("pad_value", pad_value, "must be a number, the same for all channels")
        self.pad, self.pad_value = tuple(map(int, widths)), pad_value
        self.interpolation = geometry.checked_interpolation(interpolation)

    def box(self, width: int, height: int) -> Box:
        """Draws a crop (left, top, width, height). The width and height of the image include the added pixels."""
        return geometry.random_box(width, height, self.size)

    def __call__(self, image: Array) -> Array:
        geometry.check_image(image)
        if any(self.pad):
            top, bottom, left, right = self.pad
            value = np.asarray(self.pad_value).astype(image.dtype)
            if image.dtype.kind in "iu" and value != self.pad_value:
                right_value = f"a pixel of {image.dtype} cannot have it; pass an int that fits"
                raise bad_argument("pad_value", self.pad_value, right_value)
            image = np.pad(image, ((top, bottom), (left, right), (0, 0)), constant_values=value)
        return _cropped(image, self)


class RandomResizedCrop(_ImageTransform):
    """Crops an image at a random place, with a random area and a random aspect ratio, and resizes the crop.

    Args:
        size: size of the result: an int or a pair (width, height).
        scale: smallest and largest area of the crop, as a fraction of the area of the image.
        ratio: smallest and largest aspect ratio of the crop (width / height).
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
        """Draws a crop (left, top, width, height) of an image with this width and height."""
        return geometry.random_resized_box(width, height, self.size, self.scale, self.ratio)

    def __call__(self, image: Array) -> Array:
        return _cropped(image, self)


class _RandomFlip(_ImageTransform):
    _axis: int

    def __init__(self, p: float = 0.5) -> None:
        self.p = _checked_probability(p)

    def __call__(self, image: Array) -> Array:
        geometry.check_image(image)
        if get_rng().random() >= self.p:
            return image
        flipped: Array = opencv().flip(image, self._axis)
        return flipped.reshape(image.shape)  # OpenCV removes the axis of a single channel


class RandomFlipLeftRight(_RandomFlip):
    """Mirrors an image left to right with probability `p`.

    Args:
        p: probability of a change, from 0 to 1.
    """

    gil_free = True
    _axis = 1


class RandomFlipTopBottom(_RandomFlip):
    """Mirrors an image top to bottom with probability `p`.

    Args:
        p: probability of a change, from 0 to 1.
    """

    gil_free = True
    _axis = 0


class _ColorChange(_ImageTransform):
    """Base class of the transforms of colours; `amounts` are the arguments of their constructors, by name."""

    gil_free = True

    def __init__(self, **amounts: float) -> None:
        for name, amount in amounts.items():
            check_number(name, amount, 0, "must be a number >= 0")
        self.amounts = amounts

    def __call__(self, image: Array) -> Array:
        geometry.check_image(image)
        rng = get_rng()
        names = [name for name, amount in self.amounts.items() if amount]
        for number in rng.permutation(len(names)).tolist():
            amount = self.amounts[names[number]]
            if names[number] == "hue":
                image = colors.rotated_hue(image, rng.uniform(-amount, amount))
            else:
                image = colors.ADJUST[names[number]](image, rng.uniform(max(0, 1 - amount), 1 + amount))
        return image

    @short_repr
    def __repr__(self) -> str:
        return call(self, *[f"{name}={amount}" for name, amount in self.amounts.items()])


class RandomColorJitter(_ColorChange):
    """Changes brightness, contrast, saturation and hue by random factors, in random order.

    Args:
        brightness: range of the brightness; 0 for no change. The factor is drawn from `max(0, 1 - brightness)` to
            `1 + brightness`.
        contrast: range of the contrast, in the same form as `brightness`.
        saturation: range of the saturation, in the same form as `brightness`; only for images with three channels.
        hue: range of the hue. The colour circle is rotated by an angle from `-hue` to `hue`, where 1 is a full circle;
            only for images with three channels.
    """

    def __init__(self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0) -> None:
        super().__init__(brightness=brightness, contrast=contrast, saturation=saturation, hue=hue)


class RandomBrightness(_ColorChange):
    """Changes the brightness of all channels, also of an alpha channel, by a random factor.

    Args:
        brightness: see `RandomColorJitter`.
    """

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness=brightness)


class RandomContrast(_ColorChange):
    """Changes the contrast by a random factor.

    Args:
        contrast: see `RandomColorJitter`.
    """

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast=contrast)


class RandomSaturation(_ColorChange):
    """Changes the saturation of an image with three channels by a random factor.

    Args:
        saturation: see `RandomColorJitter`.
    """

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation=saturation)


class RandomHue(_ColorChange):
    """Changes the hue of an image with three channels by a random angle.

    Args:
        hue: see `RandomColorJitter`.
    """

    def __init__(self, hue: float) -> None:
        super().__init__(hue=hue)


class RandomLighting(_ImageTransform):
    """Adds a random colour to an image with three channels, as in the paper on AlexNet.

    The colour is a random combination of the principal components of the colours of ImageNet. Images with other numbers
    of channels stay unchanged.

    Args:
        alpha: standard deviation of the weights of the components; 0.1 is usual.
    """

    gil_free = True

    def __init__(self, alpha: float) -> None:
        check_number("alpha", alpha, 0, "must be a number >= 0")
        self.alpha = alpha

    def __call__(self, image: Array) -> Array:
        geometry.check_image(image)
        return colors.relighted(image, get_rng().normal(0, self.alpha, 3)) if self.alpha else image


def _checked_transforms(transforms: Iterable[Transform]) -> tuple[Transform, ...]:
    functions = tuple(transforms) if isinstance(transforms, Iterable) else (None,)
    if not all(map(callable, functions)):
        raise bad_argument("transforms", transforms, "must be a list of functions of one argument")
    return functions  # type: ignore[return-value]


def _applied(transforms: Sequence[Transform], image: Any) -> Any:
    for transform in transforms:
        image = transform(image)
    return image


def _checked_probability(p: float) -> float:
    if not is_number(p) or not 0 <= p <= 1:
        raise bad_argument("p", p, "must be a number from 0 to 1")
    return p


def _cropped(image: Array, transform: CenterCrop | RandomCrop | RandomResizedCrop) -> Array:
    geometry.check_image(image)
    height, width = image.shape[:2]
    part = geometry.crop(image, transform.box(width, height))
    return geometry.resize(part, transform.size, transform.interpolation)
