"""Headers of records: labels and images are packed byte for byte as MXNet packs them."""

import fractions
import sys

import numpy as np
import pytest
from conftest import load, load_mxnet, run_program
from hypothesis import given
from hypothesis import strategies as st

from gluonloader.errors import MissingExtraError, RecordError
from gluonloader.records import IRHeader, pack, pack_img, unpack, unpack_img

MXNET, CV2 = load_mxnet(), load("cv2")
NUMPY = tuple(map(int, np.__version__.split(".")[:2]))
needs_mxnet = pytest.mark.skipif(MXNET is None or NUMPY >= (2, 3), reason="needs MXNet, and NumPy with `tostring`")
needs_cv2 = pytest.mark.skipif(CV2 is None, reason="needs OpenCV")
ignore_tostring = pytest.mark.filterwarnings("ignore:tostring:DeprecationWarning")  # of MXNet

LABELS = [
    3, 2.5, -1.0, True, np.float32(1.5), np.int64(4), np.array(4.0), [], [7], [1, 2, 3], (0.5, 1), np.arange(5),
    np.array([[1, 2], [3, 4.5]]), np.float64(1e-3), fractions.Fraction(1, 4),
]  # fmt: skip


@needs_mxnet
@ignore_tostring
@pytest.mark.parametrize("label", LABELS, ids=repr)
@pytest.mark.parametrize("flag", [0, 9])
def test_labels_are_packed_as_by_mxnet(label, flag):
    theirs = MXNET.recordio.pack(MXNET.recordio.IRHeader(flag, label, 2**40, 3), b"data")
    assert pack(IRHeader(flag, label, 2**40, 3), b"data") == theirs
    assert pack(MXNET.recordio.IRHeader(flag, label, 2**40, 3), b"data") == theirs
    (header, data), (wanted, wanted_data) = unpack(theirs), MXNET.recordio.unpack(theirs)
    assert data == wanted_data == b"data"
    assert type(header.label) is type(wanted.label)
    assert np.array_equal(header.label, wanted.label)
    assert header._replace(label=0) == wanted._replace(label=0)


@given(st.lists(st.floats(width=32, allow_nan=False)), st.integers(0, 2**64 - 1), st.binary(max_size=40))
def test_what_is_packed_is_unpacked(labels, number, data):
    header, found = unpack(pack((0, labels, number, number), data))
    assert (header.flag, header.id, header.id2, found) == (len(labels), number, number, data)
    assert labels == [] or (header.label.dtype == np.float32 and header.label.tolist() == labels)


def test_a_memoryview_is_unpacked_without_a_copy():
    record = bytearray(pack((0, [1, 2], 0, 0), b"data"))
    header, data = unpack(memoryview(record))
    record[-4:] = b"atad"
    assert bytes(data) == b"atad"
    assert header.label.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (b"", "the record has 0 bytes, but the header alone needs 24"),
        (bytes(23), "the record has 23 bytes, but the header alone needs 24"),
        (pack((0, [1, 2], 0, 0), b"")[:-1], "counts 2 labels; with them the record needs 32 bytes, but it has 31"),
        (b"\xff" * 24, "the header counts 4294967295 labels"),
    ],
)
def test_a_record_that_is_too_short_is_refused(record, text):
    with pytest.raises(RecordError, match=text):
        unpack(record)


@pytest.mark.parametrize("header", [(0, 1e300, 0, 0), (0, 1, -1, 0), (0, 1, 0, 2**64), (0, 1, "a", 0), (0, 1j, 0, 0)])
def test_a_header_that_does_not_fit_is_refused(header):
    with pytest.raises(ValueError, match="header=.*: label must be a float32, and id and id2 must be ints"):
        pack(header, b"")


@pytest.mark.parametrize("label", [None, "cat", "3", b"3", {"a": 1}, [None], ["3"], [1e300], [[1], [2, 3]], object()])
def test_a_label_that_is_no_number_is_refused(label):
    with pytest.raises(ValueError, match="^header=IRHeader.*: label must be a number or a sequence of numbers"):
        pack(IRHeader(0, label, 1, 0), b"")


@pytest.mark.parametrize("header", [(0, 1, 2), 5, None, (1, 2, 3, 4, 5)])
def test_a_header_without_the_four_fields_is_refused(header):
    with pytest.raises(ValueError, match=r"^header=.*: must be an IRHeader, or a tuple \(flag, label, id, id2\)"):
        pack(header, b"")


def image(height=20, width=30, channels=3):
    ramp = np.arange(height * width * channels) % 251
    return ramp.astype(np.uint8).reshape((height, width, channels) if channels > 1 else (height, width))


@needs_mxnet
@needs_cv2
@ignore_tostring
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("arguments", [{}, {"quality": 30, "img_fmt": ".JPEG"}, {"quality": 3, "img_fmt": ".png"}])
@pytest.mark.parametrize("iscolor", [-1, 0, 1])
def test_images_are_packed_as_by_mxnet(channels, arguments, iscolor):
    record = pack_img((0, [1, 2], 5, 0), image(channels=channels), **arguments)
    header = MXNET.recordio.IRHeader(0, [1, 2], 5, 0)
    assert record == MXNET.recordio.pack_img(header, image(channels=channels), **arguments)
    header, found = unpack_img(record, iscolor)
    assert header.label.tolist() == [1, 2]
    assert np.array_equal(found, MXNET.recordio.unpack_img(record, iscolor)[1])


@needs_cv2
def test_images_are_blue_first_and_other_formats_are_encoded_with_defaults():
    blue = np.zeros((4, 4, 3), np.uint8)
    blue[..., 0] = 255
    for suffix in (".png", ".bmp"):
        header, found = unpack_img(pack_img((0, 1, 5, 0), blue, img_fmt=suffix, quality=9))
        assert (header.label, header.id) == (1.0, 5)
        assert np.array_equal(found, blue)


@needs_cv2
def test_an_image_that_cannot_be_coded_is_refused():
    for data in (b"", b"no image"):
        with pytest.raises(RecordError, match=f"OpenCV cannot decode the {len(data)} bytes of record 7 as an image"):
            unpack_img(pack((0, 1, 7, 0), data))
    for wrong, suffix in ((image(), ".nothing"), (image(0, 3), ".jpg"), ("text", ".jpg")):
        with pytest.raises(ValueError, match="OpenCV cannot encode the image as"):
            pack_img((0, 1, 7, 0), wrong, img_fmt=suffix)


@needs_cv2
def test_values_that_a_format_cannot_store_are_refused():
    for dtype, suffix in (("float64", ".jpg"), ("bool", ".jpg"), ("int8", ".png"), ("uint16", ".JPEG")):
        with pytest.raises(ValueError, match=f"img: it has dtype {dtype}, but '{suffix}' stores uint8"):
            pack_img((0, 1, 7, 0), image().astype(dtype), img_fmt=suffix)
    deep = image().astype(np.uint16) * 257
    assert np.array_equal(unpack_img(pack_img((0, 1, 7, 0), deep, 3, ".png"))[1], deep)


@pytest.mark.spawn
def test_nothing_is_imported_before_it_is_needed():
    code = """if True:
        import sys
        import gluonloader
        assert "gluonloader.records" not in sys.modules
        import gluonloader.records, gluonloader.__main__
        print({"cv2", "PIL", "simplejpeg", "mxnet"} & sys.modules.keys())
    """
    assert run_program(code).stdout == "set()\n"


def test_without_opencv_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    for call in (lambda: pack_img((0, 1, 2, 3), image()), lambda: unpack_img(pack((0, 1, 2, 3), b"x"))):
        with pytest.raises(MissingExtraError, match=r"gluonloader\[vision\]"):
            call()
