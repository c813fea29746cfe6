"""`decode`: equal pixels from every decoder, documented results for unusual files, and errors that name the fault."""

import io
import pickle
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from conftest import load
from pictures import DECODERS, encode, hide, limited_memory, orientation, picture, pillow, use_decoder
from written_images import BLACK_IS_ZERO, RGB, WHITE_IS_ZERO, bmp, lossless_jpeg, png, tiff

from gluonloader.errors import MissingExtraError
from gluonloader.vision import MAX_PIXELS, ImageDataset, ImageError, ImagePipeline, decode

cv2 = load("cv2")
pytestmark = pytest.mark.skipif(pillow is None, reason="needs Pillow to write the files")

IMAGE = picture(0, 61, 83)


@pytest.fixture(params=DECODERS)
def decoder(request, monkeypatch):
    use_decoder(monkeypatch, request.param)
    return request.param


def by_pillow(data, mode="RGB"):
    """What Pillow, called directly, makes of a file."""
    return np.asarray(pillow.open(io.BytesIO(data)).convert(mode))


def can_open(data):
    try:
        return pillow.open(io.BytesIO(data)) is not None
    except pillow.UnidentifiedImageError:
        return False


def difference(image, other):
    assert image.shape == other.shape
    return np.abs(image.astype(int) - other).max()


JPEGS = {
    "usual": {},
    "without subsampling": {"subsampling": 0},
    "progressive": {"progressive": True},
    "optimized": {"optimize": True},
    "with a comment": {"comment": b"\xff\xd9\xff\xda" * 9},
    "turned": {"exif": None},
}


def jpeg(name):
    options = {"exif": orientation(6)} if name == "turned" else JPEGS[name]
    return encode(IMAGE, **options)


@pytest.mark.parametrize("name", JPEGS)
def test_every_decoder_returns_equal_pixels_for_a_jpeg(decoder, name):
    image = decode(jpeg(name))
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous
    assert image.flags.writeable
    assert np.array_equal(image, by_pillow(jpeg(name)))


def test_a_jpeg_with_unusual_subsampling_is_decoded():
    data = bytearray(encode(IMAGE, subsampling=0))
    start = data.index(b"\xff\xc0")
    for channel, sampling in enumerate((0x41, 0x21, 0x11)):
        data[start + 11 + 3 * channel] = sampling
    assert np.array_equal(decode(data), by_pillow(bytes(data)))


def test_a_png_is_decoded_exactly(decoder):
    assert np.array_equal(decode(encode(IMAGE, "PNG")), IMAGE)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_gray_file_becomes_three_equal_channels(decoder, kind):
    data = encode(IMAGE[:, :, 0], kind)
    gray = by_pillow(data, "L")
    assert np.array_equal(decode(data), np.stack([gray] * 3, 2))
    assert np.array_equal(decode(data, color="gray"), gray[:, :, None])


def test_a_colour_jpeg_becomes_gray_by_its_brightness_channel(decoder):
    data = encode(IMAGE)
    opened = pillow.open(io.BytesIO(data))
    opened.draft("L", None)
    assert np.array_equal(decode(data, color="gray"), np.asarray(opened)[:, :, None])


@pytest.mark.parametrize("chunk", [(b"gAMA", b"\0\0\xb1\x8f"), (b"gAMA", b"\0\1\x86\xa0"), (b"sRGB", b"\0")])
def test_a_colour_png_becomes_gray_by_the_rule_whatever_its_gamma_is(decoder, chunk):
    """libpng converts by the gamma: red, green and blue became 147, 200 and 95 in OpenCV."""
    data = png(255 * np.eye(3, dtype=int)[None], 8, None, [chunk])
    assert decode(data, color="gray").ravel().tolist() == [76, 150, 29]
    assert ImageDataset([(data, 0)], flag=0)[0][0].ravel().tolist() == [76, 150, 29]
    if decoder == "opencv":  # the pipeline needs OpenCV
        pipeline = ImagePipeline(ImageDataset([(data, 0)], flag=0), (3, 1), dtype="uint8")
        assert pipeline[0][0].ravel().tolist() == [76, 150, 29]


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_a_cmyk_jpeg_is_converted_without_a_profile_within_2(decoder, color):
    data = encode(IMAGE, mode="CMYK")
    expected = by_pillow(data, "RGB" if color == "rgb" else "L").reshape(61, 83, -1)
    assert difference(decode(data, color=color), expected) <= 2


def test_a_palette_is_applied_and_its_transparency_dropped(decoder):
    file = io.BytesIO()
    pillow.fromarray(IMAGE).quantize(40).save(file, "PNG", transparency=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Pillow: Palette images with Transparency
        assert np.array_equal(decode(file.getvalue()), by_pillow(file.getvalue()))


def test_of_16_bits_in_a_tiff_or_pgm_the_upper_8_remain():
    deep = picture(0, 61, 83, 1, np.uint16)
    for kind in ("TIFF", "PPM"):
        data = encode(deep[:, :, 0], kind)
        assert np.array_equal(decode(data, color="gray"), (deep >> 8).astype(np.uint8))
        assert np.array_equal(decode(data), np.repeat((deep >> 8).astype(np.uint8), 3, 2))


@pytest.mark.parametrize("deflate", [False, True])
def test_of_12_bits_the_upper_8_remain(deflate):
    """They had the values 0 to 15."""
    deep = picture(0, 61, 83, 1, np.uint16) >> 4
    data = tiff(deep, 12, BLACK_IS_ZERO, deflate=deflate)
    assert np.array_equal(decode(data, color="gray"), deep >> 4)
    assert np.array_equal(decode(data), np.repeat(deep >> 4, 3, 2))


@pytest.mark.parametrize("deflate", [False, True])
@pytest.mark.parametrize("bits", [8, 16])
def test_a_tiff_whose_white_is_zero_is_no_negative(bits, deflate):
    deep = picture(0, 61, 83, 1, np.uint16) >> 16 - bits
    data = tiff(deep, bits, WHITE_IS_ZERO, deflate=deflate)
    assert np.array_equal(decode(data, color="gray"), 255 - (deep >> bits - 8))


@pytest.mark.parametrize("extra", [1, 2])
def test_the_alpha_of_a_gray_tiff_is_removed(extra):
    data = tiff(np.full((3, 5, 2), (60, 128)), 8, BLACK_IS_ZERO, extra=extra)
    if extra == 1 and not can_open(data):
        pytest.skip("older versions of Pillow do not know multiplied alpha")
    gray = 60 * 255 // 128 if extra == 1 else 60
    assert np.array_equal(decode(data), np.full((3, 5, 3), gray))
    assert np.array_equal(decode(data, color="gray"), np.full((3, 5, 1), gray))


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("bits", [10, 14])
def test_pixels_that_pillow_does_not_know_are_no_damage(bits, channels):
    data = tiff(np.zeros((3, 5, channels), int), bits, BLACK_IS_ZERO)
    reason = "Pillow does not know this kind of image, or the header is damaged"
    cure = "copy the file again if it is damaged, otherwise convert it to a PNG with 8 or 16 bits in each channel"
    with pytest.raises(ImageError, match=f"^the TIFF file cannot be decoded: {reason}; {cure}$"):
        decode(data)


def test_rare_bit_fields_of_a_bmp_are_no_damage():
    data = bmp(np.zeros((3, 5, 3), int), 16, (0xF00, 0xF0, 0xF))
    with pytest.raises(ImageError, match="^the BMP file cannot be decoded: .*layout; copy the file again if it is dam"):
        decode(data)


@pytest.mark.parametrize(("bits", "mode"), [(8, "L"), (16, "I")])
def test_pixels_with_a_sign_are_refused(bits, mode):
    data = tiff(picture(0, 3, 5, 1) % 128, bits, BLACK_IS_ZERO, sign=True)
    what = rf"^the image has {bits} bits in each channel \(mode {mode}\) with a sign; "
    with pytest.raises(ImageError, match=f"{what}convert it to 8 or 16 bits without a sign$"):
        decode(data)


def test_channels_of_16_bits_that_pillow_reads_wrongly_are_refused():
    deep = picture(0, 61, 83, 3, np.uint16)
    upper = np.asarray(deep >> 8, np.uint8)
    assert np.array_equal(decode(tiff(deep, 16, RGB)), upper)
    assert np.array_equal(decode(tiff(deep, 16, RGB, deflate=True, planar=True)), upper)
    with pytest.raises(
        ImageError, match=r"16 bits in each channel, .* stored separately \(planar\); convert it to PNG"
    ):
        decode(tiff(deep, 16, RGB, planar=True))


@pytest.mark.skipif(cv2 is None or not cv2.haveImageWriter(".jp2"), reason="needs OpenCV with JPEG 2000")
def test_a_deep_jpeg_2000_in_colour_is_refused():
    """Pillow turns its white into black."""
    deep = np.full((64, 64, 3), 65535, np.uint16)
    with pytest.raises(
        ImageError, match="JPEG 2000 with 16 bits in each channel, and it is not gray; convert it to PNG"
    ):
        decode(cv2.imencode(".jp2", deep)[1].tobytes())
    assert decode(cv2.imencode(".jp2", deep[:, :, 0])[1].tobytes()).min() == 255
    assert decode(cv2.imencode(".jp2", (deep >> 8).astype(np.uint8))[1].tobytes()).min() == 255


@pytest.mark.parametrize("bits", [12, 16])
def test_a_jpeg_with_more_than_8_bits_is_refused(decoder, bits):
    data = bytearray(encode(IMAGE))
    data[data.index(b"\xff\xc0") + 4] = bits
    with pytest.raises(ImageError, match=f"^the JPEG file has {bits} bits in each channel; convert it to 8 bits$"):
        decode(data)


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_32_bits_are_refused(dtype):
    data = encode(picture(0, 61, 83, 1, np.uint16)[:, :, 0].astype(dtype), "TIFF")
    for color in ("rgb", "gray"):
        with pytest.raises(ImageError, match=r"32 bits in each channel .*; convert it to 8 or 16 bits"):
            decode(data, color=color)


def test_lab_colours_are_converted():
    data = encode(picture(0, 9, 9), "TIFF", "LAB")
    assert decode(data).shape == (9, 9, 3)
    assert np.array_equal(decode(data, color="gray")[:, :, 0], np.asarray(pillow.fromarray(decode(data)).convert("L")))


def test_bytes_like_data_are_accepted():
    data = encode(IMAGE)
    for same in (bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)):
        assert np.array_equal(decode(same), decode(data))
    for path in ("image.jpg", Path("image.jpg")):
        with pytest.raises(TypeError, match=r"it is a path; read the file first"):
            decode(path)
    with pytest.raises(TypeError, match="pass the bytes of an image file"):
        decode(None)
    with pytest.raises(TypeError, match=r"data is an array of shape \(61, 83, 3\): it is an image that is decoded"):
        decode(IMAGE)


# -- out ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP"])
@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_the_image_is_decoded_into_out(decoder, kind, color):
    data = encode(IMAGE, kind)
    batch = np.zeros((3, 61, 83, 3 if color == "rgb" else 1), np.uint8)
    assert decode(data, batch[1], color=color).base is batch
    assert np.array_equal(batch[1], decode(data, color=color))
    assert not batch[[0, 2]].any()


def test_a_rotated_image_is_decoded_into_out(decoder):
    data = encode(IMAGE, exif=orientation(6))
    out = np.zeros((83, 61, 3), np.uint8)
    assert decode(data, out, orient=True) is out
    assert np.array_equal(out, decode(data, orient=True))


@pytest.mark.parametrize(
    "out",
    [
        np.zeros((83, 61, 3), np.uint8),
        np.zeros((61, 83, 3), np.float32),
        np.zeros((61, 83), np.uint8),
        np.zeros((61, 166, 3), np.uint8)[:, ::2],
        np.frombuffer(bytes(61 * 83 * 3), np.uint8).reshape(61, 83, 3),  # read-only
        [1],
    ],
)
def test_an_out_that_does_not_fit_is_refused(decoder, out):
    with pytest.raises(ValueError, match=r"pass a writable, contiguous uint8 array of shape \(61, 83, 3\)"):
        decode(encode(IMAGE), out)


def test_an_out_for_a_rotated_image_is_refused_without_a_shape(decoder):
    with pytest.raises(ValueError, match=r"pass a writable, contiguous uint8 array$"):
        decode(encode(IMAGE, exif=orientation(6)), [1], orient=True)
    with pytest.raises(ValueError, match=r"contiguous uint8 array of shape \(83, 61, 3\)$"):
        decode(encode(IMAGE, exif=orientation(6)), np.zeros((61, 83, 3), np.uint8), orient=True)


# -- scaled decode -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("height", "width", "min_size", "scale"),
    [
        (240, 320, None, 1), (240, 320, 241, 1), (240, 320, 240, 1), (240, 320, 121, 1), (240, 320, 120, 2),
        (240, 320, 61, 2), (240, 320, 60, 4), (240, 320, 31, 4), (240, 320, 30, 8), (240, 320, 1, 8),
        (61, 83, 31, 2), (83, 61, 16, 4), (3, 5, 1, 2), (1, 1, 1, 1), (9, 7, 2, 4), (9, 8, 1, 8),
    ],
)  # fmt: skip
def test_a_jpeg_is_scaled_as_far_as_its_shorter_side_allows(decoder, height, width, min_size, scale):
    data = encode(picture(2, height, width))
    image = decode(data, min_size=min_size)
    assert image.shape == (-(-height // scale), -(-width // scale), 3)
    out = np.zeros_like(image)
    assert np.array_equal(decode(data, out, min_size), image)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_every_decoder_scales_alike(monkeypatch, mode, color):
    data = encode(picture(3, 203, 301), mode=mode)
    images = []
    for name in DECODERS:
        with monkeypatch.context() as patch:
            if load(DECODERS[name]) is not None:
                use_decoder(patch, name)
                images.append(decode(data, min_size=50, color=color))
    assert all(difference(image, images[0]) <= (2 if mode == "CMYK" else 0) for image in images)
    assert images[0].shape == (51, 76, 3 if color == "rgb" else 1)


def test_a_scaled_image_looks_like_the_full_one(decoder):
    block = np.full((64, 64, 3), [200, 100, 50], np.uint8)
    assert difference(decode(encode(block), min_size=8), block[:8, :8]) <= 2


def test_a_png_is_never_scaled(decoder):
    assert decode(encode(IMAGE, "PNG"), min_size=1).shape == IMAGE.shape


@pytest.mark.parametrize("color", ["rgb", "gray"])
def test_a_lossless_jpeg_is_never_scaled(decoder, color):
    """simplejpeg wrote the whole image into memory for a smaller one, and the program crashed."""
    data = lossless_jpeg(IMAGE[:, :, 0])
    gray = IMAGE[:, :, :1] if color == "gray" else IMAGE[:, :, [0, 0, 0]]
    for min_size in (None, 1, 20):
        assert np.array_equal(decode(data, min_size=min_size, color=color), gray)
    if cv2 is not None and decoder != "pillow":  # the pipeline needs OpenCV
        dataset = ImageDataset([(data, 0)], flag=int(color == "rgb"))
        scaled = ImagePipeline(dataset, 8, resize=8, dtype="uint8", layout="HWC", scaled_decode=True)
        assert np.array_equal(scaled[0][0], ImagePipeline(dataset, 8, resize=8, dtype="uint8", layout="HWC")[0][0])


# -- orientation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(1, 9))
def test_the_exif_orientation_is_applied_on_request(decoder, number):
    data = encode(IMAGE, exif=orientation(number))
    plain = decode(data)
    assert plain.shape == (61, 83, 3)
    turned = [
        plain, plain[:, ::-1], plain[::-1, ::-1], plain[::-1], plain.transpose(1, 0, 2), np.rot90(plain, -1),
        plain[::-1, ::-1].transpose(1, 0, 2), np.rot90(plain),
    ][number - 1]  # fmt: skip
    assert np.array_equal(decode(data, orient=True), turned)


def test_a_file_without_exif_is_not_rotated(decoder):
    assert np.array_equal(decode(encode(IMAGE), orient=True), decode(encode(IMAGE)))


def test_pillow_always_rotates_tiff():
    data = encode(IMAGE, "TIFF", exif=orientation(6))
    assert np.array_equal(decode(data), np.rot90(IMAGE, -1))
    assert np.array_equal(decode(data, orient=True), np.rot90(IMAGE, -1))


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"\xff", b"GIF8", b"hello, world", b"\0" * 100, b"\x89PNG", b"\xff\xd9"])
def test_data_that_are_no_image_are_named(data):
    with pytest.raises(ImageError, match=r"not an image: the data are .*; pass the bytes of a JPEG or PNG file"):
        decode(data)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_truncated_file_is_refused_at_every_length(decoder, kind, progressive):
    data = encode(IMAGE, kind, **({"progressive": progressive} if kind == "JPEG" else {}))
    for length in [*range(8, 40), *range(40, len(data) - 4, 97), len(data) - 9, len(data) - 5]:
        with pytest.raises(ImageError, match=r"is truncated: it ends after [\d,]+ bytes|is damaged"):
            decode(data[:length])


def test_a_truncated_file_with_a_preview_is_refused(decoder):
    exif = orientation(1)
    exif[0x9286] = encode(picture(1, 16, 16)).decode("latin1")  # contains the end of a JPEG, as previews do
    data = encode(IMAGE, exif=exif)
    assert decode(data).shape == IMAGE.shape
    with pytest.raises(ImageError, match="is truncated"):
        decode(data[:-9])


def test_bytes_after_the_end_are_ignored(decoder):
    data = encode(IMAGE)
    assert np.array_equal(decode(data + b"\0" * 10), decode(data))
    assert np.array_equal(decode(data + b"\xff\xda some trailer"), decode(data))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP"])
def test_the_pixels_are_limited_before_the_image_is_decoded(decoder, kind):
    data = encode(IMAGE, kind)
    with pytest.raises(ImageError, match=r"has 83 x 61 = 5,063 pixels, more than max_pixels=5,062; pass a larger"):
        decode(data, max_pixels=5062)
    for enough in (5063, None):
        assert decode(data, max_pixels=enough).shape == IMAGE.shape


def test_a_small_file_of_a_huge_image_is_refused(decoder):
    header = b"IHDR" + struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    bomb += struct.pack(">I", 0) + b"IEND" + struct.pack(">I", zlib.crc32(b"IEND"))
    with pytest.raises(ImageError, match=r"60000 x 60000 = 3,600,000,000 pixels"):
        decode(bomb)
    jpeg_bomb = bytearray(encode(IMAGE))
    size = jpeg_bomb.index(struct.pack(">HH", 61, 83))
    jpeg_bomb[size : size + 4] = b"\xff\xff\xff\xff"
    with pytest.raises(ImageError, match=r"65535 x 65535"):
        decode(jpeg_bomb)
    assert MAX_PIXELS < 60_000**2


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of this process")
@pytest.mark.filterwarnings("ignore:Image size")  # of Pillow
def test_an_image_that_does_not_fit_into_memory_is_an_image_error(decoder):
    data = bytearray(encode(IMAGE))
    size = data.index(struct.pack(">HH", 61, 83))
    data[size : size + 4] = struct.pack(">HH", 12_000, 12_000)
    what = "there is not enough memory to decode the image, which has 12000 x 12000 pixels"
    with limited_memory(), pytest.raises(ImageError, match=f"^{what}; use fewer workers, or pass a smaller max_pixels"):
        decode(data, max_pixels=None)


@pytest.mark.parametrize(
    "data", [b"\xff\xd8\xff\xd9", b"\xff\xd8\xff\xd9\0\0", b"\xff\xd8" + b"\xff\xe0\0\2" * 3 + b"\xff\xda\0\2\xff\xd9"]
)
def test_a_jpeg_without_an_image_is_refused(decoder, data):
    with pytest.raises(ImageError, match="the JPEG file|truncated"):
        decode(data)


@pytest.mark.parametrize(("argument", "value"), [
    ("color", "bgr"), ("min_size", 0), ("min_size", -3), ("min_size", 1.5), ("max_pixels", 0), ("orient", "no"),
])  # fmt: skip
def test_a_wrong_argument_is_named(argument, value):
    with pytest.raises(ValueError, match=rf"^{argument}={value!r}: must be"):
        decode(encode(IMAGE), **{argument: value})


def test_an_error_survives_pickling():
    error = ImageError("a.jpg: the image file is truncated")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert isinstance(error, ValueError)


def test_without_a_decoder_the_error_says_what_to_install(monkeypatch):
    data = encode(IMAGE)
    hide(monkeypatch, *DECODERS.values())
    with pytest.raises(MissingExtraError, match=r'pip install "gluonloader\[vision\]"'):
        decode(data)


def test_without_pillow_the_error_for_other_formats_names_it(monkeypatch):
    data = encode(IMAGE, "GIF")
    hide(monkeypatch, "PIL.Image")
    with pytest.raises(ImageError, match=r"not an image: .* or run pip install pillow to decode other formats"):
        decode(data)


@pytest.mark.spawn
def test_the_import_of_vision_imports_no_decoder():
    code = "import sys, gluonloader; assert 'gluonloader.vision' not in sys.modules; import gluonloader.vision; "
    code += "assert not {'cv2', 'simplejpeg', 'PIL', 'mxnet'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
