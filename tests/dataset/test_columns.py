"""Whatever datasets are made of, and whatever views lie on top: a bulk read is the samples one by one, bit for bit."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from bulk_reads import arrays, assert_same, columns
from conftest import SERIAL, THREAD, examples, load
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_files import COLUMNS, KINDS

import gluonloader as gl
from gluonloader import Rows, default_batchify
from gluonloader.errors import BatchifyError

pa = load("pyarrow")


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


OBJECTS = st.one_of(st.none(), st.integers(-9, 9), st.text(max_size=2), st.just(np.arange(2)), st.just({"a": 1}))


@st.composite
def objects(draw, length):
    """An array of Python objects, of one type or of several."""
    column = np.empty(length, object)
    of = draw(st.sampled_from([st.text(max_size=3), st.integers(-9, 9), OBJECTS]))
    column[:] = draw(st.lists(of, min_size=length, max_size=length))
    return column if draw(st.booleans()) else np.repeat(column, 2).reshape(length, 2)


@st.composite
def mapped(draw, length, folder):
    """A memory map; those of files that have nothing in them there are none."""
    array = draw(arrays(length))
    file = tempfile.NamedTemporaryFile(dir=folder, suffix=".npy", delete=False)
    np.save(file, array)
    file.close()
    return np.load(file.name, mmap_mode=draw(st.sampled_from(["r", "c"])))


@st.composite
def arrow(draw, length):
    kinds = [st.integers(-9, 9), st.floats(allow_nan=False), st.text(max_size=2), st.none() | st.integers(0, 9)]
    kinds += [st.lists(st.integers(0, 9), min_size=2, max_size=2), st.datetimes()]
    names = draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True))
    table = pa.table(
        {name: draw(st.sampled_from(kinds).flatmap(lambda kind: st.lists(kind, min_size=length, max_size=length)))
         for name in names}
    )  # fmt: skip
    return gl.tables.ArrowDataset(table)


@st.composite
def sources(draw, length, folder):
    """A dataset of this length."""
    kinds = [columns(length), columns(length), objects(length), mapped(length, folder)]
    kinds += [st.just(range(length)), st.just(gl.CompactList(map(str, range(length))))]
    kind = draw(st.sampled_from(["arrays", "arrays", "named", "tuples", "simple", "arrow"]))
    if kind == "arrow" and pa is not None:
        return draw(arrow(length))
    if kind == "simple":
        return gl.SimpleDataset(draw(st.one_of(arrays(length), objects(length), mapped(length, folder))))
    others = draw(st.lists(st.one_of(kinds), max_size=2))
    parts = draw(st.permutations([draw(st.one_of(arrays(length), mapped(length, folder))), *others]))
    if kind == "named":
        return gl.StackDataset(**dict(zip("abc", parts)))
    return gl.StackDataset(*parts) if kind == "tuples" else gl.ArrayDataset(*parts)


def unchanged(rows):
    return rows


def listed(rows):
    return list(rows)


def parts_of(held):
    return held.values() if isinstance(held, dict) else held if isinstance(held, tuple) else [held]


def picked(rows):
    nested = isinstance(rows, Rows) and any(isinstance(column, Rows) for column in parts_of(rows.held))
    return rows if nested or not isinstance(rows, Rows) else Rows(rows.columns)


def named(rows):
    return Rows({"all": rows if isinstance(rows, Rows) else list(rows)})


def twice(rows):
    return Rows((list(rows), rows if isinstance(rows, Rows) else list(rows)))


@st.composite
def views(draw, dataset, folder):
    """The dataset under up to four views."""
    for _ in range(draw(st.integers(0, 4))):
        length, step = len(dataset), draw(st.sampled_from(range(9)))
        indices = st.lists(st.integers(-length, length - 1), min_size=1, max_size=9) if length else st.just([])
        if step == 0:
            dataset = dataset.shard(2, draw(st.integers(0, 1)))
        elif step == 1:
            dataset = dataset.take(draw(st.none() | st.integers(0, length + 1)))
        elif step == 2:
            dataset = dataset.sample(draw(indices))
        elif step == 3:
            keep = iter(draw(st.lists(st.booleans(), min_size=length, max_size=length)))
            dataset = dataset.filter(lambda sample: next(keep))
        elif step == 4:
            kind = draw(st.sampled_from([list, np.array, tuple]))
            dataset = gl.Subset(dataset, kind(draw(indices)) if length else [])
        elif step == 5:
            other = draw(sources(draw(st.integers(1, 4)), folder)) if draw(st.booleans()) else dataset
            dataset = gl.ConcatDataset(draw(st.permutations([dataset, other, dataset])))
        elif step == 6:
            dataset = dataset.transform(draw(st.sampled_from([unchanged, listed, picked, named, twice])), batched=True)
        elif step == 7:
            dataset = gl.StackDataset(dataset, draw(sources(length, folder))) if length else dataset
        else:
            dataset = gl.random_split(dataset, [1 / 4, 3 / 4], seed=1)[draw(st.integers(0, 1))]
    return dataset


@st.composite
def pipelines(draw, folder):
    return draw(views(draw(sources(draw(st.integers(1, 6)), folder)), folder))


@st.composite
def keys(draw, length):
    """Indices as samplers give them: ints of Python or NumPy, or an array; some from the end, some twice."""
    found = draw(st.lists(st.integers(-length, length - 1), min_size=1, max_size=12))
    kinds = [list, np.array, lambda found: [np.int32(i) if i % 2 else i for i in found]]
    return draw(st.sampled_from(kinds))(found)


def kind_of(sample):
    """Its type; a row of a memory map may have become one of an array."""
    return np.ndarray if isinstance(sample, np.ndarray) else type(sample)


def outcome(make):
    """The batch, or which sample is in the way."""
    try:
        return make()
    except BatchifyError as error:
        return BatchifyError, error.row, error.path


def check(dataset, data):
    if not hasattr(dataset, "__getitems__"):
        return
    assert len(dataset.__getitems__([])) == 0
    if len(dataset):
        indices = data.draw(keys(len(dataset)), "indices")
        samples, single = dataset.__getitems__(indices), [dataset[index] for index in indices]
        expected = outcome(lambda: default_batchify(single))
        assert_same(outcome(lambda: default_batchify(samples)), expected)
        assert_same(outcome(lambda: default_batchify(list(samples))), expected)
        assert list(map(kind_of, samples)) == list(map(kind_of, single))
    outside = data.draw(st.sampled_from([len(dataset), -len(dataset) - 1, len(dataset) + 1000]))
    with pytest.raises(IndexError):
        dataset[outside]
    with pytest.raises(IndexError) as caught:
        default_batchify(dataset.__getitems__([*range(len(dataset)), outside]))
    assert str(outside) in str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))


@pytest.mark.slow
@settings(max_examples=examples(200), suppress_health_check=list(HealthCheck))
@given(st.data())
def test_bulk_reads_are_the_samples_one_by_one(folder, data):
    check(data.draw(pipelines(folder), "dataset"), data)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_so_are_those_of_columns_in_files(kind, folder, data):
    if kind.library is None:
        pytest.skip(f"needs the library for {kind.name}")
    if not (folder / kind.name).exists():
        (folder / kind.name).mkdir()
        kind.write(folder / kind.name, {name: column[:7] for name, column in COLUMNS.items()}, 3)
    names = data.draw(st.lists(st.sampled_from(["images", "labels", "codes"]), min_size=1, unique=True))
    check(data.draw(views(kind.open(folder / kind.name, *names), folder), "dataset"), data)


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_loaders_give_the_samples_one_by_one(folder, data):
    dataset = data.draw(pipelines(folder), "dataset")
    if not len(dataset):
        return
    indices = data.draw(keys(len(dataset)), "indices")
    expected = outcome(lambda: default_batchify([dataset[index] for index in indices]))
    for way in (SERIAL, THREAD):
        with way.loader(dataset, len(indices), sampler=indices) as loader:
            batch = outcome(lambda: next(iter(loader)))
        assert_same(batch, expected)
