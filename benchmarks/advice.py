"""Constructs eight bottlenecks, and compares the advice of `stats()` with each: `python -m benchmarks.advice`.

Also compares the busy and the idle time that workers report with the time that passes in the main program.
"""

from __future__ import annotations

import mmap
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from gluonloader import DataLoader
from gluonloader.types import LoaderStats
from gluonloader.units import duration, percent

from .report import machine

_BATCH: Final = 8
_STEP_S: Final = 0.001  # what the program computes for each batch, unless a case says otherwise


@dataclass(frozen=True)
class Samples:
    """Each sample computes for `compute_s` seconds and waits for `wait_s` seconds.

    Sample number `slow` of each epoch waits for half a second. `temporary` is the size of a mapping in bytes that each
     sample writes and drops, as libraries do that ask the system for the memory of each image.
    """

    compute_s: float = 0.0
    wait_s: float = 0.0
    slow: int | None = None
    temporary: int = 0
    values: int = 1000
    count: int = 800

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> NDArray[np.float32]:
        compute(self.compute_s)
        if self.wait_s:
            time.sleep(self.wait_s)
        if index == self.slow:
            time.sleep(0.5)
        if self.temporary:
            np.frombuffer(mmap.mmap(-1, self.temporary), np.uint8)[:] = 1
        return np.full(self.values, index, np.float32)


def compute(seconds: float) -> None:
    """Computes until the thread has used so much time of its core."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def slow_batchify(samples: Sequence[NDArray[np.float32]]) -> NDArray[np.float32]:
    compute(0.01)
    return np.stack(samples)


@dataclass(frozen=True)
class Case:
    """A loader with one bottleneck, and words of the advice that names it."""

    name: str
    samples: Samples
    expected: str
    step_s: float = _STEP_S
    options: dict[str, Any] = field(default_factory=dict)
    keep: int = 0  # batches that the program keeps


CASES: Final = (
    Case("slow dataset", Samples(compute_s=0.001), "Reading samples takes"),
    Case("waiting dataset", Samples(wait_s=0.005), "of the time waiting"),
    Case("slow batchify", Samples(), "batchify_fn takes", options={"batchify_fn": slow_batchify}),
    Case("slow program", Samples(), "the program is the limit", step_s=0.01),
    Case("tiny batches", Samples(values=1, count=16000), "Making a batch takes only", step_s=0.0),
    Case("memory limit", Samples(values=100_000), "memory_limit forced", options={"memory_limit": "24MB"}, keep=30),
    Case("one slow sample", Samples(compute_s=0.0001, slow=412), "A few slow batches"),
    Case("page faults", Samples(temporary=4 << 20), "page faults"),
)


def run(case: Case, epochs: int = 2) -> LoaderStats:
    """Reads the loader of a case, with one worker."""
    kept: list[Any] = []
    with DataLoader(case.samples, _BATCH, num_workers=1, seed=0, **case.options) as loader:
        for _ in range(epochs):
            for batch in loader:
                kept = [*kept, batch][-case.keep :] if case.keep else []
                compute(case.step_s)
        return loader.stats()


def unaccounted(workers: int = 2) -> float:
    """The share of the time of the workers that their reports do not account for."""
    with DataLoader(Samples(compute_s=0.001), _BATCH, num_workers=workers, seed=0) as loader:
        list(loader)  # all workers have started
        before, start = loader.stats().workers, time.perf_counter()
        for _ in range(3):
            list(loader)
        passed, after = time.perf_counter() - start, loader.stats().workers
    reported = [end.made_s + end.idle_s - begin.made_s - begin.idle_s for begin, end in zip(before, after, strict=True)]
    return max(abs(1 - seconds / passed) for seconds in reported)


def main() -> int:
    print(machine([]))
    wrong = 0
    for case in CASES:
        stats = run(case)
        right = case.expected in stats.advice
        wrong += not right
        print(f"\n{case.name}: {'right' if right else 'WRONG'}\n  {stats.advice}")
        print(f"  ({stats.batches} batches, p50 {duration(stats.wait_p50_s)}, p99 {duration(stats.wait_p99_s)})")
    missing = unaccounted()
    print(f"\nbusy and idle time of workers: {percent(missing)} of the time is missing (at most 5 %)")
    return int(wrong > 0 or missing > 0.05)


if __name__ == "__main__":
    sys.exit(main())
