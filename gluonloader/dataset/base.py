"""`Dataset` and the views that its methods make: filtered, sharded, taken, sampled, transformed. Meaning is Gluon's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..errors import bad_argument

__all__ = ["Dataset", "SimpleDataset"]


class Dataset:
    """Base of datasets: define `__getitem__(index)` and `__len__()`.

    A loader takes any object with these two, a plain list too; the base class adds the methods below.
    """

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__")

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def filter(self, fn: Callable[[Any], object]) -> Dataset:
        """The samples for which `fn(sample)` is true.

        `fn` runs over the whole dataset once, now, and gets one argument: the sample, a tuple where it is one.

        >>> list(SimpleDataset([1, 2, 3, 4]).filter(lambda x: x % 2 == 0))
        [2, 4]
        """
        return _View(self, [i for i in range(len(self)) if fn(self[i])])

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Part `index` of `num_shards` contiguous parts; the first ones hold one sample more if it does not divide.

        Raises:
            ValueError: unless `0 <= index < num_shards`.

        >>> [list(SimpleDataset(range(5)).shard(2, i)) for i in range(2)]
        [[0, 1, 2], [3, 4]]
        """
        if num_shards < 1:
            raise bad_argument("num_shards", num_shards, "give an int >= 1")
        if not 0 <= index < num_shards:
            raise bad_argument("index", index, f"give an int from 0 to num_shards - 1 ({num_shards - 1})")
        size, more = divmod(len(self), num_shards)
        start = size * index + min(index, more)
        return _View(self, range(start, start + size + (index < more)))

    def take(self, count: int | None) -> Dataset:
        """The first `count` samples; all of them if None or more than there are.

        Raises:
            ValueError: if `count` is negative.
        """
        if count is not None and count < 0:
            raise bad_argument("count", count, "give an int >= 0, or None for all")
        return _View(self, range(len(self) if count is None else min(count, len(self))))

    def sample(self, sampler: Iterable[Any]) -> Dataset:
        """The samples at the indices that `sampler` yields, drawn once, now.

        Raises:
            TypeError: if `sampler` cannot be iterated.
        """
        if not isinstance(sampler, Iterable):
            raise TypeError(f"sampler={sampler!r}: give a Sampler, or any iterable of indices")
        return _View(self, list(sampler))

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:
        """The dataset of `fn(sample)`, or of `fn(*sample)` where the sample is a tuple.

        Args:
            fn: the transform; with worker processes under spawn or forkserver it has to be picklable.
            lazy: run `fn` at each read; if False, run it over everything once, now, and keep the results.

        >>> list(SimpleDataset([(1, 2), (3, 4)]).transform(lambda a, b: a + b))
        [3, 7]
        """
        transformed = _Transformed(self, fn)
        return transformed if lazy else SimpleDataset(list(transformed))

    def transform_first(self, fn: Callable[[Any], Any], lazy: bool = True) -> Dataset:
        """Like `transform`, but `fn` gets only the first field of a tuple (typically the image, not the label).

        >>> list(SimpleDataset([(1, "a"), (3, "b")]).transform_first(lambda x: -x))
        [(-1, 'a'), (-3, 'b')]
        """
        return self.transform(_First(fn), lazy)


class SimpleDataset(Dataset):
    """A dataset over anything with `__len__` and `__getitem__`: a list, an array.

    >>> SimpleDataset(["a", "b"])[1]
    'b'
    """

    def __init__(self, data: Any) -> None:
        self._data = data

    def __getitem__(self, index: Any) -> Any:
        return self._data[index]

    def __len__(self) -> int:
        return len(self._data)


class _View(Dataset):
    """The samples of `dataset` at `indices`, in that order."""

    def __init__(self, dataset: Any, indices: Sequence[Any]) -> None:
        self._dataset, self._indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[self._indices[index]]

    def __len__(self) -> int:
        return len(self._indices)


class _Transformed(Dataset):
    """`fn` over each sample of `dataset`."""

    def __init__(self, dataset: Any, fn: Callable[..., Any]) -> None:
        self._dataset, self._fn = dataset, fn

    def __getitem__(self, index: Any) -> Any:
        sample = self._dataset[index]
        return self._fn(*sample) if isinstance(sample, tuple) else self._fn(sample)

    def __len__(self) -> int:
        return len(self._dataset)


class _First:
    """`fn` over the first field. A class, not a closure, so that it can be pickled."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._fn = fn

    def __call__(self, first: Any, *rest: Any) -> Any:
        return (self._fn(first), *rest) if rest else self._fn(first)
