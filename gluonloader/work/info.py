"""What the user's functions are told: of the loader in the main program, and of the worker that runs them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..randomness import get_rng

__all__ = ["AtWork", "LoaderInfo", "WorkerInfo", "get_worker_info"]


@dataclass(frozen=True, slots=True)
class LoaderInfo:
    """What `worker_payload` is told of the loader.

    Attributes:
        dataset: the loader's dataset.
        batch_size: samples in a batch; None where a `batch_sampler` decides.
        num_workers: number of workers; 0 in the serial executor.
        seed: of order and augmentation.
    """

    dataset: Any
    batch_size: int | None
    num_workers: int
    seed: int


class WorkerInfo(int):
    """Who makes the current batch: what `worker_init_fn` is called with, and `get_worker_info()` gives.

    It is the worker's number, so that a `worker_init_fn` written for Gluon or torch works; and it knows more.
    Unlike other ints it is always true.

    Attributes:
        id: this worker's number, from 0 to `num_workers - 1`.
        num_workers: number of workers of the loader; 0 in the serial executor.
        seed: this worker's own 64-bit seed, a hash of the loader's seed and `id`.
        epoch: the epoch of the current batch; while the worker starts, the epoch that it will work for first.
        dataset: the dataset as this worker sees it.
        payload: what `worker_payload` computed for this worker in the main program; None without.
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
        return True  # there is a worker: `if get_worker_info():` asks for that

    def __repr__(self) -> str:
        return f"WorkerInfo(id={int(self)}, num_workers={self.num_workers}, epoch={self.epoch})"


class _Local(threading.local):
    info: WorkerInfo | None = None


_local = _Local()


def get_worker_info() -> WorkerInfo | None:
    """Inside a dataset, a batchify or `worker_init_fn`: which worker runs it; elsewhere None.

    As in torch, except that the serial executor, too, counts as a worker, with number 0 of 0.
    """
    return _local.info


class AtWork:
    """Within the block this thread is that worker."""

    def __init__(self, info: WorkerInfo) -> None:
        self._info = info

    def __enter__(self) -> None:
        self._before, _local.info = _local.info, self._info

    def __exit__(self, *exc_info: object) -> None:
        _local.info = self._before
