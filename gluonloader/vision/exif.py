"""The EXIF orientation of an image file: reads it, and rotates and mirrors pixels as it requires."""

from __future__ import annotations

from struct import error as StructError  # noqa: N812, the name shows that it is an exception
from struct import pack, unpack_from
from typing import Any, Final

from numpy.typing import NDArray

from ..errors import ImageError

_PREFIX: Final = b"Exif\0\0"  # some PNG and WebP files have it, although only JPEG requires it
_BYTE_ORDERS: Final = {b"II*\0": "<", b"MM\0*": ">"}
_ORIENTATION: Final = 0x0112
_FORMATS: Final = {3: "H", 4: "I"}  # the types of TIFF that an orientation may have


def orientation_of(exif: bytes) -> int:
    """Returns the orientation that EXIF data require, 1 to 8. It is 1 if the data contain no orientation.

    Raises:
        ImageError: the data are damaged, so that the orientation is unknown.
    """
    data = exif.removeprefix(_PREFIX)
    if not data:
        return 1
    order = _BYTE_ORDERS.get(data[:4])
    if order is None:
        raise _damaged(f"they start with {data[:4]!r}")
    try:
        return _find_orientation(data, order)
    except StructError:
        raise _damaged(f"they end after {len(data):,} bytes") from None


def _find_orientation(data: bytes, order: str) -> int:  # see NOTE [loops and try] in interrupts.py
    (start,) = unpack_from(f"{order}I", data, 4)
    (count,) = unpack_from(f"{order}H", data, start)
    for entry in range(start + 2, start + 2 + 12 * count, 12):
        tag, kind, length = unpack_from(f"{order}HHI", data, entry)
        if tag == _ORIENTATION:
            if kind not in _FORMATS or length != 1:
                raise _damaged("the orientation is not a number")
            value: int = unpack_from(order + _FORMATS[kind], data, entry + 8)[0]
            if value > 8:
                raise _damaged(f"the orientation is {value}")
            return value or 1  # cameras write 0 if they do not know the orientation
    return 1


def with_orientation(jpeg: bytes, orientation: int) -> bytes:
    """The JPEG, which has no EXIF data, with this orientation."""
    if orientation == 1:
        return jpeg
    entry = pack(">HHHIHHI", 1, _ORIENTATION, 3, 1, orientation, 0, 0)  # the only one
    data = _PREFIX + b"MM\0*" + pack(">I", 8) + entry
    return jpeg[:2] + b"\xff\xe1" + pack(">H", len(data) + 2) + data + jpeg[2:]


def oriented(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Returns a view of the pixels that is rotated and mirrored as the orientation requires."""
    if orientation >= 5:  # rows and columns are exchanged first
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def _damaged(reason: str) -> ImageError:
    what = f"the EXIF data of the image file are damaged: {reason}, so the orientation is unknown"
    return ImageError(f"{what}; copy the file again, or pass orient=False")
