"""`decode`: decodes an image file to a NumPy array, with one of these decoders, in this order:

    JPEG                            simplejpeg, OpenCV, Pillow
    JPEG in CMYK, lossless JPEG     OpenCV, Pillow
    PNG                             OpenCV, Pillow
    other formats                   Pillow

All decoders use libjpeg-turbo for JPEG, so the pixels are equal; tests/vision/test_decoding.py compares them.

A decoder may stop at damage inside the file, and leave a part of the memory for the pixels as it was. It may also find
another size in the file than `read_header`. Both are an ImageError; tests/vision/test_damaged_images.py searches for
files for which they are not.

NOTE [strictness]: there are two strictnesses. A file is decodable if a decoder writes all pixels; `decode` and the
datasets require this. A file is intact if it is decodable, and libjpeg does not warn about damage in it; `check_intact`
requires this, and so does `records check`. libjpeg has these warnings:

    bad ICC marker                                          harmless: the metadata are damaged
    unknown JFIF revision number                            harmless: the metadata are unusual
    Unknown Adobe color transform code                      harmless: the metadata are unusual
    extraneous bytes before marker                          harmless in front of the first scan; damage after that
    Invalid SOS parameters for sequential JPEG              harmless: numbers that only progressive images use
    Inconsistent progression sequence                       damage: a scan is missing, or occurs twice
    premature end of data segment                           damage
    Premature end of JPEG file                              damage
    bad Huffman code                                        damage
    bad arithmetic code                                     damage
    found marker instead of RST                             damage
    Application transferred too many scanlines              no decoder causes it

Only simplejpeg reports warnings, and only the first one of an image. So `_warning` decodes the image without the parts
that cause harmless warnings: then every warning means damage.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from struct import unpack_from
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import check_flags, check_int
from ..declared import calls_no_user_code
from ..decoders import installed
from ..errors import ImageError, MissingExtraError, bad_argument
from .exif import orientation_of, oriented
from .header import (
    MAX_PIXELS,
    Header,
    damaged,
    open_by_pillow,
    read_header,
    undecodable,
    without_animation,
    without_metadata,
)

Color = Literal["rgb", "gray"]
Image = NDArray[np.uint8]

_CHANNELS: Final[dict[Any, int]] = {"rgb": 3, "gray": 1}
_UNSUPPORTED: Final = "Unsupported "  # how libjpeg's texts about features start that it does not have
# Tags of TIFF files, and their values.
_BITS_PER_SAMPLE, _COMPRESSION, _PHOTOMETRIC, _PLANES, _SAMPLE_FORMAT = 258, 259, 262, 284, 339
_UNCOMPRESSED, _WHITE_IS_ZERO, _SEPARATE, _SIGNED = 1, 0, 2, 2


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
    returned with three equal channels. Alpha is removed. If a channel has 12 or 16 bits, the upper 8 bits are returned.
    CMYK is converted without a colour profile. If `color` is "gray", a JPEG is returned as its brightness channel, and
    all other formats as 0.299 R + 0.587 G + 0.114 B.

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
            pixels, or pixels that are not converted, for example with 32 bits in each channel. Or `orient` is true and
            the EXIF data are damaged.
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
    """Returns 8, 4, 2 or 1: an image is decoded at 1/8, 1/4, 1/2 or 1/1 of its size.

    It is the largest of these numbers for which the shorter side keeps at least `min_size` pixels.
    """
    if min_size is None or not header.scalable:
        return 1
    shorter = min(header.height, header.width)
    return next((scale for scale in (8, 4, 2) if shorter >= scale and -(-shorter // scale) >= min_size), 1)


def check_intact(data: bytes) -> None:
    """Raises ImageError if `decode` cannot decode an image file, or if it is not intact; see NOTE [strictness]."""
    header = read_header(data, MAX_PIXELS)
    if header.scalable and installed("simplejpeg") and (warning := _warning(data)):
        raise damaged("JPEG", warning)
    decode_as(data, header, 1, "rgb", False, None)


def _warning(data: bytes) -> str:
    """Returns libjpeg's first warning or error about damage in a JPEG; "" if there is none, or if it is unknown."""
    simplejpeg = installed("simplejpeg")
    plain = without_metadata(data)
    try:
        simplejpeg.decode_jpeg_header(plain)
    except (ValueError, KeyError):  # simplejpeg cannot decode this JPEG
        return ""
    try:  # as few pixels as possible, which saves time and does not change the warnings
        simplejpeg.decode_jpeg(plain, "GRAY", min_height=1, min_width=1, min_factor=8)
    except ValueError as error:
        return str(error)
    return ""


def decode_as(data: bytes, header: Header, scale: int, color: Color, rotate: bool, out: Image | None) -> Image:
    """Decodes an image at 1/`scale` of its size; `scale` must be 1 if the image is not scalable."""
    if color not in _CHANNELS:
        raise bad_argument("color", color, 'must be "rgb" or "gray"')
    shape = _shape_of(header, scale, color)
    if out is not None:
        _check_out(out, shape if not rotate else None)
    orientation = orientation_of(data[slice(*header.exif)]) if rotate and header.exif is not None else 1
    if header.animated:  # for some files, OpenCV composes the first frame with memory that it has not written
        data = without_animation(data)
    upright = out if orientation == 1 and out is not None and out.shape == shape else None
    try:
        image = _decode_by_first(data, header, scale, color, rotate, upright)
    except MemoryError:
        what = f"there is not enough memory to decode the image, which has {header.width} x {header.height} pixels"
        raise ImageError(f"{what}; use fewer workers, or pass a smaller max_pixels to refuse such images") from None
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
        ("simplejpeg", _decode_by_simplejpeg, header.scalable and header.channels != 4),
        ("cv2", _decode_by_opencv, header.kind != "other"),
        ("PIL.Image", _decode_by_pillow, True),
    ]
    reason: str | None = None
    for module, decoder, suits in candidates:
        if not suits or not installed(module):
            continue
        try:
            image = decoder(data, header, scale, color, rotate, out)
        except _UnsupportedError as error:
            if reason is None or not reason.startswith(_UNSUPPORTED):
                reason = str(error)
            continue
        found, shape = image.shape, _shape_of(header, scale, color)
        if found != shape and (header.kind != "other" or {*found[:2]} != {*shape[:2]}):  # Pillow rotates other formats
            raise damaged(header.kind.upper(), f"its header has the shape {shape}, but its pixels have {found}")
        return image
    if reason is None:
        raise MissingExtraError("vision", "a decoder for this image format")
    raise (undecodable if reason.startswith(_UNSUPPORTED) else damaged)("JPEG", reason)


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
        simplejpeg.decode_jpeg_header(data)
    except (ValueError, KeyError):  # for example, unusual subsampling, or a warning about the header
        raise _UnsupportedError(reason) from None
    # OpenCV and Pillow accept files with warnings, and so does simplejpeg with strict=False. But then it may return
    # normally after a fatal error, and leave pixels as they were: these differ here.
    first, second = (np.full(shape, fill, np.uint8) for fill in (0, 255))
    for fill in (first, second):
        with suppress(ValueError):
            simplejpeg.decode_jpeg(data, name, buffer=fill, strict=False, **size)
    if not np.array_equal(first, second):
        raise damaged("JPEG", reason)
    return first


def _decode_by_opencv(data: bytes, header: Header, scale: int, color: Color, rotate: bool, out: Image | None) -> Image:
    cv2 = installed("cv2")
    flags = cv2.IMREAD_COLOR if color == "rgb" else cv2.IMREAD_GRAYSCALE
    if header.kind == "png" and color == "gray":
        flags = cv2.IMREAD_ANYCOLOR  # libpng would convert colours by the gamma of the file, not by the rule
    if scale > 1:
        flags |= 8 * scale  # such as cv2.IMREAD_REDUCED_COLOR_2
    image, reason = None, "OpenCV returned no image"
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as error:
        if error.code == cv2.Error.StsNoMem:
            raise MemoryError from None
        reason = str(error)
    if image is None:
        raise _UnsupportedError(reason) if header.kind == "jpeg" else damaged("PNG", reason)
    if color == "gray":
        return (image if image.ndim == 2 else cv2.cvtColor(image, cv2.COLOR_BGR2GRAY))[:, :, None]  # type: ignore[no-any-return]
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
        tags = getattr(image, "tag_v2", {})  # of a TIFF
        _check_samples(data, image, tags)
        image.load()
        deep = _is_deep(image)
        if rotate and header.kind == "other":
            orientation_of(image.info.get("exif", b""))  # Pillow ignores damaged EXIF data
            image = installed("PIL.ImageOps").exif_transpose(image)
        if deep:
            return np.repeat(_upper_bits(np.asarray(image), tags)[:, :, None], _CHANNELS[color], 2)
        pixels = np.array(_converted(image, mode))
    except (ImageError, Warning, MemoryError):
        raise
    except Exception as error:  # for damaged files, Pillow raises many types
        if header.kind == "jpeg":
            raise _UnsupportedError(error) from None
        raise damaged("PNG", error) if header.kind == "png" else undecodable(image.format, error) from None
    return pixels[:, :, None] if color == "gray" else pixels


def _check_samples(data: bytes, image: Any, tags: Any) -> None:
    """Raises ImageError if `decode` does not convert the values of an image, or if Pillow would return wrong ones."""
    bits, signed = tags.get(_BITS_PER_SAMPLE, (32,))[0], _SIGNED in tags.get(_SAMPLE_FORMAT, ())
    if (image.mode in ("I", "F") and not _is_deep(image)) or signed:
        what = f"the image has {bits} bits in each channel (mode {image.mode})" + (" with a sign" if signed else "")
        raise ImageError(f"{what}; convert it to 8 or 16 bits" + (" without a sign" if signed else ""))
    if bits == 16 and tags.get(_PLANES) == _SEPARATE and tags.get(_COMPRESSION) == _UNCOMPRESSED:
        what = "the image has 16 bits in each channel, and its channels are stored separately (planar)"
        raise ImageError(f"{what}; convert it to PNG, or store the channels interleaved")
    # Pillow rounds instead of taking the upper bits, so that white overflows to black.
    if image.format == "JPEG2000" and not _is_deep(image) and (bits := _bits_of_jpeg_2000(data)) > 8:
        what = f"the image is a JPEG 2000 with {bits} bits in each channel, and it is not gray"
        raise ImageError(f"{what}; convert it to PNG, or to 8 bits")


def _bits_of_jpeg_2000(data: bytes) -> int:
    start = data.index(b"\xff\x4f\xff\x51")  # of the header that contains the number of channels, and the bits of each
    (channels,) = unpack_from(">H", data, start + 40)
    return max(1 + (bits & 0x7F) for bits in data[start + 42 : start + 42 + 3 * channels : 3])


def _is_deep(image: Any) -> bool:
    """Whether an image of Pillow is gray and has more than 8 bits. Older versions of Pillow read 16 bits as 32 bits."""
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def _upper_bits(values: NDArray[Any], tags: Any) -> Image:
    """Returns the upper 8 bits of gray values. Pillow returns the values of a TIFF as they are stored."""
    bits = tags.get(_BITS_PER_SAMPLE, (16,))[0]
    upper: Image = (values >> bits - 8).astype(np.uint8)
    return ~upper if tags and tags.get(_PHOTOMETRIC, _WHITE_IS_ZERO) == _WHITE_IS_ZERO else upper


def _converted(image: Any, mode: str) -> Any:
    """Converts an image of Pillow to the mode "RGB" or "L"."""
    if image.mode == "La":  # Pillow can convert it only to this mode
        image = image.convert("LA")
    if image.mode not in ("L", "LA", "1", mode):  # Pillow has no direct way for some modes, and takes Y of YCbCr
        image = image.convert("RGB")
    return image if image.mode == mode else image.convert(mode)
