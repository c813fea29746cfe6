"""Measures the speed of bulk reads from a Parquet file, and the memory of a worker with a list of tuples.

python -m benchmarks.bulk
"""

from __future__ import annotations

import argparse
import importlib
import re
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from gluonloader import BlockShuffleSampler, CompactList, DataLoader
from gluonloader.tables import ArrowDataset

from .report import machine

_BATCH: Final = 1024
_GROUP: Final = 131_072  # number of rows in a row group


class Plain:
    """The simplest dataset of a table: it slices a row out of the table for each sample."""

    def __init__(self, path: Path) -> None:
        self._table = importlib.import_module("pyarrow.parquet").read_table(path)

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: Any) -> Any:
        return self._table.slice(index, 1).to_pylist()[0]


class OneByOne:
    """Hides the method `__getitems__` of a dataset, so that samples are read one by one."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[index]


def main() -> None:
    """Runs both measurements, and prints their results."""
    arguments = _parse()
    pyarrow = importlib.import_module("pyarrow")
    print(f"{machine([])}, pyarrow {pyarrow.__version__}\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        _write(path, arguments.rows)
        print(
            f"{arguments.rows:,} rows in {path.stat().st_size / 1e6:.0f} MB of Parquet, batch {_BATCH}, block shuffle"
        )
        for workers in arguments.workers:
            _compare(ArrowDataset(path), Plain(path), workers, arguments)
    print(f"\nprivate memory of a forked worker at the end of an epoch, for a dataset of {arguments.tuples:,} tuples")
    _memory("few tuples", [(0, 0.0, "")] * _BATCH)
    _memory("CompactList", CompactList(_tuples(arguments.tuples)))
    _memory("list", list(_tuples(arguments.tuples)))


def _compare(dataset: ArrowDataset, plain: Plain, workers: int, arguments: argparse.Namespace) -> None:
    """Prints the rows per second of a whole epoch of bulk reads, and then of some rows that are read one by one."""
    order = BlockShuffleSampler(dataset.row_groups, seed=0)
    rates: list[tuple[float, ...]] = []
    for _ in range(arguments.rounds):
        few = [index for _, index in zip(range(arguments.single_rows), order, strict=False)]
        fewer = few[: len(few) // 10]
        rates.append(
            (_rate(dataset, order, workers), _rate(OneByOne(dataset), few, workers), _rate(plain, fewer, workers))
        )
    bulk, single, sliced = np.median(rates, axis=0).tolist()
    of_single, of_sliced = np.median([[rate[0] / rate[1], rate[0] / rate[2]] for rate in rates], axis=0).tolist()
    print(
        f"  {workers} workers: bulk reads {bulk:,.0f} rows/s; ArrowDataset row by row {single:,.0f} rows/s "
        f"(bulk reads are {of_single:.1f} times as fast); slices of a table {sliced:,.0f} rows/s "
        f"(bulk reads are {of_sliced:.0f} times as fast)"
    )


def _rate(dataset: Any, order: Any, workers: int) -> float:
    with DataLoader(dataset, _BATCH, sampler=order, num_workers=workers) as loader:
        started, rows = time.perf_counter(), 0
        for batch in loader:
            rows += len(batch["id"])
        assert rows == len(order)
        return rows / (time.perf_counter() - started)


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


def _memory(what: str, dataset: Any) -> None:
    with DataLoader(dataset, _BATCH, num_workers=1, start_method="fork", batchify_fn=_worker_memory) as loader:
        *_, last = loader
    print(f"  {what:12}{last / 2**20:8.1f} MB")


def _worker_memory(samples: Sequence[Any]) -> int:
    """Returns the bytes of private memory of this process."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    found = re.search(r"^Private_Dirty: +(\d+) kB", rollup, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks.bulk", description="Compares bulk reads with single reads.")
    parser.add_argument("--rows", type=int, default=10_000_000, help="number of rows of the file (default 10,000,000)")
    single = "number of rows that are read one by one (default 200,000)"
    parser.add_argument("--single-rows", type=int, default=200_000, help=single)
    parser.add_argument("--tuples", type=int, default=1_000_000, help="tuples in the list (default 1,000,000)")
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2], help="numbers of workers (default 0 and 2)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (default 3)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
