"""`decode`: decodes an image file to a NumPy array, with one of these decoders, in this order:

    JPEG                            simplejpeg, OpenCV, Pillow
    JPEG in CMYK                    OpenCV, Pillow
    PNG                             OpenCV, Pillow
    other formats                   Pillow

All decoders use libjpeg-turbo for JPEG, so the pixels are equal; tests/vision/test_decoding.py compares them.

A decoder may stop at damage inside the file, and leave a part of the memory for the pixels as it was. It may also find
another size in the file than `read_header`. Both are an ImageError; tests/vision/test_damaged_images.py searches for
files for which they are not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import check_flags, check_int
from ..declared import calls_no_user_code
from ..decoders import installed
from ..errors import ImageError, MissingExtraError, bad_argument
from .exif import orientation_of, oriented
from .header import MAX_PIXELS, Header, damaged, open_by_pillow, read_header, without_animation

Color = Literal["rgb", "gray"]
Image = NDArray[np.uint8]

_CHANNELS: Final[dict[Any, int]] = {"rgb": 3, "gray": 1}
_IGNORE_ORIENTATION: Final = 128  # cv2.IMREAD_IGNORE_ORIENTATION
# How the texts of libjpeg's warnings start. All other texts are those of fatal errors.
_WARNINGS: Final = (
    "Corrupt JPEG data: ",
    "Premature end of JPEG file",
    "Inconsistent progression sequence ",
    "Warning: ",
    "Unknown Adobe color transform code ",
)


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

    The decoder is simplejpeg, OpenCV or Pillow. The result does not depend on the decoder, with two exceptions: pixels
    of CMYK images, and of PNG images that are converted to gray, may differ by 2. If `color` is "rgb", a gray image is
    returned with three equal channels. Alpha is removed. If a channel has 16 bits, the upper 8 bits are returned. CMYK
    is converted without a colour profile.

    Args:
        data: the bytes of an image file: JPEG, PNG or, if Pillow is installed, AVIF, BMP, GIF, JPEG 2000, PPM, TIFF or
            WebP.
        out: contiguous uint8 array of shape (H, W, C); the image is decoded into this array.
        min_size: decode a JPEG at 1/2, 1/4 or 1/8 of its size, if its shorter side then still has at least `min_size`
            pixels. This is faster, but it changes the pixels, so use it only if your program makes the image smaller
            later. None decodes the image at full size.
        color: "rgb" for three channels, "gray" for a single channel.
        orient: rotate and mirror the image as the EXIF orientation of the file requires. MXNet and OpenCV always do
            this. Pillow rotates TIFF images always.
        max_pixels: the largest allowed number of pixels, which is checked before the image is decoded. None for no
            limit.

    Damage inside a JPEG, which has no checksums, is not always noticed. Then the pixels are those that libjpeg makes of
    the file.

    Returns:
        `out`, or a new uint8 array of shape (H, W, 3) or (H, W, 1).

    Raises:
        ImageError: the data are not an image, or are truncated or damaged, or the image has more than `max_pixels`
            pixels, or 32 bits in each channel. Or `orient` is true and the EXIF data are damaged.
        MissingExtraError: no decoder for this format is installed.
        ValueError: `out` has a wrong shape or dtype, or another argument is wrong.
    """
    check_options(min_size, orient, max_pixels)
    encoded = as_bytes(data)
    header = read_header(encoded, max_pixels)
    rotate = orient and header.may_rotate
    return decode_as(encoded, header, scale_for(header, min_size), color, rotate, out)


def check_options(min_size: int | None, orient: bool, max_pixels: int | None) -> None:
    """Raises ValueError if one of these arguments of `decode` is wrong."""
    if min_size is not None:
        check_int("min_size", min_size, 1, "must be an int >= 1, or None for the full size")
    if max_pixels is not None:
        check_int("max_pixels", max_pixels, 1, "must be an int >= 1, or None for no limit")
    check_flags(orient=orient)


def as_bytes(data: Any) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, (bytearray, memoryview)) or (isinstance(data, np.ndarray) and data.ndim == 1):
        return bytes(data)
    if isinstance(data, np.ndarray):
        what = "it is an image that is decoded already; pass the bytes of the image file"
        raise TypeError(f"data is an array of shape {data.shape}: {what}")
    what = "it is a path; read the file first: decode(Path(path).read_bytes())"
    raise TypeError(
        f"data={data!r:.80}: {what if isinstance(data, (str, os.PathLike)) else 'pass the bytes of an image file'}"
    )


def scale_for(header: Header, min_size: int | None) -> int:
    """Returns 8, 4, 2 or 1: a JPEG is decoded at 1/8, 1/4, 1/2 or 1/1 of its size.

    It is the largest of these numbers for which the shorter side keeps at least `min_size` pixels.
    """
    if min_size is None or header.kind != "jpeg":
        return 1
    shorter = min(header.height, header.width)
    return next((scale for scale in (8, 4, 2) if shorter >= scale and -(-shorter // scale) >= min_size), 1)


def decode_as(data: bytes, header: Header, scale: int, color: Color, rotate: bool, out: Image | None) -> Image:
    """Decodes an image at 1/`scale` of its size; `scale` must be 1 if the image is not a JPEG."""
    if color not in _CHANNELS:
        raise bad_argument("color", color, 'must be "rgb" or "gray"')
    shape = _shape_of(header, scale, color)
    if out is not None:
        _check_out(out, shape if not rotate else None)
    orientation = orientation_of(data[slice(*header.exif)]) if rotate and header.exif is not None else 1
    if header.animated:  # for some files, OpenCV composes the first frame with memory that it has not written
        data = without_animation(data)
    upright = out if orientation == 1 and out is not None and out.shape == shape else None
    image = _decode_by_first(data, header, scale, color, rotate, upright)
    if orientation != 1:
        image = oriented(image, orientation)
    if out is None:
        return np.ascontiguousarray(image)
    if image is not out:
        _check_out(out, image.shape)
        out[...] = image
    return out


def _shape_of(header: Header, scale: int, color: Color) -> tuple[int, int, int]:
    """Returns the shape of the pixels of an image that is not rotated."""
    return -(-header.height // scale), -(-header.width // scale), _CHANNELS[color]


def _check_out(out: Image, shape: tuple[int, ...] | None) -> None:
    """Raises an error if an image of this shape cannot be decoded into `out`; None if the shape is not known yet."""
    right = isinstance(out, np.ndarray) and out.dtype == np.uint8 and out.flags.c_contiguous and out.flags.writeable
    if not right or (shape is not None and out.shape != shape):
        found = f"{out.dtype} of shape {out.shape}" if isinstance(out, np.ndarray) else type(out).__name__
        expected = "a writable, contiguous uint8 array" + (f" of shape {shape}" if shape is not None else "")
        raise ValueError(f"out: it is {found}; pass {expected}")


class _UnsupportedError(ImageError):
    """The decoder cannot decode this JPEG, but another decoder may be able to."""


def _decode_by_first(data: bytes, header: Header, scale: int, color: Color, rotate: bool, out: Image | None) -> Image:
    """Decodes with the first installed decoder that supports the file, into `out` if the decoder can."""
    candidates: list[tuple[str, Callable[..., Image], bool]] = [
        ("simplejpeg", _decode_by_simplejpeg, header.kind == "jpeg" and header.channels != 4),
        ("cv2", _decode_by_opencv, header.kind != "other"),
        ("PIL.Image", _decode_by_pillow, True),
    ]
    reason = None
    for module, decoder, suits in candidates:
        if not suits or not installed(module):
            continue
        try:
            image = decoder(data, header, scale, color, rotate, out)
        except _UnsupportedError as error:
            reason = error
            continue
        found, shape = image.shape, _shape_of(header, scale, color)
        if found != shape and (header.kind != "other" or {*found[:2]} != {*shape[:2]}):  # Pillow rotates other formats
            raise damaged(header.kind.upper(), f"its header has the shape {shape}, but its pixels have {found}")
        return image
    if reason is None:
        raise MissingExtraError("vision", "a decoder for this image format")
    raise damaged("JPEG", reason)


def _decode_by_simplejpeg(
    data: bytes, header: Header, scale: int, color: Color, rotate: bool, out: Image | None
) -> Image:
    simplejpeg = installed("simplejpeg")
    name, shape = "RGB" if color == "rgb" else "GRAY", _shape_of(header, scale, color)
    # simplejpeg chooses the scale itself: it decodes to the smallest image that has at least this size.
    size: dict[str, Any] = {"min_height": shape[0], "min_width": shape[1], "min_factor": scale}
    # It raises an error before it decodes if the image does not fit into the buffer.
    pixels: Image = np.empty(shape, np.uint8) if out is None else out
    try:
        image: Image = simplejpeg.decode_jpeg(data, name, buffer=pixels, strict=True, **size)
        return pixels if image.shape == shape else image
    except ValueError as error:
        reason = str(error)
    try:
        simplejpeg.decode_jpeg_header(data, strict=False)
        if reason.startswith(_WARNINGS):
            # OpenCV and Pillow accept files with warnings, and so does simplejpeg with strict=False. But then it also
            # returns normally after a warning and a fatal error, and leaves pixels as they were: these differ here.
            fills = [np.full(shape, fill, np.uint8) for fill in (0, 255)]
            first, second = (simplejpeg.decode_jpeg(data, name, buffer=fill, strict=False, **size) for fill in fills)
            if np.array_equal(first, second):
                return first  # type: ignore[no-any-return]
    except (ValueError, KeyError) as error:  # for example, unusual subsampling, or a warning in the header
        raise _UnsupportedError(error) from None
    raise damaged("JPEG", reason)


def _decode_by_opencv(data: bytes, header: Header, scale: int, color: Color, rotate: bool, out: Image | None) -> Image:
    cv2 = installed("cv2")
    flags = (color == "rgb") | (8 * scale if scale > 1 else 0)  # such as cv2.IMREAD_REDUCED_COLOR_2
    reason: Any = "OpenCV returned no image"
    image = None
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags | _IGNORE_ORIENTATION)
    except cv2.error as error:
        reason = error
    if image is None:
        raise _UnsupportedError(reason) if header.kind == "jpeg" else damaged("PNG", reason)
    if color == "gray":
        return image[:, :, None]  # type: ignore[no-any-return]
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=out if out is not None and out.shape == image.shape else image)  # type: ignore[no-any-return]


def _decode_by_pillow(data: bytes, header: Header, scale: int, color: Color, rotate: bool, out: Image | None) -> Image:
    mode = "L" if color == "gray" else "RGB"
    try:
        image = open_by_pillow(data, header.kind)
        if image is None:
            raise ValueError("Pillow does not recognize its format")
        if image.size != (header.width, header.height):
            raise ValueError(f"Pillow finds an image of size {image.width} x {image.height} in it")
        if scale > 1 or (color == "gray" and header.channels == 3):
            image.draft(mode if header.channels == 3 else None, (header.width // scale, header.height // scale))
        image.load()
        # Older versions of Pillow read 16 bits as 32 bits.
        deep = image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))
        if image.mode in ("I", "F") and not deep:
            raise ImageError(f"the image has 32 bits in each channel (mode {image.mode}); convert it to 8 or 16 bits")
        if rotate and header.kind == "other":
            orientation_of(image.info.get("exif", b""))  # Pillow ignores damaged EXIF data
            image = installed("PIL.ImageOps").exif_transpose(image)
        if deep:
            pixels = (np.asarray(image) >> 8).astype(np.uint8)[:, :, None]
            return np.repeat(pixels, _CHANNELS[color], 2)
        if image.mode == "LAB":  # Pillow can convert it only to RGB
            image = image.convert("RGB")
        pixels = np.array(image if image.mode == mode else image.convert(mode))
    except (ImageError, Warning, MemoryError):
        raise
    except Exception as error:  # for damaged files, Pillow raises many types
        raise damaged(header.kind.upper() if header.kind != "other" else "image", error) from None
    return pixels[:, :, None] if color == "gray" else pixels
