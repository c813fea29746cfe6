"""`Dataset`, and the datasets that its methods return: filtered, sharded, sampled, transformed, joined."""

from __future__ import annotations

import inspect
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, Final, Generic

import numpy as np
from numpy.typing import NDArray

from ..checks import (
    check_flags,
    check_function,
    check_indexed,
    check_int,
    check_predicate,
    check_shard,
    is_async_function,
)
from ..declared import in_memory, is_array, is_async, needed_blocks, parts_of, slow_in_random_order
from ..describe import call, describe, short_repr, sized
from ..errors import add_note, bad_argument
from ..indices import (
    as_list,
    between,
    checked_index,
    checked_indices,
    checksum_of,
    checksum_of_array,
    known_indices,
    lengths_of,
)
from ..lengths import computed_lengths, known_lengths
from ..rows import Rows
from ..tree import Sample
from .bulk import are_ints, bulk_read, check_no_mask, columns_in, each, interleave, read, settled, split_where_changed
from .iterable import is_iterable

_MAX_BULK: Final = 64  # samples per bulk read of an iteration: nearly as fast as larger reads, and uses little memory


class Dataset(Generic[Sample]):
    """Base class of datasets; a subclass defines `__getitem__(index)` and `__len__()`.

    A loader accepts any object with these two methods, such as a list; this class adds the methods below.

    If your dataset can read many samples at once faster than one by one, also define the bulk read
    `__getitems__(indices)`. Loaders, and the datasets that the methods below return, then call it once per batch, with
    a list of indices. It must return one sample for each index, in the same order, as a list, `Rows`, or any other
    sequence.
    """

    def __getitem__(self, index: Any) -> Sample:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must define __len__")

    __repr__ = short_repr(sized)

    def __iter__(self) -> Iterator[Sample]:
        count = len(self)
        if not hasattr(self, "__getitems__"):
            return (self[i] for i in range(count))
        return chain.from_iterable(read(self, indices) for indices in _growing_ranges(count))

    def __add__(self, other: Any) -> Dataset[Any]:
        """Joins the dataset and any other object with `__len__` and `__getitem__` end to end, like `ConcatDataset`.

        >>> list(SimpleDataset([1, 2]) + [3])
        [1, 2, 3]
        """
        parts = [part.datasets if type(part) is ConcatDataset else [part] for part in (self, other)]
        return ConcatDataset(*parts[0], *parts[1])

    def filter(self, fn: Callable[[Sample], object]) -> Dataset[Sample]:
        """Returns the samples for which `fn(sample)` is true; this call runs `fn` once on every sample.

        `fn` takes one argument, the sample, even if the sample is a tuple.

        >>> list(SimpleDataset([1, 2, 3, 4]).filter(lambda x: x % 2 == 0))
        [2, 4]
        """
        if is_async(self):
            text = f"filter: the samples of {type(self).__name__} are awaited, so they cannot be read here"
            raise ValueError(f"{text}; find the indices yourself, and call sample(indices)")
        check_predicate("fn", fn)
        # Not `iter(self)`, since a subclass may iterate in another order.
        return Subset(self, [i for i, sample in enumerate(Dataset.__iter__(self)) if fn(sample)])

    def shard(self, num_shards: int, index: int) -> Dataset[Sample]:
        """Returns part `index` of `num_shards` contiguous parts; the first parts may have one sample more.

        Raises:
            ValueError: unless `0 <= index < num_shards`.

        >>> [list(SimpleDataset(range(5)).shard(2, i)) for i in range(2)]
        [[0, 1, 2], [3, 4]]
        """
        num_shards, index = check_shard(num_shards, index)
        size, longer = divmod(len(self), num_shards)
        start = size * index + min(index, longer)
        return Subset(self, range(start, start + size + (index < longer)))

    def take(self, count: int | None) -> Dataset[Sample]:
        """Returns the first `count` samples; all samples if `count` is None or larger than the dataset.

        Raises:
            ValueError: if `count` is negative.
        """
        if count is not None:
            check_int("count", count, 0, "must be an int >= 0, or None for all samples")
        return Subset(self, range(len(self) if count is None else min(count, len(self))))

    def sample(self, sampler: Iterable[Any]) -> Dataset[Sample]:
        """Returns the samples at the indices that `sampler` yields; this call iterates over `sampler` once.

        Raises:
            TypeError: if `sampler` cannot be iterated.
        """
        if not isinstance(sampler, Iterable):
            raise TypeError(f"sampler={sampler!r}: pass a Sampler or another iterable of indices")
        return Subset(self, sampler)

    def transform(self, fn: Callable[..., Any], lazy: bool = True, batched: bool = False) -> Dataset:
        """Returns the dataset of `fn(sample)`, or of `fn(*sample)` if the sample is a tuple.

        Args:
            fn: the transform. If the samples of this dataset are awaited (`async def __getitem__`), `fn` may be
                `async def`, too. If worker processes start by spawn or forkserver, it must be picklable.
            lazy: if True, run `fn` at each read of a sample. If False, this call runs it on all samples and keeps the
                results.
            batched: call `fn(samples)` once per batch, with the sequence of its samples (what `__getitems__` of this
                dataset returned, or a list); `fn` must return one sample for each of them, in the same order.

        Raises:
            ValueError: raised by a read if a batched `fn` returns too few or too many samples.

        >>> list(SimpleDataset([(1, 2), (3, 4)]).transform(lambda a, b: a + b))
        [3, 7]
        >>> data = SimpleDataset(np.arange(4)).transform(lambda rows: rows.columns * 10, batched=True)
        >>> data.__getitems__([3, 0])
        array([30,  0])
        """
        self._check_transform(fn)
        check_flags(lazy=lazy, batched=batched)
        if is_async(self) and (batched or not lazy):
            name, value = ("batched", batched) if batched else ("lazy", lazy)
            right = f"only a loader can await the samples of {type(self).__name__}, and transform them one by one"
            raise bad_argument(name, value, f"{right}; remove the argument")
        if not batched:
            transformed = (AsyncTransformed if is_async(self) else Transformed)(self, fn)
            return transformed if lazy else SimpleDataset(list(transformed))
        in_bulk = _BatchTransformed(self, fn)
        return in_bulk if lazy else SimpleDataset(in_bulk.__getitems__(list(range(len(self)))) if len(self) else [])

    def transform_first(self, fn: Callable[[Any], Any], lazy: bool = True) -> Dataset:
        """Like `transform`, but applies `fn` only to the first field of a tuple, such as the image and not its label.

        >>> list(SimpleDataset([(1, "a"), (3, "b")]).transform_first(lambda x: -x))
        [(-1, 'a'), (-3, 'b')]
        """
        self._check_transform(fn)
        return self.transform(_First(fn), lazy)

    def _check_transform(self, fn: Any) -> None:
        check_function("fn", fn)
        if not is_async(self) and is_async_function(fn):
            right = f"the samples of {type(self).__name__} are not awaited, so `fn` must not be `async def`"
            raise bad_argument("fn", fn, f"{right}; pass an ordinary function, or a dataset with async def __getitem__")


def _growing_ranges(count: int) -> Iterator[NDArray[np.intp]]:
    """All indices, in ranges whose size doubles, so that the first sample arrives before many others are read."""
    start, size = 0, 1
    while start < count:
        yield np.arange(start, min(start + size, count))
        start, size = start + size, min(2 * size, _MAX_BULK)


class SimpleDataset(Dataset):
    """A dataset of the elements of a list, an array, or any object with `__len__` and `__getitem__`.

    Arrays, `Rows` and datasets with a bulk read are read in bulk.

    >>> SimpleDataset(["a", "b"])[1]
    'b'
    """

    _kept_rows: tuple[Any, Rows | None] = (None, None)  # an array or `Rows`, and all its samples

    def __init__(self, data: Any) -> None:
        if type(self).__getitem__ is SimpleDataset.__getitem__:
            _check_part("data", data)
        self._data = data

    def __getitem__(self, index: Any) -> Any:
        return self._data[index]

    @bulk_read(lambda self: self._all_rows() is not None or hasattr(self._data, "__getitems__"))
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        rows = self._all_rows()
        return rows.at(indices) if rows is not None and are_ints(indices) else read(self._data, indices)

    def _all_rows(self) -> Rows | None:
        data, (seen, rows) = self._data, self._kept_rows
        if seen is not data:  # at first, and if a subclass has set `_data`, as subclasses of Gluon's class do
            rows = Rows(data) if is_array(data) and data.ndim else data if type(data) is Rows else None
            self._kept_rows = data, rows
        return rows

    @property
    def _parts(self) -> tuple[Any, ...]:
        return (self._data,)

    def __len__(self) -> int:
        return len(self._data)

    @short_repr
    def __repr__(self) -> str:
        return call(self, describe(self._data)) if isinstance(self._data, Dataset) else sized(self)


class Subset(Dataset):
    """The samples of a dataset at `indices`, in that order.

    Args:
        dataset: any object with `__len__` and `__getitem__`.
        indices: an iterable of indices; the constructor reads it once. Ints are stored in an array, 8 bytes each.

    Raises:
        ValueError: `indices` is a single index or a mask of bools, or the dataset has no samples at 0, 1, 2 and so on.

    >>> list(Subset(["a", "b", "c"], [2, 0]))
    ['c', 'a']
    """

    def __init__(self, dataset: Any, indices: Iterable[Any]) -> None:
        check_no_mask("indices", indices)
        if isinstance(indices, int) or getattr(indices, "ndim", 1) == 0:
            raise bad_argument("indices", indices, "pass a list or an array of ints, e.g. [0, 1]")
        indices = indices if isinstance(indices, (range, np.ndarray)) else list(indices)
        ints = isinstance(indices, range) or are_ints(indices)
        if ints:
            _check_part("dataset", dataset)
        self._dataset = dataset
        # Not a list of ints: reading it changes the reference counts in the ints, so each worker would copy the memory.
        self._indices = np.array(indices, np.int64) if ints and not isinstance(indices, range) else indices

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[self._key(index)]

    @bulk_read(lambda self: hasattr(self._dataset, "__getitems__"))
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        kept = self._indices
        if isinstance(kept, list) or not are_ints(indices):
            return read(self._dataset, list(map(self._key, as_list(indices))))
        rows = checked_indices(indices, len(self))
        return read(self._dataset, kept.start + kept.step * rows if isinstance(kept, range) else kept[rows])

    @computed_lengths
    def lengths(self) -> NDArray[Any]:
        """The number of tokens of each sample, if the dataset has such an attribute."""
        kept = self._indices
        if isinstance(kept, list):
            raise AttributeError("its indices are no ints")
        lengths = known_lengths(self._dataset)
        indices = np.arange(kept.start, kept.stop, kept.step) if isinstance(kept, range) else kept
        return lengths[checked_indices(indices, len(lengths))]

    @property
    def _parts(self) -> tuple[Any, ...]:
        return (self._dataset,)

    @property
    def _identity(self) -> dict[str, Any]:
        kept = self._indices
        if isinstance(kept, range):
            return {"indices": [kept.start, kept.stop, kept.step]}
        return {"indices": checksum_of(kept) if isinstance(kept, list) else checksum_of_array(kept)}

    def slow_in_random_order(self, indices: Any = None) -> str:
        """Says why a random order is slow, and what to do instead; see `gluonloader.declared`."""
        kept = self._indices
        if isinstance(kept, list):  # of keys that are no ints
            return ""
        if isinstance(kept, range) and isinstance(indices, range):
            first, last = (kept.start + kept.step * index for index in (indices.start, indices.stop))
            return slow_in_random_order(self._dataset, range(first, last, kept.step * indices.step))
        rows = slice(None) if indices is None else np.asarray(indices, np.intp)
        return slow_in_random_order(self._dataset, np.asarray(kept, np.intp)[rows])

    def needed_blocks(self, indices: Any) -> list[Any]:
        """The blocks of caches in which samples lie; see `gluonloader.declared`."""
        kept = self._indices
        if isinstance(kept, list):  # of keys that are no ints
            return []
        rows = known_indices(indices, len(self))
        return needed_blocks(self._dataset, kept.start + kept.step * rows if isinstance(kept, range) else kept[rows])

    def __len__(self) -> int:
        return len(self._indices)

    @short_repr
    def __repr__(self) -> str:
        return call(self, f"{len(self):,} of {describe(self._dataset)}")

    def _key(self, index: Any) -> Any:
        key = self._indices[index]
        return int(key) if isinstance(key, np.int64) else key


class ConcatDataset(Dataset):
    """Joins datasets end to end: all samples of the first dataset, then all samples of the second dataset, and so on.

    If a dataset has a bulk read, a batch reads all its samples from that dataset at once; all other datasets are read
    sample by sample.

    Args:
        datasets: at least one object with `__len__` and `__getitem__`; or a list of such objects; or a dict, whose keys
            are their names, for a `MixtureSampler`.

    Attributes:
        datasets: a list of them.
        names: their names; None if they have no names.

    Raises:
        ValueError: no dataset is passed, or a dataset has no length.

    >>> data = ConcatDataset(["a", "b"], ["c"])
    >>> len(data), data[2], data[-3]
    (3, 'c', 'a')
    """

    names: list[str] | None = None

    def __init__(self, *datasets: Any) -> None:
        parts = datasets[0] if len(datasets) == 1 and isinstance(datasets[0], (list, tuple, dict)) else datasets
        if isinstance(parts, dict):
            self.names, parts = list(parts), list(parts.values())
        if not parts:
            raise ValueError("ConcatDataset() needs at least one dataset, e.g. ConcatDataset(first, second)")
        for number, part in enumerate(parts):
            if is_iterable(part) and not hasattr(part, "__next__"):
                right = "it cannot be indexed; join iterable datasets: IterableDataset(first) + IterableDataset(second)"
                raise bad_argument(f"datasets[{number}]", part, right)
        self.datasets: list[Any] = list(parts)
        lengths = lengths_of("datasets", self.datasets)
        for number, part in enumerate(self.datasets):
            _check_part(f"datasets[{number}]", part)
        self._identity = {"lengths": lengths}
        self._ends = list(accumulate(lengths))
        self._bounds = np.array([0, *self._ends])  # for bulk reads

    def __getitem__(self, index: Any) -> Any:
        index = checked_index(index, len(self))
        part = bisect_right(self._ends, index)
        return self.datasets[part][index - self._ends[part - 1] if part else index]

    @bulk_read(lambda self: any(hasattr(part, "__getitems__") for part in self.datasets) and not is_async(self))
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        keys = checked_indices(indices, len(self))
        owners = np.searchsorted(self._bounds[1:], keys, side="right")
        keys = keys - self._bounds[owners]
        if not len(keys) or (owners == owners[0]).all():
            return read(self.datasets[owners[0] if len(keys) else 0], keys)
        order = np.argsort(owners, kind="stable")
        parts = split_where_changed(order, owners)
        return interleave([read(self.datasets[owners[part[0]]], keys[part]) for part in parts], order)

    @computed_lengths
    def lengths(self) -> NDArray[Any]:
        """The number of tokens of each sample, if all datasets have such an attribute."""
        return np.concatenate([known_lengths(part) for part in self.datasets])

    @property
    def _parts(self) -> tuple[Any, ...]:
        return tuple(self.datasets)

    def slow_in_random_order(self, indices: Any = None) -> str:
        """Says why a random order is slow, and what to do instead; see `gluonloader.declared`."""
        indices = range(len(self)) if indices is None else indices
        parts = zip(self.datasets, self._bounds.tolist(), self._ends, strict=False)
        return next(filter(None, [slow_in_random_order(part, between(indices, *ends)) for part, *ends in parts]), "")

    def needed_blocks(self, indices: Any) -> list[Any]:
        """The blocks of caches in which samples lie; see `gluonloader.declared`."""
        rows = known_indices(indices, len(self))
        parts = zip(self.datasets, self._bounds.tolist(), self._ends, strict=False)
        return [needed for part, *ends in parts for needed in needed_blocks(part, between(rows, *ends))]

    def __len__(self) -> int:
        return self._ends[-1]

    @short_repr
    def __repr__(self) -> str:
        parts = map(describe, self.datasets)
        return call(self, *(parts if self.names is None else map("{}={}".format, self.names, parts)))


class Transformed(Dataset):
    """The dataset of `fn(sample)`, or of `fn(*sample)` if the sample is a tuple."""

    def __init__(self, dataset: Any, fn: Callable[..., Any]) -> None:
        self._data, self._fn = dataset, fn

    def __getitem__(self, index: Any) -> Any:
        return self._apply(self._data[index])

    # For arrays in memory a bulk read is not faster, and the error for a dead worker could not name the sample.
    @bulk_read(lambda self: hasattr(self._data, "__getitems__") and not in_memory(self._data))
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        return each(self._apply, read(self._data, indices), indices)

    @computed_lengths
    def lengths(self) -> NDArray[Any]:
        """Not known; this method says so."""
        raise AttributeError("a transform may change them; pass lengths of what it returns to the sampler")

    @property
    def _parts(self) -> tuple[Any, ...]:
        return self._data, self._fn

    def __len__(self) -> int:
        return len(self._data)

    @short_repr
    def __repr__(self) -> str:
        fn = self._fn
        step = f"transform_first({describe(fn.fn)})" if isinstance(fn, _First) else f"transform({describe(fn)})"
        return f"{describe(self._data)}.{step}"

    def _apply(self, sample: Any) -> Any:
        try:
            return self._fn(*sample) if isinstance(sample, tuple) else self._fn(sample)
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:  # fn did not start
                how = "fn(sample); only the fields of a tuple are passed as separate arguments"
                if isinstance(sample, tuple):
                    how = f"fn(*sample) with {len(sample)} arguments; transform_first(fn) passes only the first field"
                add_note(error, f"gluonloader: the sample has type {type(sample).__name__}, so transform calls {how}")
            raise


class AsyncTransformed(Transformed):
    """The dataset of `fn(sample)` or `await fn(sample)`, for samples that are awaited."""

    async def __getitem__(self, index: Any) -> Any:
        return await settled(self._apply(await settled(self._data[index])))

    @bulk_read(lambda self: hasattr(self._data, "__getitems__"))
    async def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        samples = await settled(read(self._data, indices))
        return [await settled(result) for result in each(self._apply, samples, indices)]

    # A class that reads samples in another way does not inherit these.
    _parts, lengths = Transformed._parts, Transformed.lengths


class _BatchTransformed(Transformed):
    """Applies `fn` to all samples of a bulk read of `dataset` at once."""

    def __getitem__(self, index: Any) -> Any:
        return self.__getitems__([index])[0]

    @bulk_read(lambda self: True)
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[Any]:
        samples: Sequence[Any] = self._fn(read(self._data, indices))
        name = getattr(self._fn, "__qualname__", self._fn)
        if columns := columns_in(samples):
            raise TypeError(f"the batched transform {name} returned {columns}")
        if len(samples) != len(indices):
            what = f"the batched transform {name} got {len(indices)} samples and returned {len(samples)}"
            raise ValueError(f"{what}; return one sample for each, in the same order")
        return samples

    @short_repr
    def __repr__(self) -> str:
        return f"{describe(self._data)}.transform({describe(self._fn)}, batched=True)"

    # A class that reads samples in another way does not inherit these.
    _parts, lengths = Transformed._parts, Transformed.lengths


class _First:
    """Applies `fn` to the first field. It is a class and not a closure, so that it can be pickled."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.fn = fn

    def __call__(self, first: Any, *rest: Any) -> Any:
        return (self.fn(first), *rest) if rest else self.fn(first)

    @property
    def _parts(self) -> tuple[Any, ...]:
        return (self.fn,)


_PASS_ON = (ConcatDataset, SimpleDataset, Subset)  # their samples are those of their parts, awaited or not


def check_awaited(dataset: Any) -> None:
    """Raises a ValueError if a dataset of ours contains an async dataset whose samples it does not await."""
    methods = (getattr(type(dataset), name, None) for name in ("__getitem__", "__getitems__"))
    if not is_async(dataset) or any(map(inspect.iscoroutinefunction, methods)):
        return
    if not isinstance(dataset, _PASS_ON):
        inner = next(type(part).__name__ for part in parts_of(dataset) or () if is_async(part))
        outer = type(dataset).__name__
        raise ValueError(
            f"dataset: {outer} contains {inner}, whose samples are awaited, but {outer} does not await them; define a "
            f"class with an `async def __getitem__` that awaits the samples of {inner}, or use transform or Subset"
        )
    for part in parts_of(dataset) or ():
        check_awaited(part)


def _check_part(name: str, dataset: Any) -> None:
    """Checks that the samples of a dataset are at the indices 0, 1, 2, ..., or that it is a mapping with other keys."""
    if not isinstance(dataset, Mapping):
        check_indexed(name, dataset)
