"""Compares threads with processes and with the calling thread, with a GIL or without one.

python -m benchmarks.threads
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

import numpy as np

from gluonloader import DataLoader
from gluonloader.limits import has_gil

from .report import machine

_WAYS: Final[dict[str, dict[str, Any]]] = {
    "serial": {"executor": "serial"},
    "threads": {"executor": "thread", "num_workers": 2},
    "processes": {"executor": "process", "num_workers": 2, "start_method": "fork"},
}


class _Samples:
    """Makes each sample with a function."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self._make = make

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        return self._make(index)


def _compute(index: int) -> int:
    """Takes about 1 ms, all of it Python code."""
    total = 0
    for number in range(20_000):
        total += (number ^ index) & 7
    return total


def _decoder() -> Callable[[int], Any] | None:
    """Decodes a JPEG of 400 x 300 with Pillow; None if it is not installed."""
    try:
        image: Any = importlib.import_module("PIL.Image")
    except ImportError:
        return None
    file, rows = io.BytesIO(), np.linspace(0, 255, 300)[:, None, None]
    pixels = (rows + np.random.default_rng(0).normal(0, 20, (300, 400, 3))).clip(0, 255).astype(np.uint8)
    image.fromarray(pixels).save(file, "JPEG", quality=85)
    return lambda index: np.asarray(image.open(io.BytesIO(file.getvalue())))


def main() -> None:
    """Measures each case in all ways in turn, and prints the medians."""
    parser = argparse.ArgumentParser("python -m benchmarks.threads", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each way in each round")
    arguments = parser.parse_args()
    row, image, decode = np.zeros(16, np.float32), np.zeros((3, 224, 224), np.float32), _decoder()
    print(f"{machine([])}, {os.cpu_count()} cores, {'with' if has_gil() else 'without'} a GIL\n")
    _compare("32 x 16 float32", lambda index: row, 32, arguments)
    _compare("32 x 1 ms of Python", _compute, 32, arguments)
    _compare("128 x 3 x 224 x 224 float32 (77 MB)", lambda index: image, 128, arguments)
    if decode is not None:
        _compare("32 JPEG of 400 x 300 by Pillow", decode, 32, arguments)


def _compare(name: str, make: Callable[[int], Any], size: int, arguments: argparse.Namespace) -> None:
    times: dict[str, list[float]] = {way: [] for way in _WAYS}
    with ExitStack() as stack:
        loaders = {
            way: stack.enter_context(DataLoader(_Samples(make), size, **options)) for way, options in _WAYS.items()
        }
        for _ in range(arguments.rounds + 1):  # the first one warms up
            for way, loader in loaders.items():
                times[way].append(_per_batch(loader, arguments.seconds))
    print(f"{name}, ms per batch, and the share of the speed of processes in each round:")
    for way, seconds in times.items():
        shares = [base / took for base, took in zip(times["processes"][1:], seconds[1:], strict=True)]
        print(f"  {way:9} {np.median(seconds[1:]) * 1e3:8.3f}   {np.median(shares):.2f} ({_spread(shares)})")
    print(flush=True)


def _spread(shares: Sequence[float]) -> str:
    return f"{min(shares):.2f} to {max(shares):.2f}"


def _per_batch(loader: DataLoader, seconds: float) -> float:
    iterator, count = iter(loader), 0
    for _ in range(4):
        next(iterator)
    start = time.perf_counter()
    while (took := time.perf_counter() - start) < seconds:
        next(iterator)
        count += 1
    iterator.close()
    return took / count


if __name__ == "__main__":
    main()
