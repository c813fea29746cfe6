"""`ImageRecordDataset`: images and labels of RecordIO files, as MXNet reads them."""

import numpy as np
import pytest
from conftest import FORK, SERIAL, THREAD, load, load_mxnet
from pictures import encode, picture, pillow

from gluonloader import DataLoader
from gluonloader.declared import is_gil_free
from gluonloader.errors import RecordError
from gluonloader.records import IndexedRecordIO, IRHeader, pack
from gluonloader.vision import ImageError, ImagePipeline, ImageRecordDataset, decode

pytestmark = pytest.mark.skipif(pillow is None, reason="needs Pillow to write the files")


def write_records(folder, labels, damaged=None):
    """Writes a record with an image for each label; returns the path and the bytes of the images."""
    path = folder / "photos.rec"
    files = [encode(picture(i, 60 + i, 80), "PNG" if i % 3 == 2 else "JPEG") for i in range(len(labels))]
    if damaged is not None:
        files[damaged] = files[damaged][:300]
    with IndexedRecordIO(path, "w") as records:
        for key, (label, data) in enumerate(zip(labels, files, strict=True)):
            records.write_idx(key, pack(IRHeader(0, label, key, 0), data))
    return path, files


@pytest.mark.parametrize("labels", [[3.0, 1.0, 2.5, 0.0], [[1, 2], [3, 4], [5, 6.5], [0, 0]], [[7], [8], [9], [10]]])
@pytest.mark.parametrize("flag", [1, 0])
def test_samples_are_images_and_labels(tmp_path, labels, flag):
    path, files = write_records(tmp_path, labels)
    dataset = ImageRecordDataset(path, flag)
    assert len(dataset) == 4
    for (image, label), data, right in zip(dataset, files, labels, strict=True):
        assert np.array_equal(image, decode(data, color="rgb" if flag else "gray"))
        assert np.array_equal(label, right)
        assert type(label) is (float if isinstance(right, float) else np.ndarray)
    assert ImageRecordDataset(path, transform=lambda image, label: image.shape)[1] == (61, 80, 3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of MXNet's own code
def test_samples_are_those_of_mxnet(tmp_path):
    mxnet = load_mxnet() or pytest.skip("needs mxnet")
    for labels in ([3.0, 1.0, 2.5, 0.0], [[1, 2], [3, 4], [5, 6.5], [0, 0]]):
        path, _ = write_records(tmp_path, labels)
        for flag in (1, 0):
            theirs = mxnet.gluon.data.vision.ImageRecordDataset(str(path), flag)
            for index, (image, label) in enumerate(ImageRecordDataset(path, flag)):
                right, right_label = theirs[index]
                assert np.abs(image.astype(int) - right.asnumpy()).max() <= 1
                assert np.array_equal(label, right_label)


@pytest.mark.skipif(load("cv2") is None, reason="needs OpenCV")
@pytest.mark.parametrize("way", [SERIAL, THREAD, FORK], ids=str)
def test_a_pipeline_reads_records_in_bulk(tmp_path, way):
    path, files = write_records(tmp_path, [float(i) for i in range(9)])
    dataset = ImageRecordDataset(path)
    assert is_gil_free(dataset)
    with way.loader(ImagePipeline(dataset, (80, 60), dtype="uint8", layout="HWC"), 4, shuffle=True) as loader:
        for images, labels in loader:
            for image, label in zip(images, labels.astype(int), strict=True):
                whole = decode(files[label])
                top = (whole.shape[0] - 60) // 2
                assert np.array_equal(image, whole[top : top + 60])


def test_the_index_may_be_elsewhere_or_partial(tmp_path):
    path, files = write_records(tmp_path, [0.0, 1.0, 2.0])
    index = (tmp_path / "photos.idx").rename(tmp_path / "other.idx")
    assert np.array_equal(ImageRecordDataset(path, index=index)[2][0], decode(files[2]))
    index.write_text("".join(index.read_text().splitlines(keepends=True)[:2]).replace("1\t", "one\t"))
    with pytest.raises(RecordError, match="partial=True"):
        ImageRecordDataset(path, index=index, key_type=str)
    dataset = ImageRecordDataset(path, index=index, key_type=str, partial=True)
    assert [label for _, label in dataset] == [0, 1]


def test_a_damaged_image_is_named(tmp_path):
    path, _ = write_records(tmp_path, [0.0] * 4, damaged=1)
    dataset = ImageRecordDataset(path)
    assert dataset[0][0].shape == (60, 80, 3)
    with pytest.raises(ImageError, match=r"photos.rec, record 1: the image file is truncated: it ends after 300 bytes"):
        dataset[1]
    with pytest.raises(ImageError, match=r"photos.rec, record 1"):
        list(DataLoader(dataset, 4))


def test_a_record_without_a_header_is_named(tmp_path):
    path = tmp_path / "photos.rec"
    with IndexedRecordIO(path, "w") as records:
        records.write_idx(0, b"short")
    with pytest.raises(RecordError, match=r"photos.rec, record 0: the record has 5 bytes"):
        ImageRecordDataset(path)[0]
