"""What the library tells user code: `LoaderInfo` and `BatchInfo` in the main program, `WorkerInfo` in a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..current import Current, new_current
from ..randomness import get_rng


@dataclass(frozen=True, slots=True)
class LoaderInfo:
    """Describes the loader that calls `worker_payload`.

    Attributes:
        dataset: the loader's dataset.
        batch_size: number of samples in a batch; None if a `batch_sampler` was passed.
        num_workers: number of workers; 0 in the serial executor.
        seed: the seed of the order and of random augmentation.
    """

    dataset: Any
    batch_size: int | None
    num_workers: int
    seed: int


@dataclass(frozen=True, slots=True)
class BadSample:
    """A sample that raised an error and was skipped or replaced; see `on_error`.

    Attributes:
        sample: which sample it is, such as "dataset[7]".
        error: the type and the text of the error.
        skipped: whether the sample was left out of its batch; otherwise another value has replaced it.
    """

    sample: str
    error: str
    skipped: bool = True


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """Describes a batch that a loader has delivered; see `LoaderIterator.last`.

    Attributes:
        epoch, number: which batch it is: `loader.replay(epoch, number)` makes it again.
        indices: the indices of its samples, in their order, including samples that `on_error` has skipped; None for an
            iterable dataset.
        worker: number of the worker that made it; None if the calling thread made it.
        made_s: seconds that this worker spent making it.
        waited_s: seconds that the call of `next` waited for it.
        samples: number of samples in the batch, without those that `on_error` has skipped.
        errors: the samples that raised an error and were skipped or replaced; see `on_error`.
        shard, chunk: for an iterable dataset, which batch of which shard it is, both from 0; None for a batch that was
            made from the last samples of several shards, and for other datasets.
    """

    epoch: int
    number: int
    indices: list[Any] | None
    worker: int | None
    made_s: float
    waited_s: float
    samples: int
    errors: tuple[BadSample, ...]
    shard: int | None = None
    chunk: int | None = None


class WorkerInfo(int):
    """Describes the worker that runs the calling code; passed to `worker_init_fn`, and returned by `get_worker_info()`.

    A `WorkerInfo` is an int, the number of the worker, so a `worker_init_fn` written for Gluon or torch works. Unlike
    other ints it is always true, so `if get_worker_info():` works in worker 0, too.

    Attributes:
        id: this worker's number, from 0 to `num_workers - 1`.
        num_workers: number of workers of the loader; 0 in the serial executor.
        seed: a 64-bit seed that differs between workers, a hash of the loader's seed and `id`.
        epoch: number of the epoch of the current batch; while the worker starts, of its first epoch.
        dataset: this worker's copy of the dataset.
        payload: what `worker_payload` returned for this worker; None without `worker_payload`.
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


_current: Final[Current[WorkerInfo]] = new_current("gluonloader_worker")


def get_worker_info() -> WorkerInfo | None:
    """Returns the worker that runs the calling dataset, transform, batchify_fn or `worker_init_fn`.

    Returns:
        A `WorkerInfo`, or None if no loader runs the calling code. The serial executor counts as worker 0 of 0, unlike
        in torch.
    """
    return _current.get()


class RunningAs:
    """Within the `with` block `get_worker_info()` in this thread returns `info`."""

    # Not a generator: if a signal handler raised while it starts, the error would keep the generator, which would end
    # when the error is dropped, perhaps within a later block.

    __slots__ = ("_before", "_info", "_is_set")

    def __init__(self, info: WorkerInfo | None) -> None:
        self._info, self._is_set = info, False

    def __enter__(self) -> None:
        self._before = _current.get()
        self._is_set = True
        _current.set(self._info)

    def __exit__(self, *exception: object) -> None:
        self.restore()

    def restore(self) -> None:
        """Ends the block if that has not happened; a signal handler may have raised before `__exit__` could start."""
        if self._is_set:
            _current.set(self._before)
            self._is_set = False
