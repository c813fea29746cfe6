"""Gluon's datasets: gluonloader's classes that also derive from Gluon's, so that code of MXNet accepts them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from .. import records
from ..dataset import arrays, base
from ..dataset.base import Transformed
from ..tree import Sample
from .gluon import dataset as _gluon
from .gluon import mx

__all__ = ["ArrayDataset", "Dataset", "RecordFileDataset", "SimpleDataset"]


def __getattr__(name: str) -> Any:
    return getattr(_gluon, name)


class Dataset(base.Dataset[Sample], _gluon.Dataset):
    """Base class of datasets; a subclass defines `__getitem__(index)` and `__len__()`."""

    def __add__(self, other: Any) -> Dataset:
        """Joins the dataset and any other object with `__len__` and `__getitem__` end to end."""
        return SimpleDataset(super().__add__(other))

    def filter(self, fn: Callable[[Any], object]) -> Dataset:
        """Returns the samples for which `fn(sample)` is true; this call runs `fn` once on every sample."""
        return SimpleDataset(super().filter(fn))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Returns part `index` of `num_shards` contiguous parts; the first parts may have one sample more."""
        return SimpleDataset(super().shard(num_shards, index))

    def take(self, count: int | None) -> Dataset:
        """Returns the first `count` samples; all samples if `count` is None or larger than the dataset."""
        return SimpleDataset(super().take(count))

    def sample(self, sampler: Iterable[Any]) -> Dataset:
        """Returns the samples at the indices that `sampler` yields; this call iterates over `sampler` once."""
        return SimpleDataset(super().sample(sampler))

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:  # type: ignore[override]
        """Returns the dataset of `fn(sample)`, or of `fn(*sample)` if the sample is a tuple."""
        transformed = super().transform(fn, lazy)
        return _Transformed(self, fn) if lazy else SimpleDataset(transformed)

    def __mx_handle__(self) -> Dataset:
        """Returns the dataset itself: like the handle of a dataset in Gluon 2.0, it has a length and can be indexed."""
        return self


class _Transformed(Transformed, Dataset):
    """A lazily transformed dataset; `_data` is the original dataset and `_fn` the transform, as in Gluon."""


class SimpleDataset(base.SimpleDataset, Dataset, _gluon.SimpleDataset):
    """A dataset of the elements of any object with `__len__` and `__getitem__`, such as a list or an array."""


class ArrayDataset(arrays.ArrayDataset, Dataset, _gluon.ArrayDataset):
    """A dataset of sequences of equal length; an NDArray with one axis yields NumPy numbers, as in Gluon."""

    _data: list[Any]  # the name in Gluon, which subclasses read and change

    def __init__(self, *args: Any) -> None:
        super().__init__(*[x.asnumpy() if isinstance(x, mx.nd.NDArray) and x.ndim == 1 else x for x in args])
        self._length = len(self._data[0])  # another name of Gluon

    @property
    def _columns(self) -> Sequence[Any]:
        return self._data

    @_columns.setter
    def _columns(self, columns: Sequence[Any]) -> None:
        self._data = list(columns)


class RecordFileDataset(records.RecordFileDataset, Dataset, _gluon.RecordFileDataset):
    """A dataset of the records of a RecordIO file with an index file beside it; several threads may read records."""

    def __init__(self, filename: str) -> None:
        super().__init__(filename, partial=True)
        self.filename, self.idx_file = filename, os.path.splitext(filename)[0] + ".idx"
