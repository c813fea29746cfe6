"""Samplers by length, and parts of a dataset: GluonNLP's names and meaning, with a seed in place of a global generator.

Samples of like length make batches with little padding:

    SortedSampler, SplitSampler                   indices
    FixedBucketSampler, SortedBucketSampler       lists of indices: give them to a loader as `batch_sampler`
    ConstWidthBucket, LinearWidthBucket, ExpWidthBucket
                                                  where FixedBucketSampler ends one bucket and begins the next
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_flags, check_int
from ..errors import bad_argument
from ..randomness import batch_seed
from .base import OrderedSampler, SeededSampler, Sliceable, digest

__all__ = [
    "ConstWidthBucket",
    "ExpWidthBucket",
    "FixedBucketSampler",
    "LinearWidthBucket",
    "SortedBucketSampler",
    "SortedSampler",
    "SplitSampler",
]

Integers = NDArray[np.int64]
Key = Any  # an int, or a tuple of ints: the largest length in a bucket, or the largest along each axis
BucketScheme = Callable[[Key, Key, int], Sequence[Key]]


class _WidthBucket:
    """Base of bucket schemes: call one for the keys, that is the largest length in each bucket, in rising order."""

    def __call__(self, max_lengths: Key, min_lengths: Key, num_buckets: int) -> list[Key]:
        check_int("num_buckets", num_buckets, 1)
        if not isinstance(max_lengths, (tuple, list)):
            return self._keys(max_lengths, min_lengths, num_buckets)
        ranges = zip(max_lengths, min_lengths, strict=True)
        return list(zip(*[self._keys(most, least, num_buckets) for most, least in ranges], strict=True))

    def _keys(self, most: int, least: int, number: int) -> list[int]:
        raise NotImplementedError


class ConstWidthBucket(_WidthBucket):
    """Buckets of one width, laid from the longest length down.

    >>> ConstWidthBucket()(max_lengths=100, min_lengths=1, num_buckets=5)
    [20, 40, 60, 80, 100]
    """

    def _keys(self, most: int, least: int, number: int) -> list[int]:
        width = max((most - least + 1) // number, 1)
        return [max(most - i * width, least) for i in reversed(range(number))]


class LinearWidthBucket(_WidthBucket):
    """Buckets whose width grows by the same amount from each to the next.

    >>> LinearWidthBucket()(max_lengths=100, min_lengths=1, num_buckets=5)
    [8, 22, 42, 68, 100]
    """

    def _keys(self, most: int, least: int, number: int) -> list[int]:
        # The i-th width is growth * i + 1. Where the range is shorter than that, widths shrink; keys stay in it.
        growth = 2 * (most - least - number) / (number * (number + 1))
        return [min(round(least + i * (i + 1) / 2 * growth + i), most) for i in range(1, number + 1)]


class ExpWidthBucket(_WidthBucket):
    """Buckets whose width grows by the same factor from each to the next.

    Args:
        bucket_len_step: the factor, more than 0.

    >>> ExpWidthBucket(bucket_len_step=2)(max_lengths=100, min_lengths=1, num_buckets=5)
    [4, 11, 23, 49, 100]
    """

    def __init__(self, bucket_len_step: float = 1.1) -> None:
        _check_number("bucket_len_step", bucket_len_step, math.ulp(0), "give a factor for the widths, a number > 0")
        self._step = float(bucket_len_step)

    def _keys(self, most: int, least: int, number: int) -> list[int]:
        widths = np.power(self._step, np.arange(number))
        ends = least + (most - least) * np.cumsum(widths) / widths.sum()
        return [round(end) for end in ends.tolist()]


class SortedSampler(OrderedSampler):
    """Indices in the order of their keys, equal ones as they come.

    Args:
        sort_keys: a key for each sample, e.g. its length; anything that can be compared.
        reverse: the largest first.

    >>> list(SortedSampler([3, 1, 2]))
    [0, 2, 1]
    """

    def __init__(self, sort_keys: Sequence[Any], reverse: bool = True) -> None:
        check_flags(reverse=reverse)
        _check_keys(sort_keys)
        self._indices = _sorted(range(len(sort_keys)), sort_keys, reverse)

    def _order(self) -> Sliceable:
        return self._indices

    def __len__(self) -> int:
        return len(self._indices)


class FixedBucketSampler(SeededSampler):
    """Batches of samples of like length: each sample goes to the smallest bucket that holds it, batches come from one.

    The bucket of the longest comes first; `shuffle` mixes samples in their bucket, and the batches of all buckets.

    Args:
        lengths: the length of each sample, an int >= 0; or a tuple of several, e.g. of source and target.
        batch_size: samples in a batch. The last batch of a bucket may have fewer.
        num_buckets: how many buckets to lay out. Fewer are used where some stay empty or are the same.
        bucket_keys: the largest length in each bucket, as ints or tuples like `lengths`; None: `bucket_scheme` says.
        ratio: enlarges the batches of a bucket with key K to `ratio * batch_size * (largest key / K)` samples, if
            that is more than `batch_size`. Of tuples the sum counts.
        shuffle: a new order each epoch, a function of (seed, epoch).
        use_average_length: batches have about `batch_size` elements, instead of samples: in each bucket `batch_size`
            by (mean + standard deviation of its lengths) samples.
        bucket_scheme: what makes keys of (max_lengths, min_lengths, num_buckets); None is `ConstWidthBucket()`.
        seed: an int; None draws one from NumPy's global generator now.

    Raises:
        ValueError: a wrong argument; a sample that is longer than every bucket.

    >>> sampler = FixedBucketSampler([1, 5, 3, 9, 10, 2], batch_size=2, num_buckets=2)
    >>> list(sampler)
    [[3, 4], [0, 1], [2, 5]]
    >>> print(sampler.stats())
    FixedBucketSampler:
      sample_num=6, batch_num=3
      key=[5, 10]
      cnt=[4, 2]
      batch_size=[2, 2]
    """

    _ahead = 64  # batches

    def __init__(
        self,
        lengths: Sequence[Key],
        batch_size: int,
        num_buckets: int = 10,
        bucket_keys: Sequence[Key] | None = None,
        ratio: float = 0,
        shuffle: bool = False,
        use_average_length: bool = False,
        bucket_scheme: BucketScheme | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        check_flags(shuffle=shuffle, use_average_length=use_average_length)
        super().__init__(seed, bool(shuffle))
        self._shuffle, batch_size = bool(shuffle), check_int("batch_size", batch_size, 1)
        _check_number("ratio", ratio, 0, "give by how much to enlarge batches of short samples, a number >= 0")
        if ratio and use_average_length:
            raise bad_argument("ratio", ratio, "use_average_length=True sizes the batches; leave one of them out")
        table = _as_lengths("lengths", lengths)
        if bucket_keys is None:
            bucket_keys = _lay_out(table, num_buckets, bucket_scheme)
        keys = np.unique(_as_lengths("bucket_keys", bucket_keys), axis=0)
        self._keys, self._buckets = _fill(table, keys)
        if use_average_length:
            spans = [float(table[bucket].mean() + table[bucket].std()) for bucket in self._buckets]
            self._sizes = [max(int(batch_size / max(span, 1)), 1) for span in spans]
        else:
            spans = [float(max(np.sum(key), 1)) for key in self._keys]
            self._sizes = [max(int(max(spans) / span * ratio * batch_size), batch_size) for span in spans]

    def _order(self) -> Sliceable:
        if not self._shuffle:
            return _FixedBatches(self._buckets, self._sizes, self._places())
        rng = np.random.default_rng(self._next_key())
        buckets = [rng.permutation(bucket) for bucket in self._buckets]
        return _FixedBatches(buckets, self._sizes, rng.permutation(np.array(self._places())).tolist())

    def _places(self) -> list[tuple[int, int]]:
        """Of each batch its bucket and where it begins there, the bucket of the longest first."""
        return [
            (number, start)
            for number in reversed(range(len(self._buckets)))
            for start in range(0, len(self._buckets[number]), self._sizes[number])
        ]

    def __len__(self) -> int:
        return sum(-(-len(bucket) // size) for bucket, size in zip(self._buckets, self._sizes, strict=True))

    def pass_state(self) -> dict[str, Any]:
        cut = [*self._sizes, *map(len, self._buckets)]
        return {**super().pass_state(), "shuffle": self._shuffle, "buckets": digest(np.array(cut))}

    def stats(self) -> str:
        """The buckets as text: of each its key, its number of samples and the size of its batches."""
        counts = list(map(len, self._buckets))
        return (
            f"FixedBucketSampler:\n  sample_num={sum(counts)}, batch_num={len(self)}\n  key={self._keys}\n"
            f"  cnt={counts}\n  batch_size={self._sizes}"
        )


class _FixedBatches:
    """An order of batches: of each its bucket, and where it begins there."""

    def __init__(self, buckets: list[Integers], sizes: list[int], places: list[tuple[int, int]]) -> None:
        self._buckets, self._sizes, self._places = buckets, sizes, places

    def __getitem__(self, part: slice) -> list[list[int]]:
        return [self._buckets[number][at : at + self._sizes[number]].tolist() for number, at in self._places[part]]


class SortedBucketSampler(SeededSampler):
    """Batches from buckets of `mult * batch_size` samples: each bucket is sorted, then cut into batches.

    Args:
        sort_keys: a key for each sample, e.g. its length; anything that can be compared.
        batch_size: samples in a batch. The last batch of a bucket may have fewer.
        mult: how many batches make a bucket, a number >= 1.
        reverse: the largest first.
        shuffle: buckets are made of shuffled samples, and the batches of a bucket come in any order; new each epoch,
            a function of (seed, epoch).
        seed: an int; None draws one from NumPy's global generator now.

    >>> list(SortedBucketSampler([5, 3, 8, 1, 9, 2], batch_size=2, mult=2))
    [[2, 0], [1, 3], [4, 5]]
    """

    _ahead = 64  # batches

    def __init__(
        self,
        sort_keys: Sequence[Any],
        batch_size: int,
        mult: float = 100,
        reverse: bool = True,
        shuffle: bool = False,
        *,
        seed: int | None = None,
    ) -> None:
        check_flags(reverse=reverse, shuffle=shuffle)
        super().__init__(seed, bool(shuffle))
        _check_number("mult", mult, 1, "give how many batches make a bucket, a number >= 1")
        _check_keys(sort_keys)
        self._keys, self._size = sort_keys, check_int("batch_size", batch_size, 1)
        self._bucket = int(mult * self._size)
        self._reverse, self._shuffle = bool(reverse), bool(shuffle)

    def _order(self) -> Sliceable:
        rng = np.random.default_rng(self._next_key()) if self._shuffle else None
        order = np.arange(len(self._keys)) if rng is None else rng.permutation(len(self._keys))
        firsts = range(0, len(order), self._bucket)
        starts = [np.arange(0, min(self._bucket, len(order) - first), self._size) for first in firsts]
        mixed = starts if rng is None else [rng.permutation(begins) for begins in starts]
        places = [(first, start) for first, begins in zip(firsts, mixed, strict=True) for start in begins.tolist()]
        return _SortedBatches(self._sorted_bucket, order, places, self._size)

    def _sorted_bucket(self, indices: Integers) -> list[int]:
        return _sorted(indices[: self._bucket].tolist(), self._keys, self._reverse)

    def __len__(self) -> int:
        whole, rest = divmod(len(self._keys), self._bucket)
        return whole * -(-self._bucket // self._size) + -(-rest // self._size)

    def pass_state(self) -> dict[str, Any]:
        about = {"batch_size": self._size, "bucket": self._bucket, "samples": len(self._keys)}
        return {**super().pass_state(), **about, "shuffle": self._shuffle}


class _SortedBatches:
    """An order of batches: of each where its bucket begins, and where it begins in that; sorted when needed."""

    def __init__(
        self, sort: Callable[[Integers], list[int]], order: Integers, places: list[tuple[int, int]], size: int
    ) -> None:
        self._sort, self._order, self._places, self._size = sort, order, places, size
        self._first = -1  # the bucket that was sorted last
        self._bucket: list[int] = []

    def __getitem__(self, part: slice) -> list[list[int]]:
        return [self._batch(*place) for place in self._places[part]]

    def _batch(self, first: int, start: int) -> list[int]:
        if first != self._first:
            self._first, self._bucket = first, self._sort(self._order[first:])
        return self._bucket[start : start + self._size]


class SplitSampler(SeededSampler):
    """Indices of one of `num_parts` parts of a dataset, one for each process or machine.

    Part i is always the same range of indices, and parts differ in size by one at most. So no two parts share a
    sample, whatever their seeds: several processes need not agree on one, and with `seed=None` their orders differ.

    Args:
        length: number of samples in the whole dataset.
        num_parts: number of parts.
        part_index: which one to give, from 0.
        even_size: a part that is one short gets a sample of another part, drawn anew each time.
        repeat: how often to give each index in an epoch; the part comes as a whole each time.
        shuffle: a new order each time, a function of (seed, epoch): all parts are read in the order of one
            permutation of the whole dataset.
        seed: an int; None draws one from NumPy's global generator now.

    >>> [list(SplitSampler(7, 3, part, shuffle=False)) for part in range(3)]
    [[0, 1, 2], [3, 4], [5, 6]]
    """

    def __init__(
        self,
        length: int,
        num_parts: int = 1,
        part_index: int = 0,
        even_size: bool = False,
        repeat: int = 1,
        shuffle: bool = True,
        *,
        seed: int | None = None,
    ) -> None:
        check_flags(even_size=even_size, shuffle=shuffle)
        self._length, parts = check_int("length", length), check_int("num_parts", num_parts, 1)
        if check_int("part_index", part_index) >= parts:
            raise bad_argument("part_index", part_index, f"give an int from 0 to num_parts - 1 ({parts - 1})")
        self._repeat, self._shuffle = check_int("repeat", repeat, 1), bool(shuffle)
        small, larger = divmod(self._length, parts)
        self._start = part_index * small + min(part_index, larger)
        self._stop = self._start + small + (part_index < larger)
        self._size = -(-self._length // parts) if even_size else self._stop - self._start
        super().__init__(seed, self._shuffle or self._size > self._stop - self._start)

    def _order(self) -> Sliceable:
        epoch = self._next_epoch()
        return _Repeated(lambda number: self._once(epoch, number), self._size, self._repeat)

    def _once(self, epoch: int, number: int) -> Integers:
        """The part as it comes at this repetition."""
        indices = np.arange(self._start, self._stop)
        if self._shuffle or self._size > len(indices):
            order = np.random.default_rng(batch_seed(self._seed, epoch, number)).permutation(self._length)
            own = (self._start <= order) & (order < self._stop)
            indices = order[own] if self._shuffle else indices
            indices = np.concatenate([indices, order[~own][: self._size - len(indices)]])
        return indices

    def __len__(self) -> int:
        return self._size * self._repeat

    def pass_state(self) -> dict[str, Any]:
        about = {"samples": self._length, "first": self._start, "shuffle": self._shuffle, "repeat": self._repeat}
        return {**super().pass_state(), **about}


class _Repeated:
    """The order of `repeat` arrays of `size` indices, one after the other, each made when it is needed."""

    def __init__(self, make: Callable[[int], Integers], size: int, repeat: int) -> None:
        self._make, self._size, self._length = make, size, size * repeat
        self._number, self._indices = -1, np.arange(0)

    def __getitem__(self, part: slice) -> Integers:
        start, stop, step = part.indices(self._length)
        pieces = [np.arange(0)]
        for number in range(start // self._size, -(-stop // self._size)) if start < stop else ():
            if number != self._number:
                self._number, self._indices = number, self._make(number)
            begin = number * self._size
            pieces.append(self._indices[max(start - begin, 0) : stop - begin])
        whole: Integers = np.concatenate(pieces)
        return whole[::step]


def _sorted(indices: Any, keys: Sequence[Any], reverse: bool) -> list[int]:
    return sorted(indices, key=keys.__getitem__, reverse=bool(reverse))


def _check_keys(sort_keys: object) -> None:
    if not hasattr(sort_keys, "__len__") or not hasattr(sort_keys, "__getitem__"):
        raise bad_argument("sort_keys", sort_keys, "give a list or an array, one key for each sample")


def _check_number(name: str, value: Any, least: float, right: str) -> None:
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not number or not least <= value < math.inf:
        raise bad_argument(name, value, right)


def _as_lengths(name: str, lengths: Sequence[Key]) -> Integers:
    """Ints as an array of shape (N,), tuples of ints as one of shape (N, axes)."""
    right = f"{name}: give ints >= 0, at least one, or tuples of ints, all of one size"
    try:
        table = np.asarray(lengths, np.int64)  # first, since without a dtype a ragged list is a warning in NumPy 1.23
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{right} ({error})") from None
    kind = np.asarray(lengths).dtype
    if not table.size or table.ndim not in (1, 2) or kind.kind not in "iu":
        raise ValueError(f"{right}, not shape {table.shape} and dtype {kind}")
    if table.min() < 0:
        position = np.argwhere(table < 0)[0, 0]
        raise bad_argument(f"{name}[{position}]", _plain(table[position]), "give a length >= 0")
    return table


def _plain(key: Any) -> Key:
    return tuple(key.tolist()) if key.ndim else int(key)


def _lay_out(table: Integers, num_buckets: int, scheme: BucketScheme | None) -> Sequence[Key]:
    if scheme is not None and not callable(scheme):
        right = "give ConstWidthBucket(), LinearWidthBucket(), ExpWidthBucket() or None; for num_shards, see Split"
        raise bad_argument("bucket_scheme", scheme, right)
    most, least = _plain(table.max(axis=0)), _plain(table.min(axis=0))
    return (scheme or ConstWidthBucket())(most, least, check_int("num_buckets", num_buckets, 1))


def _fill(table: Integers, keys: Integers) -> tuple[list[Key], list[Integers]]:
    """The keys of the buckets that are not empty, and the samples in each, in their order."""
    if keys.shape[1:] != table.shape[1:]:
        raise bad_argument("bucket_keys", _plain(keys[0]), f"give keys like the lengths, e.g. {_plain(table[0])}")
    lengths, limits = table.reshape(len(table), -1), keys.reshape(len(keys), -1)
    bucket_of = np.full(len(table), -1)
    # The largest first, so that each sample ends up in the smallest that holds it.
    for number in np.argsort(limits.sum(axis=1), kind="stable")[::-1]:
        bucket_of[(lengths <= limits[number]).all(axis=1)] = number
    position = int(np.argmin(bucket_of))
    if bucket_of[position] < 0:
        right = f"no bucket holds it, the last of bucket_keys is {_plain(keys[-1])}; give a larger one, too"
        raise bad_argument(f"lengths[{position}]", _plain(table[position]), right)
    used, counts = np.unique(bucket_of, return_counts=True)
    samples = np.split(np.argsort(bucket_of, kind="stable"), np.cumsum(counts)[:-1])
    return [_plain(key) for key in keys[used]], samples
