"""Files of every format and number of bits per channel: the pixels and the gray levels are those of docs/images.md.

GLUONLOADER_IMAGES=50000 writes more of them (`nox -s soak`), and prints the largest differences.
"""

import io
import os
import struct
from functools import partial

import numpy as np
import pytest
from conftest import load
from pictures import DECODERS, encode, picture, pillow, use_decoder
from written_images import BLACK_IS_ZERO, CMYK, PALETTE, RGB, WHITE_IS_ZERO, bmp, lossless_jpeg, png, tiff

from gluonloader.vision import ImageDataset, ImageError, ImagePipeline, decode

IMAGES = int(os.environ.get("GLUONLOADER_IMAGES", "1000"))
cv2 = load("cv2")
pytestmark = [
    pytest.mark.skipif(pillow is None, reason="needs Pillow to write the files"),
    pytest.mark.filterwarnings("ignore:Palette images with Transparency:UserWarning"),
]

# Chunks by which libpng may convert colours: the gamma of the file, sRGB, and the chromaticities of its colours.
COLOURS = [
    [], [(b"gAMA", struct.pack(">I", 45455))], [(b"gAMA", struct.pack(">I", 100000))], [(b"sRGB", b"\0")],
    [(b"cHRM", struct.pack(">8I", 31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000)), (b"sRGB", b"\1")],
]  # fmt: skip


def values_of(rng, bits, channels):
    """Random values of an image; its sides are not multiples of 8."""
    height, width = rng.integers(3, 20, 2).tolist()
    values = picture(int(rng.integers(2**32)), height, width, channels, np.uint16)
    return (values.astype(np.int64) << bits) >> 16


def upper(values, bits):
    """The 8 bits of each value that docs/images.md promises."""
    return values * 255.0 / (2**bits - 1) if bits < 8 else (values >> bits - 8).astype(float)


def chunks_of(rng):
    return COLOURS[int(rng.integers(len(COLOURS)))]


def colours_of(values, bits):
    """Red, green and blue; alpha is removed."""
    shown = upper(values, bits)
    return shown[:, :, [0, 0, 0]] if values.shape[2] < 3 else shown[:, :, :3]


def decoded(data, mode="RGB"):
    """What Pillow, called directly, makes of a file."""
    opened = pillow.open(io.BytesIO(data))
    if mode == "L":
        opened.draft("L", None)
    return np.asarray(opened.convert(mode)).astype(float)


# -- each function draws an image file, and returns it with its red, green and blue ------------------------------------


def draw_png(rng, bits, channels):
    values = values_of(rng, bits, channels)
    return png(values, bits, None, chunks_of(rng)), colours_of(values, bits)


def draw_palette_png(rng, bits):
    values, palette = values_of(rng, bits, 1), rng.integers(0, 256, (2**bits, 3))
    return png(values, bits, palette, chunks_of(rng)), palette[values[:, :, 0]].astype(float)


def draw_tiff(rng, bits, channels, kind, sign=False, **options):
    values = values_of(rng, bits, channels)
    data = tiff(values, bits, kind, str(rng.choice(["<", ">"])), bool(rng.integers(2)), sign=sign, **options)
    if sign:
        return data, None
    if kind == CMYK:
        shown = 255 - upper(values, bits)
        return data, shown[:, :, :3] * shown[:, :, 3:] / 255
    colours = colours_of(values, bits)
    return data, 255 - colours if kind == WHITE_IS_ZERO else colours


def draw_palette_tiff(rng, bits):
    values, palette = values_of(rng, bits, 1), rng.integers(0, 256, (2**bits, 3))
    return tiff(values, bits, PALETTE, str(rng.choice(["<", ">"])), palette=palette), palette[values[:, :, 0]].astype(
        float
    )


def draw_bmp(rng, bits, widths):
    """The bits of red, green and blue are `widths`; those of blue are the lowest of a pixel."""
    values = values_of(rng, 8, 3) >> 8 - np.array(widths)
    starts = np.cumsum((0, *widths[:0:-1]))[::-1]
    masks = [(2**width - 1) << int(start) for width, start in zip(widths, starts)]
    return bmp(values, bits, masks), values * 255.0 / (2 ** np.array(widths) - 1)


def draw_ppm(rng, name, highest, channels):
    height, width = rng.integers(3, 20, 2).tolist()
    values = rng.integers(0, highest + 1, (height, width, channels))
    stored = 1 - values if name in ("P1", "P4") else values  # 1 is black
    if name in ("P1", "P2", "P3"):
        pixels = " ".join(map(str, stored.ravel().tolist())).encode()
    elif name == "P4":
        pixels = np.packbits(stored[:, :, 0].astype(np.uint8), axis=1).tobytes()
    else:
        pixels = stored.astype(">u2" if highest > 255 else "u1").tobytes()
    head = f"{name} {width} {height}\n" + (f"{highest}\n" if highest > 1 else "")
    return head.encode() + pixels, np.repeat(values * 255 / highest, 3 // channels, 2)


def draw_by_pillow(rng, kind, mode, **options):
    """Formats with lossy compression, or palettes that Pillow chooses: the colours are those that Pillow decodes."""
    if mode == "I;16":
        values = values_of(rng, 16, 1).astype(np.uint16)
        return encode(values[:, :, 0], kind), colours_of(values, 16)
    data = encode(values_of(rng, 8, 3).astype(np.uint8), kind, mode, **options)
    return data, decoded(data)


def draw_deep_jpeg_2000(rng):
    values = picture(int(rng.integers(2**32)), 61, 83, 3, np.uint16)  # OpenCV does not write smaller ones
    return cv2.imencode(".jp2", values[:, :, ::-1], [cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000])[1].tobytes(), None


def draw_lossless_jpeg(rng):
    values = values_of(rng, 8, 1).astype(np.uint8)
    return lossless_jpeg(values[:, :, 0]), colours_of(values, 8)


def cases():
    """The name of a kind of file, the function that draws one, and whether `decode` may refuse it.

    It must refuse a file whose function returns no red, green and blue.
    """
    for bits in (1, 2, 4, 8, 16):
        yield f"PNG gray {bits}", partial(draw_png, bits=bits, channels=1), False
    for bits in (8, 16):
        for channels, name in ((2, "gray and alpha"), (3, "RGB"), (4, "RGB and alpha")):
            yield f"PNG {name} {bits}", partial(draw_png, bits=bits, channels=channels), False
    for bits in (1, 2, 4, 8):
        yield f"PNG palette {bits}", partial(draw_palette_png, bits=bits), False
        yield f"TIFF palette {bits}", partial(draw_palette_tiff, bits=bits), False
    for bits in (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 24, 32):
        gray = partial(draw_tiff, bits=bits, channels=1)
        yield f"TIFF gray {bits}", partial(gray, kind=BLACK_IS_ZERO), bits not in (1, 2, 4, 8, 16)
        yield f"TIFF white is zero {bits}", partial(gray, kind=WHITE_IS_ZERO), bits not in (1, 2, 4, 8)
    for bits in (4, 8, 10, 12, 16, 32):
        draw, rare = partial(draw_tiff, bits=bits), bits not in (8, 16)
        yield f"TIFF gray with a sign {bits}", partial(draw, channels=1, kind=BLACK_IS_ZERO, sign=True), True
        yield f"TIFF gray and alpha {bits}", partial(draw, channels=2, kind=BLACK_IS_ZERO, extra=2), bits != 8
        yield f"TIFF RGB {bits}", partial(draw, channels=3, kind=RGB), rare
        yield f"TIFF RGB planar {bits}", partial(draw, channels=3, kind=RGB, planar=True), bits != 8
        yield f"TIFF RGB and alpha {bits}", partial(draw, channels=4, kind=RGB, extra=2), rare
        yield f"TIFF CMYK {bits}", partial(draw, channels=4, kind=CMYK), rare
    for bits, widths in ((16, (5, 5, 5)), (16, (5, 6, 5)), (24, (8, 8, 8)), (32, (8, 8, 8))):
        yield f"BMP {bits} {widths}", partial(draw_bmp, bits=bits, widths=widths), False
    for bits, widths in ((16, (4, 4, 4)), (16, (3, 3, 2)), (32, (7, 7, 7)), (32, (10, 10, 10))):
        yield f"BMP {bits} {widths}", partial(draw_bmp, bits=bits, widths=widths), True
    for highest in (2, 15, 255, 1000, 4095, 65535):
        for name, channels in (("P2", 1), ("P3", 3), ("P5", 1), ("P6", 3)):
            yield f"PPM {name} to {highest}", partial(draw_ppm, name=name, highest=highest, channels=channels), False
    for name in ("P1", "P4"):
        yield f"PPM {name}", partial(draw_ppm, name=name, highest=1, channels=1), False
    modes = {
        "AVIF": ["L", "RGB"], "BMP": ["1", "L", "P"], "GIF": ["L", "P"], "JPEG": ["L", "RGB", "CMYK"],
        "JPEG2000": ["L", "LA", "RGB", "RGBA", "I;16"], "TIFF": ["1", "LAB"], "WEBP": ["L", "RGB", "RGBA"],
    }  # fmt: skip
    for kind in modes:
        for mode in modes[kind]:
            yield f"{kind} {mode}", partial(draw_by_pillow, kind=kind, mode=mode), False
    yield "TIFF YCbCr", partial(draw_by_pillow, kind="TIFF", mode="YCbCr", compression="tiff_lzw"), False
    yield "JPEG lossless", draw_lossless_jpeg, False
    if cv2 is not None and cv2.haveImageWriter(".jp2"):
        yield "JPEG2000 RGB 16", draw_deep_jpeg_2000, True


def cases_of_decoders():
    for name, draw, may_refuse in cases():
        decoders = {"JPEG": [*DECODERS], "PNG": ["opencv", "pillow"]}.get(name.split()[0], ["any"])
        for decoder in decoders:
            yield pytest.param(decoder, name, draw, may_refuse, id=f"{name}-{decoder}".replace(" ", "_"))


def differences(data, name, colours, pipelines):
    """The largest differences between what `decode` and the datasets return, and what docs/images.md says.

    The first is that of the gray levels, the second that of red, green and blue.
    """
    gray = decoded(data, "L") if name == "JPEG RGB" else colours @ [0.299, 0.587, 0.114]
    largest, size = [0.0, 0.0], colours.shape[1::-1]
    for flag, color, expected in ((0, "gray", gray[:, :, None]), (1, "rgb", colours)):
        dataset = ImageDataset([(data, 0)], flag)
        images = [decode(data, color=color), dataset[0][0]]
        if pipelines:
            images.append(ImagePipeline(dataset, size, dtype="uint8", layout="HWC")[0][0])
            images.append(ImagePipeline(dataset, size, layout="HWC")[0][0] * 255)
        assert all(image.shape == expected.shape for image in images)
        largest[flag] = max(np.abs(image - expected).max() for image in images)
    return largest


@pytest.mark.soak
@pytest.mark.parametrize(("decoder", "name", "draw", "may_refuse"), [*cases_of_decoders()])
def test_the_pixels_and_the_gray_levels_are_those_of_the_page(decoder, name, draw, may_refuse, monkeypatch, capfd):
    rng = np.random.default_rng([len(name), *name.encode()])
    files = [draw(rng) for _ in range(max(1, IMAGES // 1000))]  # before decoders are hidden
    if decoder != "any":
        use_decoder(monkeypatch, decoder)
    pipelines = cv2 is not None and decoder != "pillow"  # use_decoder hides OpenCV then
    largest, errors = [0.0, 0.0], []
    for data, colours in files:
        try:
            found = differences(data, name, decode(data) if colours is None else colours, pipelines)
        except ImageError as error:
            errors.append(str(error))
            continue
        assert colours is not None
        # Exact except for lossy colours, and depths that docs/images.md scales by a factor.
        exact = name.startswith(("PNG", "TIFF gray", "TIFF white", "TIFF RGB", "TIFF palette"))
        assert found[0] <= 2, found
        assert found[1] <= (0.01 if exact else 2), found
        largest = [max(pair) for pair in zip(largest, found)]
    assert may_refuse or not errors, errors[0]
    assert all("; convert it to " in error or ", otherwise convert it to " in error for error in errors), errors
    if IMAGES > 1000:
        with capfd.disabled():
            gray, rgb = largest
            print(f"\n| {name} | {decoder} | {len(files)} | {len(errors)} | {rgb:.1f} | {gray:.1f} |", end="")
