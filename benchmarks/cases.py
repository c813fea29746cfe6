"""What is loaded: one dataset class, and the cases, each with its samples, batch size and length of an epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["CASES", "Case", "Recycled", "fill_rows", "pad"]

Measure = Literal["epoch", "first-batch", "restart"]
Array = NDArray[Any]

# Those whose workers outlive an epoch, and that start them by fork.
_POOLS: Final = ("gluonloader", "tensors out", "NDArrays out", "torch", "MXNet")
_LOADERS: Final = (*_POOLS, "Grain", "SPDL")


class Recycled:
    """A long dataset over few samples: an epoch takes long enough to be timed, and little memory.

    A plain class, as users write them, and the same object for all loaders.
    """

    def __init__(self, samples: Sequence[Any], length: int) -> None:
        self._samples, self._length = samples, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return self._samples[index % len(self._samples)]


@dataclass(frozen=True)
class Case:
    """One line of the comparison.

    Args:
        name: how it is chosen on the command line.
        what: a batch in words.
        samples: makes the samples that the dataset recycles.
        batch_size: samples in a batch.
        batches: batches in an epoch.
        measure: a whole epoch, construction to first batch, or the end of an epoch to the first batch of the next.
        padded: samples differ in length; a user's batchify function pads them.
        in_process: no workers.
        contenders: who takes part; the others are reported as not measured.
    """

    name: str
    what: str
    samples: Callable[[], Sequence[Any]]
    batch_size: int
    batches: int
    measure: Measure = "epoch"
    padded: bool = False
    in_process: bool = False
    contenders: tuple[str, ...] = _LOADERS

    def dataset(self) -> Recycled:
        """The samples, repeated until they make `batches` full batches."""
        return Recycled(self.samples(), self.batch_size * self.batches)


def fill_rows(batch: Array, samples: Sequence[Array]) -> None:
    """Writes each sample to the start of its row."""
    for row, sample in zip(batch, samples, strict=True):
        row[: len(sample)] = sample


def pad(samples: Sequence[Array]) -> Array:
    """A user's padding function: int32 rows, filled up with 0 to the longest."""
    batch = np.zeros((len(samples), max(map(len, samples))), np.int32)
    fill_rows(batch, samples)
    return batch


def _floats(*shape: int) -> Array:
    # Random, not zeros: untouched zeros all share one page of memory, which makes them look faster to read.
    return np.random.default_rng(0).random(shape, np.float32)


def _labelled(count: int, *shape: int) -> list[tuple[Array, int]]:
    return [(array, label % 10) for label, array in enumerate(_floats(count, *shape))]


def _ragged() -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 1000, length, np.int32) for length in rng.integers(5, 201, 4096)]


def _dicts() -> list[dict[str, Array]]:
    return [{f"field{i}": array for i, array in enumerate(sample)} for sample in _floats(1024, 32, 16)]


def _vectors() -> list[tuple[Array, int]]:
    return _labelled(4096, 16)


def _digits() -> list[tuple[Array, int]]:
    return _labelled(12_800, 28, 28, 1)


def _images() -> list[Array]:
    return list(_floats(128, 3, 224, 224))


_SMALL: Final = "32 of (16 float32, int label)"
_MNIST: Final = "256 of (28 x 28 x 1 float32, int label)"
_BIG: Final = "128 of 3 x 224 x 224 float32"

CASES: Final = {
    case.name: case
    for case in (
        Case("tiny", "1 of 16 float32", lambda: list(_floats(4096, 16)), 1, 2500),
        Case("small", _SMALL, _vectors, 32, 2000),
        Case("mnist", _MNIST, _digits, 256, 250),
        Case("big", _BIG, _images, 128, 24),
        Case("ragged", "64 of 5 to 200 int32, padded by the user's function", _ragged, 64, 1500, padded=True),
        Case("dict32", "16 of a dict of 32 arrays of 16 float32", _dicts, 16, 160),
        Case("inproc", f"{_MNIST}, no workers", _digits, 256, 250, in_process=True),
        Case(
            "first-batch", f"constructor and first batch; {_SMALL}", _vectors, 32, 16, "first-batch", contenders=_POOLS
        ),
        Case(
            "restart",
            f"end of an epoch to the next first batch; {_SMALL}",
            _vectors,
            32,
            16,
            "restart",
            contenders=_POOLS,
        ),
        Case(
            "copy-limit",
            f"{_BIG}, against processes that only copy them to warm shared memory",
            _images,
            128,
            24,
            contenders=("gluonloader", "plain copy"),
        ),
    )
}
