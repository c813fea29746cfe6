"""`ArrowDataset(columns={...})`: fields of several columns as 2-D arrays, from tables and Parquet files."""

import decimal
import pickle

import numpy as np
import pytest
from bulk_reads import assert_bulk_is_the_same
from conftest import ANY
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gluonloader as gl
from gluonloader import BlockShuffleSampler
from gluonloader.tables import ArrowDataset

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 25
NUMBERS = {
    "a": np.arange(ROWS, dtype=np.int32),
    "b": np.arange(ROWS, dtype=np.float32) / 2,
    "c": np.arange(ROWS, dtype=np.int8) - 9,
    "flag": np.arange(ROWS) % 3 == 0,
    "big": np.arange(ROWS, dtype=np.int64) + 2**40,
    "label": np.arange(ROWS, dtype=np.int64) * 7,
}
TABLE = pa.table({**NUMBERS, "name": [f"row {i}" for i in range(ROWS)]})


@pytest.fixture(params=["table", "chunks", "one row group", "row groups", "files"])
def source(request, tmp_path):
    """The same rows from each kind of source."""
    if request.param == "table":
        return TABLE
    if request.param == "chunks":
        return pa.concat_tables([TABLE.slice(0, 4), TABLE.slice(4, 0), TABLE.slice(4)])
    if request.param == "files":
        for name, part in (("a", TABLE.slice(0, 11)), ("b", TABLE.slice(11))):
            pq.write_table(part, tmp_path / f"{name}.parquet", row_group_size=6)
        return [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    pq.write_table(TABLE, tmp_path / "t.parquet", row_group_size=ROWS if request.param == "one row group" else 6)
    return tmp_path / "t.parquet"


def stacked(*names, dtype):
    return np.stack([NUMBERS[name].astype(dtype) for name in names], axis=1)


def test_a_list_of_columns_is_one_array_and_a_text_is_the_column(source):
    dataset = ArrowDataset(source, columns={"x": ["a", "b", "c"], "y": "label", "who": "name"})
    x = stacked("a", "b", "c", dtype=np.float64)
    sample = dataset[7]
    assert list(sample) == ["x", "y", "who"]
    assert sample["x"].dtype == x.dtype
    assert sample["x"].tolist() == x[7].tolist()
    assert (type(sample["y"]), sample["y"], sample["who"]) == (np.int64, 49, "row 7")
    indices = [24, 0, 5, 6, -2]
    batch = gl.default_batchify(dataset.__getitems__(indices))
    assert batch["x"].tolist() == x[indices].tolist()
    assert (batch["x"].shape, batch["x"].dtype, batch["x"].flags.c_contiguous) == ((5, 3), x.dtype, True)
    assert batch["y"].tolist() == NUMBERS["label"][indices].tolist()
    for rows in (indices, [3, 4], [8]):
        assert_bulk_is_the_same(dataset, rows)
    assert repr(dataset) == "ArrowDataset(25 rows of 3 columns)"


def test_a_column_may_be_in_several_fields_and_keys_may_be_its_name(source):
    dataset = ArrowDataset(source, {"a": ["label", "a"], "label": "label", "c": "a"})
    assert {key: np.array(value).tolist() for key, value in dataset[2].items()} == {"a": [14, 2], "label": 14, "c": 2}


def test_a_null_is_nan_and_makes_ints_float64(tmp_path):
    columns = {"i": pa.array([1, None, 3], pa.int16()), "f": pa.array([None, 2.5, 3], pa.float32()), "g": [1, 2, 3]}
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=1)
    for source in (pa.table(columns), tmp_path / "t.parquet"):
        dataset = ArrowDataset(source, {"x": ["i", "f"], "g": ["g"]})
        batch = gl.default_batchify(dataset.__getitems__([0, 1, 2]))
        np.testing.assert_array_equal(batch["x"], [[1, np.nan], [np.nan, 2.5], [3, 3]])
        assert batch["x"].dtype == np.float64
        assert batch["g"].dtype == np.int64
    pq.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=1, write_statistics=False)
    with pytest.raises(ValueError, match="column .i.: it contains a null.*of int16;.*cast the column to floats"):
        ArrowDataset(tmp_path / "t.parquet", {"x": ["i", "g"]})[1]


def test_decimals_and_categories_of_numbers_are_numbers():
    columns = {
        "price": pa.array([decimal.Decimal("2.5"), None], pa.decimal128(5, 2)),
        "kind": pa.array([5, 6], pa.int64()).dictionary_encode(),
    }
    dataset = ArrowDataset(pa.table(columns), {"x": ["price", "kind"]})
    np.testing.assert_array_equal([row["x"] for row in dataset], [[2.5, 5], [np.nan, 6]])


@given(
    columns=st.lists(
        st.sampled_from(["?", "i1", "u2", "i4", "u8", "i8", "f2", "f4", "f8"]).flatmap(
            lambda dtype: hnp.arrays(dtype, 6, elements={"allow_nan": False} if dtype[0] == "f" else None)
        ),
        min_size=1,
        max_size=5,
    ),
    group=st.integers(1, 6),
)
@settings(max_examples=30)
def test_any_columns_of_numbers_are_those_that_numpy_stacks(columns, group, tmp_path_factory):
    names = [f"c{number}" for number in range(len(columns))]
    whole = pa.table(dict(zip(names, columns)))
    expected = np.stack(columns, axis=1)
    path = tmp_path_factory.mktemp("stacked") / "t.parquet"
    pq.write_table(whole, path, row_group_size=group)
    for source in (whole, path):
        dataset = ArrowDataset(source, {"x": names, "twice": (names[0], names[0])})
        batch = gl.default_batchify(dataset.__getitems__(np.arange(6)))
        assert batch["x"].dtype == dataset[3]["x"].dtype == expected.dtype
        np.testing.assert_array_equal(batch["x"], expected)
        assert batch["twice"].dtype == columns[0].dtype
        np.testing.assert_array_equal(batch["twice"], np.stack([columns[0]] * 2, axis=1))


def test_a_sample_belongs_to_the_program(source):
    """Else a transform that writes to its sample would change the next epoch."""
    dataset = ArrowDataset(source, {"x": ["a", "b"]})
    dataset[3]["x"][:] = -1
    assert dataset[3]["x"].tolist() == [3, 1.5]
    vectors = pa.table({"v": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float64(), 2))})
    dataset = ArrowDataset(vectors)
    dataset[1]["v"][:] = -1
    assert dataset[1]["v"].tolist() == [3, 4]


def test_writing_to_a_frame_does_not_change_the_dataset():
    frame = pytest.importorskip("pandas").DataFrame({"n": np.arange(5), "x": np.arange(5) / 2})
    dataset = ArrowDataset(frame, {"n": "n", "x": ["x"]})
    frame.loc[:, ["n", "x"]] = -1
    assert [row["n"] for row in dataset] == [0, 1, 2, 3, 4]
    assert [row["x"].tolist() for row in dataset] == [[0], [0.5], [1], [1.5], [2]]


@pytest.mark.parametrize("way", ANY, ids=str)
def test_every_executor_makes_2d_batches(way, source):
    dataset = pickle.loads(pickle.dumps(ArrowDataset(source, {"x": ["a", "b"], "y": "label"})))
    sampler = BlockShuffleSampler(dataset.row_groups, buffer=2, seed=0)
    with way.loader(dataset, 4, sampler=sampler) as loader:
        batches = list(loader)
    x, y = (np.concatenate([batch[key] for batch in batches]) for key in ("x", "y"))
    order = np.argsort(y)
    assert y[order].tolist() == NUMBERS["label"].tolist()
    assert x[order].tolist() == stacked("a", "b", dtype=np.float64).tolist()


def test_only_the_columns_that_are_named_are_read(tmp_path):
    pq.write_table(TABLE, tmp_path / "a.parquet")
    pq.write_table(TABLE.append_column("more", pa.array(range(ROWS))), tmp_path / "b.parquet")
    assert len(ArrowDataset([tmp_path / "a.parquet", tmp_path / "b.parquet"], {"x": ["a", "b"]})) == 2 * ROWS


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (["u", "v"], "large_string"),
        (np.array([1, 2], "M8[s]"), r"timestamp\[s\]"),
        ([[1, 2], [3]], "list<.*"),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2)), "fixed_size_list<.*"),
        (pa.nulls(2), "null"),
    ],
    ids=["text", "times", "lists", "vectors", "nulls"],
)
def test_a_column_without_numbers_is_refused_with_the_cure(column, kind):
    table = pa.table({"n": [1, 2], "other": column})
    with pytest.raises(
        ValueError,
        match=rf"columns\['x'\]: column 'other' has type {kind}, but a 2-D array takes only numbers and bools; read it "
        r"under its own key: \{\.\.\., 'other': 'other'\}",
    ):
        ArrowDataset(table, {"x": ["n", "other"]})
    assert list(ArrowDataset(table, {"x": ["n"], "other": "other"})[0]) == ["x", "other"]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({}, r"columns=\{\}: pass a list of column names, a dict such as \{'x': \['a', 'b'\], 'y': 'c'\}, or None"),
        ([0], r"columns=\[0\]: pass a list of column names"),
        ([("a", "b")], r"columns=.*: pass a list of column names"),
        (5, r"columns=5: pass a list of column names"),
        (["a", "b", "a"], r"columns=.*: it names a column twice; remove one of them"),
        ({"x": []}, r"columns\['x'\]=\[\]: must be the name of a column, or a list of names"),
        ({"x": None}, r"columns\['x'\]=None: must be"),
        ({"x": ["a", 3]}, r"columns\['x'\]=\['a', 3\]: must be"),
        ({"x": [["a"]]}, r"columns\['x'\]=.*: must be"),
        ({3: "a"}, r"columns\[3\]='a': .*the key must be a str"),
        ({"x": ["a", "z"]}, "the table: there is no column named 'z'"),
        ({"x": "z"}, "the table: there is no column named 'z'"),
    ],
    ids=str,
)
def test_wrong_layouts_are_refused(columns, text):
    with pytest.raises(ValueError, match=text):
        ArrowDataset(TABLE, columns)
