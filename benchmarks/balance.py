"""Load balance: measures how the settings of a loader change the time of an epoch if batches take different times.

python -m benchmarks.balance
python -m benchmarks.balance --batch-size 16

Workers sleep instead of making batches, and the caller sleeps after each batch, so the number of cores does not matter.
The shortest possible time of an epoch is the time that all samples take, divided by the number of workers; the caller
sleeps equally long. The table shows the measured time of an epoch as a multiple of the shortest possible time.

With `--batch-size`, batches contain slow samples among quick ones, and the table also shows how many MB of shared
memory the loader has used for batches, and the same figures for torch if torch is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from gluonloader import DataLoader
from gluonloader.options import Processes

from .processes import peak, processes
from .report import machine

BATCHES: Final = 200
_IDLE: Final = 3000  # batches of an epoch in which neither the workers nor the caller sleep
_MAPPED: Final = re.compile(r"^(\w+)-(\w+) \S+ \S+ \S+ (\d+) +/(?:memfd:|dev/shm/)", re.MULTILINE)
_SAMPLE_BYTES: Final = 128 * 1024  # with --batch-size
_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "prefetch = 2 workers": {},
    "prefetch = workers": {"window": 1},
    "prefetch = 4 workers": {"window": 4},
    "prefetch = 8 workers": {"window": 8},
    "prefetch = 16 workers": {"window": 16},
    "max_per_worker=1": {"executor": Processes(max_per_worker=1)},
    "max_per_worker=2": {"executor": Processes(max_per_worker=2)},
    "in_order=False": {"in_order": False},
    "in_order=False, 4 workers": {"in_order": False, "window": 4},
}
SETTINGS_FOR_SAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    **{f"prefetch = {n:2} workers": {"window": n} for n in (1, 2, 4, 8, 16)},
    "max_per_worker=1": {"executor": Processes(max_per_worker=1)},
    "max_per_worker=1, 8 workers": {"executor": Processes(max_per_worker=1), "window": 8},
    "concurrency=16": {"concurrency": 16},
    **{f"in_order=False, {n:2} workers": {"in_order": False, "window": n} for n in (1, 2, 4, 8)},
    **{f"torch, prefetch_factor={n}": {"library": "torch", "window": n} for n in (1, 2, 4, 8)},
    **{f"torch, in_order=False, {n}": {"library": "torch", "in_order": False, "window": n} for n in (1, 2, 4, 8)},
}


class Sleeper:
    """A dataset whose sample i sleeps for `seconds[i]`; the sample is an array of `nbytes`, or its index."""

    def __init__(self, seconds: Sequence[float], nbytes: int = 0) -> None:
        self._seconds, self._nbytes = seconds, nbytes

    def __len__(self) -> int:
        return len(self._seconds)

    def __getitem__(self, index: Any) -> Any:
        if self._seconds[index]:
            time.sleep(self._seconds[index])
        return np.full(self._nbytes // 4, index, np.float32) if self._nbytes else int(index)


def main() -> None:
    """Measures each setting with each pattern of times, in rounds, and prints the result."""
    arguments = _parse()
    print(f"{machine([])}\n{arguments.workers} workers, {arguments.rounds} rounds of {BATCHES} batches")
    mean = arguments.milliseconds / 1000
    if arguments.batch_size > 1:
        _compare_samples(arguments.workers, arguments.rounds, mean, arguments.batch_size)
    else:
        _compare_batches(arguments.workers, arguments.rounds, mean)


def _compare_batches(workers: int, rounds: int, mean: float) -> None:
    patterns = {
        "even": np.ones(BATCHES),
        "unequal": np.random.default_rng(0).lognormal(0, 1, BATCHES),
        "1 of 20 slow": np.where(np.arange(BATCHES) % 20 == 7, 20.0, 1.0),
    }
    rows: dict[str, list[list[float]]] = {setting: [[] for _ in range(len(patterns) + 1)] for setting in _SETTINGS}
    for _ in range(rounds):
        for setting, options in _SETTINGS.items():
            for column, times in enumerate(patterns.values()):
                rows[setting][column].append(_ratio(_scaled(times, mean), workers, **options))
            rows[setting][-1].append(_per_batch([0.0] * _IDLE, 0.0, workers, **options))
    print(f"\n{'multiple of shortest time':28}{''.join(f'{name:>16}' for name in patterns)}{'no work':>16}")
    for setting, cells in rows.items():
        *ratios, overhead = map(median, cells)
        print(f"{setting:28}{''.join(f'{ratio:16.2f}' for ratio in ratios)}{overhead * 1e6:13.0f} us")


def _compare_samples(workers: int, rounds: int, mean: float, batch_size: int) -> None:
    count, rng = BATCHES * batch_size, np.random.default_rng(0)
    patterns = {
        "even": np.ones(count),
        "unequal": rng.lognormal(0, 2, count),
        "1 of 50, 50x": np.where(rng.permutation(count) % 50 == 0, 50.0, 1.0),
        "1 of 500, 500x": np.where(rng.permutation(count) % 500 == 0, 500.0, 1.0),
    }
    print(f"batches of {batch_size} samples, {batch_size * _SAMPLE_BYTES / 1e6:.1f} MB each")
    torch = importlib.util.find_spec("torch") is not None
    settings = {name: options for name, options in SETTINGS_FOR_SAMPLES.items() if torch or "library" not in options}
    rows: dict[str, list[list[float]]] = {setting: [[] for _ in patterns] for setting in settings}
    peaks: dict[str, int] = dict.fromkeys(settings, 0)
    for _ in range(rounds):
        for setting, options in settings.items():
            for column, times in enumerate(patterns.values()):
                with peak(_shared_memory, 0.1) as samples:
                    ratio = _ratio(_scaled(times, mean), workers, batch_size, **options)
                rows[setting][column].append(ratio)
                peaks[setting] = max(peaks[setting], *samples)
    print(f"\n{'multiple of shortest time':32}{''.join(f'{name:>16}' for name in patterns)}{'shared memory':>16}")
    for setting, cells in rows.items():
        ratios = "".join(f"{min(ratios):16.2f}" for ratios in cells)  # other programs can only add time
        print(f"{setting:32}{ratios}{peaks[setting] / 1e6:13.0f} MB")


def _scaled(times: Any, mean: float) -> list[float]:
    """The times as seconds, so that a batch takes `mean` seconds on average."""
    seconds: list[float] = (times * (mean * BATCHES / times.sum())).tolist()
    return seconds


def _ratio(seconds: Sequence[float], workers: int, batch_size: int = 1, **options: Any) -> float:
    pause = sum(seconds) / workers / BATCHES
    return _per_batch(seconds, pause, workers, batch_size, **options) / pause


def _per_batch(
    seconds: Sequence[float], pause: float, workers: int, batch_size: int = 1, library: str = "", **options: Any
) -> float:
    """Returns the seconds per batch of an epoch in which the caller sleeps `pause` seconds after each batch."""
    make: Any = _torch_batches if library else _batches
    data = Sleeper(seconds, _SAMPLE_BYTES if batch_size > 1 else 0)
    with make(data, batch_size, workers, **options) as loader:
        next(iter(loader))  # so that the workers have started
        start = time.perf_counter()
        for _ in loader:
            if pause:
                time.sleep(pause)
        return (time.perf_counter() - start) * batch_size / len(seconds)


def _batches(data: Sleeper, batch_size: int, workers: int, window: int = 2, **options: Any) -> DataLoader:
    return DataLoader(data, batch_size, num_workers=workers, prefetch=window * workers, **options)


@contextmanager
def _torch_batches(data: Sleeper, batch_size: int, workers: int, window: int, **options: Any) -> Iterator[Any]:
    from torch.utils.data import DataLoader as TorchLoader

    yield TorchLoader(
        data,  # type: ignore[arg-type, unused-ignore]
        batch_size,
        num_workers=workers,
        prefetch_factor=window,
        persistent_workers=True,
        **options,
    )


def _shared_memory() -> int:
    """Returns the bytes of the shared memory that this process or a descendant has mapped, or has a descriptor to."""
    found: dict[str, int] = {}  # by the number of the inode
    for pid in processes():
        try:
            for first, end, inode in _MAPPED.findall(Path(f"/proc/{pid}/maps").read_text()):
                found.setdefault(inode, int(end, 16) - int(first, 16))
            for link in Path(f"/proc/{pid}/fd").iterdir():
                if os.readlink(link).startswith(("/memfd:", "/dev/shm/")):
                    stat = link.stat()
                    found[str(stat.st_ino)] = stat.st_blocks * 512
        except OSError:
            continue  # the process has ended, or has closed the file
    return sum(found.values())


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="number of workers (default 2)")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds (default 3)")
    parser.add_argument("--batch-size", type=int, default=1, help="number of samples in a batch (default 1)")
    parser.add_argument(
        "--milliseconds",
        type=float,
        default=10,
        help="mean time of a batch (default 10); the caller takes as long as all workers together",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
