"""A random order is refused once, in the constructor, if the dataset would read row groups again and again."""

import numpy as np
import pytest

import gluonloader as gl
from gluonloader import (
    ArrayDataset,
    BatchSampler,
    BlockShuffleSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    RandomSampler,
    ShardedSampler,
    StackDataset,
    Subset,
    SubsetSampler,
    WeightedSampler,
    random_split,
)
from gluonloader.buckets import SplitSampler
from gluonloader.tables import ArrowDataset

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS, GROUP = 1000, 50  # 20 row groups
AGAIN = "keeps 8 decoded row groups, but this order mixes the rows of 20, so it would decode them again and again"


@pytest.fixture
def path(tmp_path):
    pq.write_table(pa.table({"n": np.arange(ROWS)}), tmp_path / "rows.parquet", row_group_size=GROUP)
    return tmp_path / "rows.parquet"


def numbers(loader):
    with loader:
        return sorted(int(n) for batch in loader for n in batch["n"])


def refused(dataset, text, **order):
    with pytest.raises(ValueError, match=text) as caught:
        DataLoader(dataset, **{"batch_size": 8, **order})
    return str(caught.value)


def test_shuffle_is_refused_with_a_call_that_works(path):
    rows = ArrowDataset(path)
    error = refused(rows, "^shuffle=True: ArrowDataset " + AGAIN, shuffle=True)
    assert "DataLoader(dataset, batch_size, sampler=BlockShuffleSampler(rows.row_groups)), where rows is" in error
    assert error.endswith("; or keep all of them in the memory of each worker: ArrowDataset(..., keep=20)")
    assert numbers(DataLoader(rows, 8, sampler=BlockShuffleSampler(rows.row_groups))) == list(range(ROWS))
    assert numbers(DataLoader(ArrowDataset(path, keep=20), 8, shuffle=True)) == list(range(ROWS))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_what_fits_is_shuffled(path, num_workers):
    small = ArrowDataset(path, keep=20)
    for dataset in (small, ArrowDataset(pq.read_table(path)), ArrowDataset(path).take(8 * GROUP)):
        assert numbers(DataLoader(dataset, 100, shuffle=True, num_workers=num_workers)) == list(range(len(dataset)))
    refused(ArrowDataset(path, keep=19), "mixes the rows of 20", shuffle=True)


def test_the_buffer_in_the_call_fits_into_what_is_kept(path):
    error = refused(ArrowDataset(path, keep=2), "mixes", shuffle=True)
    assert "BlockShuffleSampler(rows.row_groups, buffer=2)" in error
    error = refused(ArrowDataset(path, keep=3).take(500), "mixes the rows of 10,", shuffle=True)
    assert "BlockShuffleSampler.of_size(len(dataset), 50, buffer=1)" in error


@pytest.mark.parametrize(
    "order",
    [
        {"sampler": RandomSampler(ROWS)},
        {"sampler": RandomSampler(ROWS, method="bijection")},
        {"sampler": ShardedSampler(RandomSampler(ROWS, seed=0), 2, 1)},
        {"batch_sampler": BatchSampler(RandomSampler(ROWS), 8), "batch_size": None},
        {"batch_sampler": BatchSampler(ShardedSampler(RandomSampler(ROWS, seed=0), 2, 1), 8), "batch_size": None},
        {"sampler": WeightedSampler(np.ones(ROWS))},
        {"sampler": SubsetSampler(np.arange(0, ROWS, 10), shuffle=True)},
        {"sampler": SplitSampler(ROWS)},
    ],
    ids=str,
)
def test_a_random_order_of_every_sampler_is_refused(order, path):
    name = next(iter(order))
    error = refused(ArrowDataset(path), AGAIN, **order)
    assert error.startswith(f"{name}={order[name]!r}: ")


class InBlocks(RandomSampler):
    """A user's sampler, which only has the base class in common with a random order."""

    def __iter__(self):
        return iter(range(len(self)))


class OfBlocks(gl.Sampler):
    """A user's sampler that mixes blocks by another sampler."""

    def __init__(self):
        self.sampler = RandomSampler(ROWS // GROUP)

    def __iter__(self):
        return (block * GROUP + row for block in self.sampler for row in range(GROUP))

    def __len__(self):
        return ROWS


@pytest.mark.parametrize(
    "order",
    [
        {"sampler": BlockShuffleSampler([GROUP] * (ROWS // GROUP))},
        {"sampler": InBlocks(ROWS)},
        {"sampler": OfBlocks()},
        {"sampler": SubsetSampler(np.arange(ROWS))},
        {"sampler": SubsetSampler(np.arange(400, 800), shuffle=True)},
        {"sampler": SplitSampler(ROWS, 4, 3)},
        {"sampler": WeightedSampler([1.0] * 100 + [0.0] * 900)},
        {"sampler": RandomSampler(8 * GROUP)},
        {"batch_sampler": BatchSampler(range(ROWS), 8), "batch_size": None},
        {"batch_sampler": [[0, 999], [500, 1]], "batch_size": None},
        {},
    ],
    ids=str,
)
def test_every_other_order_is_read(order, path):
    with DataLoader(ArrowDataset(path), **{"batch_size": 8, **order}) as loader:
        assert len(next(iter(loader))["n"]) in (2, 8)


def transformed(rows):
    return rows.transform(lambda row: row)


WHOLE = {
    "transform": transformed,
    "batched": lambda rows: rows.transform(lambda batch: batch, batched=True),
    "stacked": lambda rows: StackDataset(row=rows, label=np.arange(ROWS)).transform(lambda sample: sample["row"]),
    "arrays": lambda rows: ArrayDataset(rows, list(range(ROWS))).transform(lambda row, label: row),
}


@pytest.mark.parametrize("make", WHOLE.values(), ids=WHOLE)
def test_a_view_of_all_rows_is_refused_with_the_row_groups(make, path):
    rows = ArrowDataset(path)
    assert "sampler=BlockShuffleSampler(rows.row_groups))" in refused(make(rows), AGAIN, shuffle=True)
    assert numbers(DataLoader(make(rows), 8, sampler=BlockShuffleSampler(rows.row_groups))) == list(range(ROWS))


PARTS = {
    "take": (lambda rows: rows.take(600), 12, 50),
    "shard of a transform": (lambda rows: transformed(rows).shard(2, 1), 10, 50),
    "every third": (lambda rows: Subset(rows, range(999, -1, -3)), 20, 16),
    "chosen": (lambda rows: Subset(rows, np.arange(0, ROWS, 7)), 20, 7),
    "part of a part": (lambda rows: Subset(rows.take(900), range(0, 900, 2)), 18, 25),
    "chosen of a part": (lambda rows: Subset(rows.take(900), [*range(0, 900, 2)]), 18, 25),
    "split": (lambda rows: random_split(rows, [0.8, 0.2], seed=0)[0], 20, 40),
    "joined": (lambda rows: ConcatDataset([0] * 3, rows), 20, 50),
    "part of joined": (lambda rows: (rows + rows).take(700), 14, 50),
    "other part of joined": (lambda rows: Subset(rows + rows, range(1999, 1499, -1)), 10, 50),
}


@pytest.mark.parametrize(("make", "groups", "block"), PARTS.values(), ids=PARTS)
def test_parts_are_refused_with_blocks_of_their_own(make, groups, block, path):
    dataset = make(ArrowDataset(path))
    error = refused(dataset, f"mixes the rows of {groups},", shuffle=True)
    assert f"sampler=BlockShuffleSampler.of_size(len(dataset), {block}))" in error
    assert error.endswith(f"keep={groups})")
    error = refused(dataset, f"mixes the rows of {groups},", sampler=RandomSampler(len(dataset)))
    assert f"of_size(len(dataset), {block}))" in error


def test_the_order_of_blocks_of_a_part_reads_each_row_group_once_or_twice(path, monkeypatch):
    part = Subset(ArrowDataset(path), np.arange(0, ROWS, 7))
    sampler = BlockShuffleSampler.of_size(len(part), 7, seed=0)
    reads = []
    original = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda *args, **kwargs: reads.append(args[1]) or original(*args, **kwargs)
    )
    assert numbers(DataLoader(part, 8, sampler=sampler)) == list(range(0, ROWS, 7))
    assert len(reads) <= 2 * ROWS // GROUP


FEW = {
    "take": lambda rows: rows.take(8 * GROUP),
    "shard": lambda rows: rows.shard(4, 2),
    "chosen": lambda rows: Subset(rows, [3, 999, 500]),
    "part of joined": lambda rows: Subset(rows + rows, range(900, 1300)),
    "keys": lambda rows: Subset({"a": rows[0]}, ["a"]),
    "nothing": lambda rows: rows.take(0),
}


@pytest.mark.parametrize("make", FEW.values(), ids=FEW)
def test_parts_that_lie_in_few_row_groups_are_shuffled(make, path):
    dataset = make(ArrowDataset(path))
    assert len(numbers(DataLoader(dataset, 100, shuffle=True))) == len(dataset)


class Slow(Dataset):
    """A user's dataset that reads blocks."""

    def __len__(self):
        return 100

    def __getitem__(self, index):
        return {"n": index}

    def slow_in_random_order(self, indices):
        return "" if indices is not None and len(indices) <= 50 else "it reads blocks; sort the indices"


def test_a_dataset_of_the_users_may_refuse_a_random_order():
    refused(Slow(), "^shuffle=True: it reads blocks; sort the indices$", shuffle=True)
    refused(transformed(Slow()), "it reads blocks", shuffle=True)
    refused(Subset(Slow(), range(60)), "it reads blocks", sampler=RandomSampler(60))
    assert numbers(DataLoader(Slow().take(50), 8, shuffle=True)) == list(range(50))
    assert numbers(DataLoader(Slow(), 8)) == list(range(100))


class Plain:
    """A user's dataset that says nothing, and that has no length."""

    def __init__(self, rows):
        self.rows = rows

    def __getitem__(self, index):
        return self.rows[index]


def test_a_dataset_that_says_nothing_is_read(path):
    rows = ArrowDataset(path)
    with DataLoader(Plain(rows), 8, sampler=RandomSampler(ROWS)) as loader:
        assert len(next(iter(loader))["n"]) == 8


@pytest.mark.parametrize("indices", [[], range(0), np.zeros(0, int)])
def test_empty_parts_are_read(indices):
    data = gl.ConcatDataset(gl.Subset(gl.Subset(range(3), indices), indices), range(3))
    assert sorted(batch.item() for batch in DataLoader(data, 1, shuffle=True)) == [0, 1, 2]
