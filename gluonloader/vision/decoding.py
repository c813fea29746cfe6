"""`decode`: an image file as a NumPy array, by simplejpeg, OpenCV or Pillow.

    JPEG          simplejpeg, else OpenCV, else Pillow; CMYK and rotation by EXIF: OpenCV, else Pillow
    PNG           OpenCV, else Pillow
    other formats Pillow

All of them use libjpeg-turbo for JPEG, so the pixels are equal; tests/vision/test_decoding.py compares them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..declared import calls_no_user_code
from ..errors import ImageError, MissingExtraError, bad_argument
from .header import MAX_PIXELS, Header, open_by_pillow, read_header
from .libraries import installed

Color = Literal["rgb", "gray"]
Image = NDArray[np.uint8]

_CHANNELS: Final[dict[Any, int]] = {"rgb": 3, "gray": 1}
_IGNORE_ORIENTATION: Final = 128  # cv2.IMREAD_IGNORE_ORIENTATION


@calls_no_user_code
def decode(
    data: Any,
    out: Image | None = None,
    min_size: int | None = None,
    color: Color = "rgb",
    *,
    orient: bool = False,
    max_pixels: int | None = MAX_PIXELS,
) -> Image:
    """Decodes an image file to an array.

    The result is the same with every decoder: gray images get three equal channels if `color` is "rgb"; alpha is
    dropped; of 16 bits per channel, the upper 8 are returned; CMYK is converted without a colour profile (decoders may
    differ by 2), and PNG to gray may differ by 2, too.

    Args:
        data: the bytes of a JPEG or PNG file, or of another format that Pillow knows if Pillow is installed.
        out: uint8 array of shape (H, W, C), contiguous; the image is decoded into this array.
        min_size: decode a JPEG at 1/2, 1/4 or 1/8 of its size, if the shorter side still has at least this many pixels.
            This is faster and changes the pixels, so do it only if the image is made smaller anyway. None decodes at
            full size.
        color: "rgb" for three channels, "gray" for one.
        orient: turn the image as the EXIF orientation of the file says. MXNet and OpenCV always do.
        max_pixels: the largest number of pixels; it is checked before the image is decoded. None for no limit.

    Returns:
        `out`, or a new array: uint8, shape (H, W, 3) or (H, W, 1).

    Raises:
        ImageError: the data are not an image, are truncated or damaged, or the image has more than `max_pixels` pixels.
        MissingExtraError: no decoder for this format is installed.
        ValueError: `out` has a wrong shape or dtype, or another argument is wrong.
    """
    if min_size is not None and min_size < 1:
        raise bad_argument("min_size", min_size, "must be an int >= 1, or None for the full size")
    encoded = as_bytes(data)
    header = read_header(encoded, max_pixels)
    turn = orient and header.may_turn
    return decode_as(encoded, header, scale_for(header, min_size), color, turn, out)


def as_bytes(data: Any) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)) or (isinstance(data, np.ndarray) and data.ndim == 1):
        return bytes(data)
    if isinstance(data, np.ndarray):
        what = "it is an image that is decoded already; pass the bytes of an image file"
        raise TypeError(f"data is an array of shape {data.shape}: {what}")
    what = "it is a path; read the file first: decode(Path(path).read_bytes())" if isinstance(data, str) else ""
    raise TypeError(f"data={data!r:.80}: {what or 'pass the bytes of an image file'}")


def scale_for(header: Header, min_size: int | None) -> int:
    """The largest of 8, 4, 2 and 1 by which a JPEG can be divided so that its shorter side has `min_size` pixels."""
    if min_size is None or header.kind != "jpeg":
        return 1
    shorter = min(header.height, header.width)
    return next((scale for scale in (8, 4, 2) if shorter >= scale and -(-shorter // scale) >= min_size), 1)


def decode_as(data: bytes, header: Header, scale: int, color: Color, turn: bool, out: Image | None) -> Image:
    """Decodes an image whose header was read, at 1/`scale` of its size, which must be 1 unless it is a JPEG."""
    if color not in _CHANNELS:
        raise bad_argument("color", color, 'must be "rgb" or "gray"')
    shape = (-(-header.height // scale), -(-header.width // scale), _CHANNELS[color])
    if out is not None:
        _check_out(out, shape if not turn else None)
    image = _decode_by_first(_decoders_of(header, turn), data, header, scale, color, turn, out)
    if out is None or image is out:
        return image
    _check_out(out, image.shape)
    out[...] = image
    return out


def _check_out(out: Image, shape: tuple[int, ...] | None) -> None:
    right = isinstance(out, np.ndarray) and out.dtype == np.uint8 and out.flags.c_contiguous and out.flags.writeable
    if not right or (shape is not None and out.shape != shape):
        found = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        raise ValueError(f"out: it is {found}; pass a writable, contiguous uint8 array of shape {shape}")


def _decoders_of(header: Header, turn: bool) -> list[Callable[..., Image]]:
    """The installed decoders for this format, the best one first."""
    candidates = [
        ("simplejpeg", _decode_by_simplejpeg, header.kind == "jpeg" and header.channels != 4 and not turn),
        ("cv2", _decode_by_opencv, header.kind != "other"),
        ("PIL.Image", _decode_by_pillow, True),
    ]
    return [decoder for module, decoder, suits in candidates if suits and installed(module)]


def _decode_by_first(decoders: list[Callable[..., Image]], *arguments: Any) -> Image:
    """Decodes with the first decoder that can: simplejpeg cannot decode JPEGs with unusual subsampling."""
    error = None
    for decoder in decoders:
        try:
            return decoder(*arguments)
        except ImageError as failure:
            error = failure
    raise error or MissingExtraError("vision", "a decoder of this image format")


def _decode_by_simplejpeg(
    data: bytes, header: Header, scale: int, color: Color, turn: bool, out: Image | None
) -> Image:
    # simplejpeg chooses the scale: the smallest image that has at least this size.
    size: dict[str, Any] = {"min_height": -(-header.height // scale), "min_width": -(-header.width // scale)}
    try:
        # strict=True would refuse files with harmless damage, which OpenCV and Pillow accept.
        image: Image = installed("simplejpeg").decode_jpeg(
            data, "RGB" if color == "rgb" else "GRAY", min_factor=scale, buffer=out, strict=False, **size
        )
    except ValueError as error:
        raise _damaged("JPEG", error) from None
    return image if out is None else out


def _decode_by_opencv(data: bytes, header: Header, scale: int, color: Color, turn: bool, out: Image | None) -> Image:
    cv2 = installed("cv2")
    flags = (color == "rgb") | (8 * scale if scale > 1 else 0)  # cv2.IMREAD_REDUCED_COLOR_2 and the like
    reason: Any = "OpenCV returned no image"
    image = None
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags | (0 if turn else _IGNORE_ORIENTATION))
    except cv2.error as error:
        reason = error
    if image is None:
        raise _damaged(header.kind.upper(), reason)
    if color == "gray":
        return image[:, :, None]  # type: ignore[no-any-return]
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=out if out is not None and out.shape == image.shape else image)  # type: ignore[no-any-return]


def _decode_by_pillow(data: bytes, header: Header, scale: int, color: Color, turn: bool, out: Image | None) -> Image:
    mode = "L" if color == "gray" else "RGB"
    try:
        image = open_by_pillow(data)
        if image is None:
            raise ValueError("Pillow does not recognize it")
        if scale > 1 or (color == "gray" and header.channels == 3):
            image.draft(mode if header.channels == 3 else None, (header.width // scale, header.height // scale))
        image.load()
        if turn:
            image = _turned(image)
        if image.mode.startswith("I;16"):
            pixels = (np.asarray(image) >> 8).astype(np.uint8)[:, :, None]
            return np.repeat(pixels, _CHANNELS[color], 2)
        pixels = np.array(image if image.mode == mode else image.convert(mode))
    except (OSError, SyntaxError, ValueError, EOFError, IndexError) as error:
        if isinstance(error, ImageError):
            raise
        raise _damaged(header.kind.upper() if header.kind != "other" else "image", error) from None
    return pixels[:, :, None] if color == "gray" else pixels


def _turned(image: Any) -> Any:
    operations = installed("PIL.ImageOps")
    with suppress(Exception):  # damaged EXIF data
        return operations.exif_transpose(image)
    return image


def _damaged(kind: str, reason: object) -> ImageError:
    return ImageError(f"the {kind} file is damaged: {reason}; copy the file again, or remove it")
