"""Compares the choice of `gluonloader.tune` with a full sweep over all settings: `python -m benchmarks.tuning`.

The sweep measures every setting of a grid for a short time. Then the fastest settings of the sweep and the choice of
`tune` are measured in turn. The table shows the speed of the choice divided by that of the best of these settings.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median
from typing import Any, Final

import numpy as np

from gluonloader import ArrayDataset, DataLoader, tune
from gluonloader.limits import available_cores
from gluonloader.tools.tuning.setting import Executor, Setting, text_of
from gluonloader.tools.tuning.speed import Step
from gluonloader.tools.tuning.trial import Trial, measure

from .datasets import Recycled, photos
from .report import machine

MEMORY: Final = "2GB"
_FASTEST: Final = 6  # settings of the sweep that are measured again
_LIMIT_S: Final = 20.0
_LENGTH: Final = 100_000  # samples


class Computing:
    """Samples that take about 0.3 ms of Python code each."""

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> Any:
        total = 0
        for number in range(6000):
            total += number & index
        return np.full(16, total, np.float32)


class Waiting:
    """Samples that wait for 10 ms each, as for a network."""

    def __len__(self) -> int:
        return _LENGTH

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.01)
        return np.full(16, index, np.float32)


def _digits() -> Any:
    return ArrayDataset(np.zeros((60_000, 28, 28), np.float32), np.zeros(60_000, np.int64))


def _images() -> Any:
    return Recycled(list(np.random.default_rng(0).random((64, 3, 224, 224), np.float32)), _LENGTH)


@dataclass(frozen=True)
class Data:
    """A dataset, its batch size, and which concurrency the sweep tries."""

    make: Callable[[], Any]
    batch_size: int
    concurrency: Sequence[int] = (1, 4)

    def factory(self) -> Callable[..., DataLoader[Any]]:
        """Returns the function that `tune` gets."""
        dataset = self.make()
        return lambda **options: DataLoader(dataset, self.batch_size, **{"seed": 0, **options})

    def settings(self, cores: int) -> Iterator[Setting]:
        """Yields all settings of the sweep."""
        yield from (Setting(concurrency=concurrency) for concurrency in self.concurrency)
        executors: Sequence[Executor] = ("thread", "process")
        workers = sorted({1, cores, 2 * cores})
        for executor, count, concurrency, prefetch in product(executors, workers, self.concurrency, (None, 16)):
            yield Setting(executor, count, concurrency, prefetch)


DATA: Final[Mapping[str, Data]] = {
    "computing": Data(Computing, 32),
    "waiting": Data(Waiting, 32, (1, 4, 8, 16, 32)),
    "memory": Data(_digits, 256),
    "large": Data(_images, 64),
    "jpeg": Data(lambda: photos(500, 375, 200)(_LENGTH), 32),
}


@dataclass(frozen=True)
class Comparison:
    """How the choice of `tune` compares with the sweep.

    Attributes:
        name: the dataset.
        chosen, best: the arguments that `tune` chose, and the best ones of the sweep.
        ratio: the speed of `chosen` divided by that of `best`; the median of the rounds.
        low, high: the smallest and the largest ratio of the rounds.
        took_s: seconds that `tune` took.
        nbytes: the most shared memory of a trial of `tune`.
        settings: number of settings of the sweep.
    """

    name: str
    chosen: str
    best: str
    ratio: float
    low: float
    high: float
    took_s: float
    nbytes: int
    settings: int


def compare(name: str, budget_s: float, sweep_s: float, rounds: int, cores: int) -> Comparison:
    """Tunes and sweeps one dataset; `sweep_s` is the time for each trial of the sweep and of the rounds."""
    factory = DATA[name].factory()
    started = time.perf_counter()
    tuning = tune(factory, budget_s, MEMORY)
    took_s = time.perf_counter() - started

    def trial(arguments: Mapping[str, Any]) -> Trial:
        return measure(factory, arguments, sweep_s, _LIMIT_S, Step())

    settings = list(DATA[name].settings(cores))
    swept = [trial(_limited(setting)) for setting in settings]
    swept.sort(key=lambda done: done.samples_per_s, reverse=True)
    chosen = tuning.best.arguments
    rivals = [done.arguments for done in swept[:_FASTEST] if done.arguments != chosen]
    speeds: dict[str, list[float]] = {text_of(arguments): [] for arguments in (chosen, *rivals)}
    for _ in range(rounds):
        for arguments in (chosen, *rivals):
            speeds[text_of(arguments)].append(trial(arguments).samples_per_s)
    best = max(speeds, key=lambda text: median(speeds[text]))
    ratios = [own / other for own, other in zip(speeds[text_of(chosen)], speeds[best], strict=True)]
    nbytes = max(done.shared_nbytes for done in tuning.trials)
    return Comparison(
        name, text_of(chosen), best, median(ratios), min(ratios), max(ratios), took_s, nbytes, len(settings)
    )


def _limited(setting: Setting) -> dict[str, Any]:
    limit = {"memory_limit": MEMORY} if setting.executor == "process" else {}
    return {**setting.arguments, **limit}


def main() -> None:
    """Prints a table with a row for each dataset."""
    parser = argparse.ArgumentParser("python -m benchmarks.tuning", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="DATASET", help=f"of {', '.join(DATA)} (default: all)")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for tune (default 60)")
    parser.add_argument("--trial", type=float, default=1.0, help="seconds for each setting of the sweep (default 1)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of the comparison (default 7)")
    options = parser.parse_args()
    print(machine([]))
    print("| Dataset | Choice of tune | Best of the sweep | Speed of the choice / best | tune took | shared memory |")
    print("| --- | --- | --- | ---: | ---: | ---: |")
    for name in options.names or DATA:
        found = compare(name, options.budget, options.trial, options.rounds, available_cores())
        ratio = f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f})"
        best = f"`{found.best}` of {found.settings}"
        figures = f"{ratio} | {found.took_s:.1f} s | {found.nbytes / 1e6:.0f} MB"
        print(f"| {name} | `{found.chosen}` | {best} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
