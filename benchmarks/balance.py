"""Load balance: measures how the settings of a loader change the time of an epoch if batches take different times.

python -m benchmarks.balance

Workers sleep instead of making batches, and the caller sleeps after each batch, so the number of cores does not matter.
The shortest possible time of an epoch is the time that all batches take, divided by the number of workers; the caller
sleeps equally long. The table shows the measured time of an epoch as a multiple of the shortest possible time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

import numpy as np

from gluonloader import DataLoader

from .report import machine

_BATCHES: Final = 200
_IDLE: Final = 3000  # batches of an epoch in which neither the workers nor the caller sleep
_MEAN_S: Final = 0.010  # mean time of a batch; the caller is as fast as all workers together
_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "prefetch = 2 workers": {},
    "prefetch = workers": {"window": 1},
    "prefetch = 4 workers": {"window": 4},
    "prefetch = 8 workers": {"window": 8},
    "prefetch = 16 workers": {"window": 16},
    "max_per_worker=1": {"max_per_worker": 1},
    "max_per_worker=2": {"max_per_worker": 2},
    "in_order=False": {"in_order": False},
    "in_order=False, 4 workers": {"in_order": False, "window": 4},
}


class Sleeper:
    """A dataset whose sample i sleeps for `seconds[i]`."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return len(self._seconds)

    def __getitem__(self, index: Any) -> int:
        if self._seconds[index]:
            time.sleep(self._seconds[index])
        return int(index)


def main() -> None:
    """Measures each setting with each pattern of batch times, in rounds, and prints the medians."""
    arguments = _parse()
    print(f"{machine([])}\n{arguments.workers} workers, {arguments.rounds} rounds of {_BATCHES} batches\n")
    patterns = _patterns()
    print(f"{'multiple of shortest time':28}{''.join(f'{name:>16}' for name in patterns)}{'no work':>16}")
    rows: dict[str, list[list[float]]] = {setting: [[] for _ in range(len(patterns) + 1)] for setting in _SETTINGS}
    for _ in range(arguments.rounds):
        for setting, options in _SETTINGS.items():
            for column, seconds in enumerate(patterns.values()):
                rows[setting][column].append(_ratio(seconds, arguments.workers, **options))
            rows[setting][-1].append(_per_batch([0.0] * _IDLE, 0.0, arguments.workers, **options))
    for setting, cells in rows.items():
        *ratios, overhead = map(median, cells)
        print(f"{setting:28}{''.join(f'{ratio:16.2f}' for ratio in ratios)}{overhead * 1e6:13.0f} us")


def _patterns() -> dict[str, Sequence[float]]:
    rng = np.random.default_rng(0)
    patterns = {
        "even": np.ones(_BATCHES),
        "unequal": rng.lognormal(0, 1, _BATCHES),
        "1 of 20 slow": np.where(np.arange(_BATCHES) % 20 == 7, 20.0, 1.0),
    }
    return {name: (times * (_MEAN_S / times.mean())).tolist() for name, times in patterns.items()}


def _ratio(seconds: Sequence[float], workers: int, **options: Any) -> float:
    pause = sum(seconds) / workers / len(seconds)
    return _per_batch(seconds, pause, workers, **options) / pause


def _per_batch(seconds: Sequence[float], pause: float, workers: int, window: int = 2, **options: Any) -> float:
    """Returns the seconds per batch of an epoch in which the caller sleeps `pause` seconds after each batch."""
    with DataLoader(Sleeper(seconds), 1, num_workers=workers, prefetch=window * workers, **options) as loader:
        next(iter(loader))  # so that the workers have started
        start = time.perf_counter()
        for _ in loader:
            if pause:
                time.sleep(pause)
        return (time.perf_counter() - start) / len(seconds)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="number of workers (default 2)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (default 3)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
