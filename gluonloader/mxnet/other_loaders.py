"""Replacements for the loaders of GluonNLP and GluonCV, and for MXNet's `DataLoaderIter`; they load with gluonloader.

`install` replaces the original classes with these classes. Their arguments and batches are the same.
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

    The arguments are those of `gluonnlp.data.ShardedDataLoader`; `DataLoader` explains them. As in
    GluonNLP, waiting for a batch has no time limit.
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
    """The samples of an inner batch, if each batch of the loader is a list of batches."""


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
    """GluonCV's loader: chooses one of several transforms at random for each group of `interval` batches.

    The arguments are those of `gluoncv.data.RandomTransformDataLoader`; `DataLoader` explains the arguments that this
    list omits. As in GluonCV, NumPy's global generator in this process chooses the transforms, so an epoch that is
    resumed may use other transforms than the original epoch.

    Args:
        transform_fns: the transforms.
        dataset: a dataset with a method `transform`.
        interval: number of consecutive batches with the same transform.

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
            raise ValueError("transform_fns is empty; pass at least one transform")
        interval = max(int(interval), 1)
        plain = DataLoader(dataset, batch_size, shuffle, sampler, last_batch, batch_sampler)
        super().__init__(
            _ByTransform(dataset, transforms),
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
        # Not used, but GluonCV also draws it, and both must leave the generator in the same state.
        chosen = np.random.choice(self._transforms)
        for number, batch in enumerate(self._batches):
            if number % self._interval == 0:
                chosen = np.random.choice(self._transforms)
            yield [(int(chosen), index) for index in batch]

    def __len__(self) -> int:
        return len(self._batches)


class _ByTransform:
    """A dataset whose keys are (number of a transform, index)."""

    def __init__(self, dataset: Any, transforms: Sequence[Callable[..., Any]]) -> None:
        self._dataset, self._views = dataset, [dataset.transform(fn) for fn in transforms]

    def __getitem__(self, key: tuple[int, Any]) -> Any:
        transform, index = key
        return self._views[transform][index]

    def __len__(self) -> int:
        return len(self._dataset)


class DataLoaderIter(_DataLoaderIter):
    """MXNet's `DataIter` over a loader; it does not start epochs whose batches are never read.

    MXNet's own class starts an epoch to learn the shapes of a batch, and then drops that epoch. This class yields the
    batches of that epoch as the first epoch. After `reset`, the next epoch starts when its first batch is read.

    Args:
        loader: a loader whose batches are pairs (data, label) of NDArrays.
        data_name: the name of the data in `provide_data`.
        label_name: the name of the label in `provide_label`.
        dtype: dtype of the arrays that the iterator returns.
    """

    def __init__(
        self, loader: Any, data_name: str = "data", label_name: str = "softmax_label", dtype: str = "float32"
    ) -> None:
        self._untouched = True
        epoch = iter(loader)
        first = next(epoch)
        data, label = first
        DataIter.__init__(self, data.shape[0])  # the constructor of MXNet's class would start two epochs
        self.provide_data = [DataDesc(data_name, data.shape, dtype)]
        self.provide_label = [DataDesc(label_name, label.shape, dtype)]
        self.dtype, self._loader, self._current_batch = dtype, loader, None
        self._iter: Iterator[Any] = chain([first], epoch)

    def reset(self) -> None:
        """Ends the epoch, so that the next batch starts a new epoch; does nothing before the first batch is read."""
        if not self._untouched:
            self._iter = _late(self._loader)
            self._untouched = True

    def iter_next(self) -> bool:
        """Reads the next batch; returns False at the end of the epoch."""
        self._untouched = False
        return bool(super().iter_next())


def _late(loader: Any) -> Iterator[Any]:
    """Yields the batches of an epoch, which starts at the first `next` and not at the call of this function."""
    yield from loader
