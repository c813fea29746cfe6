"""The limit: processes that copy the samples of a batch to warm shared memory, and do nothing else."""

from __future__ import annotations

import mmap
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from .cases import Case
from .loaders import Loader, Run
from .programs import Program, together


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
