"""Damaged image files: an `ImageError`, or pixels that depend only on the file; never more memory than is stated.

GLUONLOADER_IMAGES=50000 tries more of them (`nox -s soak`), and prints what became of them.
"""

import ctypes
import functools
import os
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from conftest import load
from damaged_images import damaged, files_of
from pictures import encode, pillow, use_decoder

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
