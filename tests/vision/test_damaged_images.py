"""Damaged image files: an `ImageError`, or pixels that depend only on the file; never more memory than is stated.

GLUONLOADER_IMAGES=50000 tries more of them (`nox -s soak`), and prints what became of them.
"""

import ctypes
import functools
import io
import os
import struct
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conftest import load
from damaged_images import animation, chunks_of, damaged, files_of, warned, with_checksums
from pictures import DECODERS, encode, orientation, picture, pillow, use_decoder

from gluonloader.vision import ImageDataset, ImageError, ImageFolderDataset, ImagePipeline, decode

IMAGES = int(os.environ.get("GLUONLOADER_IMAGES", "1000"))
cv2 = load("cv2")
pytestmark = pytest.mark.skipif(pillow is None, reason="needs Pillow to write the files")

OTHER = ("AVIF", "BMP", "GIF", "JPEG2000", "PPM", "TIFF", "WEBP")
CASES = [("simplejpeg", "JPEG"), ("opencv", "JPEG"), ("opencv", "PNG"), ("pillow", "JPEG"), ("pillow", "PNG")]
CASES += [("pillow", kind) for kind in OTHER]

MAX_PIXELS = 10**6
STATED = 24 * MAX_PIXELS  # docs/images.md: bytes that a decoder needs
PATTERNS = (10, 240)


@functools.cache
def intact_files(kind):
    if not supported(kind):
        pytest.skip(f"Pillow does not write {kind}")
    return files_of(kind)


def supported(kind):
    pillow.init()
    return kind in pillow.SAVE


def fill_free_memory(pattern):
    """Frees memory that contains a pattern: the next arrays, also those of decoders, are made of it."""
    for size in (61 * 83, 120 * 160):
        arrays = [np.full(size * channels, pattern, np.uint8) for channels in (1, 3, 3, 4, 4)]
        del arrays


def by_decode(rng):
    """Returns a function from the bytes of a file and a pattern to the pixels."""
    options = {"color": ["rgb", "gray"][int(rng.integers(2))], "orient": bool(rng.integers(2))}
    if rng.random() < 0.3:
        options["min_size"] = int(rng.integers(1, 60))

    def read(data, pattern, path):
        fill_free_memory(pattern)
        return decode(data, max_pixels=MAX_PIXELS, **options)

    return read


def by_folder(rng):
    options = {"flag": int(rng.integers(2)), "orient": bool(rng.integers(2))}

    def read(data, pattern, path):
        (path / "class").mkdir(exist_ok=True)
        (path / "class" / "image.jpg").write_bytes(data)
        dataset = ImageFolderDataset(path, max_pixels=MAX_PIXELS, **options)
        fill_free_memory(pattern)
        return dataset[0][0]

    return read


def by_pipeline(rng):
    """The images of a batch are decoded into the same memory: the first one has only the colour of the pattern."""
    options = {"flag": int(rng.integers(2)), "orient": bool(rng.integers(2)), "max_pixels": MAX_PIXELS}
    scaled, resize = bool(rng.integers(2)), [None, 40][int(rng.integers(2))]

    def read(data, pattern, path):
        files = [(flat(pattern), 0), (data, 1)]
        dataset = ImageDataset(files, **options)
        pipeline = ImagePipeline(dataset, 32, resize=resize, scaled_decode=scaled, dtype="uint8", layout="HWC")
        fill_free_memory(pattern)
        return pipeline.__getitems__([0, 1]).columns[0][1]

    return read


@functools.cache
def flat(pattern):
    return encode(np.full((130, 170, 3), pattern, np.uint8), "PPM")


# How the text of an error starts.
NAMES = {by_decode: "", by_folder: "{path}/class/image.jpg: ", by_pipeline: "sample 1: "}


def result_of(read, data, pattern, path):
    """The pixels or the text of the error, the seconds, and the bytes of memory that were needed."""
    before = free_memory()
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow, about damaged data
            result = read(data, pattern, path)
    except ImageError as error:
        result = str(error)
    return result, time.perf_counter() - start, peak_memory() - before


def free_memory():
    """Gives free memory back to the system, and returns the memory of this process; the peak is counted from here."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def peak_memory():
    return status("VmHWM")


def status(name):
    """A value of /proc/self/status in bytes."""
    text = Path("/proc/self/status").read_text()
    return int(text[text.index(name) :].split(maxsplit=2)[1]) * 1024


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("decoder", "kind"), CASES)
def test_a_damaged_file_is_an_error_or_the_same_pixels_every_time(decoder, kind, monkeypatch, tmp_path, capfd):
    files = intact_files(kind)  # before decoders are hidden, because OpenCV writes one of them
    if kind in ("JPEG", "PNG"):
        use_decoder(monkeypatch, decoder)
    hidden = cv2 is None or (kind in ("JPEG", "PNG") and decoder == "pillow")
    ways = [by_decode, by_folder] if hidden else [by_decode, by_folder, by_pipeline]  # the pipeline needs OpenCV
    rng = np.random.default_rng([CASES.index((decoder, kind)), 28])
    outcomes, slowest, largest = Counter(), 0.0, 0
    for number in range(IMAGES // len(CASES)):
        file = files[int(rng.integers(len(files)))]
        data, damage = damaged(rng, file)
        way = ways[int(rng.integers(len(ways)))]
        read = way(rng)
        if decoder == "pillow":  # a global setting of users: Pillow returns the intact part of an image
            monkeypatch.setattr("PIL.ImageFile.LOAD_TRUNCATED_IMAGES", bool(rng.random() < 0.3))
        results = []
        for pattern in PATTERNS:
            result, seconds, memory = result_of(read, data, pattern, tmp_path)
            results.append(result)
            slowest, largest = max(slowest, seconds), max(largest, memory)
            assert memory <= 3 * STATED, (number, damage, len(data), memory)
        first, second = results
        assert type(first) is type(second), (number, damage, way.__name__, first, second)
        if isinstance(first, str):
            outcomes["error"] += 1
            assert first.startswith(NAMES[way].format(path=tmp_path))
            continue
        assert np.array_equal(first, second), (number, damage, way.__name__)
        intact = read(file, 0, tmp_path)
        outcomes["intact" if np.array_equal(first, intact) else "changed"] += 1
    limit = 2 if IMAGES > 1000 else 20  # on a busy machine
    assert slowest < limit
    if IMAGES > 1000:
        with capfd.disabled():
            counts = ", ".join(f"{count:,} {name}" for name, count in sorted(outcomes.items()))
            print(f"\n{decoder}, {kind}: {counts}; slowest {slowest:.2f} s, most memory {largest / 2**20:.0f} MiB")


# -- single kinds of damage --------------------------------------------------------------------------------------------


@pytest.fixture(params=DECODERS)
def decoder(request, monkeypatch):
    use_decoder(monkeypatch, request.param)
    return request.param


def progressive(before_the_last_scan=b"", in_the_header=b""):
    """A progressive JPEG, with bytes inserted in front of its last scan and in front of its size."""
    data = encode(picture(3, 120, 160), progressive=True)
    last = data.rindex(b"\xff\xda")
    data = data[:last] + before_the_last_scan + data[last:]
    size = data.index(b"\xff\xc2")
    return data[:size] + in_the_header + data[size:]


FATAL = b"\0\0\0\xff\2\0\2"  # bytes that are skipped with a warning, and a marker that does not exist


@pytest.mark.parametrize("in_the_header", [b"", b"\0\0\0"])
def test_a_fatal_error_of_a_jpeg_after_a_warning_is_an_error(decoder, in_the_header):
    """simplejpeg returned it as a warning, and the pixels that the memory had before."""
    data = progressive(FATAL, in_the_header)
    for pattern in PATTERNS:
        with pytest.raises(ImageError, match=r"^the JPEG file is damaged: .*; copy the file again, or remove it"):
            decode(data, np.full((120, 160, 3), pattern, np.uint8))


@pytest.mark.parametrize("color", ["rgb", "gray"])
@pytest.mark.parametrize("min_size", [None, 30])
def test_a_jpeg_with_mere_warnings_has_the_pixels_that_every_decoder_makes_of_it(decoder, color, min_size):
    intact = decode(progressive(), None, min_size, color)
    for data in (progressive(b"\0\0\0"), progressive(b"", b"\0\0\0"), progressive(b"\0\0\0", b"\0\0\0")):
        assert np.array_equal(decode(data, None, min_size, color), intact)
        out = np.full_like(intact, 10)
        assert decode(data, out, min_size, color) is out
        assert np.array_equal(out, intact)


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_after_any_warning_the_pixels_are_those_that_every_decoder_makes_of_the_file(decoder, color):
    """Zeros in the header of a scan were an error of simplejpeg; some encoders write them."""
    for warning, (data, complete) in warned().items():
        opened = pillow.open(io.BytesIO(data))
        opened.draft("RGB" if color == "rgb" else "L", None)
        pixels = decode(data, color=color)
        assert np.array_equal(pixels, np.asarray(opened).reshape(pixels.shape)), warning
        if complete and "Adobe" not in warning:
            assert np.array_equal(pixels, decode(encode(picture(0, 61, 83)), color=color)), warning


def test_damage_behind_the_last_pixel_changes_no_pixel(monkeypatch):
    """simplejpeg returned an error, and OpenCV the pixels."""
    intact = encode(picture(0, 61, 83))
    for warning in (b"", b"abc"):
        data = intact[:-2] + warning + intact[intact.index(b"\xff\xc0") :]  # the size of the image again
        for name in ("simplejpeg", "opencv"):
            with monkeypatch.context() as patch:
                if load(DECODERS[name]) is not None:
                    use_decoder(patch, name)
                    assert np.array_equal(decode(data), decode(intact))


@pytest.mark.skipif(cv2 is None, reason="needs OpenCV")
def test_the_error_names_the_file(tmp_path):
    (tmp_path / "class").mkdir()
    path = tmp_path / "class" / "a.jpg"
    path.write_bytes(progressive(FATAL))
    folder = ImageFolderDataset(tmp_path)
    for dataset in (folder, ImagePipeline(folder, 32)):
        with pytest.raises(ImageError, match=rf"^{path}: the JPEG file is damaged: "):
            dataset[0]


def frame(height, width):
    """The segment of a JPEG that has the size of a gray image."""
    return b"\xff\xc0\0\x0b\x08" + struct.pack(">HHB", height, width, 1) + b"\1\x11\0"


@pytest.mark.parametrize("skipped", [b"\xff\0\0\x0f", b"\xff\xff\0\0\x0f", b"\xff\0\xff\0\0\x0f"])
def test_a_size_that_only_another_reader_would_see_does_not_hide_a_large_image(decoder, skipped):
    """FF 00 is not a segment: decoders skip it, and its length is that of no segment."""
    data = encode(picture(0, 16, 16)[:, :, 0])
    start, end = data.index(b"\xff\xc0"), data.index(b"\xff\xc0") + 13
    bomb = data[:start] + skipped + frame(30_000, 30_000) + data[end:]
    with pytest.raises(ImageError, match=r"30000 x 30000 = 900,000,000 pixels, more than max_pixels=10,000"):
        decode(bomb, max_pixels=10_000)


def test_a_progressive_jpeg_with_very_many_scans_is_refused(decoder):
    scans = progressive().count(b"\xff\xda")
    data = progressive()
    last = data[data.rindex(b"\xff\xda") : -2]
    enough = data[:-2] + last * (100 - scans) + b"\xff\xd9"
    assert decode(enough).shape == (120, 160, 3)
    with pytest.raises(ImageError, match="it has 101 scans, more than 100, so decoding would take too long"):
        decode(data[:-2] + last * (101 - scans) + b"\xff\xd9")


def test_the_film_of_a_motion_photo_has_no_scans(decoder):
    data = progressive()
    assert np.array_equal(decode(data + b"\xff\xda" * 141), decode(data))


def test_an_end_inside_a_comment_hides_no_scans(decoder):
    data = progressive()
    last = data[data.rindex(b"\xff\xda") : -2]
    comment = b"\xff\xfe\0\x06\xff\xd9ab"
    with pytest.raises(ImageError, match=r"it has \d+ scans, more than 100, so decoding would take too long"):
        decode(data[:-2] + comment + last * 100 + b"\xff\xd9")


@pytest.mark.parametrize("name", [b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"eXIf", b"IEND"])
@pytest.mark.parametrize("length", [0x3FFFFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 100_000])
def test_a_chunk_of_a_png_that_claims_more_bytes_than_the_file_has_is_an_error(decoder, name, length):
    """OpenCV would allocate what the chunk claims."""
    file = io.BytesIO()
    pillow.fromarray(picture(0, 40, 40)).quantize(40).save(file, "PNG", transparency=3, exif=orientation(6))
    data = bytearray(file.getvalue())
    at = next(start for start, found, _ in chunks_of(data) if found == name)
    data[at : at + 4] = struct.pack(">I", length)
    with pytest.raises(ImageError, match=rf"its chunk b'{name.decode()}' at byte {at} claims {length:,} bytes, but"):
        decode(data)


@pytest.mark.parametrize("orient", [False, True])
def test_a_flipped_bit_of_an_animated_png_is_an_error(decoder, orient, capfd):
    data = animation("PNG", exif=orientation(6))
    rng = np.random.default_rng(0)
    for start, name, end in chunks_of(data):
        for bit in {4 * 8, 7 * 8, *rng.integers(4 * 8, 8 * (end + 4 - start), 9).tolist()}:
            damaged_file = bytearray(data)
            damaged_file[start + bit // 8] ^= 1 << bit % 8
            with pytest.raises(ImageError, match=r"has a wrong checksum|does not start with|is damaged"):
                decode(damaged_file, orient=orient)


def test_the_image_of_an_animated_png_does_not_depend_on_its_frames(decoder):
    """OpenCV composed it with memory if a frame lied about its size, although all checksums were right."""
    data = animation("PNG")
    intact = decode(data)
    assert np.array_equal(intact, picture(0, 61, 83))
    for size in (0, 1, 30, 82, 84, 2**31 - 1, 2**32 - 1):
        lying = bytearray(data)
        for start, name, _ in chunks_of(data):
            if name == b"fcTL":
                lying[start + 12 : start + 16] = struct.pack(">I", size)
        for pattern in PATTERNS:
            fill_free_memory(pattern)
            assert np.array_equal(decode(with_checksums(lying)), intact)


# -- EXIF --------------------------------------------------------------------------------------------------------------

DAMAGED_EXIF = {
    "byte order": (0, b"X", "they start with"),
    "version": (2, b"\0\0", "they start with"),
    "start of the entries": (4, b"\xff\xff\xff\xff", "they end after"),
    "type": (8 + 2 + 2, b"\7\7", "the orientation is not a number"),
    "count": (8 + 2 + 4, b"\7\7\7\7", "the orientation is not a number"),
    "value": (8 + 2 + 8, b"\x26\x26", "the orientation is 9766"),
}


def with_exif(kind, offset=0, new=b""):
    """An image file with the orientation 6, in whose EXIF data some bytes are changed."""
    data = bytearray(encode(picture(0, 61, 83), kind, exif=orientation(6)))
    tiff = data.index(b"MM\0*" if b"MM\0*" in data else b"II*\0")
    data[tiff + offset : tiff + offset + len(new)] = new
    return with_checksums(data) if kind == "PNG" else bytes(data)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of Pillow
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize("field", DAMAGED_EXIF)
def test_damaged_exif_data_are_an_error_if_the_image_has_to_be_rotated(decoder, kind, field):
    offset, new, reason = DAMAGED_EXIF[field]
    assert decode(with_exif(kind), orient=True).shape == (83, 61, 3)
    data = with_exif(kind, offset, new)
    assert np.array_equal(decode(data), decode(with_exif(kind)))
    cure = "so the orientation is unknown; copy the file again, or pass orient=False"
    with pytest.raises(ImageError, match=rf"^the EXIF data of the image file are damaged: {reason}.*, {cure}"):
        decode(data, orient=True)


@pytest.mark.parametrize("exif", [b"", b"II*\0\x08\0\0\0" + bytes(6), b"MM\0*\0\0\0\x08\0\1" + bytes(16)])
def test_exif_data_without_an_orientation_rotate_nothing(decoder, exif):
    exif = b"Exif\0\0" + exif
    data = encode(picture(0, 61, 83))
    data = data[:2] + b"\xff\xe1" + struct.pack(">H", 2 + len(exif)) + exif + data[2:]
    assert np.array_equal(decode(data, orient=True), decode(data))


@pytest.mark.parametrize(("kind", "value"), [(3, 6), (4, 6), (3, 0), (3, 1)])
@pytest.mark.parametrize("order", "<>")
def test_the_orientation_is_read_in_both_byte_orders_and_types(decoder, order, kind, value):
    entry = struct.pack(f"{order}HHI", 0x0112, kind, 1) + struct.pack(f"{order}{'H' if kind == 3 else 'I'}", value)
    other = struct.pack(f"{order}HHII", 0x010F, 2, 4, 0)
    start = b"II*\0" if order == "<" else b"MM\0*"
    exif = b"Exif\0\0" + start + struct.pack(f"{order}IH", 8, 2) + other + entry.ljust(16, b"\0")
    data = encode(picture(0, 61, 83))
    data = data[:2] + b"\xff\xe1" + struct.pack(">H", 2 + len(exif)) + exif + data[2:]
    assert decode(data, orient=True).shape == ((83, 61, 3) if value == 6 else (61, 83, 3))


# -- formats -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="writes a program as a shell script")
def test_no_image_file_starts_a_program(tmp_path, monkeypatch):
    program = tmp_path / "gs"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("PIL.EpsImagePlugin.gs_binary", None)  # Pillow searches for the program again
    data = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 20 20\n%%EndComments\nshowpage\n%%EOF\n"
    with pytest.raises(ImageError, match="not an image: the data are 78 bytes that start with b'%!PS-Ado'; pass the "):
        decode(data)
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("kind", ["ICO", "PCX", "SGI", "DDS", "TGA"])
def test_formats_that_the_documentation_does_not_list_are_refused(kind):
    listed = "JPEG or PNG file, or of one of AVIF, BMP, GIF, JPEG2000, PPM, TIFF, WEBP$"
    with pytest.raises(ImageError, match=f"^not an image: the data are .*; pass the bytes of a {listed}"):
        decode(encode(picture(0, 40, 40), kind))


@pytest.mark.parametrize("kind", OTHER)
def test_listed_formats_are_decoded(kind):
    intact_files(kind)
    image = picture(0, 40, 40)
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encode(image, kind, **options)
    expected = np.asarray(pillow.open(io.BytesIO(data)).convert("RGB"))
    assert np.array_equal(decode(data), expected)
