"""What the workers of a `DataLoader` read: torch's kinds of datasets, as datasets that gluonloader reads.

map-style, batched            the dataset itself; keys are indices               batch = collate_fn(samples)
map-style, bulk or unbatched  `Whole`; a key is all that one batch is read with   batch = collate_fn(samples[0])
tensors, default collate_fn   `WholeRows`; the same, but the samples are `Rows`  batch = collate_fn(samples[0])
iterable                      `Replicas`; a shard is one worker's dataset         batch = collate_fn(samples[0])
"""

from __future__ import annotations

import os
import pickle
import platform
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from hashlib import blake2b
from itertools import repeat
from typing import Any

import numpy as np

from ..dataset.bulk import are_ints
from ..dataset.iterable import IterableDataset
from ..dataset.opening import at_epoch
from ..frameworks import owner
from ..guests import hugging_face
from ..messages import message
from ..rows import Rows
from ..state import has_state
from ..work.info import WorkerInfo, get_worker_info
from .collate import DTYPES
from .utils_data import data, torch, worker


@message(frozen=True, slots=True)
class OfFirst:
    """Calls `collate_fn` with the first sample, which is all that the batch contains."""

    collate_fn: Callable[[Any], Any]

    @property
    def _parts(self) -> tuple[Any, ...]:
        return (self.collate_fn,)

    def __call__(self, samples: Any) -> Any:
        return self.collate_fn(samples[0])


class Whole:
    """A dataset whose keys are those of whole batches: by `__getitems__` if `bulk`, otherwise by `__getitem__`."""

    def __init__(self, dataset: Any, bulk: bool) -> None:
        self.dataset = dataset
        self._read = dataset.__getitems__ if bulk else dataset.__getitem__
        if has_state(dataset):
            self.state_dict, self.load_state_dict = dataset.state_dict, dataset.load_state_dict

    @property
    def _users_dataset(self) -> Any:
        return self.dataset

    def __getitem__(self, key: Any) -> Any:
        return self._read(key)

    def __len__(self) -> int:
        return len(self.dataset)


class WholeRows:
    """A dataset of tensors, whose keys are those of whole batches.

    Args:
        as_rows: read the samples as `Rows`, see `has_rows`.
    """

    _parts = ()  # it calls no user code

    def __init__(self, dataset: Any, as_rows: bool) -> None:
        self.dataset, self._as_rows = dataset, as_rows
        self._tensors: Any = None  # those of `_rows`
        self._rows: Rows | None = None

    @property
    def _users_dataset(self) -> Any:
        return self.dataset

    def __reduce__(self) -> Any:
        # In a worker, too, the rows are those of the tensors, which may be shared.
        return WholeRows, (self.dataset, self._as_rows)

    def __getitem__(self, keys: Any) -> Sequence[Any]:
        keys = keys if hasattr(keys, "__getitem__") else list(keys)  # a batch sampler may yield sets
        rows = self._rows_at(keys) if self._as_rows and are_ints(keys) else None
        return [self.dataset[key] for key in keys] if rows is None else rows

    def _rows_at(self, keys: Any) -> Rows | None:
        """The samples; None if they are no rows, perhaps since the user has changed the dataset."""
        dataset = self.dataset
        while type(dataset) is data.Subset:
            indices, dataset = dataset.indices, dataset.dataset
            keys = indices[keys] if type(indices) is np.ndarray else [indices[key] for key in keys]
        if type(dataset) is not data.TensorDataset or not len(keys) or not are_ints(keys):
            return None
        if dataset.tensors is not self._tensors:
            self._tensors, self._rows = dataset.tensors, _rows_of(dataset.tensors)
        return None if self._rows is None else self._rows.at(keys)

    def __len__(self) -> int:
        return len(self.dataset)


def has_rows(dataset: Any) -> bool:
    """Whether a dataset is a `TensorDataset`, or a `Subset` of one, whose tensors NumPy can have."""
    while type(dataset) is data.Subset:
        dataset = dataset.dataset
    return type(dataset) is data.TensorDataset and _rows_of(dataset.tensors) is not None


def _rows_of(tensors: Any) -> Rows | None:
    arrays = tuple(map(_array_of, tensors))
    return None if any(array is None for array in arrays) else Rows(arrays)


def _array_of(tensor: Any) -> Any:
    framework = owner(type(tensor))
    array = None if framework is None else framework.to_numpy(tensor)
    return array if array is not None and array.ndim and array.dtype in DTYPES else None


class Replicas(IterableDataset[Any]):
    """An iterable dataset of torch: every worker reads a copy of it, and makes its own batches."""

    def __init__(self, dataset: Any, batch_size: int | None, drop_last: bool, workers: int) -> None:
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self._num_shards = max(1, workers)

    @property
    def _users_dataset(self) -> Any:
        return self.dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(self.shard(1, 0))

    def shard(self, num_shards: int, index: int) -> Any:
        """What one worker reads."""
        return Replica(self)


class Replica:
    """The samples that one worker reads, as lists for batches."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def __iter__(self) -> Iterator[Any]:
        dataset = self._replicas.dataset
        if hugging_face.is_stream(dataset):  # it would start each later epoch at a state that was loaded, too
            dataset = at_epoch(dataset, dataset.epoch)
        if has_state(dataset) and not hugging_face.loses_samples(dataset):
            return _StatefulBatches(self._replicas, iter(dataset), dataset)
        if _seeded is not None:
            info = get_worker_info()
            seeded = _SeededBatches(self._replicas, dataset, _seeded.of_epoch(0 if info is None else info.epoch))
            return _StatefulBatches(self._replicas, seeded._samples, dataset) if has_state(seeded._samples) else seeded
        samples = iter(dataset)
        if has_state(samples):
            return _StatefulBatches(self._replicas, samples, dataset)
        return _Batches(self._replicas, samples)


class _Batches:
    def __init__(self, replicas: Replicas, samples: Any) -> None:
        self._replicas, self._samples, self._ended = replicas, samples, False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        size = self._replicas.batch_size
        if size is None:
            return next(self._samples)
        if self._ended:
            raise StopIteration
        # `islice` would call `iter` again, which starts some datasets again. StopIteration of `next` ends the `map`.
        batch = list(map(next, repeat(self._samples, size)))
        self._ended = len(batch) < size
        if not batch or (self._ended and self._replicas.drop_last):
            raise StopIteration
        return batch


class _StatefulBatches(_Batches):
    """Batches of a dataset that can save where it stands."""

    def __init__(self, replicas: Replicas, samples: Any, dataset: Any) -> None:
        super().__init__(replicas, samples)
        self._dataset = dataset

    def state_dict(self) -> dict[str, Any]:
        owner = self._samples if has_state(self._samples) else self._dataset
        return {"dataset": owner.state_dict(), "ended": self._ended}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if has_state(self._samples):
            self._samples.load_state_dict(state["dataset"])
        else:
            self._dataset.load_state_dict(state["dataset"])
            self._samples = iter(self._dataset)
        self._ended = state["ended"]


class _SeededBatches(_Batches):
    """Batches of a dataset that draws from generators that `worker_init_fn` has seeded, and from nothing else.

    Often all workers seed them alike, so that they shuffle the same order, of which each yields its part.
    """

    def __init__(self, replicas: Replicas, dataset: Any, generators: _Generators) -> None:
        generators.restore()
        super().__init__(replicas, iter(dataset))
        self._generators = _Generators.now()

    def __next__(self) -> Any:
        self._generators.restore()
        try:
            return super().__next__()
        finally:
            self._generators = _Generators.now()


@message(frozen=True, slots=True)
class _Generators:
    """The states of the global generators of `random`, NumPy and torch."""

    python: Any
    numpy: Any
    torch: Any

    @staticmethod
    def now() -> _Generators:
        return _Generators(random.getstate(), np.random.get_state(legacy=False), torch.get_rng_state())

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        torch.set_rng_state(self.torch)

    def of_epoch(self, epoch: int) -> _Generators:
        """These states in the first epoch; in another one, states that depend only on these and on the epoch."""
        if epoch:
            seeds = [blake2b(b"%d" % epoch, key=blake2b(state).digest(), digest_size=4) for state in self.as_bytes()]
            for seed, state in zip((random.seed, np.random.seed, torch.manual_seed), seeds, strict=True):
                seed(int.from_bytes(state.digest(), "big"))
            return _Generators.now()
        return self

    def as_bytes(self) -> list[bytes]:
        """Each state, to be compared."""
        return [repr(self.python).encode(), pickle.dumps(self.numpy), self.torch.numpy().tobytes()]


_seeded: _Generators | None = None  # in a worker process, after its `worker_init_fn` has seeded generators


def _process() -> tuple[str, int]:
    return platform.node(), os.getpid()


@message(frozen=True, slots=True)
class StartWorker:
    """What torch does when a worker starts; a `worker_init_fn` of gluonloader.

    In a thread of the program it only calls the user's function: all else would change the generators and the threads
    of the program.
    """

    base_seed: int
    worker_init_fn: Callable[[int], object] | None
    program: tuple[str, int] = field(default_factory=_process)

    def __call__(self, info: WorkerInfo) -> None:
        global _seeded
        is_worker = _process() != self.program
        if is_worker:
            self._start(info)
        if self.worker_init_fn is None:
            return
        if not is_worker or not isinstance(info.dataset, Replicas):
            self.worker_init_fn(info.id)
            return
        before = _Generators.now()
        self.worker_init_fn(info.id)
        now = _Generators.now()
        _seeded = None if now.as_bytes() == before.as_bytes() else now

    def _start(self, info: WorkerInfo) -> None:
        torch.set_num_threads(1)
        seed = self.base_seed + info.id
        random.seed(seed)
        torch.manual_seed(seed)
        np.random.seed(worker._generate_state(self.base_seed, info.id))
        dataset = info.dataset.dataset if isinstance(info.dataset, (Whole, WholeRows, Replicas)) else info.dataset
        worker._worker_info = worker.WorkerInfo(id=info.id, num_workers=info.num_workers, seed=seed, dataset=dataset)
