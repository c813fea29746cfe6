"""MXNet writes and gluonloader reads many records, and the other way round: images and labels.

GLUONLOADER_RECORDS=100000 exchanges more of them (`nox -s soak`).
"""

import os

import numpy as np
import pytest
from conftest import load, load_mxnet
from record_files import random_records

from gluonloader.records import IndexedRecordIO, RecordFileDataset, pack, pack_img, unpack, unpack_img

RECORDS = int(os.environ.get("GLUONLOADER_RECORDS", "2000"))
MXNET, CV2 = load_mxnet(), load("cv2")
NUMPY = tuple(map(int, np.__version__.split(".")[:2]))


def content(key, data):
    """The label of a record, and its data, or an image if `key` is a multiple of 3 (and OpenCV is installed)."""
    label = float(key) if key % 2 else np.arange(key % 7 + 1, dtype=np.float32)
    if key % 3 or CV2 is None:
        return label, data
    size = 4 + key % 20
    return label, np.frombuffer(data.ljust(3 * size * size, b"x"), np.uint8)[: 3 * size * size].reshape(size, size, 3)


@pytest.mark.soak
@pytest.mark.skipif(MXNET is None or NUMPY >= (2, 3), reason="needs MXNet, and NumPy with `tostring`")
@pytest.mark.filterwarnings("ignore:tostring:DeprecationWarning")  # of MXNet
def test_many_records_are_exchanged_with_mxnet(tmp_path):
    recordio = MXNET.recordio
    datas = random_records(RECORDS, seed=1, most=2000)
    theirs = recordio.MXIndexedRecordIO(f"{tmp_path}/theirs.idx", f"{tmp_path}/theirs.rec", "w")
    with IndexedRecordIO(tmp_path / "ours.rec", "w") as ours:
        for key, (label, data) in enumerate(map(content, range(RECORDS), datas)):
            image, header = isinstance(data, np.ndarray), recordio.IRHeader(0, label, key, 0)
            ours.write_idx(key, (pack_img if image else pack)((0, label, key, 0), data))
            theirs.write_idx(key, (recordio.pack_img if image else recordio.pack)(header, data))
    theirs.close()
    for ending in ("rec", "idx"):
        assert (tmp_path / f"theirs.{ending}").read_bytes() == (tmp_path / f"ours.{ending}").read_bytes()

    reader = recordio.MXIndexedRecordIO(f"{tmp_path}/ours.idx", f"{tmp_path}/ours.rec", "r")
    dataset = RecordFileDataset(tmp_path / "theirs.rec")
    for keys in np.array_split(np.random.default_rng(0).permutation(RECORDS), max(1, RECORDS // 50)):
        for key, record in zip(keys.tolist(), dataset.__getitems__(keys), strict=True):
            assert record == reader.read_idx(key)
            label, wanted = content(key, datas[key])
            image = isinstance(wanted, np.ndarray)
            header, data = (unpack_img if image else unpack)(record)
            their_header, their_data = (recordio.unpack_img if image else recordio.unpack)(record)
            assert np.array_equal(header.label, label)
            assert np.array_equal(header.label, their_header.label)
            assert header.id == their_header.id == key
            assert np.array_equal(data, their_data)
            assert image or data == wanted
