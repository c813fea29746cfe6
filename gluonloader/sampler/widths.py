"""Bucket schemes with GluonNLP's names: they choose the largest length in each bucket of a `FixedBucketSampler`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..checks import check_int
from ..errors import bad_argument

__all__ = ["BucketKey", "ConstWidthBucket", "ExpWidthBucket", "LinearWidthBucket", "check_number"]

BucketKey = Any  # the largest length in a bucket, an int; or the largest along each axis, a tuple of ints


def check_number(name: str, value: Any, least: float, right: str) -> None:
    """Checks an argument that is a finite number, at least `least`."""
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not number or not least <= value < math.inf:
        raise bad_argument(name, value, right)


class _WidthBucket:
    """Base of bucket schemes: a call returns the bucket keys, in rising order."""

    def __call__(self, max_lengths: BucketKey, min_lengths: BucketKey, num_buckets: int) -> list[BucketKey]:
        check_int("num_buckets", num_buckets, 1)
        if not isinstance(max_lengths, (tuple, list)):
            return self._keys(max_lengths, min_lengths, num_buckets)
        ranges = zip(max_lengths, min_lengths, strict=True)
        return list(zip(*[self._keys(most, least, num_buckets) for most, least in ranges], strict=True))

    def _keys(self, most: int, least: int, number: int) -> list[int]:
        raise NotImplementedError


class ConstWidthBucket(_WidthBucket):
    """Buckets of the same width, counted down from the longest length.

    >>> ConstWidthBucket()(max_lengths=100, min_lengths=1, num_buckets=5)
    [20, 40, 60, 80, 100]
    """

    def _keys(self, most: int, least: int, number: int) -> list[int]:
        width = max((most - least + 1) // number, 1)
        return [max(most - i * width, least) for i in reversed(range(number))]


class LinearWidthBucket(_WidthBucket):
    """Buckets that are each wider than the one before by the same amount.

    >>> LinearWidthBucket()(max_lengths=100, min_lengths=1, num_buckets=5)
    [8, 22, 42, 68, 100]
    """

    def _keys(self, most: int, least: int, number: int) -> list[int]:
        # Bucket i is growth * i + 1 wide. With fewer lengths than buckets, growth is negative; no key passes `most`.
        growth = 2 * (most - least - number) / (number * (number + 1))
        return [min(round(least + i * (i + 1) / 2 * growth + i), most) for i in range(1, number + 1)]


class ExpWidthBucket(_WidthBucket):
    """Buckets that are each wider than the one before by the same factor.

    Args:
        bucket_len_step: the factor, more than 0.

    >>> ExpWidthBucket(bucket_len_step=2)(max_lengths=100, min_lengths=1, num_buckets=5)
    [4, 11, 23, 49, 100]
    """

    def __init__(self, bucket_len_step: float = 1.1) -> None:
        check_number("bucket_len_step", bucket_len_step, math.ulp(0), "give a factor for the widths, a number > 0")
        self._step = float(bucket_len_step)

    def _keys(self, most: int, least: int, number: int) -> list[int]:
        widths = np.power(self._step, np.arange(number))
        ends = least + (most - least) * np.cumsum(widths) / widths.sum()
        return [round(end) for end in ends.tolist()]
