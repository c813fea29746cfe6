"""Compares `gluonloader.mxnet.DataLoader` with `mxnet.gluon.data.DataLoader` for samples that are NDArrays.

python -m benchmarks.ndarrays

Each round times an epoch of both loaders, one directly after the other. The loader that comes first changes from round
to round. An epoch ends when MXNet has computed all arrays. The output is a Markdown table: the median time per batch of
both loaders, and gluonloader's time divided by MXNet's time in the same round, as the median and the range.
"""

from __future__ import annotations

import argparse
import importlib
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np

import gluonloader.mxnet

from .report import machine

_MODES: Final = {"mx.nd": False, "mx.np": True}  # the value is True if MXNet is in its NumPy mode
_EPOCH_S: Final = 0.1  # an epoch is repeated until this many seconds have passed

NewArray = Callable[[Any], Any]
Sample = Callable[[int, NewArray], Any]  # makes a sample from its index and a function that makes NDArrays


@dataclass(frozen=True)
class Case:
    """A case: a row of the table, with its name, its samples, the batch size and the number of batches in an epoch."""

    what: str
    sample: Sample
    batch_size: int
    batches: int = 10
    transform: Callable[[], Any] | None = None  # function that makes the transform for the first field of a sample


def random(*shape: int, dtype: str = "float32") -> Any:
    """Returns a NumPy array with random values from 0 to 99."""
    return np.random.default_rng(0).integers(0, 100, shape).astype(dtype)


def labelled(*shape: int, dtype: str = "float32") -> Sample:
    """Returns a function that makes a sample: an array of this shape, and the index as label."""
    return lambda index, new: (new(random(*shape, dtype=dtype)), index)


def _to_tensor_and_normalize() -> Any:
    transforms = gluonloader.mxnet.vision.transforms
    return transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.2] * 3)])


def _times_two_plus_one() -> Any:
    return lambda array: array * 2 + 1


CASES: Final[Sequence[Case]] = (
    Case("16 x (8,)", lambda index, new: new(random(8)), 16, 40),
    Case("64 x two (8,), int", lambda index, new: (new(random(8)), new(random(8)), index), 64),
    Case("64 x (28, 28), int", labelled(28, 28), 64),
    Case("256 x (28, 28) uint8, int", labelled(28, 28, dtype="uint8"), 256, 4),
    Case("64 x (3, 32, 32)", lambda index, new: new(random(3, 32, 32)), 64),
    Case("64 x (3, 32, 32), int", labelled(3, 32, 32), 64),
    Case("64 x (3, 32, 32) uint8, int", labelled(3, 32, 32, dtype="uint8"), 64),
    Case("256 x (3, 32, 32), int", labelled(3, 32, 32), 256, 4),
    Case("16 x (3, 224, 224), int", labelled(3, 224, 224), 16, 6),
    Case("64 x (3, 224, 224), int", labelled(3, 224, 224), 64, 3),
    Case("64 x (3, 224, 224) uint8, int", labelled(3, 224, 224, dtype="uint8"), 64, 3),
    Case("64 x (3, 32, 32) * 2 + 1, int", labelled(3, 32, 32), 64, 6, _times_two_plus_one),
    Case("64 x ToTensor and Normalize, int", labelled(32, 32, 3, dtype="uint8"), 64, 6, _to_tensor_and_normalize),
)


class Samples:
    """A dataset of samples in memory; each read transforms the first field."""

    def __init__(self, samples: list[Any], transform: Callable[..., Any] | None) -> None:
        self._samples, self._transform = samples, transform

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> Any:
        if self._transform is None:
            return self._samples[index]
        image, label = self._samples[index]
        return self._transform(image), label


def main() -> None:
    """Measures all cases, or the cases whose names contain an argument, and prints the table."""
    arguments = _parse()
    warnings.simplefilter("ignore", DeprecationWarning)  # MXNet causes such warnings
    gluonloader.mxnet.patch_numpy()
    mx = importlib.import_module("mxnet")
    columns = [(workers, mode) for workers in arguments.workers for mode in _MODES]
    print(f"{machine([])}, MXNet {mx.__version__}\n{arguments.rounds} rounds; MXNet / gluonloader, ratio (range)\n")
    print(f"| Batch | {' | '.join(f'{mode}, {workers} workers' for workers, mode in columns)} |")
    print(f"| --- |{' ---: |' * len(columns)}")
    for case in CASES:
        if not arguments.cases or any(name in case.what for name in arguments.cases):
            cells = [_cell(mx, case, workers, mode, arguments.rounds) for workers, mode in columns]
            print(f"| {case.what} | {' | '.join(cells)} |", flush=True)


def _cell(mx: Any, case: Case, workers: int, mode: str, rounds: int) -> str:
    numpy_like = _MODES[mode]
    with mx.util.np_shape(numpy_like), mx.util.np_array(numpy_like):
        new = mx.np.array if numpy_like else mx.nd.array
        count = case.batch_size * case.batches
        samples = [case.sample(i, lambda array: new(array, dtype=array.dtype)) for i in range(count)]
        dataset = Samples(samples, case.transform and case.transform())
        theirs = mx.gluon.data.DataLoader(dataset, case.batch_size, num_workers=workers)
        with gluonloader.mxnet.DataLoader(dataset, case.batch_size, num_workers=workers) as ours:
            times = [_round(mx, theirs, ours, number) for number in range(rounds + 1)][1:]  # the first round warms up
    ratios = [mine / its for its, mine in times]
    its_ms, my_ms = (median(column) * 1e3 for column in zip(*times, strict=True))
    return f"{its_ms:.2f} / {my_ms:.2f} ms, {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _round(mx: Any, theirs: Any, ours: Any, number: int) -> tuple[float, float]:
    """Returns the seconds per batch of MXNet and of gluonloader."""
    if number % 2:
        return _seconds(mx, theirs), _seconds(mx, ours)
    mine = _seconds(mx, ours)
    return _seconds(mx, theirs), mine


def _seconds(mx: Any, loader: Any) -> float:
    batches, start = 0, time.perf_counter()
    while True:
        for _ in loader:
            batches += 1
        mx.nd.waitall()
        passed = time.perf_counter() - start
        if passed >= _EPOCH_S:
            return passed / batches


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.ndarrays", description="Compares batches of NDArrays with MXNet."
    )
    parser.add_argument(
        "cases", nargs="*", help="run the cases whose names contain one of these texts (default: all cases)"
    )
    parser.add_argument("--workers", type=int, nargs="*", default=[0, 2], help="numbers of workers (default 0 and 2)")
    parser.add_argument("--rounds", type=int, default=7, help="number of timed rounds (default 7)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
