"""Reads the header of an image file: its format, size and colour channels, before any memory is allocated.

It finds the segments of a JPEG and the chunks of a PNG in the same way as libjpeg and libpng do. If it did not, a file
could show a small image here, and a large one to the decoder.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from struct import Struct, unpack_from
from struct import error as StructError  # noqa: N812, the name shows that it is an exception
from typing import Any, Final, NamedTuple
from zlib import crc32

from ..decoders import installed
from ..errors import ImageError

MAX_PIXELS: Final = 89_478_485  # the limit above which Pillow warns; such an image needs 256 MB

# A segment of a JPEG file starts with a marker: FF and a code, which is neither 00 nor FF. After the codes C0 to CF and
# those above D9 follows the length of the segment. Other markers stand alone, or do not exist in images: then decoders
# stop there, or skip only the marker.
_MARKER: Final = re.compile(rb"\xff[^\x00\xff]")
_SEGMENT: Final = Struct(">HH")  # a marker and a length
_END_OF_IMAGE, _START_OF_SCAN, _EXIF = 0xD9, 0xDA, 0xE1  # codes
_NO_SIZE: Final = (0xC4, 0xC8, 0xCC)  # the codes from C0 to CF whose segments do not contain the size of the image
_SEQUENTIAL: Final = (0xC0, 0xC1, 0xC9)  # the codes of images that are neither progressive nor lossless
_LOSSLESS: Final = (0xC3, 0xCB)
_METADATA: Final = (*range(0xE0, 0xF0), 0xFE)  # the codes of segments that are not needed to decompress the pixels
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
        scalable: whether decoders can decode the image at 1/2, 1/4 or 1/8 of its size: a JPEG that is not lossless. For
            a lossless JPEG, simplejpeg would write behind the end of the memory for the smaller image.
    """

    kind: str
    height: int
    width: int
    channels: int
    exif: tuple[int, int] | None = None
    animated: bool = False
    scalable: bool = False

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
    size, exif, coding, start, end = [0, 0, 0], None, 0, 0, 0
    for code, start, end in _segments(data):
        if 0xC0 <= code <= 0xCF and code not in _NO_SIZE and not any(size):
            bits, *size = unpack_from(">BHHB", data, start + 4)
            coding = code
            if bits > 8:
                raise ImageError(f"the JPEG file has {bits} bits in each channel; convert it to 8 bits")
        elif code == _EXIF and exif is None and data[start + 4 : start + 8] == b"Exif":
            exif = (start + 10, end)
        elif code == _START_OF_SCAN:
            break
        elif code == _END_OF_IMAGE:
            raise ImageError("the JPEG file contains no image; replace the file")
    # Without this check, some decoders return an image whose lower part is gray.
    if data[-2:] != b"\xff\xd9" and data.find(b"\xff\xd9", end) < 0:
        raise _truncated(data)
    height, width, channels = size
    if coding not in _SEQUENTIAL or unpack_from("B", data, start + 4)[0] < channels:  # decoders accept several scans
        _check_scans(data, start)
    if not (height and width and channels):
        raise ImageError(f"the JPEG file has an image of size {width} x {height}; replace the file")
    return Header("jpeg", height, width, channels, exif, scalable=coding not in _LOSSLESS)


def _segments(data: bytes, position: int = 2) -> Iterator[tuple[int, int, int]]:
    """Yields the code, the first byte and the byte after the last of each segment of a JPEG, to the end of the image.

    Bytes between two segments are skipped, as decoders do; the pixels of a scan are such bytes.
    """
    unpack, last = _SEGMENT.unpack_from, len(data) - _SEGMENT.size
    while True:
        # The end of the image has no length, and often no bytes behind it.
        marker, length = unpack(data, position) if position <= last else (int.from_bytes(data[position:][:2], "big"), 2)
        if not 0xFF00 < marker < 0xFFFF:
            found = _MARKER.search(data, position)
            if found is None:
                raise _truncated(data)
            position = found.start()
            continue
        code, start, position = marker & 0xFF, position, position + 2
        if 0xC0 <= code <= 0xCF or code > _END_OF_IMAGE:
            if length < 2:
                raise damaged("JPEG", f"the segment at byte {start} has the length {length}")
            position += length
        yield code, start, position
        if code == _END_OF_IMAGE:
            return


def _check_scans(data: bytes, start: int) -> None:
    """Raises ImageError if a JPEG has so many scans that decoding takes very long; the first is at byte `start`."""
    scans = data.count(b"\xff\xda", start)
    if scans > _MAX_SCANS:  # the bytes may also be behind the image, for example in the film of a motion photo
        scans = sum(code == _START_OF_SCAN for code, _, _ in _segments(data, start))
    if scans > _MAX_SCANS:
        raise damaged("JPEG", f"it has {scans:,} scans, more than {_MAX_SCANS}, so decoding would take too long")


def without_metadata(data: bytes) -> bytes:
    """Returns a JPEG without the parts about which libjpeg may warn although all pixels are intact.

    These are metadata, bytes between two segments in front of the first scan, and, if the image is not progressive, the
    last three bytes of the header of a scan, in which some encoders write zeros. The colours may differ without the
    metadata.
    """
    parts, last, sequential, in_front = [data[:2]], 2, False, True
    for code, start, end in _segments(data):
        if not in_front:
            parts.append(data[last:start])
        sequential = sequential or code in _SEQUENTIAL
        if code == _START_OF_SCAN and sequential:
            parts.append(data[start : end - 3] + b"\x00\x3f\x00")
        elif code not in _METADATA:
            parts.append(data[start:end])
        in_front, last = in_front and code != _START_OF_SCAN, end
    return b"".join(parts)


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
    try:
        image: Any = None if pillow is None else open_by_pillow(data, "other")
    except (ImageError, Warning, MemoryError):
        raise
    except Exception as error:  # for damaged headers, Pillow raises many types
        raise undecodable(_format_of(data, "other"), error) from None
    if image is None:
        what = f"the data are {len(data):,} bytes that start with {data[:8]!r}" if data else "the data are empty"
        formats = ", ".join(_FORMATS["other"])
        also = f", or of one of {formats}" if pillow else ", or run pip install pillow to decode other formats"
        raise ImageError(f"not an image: {what}; pass the bytes of a JPEG or PNG file{also}")
    return Header("other", image.height, image.width, 0)


def open_by_pillow(data: bytes, kind: str) -> Any:
    """Opens an image with Pillow, which does not decode it yet; returns None if it is no image of this kind.

    Raises:
        ImageError: the image is very large.
        Exception: Pillow cannot read the header of the image.
    """
    pillow = installed("PIL.Image")
    if kind == "other":
        pillow.init()  # imports all formats
    else:
        pillow.preinit()
    name = _format_of(data, kind)
    try:
        return None if name is None else pillow.open(io.BytesIO(data), formats=[name])
    except pillow.UnidentifiedImageError:  # whose text names only an object in memory
        raise ValueError("Pillow does not know this kind of image, or the header is damaged") from None
    except pillow.DecompressionBombError as error:
        raise ImageError(f"{error}; if you trust the file, set PIL.Image.MAX_IMAGE_PIXELS to a larger number") from None


def _format_of(data: bytes, kind: str) -> str | None:
    """Returns Pillow's name of the format whose files start like the data; None if it is no format of this kind."""
    known = installed("PIL.Image").OPEN
    start = data[:16].ljust(16, b"\0")  # Pillow's functions may fail for fewer bytes
    return next((name for name in _FORMATS[kind] if name in known and known[name][1](start)), None)


def damaged(kind: str, reason: object) -> ImageError:
    return ImageError(f"the {kind} file is damaged: {reason}; copy the file again, or remove it")


def undecodable(kind: str | None, reason: object) -> ImageError:
    """The error about a file that is damaged, or intact but of a kind that the decoders do not know."""
    cure = "copy the file again if it is damaged, otherwise convert it to a PNG with 8 or 16 bits in each channel"
    return ImageError(f"the {kind} file cannot be decoded: {reason}; {cure}")


def _truncated(data: bytes) -> ImageError:
    what = f"the image file is truncated: it ends after {len(data):,} bytes, before the end of the image"
    return ImageError(f"{what}; copy the file again, or remove it")
