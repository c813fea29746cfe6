"""The limits of the hardware: loops that do only what every loader has to do, and reuse their memory."""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from .cases import Array, Case
from .datasets import Columns
from .loaders import Chunks, Loader, Run
from .programs import Program, together


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


class PlainCopy(Loader):
    """As many processes as the loader has workers; each process copies to separate shared memory for a batch."""

    name, module = "plain copy", "numpy"

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        share, rest = divmod(case.batches, workers)
        with ExitStack() as stack:
            programs = [
                stack.enter_context(Program(_copies, dataset, case.batch_size, share + (number < rest)))
                for number in range(workers)
            ]
            for program in programs:
                program.answer()
            yield CopyRun(programs, case.batches)


class CopyRun(Run):
    """Times an epoch: the processes together copy as many batches as an epoch has."""

    def __init__(self, programs: Sequence[Program], count: int) -> None:
        super().__init__((), count)
        self._programs = programs

    def epoch(self) -> float:
        start = time.perf_counter()
        together(self._programs)
        return time.perf_counter() - start


def _copies(dataset: Any, batch_size: int, count: int) -> Iterator[None]:
    samples = [dataset[index] for index in range(batch_size)]
    shape = (batch_size * samples[0].shape[0], *samples[0].shape[1:])
    memory = mmap.mmap(-1, sum(sample.nbytes for sample in samples))
    batch = np.frombuffer(memory, samples[0].dtype).reshape(shape)
    while True:
        yield
        for _ in range(count):
            np.concatenate(samples, out=batch)
