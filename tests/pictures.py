"""Images for the tests of gluonloader.vision: drawn from a seeded generator, and encoded by Pillow."""

import contextlib
import io
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import load

pillow = load("PIL.Image")
DECODERS = {"simplejpeg": "simplejpeg", "opencv": "cv2", "pillow": "PIL.Image"}  # in the order of preference


def picture(seed=0, height=60, width=80, channels=3, dtype=np.uint8):
    """Coloured squares of 5 x 5 pixels, with a little noise."""
    rng = np.random.default_rng(seed)
    high = np.iinfo(dtype).max
    squares = rng.integers(0, high, (-(-height // 5), -(-width // 5), channels))
    pixels = squares.repeat(5, 0).repeat(5, 1)[:height, :width] + rng.integers(-9, 10, (height, width, channels))
    return pixels.clip(0, high).astype(dtype)


def encode(image, kind="JPEG", mode=None, **options):
    """The bytes of an image file; an array of shape (H, W), (H, W, 3) or (H, W, 4)."""
    if pillow is None:
        pytest.skip("needs Pillow")
    opened = pillow.fromarray(image)
    file = io.BytesIO()
    options = {"quality": 90, **options} if kind == "JPEG" else options
    (opened if mode is None else opened.convert(mode)).save(file, kind, **options)
    return file.getvalue()


def orientation(number):
    """EXIF data with this orientation."""
    exif = pillow.Exif()
    exif[0x0112] = number
    return exif


def write_folder(root, classes=("bus", "car"), count=4, kind="JPEG", **options):
    """Writes `count` images of each class, and returns the arrays that they were made of, by path."""
    written = {}
    for number, name in enumerate(classes):
        (root / name).mkdir()
        for i in range(count):
            written[str(root / name / f"{i}.jpg")] = image = picture(10 * number + i, 60 + 4 * i, 80 - 6 * i)
            (root / name / f"{i}.jpg").write_bytes(encode(image, kind, **options))
    return written


def use_decoder(monkeypatch, name):
    """Hides the decoders that are preferred to `name`, and skips the test if `name` is not installed."""
    if load(DECODERS[name]) is None:
        pytest.skip(f"needs {name}")
    modules = list(DECODERS.values())
    hide(monkeypatch, *modules[: modules.index(DECODERS[name])])


def hide(monkeypatch, *modules):
    """Makes the imports of these modules fail."""
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


@contextlib.contextmanager
def limited_memory(more=2**27):
    """Lets this process allocate only so many more bytes; for Linux."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
