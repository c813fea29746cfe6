"""Reads the header of an image file: its format, size and colour channels, before any memory is allocated."""

from __future__ import annotations

import io
from struct import Struct, unpack_from
from struct import error as StructError  # noqa: N812, the name shows that it is an exception
from typing import Any, Final, NamedTuple

from ..decoders import installed
from ..errors import ImageError

MAX_PIXELS: Final = 89_478_485  # the limit above which Pillow warns; such an image needs 256 MB

_SEGMENT: Final = Struct(">HH")  # marker and length of a segment of a JPEG file
_END_OF_JPEG: Final = b"\xff\xd9"
_NO_SIZE: Final = (0xC4, 0xC8, 0xCC)  # the markers from C0 to CF whose segments do not contain the size of the image
_NO_LENGTH: Final = (0x01, *range(0xD0, 0xD9))  # markers without a segment


class Header(NamedTuple):
    """The contents of the header of an image file.

    Attributes:
        kind: "jpeg", "png" or "other".
        channels: the number of colour channels of a JPEG (4 for CMYK); 0 for the other formats.
        may_rotate: whether the file may contain an EXIF orientation.
    """

    kind: str
    height: int
    width: int
    channels: int
    may_rotate: bool


def read_header(data: bytes, max_pixels: int | None) -> Header:
    """Reads the header of an image file, and checks that the file is complete and the image is not too large.

    Raises:
        ImageError: the data are not an image, or are truncated, or the image has more than `max_pixels` pixels.
    """
    try:
        if data[:2] == b"\xff\xd8":
            header = _read_jpeg(data)
        elif data[:8] == b"\x89PNG\r\n\x1a\n":
            header = _read_png(data)
        else:
            header = _read_other(data)
    except StructError:
        raise _truncated(data) from None
    pixels = header.height * header.width
    if max_pixels is not None and pixels > max_pixels:
        what = (
            f"the image has {header.width} x {header.height} = {pixels:,} pixels, more than max_pixels={max_pixels:,}"
        )
        raise ImageError(f"{what}; pass a larger max_pixels if you trust the file")
    return header


def _read_jpeg(data: bytes) -> Header:
    position, size, may_rotate, segment = 2, (0, 0, 0), False, _SEGMENT.unpack_from
    while True:
        marker, length = segment(data, position)
        code = marker & 0xFF
        if marker < 0xFF00 or code == 0xFF:  # decoders skip bytes between two segments
            position = data.find(b"\xff", position + 1)
            if position < 0:
                raise _truncated(data)
            continue
        if code == 0xD9:
            raise ImageError("the JPEG file contains no image; replace the file")
        if code not in _NO_LENGTH:
            if 0xC0 <= code <= 0xCF and code not in _NO_SIZE and not any(size):
                size = unpack_from(">HHB", data, position + 5)
            elif code == 0xE1 and data[position + 4 : position + 8] == b"Exif":
                may_rotate = True
            elif code == 0xDA:
                break
            position += length
        position += 2
    # Without this check, some decoders return an image whose lower part is gray.
    if data[-2:] != _END_OF_JPEG and data.find(_END_OF_JPEG, position) < 0:
        raise _truncated(data)
    height, width, channels = size
    if not (height and width and channels):
        raise ImageError(f"the JPEG file has an image of size {width} x {height}; replace the file")
    return Header("jpeg", height, width, channels, may_rotate)


def _read_png(data: bytes) -> Header:
    name, width, height = unpack_from(">4sII", data, 12)
    if name != b"IHDR" or not (width and height):
        raise ImageError("the PNG file is damaged: it does not start with the size of the image; replace the file")
    if b"IEND" not in data[-12:] and b"IEND" not in data:
        raise _truncated(data)
    return Header("png", height, width, 0, True)


def _read_other(data: bytes) -> Header:
    """Reads the header with Pillow, because OpenCV cannot read the size of an image before it decodes the image."""
    pillow = installed("PIL.Image")
    image: Any = None if pillow is None else open_by_pillow(data)
    if image is None:
        what = f"the data are {len(data):,} bytes that start with {data[:8]!r}" if data else "the data are empty"
        also = "" if pillow else ", or run pip install pillow to decode other formats"
        raise ImageError(f"not an image: {what}; pass the bytes of a JPEG or PNG file{also}")
    return Header("other", image.height, image.width, 0, True)


def open_by_pillow(data: bytes) -> Any:
    """Opens an image with Pillow, which does not decode it yet; returns None if Pillow does not know the format.

    Raises:
        ImageError: the header of the image is damaged, or the image is very large.
    """
    pillow = installed("PIL.Image")
    try:
        return pillow.open(io.BytesIO(data))
    except pillow.UnidentifiedImageError:
        return None
    except pillow.DecompressionBombError as error:
        raise ImageError(f"{error}; if you trust the file, set PIL.Image.MAX_IMAGE_PIXELS to a larger number") from None
    except (Warning, MemoryError):
        raise
    except Exception as error:  # for damaged headers, Pillow raises many types
        raise damaged("image", error) from None


def damaged(kind: str, reason: object) -> ImageError:
    return ImageError(f"the {kind} file is damaged: {reason}; copy the file again, or remove it")


def _truncated(data: bytes) -> ImageError:
    what = f"the image file is truncated: it ends after {len(data):,} bytes, before the end of the image"
    return ImageError(f"{what}; copy the file again, or remove it")
