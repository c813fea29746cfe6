"""Compares `gluonloader.mxnet.DataLoader` with `mxnet.gluon.data.DataLoader` for samples that are NDArrays.

Each round times an epoch of both loaders, one directly after the other. The loader that comes first changes from row to
row. An epoch ends when MXNet has computed all arrays. The ratio is gluonloader's time divided by MXNet's time.
"""

from __future__ import annotations

import importlib
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

import gluonloader.mxnet

from .harness import Figures, Measure, Table, Topic
from .report import time_of

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


_CASES: Final = (
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

CASES: Final = {case.what: case for case in _CASES}


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


def run(options: Namespace) -> Iterator[Table]:
    """Yields a table for each case: a row for each mode of MXNet and each number of workers."""
    warnings.simplefilter("ignore", DeprecationWarning)  # MXNet causes such warnings
    gluonloader.mxnet.patch_numpy()
    mx = importlib.import_module("mxnet")
    for case in (CASES[name] for name in options.names):
        with ExitStack() as stack:
            rows = {
                f"{mode}, {workers} workers": _in_turn(mx, case, workers, mode, stack)
                for workers in (0, options.workers)
                for mode in _MODES
            }
            columns = {"MXNet": time_of, "gluonloader": time_of, "ratio": "{:.2f}".format}
            yield Table(case.what, rows, columns, warm_up=1)


def _in_turn(mx: Any, case: Case, workers: int, mode: str, stack: ExitStack) -> Measure:
    numpy_like = _MODES[mode]
    with mx.util.np_shape(numpy_like), mx.util.np_array(numpy_like):
        new = mx.np.array if numpy_like else mx.nd.array
        count = case.batch_size * case.batches
        samples = [case.sample(i, lambda array: new(array, dtype=array.dtype)) for i in range(count)]
        dataset = Samples(samples, case.transform and case.transform())
        theirs = mx.gluon.data.DataLoader(dataset, case.batch_size, num_workers=workers)
        ours = stack.enter_context(gluonloader.mxnet.DataLoader(dataset, case.batch_size, num_workers=workers))
    loaders = {"MXNet": theirs, "gluonloader": ours}

    def measure() -> Figures:
        with mx.util.np_shape(numpy_like), mx.util.np_array(numpy_like):
            times = {name: _seconds(mx, loader) for name, loader in loaders.items()}
        loaders.update([loaders.popitem(), *loaders.items()])
        return {**times, "ratio": times["gluonloader"] / times["MXNet"]}

    return measure


def _seconds(mx: Any, loader: Any) -> float:
    batches, start = 0, time.perf_counter()
    while True:
        for _ in loader:
            batches += 1
        mx.nd.waitall()
        passed = time.perf_counter() - start
        if passed >= _EPOCH_S:
            return passed / batches


TOPIC: Final = Topic(run, rounds=7, names=CASES, packages=("mxnet",))
