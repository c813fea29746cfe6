"""Files that were truncated or changed: an error that names the file and the byte, or what MXNet reads, never less.

GLUONLOADER_DAMAGES=1000 tries more of them (`nox -s soak`).
"""

import json
import os
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from conftest import load_mxnet, run_program
from record_files import CASES, MAGIC, random_records, write

from gluonloader import AsList
from gluonloader.errors import RecordError
from gluonloader.records import IndexedRecordIO, RecordFileDataset
from gluonloader.records.frames import mapped, spans_of

DAMAGES = int(os.environ.get("GLUONLOADER_DAMAGES", "40"))
MXNET = load_mxnet()
needs_mxnet = pytest.mark.skipif(MXNET is None, reason="needs MXNet")


# Reads every record of each file by key, and prints it, or the kind of the error; null if MXNet crashes.
READ_BY_MXNET = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
from gluonloader.mxnet import patch_numpy
patch_numpy()
from mxnet.recordio import MXIndexedRecordIO

def read(file, key):
    try:
        record = file.read_idx(key)
        return record if record is None else record.hex()
    except Exception as error:
        return [type(error).__name__]

def read_all(name):
    try:
        file = MXIndexedRecordIO(name + ".idx", name + ".rec", "r")
        return [read(file, key) for key in file.keys]
    except Exception as error:
        return type(error).__name__

for name in sys.argv[1:]:
    if not (child := os.fork()):
        print(json.dumps(read_all(name)), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print("null", flush=True)
"""


def read_by_mxnet(names):
    """What MXNet reads in each file: records (or [error]), the error of the file, or None if MXNet crashed."""
    done = run_program(READ_BY_MXNET, *map(str, names), seconds=300)
    results = list(map(json.loads, done.stdout.splitlines()))
    assert len(results) == len(names), done.stderr
    return [
        [bytes.fromhex(record) if isinstance(record, str) else record for record in result]
        if isinstance(result, list)
        else result
        for result in results
    ]


def read(path):
    """Each record, or its error; the error of the file if it cannot be opened."""
    try:
        dataset = RecordFileDataset(path)
    except RecordError as error:
        return error
    return [one(dataset, number) for number in range(len(dataset))]


def one(dataset, number):
    try:
        return dataset[number]
    except RecordError as error:
        return error


def spans(path):
    """The data of each record, as a list of (first byte, byte after the last)."""
    file, at, found = mapped(path), 0, []
    while at < len(file):
        data, at = spans_of(file, at, len(file), path)
        found.append(data)
    return found


def damage(rng, path, name, ending):
    """Copies both files to `name`, and truncates the file with this ending or changes a bit; returns its number."""
    bit = None
    for other in ("rec", "idx"):
        data = bytearray(Path(f"{path}.{other}").read_bytes())
        if other == ending:
            if rng.random() < 0.3:
                del data[int(rng.integers(0, len(data))) :]
            else:
                bit = int(rng.integers(0, 8 * len(data)))
                data[bit // 8] ^= 1 << bit % 8
        Path(f"{name}.{other}").write_bytes(data)
    return bit


@needs_mxnet
@pytest.mark.soak
@pytest.mark.parametrize("ending", ["rec", "idx"])
def test_damaged_files_are_read_as_by_mxnet_or_raise(ending, tmp_path):
    check_damages(ending, tmp_path, DAMAGES // 2, read_by_mxnet)


@pytest.mark.parametrize("ending", ["rec", "idx"])
def test_damaged_files_raise_or_have_only_their_data_changed(ending, tmp_path):
    check_damages(ending, tmp_path, 10 * DAMAGES, None)


def check_damages(ending, folder, count, read_by_others):
    rng = np.random.default_rng(0)
    records = random_records(30, most=60) + CASES
    path = write(folder / "whole", records)
    whole = path.removesuffix(".rec")
    data = spans(path)
    names = [folder / str(number) for number in range(count)]
    bits = [damage(rng, whole, name, ending) for name in names]
    others = read_by_others(names) if read_by_others else [None] * count
    raised = 0
    for name, bit, theirs in zip(names, bits, others):
        ours = read(f"{name}.rec")
        raised += isinstance(ours, RecordError) or any(isinstance(record, RecordError) for record in ours)
        if ending == "rec":
            check_file(records, data, bit, ours)
        else:
            check_index(records, bit, ours)
        if theirs is not None and not isinstance(ours, RecordError):
            for ours_read, theirs_read in zip(ours, theirs, strict=True):
                assert isinstance(ours_read, RecordError) or ours_read == theirs_read
    assert raised > count / 4


def check_file(records, data, bit, ours):
    """The damage is in the file: an error, unless it is in the data of a record."""
    if bit is None:
        assert_error(ours)
        return
    byte = bit // 8
    owner = next((number for number, parts in enumerate(data) if any(a <= byte < b for a, b in parts)), None)
    if owner is not None:
        changed = bytearray(records[owner])
        (part,) = [number for number, (a, b) in enumerate(data[owner]) if a <= byte < b]
        before = sum(b - a + 4 for a, b in data[owner][:part])
        changed[before + byte - data[owner][part][0]] ^= 1 << bit % 8
        assert ours == [bytes(changed) if number == owner else record for number, record in enumerate(records)]
    elif isinstance(ours, RecordError):
        assert_error(ours)
    else:
        differ = [(record, found) for record, found in zip(records, ours, strict=True) if record != found]
        ((record, found),) = differ  # the other records are whole
        if isinstance(found, RecordError):
            assert_error(found)
        else:  # a length that differs by zeros at the end, which the format cannot tell from the padding
            assert record.rstrip(b"\0") == found.rstrip(b"\0")
            assert len(record) // 4 == (len(found) - 1) // 4 or (len(record) - 1) // 4 == len(found) // 4


def check_index(records, bit, ours):
    """The damage is in the index: an error, or the key of a record is another, which is as right as before."""
    if isinstance(ours, RecordError):
        assert_error(ours, offset=False)
    else:
        assert [record for record in ours if not isinstance(record, RecordError)] == [
            record for record, found in zip(records, ours, strict=True) if not isinstance(found, RecordError)
        ]


def assert_error(error, offset=True):
    assert isinstance(error, RecordError)
    assert error.file
    assert error.offset is not None or not offset
    assert re.match(rf"{re.escape(error.file)}(, byte {error.offset})?: .", str(error))


# -- each damage by itself ---------------------------------------------------------------------------------------------

WORDS = [b"first", MAGIC + b"second", b"third"]  # at the bytes 0, 16 and 40


def changed(path, at, data):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def header(flag, length):
    return struct.pack("<I", flag << 29 | length)


@pytest.mark.parametrize(
    ("at", "data", "number", "offset", "text"),
    [
        (0, b"x", 0, 0, "should start here with 0a23d7ce, but the bytes here are 7823d7ce"),
        (24, b"\0", 1, 24, "should start here with 0a23d7ce, but the bytes here are 0023d7ce"),
        (4, header(4, 5), 0, 0, "a record should start here, but the flag of this frame is 4"),
        (4, header(3, 5), 0, 0, "a record should start here, but the flag of this frame is 3"),
        (4, header(1, 8), 0, 16, "a frame should start here, but only 0 bytes are left for the frame"),
        (20, header(0, 0), 1, 16, "this record ends at byte 24, but the next record of the index starts at byte 40"),
        (4, header(0, (1 << 29) - 1), 0, 0, "need 536870912 bytes, but only 8 bytes are left"),
        (4, header(0, 1), 0, 0, "the length 1 of this frame is wrong"),
        (4, header(0, 6 + 3), 0, 0, "need 12 bytes, but only 8 bytes are left"),
        (15, b"\1", 0, 0, "the length 5 of this frame is wrong"),
        (20, header(1, 1), 1, 16, "the length 1 of this frame is wrong"),
    ],
)
def test_a_damaged_frame_is_named(tmp_path, at, data, number, offset, text):
    path = write(tmp_path / "r", WORDS)
    changed(path, at, data)
    dataset = RecordFileDataset(path)
    for index in {0, 1, 2} - {number}:
        assert dataset[index] == WORDS[index]
    for call in (lambda: dataset[number], lambda: dataset.__getitems__([2, number])):
        with pytest.raises(RecordError, match=re.escape(text)) as caught:
            call()
        assert (caught.value.file, caught.value.offset) == (path, offset)
        assert str(caught.value).startswith(f"{path}, byte {offset}: ")


def test_a_loader_raises_the_error_and_continues_with_the_next_batch(tmp_path, any_way):
    path = write(tmp_path / "r", WORDS)
    changed(path, 16, b"\0")
    with any_way.loader(RecordFileDataset(path), 1, batchify_fn=AsList()) as loader:
        batches = iter(loader)
        assert next(batches) == WORDS[:1]
        with pytest.raises(RecordError, match="a frame should start here") as caught:
            next(batches)
        assert (caught.value.file, caught.value.offset) == (path, 16)
        assert next(batches) == WORDS[2:]


def test_a_part_that_swallows_the_next_is_noticed(tmp_path):
    path = write(tmp_path / "r", [b"abcd" + MAGIC + b"efgh" + MAGIC + b"ijkl"])
    changed(path, 4, header(1, 4 + 12))
    with pytest.raises(RecordError, match="16 bytes of data starts here, but at byte 12 a frame starts in it"):
        RecordFileDataset(path)[0]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["0\t0", "1\t16"], "lists no record between this byte and byte 56; rebuild the index"),
        (["1\t16", "2\t40"], "lists no record between this byte and byte 16; rebuild the index"),
        ([], "lists no record between this byte and byte 56; rebuild the index"),
        (["0\t0", "1\t16", "2\t56"], "record 2 of .* should start here, but the file has only 56 bytes; it is"),
        (["0\t0", "1\t16", "2\t16"], "records 1 and 2 of .* should both start here"),
        (["0\t0", "1\t16", "1\t40"], "two lines have the key 1; rebuild"),
        (["0\t0", "1\t16", "240"], r"r\.idx, byte 9: line 3 is .*: a line must contain a key, a tab and an offset"),
        (["0\t0", "1\t-16", "2\t40"], r"r\.idx, byte 4: line 2"),
        (["0\t0", "x\t16", "2\t40"], r"r\.idx, byte 4: line 2 .* the key must be of type int"),
        (["0\t0", "1\t16", "2\t" + "9" * 30], r"r\.idx, byte 9: line 3"),
        (["0\t0", "1\t16", "2\t40", ""], r"r\.idx, byte 14: line 4"),
    ],
)  # fmt: skip
def test_a_wrong_index_is_refused(tmp_path, lines, text):
    path = write(tmp_path / "r", WORDS)
    (tmp_path / "r.idx").write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(RecordError, match=text):
        RecordFileDataset(path)


@pytest.mark.parametrize("offset", [4, 18, 24, 41])
def test_an_offset_where_no_record_starts_is_refused(tmp_path, offset):
    path = write(tmp_path / "r", WORDS)
    (tmp_path / "r.idx").write_text(f"0\t0\n1\t{offset}\n2\t40\n")
    with pytest.raises(RecordError) as caught:
        print(list(RecordFileDataset(path)))
    assert caught.value.offset in (0, offset, 40)


def test_a_partial_index_is_read_if_it_is_declared(tmp_path):
    path = write(tmp_path / "r", WORDS)
    middle = "this record ends at byte 16, but the next record of the index starts.*partial=True"
    for lines, wanted, text in (
        ("7\t16\n", [WORDS[1]], "partial=True"),
        ("0\t0\n2\t40\n", WORDS[::2], middle),
        ("", [], "partial=True"),
    ):
        (tmp_path / "r.idx").write_text(lines)
        assert list(RecordFileDataset(path, partial=True)) == wanted
        with pytest.raises(RecordError, match=text):
            list(RecordFileDataset(path))
    (tmp_path / "r.idx").write_text("0\t0\n2\t40\n")
    changed(path, 4, header(0, 5 + 24))
    with pytest.raises(RecordError):
        IndexedRecordIO(path, partial=True).read_idx(0)
