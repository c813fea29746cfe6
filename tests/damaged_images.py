"""Image files of each format, and ways to damage them, for tests/vision/test_damaged_images.py."""

import io
import struct
import zlib

import numpy as np
from conftest import load
from pictures import encode, orientation, picture, pillow
from written_images import BLACK_IS_ZERO, PNG_START, WHITE_IS_ZERO, bmp, chunk, lossless_jpeg, tiff

LIES = (0, 1, 2, 7, 0xFF, 0x100, 0x7FFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0xFFFFFFFF)


def animation(kind, **options):
    frames = [pillow.fromarray(picture(seed, 61, 83)) for seed in range(3)]
    file = io.BytesIO()
    frames[0].save(file, kind, save_all=True, append_images=frames[1:], **options)
    return file.getvalue()


def _interlaced():
    """A PNG whose rows come in seven passes; no library at hand writes one, so this is a gray image of 8 x 8 pixels."""
    image = picture(5, 8, 8, 1)[:, :, 0]
    passes = [(0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2), (1, 2, 0, 1)]
    rows = [b"\0" + row.tobytes() for y, dy, x, dx in passes for row in image[y::dy, x::dx]]
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 1)), (b"IDAT", zlib.compress(b"".join(rows)))]
    return PNG_START + b"".join(chunk(*pair) for pair in [*chunks, (b"IEND", b"")])


def _deep():
    cv2 = load("cv2")
    deep = picture(6, 61, 83, 4, np.uint16)
    return encode(picture(6, 61, 83), "PNG") if cv2 is None else cv2.imencode(".png", deep)[1].tobytes()


def files_of(kind):
    """Intact files of a format, none above 10 kB much."""
    image = picture(0, 61, 83)
    if kind == "JPEG":
        return [
            encode(image),
            encode(image, progressive=True),
            encode(picture(1, 120, 160), progressive=True, subsampling=0),
            encode(image[:, :, 0], progressive=True),
            encode(image, mode="CMYK", progressive=True),
            encode(image, exif=orientation(6)),
            encode(image, restart_marker_blocks=2),
            lossless_jpeg(image[:, :, 0]),
        ]
    if kind == "PNG":
        palette = pillow.fromarray(image).quantize(40)
        file = io.BytesIO()
        palette.save(file, "PNG", transparency=3)
        return [
            encode(image[:30], "PNG"),
            encode(image[:30], "PNG", "RGBA", exif=orientation(6)),
            encode(image, "PNG", "1"),
            file.getvalue(),
            _interlaced(),
            _deep(),
            animation("PNG"),
        ]
    if kind == "TIFF":
        ways = [None, "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"]
        deep = picture(6, 40, 83, 1, np.uint16)
        return [
            *(encode(image[:40], kind, compression=way) for way in ways),
            encode(image, kind, exif=orientation(6)),
            tiff(deep >> 4, 12, BLACK_IS_ZERO),
            tiff(deep, 16, WHITE_IS_ZERO, deflate=True),
        ]
    if kind == "WEBP":
        return [
            encode(image, kind),
            encode(image, kind, "RGBA", lossless=True, exif=orientation(6)),
            animation(kind, minimize_size=True),
        ]
    if kind == "GIF":
        return [encode(image, kind), animation(kind, transparency=3)]
    if kind == "BMP":
        small = bmp(image[:40] >> 3, 16, (0x7C00, 0x3E0, 0x1F))
        return [encode(image[:40], kind), encode(image, kind, "P"), encode(image, kind, "1"), small]
    if kind == "PPM":
        plain = b"P3 8 8 255 " + b" ".join(b"%d" % value for value in picture(2, 8, 8).ravel())
        return [encode(image[:40], kind), encode(image[:, :, 0], kind), plain]
    return [encode(image[:40], kind)]


def warned():
    """JPEGs about which libjpeg warns: by the start of the warning, the file, and whether its pixels are complete."""
    data = encode(picture(0, 61, 83))
    tables, scan = data.index(b"\xff\xdb"), data.index(b"\xff\xda") + 14  # the first byte of the pixels
    several = encode(picture(3, 120, 160), progressive=True)
    last = several[several.rindex(b"\xff\xda") : -2]
    restarts = encode(picture(0, 61, 83), restart_marker_blocks=2)
    adobe = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\2"
    icc = b"\xff\xe2\0\x12ICC_PROFILE\0\5\2ab"  # part 5 of 2
    return {
        "Unknown Adobe color transform code 2": (data[:2] + adobe + data[tables:], True),
        "Warning: unknown JFIF revision number 9.01": (data[:11] + b"\x09" + data[12:], True),
        "Corrupt JPEG data: bad ICC marker": (data[:tables] + icc + data[tables:], True),
        "Corrupt JPEG data: 3 extraneous bytes before marker 0xdb": (data[:tables] + b"abc" + data[tables:], True),
        "Invalid SOS parameters for sequential JPEG": (data[: scan - 3] + b"\0\0\0" + data[scan:], True),
        "Corrupt JPEG data: 300 extraneous bytes before marker 0xda": (
            several.replace(last, b"U" * 300 + last),
            False,
        ),
        "Corrupt JPEG data: premature end of data segment": (data[: len(data) // 2] + b"\xff\xd9", False),
        "Corrupt JPEG data: bad Huffman code": (several.replace(last[10:30], b"\xff\0" * 10), False),
        "Corrupt JPEG data: found marker 0xd5 instead of RST1": (restarts.replace(b"\xff\xd1", b"\xff\xd5", 1), False),
        "Inconsistent progression sequence for component": (several[:-2] + last + several[-2:], False),
        "Premature end of JPEG file": (data[:-2] + b"\xff\xfe\0\6\xff\xd9ab", False),
    }


# -- damage ------------------------------------------------------------------------------------------------------------


def flip_bits(rng, data):
    for _ in range(int(rng.integers(1, 9))):
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))


def change_a_byte(rng, data):
    data[int(rng.integers(len(data)))] = int(rng.integers(256))


def overwrite(rng, data):
    """4 kB, or a half of a smaller file."""
    length = min(4096, len(data) // 2)
    at = int(rng.integers(len(data) - length))
    data[at : at + length] = rng.bytes(length)


def truncate(rng, data):
    ending = bytes(data[-12:]) if data[:4] == PNG_START[:4] else bytes(data[-2:])
    del data[int(rng.integers(len(data))) :]
    if rng.random() < 0.7:
        data += ending


def remove(rng, data):
    start, end = sorted(_places(rng, data, 2))
    del data[start:end]


def duplicate(rng, data):
    start, end, to = _places(rng, data, 3)
    part = bytes(data[min(start, end) : max(start, end)])
    data[to:to] = part * int(rng.integers(1, 1 + max(1, min(40, 4000 // max(len(part), 1)))))


def change_a_length(rng, data):
    at = _places(rng, data, 1)[0]
    where = at + 2 if data[:2] == b"\xff\xd8" else at
    _write_number(rng, data, where)


def lie_in_the_header(rng, data):
    for _ in range(int(rng.integers(1, 4))):
        _write_number(rng, data, int(rng.integers(2, min(len(data), 120))))


def hide_a_segment(rng, data):
    """Bytes that one reader may take for a segment, and another reader may skip, in front of another size."""
    if data[:2] != b"\xff\xd8":
        lie_in_the_header(rng, data)
        return
    number = int(rng.choice([0x00, 0x01, 0x02, 0xC8, 0xD0, 0xD8, 0xDC, 0xE3, 0xF0, 0xFE, 0xFF]))
    size = struct.pack(">BHHB", 8, *rng.integers(1, 65536, 2).tolist(), 3)
    frame = b"\xff\xc0\0\x11" + size + b"\1\x11\0\2\x11\0\3\x11\0"
    length = int(rng.choice([0, 1, 2, 3, len(frame) + 2]))
    at = sorted(_places(rng, data, 3))[0]
    data[at:at] = bytes([0xFF, number]) + struct.pack(">H", length) + frame


def claim_a_size(rng, data):
    """Writes another size in place of the size of the image, up to about the limit on pixels."""
    sizes = [struct.pack(order + code, side) for side in (61, 83, 40, 30) for order in "<>" for code in "HI"]
    places = [at for size in sizes for at in [data.find(size)] if at >= 0]
    for _ in range(int(rng.integers(1, 3)) if places else 0):
        at = int(rng.choice(places))
        data[at : at + 2] = struct.pack("<H" if data[at] else ">H", int(rng.integers(1, 1200)))


DAMAGES = (flip_bits, change_a_byte, overwrite, truncate, remove, duplicate, change_a_length, lie_in_the_header)
DAMAGES = (*DAMAGES, hide_a_segment, claim_a_size)


def damaged(rng, data):
    """A damaged copy of a file, and the kind of damage; the checksums of half of the PNG files are right again."""
    damage = DAMAGES[int(rng.integers(len(DAMAGES)))]
    copy = bytearray(data)
    damage(rng, copy)
    repaired = data[:8] == PNG_START and rng.random() < 0.5
    return (with_checksums(copy) if repaired else bytes(copy)), damage.__name__


def _places(rng, data, count):
    """Starts of segments of a JPEG or chunks of a PNG, mixed with other places."""
    if data[:2] == b"\xff\xd8":
        starts = [at for at in range(2, len(data) - 1) if data[at] == 0xFF and data[at + 1] not in (0, 0xFF)]
    elif data[:8] == PNG_START:
        starts = [at for at, _, _ in chunks_of(data)]
    else:
        starts = []
    return [
        int(rng.choice(starts)) if starts and rng.random() < 0.7 else int(rng.integers(len(data))) for _ in range(count)
    ]


def _write_number(rng, data, at):
    number = int(rng.choice(LIES)) if rng.random() < 0.6 else int(rng.integers(2**16))
    size = int(rng.choice([1, 2, 4]))
    data[at : at + size] = (number % 256**size).to_bytes(size, "big" if rng.random() < 0.6 else "little")


# -- chunks of a PNG ---------------------------------------------------------------------------------------------------


def chunks_of(data):
    """(first byte, name, first byte after the contents) of each chunk that is complete."""
    at, found = 8, []
    while at + 12 <= len(data):
        end = at + 8 + int.from_bytes(data[at : at + 4], "big")
        if end + 4 > len(data):
            break
        found.append((at, bytes(data[at + 4 : at + 8]), end))
        at = end + 4
    return found


def with_checksums(data):
    copy = bytearray(data)
    for at, _, end in chunks_of(copy):
        copy[end : end + 4] = struct.pack(">I", zlib.crc32(copy[at + 4 : end]))
    return bytes(copy)
