"""The limit: a loop in one thread that fills the same memory with each batch, and does nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from .cases import Array, Case
from .datasets import Columns
from .loaders import Chunks, Loader, Run


class BareLoop(Loader):
    """The minimum work of a loader: `np.take` if the dataset is `Columns`, otherwise `dataset[i]` and a copy of it."""

    name, module = "bare loop", "numpy"

    def workers(self, case: Case, workers: int) -> int:
        return 0

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        yield Run(BareBatches(case, dataset), case.batches)


class BareBatches:
    """Iterates over the batches of an epoch, which are all in the same memory."""

    def __init__(self, case: Case, dataset: Any) -> None:
        self._chunks = Chunks(len(dataset), case.batch_size, case.shuffled)
        self._fill = _take if isinstance(dataset, Columns) else _copy
        self._dataset = dataset
        fields = map(np.asarray, _fields(dataset[0]))
        self._batch = [np.empty((case.batch_size, *field.shape), field.dtype) for field in fields]

    def __iter__(self) -> Iterator[Any]:
        for indices in self._chunks:
            self._fill(self._dataset, indices, self._batch)
            yield self._batch if len(self._batch) > 1 else self._batch[0]


def _take(dataset: Columns, indices: Array, batch: Sequence[Any]) -> None:
    for column, into in zip(dataset.columns, batch, strict=True):
        np.take(column, indices, 0, into, mode="clip")


def _copy(dataset: Any, indices: Array, batch: Sequence[Any]) -> None:
    for row, index in enumerate(indices.tolist()):
        for into, field in zip(batch, _fields(dataset[index]), strict=True):
            into[row] = field


def _fields(sample: Any) -> tuple[Any, ...]:
    return sample if isinstance(sample, tuple) else (sample,)
