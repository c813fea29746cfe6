"""RecordIO files: what is written is read, byte for byte as with MXNet, in every process and thread."""

import concurrent.futures
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from bulk_reads import assert_bulk_is_the_same
from conftest import in_child, load_mxnet, run_program
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from record_files import CASES, MAGIC, random_records, write

from gluonloader import AsList, DataLoader
from gluonloader.__main__ import main
from gluonloader.declared import draws, is_gil_free
from gluonloader.errors import RecordError
from gluonloader.records import IndexedRecordIO, RecordFileDataset, build_index

MXNET = load_mxnet()
needs_mxnet = pytest.mark.skipif(MXNET is None, reason="needs MXNet")


def files(name):
    return [Path(f"{name}.{ending}").read_bytes() for ending in ("rec", "idx")]


@pytest.fixture
def cases(tmp_path):
    return write(tmp_path / "cases", CASES)


@needs_mxnet
@pytest.mark.parametrize("records", [CASES, random_records(300)], ids=["cases", "random"])
def test_the_files_are_those_of_mxnet(records, tmp_path):
    theirs = MXNET.recordio.MXIndexedRecordIO(f"{tmp_path}/theirs.idx", f"{tmp_path}/theirs.rec", "w")
    for key, record in enumerate(records):
        theirs.write_idx(key * 3, record)
    theirs.close()
    ours = write(tmp_path / "ours", records, range(0, 3 * len(records), 3))
    assert files(tmp_path / "ours") == files(tmp_path / "theirs")
    assert list(RecordFileDataset(f"{tmp_path}/theirs.rec")) == records
    reader = MXNET.recordio.MXIndexedRecordIO(f"{tmp_path}/ours.idx", ours, "r")
    assert [reader.read_idx(key) for key in reader.keys] == records


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.sampled_from([MAGIC, b"\x0a", b"abcd", b"\0", MAGIC[1:]]), max_size=6), max_size=5))
def test_any_records_are_read_as_they_were_written(tmp_path, pieces):
    records = list(map(b"".join, pieces))
    path = write(tmp_path / "r", records)
    assert list(RecordFileDataset(path)) == records
    assert len(files(tmp_path / "r")[0]) % 4 == 0


def test_records_are_read_by_index_and_in_bulk(cases):
    dataset = RecordFileDataset(cases)
    assert len(dataset) == len(CASES)
    assert (dataset[5], dataset[-1], dataset[np.int64(0)]) == (CASES[5], CASES[-1], CASES[0])
    for indices in ([3, 0, 14, 3, -1], [4, 5, 6], [], np.array([11, 2])):
        assert_bulk_is_the_same(dataset, indices)
    with pytest.raises(IndexError, match=f"index {len(CASES)} is out of range"):
        dataset[len(CASES)]
    assert is_gil_free(dataset)
    assert not draws(dataset)
    assert repr(dataset) == f"RecordFileDataset({cases!r})"


def test_samples_are_in_the_order_of_the_index_and_keys_may_be_any(tmp_path):
    path = write(tmp_path / "r", [b"a", b"b", b"c"], [30, -1, 7])
    assert RecordFileDataset(path).keys == [30, -1, 7]
    lines = (tmp_path / "r.idx").read_text().splitlines(keepends=True)
    (tmp_path / "r.idx").write_text("".join(reversed(lines)))
    dataset = RecordFileDataset(path)
    assert (dataset.keys, list(dataset)) == ([7, -1, 30], [b"c", b"b", b"a"])
    file = IndexedRecordIO(path)
    assert [file.read_idx(key) for key in (30, 7, -1)] == [b"a", b"c", b"b"]
    with pytest.raises(KeyError):
        file.read_idx(0)
    if MXNET:
        assert list(MXNET.gluon.data.RecordFileDataset(path)) == list(dataset)


def test_keys_of_text(tmp_path):
    with IndexedRecordIO(tmp_path / "r.rec", "w", key_type=str) as file:
        file.write_idx("ä b", b"1")
        file.write_idx(2, memoryview(b"22"))
        assert (file.keys, len(file)) == (["ä b", "2"], 2)
        for key in ("tab\t", " b", "", "line\nbreak"):
            with pytest.raises(ValueError, match="key="):
                file.write_idx(key, b"")
    file = IndexedRecordIO(tmp_path / "r.rec", key_type=str)
    assert (file.read_idx("ä b"), file.read_idx("2")) == (b"1", b"22")
    with pytest.raises(RecordError, match=r"r\.idx, byte 0: line 1 is .*: the key must be of type int; pass another"):
        RecordFileDataset(tmp_path / "r.rec")


def test_an_index_may_have_another_name_and_is_built_from_the_records(cases, tmp_path):
    assert build_index(cases, tmp_path / "other.idx") == len(CASES)
    assert (tmp_path / "other.idx").read_bytes() == (tmp_path / "cases.idx").read_bytes()
    assert list(RecordFileDataset(cases, index=tmp_path / "other.idx")) == CASES
    (tmp_path / "cases.idx").unlink()
    with pytest.raises(FileNotFoundError, match=r"build_index\('.*cases.rec'\)"):
        RecordFileDataset(cases)
    build_index(cases)
    assert list(RecordFileDataset(cases)) == CASES
    assert sorted(os.listdir(tmp_path)) == ["cases.idx", "cases.rec", "other.idx"]


def test_an_index_is_not_replaced_if_the_file_is_damaged(cases, tmp_path):
    before = files(tmp_path / "cases")
    os.truncate(cases, len(before[0]) - 4)
    with pytest.raises(RecordError):
        build_index(cases)
    assert files(tmp_path / "cases")[1] == before[1]


def test_an_empty_file(tmp_path):
    path = write(tmp_path / "r", [])
    assert list(RecordFileDataset(path)) == RecordFileDataset(path).__getitems__([]) == []
    assert build_index(path) == 0


def test_a_pipe_is_not_read_as_an_empty_file(tmp_path):
    """Such as `records check <(zcat o.rec.gz)`; the size of a pipe is 0."""
    read, write = os.pipe()
    try:
        with pytest.raises(OSError, match=f"only regular files can be mapped; .*: '/dev/fd/{read}'"):
            build_index(f"/dev/fd/{read}", tmp_path / "o.idx")
        assert main(["records", "check", f"/dev/fd/{read}"]) == 2
    finally:
        os.close(read)
        os.close(write)


def test_a_dataset_loads_in_all_ways(cases, every_way):
    with every_way.loader(RecordFileDataset(cases), 4, shuffle=True, batchify_fn=AsList()) as loader:
        for _ in range(2):
            assert sorted(sum(loader, [])) == sorted(CASES)


def test_threads_read_at_the_same_time(tmp_path):
    records = random_records(200, most=3000)
    dataset = RecordFileDataset(write(tmp_path / "r", records))
    order = np.random.default_rng(0).integers(0, 200, 4000).tolist()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(dataset.__getitem__, order)) == [records[index] for index in order]


def test_a_pickled_dataset_contains_only_the_paths(tmp_path):
    dataset = RecordFileDataset(write(tmp_path / "r", random_records(500)))
    pickled = pickle.dumps(dataset)
    assert len(pickled) < 1000
    assert list(pickle.loads(pickled)) == list(dataset)
    assert len(pickle.loads(pickle.dumps(IndexedRecordIO(tmp_path / "r.rec")))) == 500
    write(tmp_path / "r", [b"other"])
    with pytest.raises(RecordError, match="has 16 bytes and 1 records, but it had .* when the dataset was pickled"):
        pickle.loads(pickled)


def test_a_subclass_that_reads_otherwise_is_read_one_by_one(cases):
    class Sizes(RecordFileDataset):
        def __getitem__(self, index):
            return len(super().__getitem__(index))

    assert not hasattr(Sizes(cases), "__getitems__")
    assert list(DataLoader(Sizes(cases), len(CASES)))[0].tolist() == list(map(len, CASES))


@pytest.mark.skipif(sys.version_info < (3, 13), reason="older versions of Python keep a descriptor for a mapping")
def test_an_open_dataset_needs_no_descriptor(cases):
    before = len(os.listdir("/proc/self/fd"))
    datasets = [RecordFileDataset(cases) for _ in range(10)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert all(dataset[1] == b"a" for dataset in datasets)


# -- writing -----------------------------------------------------------------------------------------------------------


def test_a_key_is_written_once(tmp_path):
    with IndexedRecordIO(tmp_path / "r.rec", "w") as file:
        file.write_idx(1, b"a")
        with pytest.raises(ValueError, match="key=1: another record has this key"):
            file.write_idx(1, b"b")
    assert list(RecordFileDataset(tmp_path / "r.rec")) == [b"a"]


def test_each_mode_refuses_the_calls_of_the_other(cases, tmp_path):
    with pytest.raises(ValueError, match='open it with mode="w"'):
        IndexedRecordIO(cases).write_idx(99, b"")
    with IndexedRecordIO(tmp_path / "w.rec", "w") as file:
        with pytest.raises(ValueError, match='open it with mode="r"'):
            file.read_idx(0)
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(file)
        with pytest.raises(TypeError):
            file.write_idx(0, "text")
    with pytest.raises(ValueError, match="the path of the index is the argument `index`"):
        IndexedRecordIO("r.idx", "r.rec", "r")  # the order of MXNet's arguments
    with pytest.raises(ValueError, match="is the path of the index; pass the path of the .rec file"):
        RecordFileDataset(tmp_path / "w.idx")
    file = IndexedRecordIO(cases)
    file.close()
    file.close()
    assert pickle.loads(pickle.dumps(file)).keys == file.keys
    with pytest.raises(ValueError, match=r"cases.rec: the file is closed; open it again to read"):
        file.read_idx(0)
    with IndexedRecordIO(tmp_path / "w.rec", "w") as file:
        pass
    with pytest.raises(ValueError, match=r"w.rec: the file is closed; write all records before"):
        file.write_idx(0, b"")


def test_a_key_that_the_index_does_not_contain_is_named(cases, tmp_path):
    with pytest.raises(KeyError, match=r"cases.rec: no record has the key '1', and the first key is 0; key_type"):
        IndexedRecordIO(cases).read_idx("1")
    with pytest.raises(KeyError, match=r"r.rec: no record has the key 0, and there are no records"):
        IndexedRecordIO(write(tmp_path / "r", [])).read_idx(0)


def test_a_path_may_start_with_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with IndexedRecordIO("~/r.rec", "w") as file:
        file.write_idx(0, b"a")
    assert build_index("~/r.rec", "~/other.idx") == 1
    assert sorted(os.listdir(tmp_path)) == ["other.idx", "r.idx", "r.rec"]
    for path in ("~/r.rec", os.fsencode(tmp_path / "r.rec")):
        assert list(RecordFileDataset(path)) == [b"a"]
    assert IndexedRecordIO("~/r.rec", index="~/other.idx").read_idx(0) == b"a"


def test_a_forked_process_changes_nothing_that_its_parent_wrote(tmp_path):
    read, write = os.pipe()
    with IndexedRecordIO(tmp_path / "r.rec", "w") as file:
        file.write_idx(0, b"a")
        if not (child := os.fork()):
            try:
                os.read(read, 1)
                file.close()
            finally:
                os._exit(0)
        assert "write only in that process" in in_child(lambda: str(file.write_idx(5, b"c")))
        file.write_idx(1, b"b")
        os.write(write, b"x")
        os.waitpid(child, 0)
    os.close(read)
    os.close(write)
    assert list(RecordFileDataset(tmp_path / "r.rec")) == [b"a", b"b"]


def test_a_write_that_failed_leaves_no_part_of_a_record(tmp_path, monkeypatch):
    """The disk is full after half of the record."""
    pwrite = os.pwrite
    full = []

    def fails_at_once(descriptor, data, offset):
        if full:
            raise OSError(28, "No space left on device")
        full.append(len(data) > 50)
        if full.pop():
            full.append(True)
            return pwrite(descriptor, data[:20], offset)
        return pwrite(descriptor, data, offset)

    with IndexedRecordIO(tmp_path / "r.rec", "w") as file:
        file.write_idx(0, b"a")
        monkeypatch.setattr(os, "pwrite", fails_at_once)
        with pytest.raises(OSError, match="No space left"):
            file.write_idx(1, b"b" * 100)
        monkeypatch.undo()
        assert len(file) == 1
        file.write_idx(2, b"c")
        monkeypatch.setattr(os, "pwrite", fails_at_once)
        with pytest.raises(OSError, match="No space left"):
            file.write_idx(1, b"b" * 100)
    monkeypatch.undo()
    dataset = RecordFileDataset(tmp_path / "r.rec")
    assert (dataset.keys, list(dataset)) == ([0, 2], [b"a", b"c"])


@pytest.mark.spawn
def test_a_killed_writer_leaves_whole_records(tmp_path):
    code = """if True:
        import os, signal, sys
        from gluonloader.records import IndexedRecordIO
        file = IndexedRecordIO(sys.argv[1], "w")
        for key in range(100):
            file.write_idx(key, b"%d" % key)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    run_program(code, f"{tmp_path}/r.rec")
    assert list(RecordFileDataset(tmp_path / "r.rec")) == [b"%d" % key for key in range(100)]


@pytest.mark.slow
def test_a_record_has_less_than_half_a_gigabyte(tmp_path):
    with IndexedRecordIO(tmp_path / "r.rec", "w") as file:
        with pytest.raises(RecordError, match="record 0 has 536870912 bytes, but a record can have at most 536870911"):
            file.write_idx(0, bytes(1 << 29))
