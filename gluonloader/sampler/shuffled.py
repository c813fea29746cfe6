"""Samplers that yield each index once, in a random order that is a function of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import check_int
from ..errors import bad_argument, explain_torch_arguments
from ..randomness import batch_seed
from .base import Chained, SeededSampler
from .bijection import LARGEST, Bijection
from .ordered import check_length
from .passes import Sliceable
from .saved import digest

Method = Literal["permutation", "bijection"]
Integers = NDArray[np.int64]

_MOST_IN_TABLE: Final = 2**20  # by default, longer orders are computed by a bijection


class RandomSampler(SeededSampler):
    """Every index of `range(length)` once, in another random order each epoch.

    The order is a function of (seed, epoch). Each iteration is the next epoch, unless `set_epoch` chose another.

    Args:
        length: number of samples, at most 2**62.
        seed: an int; None draws one from NumPy's global generator now.
        method: 'permutation' makes a table of the order, 8 bytes for each sample, when an epoch starts. 'bijection'
            computes each index when it is needed, without a table, so an epoch of any length starts at once. None is
            'permutation' for up to 2**20 samples, 'bijection' for more.

    >>> sampler = RandomSampler(4, seed=1)
    >>> sorted(sampler) == sorted(sampler) == [0, 1, 2, 3]
    True
    >>> sampler.set_epoch(0); first = list(sampler)
    >>> sampler.set_epoch(0); first == list(sampler)
    True
    >>> next(iter(RandomSampler(10**12, seed=1)))
    593367043002
    """

    @explain_torch_arguments(
        data_source="give length, len(dataset)",
        replacement="leave it out, or draw with replacement by WeightedSampler(np.ones(length), num_samples)",
        num_samples="leave it out, or draw with replacement by WeightedSampler(np.ones(length), num_samples)",
        generator="give seed, an int",
    )
    def __init__(self, length: int, seed: int | None = None, method: Method | None = None) -> None:
        self._size = check_length("length", length)
        if self._size > LARGEST:
            raise bad_argument("length", length, "give at most 2**62")
        if method not in (None, "permutation", "bijection"):
            raise bad_argument("method", method, "give 'permutation', 'bijection', or None to choose by the length")
        self._method = method or _method(self._size)
        super().__init__(seed)

    def _order(self) -> Sliceable:
        return _shuffled(self._size, self._next_pass_seed(), self._method)

    def __len__(self) -> int:
        return self._size

    def pass_state(self) -> dict[str, Any]:
        return {**super().pass_state(), "method": self._method}


class SubsetSampler(SeededSampler):
    """The given indices, each as often as it was given.

    Args:
        indices: ints, a list or an array.
        shuffle: True for another random order each epoch, a function of (seed, epoch); False for the given order.
        seed: an int; None draws one from NumPy's global generator now.

    >>> list(SubsetSampler([3, 7, 5]))
    [3, 7, 5]
    >>> sorted(SubsetSampler([3, 7, 5], shuffle=True, seed=0))
    [3, 5, 7]
    """

    def __init__(self, indices: Sequence[int] | Integers, shuffle: bool = False, seed: int | None = None) -> None:
        self._indices = _integers("indices", indices)
        if not isinstance(shuffle, (bool, np.bool_)):
            raise bad_argument("shuffle", shuffle, "give True or False")
        self._shuffle, self._digest = bool(shuffle), digest(self._indices)
        super().__init__(seed, self._shuffle)

    def _order(self) -> Sliceable:
        if not self._shuffle:
            return self._indices
        size = len(self._indices)
        return _Picked(self._indices, _shuffled(size, self._next_pass_seed(), _method(size)))

    def __len__(self) -> int:
        return len(self._indices)

    def pass_state(self) -> dict[str, Any]:
        return {**super().pass_state(), "shuffle": self._shuffle, "indices": self._digest}


class BlockShuffleSampler(SeededSampler):
    """Every index once: blocks in random order, and indices shuffled among `buffer` blocks at a time.

    For a file that is read block by block, such as the row groups of a Parquet file: at most `buffer` blocks are in use
    at a time, and each block is in use only once in an epoch. The shares of a `ShardedSampler` over this sampler use
    the same blocks at the same time.

    Args:
        blocks: the length of each block, in the order of the file.
        buffer: how many blocks are shuffled with each other, at least 1.
        seed: an int; None draws one from NumPy's global generator now.

    >>> list(BlockShuffleSampler([2, 2, 3], buffer=1, seed=3))
    [2, 3, 1, 0, 6, 4, 5]
    >>> len(BlockShuffleSampler.of_size(length=10, block_size=4))
    10
    """

    def __init__(self, blocks: Sequence[int] | Integers, buffer: int = 4, seed: int | None = None) -> None:
        self._sizes = _integers("blocks", blocks)
        if self._sizes.size and self._sizes.min() < 0:
            raise bad_argument("blocks", int(self._sizes.min()), "give lengths, ints >= 0")
        self._buffer = check_int("buffer", buffer, 1)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._length, self._digest = int(self._sizes.sum()), digest(self._sizes)
        super().__init__(seed)

    @classmethod
    def of_size(cls, length: int, block_size: int, buffer: int = 4, seed: int | None = None) -> BlockShuffleSampler:
        """A sampler over `length` samples in blocks of `block_size`; the last block may be shorter."""
        whole, rest = divmod(check_length("length", length), check_int("block_size", block_size, 1))
        return cls(np.append(np.full(whole, block_size), [rest] * (rest > 0)).astype(np.int64), buffer, seed)

    def _order(self) -> Sliceable:
        seed, buffer = self._next_pass_seed(), self._buffer
        blocks = np.random.default_rng(seed).permutation(len(self._sizes))
        first = np.arange(0, len(blocks), buffer)  # of each group of `buffer` blocks
        ends = np.cumsum(np.add.reduceat(self._sizes[blocks], first)) if len(blocks) else first

        def shuffled_group(number: int) -> Integers:
            group = blocks[number * buffer : (number + 1) * buffer]
            ranges = [np.arange(self._starts[block], self._starts[block] + self._sizes[block]) for block in group]
            return np.random.default_rng(batch_seed(seed, number)).permutation(np.concatenate(ranges))

        return Chained(ends, shuffled_group)

    def __len__(self) -> int:
        return self._length

    def pass_state(self) -> dict[str, Any]:
        return {**super().pass_state(), "buffer": self._buffer, "blocks": self._digest}


class _Picked:
    """The order `indices[order[0]]`, `indices[order[1]]`, ..."""

    def __init__(self, indices: Integers, order: Sliceable) -> None:
        self._indices, self._order = indices, order

    def __getitem__(self, part: slice) -> Integers:
        picked: Integers = self._indices[self._order[part]]
        return picked


def _method(length: int) -> Method:
    return "permutation" if length <= _MOST_IN_TABLE else "bijection"


def _shuffled(length: int, seed: int, method: Method) -> Sliceable:
    return np.random.default_rng(seed).permutation(length) if method == "permutation" else Bijection(length, seed)


def _integers(name: str, values: Any) -> Integers:
    right = f"{name}: give a list or an array of ints"
    try:
        array = np.array(values, np.int64)  # with a dtype, since NumPy 1.23 only warns of a ragged list without one
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{right} ({error})") from None
    dtype = np.asarray(values).dtype
    if array.ndim != 1 or (array.size and dtype.kind not in "iu"):
        raise ValueError(f"{right}, not shape {array.shape} and dtype {dtype}")
    return array
