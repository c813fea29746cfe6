"""Changes brightness, contrast, saturation and hue as MXNet does, and makes the lookup tables that normalize pixels.

MXNet computes in float32 and rounds uint8 results down. OpenCV and the lookup tables may differ from MXNet by 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..decoders import opencv
from ..errors import bad_argument
from ..records.headers import as_float32
from .geometry import Array

Floats = NDArray[np.float32]

_GRAY: Final = np.array([0.299, 0.587, 0.114], np.float32)  # weights of red, green and blue in the gray level

# Columns: the principal components of the colours of ImageNet, each multiplied by its standard deviation.
_LIGHT: Final = np.array(
    [
        [55.46 * -0.5675, 4.794 * 0.7192, 1.148 * 0.4009],
        [55.46 * -0.5808, 4.794 * -0.0045, 1.148 * -0.8140],
        [55.46 * -0.5836, 4.794 * -0.6948, 1.148 * 0.4203],
    ]
)


def checked_statistics(mean: float | Sequence[float], std: float | Sequence[float]) -> tuple[Floats, Floats]:
    """Returns mean and standard deviation of each channel, as arrays of shape (C,) or (1,)."""
    means, stds = _per_channel(mean), _per_channel(std)
    if means is None:
        raise bad_argument("mean", mean, "must be a number, or a list with a number for each channel")
    if stds is None or not (stds > 0).all():
        raise bad_argument("std", std, "must be a number > 0, or a list with such a number for each channel")
    if len(means) != len(stds) and 1 not in (len(means), len(stds)):
        raise bad_argument("std", std, f"has {len(stds)} numbers, but mean has {len(means)}; pass equally many numbers")
    return means, stds


def _per_channel(values: float | Sequence[float]) -> Floats | None:
    """Returns finite numbers as an array of shape (C,) or (1,); None if the values are something else."""
    floats = as_float32(values)
    if floats is None or floats.ndim > 1 or not floats.size or not np.isfinite(floats).all():
        return None
    return np.atleast_1d(floats)


def check_lengths(mean: Floats, std: Floats, channels: int, images: str) -> None:
    """Raises ValueError if `mean` or `std` does not fit to the number of channels; `images` describes the images."""
    for name, values in (("mean", mean), ("std", std)):
        if len(values) not in (1, channels):
            expected = f"a number, or a list of {channels} numbers," if channels > 1 else "a single number"
            raise bad_argument(name, [float(f"{value:g}") for value in values], f"must be {expected} for {images}")


def brightened(image: Array, factor: float) -> Array:
    """Multiplies each pixel by `factor`."""
    return _scaled(image, factor, 0.0)


def contrasted(image: Array, factor: float) -> Array:
    """Multiplies the distance of each pixel from the mean gray level of the image by `factor`."""
    mean = opencv().mean(image[:, :, :4])[: image.shape[2]]  # OpenCV accepts at most four channels
    gray = float(np.dot(mean[:3], _GRAY)) if len(mean) >= 3 else mean[0]
    return _scaled(image, factor, (1 - factor) * gray)


def saturated(image: Array, factor: float) -> Array:
    """Multiplies the distance of each pixel from the gray level of this pixel by `factor`."""
    if image.shape[2] != 3:
        return image
    matrix = np.eye(3, dtype=np.float32) * factor + (1 - factor) * _GRAY
    changed: Array = opencv().transform(image.astype(np.float32), matrix)
    return _as(image.dtype, changed)


def rotated_hue(image: Array, angle: float) -> Array:
    """Rotates the colour circle by `angle`; 1 is a full circle."""
    if image.shape[2] != 3:
        return image
    cv2, white = opencv(), np.float32(_highest(image.dtype))
    hls = cv2.cvtColor(image.astype(np.float32) * (1 / white), cv2.COLOR_RGB2HLS)
    hls[:, :, 0] = (hls[:, :, 0] + angle * 360) % 360
    return _as(image.dtype, cv2.cvtColor(hls, cv2.COLOR_HLS2RGB) * white)


def relighted(image: Array, weights: Array) -> Array:
    """Adds the principal components of the colours of ImageNet, multiplied by three weights."""
    if image.shape[2] != 3:
        return image
    shift = (_LIGHT @ weights * (_highest(image.dtype) / 255)).astype(np.float32)
    if image.dtype != np.uint8:
        return _as(image.dtype, image + shift)
    table = _as(image.dtype, np.arange(256, dtype=np.float32)[:, None] + shift)
    changed: Array = opencv().LUT(image, table.reshape(1, 256, 3))
    return changed


ADJUST: Final[dict[str, Callable[[Array, float], Array]]] = {
    "brightness": brightened,
    "contrast": contrasted,
    "saturation": saturated,
}


def normalizing_tables(mean: Floats, std: Floats, channels: int, dtype: Any) -> Array:
    """Returns an array of shape (C, 256): for each channel, (value / 255 - mean) / std of the values 0 to 255."""
    values = np.arange(256, dtype=np.float32) / np.float32(255)
    check_lengths(mean, std, channels, "gray images" if channels == 1 else f"images with {channels} channels")
    tables = (values - mean[:, None]) / std[:, None]
    return np.ascontiguousarray(np.broadcast_to(tables, (channels, 256)).astype(dtype))


def _scaled(image: Array, factor: float, offset: float) -> Array:
    if image.dtype != np.uint8:
        return _as(image.dtype, image * np.float32(factor) + np.float32(offset))
    table = np.arange(256, dtype=np.float32) * np.float32(factor) + np.float32(offset)
    changed: Array = opencv().LUT(image, _as(image.dtype, table))
    return changed.reshape(image.shape)


def _as(dtype: np.dtype[Any], values: Array) -> Array:
    """Converts float values to `dtype`; for integers, clips them to the values of `dtype` and rounds them down."""
    return np.clip(values, 0, _highest(dtype)).astype(dtype) if dtype.kind == "u" else values.astype(dtype)


def _highest(dtype: np.dtype[Any]) -> int:
    """Returns the value of white; for floats it is 255."""
    return int(np.iinfo(dtype).max) if dtype.kind == "u" else 255
