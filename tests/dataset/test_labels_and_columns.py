"""Objects whose items are no samples, such as columns of pandas and tables; samples whose batch would lose values."""

import numpy as np
import pytest
from conftest import load

from gluonloader import ArrayDataset, DataLoader, Rows, SimpleDataset, StackDataset, Subset, random_split
from gluonloader.batchify import Stack, default_batchify
from gluonloader.errors import BatchifyError

pandas = load("pandas")
needs_pandas = pytest.mark.skipif(pandas is None, reason="needs pandas")


@needs_pandas
def test_columns_of_pandas_are_refused():
    column = pandas.Series([10, 20, 30], index=[2, 0, 1])
    for make in (
        lambda: ArrayDataset(np.arange(3), column),
        lambda: StackDataset(x=np.arange(3), y=column),
        lambda: DataLoader(column, 3),
        lambda: SimpleDataset(column),
        lambda: Subset(column, [0, 2]),
        lambda: SimpleDataset([1]) + column,
        lambda: random_split(column, [2, 1]),
    ):
        with pytest.raises(ValueError, match=r"found by the labels of its index, .* pass series.to_numpy"):
            make()
    for labels in (["b", "a"], np.array(["b", "a"])):
        assert list(Subset(pandas.Series([10, 20], index=["a", "b"]), labels)) == [20, 10]


@needs_pandas
def test_columns_of_pandas_are_read_by_position_if_they_or_a_subclass_allow_it():
    column = pandas.Series([10, 20, 30], index=[2, 0, 1])

    class ByPosition(SimpleDataset):
        def __getitem__(self, index):
            return self._data.iloc[index]

    assert next(iter(DataLoader(ByPosition(column), 3))).tolist() == [10, 20, 30]
    usual = pandas.Series([10, 20, 30])
    assert next(iter(DataLoader(ArrayDataset(np.arange(3), usual), 3)))[1].tolist() == [10, 20, 30]
    for rows in (Rows({"x": column}), Rows({"x": column}, [0, 1, 2])):
        assert [sample["x"] for sample in rows] == default_batchify(rows)["x"].tolist() == [10, 20, 30]


RESULTS = [{"x": [1, 2], "y": [3, 4]}, "ab", b"ab", *([pandas.DataFrame({"x": [1, 2]})] if pandas else [])]


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_a_bulk_read_that_returns_columns_is_an_error(result):
    class Bulk:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return index

        def __getitems__(self, indices):
            return result

    for dataset in (Bulk(), SimpleDataset([1, 2]).transform(lambda samples: result, batched=True)):
        with pytest.raises(TypeError, match=r"returned a \w+; return a list of samples, or Rows\("):
            list(DataLoader(dataset, 2))


def test_records_in_tuples_are_stacked_one_by_one():
    records = np.rec.fromarrays([np.array([True, False]), np.array([False, True])], names="a,b")
    batch, labels = next(iter(DataLoader(ArrayDataset(records, [0, 1]), 2)))
    assert batch.tolist() == records.tolist()
    assert labels.tolist() == [0, 1]


DAY, SECOND = np.array(["9999-01-01"], "M8[D]"), np.array(["2020-01-01"], "M8[ns]")


@pytest.mark.parametrize(
    "samples",
    [
        [np.uint64(2**63 + 1), 3],
        [np.array([2**63], np.uint64), np.array([1])],
        [DAY, SECOND],
        [np.array([10**6], "m8[D]"), np.array([1], "m8[ns]")],
        [np.array([5]), DAY - DAY],
        [np.array(["a"]), np.array([1])],
    ],
    ids=["uint64", "arrays of uint64", "datetimes", "timedeltas", "ints and timedeltas", "text and ints"],
)
@pytest.mark.parametrize("make", [Stack(), default_batchify], ids=["Stack", "default"])
def test_dtypes_whose_common_dtype_loses_values_are_refused(make, samples):
    with pytest.raises(BatchifyError, match="it has dtype .*, but other samples have dtype"):
        make(samples)


def test_ints_of_other_sizes_and_times_of_one_unit_have_a_common_dtype():
    assert default_batchify([np.uint8([1]), np.int16([2])]).dtype == np.int16
    assert default_batchify([np.uint64([1]), np.uint8([2])]).dtype == np.uint64
    assert default_batchify([DAY, DAY.astype(">M8[D]")]).dtype == DAY.dtype
    assert default_batchify([np.array(["a"]), np.array(["bc"])]).dtype == np.dtype("U2")


def test_a_mask_of_objects_is_no_list_of_indices():
    mask = np.array([False, True, True], object)
    with pytest.raises(ValueError, match="mask"):
        Subset(["a", "b", "c"], mask)
    assert list(Subset({"x": 1, "y": 2}, np.array(["y", "x"], object))) == [2, 1]
