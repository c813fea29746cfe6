"""Reads a Parquet file of made-up taxi rides in shuffled order, many rows at a time, and computes features.

    pip install ".[arrow]"
    python examples/parquet_bulk.py --help

To make a batch, a worker calls the dataset once and copies each column once. It decodes a row group once per epoch.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gluonloader import BlockShuffleSampler, DataLoader, Rows
from gluonloader.tables import ArrowDataset

BATCH = 1024


def write_rides(path, count, seed):
    """Writes a table of rides with start time, start zone, distance, kind of payment and fare."""
    rng = np.random.default_rng(seed)
    distance = rng.gamma(2, 2, count).astype(np.float32)
    started = np.datetime64("2024-01-01", "us") + rng.integers(0, 366 * 86_400, count) * np.timedelta64(1, "s")
    table = pa.table(
        {
            "started": started,
            "zone": pa.array(rng.integers(0, 40, count).astype(np.int16)),
            "distance": distance,
            "paid_by": pa.array(np.array(["card", "cash", "app"])[rng.integers(0, 3, count)]).dictionary_encode(),
            "fare": np.round(2.5 + 1.8 * distance + rng.normal(0, 0.5, count), 2),
        }
    )
    pq.write_table(table, path, row_group_size=count // 16)


def features(rides):
    """Computes the features of all rides of a batch at once, column by column."""
    columns = rides.columns
    hour = (columns["started"] - columns["started"].astype("M8[D]")) / np.timedelta64(1, "h")
    inputs = np.stack([np.sin(hour * np.pi / 12), np.cos(hour * np.pi / 12), columns["distance"]], axis=1)
    return Rows({"inputs": inputs.astype(np.float32), "fare": columns["fare"], "paid_by": columns["paid_by"]})


def arguments():
    parser = argparse.ArgumentParser(description="Read a Parquet file in bulk, in shuffled order.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2, help="number of workers; 0 loads in the main program")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main():
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rides.parquet"
        write_rides(path, options.rows, options.seed)
        rides = ArrowDataset(path)
        print(f"{path.stat().st_size / 1e6:.0f} MB in {len(rides.row_groups)} row groups; a ride: {rides[0]}")

        data = rides.transform(features, batched=True)
        order = BlockShuffleSampler(rides.row_groups, seed=options.seed)
        rows = fares = distances = 0
        with DataLoader(data, BATCH, sampler=order, num_workers=options.workers) as loader:
            before = time.perf_counter()
            for batch in loader:
                rows += len(batch["fare"])
                fares += batch["fare"].sum()
                distances += batch["inputs"][:, 2].sum(dtype=np.float64)
            seconds = time.perf_counter() - before
    print(f"rows: {rows:,}, mean fare {fares / rows:.2f} for {distances / rows:.2f} miles")
    print(f"rows per second: {rows / seconds:,.0f} ({options.workers} workers, {seconds:.1f} s)")


if __name__ == "__main__":
    main()
