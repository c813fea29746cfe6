"""Small image files in the formats that Gluon's vision datasets read, written with the standard library."""

import gzip
import struct
import zlib

import numpy as np


def idx_gz(path, array):
    """An array of uint8 in the idx format of MNIST, compressed."""
    with gzip.open(path, "wb") as file:
        file.write(struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.tobytes())


def png(image):
    """An image (height, width, 3) of uint8 as the bytes of a PNG file."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, _ = image.shape
    header = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in image)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def plain(height, width, value):
    """An image of one colour."""
    return np.full((height, width, 3), value, np.uint8)
