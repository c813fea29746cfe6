"""Writes image files of kinds that no library at hand writes, for example with 12 bits per channel."""

import struct
import zlib

import numpy as np

PNG_START = b"\x89PNG\r\n\x1a\n"
WHITE_IS_ZERO, BLACK_IS_ZERO, RGB, PALETTE, CMYK = 0, 1, 2, 3, 5  # the photometric interpretations of TIFF


def packed(values, bits, order=">"):
    """Rows of values as bytes, each value with so many bits; a row starts at a new byte."""
    if bits in (8, 16, 32):
        return values.astype(f"{order}u{bits // 8}").tobytes()
    each = (values[:, :, None] >> np.arange(bits - 1, -1, -1)) & 1
    return np.packbits(each.astype(np.uint8).reshape(len(values), -1), axis=1).tobytes()


def chunk(name, contents):
    """A chunk of a PNG."""
    return struct.pack(">I", len(contents)) + name + contents + struct.pack(">I", zlib.crc32(name + contents))


def png(pixels, bits, palette=None, chunks=()):
    """A PNG of values of shape (H, W, C); `chunks` are pairs (name, contents), which come before the pixels."""
    height, width, channels = pixels.shape
    kind = {1: 0, 2: 4, 3: 2, 4: 6}[channels] if palette is None else 3
    rows = packed(pixels.reshape(height, -1), bits)
    size = len(rows) // height
    filtered = b"".join(b"\0" + rows[at : at + size] for at in range(0, len(rows), size))
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)), *chunks]
    parts += [] if palette is None else [(b"PLTE", palette.astype(np.uint8).tobytes())]
    return PNG_START + b"".join(chunk(*part) for part in [*parts, (b"IDAT", zlib.compress(filtered)), (b"IEND", b"")])


def tiff(pixels, bits, photometric, order="<", deflate=False, planar=False, extra=None, sign=False, palette=None):
    """A TIFF of values of shape (H, W, C).

    If the last channel is alpha, `extra` is 1 if the colours are multiplied by it, otherwise 2.
    """
    height, width, channels = pixels.shape
    planes = np.moveaxis(pixels, 2, 0) if planar else [pixels.reshape(height, -1)]
    strips = [packed(plane, bits, order) for plane in planes]
    strips = [zlib.compress(strip) for strip in strips] if deflate else strips
    tags = {
        256: [width], 257: [height], 258: [bits] * channels, 259: [8 if deflate else 1], 262: [photometric],
        273: [0] * len(strips), 277: [channels], 278: [height], 279: [len(strip) for strip in strips],
        284: [2 if planar else 1],
    }  # fmt: skip
    if palette is not None:
        tags[320] = (palette.T.ravel() * 257).tolist()
    if extra is not None:
        tags[338] = [extra]
    if sign:
        tags[339] = [2] * channels
    values = {tag: struct.pack(f"{order}{len(numbers)}I", *numbers) for tag, numbers in sorted(tags.items())}
    start = 8 + 2 + 12 * len(tags) + 4  # of the values that need more than 4 bytes
    pixels_at = start + sum(len(value) for value in values.values() if len(value) > 4)
    offsets = np.cumsum([pixels_at, *map(len, strips)])[:-1]
    values[273] = offsets.astype(f"{order}u4").tobytes()
    entries, long = b"", b""
    for tag, value in values.items():
        place = value if len(value) == 4 else struct.pack(f"{order}I", start + len(long))
        entries += struct.pack(f"{order}HHI", tag, 4, len(value) // 4) + place
        long += value if len(value) > 4 else b""
    header = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}IH", 8, len(tags))
    return header + entries + bytes(4) + long + b"".join(strips)


def bmp(pixels, bits, masks):
    """A BMP of RGB values of shape (H, W, 3); `masks` are the bits of red, green and blue in the bits of a pixel."""
    height, width, _ = pixels.shape
    shifts = [(mask & -mask).bit_length() - 1 for mask in masks]
    words = sum(pixels[:, :, i] << shifts[i] for i in range(3))
    rows = words[::-1].astype("<u4").view(np.uint8).reshape(height, width, 4)[:, :, : bits // 8].reshape(height, -1)
    rows = np.pad(rows, ((0, 0), (0, -rows.shape[1] % 4)))
    fields = b"" if bits == 24 else struct.pack("<III", *masks)
    start = 14 + 40 + len(fields)
    size = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, 3 if fields else 0, rows.size, 2835, 2835, 0, 0)
    return b"BM" + struct.pack("<IHHI", start + rows.size, 0, 0, start) + size + fields + rows.tobytes()


def lossless_jpeg(pixels):
    """A lossless JPEG of gray values of shape (H, W) and dtype uint8: each value is predicted by its left neighbour."""
    values = pixels.astype(int)
    before = np.concatenate([[128], values[:-1, 0]])
    differences = np.diff(values, axis=1, prepend=before[:, None])
    bits = ""
    for difference in differences.ravel().tolist():
        size = abs(difference).bit_length()  # of the number that follows; its code has 4 bits
        bits += f"{size:04b}"
        bits += f"{difference if difference > 0 else difference + 2**size - 1:0{size}b}" if size else ""
    bits += "1" * (-len(bits) % 8)
    scan = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
    table = b"\0" + bytes([0, 0, 0, 9, *bytes(12)]) + bytes(range(9))
    height, width = pixels.shape
    segments = [
        (0xC3, struct.pack(">BHHB", 8, height, width, 1) + b"\1\x11\0"), (0xC4, table), (0xDA, b"\1\1\0\1\0\0"),
    ]  # fmt: skip
    head = b"".join(struct.pack(">BBH", 0xFF, code, 2 + len(contents)) + contents for code, contents in segments)
    return b"\xff\xd8" + head + scan + b"\xff\xd9"
