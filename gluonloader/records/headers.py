"""Packs and unpacks the headers of records as MXNet does: the labels and the number of an image, before its data."""

from __future__ import annotations

import numbers
import struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..decoders import opencv
from ..errors import RecordError, bad_argument

_HEADER: Final = struct.Struct("<IfQQ")
_LABEL: Final = np.dtype("<f4")


class IRHeader(NamedTuple):
    """The header of a record.

    Args:
        flag: the number of labels if `label` is an array, otherwise 0. `pack` computes it.
        label: a number, or a float32 array of shape (flag,).
        id: number of the record, from 0 to 2^64 - 1.
        id2: second number of the record, from 0 to 2^64 - 1; MXNet's tools write 0.
    """

    flag: int
    label: Any
    id: int
    id2: int


def pack(header: Any, data: bytes) -> bytes:
    """Returns a record: the header, the labels if there are several, and the data.

    Args:
        header: an `IRHeader`, an `IRHeader` of MXNet, or a tuple with the same four fields. If the label is not a
            number, it is converted to a float32 array; it must be a sequence of numbers.
        data: the data of the record as bytes; usually an image file.

    Raises:
        ValueError: a field of the header cannot be stored in the format.

    >>> unpack(pack(IRHeader(0, [1, 2.5], 7, 0), b"data"))
    (IRHeader(flag=2, label=array([1. , 2.5], dtype=float32), id=7, id2=0), b'data')
    """
    try:
        header = IRHeader(*header)
    except TypeError:
        raise bad_argument("header", header, "must be an IRHeader, or a tuple (flag, label, id, id2)") from None
    labels = b""
    if isinstance(header.label, numbers.Number):
        header = header._replace(flag=0)
    else:
        array = as_float32(header.label)
        if array is None:
            expected = "label must be a number or a sequence of numbers, each of which float32 can store"
            raise bad_argument("header", header, expected)
        header, labels = header._replace(flag=array.size, label=0), array.tobytes()
    try:
        return b"".join([_HEADER.pack(*header), labels, data])
    except (struct.error, OverflowError) as error:
        right = f"label must be a float32, and id and id2 must be ints from 0 to 2**64 - 1 ({error})"
        raise bad_argument("header", header, right) from error


def as_float32(values: Any) -> NDArray[np.float32] | None:
    """Returns numbers as a float32 array; None if the values are no numbers, or too large for float32."""
    try:
        with np.errstate(over="ignore"):
            narrow, wide = np.asarray(values, _LABEL), np.asarray(values, np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    found = np.asarray(values)  # NumPy also converts texts and None
    if found.dtype.kind not in "biuf" and not all(isinstance(value, numbers.Real) for value in found.flat):
        return None
    return None if (np.isinf(narrow) & np.isfinite(wide)).any() else narrow


def unpack(record: Any) -> tuple[IRHeader, Any]:
    """Splits a record that `pack` has made into its header and its data.

    Args:
        record: bytes or a memoryview. If it is a memoryview, the returned data are a view of it, without a copy.

    Returns:
        The header and the data. The label of the header is a float, or, if there are several labels, a read-only
        float32 array.

    Raises:
        RecordError: the record is too short for its header and labels.
    """
    if len(record) < _HEADER.size:
        raise RecordError(f"the record has {len(record)} bytes, but the header alone needs {_HEADER.size} bytes")
    header = IRHeader(*_HEADER.unpack_from(record))
    end = _HEADER.size + header.flag * _LABEL.itemsize
    if len(record) < end:
        needed = f"the header counts {header.flag} labels; with them the record needs {end} bytes"
        raise RecordError(f"{needed}, but it has {len(record)} bytes")
    if header.flag:
        header = header._replace(label=np.frombuffer(record, _LABEL, header.flag, _HEADER.size))
    return header, record[end:]


def pack_img(header: Any, img: NDArray[Any], quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """Encodes an image with OpenCV, and returns a record that contains the encoded image.

    Args:
        header: the header of the record, as for `pack`.
        img: array of shape (height, width, 3) with the channels blue, green and red, as in MXNet and OpenCV; or a gray
            image of shape (height, width).
        quality: for JPEG, the quality from 1 to 100; for PNG, the compression level from 0 to 9.
        img_fmt: format of the encoded image, ".jpg" or ".png".

    Raises:
        MissingExtraError: OpenCV is not installed.
        ValueError: JPEG or PNG cannot store values of this dtype, or OpenCV cannot encode the image in this format.
    """
    return pack(header, encoded(img, quality, img_fmt))


def encoded(img: NDArray[Any], quality: int, img_fmt: str = ".jpg") -> bytes:
    """An image that OpenCV has encoded; see `pack_img`."""
    cv2, suffix = opencv(), img_fmt.upper()
    kinds = {".JPG": "uint8", ".JPEG": "uint8", ".PNG": "uint8 uint16"}.get(suffix, "").split()
    if kinds and isinstance(img, np.ndarray) and img.dtype.name not in kinds:  # OpenCV would clip the values to uint8
        right = f"{img_fmt!r} stores {' or '.join(kinds)}; convert the image, e.g. by (image * 255).astype('uint8')"
        raise ValueError(f"img: it has dtype {img.dtype}, but {right}")
    formats = {".JPG": cv2.IMWRITE_JPEG_QUALITY, ".JPEG": cv2.IMWRITE_JPEG_QUALITY, ".PNG": cv2.IMWRITE_PNG_COMPRESSION}
    option = formats.get(suffix)
    try:
        done, data = cv2.imencode(img_fmt, img, None if option is None else [option, quality])
    except cv2.error as error:
        raise ValueError(f"OpenCV cannot encode the image as {img_fmt!r}: {error}") from error
    if not done:
        raise ValueError(f"OpenCV cannot encode the image as {img_fmt!r}; the image has shape {np.shape(img)}")
    encoded_image: bytes = data.tobytes()
    return encoded_image


def unpack_img(record: Any, iscolor: int = -1) -> tuple[IRHeader, NDArray[Any]]:
    """Returns the header of a record, and the image in the record, which it decodes with OpenCV.

    Args:
        record: the record, as for `unpack`.
        iscolor: the flag of `cv2.imdecode`: 0 converts to gray, 1 converts to colour, -1 keeps the channels of the
            stored image. As in MXNet, the gray levels of a PNG depend on the gamma in the file; those of
            `vision.decode` do not.

    Returns:
        The header and the image. The image has shape (height, width, channels) with the channels blue, green and red,
        as in MXNet. A gray image has shape (height, width).

    Raises:
        MissingExtraError: OpenCV is not installed.
        RecordError: the record has no header, or OpenCV cannot decode the image.
    """
    header, data = unpack(record)
    image = opencv().imdecode(np.frombuffer(data, np.uint8), iscolor) if len(data) else None
    if image is None:
        raise RecordError(f"OpenCV cannot decode the {len(data)} bytes of record {header.id} as an image")
    return header, image
