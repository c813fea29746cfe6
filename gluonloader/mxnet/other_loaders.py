"""The loaders that GluonNLP and GluonCV build on Gluon's, and MXNet's `DataLoaderIter`, over gluonloader.

`install` puts them in the place of the original classes; the arguments and the batches are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from mxnet.contrib.io import DataLoaderIter as _DataLoaderIter
from mxnet.io import DataDesc, DataIter

from ..checks import LastBatch
from .dataloader import DataLoader
from .gluon import to_ndarray
from .sampler import Sampler
from .structure import gluon_batchify

Batchify = Callable[[Sequence[Any]], Any]


class ShardedDataLoader(DataLoader):
    """GluonNLP's loader: if a batch sampler yields a list of lists of indices, a batch is a list of batches.

    The arguments are those of `gluonnlp.data.ShardedDataLoader`; for their meaning see `DataLoader`. As there, waiting
    for a batch has no time limit.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: LastBatch | None = None,
        batch_sampler: Any = None,
        batchify_fn: Batchify | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        prefetch: int | None = None,
        thread_pool: bool = False,
    ) -> None:
        super().__init__(
            _Sharded(dataset),
            batch_size,
            shuffle,
            sampler,
            last_batch,
            batch_sampler,
            _BatchifyShards(batchify_fn or gluon_batchify),
            num_workers,
            pin_memory,
            prefetch=prefetch,
            thread_pool=thread_pool,
            timeout=None,
            output=None if batchify_fn else to_ndarray(shared=num_workers > 0),
        )
        self._dataset, self._batchify_fn = dataset, batchify_fn or self._batchify_fn


class _Shard(list[Any]):
    """The samples of one of the batches that a batch consists of."""


class _Sharded:
    """A dataset that also accepts a list of indices, and then returns a `_Shard`."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, key: Any) -> Any:
        return _Shard([self._dataset[i] for i in key]) if isinstance(key, (list, tuple)) else self._dataset[key]

    def __len__(self) -> int:
        return len(self._dataset)


class _BatchifyShards:
    def __init__(self, batchify: Batchify) -> None:
        self._batchify = batchify

    def __call__(self, samples: Sequence[Any]) -> Any:
        sharded = type(samples[0]) is _Shard
        return [self._batchify(list(shard)) for shard in samples] if sharded else self._batchify(samples)


class RandomTransformDataLoader(DataLoader):
    """GluonCV's loader: applies one of several transforms, which changes at random after `interval` batches.

    The arguments are those of `gluoncv.data.RandomTransformDataLoader`; for the others see `DataLoader`. As there,
    NumPy's global generator in this process chooses the transforms, so an epoch that is resumed may choose others.

    Args:
        transform_fns: the transforms.
        dataset: a dataset with a method `transform`.
        interval: number of batches with the same transform.

    Raises:
        ValueError: `transform_fns` is empty, or another argument is wrong.
    """

    def __init__(
        self,
        transform_fns: Iterable[Callable[..., Any]],
        dataset: Any,
        interval: int = 1,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: LastBatch | None = None,
        batch_sampler: Any = None,
        batchify_fn: Batchify | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | None = None,
    ) -> None:
        if not (transforms := list(transform_fns)):
            raise ValueError("transform_fns is empty; pass at least one function of a sample")
        interval = max(int(interval), 1)
        plain = DataLoader(dataset, batch_size, shuffle, sampler, last_batch, batch_sampler)
        super().__init__(
            _Transformed(dataset, transforms),
            batch_sampler=_RandomTransforms(plain._batch_sampler, len(transforms), interval),
            batchify_fn=batchify_fn,
            num_workers=num_workers,
            pin_memory=pin_memory,
            pin_device_id=pin_device_id,
            prefetch=prefetch,
        )
        self._dataset, self._transform_fns, self._interval = dataset, transforms, interval


class _RandomTransforms(Sampler):
    """Yields lists of (number of a transform, index)."""

    def __init__(self, batch_sampler: Any, transforms: int, interval: int) -> None:
        self._batches, self._transforms, self._interval = batch_sampler, transforms, interval

    def __iter__(self) -> Iterator[list[tuple[int, Any]]]:
        chosen = np.random.choice(self._transforms)  # not used, but GluonCV draws it as well
        for number, batch in enumerate(self._batches):
            if number % self._interval == 0:
                chosen = np.random.choice(self._transforms)
            yield [(int(chosen), index) for index in batch]

    def __len__(self) -> int:
        return len(self._batches)


class _Transformed:
    """A dataset whose keys are (number of a transform, index)."""

    def __init__(self, dataset: Any, transforms: Sequence[Callable[..., Any]]) -> None:
        self._dataset, self._views = dataset, [dataset.transform(fn) for fn in transforms]

    def __getitem__(self, key: tuple[int, Any]) -> Any:
        transform, index = key
        return self._views[transform][index]

    def __len__(self) -> int:
        return len(self._dataset)


class DataLoaderIter(_DataLoaderIter):
    """MXNet's `DataIter` over a loader, which starts no epoch that is not read.

    MXNet's own class starts an epoch to learn the shapes of a batch, and drops it. This class keeps it as the first
    epoch; the next epoch starts with the first batch that is read after `reset`.

    Args:
        loader: a loader whose batches are pairs (data, label) of NDArrays.
        data_name: the name of the data in `provide_data`.
        label_name: the name of the label in `provide_label`.
        dtype: dtype of the arrays that it returns.
    """

    def __init__(
        self, loader: Any, data_name: str = "data", label_name: str = "softmax_label", dtype: str = "float32"
    ) -> None:
        self._untouched = True
        epoch = iter(loader)
        first = next(epoch)
        data, label = first
        DataIter.__init__(self, data.shape[0])  # MXNet's class would start two epochs
        self.provide_data = [DataDesc(data_name, data.shape, dtype)]
        self.provide_label = [DataDesc(label_name, label.shape, dtype)]
        self.dtype, self._loader, self._current_batch = dtype, loader, None
        self._iter: Iterator[Any] = chain([first], epoch)

    def reset(self) -> None:
        """Makes the next batch the first one of a new epoch, unless no batch of this epoch was read yet."""
        if not self._untouched:
            self._iter = _late(self._loader)
            self._untouched = True

    def iter_next(self) -> bool:
        """Reads the next batch; returns False at the end of the epoch."""
        self._untouched = False
        return bool(super().iter_next())


def _late(loader: Any) -> Iterator[Any]:
    """The batches of an epoch that starts with the first `next`."""
    yield from loader
