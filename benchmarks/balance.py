"""Load balance: measures how the settings of a loader change the time of an epoch if batches take different times.

Workers sleep instead of making batches, and the caller sleeps after each batch, so the number of cores does not matter.
The shortest possible time of an epoch is the time that all samples take, divided by the number of workers; the caller
sleeps equally long. The table shows the measured time of an epoch as a multiple of the shortest possible time, and the
most shared memory that was in use.

With `--batch-size`, batches contain slow samples among quick ones.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gluonloader import DataLoader
from gluonloader.options import Processes

from .harness import Figures, Table, Topic
from .processes import peak, shared_memory
from .report import size_of

BATCHES: Final = 200
_SAMPLE_BYTES: Final = 128 * 1024
SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    **{f"prefetch = {n:2} workers": {"window": n} for n in (1, 2, 4, 8, 16)},
    "max_per_worker=1": {"executor": Processes(max_per_worker=1)},
    "concurrency=16": {"concurrency": 16},
    **{f"in_order=False, {n:2} workers": {"in_order": False, "window": n} for n in (1, 2, 4, 8)},
}


class Sleeper:
    """A dataset whose sample i sleeps for `seconds[i]`."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return len(self._seconds)

    def __getitem__(self, index: int) -> Any:
        time.sleep(self._seconds[index])
        return np.full(_SAMPLE_BYTES // 4, index, np.float32)


def run(options: Namespace) -> Iterator[Table]:
    """Yields the table: a row for each setting, and a column for each pattern of times."""
    patterns = _slow_batches() if options.batch_size == 1 else _slow_samples(options.batch_size)
    mean = options.milliseconds / 1000
    seconds = {name: (times * (mean * BATCHES / times.sum())).tolist() for name, times in patterns.items()}
    yield Table(
        f"{BATCHES} batches of {size_of(options.batch_size * _SAMPLE_BYTES)}: multiple of the shortest time",
        {name: partial(_epochs, seconds, options, **setting) for name, setting in SETTINGS.items()},
        {**dict.fromkeys(patterns, "{:.2f}".format), "shared memory": size_of},
    )


def _slow_batches() -> dict[str, NDArray[Any]]:
    return {
        "even": np.ones(BATCHES),
        "unequal": np.random.default_rng(0).lognormal(0, 1, BATCHES),
        "1 of 20 slow": np.where(np.arange(BATCHES) % 20 == 7, 20.0, 1.0),
    }


def _slow_samples(batch_size: int) -> dict[str, NDArray[Any]]:
    count, rng = BATCHES * batch_size, np.random.default_rng(0)
    return {
        "even": np.ones(count),
        "unequal": rng.lognormal(0, 2, count),
        "1 of 50, 50x": np.where(rng.permutation(count) % 50 == 0, 50.0, 1.0),
        "1 of 500, 500x": np.where(rng.permutation(count) % 500 == 0, 500.0, 1.0),
    }


def _epochs(patterns: Mapping[str, list[float]], options: Namespace, window: int = 2, **arguments: Any) -> Figures:
    """Reads an epoch with each pattern of times."""
    before, found = shared_memory(), {}
    with peak(shared_memory, 0.1) as samples:
        for name, seconds in patterns.items():
            pause = sum(seconds) / options.workers / BATCHES
            with DataLoader(
                Sleeper(seconds), options.batch_size, num_workers=options.workers, prefetch=window * options.workers,
                **arguments,
            ) as loader:  # fmt: skip
                next(iter(loader))  # so that the workers have started
                start = time.perf_counter()
                for _ in loader:
                    time.sleep(pause)
                found[name] = (time.perf_counter() - start) / BATCHES / pause
    return {**found, "shared memory": max(samples) - before}


TOPIC: Final = Topic(
    run,
    options={
        "batch_size": (1, "number of samples in a batch"),
        "milliseconds": (10.0, "mean time of a batch; the caller takes as long as all workers together"),
    },
)
