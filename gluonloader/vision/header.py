"""Reads the header of an image file: its format, size and colour channels, before any memory is allocated.

It finds the segments of a JPEG and the chunks of a PNG in the same way as libjpeg and libpng do. If it did not, a file
could show a small image here, and a large one to the decoder.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from struct import Struct, unpack_from
from struct import error as StructError  # noqa: N812, the name shows that it is an exception
from typing import Any, Final, NamedTuple
from zlib import crc32

from ..decoders import installed
from ..errors import ImageError

MAX_PIXELS: Final = 89_478_485  # the limit above which Pillow warns; such an image needs 256 MB

_SEGMENT: Final = Struct(">HH")  # marker and length of a segment of a JPEG file
_END_OF_JPEG: Final = b"\xff\xd9"
_NO_SIZE: Final = (0xC4, 0xC8, 0xCC)  # the markers from C0 to CF whose segments do not contain the size of the image
_SEQUENTIAL: Final = (0xC0, 0xC1, 0xC9)  # the markers of images that are not progressive
_NO_LENGTH: Final = (0x01, *range(0xD0, 0xD9))  # markers without a segment
_START_OF_SCAN: Final = b"\xff\xda"
_MAX_SCANS: Final = 100  # encoders write about 10; a file of 10 kB with 500 scans takes seconds to decode

_CHUNK: Final = Struct(">I4s")  # length and name of a chunk of a PNG file
_ANIMATION: Final = (b"acTL", b"fcTL", b"fdAT")

# The formats that are given to Pillow. Others are not, because Pillow starts other programs for some of them (gs for
# EPS), and allocates memory for more pixels than the header has for others (ICO).
_FORMATS: Final = {
    "jpeg": ("JPEG",),
    "png": ("PNG",),
    "other": ("AVIF", "BMP", "GIF", "JPEG2000", "PPM", "TIFF", "WEBP"),
}


class Header(NamedTuple):
    """The contents of the header of an image file.

    Attributes:
        kind: "jpeg", "png" or "other".
        channels: the number of colour channels of a JPEG (4 for CMYK); 0 for the other formats.
        exif: where the EXIF data of a JPEG or PNG are: the first byte, and the byte after the last. None if there are
            none, and for the other formats.
        animated: whether the file is a PNG with an animation; see `without_animation`.
    """

    kind: str
    height: int
    width: int
    channels: int
    exif: tuple[int, int] | None = None
    animated: bool = False

    @property
    def may_rotate(self) -> bool:
        """Whether the file may contain an EXIF orientation."""
        return self.exif is not None or self.kind == "other"


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
    position, size, exif, progressive, segment = 2, (0, 0, 0), None, False, _SEGMENT.unpack_from
    while True:
        marker, length = segment(data, position)
        code = marker & 0xFF
        if marker < 0xFF01 or code == 0xFF:  # decoders skip bytes between two segments, also FF 00
            position = data.find(b"\xff", position + 1)
            if position < 0:
                raise _truncated(data)
            continue
        if code == 0xD9:
            raise ImageError("the JPEG file contains no image; replace the file")
        if code not in _NO_LENGTH:
            if length < 2:
                raise damaged("JPEG", f"the segment at byte {position} has the length {length}")
            if 0xC0 <= code <= 0xCF and code not in _NO_SIZE and not any(size):
                size, progressive = unpack_from(">HHB", data, position + 5), code not in _SEQUENTIAL
            elif code == 0xE1 and exif is None and data[position + 4 : position + 8] == b"Exif":
                exif = (position + 10, position + 2 + length)
            elif code == 0xDA:
                break
            position += length
        position += 2
    # Without this check, some decoders return an image whose lower part is gray.
    if data[-2:] != _END_OF_JPEG and data.find(_END_OF_JPEG, position) < 0:
        raise _truncated(data)
    height, width, channels = size
    if progressive or unpack_from("B", data, position + 4)[0] < channels:  # decoders accept several scans
        scans = data.count(_START_OF_SCAN, position)
        if scans > _MAX_SCANS:
            raise damaged("JPEG", f"it has {scans:,} scans, more than {_MAX_SCANS}, so decoding would take too long")
    if not (height and width and channels):
        raise ImageError(f"the JPEG file has an image of size {width} x {height}; replace the file")
    return Header("jpeg", height, width, channels, exif)


def _read_png(data: bytes) -> Header:
    name, width, height = unpack_from(">4sII", data, 12)
    if name != b"IHDR" or not (width and height):
        raise ImageError("the PNG file is damaged: it does not start with the size of the image; replace the file")
    exif, animated = None, False
    for name, start, end in _chunks(data):
        if name == b"IHDR" and start > 8:
            raise damaged("PNG", "it contains the size of the image twice")
        if name == b"eXIf" and exif is None:
            exif = (start + 8, end - 4)
        animated = animated or name in _ANIMATION
    return Header("png", height, width, 0, exif, animated)


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yields the name, the first byte and the byte after the last of each chunk of a PNG file.

    Pillow does not check all checksums, and decoders allocate as many bytes as the length of a chunk says.
    """
    view, start, name = memoryview(data), 8, b""
    while name != b"IEND":
        length, name = _CHUNK.unpack_from(data, start)
        end = start + 12 + length
        if end > len(data):
            claim = f"its chunk {name!r} at byte {start} claims {length:,} bytes"
            raise damaged("PNG", f"{claim}, but the file ends after {len(data):,} bytes")
        if unpack_from(">I", data, end - 4)[0] != crc32(view[start + 4 : end - 4]):
            raise damaged("PNG", f"its chunk {name!r} at byte {start} has a wrong checksum")
        yield name, start, end
        start = end


def without_animation(data: bytes) -> bytes:
    """Returns a PNG file without its animation, so that decoders decode only the image that every viewer can show."""
    return data[:8] + b"".join(data[start:end] for name, start, end in _chunks(data) if name not in _ANIMATION)


def _read_other(data: bytes) -> Header:
    """Reads the header with Pillow, because OpenCV cannot read the size of an image before it decodes the image."""
    pillow = installed("PIL.Image")
    image: Any = None if pillow is None else open_by_pillow(data, "other")
    if image is None:
        what = f"the data are {len(data):,} bytes that start with {data[:8]!r}" if data else "the data are empty"
        formats = ", ".join(_FORMATS["other"])
        also = f", or of one of {formats}" if pillow else ", or run pip install pillow to decode other formats"
        raise ImageError(f"not an image: {what}; pass the bytes of a JPEG or PNG file{also}")
    return Header("other", image.height, image.width, 0)


def open_by_pillow(data: bytes, kind: str) -> Any:
    """Opens an image with Pillow, which does not decode it yet; returns None if it is no image of this kind.

    Raises:
        ImageError: the header of the image is damaged, or the image is very large.
    """
    pillow = installed("PIL.Image")
    if kind == "other":
        pillow.init()  # imports all formats
    else:
        pillow.preinit()
    known = [name for name in _FORMATS[kind] if name in pillow.OPEN]
    try:
        return pillow.open(io.BytesIO(data), formats=known)
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
