"""Ranks of one machine with workers of their own, and with workers that they share: memory, and time per batch.

The dataset is a list of tuples of a path and a label. Every worker that reads a list gets a private copy of its pages
in time, because reading an object changes its count of references. *Memory* is what all processes of a program take
while they read, without what the same processes take before there is a dataset. A page that several processes map
counts once. *Time per batch* is that of the slowest rank, *of all ranks* is the same divided by the number of ranks.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

from gluonloader import DataLoader, Ranks

from .harness import Figures, Table, Topic
from .processes import memory_of
from .programs import Program, together
from .report import size_of, time_of

_BATCH: Final = 32
_BATCHES: Final = 2000  # of each rank, for the time


class Paths:
    """Samples that are found by a path and have a label; no file is read."""

    def __init__(self, length: int) -> None:
        self.rows = [
            (f"/data/train/class{number % 1000:04}/image{number:08}.jpeg", number % 1000) for number in range(length)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> int:
        path, label = self.rows[index]
        return len(path) + label


@dataclass(frozen=True)
class Job:
    """How many ranks read, and whether they share their workers, and pass the dataset as a function."""

    ranks: int
    shares: bool = False
    as_function: bool = False


def run(options: Namespace) -> Iterator[Table]:
    """Yields the table."""
    workers = options.workers
    jobs = {
        f"1 rank, {workers} workers": Job(1),
        f"4 ranks, {workers} workers each": Job(4),
        f"4 ranks share {workers} workers": Job(4, shares=True),
        f"4 ranks share {workers} workers, dataset as a function": Job(4, shares=True, as_function=True),
    }
    rows = {name: partial(_measured, job, workers, options.samples) for name, job in jobs.items()}
    columns = {"memory": size_of, "time per batch": time_of, "of all ranks": time_of}
    yield Table(f"{options.samples:,} samples, batches of {_BATCH}", rows, columns, base=next(iter(jobs)))


def _measured(job: Job, workers: int, samples: int) -> Figures:
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(Program(_read, job, rank, workers, samples, method="spawn"))
            for rank in range(job.ranks)
        ]
        for rank in ranks:
            rank.answer()
        before = memory_of("Pss_Anon", "Pss_File", "Pss_Shmem")
        together(ranks)
        memory = memory_of("Pss_Anon", "Pss_File", "Pss_Shmem") - before
        seconds = max(together(ranks))
        return {"memory": memory, "time per batch": seconds, "of all ranks": seconds / job.ranks}


def _read(job: Job, rank: int, workers: int, samples: int) -> Iterator[Any]:
    """The steps of a rank: starts; reads an epoch; reads some batches."""
    yield None
    build: Callable[[], Paths] = lambda: Paths(samples)  # noqa: E731  # forked workers inherit it
    dataset: Any = build if job.as_function else build()
    ranks = Ranks(rank, job.ranks, share="node" if job.shares else None)
    with DataLoader(
        dataset, _BATCH, shuffle=True, seed=0, num_workers=workers, start_method="fork", ranks=ranks
    ) as loader:
        for _ in loader:  # so that the workers have read every object
            pass
        yield None
        start = time.perf_counter()
        count = sum(1 for _ in islice(loader, _BATCHES))
        yield (time.perf_counter() - start) / count


TOPIC: Final = Topic(run, rounds=5, options={"samples": (1_000_000, "samples in the list")})
