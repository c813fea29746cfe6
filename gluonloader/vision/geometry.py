"""Computes crops and resizes images as MXNet does, for the transforms and for `ImagePipeline`."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..checks import is_number
from ..decoders import opencv
from ..errors import bad_argument
from ..randomness import get_rng

Array = NDArray[Any]
Size = tuple[int, int]  # width, height
Box = tuple[int, int, int, int]  # left, top, width, height

_DTYPES: Final = frozenset(map(np.dtype, (np.uint8, np.uint16, np.float32, np.float64)))  # that OpenCV can resize
_AUTO: Final = 9
_RANDOM: Final = 10
_TRIES: Final = 10  # random crops; if all of them are larger than the image, the crop is the centre of the image


def checked_size(size: Any) -> Size:
    """Returns (width, height), from the argument `size`, an int or a pair."""
    pair = tuple(size) if isinstance(size, (tuple, list)) else (size, size)
    if len(pair) != 2 or not all(isinstance(side, (int, np.integer)) and side >= 1 for side in pair):
        raise bad_argument("size", size, "must be an int >= 1, or a pair (width, height) of such ints")
    return int(pair[0]), int(pair[1])


def checked_interpolation(number: int) -> int:
    if not isinstance(number, (int, np.integer)) or number not in (0, 1, 2, 3, 4, _AUTO, _RANDOM):
        numbers = "0 nearest, 1 linear, 2 cubic, 3 area, 4 Lanczos, 9 chosen by the sizes, 10 random"
        raise bad_argument("interpolation", number, f"must be one of MXNet's numbers: {numbers}")
    return int(number)


def checked_range(name: str, values: Any) -> tuple[float, float]:
    """Returns the pair (low, high). Raises ValueError unless 0 < low <= high, which is finite."""
    pair = tuple(values) if isinstance(values, (tuple, list)) else ()
    if len(pair) != 2 or not all(map(is_number, pair)) or not 0 < pair[0] <= pair[1] < math.inf:
        raise bad_argument(name, values, "must be a pair of numbers (low, high) with 0 < low <= high < infinity")
    return float(pair[0]), float(pair[1])


def check_array(image: Any) -> None:
    """Raises ValueError if the image is not a NumPy array."""
    if not isinstance(image, np.ndarray):
        right = "pass a NumPy array of shape (height, width, channels); np.asarray converts a Pillow image"
        raise ValueError(f"the image is of type {type(image).__name__}; {right}")


def check_image(image: Any) -> None:
    """Raises ValueError if OpenCV cannot change the image, or if its axes are in the wrong order."""
    check_array(image)
    if image.ndim != 3:
        raise ValueError(f"the image has shape {image.shape}; pass a NumPy array of shape (height, width, channels)")
    if image.dtype not in _DTYPES:
        right = 'pass uint8, uint16, float32 or float64, for example with Cast("float32") before this transform'
        raise ValueError(f"the image has dtype {image.dtype}; {right}")
    if not image.size:
        raise ValueError(f"the image has shape {image.shape}, so it has no pixels; remove it from the dataset")
    if image.shape[0] in (1, 3) and image.shape[2] > 4:  # not 5 channels or more of an image with 1 or 3 rows
        right = "apply this transform before ToTensor"
        raise ValueError(f"the image has shape {image.shape}, with the channels first; {right}")


def resize(image: Array, size: Size, interpolation: int, out: Array | None = None) -> Array:
    """Resizes an image of shape (H, W, C) with OpenCV.

    If the image has the size `size` already, and `out` is None, it returns the image itself, without a copy.

    Args:
        out: contiguous array of shape (height, width, C) for the result.
    """
    height, width = image.shape[:2]
    if (width, height) == size:
        if out is None:
            return image
        out[...] = image
        return out
    cv2, method = opencv(), _method(interpolation, (width, height), size)
    resized: Array
    if method == 3 and image.shape[2] > 4:  # OpenCV averages areas of at most four channels
        resized = np.dstack([cv2.resize(channel, size, interpolation=method) for channel in cv2.split(image)])
    else:
        resized = cv2.resize(image, size, dst=out, interpolation=method)
    if resized.ndim == 2:  # OpenCV removes the axis of a single channel
        resized = resized[:, :, None]
    if out is None or np.may_share_memory(resized, out):
        return resized
    out[...] = resized
    return out


def _method(interpolation: int, old: Size, new: Size) -> int:
    if interpolation == _AUTO:
        if new[0] > old[0] and new[1] > old[1]:
            return 2
        return 3 if new[0] < old[0] and new[1] < old[1] else 1
    return int(get_rng().integers(0, 5)) if interpolation == _RANDOM else interpolation


def size_by_shorter_side(width: int, height: int, shorter: int) -> Size:
    """Returns the size of an image after its shorter side is resized to `shorter` pixels."""
    return (shorter, height * shorter // width) if height > width else (width * shorter // height, shorter)


def fitting_size(width: int, height: int, size: Size) -> Size:
    """Returns the size of the largest crop that has the aspect ratio of `size` and fits into `size` and the image."""
    crop_width: float
    crop_height: float
    crop_width, crop_height = size
    if height < crop_height:
        crop_width, crop_height = crop_width * height / crop_height, height
    if width < crop_width:
        crop_width, crop_height = width, crop_height * width / crop_width
    return max(1, int(crop_width)), max(1, int(crop_height))


def center_box(width: int, height: int, size: Size) -> Box:
    """Returns the crop in the centre of the image; if `size` is larger than the image, the crop is smaller."""
    crop_width, crop_height = fitting_size(width, height, size)
    return (width - crop_width) // 2, (height - crop_height) // 2, crop_width, crop_height


def random_box(width: int, height: int, size: Size) -> Box:
    """Returns a crop at a random place; if `size` is larger than the image, the crop is smaller."""
    crop_width, crop_height = fitting_size(width, height, size)
    rng = get_rng()
    left = int(rng.integers(0, width - crop_width + 1))
    return left, int(rng.integers(0, height - crop_height + 1)), crop_width, crop_height


def random_resized_box(
    width: int, height: int, size: Size, scale: tuple[float, float], ratio: tuple[float, float]
) -> Box:
    """Returns a crop with a random area, a random aspect ratio and a random place.

    `scale` is the range of the area, as a fraction of the area of the image; `ratio` is the range of width / height.
    """
    rng = get_rng()
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for _ in range(_TRIES):
        area = rng.uniform(*scale) * width * height
        aspect = math.exp(rng.uniform(low, high))
        crop_width, crop_height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 1 <= crop_width <= width and 1 <= crop_height <= height:
            left = int(rng.integers(0, width - crop_width + 1))
            return left, int(rng.integers(0, height - crop_height + 1)), crop_width, crop_height
    return center_box(width, height, size)


def crop(image: Array, box: Box) -> Array:
    """Returns the pixels of an image that are in the crop `box`, as a view."""
    left, top, width, height = box
    return image[top : top + height, left : left + width]
