"""The limit: processes that copy the samples of a batch to warm shared memory, and do nothing else."""

from __future__ import annotations

import mmap
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from .cases import Case
from .loaders import Loader, Run

__all__ = ["PlainCopy"]


class PlainCopy(Loader):
    """As many processes as the loader has workers; each process copies to separate shared memory for a batch."""

    name, distribution, module = "plain copy", "numpy", "numpy"

    @contextmanager
    def open(self, case: Case, dataset: Any, workers: int) -> Iterator[Run]:
        context = multiprocessing.get_context("fork")
        connections, processes = [], []
        for _ in range(workers):
            connection, far_end = context.Pipe()
            process = context.Process(target=_copy_on_demand, args=(far_end, dataset, case.batch_size), daemon=True)
            process.start()
            far_end.close()
            connections.append(connection)
            processes.append(process)
        try:
            yield CopyRun(connections, case.batches)
        finally:
            for connection in connections:
                connection.send(0)
            for process in processes:
                process.join()


class CopyRun(Run):
    """Times an epoch: the processes together copy as many batches as an epoch has."""

    def __init__(self, connections: list[Connection], count: int) -> None:
        super().__init__((), count)
        self._connections = connections

    def epoch(self) -> float:
        share, rest = divmod(self._count, len(self._connections))
        start = time.perf_counter()
        for number, connection in enumerate(self._connections):
            connection.send(share + (number < rest))
        for connection in self._connections:
            connection.recv()
        return time.perf_counter() - start


def _copy_on_demand(connection: Connection, dataset: Any, batch_size: int) -> None:
    samples = [dataset[index] for index in range(batch_size)]
    shape = (batch_size * samples[0].shape[0], *samples[0].shape[1:])
    memory = mmap.mmap(-1, sum(sample.nbytes for sample in samples))
    batch = np.frombuffer(memory, samples[0].dtype).reshape(shape)
    while count := connection.recv():
        for _ in range(count):
            np.concatenate(samples, out=batch)
        connection.send(None)
