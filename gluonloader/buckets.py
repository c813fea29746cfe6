"""The samplers of GluonNLP. Most put samples of similar length together, so that batches need little padding.

    FixedBucketSampler, SortedBucketSampler       lists of indices: pass them to a loader as `batch_sampler`
    ConstWidthBucket, LinearWidthBucket, ExpWidthBucket
                                                  choose the largest length in each bucket
    SortedSampler                                 indices, those of the longest samples first
    SplitSampler                                  indices of one part of a dataset

The classes have the names and meaning of those in GluonNLP, but take a seed instead of using the global generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import index
from typing import Any

import numpy as np

from .checks import check_flags, check_int, check_number
from .describe import call, counted, short_repr
from .errors import bad_argument
from .indices import checksum_of, checksum_of_array
from .randomness import batch_seed
from .sampler.base import OrderedSampler, SeededSampler, chained, check_ints
from .sampler.passes import Computed, Integers, Order, lazily

__all__ = [
    "ConstWidthBucket", "ExpWidthBucket", "FixedBucketSampler", "LinearWidthBucket", "SortedBucketSampler",
    "SortedSampler", "SplitSampler",
]  # fmt: skip

BucketKey = Any  # the largest length in a bucket: an int, or a tuple with one int per axis
BucketScheme = Callable[[BucketKey, BucketKey, int], Sequence[BucketKey]]


class _WidthBucket:
    """Base class of bucket schemes: calling a scheme returns the bucket keys, in rising order.

    A key is an int if the length of a sample is an int, and a tuple of ints if it is a tuple, a list or an array.
    """

    def __call__(self, max_lengths: BucketKey, min_lengths: BucketKey, num_buckets: int) -> list[BucketKey]:
        check_int("num_buckets", num_buckets, 1)
        if not np.ndim(max_lengths):
            return self._keys(index(max_lengths), index(min_lengths), num_buckets)
        ranges = zip(max_lengths, min_lengths, strict=True)  # one range for each axis
        return list(zip(*[self._keys(index(most), index(least), num_buckets) for most, least in ranges], strict=True))

    def _keys(self, most: int, least: int, number: int) -> list[int]:
        raise NotImplementedError


class ConstWidthBucket(_WidthBucket):
    """A bucket scheme in which all buckets have the same width, counted down from the longest length.

    >>> ConstWidthBucket()(max_lengths=100, min_lengths=1, num_buckets=5)
    [20, 40, 60, 80, 100]
    """

    def _keys(self, most: int, least: int, number: int) -> list[int]:
        width = max((most - least + 1) // number, 1)
        return [max(most - i * width, least) for i in reversed(range(number))]


class LinearWidthBucket(_WidthBucket):
    """A bucket scheme in which the width of the buckets grows by the same amount from each bucket to the next.

    >>> LinearWidthBucket()(max_lengths=100, min_lengths=1, num_buckets=5)
    [8, 22, 42, 68, 100]
    """

    def _keys(self, most: int, least: int, number: int) -> list[int]:
        # Bucket i is growth * i + 1 wide. With fewer lengths than buckets, growth is negative; no key exceeds `most`.
        growth = 2 * (most - least - number) / (number * (number + 1))
        return [min(round(least + i * (i + 1) / 2 * growth + i), most) for i in range(1, number + 1)]


class ExpWidthBucket(_WidthBucket):
    """A bucket scheme in which the width of the buckets grows by the same factor from each bucket to the next.

    Args:
        bucket_len_step: the factor, more than 0.

    >>> ExpWidthBucket(bucket_len_step=2)(max_lengths=100, min_lengths=1, num_buckets=5)
    [4, 11, 23, 49, 100]
    """

    def __init__(self, bucket_len_step: float = 1.1) -> None:
        check_number("bucket_len_step", bucket_len_step, math.ulp(0), "must be a number > 0")
        self._step = float(bucket_len_step)

    def _keys(self, most: int, least: int, number: int) -> list[int]:
        widths = np.power(self._step, np.arange(number))
        ends = least + (most - least) * np.cumsum(widths) / widths.sum()
        return [round(end) for end in ends.tolist()]


class SortedSampler(OrderedSampler):
    """Yields the indices sorted by a key of each sample; indices with equal keys keep their order.

    Args:
        sort_keys: a key for each sample, e.g. its length; anything that can be compared.
        reverse: the largest first.

    >>> list(SortedSampler([3, 1, 2]))
    [0, 2, 1]
    """

    def __init__(self, sort_keys: Sequence[Any], reverse: bool = True) -> None:
        check_flags(reverse=reverse)
        keys = _checked_keys(sort_keys)
        self._indices = sorted(range(len(keys)), key=keys.__getitem__, reverse=bool(reverse))


class FixedBucketSampler(SeededSampler):
    """Yields batches of samples of similar length: each sample goes to the smallest bucket that it fits in.

    All samples of a batch come from the same bucket. The bucket with the longest samples comes first. With `shuffle`,
    the samples in each bucket are shuffled, and then the batches of all buckets.

    Args:
        lengths: the length of each sample, an int >= 0; or a tuple of lengths, e.g. of source and target.
        batch_size: number of samples in a batch. The last batch of a bucket may have fewer.
        num_buckets: number of buckets. Empty buckets, and buckets with equal keys, are dropped.
        bucket_keys: the largest length in each bucket, as ints or tuples like `lengths`; None lets `bucket_scheme`
            choose them.
        ratio: enlarges the batches of a bucket with key K to `ratio * batch_size * (largest key / K)` samples, if that
            is more than `batch_size`. If a key is a tuple, its sum is used.
        shuffle: use a new random order each epoch, which depends only on (seed, epoch).
        use_average_length: `batch_size` is about the number of elements in a batch, not of samples: a bucket's batches
            have `batch_size` / (mean + standard deviation of its lengths) samples, and `ratio` is ignored.
        bucket_scheme: a function of (max_lengths, min_lengths, num_buckets) that returns bucket keys; None means
            `ConstWidthBucket()`.
        seed: an int; None draws one from NumPy's global generator now.

    Raises:
        ValueError: an argument is wrong, or a sample is too long for all buckets.

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

    _read_ahead = 64  # batches
    _yields_batches = True

    def __init__(
        self,
        lengths: Sequence[BucketKey],
        batch_size: int,
        num_buckets: int = 10,
        bucket_keys: Sequence[BucketKey] | None = None,
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
        check_number("ratio", ratio, 0, "must be a number >= 0")
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
        self._starts = [  # of each batch: the number of its bucket, and the offset in it; the longest samples first
            (number, start)
            for number in reversed(range(len(self._buckets)))
            for start in range(0, len(self._buckets[number]), self._sizes[number])
        ]
        cut = [*self._sizes, *map(len, self._buckets)]
        content = np.concatenate([np.array(cut), *self._buckets])
        self._identity = {"shuffle": self._shuffle, "buckets": checksum_of_array(content)}

    def order(self, epoch: int) -> Order:
        return lazily(partial(self._batches, self.epoch_seed(epoch)))

    def _batches(self, seed: int) -> Order:
        buckets, sizes, starts = self._buckets, self._sizes, self._starts
        if self._shuffle:
            rng = np.random.default_rng(seed)
            buckets = [rng.permutation(bucket) for bucket in buckets]
            starts = rng.permutation(np.array(starts)).tolist()
        return Computed(lambda part: [buckets[i][start : start + sizes[i]].tolist() for i, start in starts[part]])

    def __len__(self) -> int:
        return len(self._starts)

    @short_repr
    def __repr__(self) -> str:
        return call(self, counted(len(self), "batch", "batches"))

    def stats(self) -> str:
        """Returns a text that lists the key, the number of samples and the batch size of each bucket."""
        counts = list(map(len, self._buckets))
        return (
            f"FixedBucketSampler:\n  sample_num={sum(counts)}, batch_num={len(self)}\n  key={self._keys}\n"
            f"  cnt={counts}\n  batch_size={self._sizes}"
        )


class SortedBucketSampler(SeededSampler):
    """Yields batches from buckets of `mult * batch_size` samples: each bucket is sorted, then cut into batches.

    Args:
        sort_keys: a key for each sample, e.g. its length; anything that can be compared.
        batch_size: number of samples in a batch. The last batch of a bucket may have fewer.
        mult: number of batches in a bucket, at least 1; need not be an int.
        reverse: the largest first.
        shuffle: fill the buckets with shuffled samples, and shuffle the batches of each bucket. The order of each epoch
            is new, and depends only on (seed, epoch).
        seed: an int; None draws one from NumPy's global generator now.

    >>> list(SortedBucketSampler([5, 3, 8, 1, 9, 2], batch_size=2, mult=2))
    [[2, 0], [1, 3], [4, 5]]
    """

    _read_ahead = 64  # batches
    _yields_batches = True

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
        check_number("mult", mult, 1, "must be a number >= 1, the number of batches in a bucket")
        keys = _checked_keys(sort_keys)
        self._keys, self._size = keys, check_int("batch_size", batch_size, 1)
        self._bucket = int(mult * self._size)
        self._reverse, self._shuffle = bool(reverse), bool(shuffle)
        about = {"batch_size": self._size, "bucket": self._bucket, "samples": len(keys)}
        self._identity = {**about, "keys": _content_of(keys), "reverse": self._reverse, "shuffle": self._shuffle}

    def order(self, epoch: int) -> Order:
        return lazily(partial(self._batches, self.epoch_seed(epoch)))

    def _batches(self, seed: int) -> Order:
        rng = np.random.default_rng(seed) if self._shuffle else None
        order = np.arange(len(self._keys)) if rng is None else rng.permutation(len(self._keys))
        batches: list[tuple[int, int]] = []
        for bucket in range(0, len(order), self._bucket):
            starts = np.arange(0, min(self._bucket, len(order) - bucket), self._size)
            batches += [(bucket, start) for start in (starts if rng is None else rng.permutation(starts)).tolist()]

        @lru_cache(maxsize=1)
        def sorted_bucket(bucket: int) -> list[int]:
            indices = order[bucket : bucket + self._bucket].tolist()
            return sorted(indices, key=self._keys.__getitem__, reverse=self._reverse)

        return Computed(lambda part: [sorted_bucket(i)[start : start + self._size] for i, start in batches[part]])

    def __len__(self) -> int:
        whole, rest = divmod(len(self._keys), self._bucket)
        return whole * -(-self._bucket // self._size) + -(-rest // self._size)

    __repr__ = FixedBucketSampler.__repr__


def _checked_keys(sort_keys: Any) -> Sequence[Any]:
    if not hasattr(sort_keys, "__len__") or not hasattr(sort_keys, "__getitem__"):
        raise bad_argument("sort_keys", sort_keys, "pass a list or an array with one key for each sample")
    keys: Sequence[Any] = sort_keys.to_numpy() if hasattr(sort_keys, "iloc") else sort_keys
    return keys  # pandas finds elements by their labels


def _content_of(keys: Sequence[Any]) -> int | None:
    """A checksum of keys, which may be numbers, texts or tuples of any length; None for other keys."""
    are_numbers = isinstance(keys, np.ndarray) or set(map(type, keys)) <= {int, float}
    array = np.asarray(keys) if are_numbers else np.empty(0, object)
    return checksum_of(list(keys)) if array.dtype.hasobject else checksum_of_array(array)


def _as_lengths(name: str, lengths: Sequence[BucketKey]) -> Integers:
    """Ints as an array of shape (N,), or tuples of ints as an array of shape (N, axes)."""
    right = "pass at least one int >= 0, or at least one tuple of ints, all tuples of equal length"
    table = check_ints(name, lengths, right, axes=(1, 2))
    if not table.size:
        raise ValueError(f"{name}: {right}")
    if table.min() < 0:
        index = np.argwhere(table < 0)[0, 0]
        raise bad_argument(f"{name}[{index}]", _plain(table[index]), "a length must be >= 0")
    return table


def _plain(key: Any) -> BucketKey:
    return tuple(key.tolist()) if key.ndim else int(key)


def _lay_out(table: Integers, num_buckets: int, scheme: BucketScheme | None) -> Sequence[BucketKey]:
    if scheme is not None and not callable(scheme):
        right = "must be ConstWidthBucket(), LinearWidthBucket(), ExpWidthBucket() or None; for num_shards, use Split"
        raise bad_argument("bucket_scheme", scheme, right)
    most, least = _plain(table.max(axis=0)), _plain(table.min(axis=0))
    return (scheme or ConstWidthBucket())(most, least, check_int("num_buckets", num_buckets, 1))


def _fill(table: Integers, keys: Integers) -> tuple[list[BucketKey], list[Integers]]:
    """The keys of the buckets that are not empty, and the indices of the samples in each, in order."""
    if keys.shape[1:] != table.shape[1:]:
        raise bad_argument("bucket_keys", _plain(keys[0]), f"must be like the lengths, e.g. {_plain(table[0])}")
    lengths, limits = table.reshape(len(table), -1), keys.reshape(len(keys), -1)
    bucket_of = np.full(len(table), -1)
    # From the largest bucket down, so that each sample ends up in the smallest bucket that holds it.
    for number in np.argsort(limits.sum(axis=1), kind="stable")[::-1]:
        bucket_of[(lengths <= limits[number]).all(axis=1)] = number
    index = int(np.argmin(bucket_of))
    if bucket_of[index] < 0:
        right = f"no bucket is large enough: the last key is {_plain(keys[-1])}; add a larger key to bucket_keys"
        raise bad_argument(f"lengths[{index}]", _plain(table[index]), right)
    used, counts = np.unique(bucket_of, return_counts=True)
    samples = np.split(np.argsort(bucket_of, kind="stable"), np.cumsum(counts)[:-1])
    return [_plain(key) for key in keys[used]], samples


class SplitSampler(SeededSampler):
    """Yields the indices of one of `num_parts` parts of a dataset, one part for each process or machine.

    Part i is always the same range of indices, and the sizes of parts differ by at most one. No two parts share a
    sample, so the processes need not use the same seed; with `seed=None` their orders differ.

    Args:
        length: number of samples in the whole dataset.
        num_parts: number of parts.
        part_index: number of this part, from 0.
        even_size: if a part is one sample shorter than others, add a random sample of another part in each repetition.
        repeat: how often an epoch repeats the part.
        shuffle: use a new random order in each repetition, which depends only on (seed, epoch). With the same seed, all
            parts follow the same permutation of the whole dataset.
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
        self.num_parts = parts
        if check_int("part_index", part_index) >= parts:
            raise bad_argument("part_index", part_index, f"must be an int from 0 to num_parts - 1 ({parts - 1})")
        self._repeat, self._shuffle = check_int("repeat", repeat, 1), bool(shuffle)
        small, larger = divmod(self._length, parts)
        self._start = part_index * small + min(part_index, larger)
        self._stop = self._start + small + (part_index < larger)
        self._size = -(-self._length // parts) if even_size else self._stop - self._start
        about = {"samples": self._length, "first": self._start, "end": self._stop}
        self._identity = {**about, "shuffle": self._shuffle, "repeat": self._repeat}
        super().__init__(seed, self._shuffle or self._size > self._stop - self._start)

    @property
    def random_over(self) -> Any:
        return range(self._start, self._stop) if self._shuffle else None

    def order(self, epoch: int) -> Order:
        ends = range(self._size, len(self) + 1, max(self._size, 1))
        return chained(len(self), ends, lambda number: self._once(epoch, number))

    def _once(self, epoch: int, number: int) -> Integers:
        indices = np.arange(self._start, self._stop)
        if self._shuffle or self._size > len(indices):
            order = np.random.default_rng(batch_seed(self.seed, epoch, number)).permutation(self._length)
            own = (self._start <= order) & (order < self._stop)
            indices = order[own] if self._shuffle else indices
            indices = np.concatenate([indices, order[~own][: self._size - len(indices)]])
        return indices

    def __len__(self) -> int:
        return self._size * self._repeat
