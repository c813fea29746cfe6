"""`NpyDataset`, `H5Dataset`, `ZarrDataset`: samples and batches are those of the arrays; what travels is the path."""

import os
import pickle
import sys
import tracemalloc

import numpy as np
import pytest
from bulk_reads import assert_bulk_is_the_same, assert_same
from conftest import FORK, SERIAL, load
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_files import COLUMNS, KINDS, LENGTH, write_h5, write_npy

import gluonloader as gl
from gluonloader.declared import draws, in_memory, is_gil_free
from gluonloader.errors import ColumnError, MissingExtraError
from gluonloader.options import OnError

h5py, zarr = load("h5py"), load("zarr")


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request):
    if request.param.library is None:
        pytest.skip(f"needs the library for {request.param.name}")
    return request.param


@pytest.mark.parametrize("chunk", [7, 0])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_reads_as_the_array_does(kind, name, chunk, tmp_path):
    column = COLUMNS[name]
    kind.write(tmp_path, {name: column}, chunk)
    dataset, array = kind.open(tmp_path, name), gl.ArrayDataset(column)
    assert len(dataset) == LENGTH
    for index in (0, -1, np.int64(5)):
        assert type(dataset[index]) is type(array[index])
        assert np.array_equal(dataset[index], array[index])
    for indices in ([3, 0, 40, 3, -1], [4, 5, 6], [9], list(range(40, 0, -2)), np.array([1, 30])):
        assert_bulk_is_the_same(dataset, indices)
        if name != "records":  # of which default_batchify makes no batch
            batch = gl.default_batchify(dataset.__getitems__(indices))
            assert_same(batch, gl.default_batchify(array.__getitems__(indices)))
    assert len(dataset.__getitems__([])) == 0


@pytest.mark.parametrize("chunk", [7, 0])
@pytest.mark.parametrize("width", [3, 2500])  # small rows are read with what lies between them, large ones are not
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(indices=st.lists(st.integers(-LENGTH, LENGTH - 1), min_size=1, max_size=60))
def test_any_order_and_repetition(kind, chunk, width, tmp_path, indices):
    columns = {"x": np.arange(LENGTH * width, dtype=np.int64).reshape(LENGTH, width), "labels": COLUMNS["labels"]}
    if not any(tmp_path.iterdir()):
        kind.write(tmp_path, columns, chunk)
    dataset = kind.open(tmp_path, "x", "labels")
    expected = gl.ArrayDataset(*columns.values()).__getitems__(indices)
    assert_same(gl.default_batchify(dataset.__getitems__(indices)), gl.default_batchify(expected))
    assert_bulk_is_the_same(dataset, indices)


def test_rows_without_values_may_be_far_apart(kind, tmp_path):
    kind.write(tmp_path, {"nothing": np.zeros((400, 0, 2), np.int8)}, 0)
    rows = kind.open(tmp_path, "nothing").__getitems__(np.arange(20) ** 2)
    assert gl.default_batchify(rows).shape == (20, 0, 2)


def test_what_lies_between_large_rows_is_not_read(kind, tmp_path):
    kind.write(tmp_path, {"x": np.ones((16, 1_000_000), np.uint8)}, 1)
    dataset = kind.open(tmp_path, "x")
    tracemalloc.start()
    try:
        assert gl.default_batchify(dataset.__getitems__([15, 0])).all()
        assert tracemalloc.get_traced_memory()[1] < 8e6
    finally:
        tracemalloc.stop()


def test_one_column_several_and_by_name(kind, tmp_path):
    kind.write(tmp_path)
    assert kind.open(tmp_path, "labels")[13] == 3
    image, label = kind.open(tmp_path, "images", "labels")[13]
    assert image.shape == (2, 3)
    assert label == 3
    assert list(kind.open(tmp_path, x="images", y="labels")[13]) == ["x", "y"]
    batch = gl.default_batchify(kind.open(tmp_path, x="images", y="labels").__getitems__([1, 12]))
    assert batch["y"].tolist() == [1, 2]


def test_every_way_gives_the_batches_of_the_arrays(kind, every_way, tmp_path):
    kind.write(tmp_path)
    stored, arrays = kind.open(tmp_path, "images", "labels"), gl.ArrayDataset(COLUMNS["images"], COLUMNS["labels"])
    assert stored[0][1] == 0  # what is open in this process is of no use to others
    with every_way.loader(stored, 8, shuffle=True) as one, SERIAL.loader(arrays, 8, shuffle=True) as other:
        for _ in range(2):
            for left, right in zip(one, other, strict=True):
                assert_same(left, right)


def test_the_path_is_pickled_and_not_the_data(kind, tmp_path, monkeypatch):
    kind.write(tmp_path, {"x": np.arange(100_000)}, 50_000)
    monkeypatch.chdir(tmp_path)
    dataset = kind.open(type(tmp_path)(), "x")  # a relative path
    assert dataset[7] == 7
    monkeypatch.chdir("/")
    sent = pickle.dumps(dataset)
    assert len(sent) < 1000
    assert pickle.loads(sent)[-1] == 99_999


def zeroed(image):
    found = int(image.sum())
    image[:] = 0
    return found


@pytest.mark.parametrize("indices", [[2, 0, 2], [40, 0, 40], [0, 1, 2]])
def test_a_sample_that_is_written_to_is_nobody_elses(kind, indices, tmp_path):
    if kind.name == "npy":
        pytest.skip("its samples are views that cannot be written to")
    kind.write(tmp_path, {"x": np.arange(LENGTH * 2).reshape(LENGTH, 2)})
    dataset = kind.open(tmp_path, "x").transform(zeroed)
    for _ in range(2):
        assert list(dataset.__getitems__(indices)) == [4 * index + 1 for index in indices]


@pytest.mark.parametrize("index", [LENGTH, -LENGTH - 1])
def test_an_index_out_of_range_is_named(kind, index, tmp_path):
    kind.write(tmp_path)
    dataset = kind.open(tmp_path, "images", "labels")
    for read in (lambda: dataset[index], lambda: gl.default_batchify(dataset.__getitems__([0, index]))):
        with pytest.raises(IndexError, match=f"index {index} is out of range for {LENGTH}"):
            read()


def test_wrong_columns_are_refused(kind, tmp_path):
    kind.write(tmp_path, {"x": np.arange(3), "short": np.arange(2), "single": np.array(1)}, 0)
    with pytest.raises(ValueError, match="short.* has length 2, but .*x.* has length 3"):
        kind.open(tmp_path, "x", "short")
    with pytest.raises(ValueError, match="single.*a single value"):
        kind.open(tmp_path, "single")
    with pytest.raises(ValueError, match="either all by position or all by keyword"):
        kind.open(tmp_path, "x", y="x")
    if kind.name == "npy":
        with pytest.raises(ValueError, match="at least one"):
            kind.open(tmp_path)
        return
    with pytest.raises(ValueError, match=r"there is no array named 'y'; the names are \['short', 'single', 'x'\]"):
        kind.open(tmp_path, "y")
    with pytest.raises((FileNotFoundError, ColumnError)) as caught:
        kind.open(tmp_path / "elsewhere", "x")
    assert "elsewhere" in "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def test_what_is_already_open_is_refused(tmp_path):
    h5py, zarr = pytest.importorskip("h5py"), pytest.importorskip("zarr")
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for argument, kind, source in (("path", gl.tables.H5Dataset, file), ("store", gl.tables.ZarrDataset, group)):
            with pytest.raises(ValueError, match=rf"^{argument}=<.*>: it is already open; pass its path"):
                kind(source, "x")


def test_no_rows_at_all(kind, tmp_path):
    kind.write(tmp_path, {"x": np.zeros((0, 3))}, 0 if kind.name != "zarr" else 1)
    dataset = kind.open(tmp_path, "x")
    assert len(dataset) == 0
    assert list(dataset) == []


def test_files_of_npy_are_arrays_in_memory(tmp_path):
    write_npy(tmp_path, COLUMNS, 0)
    dataset = gl.tables.NpyDataset(tmp_path / "images.npy", tmp_path / "labels.npy")
    assert in_memory(dataset)
    assert is_gil_free(dataset)
    assert not draws(dataset)
    assert not dataset[0][0].flags.writeable
    with SERIAL.loader(dataset, 8) as loader:
        for images, _ in loader:
            images[:] = -1
    assert dataset[0][0].tolist() == COLUMNS["images"][0].tolist()


def test_what_cannot_be_mapped_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    np.save(tmp_path / "o.npy", np.array([{}, None]))
    (tmp_path / "empty.npy").touch()
    for name in ("a.npz", "o.npy", "empty.npy"):
        with pytest.raises(ColumnError, match=rf"{name}: it cannot be memory-mapped .*; pass a file that np.save"):
            gl.tables.NpyDataset(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        gl.tables.NpyDataset(tmp_path / "none.npy")
    with pytest.raises(IsADirectoryError):
        gl.tables.NpyDataset(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"(20, 3), }", b"(20, 3   }"),
        (b"(20, 3), }", b"(20, 3)[ }"),
        (b"(20, 3), }", b"(020, 3),}"),
        (b"(20, 3), }", b"(-2, 3), }"),
        (b"(20, 3), }", b"( 2, 3), }"),
        (b"(20, 3), }", b"(99, 3), }"),
        (b"(20, 3), }", b"(9**9, ),}"),
        (b"'<f8'", b"'zzz'"),
        (b"'<f8'", b"\xff\xfe\xfd\xfc'"),
        (b"False", b"Maybe"),
        (b"NUMPY\x01", b"NUMPY\x09"),
    ],
    ids=str,
)
def test_damaged_headers_of_npy_are_errors_that_name_the_file(old, new, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((20, 3)))
    whole = (tmp_path / "a.npy").read_bytes()
    assert whole.count(old) == 1
    (tmp_path / "a.npy").write_bytes(whole.replace(old, new))
    with pytest.raises(ColumnError, match="copy it again if it is damaged") as caught:
        gl.tables.NpyDataset(tmp_path / "a.npy")
    assert caught.value.file == str(tmp_path / "a.npy")


def test_layouts_and_versions_of_npy(tmp_path):
    rows = np.arange(12).reshape(4, 3)
    np.save(tmp_path / "fortran.npy", np.asfortranarray(rows))
    for version in ((1, 0), (2, 0), (3, 0)):
        with open(tmp_path / f"{version[0]}.npy", "wb") as file:
            np.lib.format.write_array(file, rows, version=version)
    for name in ("fortran", "1", "2", "3"):
        assert_bulk_is_the_same(gl.tables.NpyDataset(tmp_path / f"{name}.npy"), [2, 0, 3])
        assert gl.tables.NpyDataset(tmp_path / f"{name}.npy")[2].tolist() == [6, 7, 8]
    with open(tmp_path / "two.npy", "wb") as file:
        np.save(file, rows)
        np.save(file, rows)
    with pytest.raises(
        ColumnError, match=r"two.npy: there are \d+ bytes after its array of shape \(4, 3\); write each"
    ):
        gl.tables.NpyDataset(tmp_path / "two.npy")


@pytest.mark.skipif(h5py is None, reason="needs h5py")
def test_text_and_ragged_rows_of_hdf5(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["text"] = ["é", "", "abc"]
        file["bytes"] = [b"x", b"yz", b""]
        file["deep/ragged"] = np.array([np.arange(n) for n in (2, 0, 3)], h5py.vlen_dtype(np.int64))
    dataset = gl.tables.H5Dataset(tmp_path / "a.h5", text="text", data="bytes", ragged="deep/ragged")
    assert dataset[0]["text"] == "é"
    assert dataset[1]["data"] == b"yz"
    assert dataset[2]["ragged"].tolist() == [0, 1, 2]
    samples = dataset.__getitems__([2, 0, 2])
    batch = gl.Dict({"text": gl.default_batchify, "ragged": gl.Pad()})(samples)
    assert batch["text"] == ["abc", "é", "abc"]
    assert batch["ragged"].tolist() == [[0, 1, 2], [0, 1, 0], [0, 1, 2]]
    assert_bulk_is_the_same(gl.tables.H5Dataset(tmp_path / "a.h5", "text", "bytes"), [2, 0, 2])
    with pytest.raises(ValueError, match=r"there is no array named 'deep'; the names are \['ragged'\]"):
        gl.tables.H5Dataset(tmp_path / "a.h5", "deep")


@pytest.mark.skipif(h5py is None, reason="needs h5py")
def test_a_forked_process_opens_the_file_itself(tmp_path, no_leaks):
    write_h5(tmp_path, {"x": np.zeros(8)}, 0)
    dataset = gl.tables.H5Dataset(tmp_path / "a.h5", "x")
    assert dataset[0] == 0  # now it is open here
    (tmp_path / "new").mkdir()
    write_h5(tmp_path / "new", {"x": np.ones(8)}, 0)
    os.replace(tmp_path / "new" / "a.h5", tmp_path / "a.h5")
    with FORK.loader(dataset, 8) as loader:
        assert next(iter(loader)).tolist() == [1] * 8
    assert dataset[0] == 0


@pytest.mark.skipif(h5py is None, reason="needs h5py")
def test_hdf5_goes_to_processes(tmp_path):
    write_h5(tmp_path, COLUMNS, 7)
    with gl.DataLoader(gl.tables.H5Dataset(tmp_path / "a.h5", "labels"), 8, num_workers=1, executor="auto") as loader:
        assert sum(map(len, loader)) == LENGTH
        assert loader.stats().executor == "process"


@pytest.mark.skipif(zarr is None, reason="needs zarr")
def test_text_one_array_and_groups_of_zarr(tmp_path):
    group = zarr.open_group(str(tmp_path / "a.zarr"), mode="w")
    if hasattr(group, "create_array"):
        text = group.create_array("text", shape=(3,), chunks=(2,), dtype=str)
    else:
        text = group.create_dataset("text", shape=(3,), dtype=object, object_codec=load("numcodecs").VLenUTF8())
    text[:] = np.array(["é", "", "abc"], object)
    inner = group.create_group("deep")
    (getattr(inner, "create_array", None) or inner.create_dataset)("x", data=np.arange(3), chunks=(2,))
    dataset = gl.tables.ZarrDataset(tmp_path / "a.zarr", "text", "deep/x")
    assert dataset[0] == ("é", 0)
    assert_bulk_is_the_same(dataset, [2, 0, 2])
    assert gl.tables.ZarrDataset(tmp_path / "a.zarr" / "deep" / "x")[2] == 2
    assert gl.tables.ZarrDataset(group.store, "deep/x")[1] == 1
    with pytest.raises(ValueError, match=r"there is no array named 'deep'; the names are \['x'\]"):
        gl.tables.ZarrDataset(tmp_path / "a.zarr", "deep")
    with pytest.raises(ValueError, match="it is a single array without names; remove the name 'x'"):
        gl.tables.ZarrDataset(tmp_path / "a.zarr" / "deep" / "x", "x")
    with pytest.raises(ValueError, match=r"there is no array named ''; the names are \['deep', 'text'\]"):
        gl.tables.ZarrDataset(tmp_path / "a.zarr")


@pytest.mark.parametrize("name", ["h5", "zarr"])
def test_blocks_are_the_chunks_of_the_first_column(name, tmp_path):
    (kind,) = (kind for kind in KINDS if kind.name == name)
    if kind.library is None:
        pytest.skip(f"needs the library for {name}")
    kind.write(tmp_path, chunk=0)
    assert kind.open(tmp_path, "labels").blocks == [LENGTH]
    kind.write(tmp_path)
    dataset = kind.open(tmp_path, "images", "labels")
    assert dataset.blocks == [7, 7, 7, 7, 7, 6]
    assert repr(dataset).startswith(f"{type(dataset).__name__}(41 rows of ")
    assert repr(dataset).endswith(": images, labels)")
    with SERIAL.loader(dataset, 8, sampler=gl.BlockShuffleSampler(dataset.blocks, seed=0)) as loader:
        assert sorted(label % 10 for _, labels in loader for label in labels) == sorted(COLUMNS["labels"])


@pytest.mark.parametrize(
    ("make", "module", "extra"), [(gl.tables.H5Dataset, "h5py", "hdf5"), (gl.tables.ZarrDataset, "zarr", "zarr")]
)
def test_a_library_that_is_missing(make, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf'pip install "gluonloader\[{extra}\]"'):
        make("some/file", "x")


# -- damaged files ----------------------------------------------------------------------------------------------------

ROWS = np.arange(200.0).reshape(20, 10)


def assert_unreadable(dataset, file, column, text):
    """The row 0, alone and in a batch, is an error that names the file and the column."""
    for read in (lambda: dataset[0], lambda: dataset.__getitems__([19, 0])):
        with pytest.raises(ColumnError, match=text) as caught:
            read()
        assert (caught.value.file, caught.value.column) == (str(file), column)
        assert type(pickle.loads(pickle.dumps(caught.value))) is ColumnError


def damaged(data, start, length):
    return data[:start] + bytes(byte ^ 90 for byte in data[start : start + length]) + data[start + length :]


@pytest.mark.skipif(h5py is None, reason="needs h5py")
@pytest.mark.parametrize("options", [{"compression": "gzip"}, {"compression": "lzf"}, {"fletcher32": True}], ids=str)
def test_a_damaged_chunk_of_hdf5_is_named(options, tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=ROWS, chunks=(5, 10), **options)
        file["y"] = ROWS
        chunk = file["x"].id.get_chunk_info(0)
    path.write_bytes(damaged(path.read_bytes(), chunk.byte_offset + 2, chunk.size - 2))
    assert_unreadable(
        gl.tables.H5Dataset(path, "y", "x"), path, "x", "its rows cannot be read .*; copy it again .* a filter"
    )
    assert gl.tables.H5Dataset(path, "x")[19].tolist() == ROWS[19].tolist()  # of another chunk
    with FORK.loader(gl.tables.H5Dataset(path, "x"), 5, on_error=OnError("skip", 5)) as loader:
        assert sum(map(len, loader)) == 15


@pytest.mark.skipif(h5py is None, reason="needs h5py")
def test_a_filter_that_is_missing_is_named(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        properties.set_chunk((5, 10))
        properties.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, (1,))
        space = h5py.h5s.create_simple(ROWS.shape)
        column = h5py.h5d.create(file.id, b"x", h5py.h5t.NATIVE_DOUBLE, space, properties)
        column.write_direct_chunk((0, 0), b"x" * 100)
    assert_unreadable(
        gl.tables.H5Dataset(path, "x"), path, "x", "if it needs a filter, import the package of the filter"
    )


@pytest.mark.skipif(h5py is None, reason="needs h5py")
def test_hdf5_files_that_cannot_be_opened(tmp_path):
    path = tmp_path / "a.h5"
    write_h5(tmp_path, {"x": ROWS}, 0)
    whole = path.read_bytes()
    for data in (b"", b"not HDF5" * 100, whole[:-200]):
        path.write_bytes(data)
        with pytest.raises(ColumnError, match="it cannot be opened as HDF5 .*; copy it again") as caught:
            gl.tables.H5Dataset(path, "x")
        assert caught.value.file == str(path)
    with pytest.raises(OSError, match="."):
        gl.tables.H5Dataset(tmp_path, "x")
    with h5py.File(path, "w") as file:
        file["link"], file["type"] = h5py.SoftLink("/nowhere"), np.dtype("f4")
        file["other"] = h5py.ExternalLink(str(tmp_path / "none.h5"), "/x")
    for name in ("link", "type", "other"):
        with pytest.raises(
            ColumnError, match=f"column '{name}': it is not an array, or a link to an array that is miss"
        ):
            gl.tables.H5Dataset(path, name)


@pytest.mark.skipif(h5py is None, reason="needs h5py")
def test_hdf5_does_not_read_fill_values_for_files_that_are_missing(tmp_path):
    write_h5(tmp_path, {"x": ROWS}, 0)
    (tmp_path / "raw").write_bytes(ROWS.tobytes())
    path, layout = tmp_path / "v.h5", h5py.VirtualLayout(ROWS.shape, float)
    layout[:] = h5py.VirtualSource("a.h5", "x", ROWS.shape)
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("virtual", layout, fillvalue=-1)
        file.create_dataset("external", ROWS.shape, float, external=[(str(tmp_path / "raw"), 0, h5py.h5f.UNLIMITED)])
    assert gl.tables.H5Dataset(path, "virtual", "external")[3][0].tolist() == ROWS[3].tolist()
    os.rename(tmp_path / "a.h5", tmp_path / "b.h5")
    os.truncate(tmp_path / "raw", 1000)
    with pytest.raises(ColumnError, match="column 'virtual': it is a virtual dataset, and its file a.h5 is missing"):
        gl.tables.H5Dataset(path, "virtual")
    with pytest.raises(ColumnError, match="column 'external': .*raw contains only 1,000 of the 1,600 bytes"):
        gl.tables.H5Dataset(path, "external")
    os.remove(tmp_path / "raw")
    assert_unreadable(gl.tables.H5Dataset(path, "external"), path, "external", "its rows cannot be read")


@pytest.mark.skipif(h5py is None, reason="needs h5py")
def test_text_of_hdf5_that_is_not_utf8_is_named(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (20,), h5py.string_dtype())[0] = b"\xff\xfe"
    assert_unreadable(
        gl.tables.H5Dataset(tmp_path / "a.h5", "x"), tmp_path / "a.h5", "x", "cannot be read .*UnicodeDecodeError"
    )


def compressed(folder, data, codec, version=2):
    """Writes a Zarr array; returns the files of its chunks."""
    if zarr.__version__ < "3":
        zarr.array(data, chunks=(5, 10), store=str(folder), overwrite=True, compressor=codec)
    else:
        zarr.create_array(str(folder), data=data, chunks=(5, 10), compressors=codec, zarr_format=version)
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and path.name not in (".zarray", "zarr.json", ".zattrs")
    )


@pytest.mark.skipif(zarr is None, reason="needs zarr")
@pytest.mark.parametrize("name", ["Zlib", "GZip", "Blosc", "Zstd", "LZ4", "raw"])
@pytest.mark.parametrize("damage", ["bytes", "cut", "empty"])
def test_a_damaged_chunk_of_zarr_is_named(name, damage, tmp_path):
    if (name, damage) == ("raw", "bytes"):
        return  # raw values have no checksum
    path = tmp_path / "a.zarr"
    chunk = compressed(path, ROWS, None if name == "raw" else getattr(load("numcodecs"), name)())[0]
    data = chunk.read_bytes()
    half = len(data) // 2
    chunk.write_bytes({"bytes": damaged(data, half, half), "cut": data[:half], "empty": b""}[damage])
    dataset = gl.tables.ZarrDataset(path)
    assert_unreadable(dataset, path, "", "its rows cannot be read .*; copy it again .* a codec")
    assert dataset[19].tolist() == ROWS[19].tolist()


@pytest.mark.skipif(zarr is None or zarr.__version__ < "3", reason="needs zarr 3")
def test_a_damaged_chunk_of_zarr_3_is_named(tmp_path):
    codecs = load("zarr.codecs")
    for number, codec in enumerate((codecs.GzipCodec(), codecs.BloscCodec(), codecs.ZstdCodec(), codecs.Crc32cCodec())):
        path = tmp_path / f"{number}.zarr"
        chunk = compressed(path, ROWS, codec, version=3)[0]
        chunk.write_bytes(damaged(chunk.read_bytes(), 30, 1000))
        assert_unreadable(gl.tables.ZarrDataset(path), path, "", "its rows cannot be read")
    path = tmp_path / "shards.zarr"
    zarr.create_array(str(path), data=ROWS, chunks=(5, 10), shards=(10, 10))
    assert gl.tables.ZarrDataset(path)[7].tolist() == ROWS[7].tolist()
    shard = path / "c" / "0" / "0"
    shard.write_bytes(shard.read_bytes()[:-20])
    assert_unreadable(gl.tables.ZarrDataset(path), path, "", "its rows cannot be read")


@pytest.mark.skipif(zarr is None, reason="needs zarr")
@pytest.mark.parametrize(
    "content", ["", "{broken", "[1]", '{"zarr_format": 9}', '{"zarr_format": 2, "node_type": "array"}']
)
def test_damaged_metadata_of_zarr_are_named(content, tmp_path):
    path = tmp_path / "a.zarr"
    group = zarr.open_group(str(path), mode="w")
    (getattr(group, "create_array", None) or group.create_dataset)("x", data=ROWS, chunks=(5, 10))
    (metadata,) = [file for file in (path / "x" / ".zarray", path / "x" / "zarr.json") if file.exists()]
    metadata.write_text(content)
    for open_it, column in (
        (lambda: gl.tables.ZarrDataset(path, "x"), "x"),
        (lambda: gl.tables.ZarrDataset(path / "x"), ""),
    ):
        with pytest.raises(ColumnError, match="cannot be opened.*; copy it again") as caught:
            open_it()
        assert caught.value.column == column
        assert caught.value.file.startswith(str(path))


@pytest.mark.skipif(zarr is None, reason="needs zarr")
def test_a_store_of_zarr_that_is_removed_is_not_read_as_fill_values(tmp_path):
    path = tmp_path / "a.zarr"
    chunks = compressed(path, ROWS, None)
    dataset = gl.tables.ZarrDataset(path)
    os.remove(chunks[-1])
    assert dataset[19].tolist() == [0] * 10  # the format says so
    path.rename(tmp_path / "b.zarr")
    with pytest.raises(ColumnError, match="a.zarr: it was removed while the dataset read it"):
        dataset[0]


def test_a_file_with_fewer_rows_than_before_is_noticed(kind, tmp_path):
    kind.write(tmp_path, {"x": ROWS}, 5)
    dataset = kind.open(tmp_path, "x")
    (tmp_path / "new").mkdir()
    kind.write(tmp_path / "new", {"x": ROWS[:10]}, 5)
    for old in list(tmp_path.iterdir()):
        if old.name != "new":
            old.rename(tmp_path / "new" / f"old-{old.name}")
    for new in list((tmp_path / "new").iterdir()):
        if not new.name.startswith("old"):
            new.rename(tmp_path / new.name)
    if kind.name == "npy":
        assert dataset[19].tolist() == ROWS[19].tolist()  # of the mapped file
        with pytest.raises(ValueError, match="the files have 10 rows, but had 20 rows when this was pickled"):
            pickle.loads(pickle.dumps(dataset))
    else:
        with pytest.raises(ColumnError, match="it has 10 rows, but had 20 when the dataset was made; make a new"):
            dataset[0]
