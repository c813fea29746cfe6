"""Brightness, contrast, saturation and hue as MXNet changes them, and the lookup tables that normalize pixels.

MXNet computes in float32 and rounds uint8 results down; OpenCV and the tables here may differ from it by 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import bad_argument
from .geometry import Array
from .libraries import opencv

Floats = NDArray[np.float32]

_GRAY: Final = np.array([0.299, 0.587, 0.114], np.float32)  # weights of red, green and blue


def checked_statistics(mean: float | Sequence[float], std: float | Sequence[float]) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each channel, as arrays of shape (C,) or (1,)."""
    means, stds = np.atleast_1d(np.asarray(mean, np.float32)), np.atleast_1d(np.asarray(std, np.float32))
    if means.ndim != 1 or not np.isfinite(means).all():
        raise bad_argument("mean", mean, "must be a number, or one number for each channel")
    if stds.ndim != 1 or not (stds > 0).all():
        raise bad_argument("std", std, "must be a number > 0, or one number for each channel")
    if len(means) != len(stds) and 1 not in (len(means), len(stds)):
        raise bad_argument("std", std, f"it has {len(stds)} numbers, but mean has {len(means)}; pass equally many")
    return means, stds


def brightened(image: Array, factor: float) -> Array:
    return _scaled(image, factor, 0.0)


def contrasted(image: Array, factor: float) -> Array:
    """Scales the distance of each pixel from the mean gray level of the image."""
    mean = opencv().mean(image)[: image.shape[2]]
    gray = float(np.dot(mean, _GRAY)) if len(mean) == 3 else mean[0]
    return _scaled(image, factor, (1 - factor) * gray)


def saturated(image: Array, factor: float) -> Array:
    """Scales the distance of each pixel from its own gray level."""
    if image.shape[2] != 3:
        return image
    matrix = np.eye(3, dtype=np.float32) * factor + (1 - factor) * _GRAY
    changed: Array = opencv().transform(image.astype(np.float32), matrix)
    return _as(image.dtype, changed)


def turned_hue(image: Array, turn: float) -> Array:
    """Turns the colour circle by `turn`, 1 for a full turn."""
    if image.shape[2] != 3:
        return image
    cv2 = opencv()
    hls = cv2.cvtColor(image.astype(np.float32) * np.float32(1 / 255), cv2.COLOR_RGB2HLS)
    hls[:, :, 0] = (hls[:, :, 0] + turn * 360) % 360
    return _as(image.dtype, cv2.cvtColor(hls, cv2.COLOR_HLS2RGB) * np.float32(255))


ADJUST: Final[dict[str, Callable[[Array, float], Array]]] = {
    "brightness": brightened,
    "contrast": contrasted,
    "saturation": saturated,
}


def normalizing_tables(mean: Floats, std: Floats, channels: int, dtype: Any) -> Array:
    """For each channel the 256 values of (value / 255 - mean) / std, shape (C, 256)."""
    values = np.arange(256, dtype=np.float32) / np.float32(255)
    if max(len(mean), len(std)) not in (1, channels):
        raise bad_argument("mean", mean.tolist(), f"must be a number or {channels} numbers, one for each channel")
    tables = (values - mean[:, None]) / std[:, None]
    return np.ascontiguousarray(np.broadcast_to(tables, (channels, 256)).astype(dtype))


def _scaled(image: Array, factor: float, offset: float) -> Array:
    if image.dtype != np.uint8:
        return _as(image.dtype, image * np.float32(factor) + np.float32(offset))
    table = np.arange(256, dtype=np.float32) * np.float32(factor) + np.float32(offset)
    changed: Array = opencv().LUT(image, _as(image.dtype, table))
    return changed.reshape(image.shape)


def _as(dtype: np.dtype[Any], values: Array) -> Array:
    """Float32 values as `dtype`; uint8 is clipped and rounded down."""
    return np.clip(values, 0, 255).astype(dtype) if dtype == np.uint8 else values.astype(dtype)
