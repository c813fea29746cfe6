"""A random order is refused in the constructor for a dataset that would read row groups again and again."""

import numpy as np
import pytest

from gluonloader import BlockShuffleSampler, DataLoader
from gluonloader.tables import ArrowDataset

from .sides import OURS as TorchDataLoader
from .sides import torch

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ROWS = 100
samplers = torch.utils.data


@pytest.fixture
def rows(tmp_path):
    pq.write_table(pa.table({"n": np.arange(ROWS)}), tmp_path / "rows.parquet", row_group_size=10)
    return ArrowDataset(tmp_path / "rows.parquet")


class OfTheUser(samplers.RandomSampler):
    def __iter__(self):
        return iter(range(ROWS))


RANDOM = [
    lambda rows: samplers.RandomSampler(rows),
    lambda rows: samplers.SubsetRandomSampler(range(0, ROWS, 2)),
    lambda rows: samplers.WeightedRandomSampler([1.0] * ROWS, ROWS),
    lambda rows: samplers.DistributedSampler(rows, 2, 0),
]
OTHER = [
    lambda rows: samplers.SequentialSampler(rows),
    lambda rows: samplers.SubsetRandomSampler(range(80)),
    lambda rows: samplers.DistributedSampler(rows, 2, 0, shuffle=False),
    lambda rows: BlockShuffleSampler(rows.row_groups),
    OfTheUser,
]


@pytest.mark.parametrize("persistent", [False, True])
def test_shuffle_is_refused_in_the_constructor(rows, persistent):
    workers = {"num_workers": 1, "persistent_workers": True} if persistent else {}
    for dataset in (rows, rows.transform(lambda row: row["n"])):
        with pytest.raises(ValueError, match=r"^shuffle=True: ArrowDataset keeps 8 .*BlockShuffleSampler\(rows.row_gr"):
            TorchDataLoader(dataset, 8, shuffle=True, **workers)


@pytest.mark.parametrize("make", [*RANDOM, *OTHER])
@pytest.mark.parametrize("L", [DataLoader, TorchDataLoader])
def test_random_samplers_of_torch_are_refused_and_other_orders_are_read(make, L, rows):
    batches = samplers.BatchSampler(make(rows), 8, False)
    for name, arguments in (
        ("sampler", {"batch_size": 8, "sampler": make(rows)}),
        ("batch_sampler", {"batch_sampler": batches}),
    ):
        if make in RANDOM:
            with pytest.raises(ValueError, match=f"^{name}=.*: ArrowDataset keeps 8 decoded row groups"):
                L(rows, **arguments)
        else:
            assert len(next(iter(L(rows, **arguments)))["n"]) == 8
