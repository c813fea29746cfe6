"""`ArrowDataset`: each type of column, nulls, the sources, row groups, and that bulk and single reads agree."""

import datetime
import decimal
import os
import pickle
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from bulk_reads import assert_bulk_is_the_same
from conftest import FORK, SERIAL, WAYS
from hypothesis import given, settings
from hypothesis import strategies as st

import gluonloader as gl
from gluonloader import BlockShuffleSampler, ConcatDataset, Rows
from gluonloader.errors import ColumnError, MissingExtraError
from gluonloader.tables import ArrowDataset

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

DAY = datetime.date(2024, 2, 29)
NOON = datetime.datetime(2024, 2, 29, 12)

# Per column: its values, its type, and what a sample of row 1 and of row 0, which may be null, is to be.
COLUMNS = {
    "int": ([1, 2, 3], pa.int32(), np.int32(2), np.int32(1)),
    "int with a null": ([None, 2, 3], pa.int32(), np.float64(2), np.float64("nan")),
    "uint8": ([1, 2, 3], pa.uint8(), np.uint8(2), np.uint8(1)),
    "float": ([None, 2.5, 3], pa.float32(), np.float32(2.5), np.float32("nan")),
    "half": (np.array([1, 2, 3], np.float16), pa.float16(), np.float16(2), np.float16(1)),
    "bool": ([True, False, True], pa.bool_(), np.bool_(False), np.bool_(True)),
    "bool with a null": ([None, False, True], pa.bool_(), np.float64(0), np.float64("nan")),
    "decimal": ([None, decimal.Decimal("2.5"), 3], pa.decimal128(5, 2), np.float64(2.5), np.float64("nan")),
    "time stamp": ([None, NOON, NOON], pa.timestamp("us"), np.datetime64(NOON, "us"), np.datetime64("NaT", "us")),
    "zoned": ([NOON] * 3, pa.timestamp("ms", "Asia/Tokyo"), np.datetime64(NOON, "ms"), np.datetime64(NOON, "ms")),
    "duration": ([1, 2, None], pa.duration("ms"), np.timedelta64(2, "ms"), np.timedelta64(1, "ms")),
    "date": ([None, DAY, DAY], pa.date32(), np.datetime64(DAY), np.datetime64("NaT", "D")),
    "date64": ([DAY, DAY, DAY], pa.date64(), np.datetime64(DAY, "ms"), np.datetime64(DAY, "ms")),
    "text": ([None, "é", "x"], pa.string(), "é", None),
    "large text": (["", "é", "x"], pa.large_string(), "é", ""),
    "binary": ([b"", b"\xff", None], pa.binary(), b"\xff", b""),
    "categories": (["u", "v", "u"], pa.dictionary(pa.int8(), pa.string()), "v", "u"),
    "int categories": ([5, 6, 5], pa.dictionary(pa.int8(), pa.int64()), np.int64(6), np.int64(5)),
    "lists": ([[1, 2], [3], None], pa.list_(pa.int16()), np.array([3], np.int16), np.array([1, 2], np.int16)),
    "vectors": ([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2), np.array([3, 4], "f4"), np.array([1, 2], "f4")),
    "lists of text": ([None, ["a", "b"], []], pa.list_(pa.string()), ["a", "b"], None),
    "struct": ([None, {"x": 1}, {"x": 2}], pa.struct({"x": pa.int64()}), {"x": 1}, None),
    "time": ([datetime.time(1)] * 3, pa.time64("us"), datetime.time(1), datetime.time(1)),
    "nothing": ([None] * 3, pa.null(), None, None),
}


def runs(values, kind):
    """The first value once, and the second one twice."""
    return pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int16()), pa.array(values, kind))


class Meters(pa.ExtensionType):
    def __init__(self):
        super().__init__(pa.int64(), "test.meters")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls()


def meters(values):
    return pa.ExtensionArray.from_storage(Meters(), pa.array(values, pa.int64()))


IMAGES = np.arange(18, dtype=np.int16).reshape(3, 2, 3)
TENSORS = pa.FixedShapeTensorArray.from_numpy_ndarray(IMAGES)
TURNED = pa.FixedShapeTensorArray.from_numpy_ndarray(IMAGES.transpose(0, 2, 1))

# Arrays that `pa.array` does not make, and what a sample of row 1 and of row 0 is to be.
RARE = {
    "views of lists": (
        pa.array([None, [1, 2], [3]], pa.list_view(pa.int16())).take(pa.array([0, 2, 1])),
        np.array([3], np.int16),
        None,
    ),
    "large views": (
        pa.array([[], [1, 2], []], pa.large_list_view(pa.int8())),
        np.array([1, 2], np.int8),
        np.empty(0, "i1"),
    ),
    "views of texts in lists": (pa.array([None, ["a"], ["b"]], pa.list_(pa.string_view())), ["a"], None),
    "runs of ints": (runs([7, 8], pa.int32()), np.int32(8), np.int32(7)),
    "runs with a null": (runs([None, 8], pa.int32()), np.float64(8), np.float64("nan")),
    "runs of texts": (runs([None, "x"], pa.string()), "x", None),
    "a null among categories": (
        pa.DictionaryArray.from_arrays(pa.array([1, 0, 0]), pa.array([5, None])),
        np.float64(5),
        np.float64("nan"),
    ),
    "categories of lists": (
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array([[1], [2]], pa.list_(pa.int8()))),
        np.array([2], np.int8),
        np.array([1], np.int8),
    ),
    "extension": (meters([1, 2, 3]), np.int64(2), np.int64(1)),
    "extension in lists": (
        pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), meters([1, 2, 3])),
        np.array([2]),
        np.array([1]),
    ),
    "categories in lists": (
        pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), pa.array([1, 2, 3]).dictionary_encode()),
        np.array([2]),
        np.array([1]),
    ),
    "tensors": (TENSORS, IMAGES[1], IMAGES[0]),
    "tensors in another order": (TURNED, IMAGES[1].T, IMAGES[0].T),
    "empty vectors": (pa.array([[], [], []], pa.list_(pa.int32(), 0)), np.empty(0, "i4"), np.empty(0, "i4")),
    "union": (
        pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["x", "y", "z"])]),
        "y",
        1,
    ),
    "map": (pa.array([None, [("a", 1)], []], pa.map_(pa.string(), pa.int8())), [("a", 1)], None),
    "decimal of three digits": (
        pa.array([decimal.Decimal("0.101"), decimal.Decimal("1003.858"), None], pa.decimal128(9, 3)),
        np.float64(1003.858),
        np.float64(0.101),
    ),
}


def table(names=COLUMNS):
    return pa.table({name: pa.array(COLUMNS[name][0], COLUMNS[name][1]) for name in names})


def write(path, rows, group=10, **columns):
    columns = {"n": np.arange(rows), "x": np.arange(rows) / 2, "s": [f"row {i}" for i in range(rows)], **columns}
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return str(path)


def assert_sample(sample, expected):
    if isinstance(expected, np.generic) and expected != expected:
        assert type(sample) is type(expected)
        assert sample != sample
        assert sample.dtype == expected.dtype
    elif isinstance(expected, np.ndarray):
        assert sample.dtype == expected.dtype
        assert sample.tolist() == expected.tolist()
    else:
        assert type(sample) is type(expected)
        assert sample == expected
        assert getattr(sample, "dtype", None) == getattr(expected, "dtype", None)


@pytest.mark.parametrize("name", [*COLUMNS, *RARE])
@pytest.mark.parametrize("kind", ["table", "chunks", "file", "row groups"])
def test_every_type_of_column(name, kind, tmp_path):
    if name in RARE:
        column, second, first = RARE[name]
        source = pa.table({name: column})
    else:
        _, _, second, first = COLUMNS[name]
        source = table([name])
    if kind == "chunks":
        source = pa.concat_tables([source.slice(0, 1), source.slice(1, 0), source.slice(1)])
    elif kind != "table":
        try:
            pq.write_table(source, tmp_path / "t.parquet", row_group_size=1 if kind == "row groups" else 3)
            pq.read_table(tmp_path / "t.parquet")
        except pa.ArrowException as error:
            assert name in RARE
            pytest.skip(f"Parquet has no such column: {error}")
        source = tmp_path / "t.parquet"
    dataset = ArrowDataset(source)
    if name == "date64" and isinstance(source, Path):  # Parquet has one kind of date
        second = first = np.datetime64(DAY)
    assert len(dataset) == 3
    for index, expected in ((1, second), (0, first), (-2, second), (np.int64(-3), first)):
        assert list(dataset[index]) == [name]
        assert_sample(dataset[index][name], expected)
    for sample, expected in zip(dataset.__getitems__([1, 0, 1]), (second, first, second), strict=True):
        assert_sample(sample[name], expected)
    for indices in ([1, 2, 1], [1, 1], [1, 0]):
        assert_bulk_is_the_same(dataset, indices)


def test_tensors_whose_order_is_not_clear_are_refused(tmp_path):
    images = np.arange(48).reshape(2, 2, 3, 4).transpose(0, 2, 3, 1)
    source = pa.table({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(images)})
    with pytest.raises(ColumnError, match=r"column 'x': its tensors have permutation=.*; write C-contiguous arrays"):
        ArrowDataset(source)
    pq.write_table(source, tmp_path / "t.parquet")
    with pytest.raises(ColumnError, match=r"t.parquet, column 'x': its tensors have permutation="):
        ArrowDataset(tmp_path / "t.parquet")


def test_tensors_of_another_shape_or_order_in_another_file_are_refused(tmp_path):
    plain, first = np.arange(24).reshape(2, 3, 4), tmp_path / "0.parquet"
    flat = pa.FixedSizeListArray.from_arrays(plain.ravel(), 12)
    images = (plain, plain.reshape(2, 4, 3), plain.reshape(2, 4, 3).transpose(0, 2, 1))
    for number, tensors in enumerate([*map(pa.FixedShapeTensorArray.from_numpy_ndarray, images), flat]):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"x": tensors}), path)
        if number:
            with pytest.raises(ValueError, match=rf"{number}.parquet: column 'x' has type .*, but .* in .*0.parquet"):
                ArrowDataset([first, path])
    without_order = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int64(), (3, 4)), flat)
    pq.write_table(pa.table({"x": without_order}), path)
    assert [sample["x"].tolist() for sample in ArrowDataset([first, path])] == plain.tolist() * 2


def test_rows_without_columns():
    dataset = ArrowDataset(pa.table({"n": [1, 2, 3]}).select([]))
    assert len(dataset) == 3
    assert dataset[1] == {}
    assert list(dataset.__getitems__([2, 0])) == [{}, {}]
    assert_bulk_is_the_same(dataset, [0, 1])


def test_a_value_that_python_lacks_is_named(tmp_path):
    source = pa.table({"t": pa.array([{"when": 0}, {"when": 10**18}], pa.struct({"when": pa.timestamp("ms")}))})
    pq.write_table(source, tmp_path / "t.parquet")
    for dataset, file in (
        (ArrowDataset(source), ""),
        (ArrowDataset(tmp_path / "t.parquet"), str(tmp_path / "t.parquet")),
    ):
        assert dataset[0]["t"] == {"when": datetime.datetime(1970, 1, 1)}
        for read in (lambda: dataset[1], lambda: list(dataset.__getitems__([0, 1]))):
            with pytest.raises(ColumnError, match="a value cannot become a Python object") as caught:
                gl.default_batchify([read()])
            assert (caught.value.file, caught.value.column) == (file, "t")


def test_frames_of_pandas_and_polars():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = {"n": [1, 2, 3], "x": [0.5, None, 1.5], "s": ["a", "b", None], "c": ["u", "v", "u"]}
    frame = pandas.DataFrame(columns, index=[7, 8, 9]).astype({"c": "category"})
    for source in (frame, polars.DataFrame(columns, schema_overrides={"c": polars.Categorical})):
        dataset = ArrowDataset(source)
        assert dataset[0] == {"n": 1, "x": 0.5, "s": "a", "c": "u"}
        assert type(dataset[0]["n"]) is np.int64
        assert np.isnan(dataset[1]["x"])
        assert dataset[2]["s"] is None
        assert dataset.row_groups == [3]
        assert_bulk_is_the_same(dataset, [1, 0])


def test_one_file_several_files_and_a_pyarrow_dataset(tmp_path):
    first, second = write(tmp_path / "a.parquet", 25), write(tmp_path / "b.parquet", 7)
    pyarrow_dataset = pytest.importorskip("pyarrow.dataset")
    assert ArrowDataset(first).row_groups == [10, 10, 5]
    for source in ([first, tmp_path / "b.parquet"], (first, second), pyarrow_dataset.dataset([first, second])):
        dataset = ArrowDataset(source)
        assert dataset.row_groups == [10, 10, 5, 7]
        assert [sample["n"] for sample in dataset] == [*range(25), *range(7)]
        assert [sample["n"] for sample in dataset.__getitems__([31, 0, 24, 25, -1])] == [6, 0, 24, 0, 6]


def test_a_relative_path_is_that_of_the_folder_in_which_the_dataset_was_made(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet", 25)
    monkeypatch.chdir(tmp_path)
    sources = ("a.parquet", pytest.importorskip("pyarrow.dataset").dataset("a.parquet"))
    datasets = [ArrowDataset(source, keep=1) for source in sources]
    assert [dataset[0]["n"] for dataset in datasets] == [0, 0]
    monkeypatch.chdir("/")
    for dataset in datasets:
        assert dataset[24]["n"] == pickle.loads(pickle.dumps(dataset))[24]["n"] == 24


def test_files_may_store_the_same_values_in_types_of_other_widths(tmp_path):
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, text, index in zip(paths, (pa.string(), pa.large_string()), (pa.int8(), pa.int32()), strict=True):
        columns = {"s": pa.array(["u", "v"], text), "c": pa.array(["x", "y"]).cast(pa.dictionary(index, pa.string()))}
        pq.write_table(pa.table(columns), path)
    dataset = ArrowDataset(paths)
    assert [dict(sample) for sample in dataset] == [{"s": "u", "c": "x"}, {"s": "v", "c": "y"}] * 2
    assert gl.default_batchify(dataset.__getitems__([1, 2])) == {"s": ["v", "u"], "c": ["y", "x"]}


def test_timestamps_of_old_files_may_lie_in_any_year(tmp_path):
    times = [datetime.datetime(year, 12, 31) for year in (9999, 2300, 1500, 2024)]
    table = pa.table({"t": pa.array(times, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert [sample["t"] for sample in ArrowDataset(tmp_path / "a.parquet")] == times


def test_a_frame_that_arrow_cannot_contain_is_an_error():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"path": [Path("a.jpg"), Path("b.jpg")], "y": [0, 1]})
    with pytest.raises(ColumnError, match=r"column 'path': its values are Python objects; cast it, or pass columns="):
        ArrowDataset(frame)
    assert [sample["y"] for sample in ArrowDataset(frame, ["y"])] == [0, 1]
    mixed = pytest.importorskip("pandas").DataFrame({"a": [1, "a"]})
    with pytest.raises(ColumnError, match=r"this DataFrame: it cannot be converted to Arrow .*'a'.*convert the column"):
        ArrowDataset(mixed)


def test_columns_are_chosen_in_their_order(tmp_path):
    path = write(tmp_path / "a.parquet", 5)
    for source in (path, pq.read_table(path)):
        for columns in (["s", "n"], np.array(["s", "n"])):
            dataset = ArrowDataset(source, columns)
            assert list(dataset[0]) == ["s", "n"]
            assert {type(name) for name in dataset[0]} == {str}
        assert list(gl.default_batchify(dataset.__getitems__([1, 2]))) == ["s", "n"]


@given(
    groups=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    keep=st.integers(1, 3),
    batches=st.lists(st.lists(st.integers(0, 10**6), min_size=1, max_size=8), min_size=1, max_size=5),
)
@settings(max_examples=40)
def test_any_batches_over_any_row_groups(groups, keep, batches, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("groups") / "t.parquet")
    rows = sum(groups)
    whole = pa.table(
        {"n": np.arange(rows), "s": [f"é{i}" for i in range(rows)], "l": [[i] * (i % 3) for i in range(rows)]}
    )
    with pq.ParquetWriter(path, whole.schema) as writer:
        for end, count in zip(np.cumsum(groups).tolist(), groups):
            writer.write_table(whole.slice(end - count, count))
    dataset = ArrowDataset(path, keep=keep)
    assert len(dataset) == rows == sum(dataset.row_groups)
    for batch in batches if rows else []:
        assert_bulk_is_the_same(dataset, [index % rows for index in batch])
    for outside in (rows, -rows - 1):
        with pytest.raises(IndexError):
            dataset[outside]
        with pytest.raises(IndexError):
            dataset.__getitems__([outside])
    assert list(dataset.__getitems__([])) == []


@pytest.fixture
def reads(monkeypatch):
    """The row groups that are read, as (file, number)."""
    read = []
    original = pq.ParquetFile.read_row_group

    def read_row_group(self, number, *args, **kwargs):
        assert kwargs["use_threads"] is False
        read.append(number)
        return original(self, number, *args, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", read_row_group)
    return read


def test_a_row_group_is_read_when_it_is_needed_and_once_under_block_shuffle(tmp_path, reads):
    dataset = ArrowDataset(write(tmp_path / "a.parquet", 400, group=20), keep=4)
    assert reads == []
    assert dataset[45]["n"] == dataset[59]["n"] - 14 == 45
    assert reads == [2]
    reads.clear()
    dataset = pickle.loads(pickle.dumps(dataset))
    with gl.DataLoader(dataset, 32, sampler=BlockShuffleSampler(dataset.row_groups, buffer=4, seed=0)) as loader:
        found = np.concatenate([batch["n"] for batch in loader])
    assert sorted(found.tolist()) == list(range(400))
    assert sorted(reads) == list(range(20))


def test_reading_the_same_row_groups_again_and_again_is_warned_of_once(tmp_path):
    path = write(tmp_path / "a.parquet", 4000, group=400)
    dataset = ArrowDataset(path, keep=1)
    with pytest.warns(RuntimeWarning, match=r"BlockShuffleSampler\(dataset.row_groups\)") as caught:
        assert (
            len([dataset.__getitems__([start % 4000, (start + 800) % 4000]) for start in range(0, 36_000, 400)]) == 90
        )
    assert len(caught) == 1
    dataset = ArrowDataset(path, keep=1)
    with pytest.warns(RuntimeWarning, match="9 row groups were decoded for 8 samples"):
        assert len([dataset[number * 400 % 4000] for number in range(20)]) == 20


def test_reading_single_rows_in_order_is_not_warned_of(tmp_path, recwarn):
    dataset = ArrowDataset(write(tmp_path / "a.parquet", 200, group=2), keep=1)
    assert [dataset[index]["n"] for index in range(200)] == list(range(200))
    assert not recwarn.list


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_executor_reads_files_and_tables(way, tmp_path):
    path = write(tmp_path / "a.parquet", 50)
    for source in (path, pq.read_table(path)):
        dataset = ArrowDataset(source)
        dataset[0]  # what the program has read, a worker does not rely on
        with way.loader(dataset, 8, shuffle=True) as loader:
            for _ in range(2):
                batches = list(loader)
                assert sorted(np.concatenate([batch["n"] for batch in batches]).tolist()) == list(range(50))
                for batch in batches:
                    assert batch["s"] == [f"row {n}" for n in batch["n"]]
                    assert batch["x"].tolist() == (batch["n"] / 2).tolist()


def test_a_fork_while_another_thread_reads_is_harmless(tmp_path):
    dataset = ArrowDataset(write(tmp_path / "a.parquet", 50), keep=1)
    held = threading.Event()
    release = threading.Event()

    def hold():
        with dataset._kept.lock:
            held.set()
            release.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if dataset[49]["n"] == 49 else 1)
        finally:
            os._exit(2)
    release.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_concatenated_and_transformed(tmp_path):
    one, two = (ArrowDataset(write(tmp_path / name, 30), columns=["n", "s"]) for name in ("a.parquet", "b.parquet"))
    data = ConcatDataset(one, two).transform(lambda rows: Rows(rows.columns), batched=True)
    assert_bulk_is_the_same(data, [3, 33, 59, 0])


def test_a_column_of_ints_is_of_one_dtype_though_only_one_row_group_has_a_null(tmp_path):
    path = write(tmp_path / "a.parquet", 30, n=pa.array([None, *range(1, 30)]))
    dataset = ArrowDataset(path)
    assert dataset[0]["n"].dtype == dataset[29]["n"].dtype == np.float64
    pq.write_table(pq.read_table(path), path, row_group_size=10, write_statistics=False)
    dataset = ArrowDataset(path)
    assert dataset[29]["n"].dtype == np.int64
    with pytest.raises(ColumnError, match="column 'n': it contains a null.* an array of int64; fill it") as caught:
        dataset[0]
    assert (caught.value.file, caught.value.column) == (path, "n")


def test_a_null_among_vectors_is_refused():
    vectors = pa.array([[1.0, 2.0], None], pa.list_(pa.float64(), 2))
    with pytest.raises(
        ColumnError, match=r"column 'v': it contains a null.* of fixed_size_list.* fill it.* cast .* to list_\(\.\.\.\)"
    ):
        ArrowDataset(pa.table({"v": vectors}))
    assert ArrowDataset(pa.table({"v": vectors.cast(pa.list_(pa.float64()))}))[1]["v"] is None
    numbers = pa.array([[1, 2], [3, None]], pa.list_(pa.int32(), 2))
    with pytest.raises(
        ColumnError,
        match="column 'v': it contains a null.* of int32; .* cast the column to floats; then a null becomes NaN",
    ):
        ArrowDataset(pa.table({"v": numbers}))
    floats = ArrowDataset(pa.table({"v": numbers.cast(pa.list_(pa.float64(), 2))}))
    assert np.isnan(floats[1]["v"]).tolist() == [False, True]


def test_wrong_arguments_are_refused(tmp_path):
    path = write(tmp_path / "a.parquet", 5)
    other = write(tmp_path / "b.parquet", 5, x=np.arange(5))
    more = write(tmp_path / "c.parquet", 5, y=np.arange(5))
    broken = tmp_path / "d.parquet"
    broken.write_bytes(b"PAR1 no")
    empty = tmp_path / "e.parquet"
    empty.touch()
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    for source, columns, text in (
        (path, ["z"], r"a.parquet: there is no column named 'z'; the columns are \['n', 'x', 's'\]"),
        (pq.read_table(path), ["z"], "the table: there is no column named 'z'"),
        (twice, None, "there is more than one column named 'a'"),
        (path, "n", "columns='n': pass a list"),
        (path, [], "columns="),
        ([path, other], None, "b.parquet: column 'x' has type int64, but double in .*a.parquet; cast it in one of"),
        ([path, more], None, "c.parquet: column 'y' is not in both"),
        (broken, None, "d.parquet: not a Parquet file"),
        (empty, None, "e.parquet: not a Parquet file, or a damaged one"),
        (tmp_path, None, "it is a folder; pass sorted"),
        (
            tmp_path / "*.parquet",
            None,
            r"source=.*parquet'\): it is a pattern; pass sorted\(glob.glob\(pattern\)\)",
        ),
        ([path, "no?.parquet"], None, "source='no[?].parquet': it is a pattern"),
    ):
        with pytest.raises(ValueError, match=text):
            ArrowDataset(source, columns)
    assert len(ArrowDataset([path, more], ["n"])) == 10
    for keep in (0, "8", 1.5):
        with pytest.raises(ValueError, match=f"keep={keep!r}"):
            ArrowDataset(path, keep=keep)
    for source in (3, [pa.table({})], np.zeros(3), iter([path]), pa.array([1]), pa.chunked_array([[1]])):
        with pytest.raises(
            TypeError, match=rf"source: {type(source)}; pass a pyarrow Table, a pandas or polars DataFrame"
        ):
            ArrowDataset(source)
    with pytest.raises(TypeError, match="source: <class 'list'>; it is empty; pass at least one path"):
        ArrowDataset([])
    with pytest.raises(TypeError, match=r"source: <class 'dict'>; pass pyarrow.table\(source\), or use StackDataset"):
        ArrowDataset({"x": [1, 2]})
    with pytest.raises(FileNotFoundError):
        ArrowDataset(tmp_path / "missing.parquet")


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_column_or_a_lazy_frame_is_refused_with_the_way_to_make_a_table(library):
    module = pytest.importorskip(library)
    column = module.DataFrame({"x": [1, 2]})["x"]
    with pytest.raises(TypeError, match=r"Series'>; it is a single column; pass source.to_frame\(\)"):
        ArrowDataset(column)
    assert ArrowDataset(column.to_frame())[1] == {"x": 2}
    if library == "polars":
        lazy = column.to_frame().lazy()
        with pytest.raises(TypeError, match=r"LazyFrame'>; it is not computed yet; pass source.collect\(\)"):
            ArrowDataset(lazy)
        assert ArrowDataset(lazy.collect())[1] == {"x": 2}


def test_a_pattern_that_is_a_name_is_one(tmp_path):
    assert len(ArrowDataset(write(tmp_path / "part[1].parquet", 5))) == 5


@pytest.mark.parametrize("index", [1.0, slice(2), [0], None])
def test_a_wrong_index_is_refused(index):
    with pytest.raises(TypeError, match=r"index=.*: must be an int; for several samples, use Subset"):
        ArrowDataset(table(["int"]))[index]


def test_a_column_is_had_otherwise():
    dataset = ArrowDataset(table(["int", "text"]))
    with pytest.raises(
        TypeError, match=r"use dataset\[i\]\['int'\], or ArrowDataset\(source, \['int'\]\) for a column"
    ):
        dataset["int"]
    assert repr(dataset) == "ArrowDataset(3 rows of 2 columns)"


@pytest.mark.parametrize(
    "source", [Path, Path.as_uri, lambda path: pytest.importorskip("pyarrow.dataset").dataset(path)]
)
def test_a_local_file_that_was_changed_is_an_error(tmp_path, source):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [1, 2]}), path)
    dataset = ArrowDataset(source(path))
    pq.write_table(pa.table({"x": [5, 6]}), path)
    with pytest.raises(ColumnError, match=r"a.parquet: its footer is another one than when the dataset was made"):
        dataset[0]


def test_a_file_that_is_damaged_later_is_named(tmp_path):
    path = write(tmp_path / "a.parquet", 1000)
    dataset = ArrowDataset(path)
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    content[4:400] = b"\xff" * 396
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(ColumnError, match="row group 0 cannot be read .*; copy the file again") as caught:
        dataset[0]
    assert (caught.value.file, caught.value.column) == (path, "n")
    assert isinstance(caught.value.__cause__, (OSError, pa.ArrowException))


def test_without_pyarrow_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r'pip install "gluonloader\[arrow\]"'):
        ArrowDataset("a.parquet")


def test_a_dataset_of_files_that_is_more_than_its_files_is_refused(tmp_path):
    datasets, parquet = pytest.importorskip("pyarrow.dataset"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    parquet.write_table(pa.table({"id": list(range(10))}), path, row_group_size=5)
    whole = datasets.dataset(path)
    assert len(ArrowDataset(whole)) == 10
    (fragment,) = whole.get_fragments()
    part = fragment.subset(row_group_ids=[1])
    for other in (
        datasets.FileSystemDataset([part], whole.schema, whole.format, whole.filesystem),
        whole.filter(datasets.field("id") < 5),
        datasets.dataset(path, schema=pa.schema([("id", pa.float32())])),
    ):
        with pytest.raises(
            ValueError, match=r"a filter, only some row groups, or .* that its files lack; pass source.to_table\("
        ):
            ArrowDataset(other)


@pytest.mark.parametrize("one", [1, True])
def test_a_null_in_a_list_of_ints_is_refused(one):
    """Else the dtype of a batch would depend on which rows are in it."""
    lists = pa.array([[one, one], [None, one], None])
    with pytest.raises(
        ColumnError, match=r"column 'l': it contains a null.* of (int64|bool);.*cast the column to lists of floats"
    ):
        ArrowDataset(pa.table({"l": lists}))[0]
    floats = ArrowDataset(pa.table({"l": pa.array([[1.0], [None], None])}))
    assert [None if row["l"] is None else row["l"].dtype for row in floats] == [np.float64, np.float64, None]


@pytest.mark.parametrize("way", [SERIAL, FORK], ids=str)
def test_a_file_that_is_replaced_while_it_is_read_is_an_error(tmp_path, way):
    def write(value):
        pq.write_table(pa.table({"x": np.full(400, value)}), tmp_path / "new", row_group_size=50)
        (tmp_path / "new").replace(tmp_path / "rows.parquet")

    write(1)
    with way.loader(ArrowDataset(tmp_path / "rows.parquet", keep=1), 50) as loader:
        assert set(next(iter(loader))["x"].tolist()) == {1}
        write(2)
        with pytest.raises(ColumnError, match=r"another one than when the dataset was made; make a new ArrowDataset"):
            list(loader)
        (tmp_path / "rows.parquet").unlink()
        with pytest.raises(FileNotFoundError, match="rows.parquet"):
            list(loader)
