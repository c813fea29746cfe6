"""Bulk reads: how much faster they are for a Parquet file; and the memory of a worker with a list of tuples.

The rows of a table are read in shuffled blocks: all rows in bulk, and some of them one by one.
"""

from __future__ import annotations

import importlib
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from gluonloader import BlockShuffleSampler, CompactList, DataLoader
from gluonloader.tables import ArrowDataset

from .harness import Figures, Table, Topic
from .processes import memory_of
from .report import size_of

_BATCH: Final = 1024
_GROUP: Final = 131_072  # number of rows in a row group


class OneByOne:
    """Hides the method `__getitems__` of a dataset, so that samples are read one by one."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        return self._dataset[index]


def run(options: Namespace) -> Iterator[Table]:
    """Yields the tables."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        _write(path, options.rows)
        dataset = ArrowDataset(path)
        order = BlockShuffleSampler(dataset.row_groups, seed=0)
        few = list(islice(order, options.single_rows))
        for workers in (0, options.workers):
            rows = {
                "bulk reads": partial(_rate, dataset, order, workers),
                "row by row": partial(_rate, OneByOne(dataset), few, workers),
            }
            title = f"{options.rows:,} rows in {size_of(path.stat().st_size)} of Parquet, {workers} workers"
            yield Table(title, rows, {"rows per s": "{:,.0f}".format}, base="bulk reads")
    datasets = {
        "few tuples": [(0, 0.0, "")] * _BATCH,
        "CompactList": CompactList(_tuples(options.tuples)),
        "list": list(_tuples(options.tuples)),
    }
    memory = {name: partial(_memory, data) for name, data in datasets.items()}
    yield Table(f"A forked worker with {options.tuples:,} tuples", memory, {"memory": size_of}, rounds=1)


def _rate(dataset: Any, order: Any, workers: int) -> Figures:
    with DataLoader(dataset, _BATCH, sampler=order, num_workers=workers) as loader:
        started = time.perf_counter()
        rows = sum(len(batch["id"]) for batch in loader)
        return {"rows per s": rows / (time.perf_counter() - started)}


def _write(path: Path, count: int) -> None:
    pyarrow, parquet = map(importlib.import_module, ("pyarrow", "pyarrow.parquet"))
    rng = np.random.default_rng(0)
    schema = pyarrow.schema(
        {"id": pyarrow.int64(), "kind": pyarrow.int32(), "x": pyarrow.float32(), "y": pyarrow.float64(), "s": "string"}
    )
    with parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, count, _GROUP):
            rows = min(_GROUP, count - start)
            ids = np.arange(start, start + rows)
            names = np.char.add("name ", rng.integers(0, 10_000, rows).astype("U"))
            columns = [ids, rng.integers(0, 9, rows, np.int32), rng.random(rows, np.float32), rng.random(rows), names]
            writer.write_table(pyarrow.table(columns, schema))


def _tuples(count: int) -> Iterable[tuple[int, float, str]]:
    return ((i, float(i), f"sample {i}") for i in range(count))


def _memory(dataset: Any) -> Figures:
    """Returns the private memory of a worker at the end of an epoch."""
    with DataLoader(dataset, _BATCH, num_workers=1, start_method="fork", batchify_fn=_private_memory) as loader:
        *_, last = loader
    return {"memory": last}


def _private_memory(samples: Sequence[Any]) -> int:
    return memory_of("Private_Dirty")


TOPIC: Final = Topic(
    run,
    options={
        "rows": (10_000_000, "number of rows of the file"),
        "single_rows": (200_000, "number of rows that are read one by one"),
        "tuples": (1_000_000, "number of tuples in the list"),
    },
    packages=("pyarrow",),
)
