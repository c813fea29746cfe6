"""`random_split` splits a dataset into random parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from numbers import Real
from typing import Any, cast

import numpy as np

from ..errors import bad_argument, explain_arguments
from ..randomness import batch_seed, checked_seed
from .base import Subset


@explain_arguments(generator="pass an int as seed instead")
def random_split(dataset: Any, lengths: Sequence[float], seed: int | None = None) -> list[Subset]:
    """Splits a dataset at random into parts that have no sample in common.

    Args:
        dataset: an object with `__len__` and `__getitem__`.
        lengths: the number of samples in each part, with the sum `len(dataset)`; or fractions with the sum 1. The sizes
            from fractions are rounded down, and the samples that are left over go to the first parts, one to each.
        seed: an int; None draws one from NumPy's global generator now.

    Raises:
        ValueError: a length is negative, or their sum is wrong.

    >>> [len(part) for part in random_split(range(10), [0.75, 0.25], seed=0)]
    [8, 2]
    """
    count = len(dataset)
    if not isinstance(lengths, Iterable) or isinstance(lengths, str):
        raise bad_argument("lengths", lengths, "must be a list, e.g. [0.8, 0.2]")
    if not all(isinstance(length, Real) and length >= 0 for length in lengths):
        raise bad_argument("lengths", lengths, "all lengths or fractions must be >= 0")
    sizes = [length.item() if isinstance(length, np.generic) else length for length in lengths]  # uint8 overflows
    if math.isclose(sum(sizes), 1, rel_tol=1e-6):
        sizes = rounded = [math.floor(count * fraction) for fraction in sizes]
        for i in range(count - sum(rounded)):
            rounded[i % len(rounded)] += 1
    if sum(sizes) != count or any(size != int(size) for size in sizes):
        right = f"pass ints with the sum len(dataset), which is {count}, or fractions with the sum 1"
        raise bad_argument("lengths", lengths, right)
    rng = np.random.default_rng(batch_seed(checked_seed(seed), 0, 1))
    cuts = list(accumulate(map(int, sizes)))[:-1]
    return [Subset(dataset, cast("Sequence[Any]", part)) for part in np.split(rng.permutation(count), cuts)]
