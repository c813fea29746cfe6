"""What user code can ask for: `LoaderInfo` in the main program, `WorkerInfo` in a worker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..randomness import get_rng


@dataclass(frozen=True, slots=True)
class LoaderInfo:
    """The loader that calls `worker_payload`.

    Attributes:
        dataset: the loader's dataset.
        batch_size: samples in a batch; None if a `batch_sampler` decides.
        num_workers: number of workers; 0 in the serial executor.
        seed: of order and augmentation.
    """

    dataset: Any
    batch_size: int | None
    num_workers: int
    seed: int


class WorkerInfo(int):
    """The worker that makes the current batch: `worker_init_fn` gets it, and `get_worker_info()` returns it.

    It is an int, the worker's number, so a `worker_init_fn` written for Gluon or torch works; its attributes say more.
    Unlike other ints it is always true, so `if get_worker_info():` works in worker 0.

    Attributes:
        id: this worker's number, from 0 to `num_workers - 1`.
        num_workers: number of workers of the loader; 0 in the serial executor.
        seed: a 64-bit seed for this worker alone, a hash of the loader's seed and `id`.
        epoch: the epoch of the current batch; while the worker starts, the first epoch that it will work for.
        dataset: this worker's copy of the dataset.
        payload: what `worker_payload` returned for this worker in the main program; None without it.
    """

    num_workers: int
    seed: int
    epoch: int
    dataset: Any
    payload: Any

    @property
    def id(self) -> int:
        """This worker's number."""
        return int(self)

    @property
    def rng(self) -> np.random.Generator:
        """The current batch's random generator; see `get_rng`."""
        return get_rng()

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"WorkerInfo(id={int(self)}, num_workers={self.num_workers}, epoch={self.epoch})"


_local = threading.local()  # its `info` is the worker that this thread is


def get_worker_info() -> WorkerInfo | None:
    """The worker that runs the calling code: a dataset, a transform, a batchify_fn or `worker_init_fn`.

    Returns:
        None outside of a loader. As in torch, except that the serial executor counts as worker 0 of 0.
    """
    info: WorkerInfo | None = getattr(_local, "info", None)
    return info


@contextmanager
def running_as(info: WorkerInfo) -> Iterator[None]:
    """Within the `with` block this thread is that worker."""
    before, _local.info = get_worker_info(), info
    try:
        yield
    finally:
        _local.info = before
