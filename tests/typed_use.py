"""What mypy knows of samples and batches. Nothing runs this file: `mypy` reads it, and reports a type that changes.

An `ignore` stands at each line that has to be an error; one that is not needed is reported, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import assert_type

import gluonloader.mxnet
from gluonloader import DataLoader, Dataset, IterableDataset, Pad, SimpleDataset
from gluonloader.types import LoaderIterator

Floats = NDArray[np.float64]


class Squares(Dataset[int]):
    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> int:
        return index**2


class Lines(IterableDataset[str]):
    def __init__(self) -> None:
        pass


class Untyped(Dataset):
    def __getitem__(self, index: int) -> tuple[int, str]:
        return index, "text"


def stacked(samples: Sequence[int]) -> Floats:
    return np.array(samples, np.float64)


def counted(samples: list[int]) -> int:
    return len(samples)


def datasets(squares: Squares, lines: Lines, unknown: Dataset) -> None:
    assert_type(list(squares), list[int])
    assert_type(squares.filter(lambda number: number > 3).take(2).shard(2, 0)[0], int)
    assert_type(list(lines.filter(str.isupper).take(3)), list[str])
    assert_type(unknown[0], Any)
    assert_type(SimpleDataset([1, 2])[0], Any)
    squares.filter(len)  # type: ignore[arg-type]
    wide: Dataset[object] = squares
    assert_type(wide[0], object)


def loaders(squares: Squares, unknown: DataLoader) -> None:
    for batch in DataLoader(squares, 2, batchify_fn=stacked, num_workers=2, seed=1):
        assert_type(batch, Floats)
    with DataLoader(squares, 2, batchify_fn=lambda samples: len(samples)) as loader:
        assert_type(loader, DataLoader[int])
        assert_type(iter(loader), LoaderIterator[int])
        assert_type(next(iter(loader)), int)
    for count in DataLoader(squares, 2, batchify_fn=counted):
        assert_type(count, int)
    for anything in DataLoader(squares, 2):
        assert_type(anything, Any)
    for anything in DataLoader(squares, 2, batchify_fn=Pad()):
        assert_type(anything, Any)
    for anything in unknown:
        assert_type(anything, Any)
    known: DataLoader[dict[str, Floats]] = DataLoader(squares, 2)
    for fields in known:
        assert_type(fields, dict[str, Floats])
    DataLoader[str](squares, 2, batchify_fn=stacked)  # type: ignore[arg-type]
    assert_type(known.batch_size, int | None)
    known.batch_size = 3  # type: ignore[misc]


def drop_in(squares: gluonloader.mxnet.Dataset[int]) -> None:
    assert_type(squares[0], int)
    for batch in gluonloader.mxnet.DataLoader(squares, 2, batchify_fn=stacked):
        assert_type(batch, Floats)
