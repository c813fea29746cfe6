"""Headers of records: the labels and the number of an image, in front of its file, as MXNet packs them."""

from __future__ import annotations

import numbers
import struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import RecordError, bad_argument, import_extra

_HEADER: Final = struct.Struct("<IfQQ")
_LABEL: Final = np.dtype("<f4")


class IRHeader(NamedTuple):
    """The header of a record.

    Args:
        flag: the number of labels if `label` is an array, otherwise 0. `pack` computes it.
        label: a number, or an array of float32, shape (flag,).
        id: a number of the record, from 0 to 2^64 - 1.
        id2: the same; MXNet's tools write 0.
    """

    flag: int
    label: Any
    id: int
    id2: int


def pack(header: Any, data: bytes) -> bytes:
    """Returns a record: the header, the labels if there are several, and the data.

    Args:
        header: an `IRHeader`, or a tuple of its four fields; MXNet's headers work, too. A label that is not a number
            becomes an array of float32.
        data: the bytes of an image file, for example.

    Raises:
        ValueError: the header does not fit in the format.

    >>> unpack(pack(IRHeader(0, [1, 2.5], 7, 0), b"data"))
    (IRHeader(flag=2, label=array([1. , 2.5], dtype=float32), id=7, id2=0), b'data')
    """
    header = IRHeader(*header)
    labels = b""
    if isinstance(header.label, numbers.Number):
        header = header._replace(flag=0)
    else:
        array = np.asarray(header.label, _LABEL)
        header, labels = header._replace(flag=array.size, label=0), array.tobytes()
    try:
        return b"".join([_HEADER.pack(*header), labels, data])
    except (struct.error, OverflowError) as error:
        right = f"label must be a float32, and id and id2 ints from 0 to 2**64 - 1 ({error})"
        raise bad_argument("header", header, right) from error


def unpack(record: Any) -> tuple[IRHeader, Any]:
    """Returns the header and the data of a record that `pack` made.

    Args:
        record: bytes, or a memoryview, from which the data are then a view without a copy.

    Returns:
        The header, whose label is a float, or a read-only array of float32 if there are several labels; and the data.

    Raises:
        RecordError: the record is too short for its header and labels.
    """
    if len(record) < _HEADER.size:
        raise RecordError(f"the record has {len(record)} bytes, and the header alone needs {_HEADER.size}")
    header = IRHeader(*_HEADER.unpack_from(record))
    end = _HEADER.size + header.flag * _LABEL.itemsize
    if len(record) < end:
        what = f"the header counts {header.flag} labels, which need {end} bytes, but the record has {len(record)}"
        raise RecordError(what)
    if header.flag:
        header = header._replace(label=np.frombuffer(record, _LABEL, header.flag, _HEADER.size))
    return header, record[end:]


def pack_img(header: Any, img: NDArray[Any], quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """Encodes an image with OpenCV, and returns it as a record.

    Args:
        header: as for `pack`.
        img: shape (height, width, 3) in the order blue, green, red, as in MXNet and OpenCV, or (height, width) if grey.
        quality: from 1 to 100 for JPEG, the compression from 0 to 9 for PNG.
        img_fmt: ".jpg" or ".png".

    Raises:
        MissingExtraError: OpenCV is not installed.
        ValueError: OpenCV cannot encode the image in this format.
    """
    cv2 = import_extra("cv2", "vision", "OpenCV")
    formats = {".JPG": cv2.IMWRITE_JPEG_QUALITY, ".JPEG": cv2.IMWRITE_JPEG_QUALITY, ".PNG": cv2.IMWRITE_PNG_COMPRESSION}
    option = formats.get(img_fmt.upper())
    try:
        done, data = cv2.imencode(img_fmt, img, None if option is None else [option, quality])
    except cv2.error as error:
        raise ValueError(f"OpenCV cannot encode the image as {img_fmt!r}: {error}") from error
    if not done:
        raise ValueError(f"OpenCV cannot encode the image as {img_fmt!r}; its shape is {np.shape(img)}")
    return pack(header, data.tobytes())


def unpack_img(record: Any, iscolor: int = -1) -> tuple[IRHeader, NDArray[Any]]:
    """Returns the header of a record and its image, decoded by OpenCV.

    Args:
        record: as for `unpack`.
        iscolor: the flag of `cv2.imdecode`: -1 as stored, 0 grey, 1 colour.

    Returns:
        The header, and the image, shape (height, width, channels) in the order blue, green, red, as in MXNet, or
        (height, width) if grey.

    Raises:
        MissingExtraError: OpenCV is not installed.
        RecordError: the record has no header, or OpenCV cannot decode the image.
    """
    header, data = unpack(record)
    image = (
        import_extra("cv2", "vision", "OpenCV").imdecode(np.frombuffer(data, np.uint8), iscolor) if len(data) else None
    )
    if image is None:
        raise RecordError(f"OpenCV cannot decode the {len(data)} bytes of record {header.id} as an image")
    return header, image
