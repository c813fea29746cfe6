"""Samplers that shuffle, each index once: the order is a function of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import check_int
from ..errors import bad_argument, explain_torch_arguments
from ..randomness import batch_seed
from .base import SeededSampler, Sliceable, digest
from .bijection import LARGEST, Bijection
from .ordered import check_length

__all__ = ["BlockShuffleSampler", "Method", "RandomSampler", "SubsetSampler"]

Method = Literal["permutation", "bijection"]
Integers = NDArray[np.int64]

_TABLE: Final = 2**20  # most samples that are shuffled by a table unless it is asked for


class RandomSampler(SeededSampler):
    """Every index of `range(length)` once, in an order that is new each epoch.

    The order is a function of (seed, epoch). Each iteration is the next epoch, unless `set_epoch` says otherwise.

    Args:
        length: number of samples, at most 2**62.
        seed: an int; None draws one from NumPy's global generator now.
        method: 'permutation' makes a table of the order, 8 bytes a sample, when an epoch begins. 'bijection' computes
            each index from its position: no table, so that an epoch of any length begins at once. None takes a
            permutation up to 2**20 samples, a bijection above.

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
            raise bad_argument("method", method, "give 'permutation', 'bijection', or None to go by the length")
        self._method = method or _method(self._size)
        super().__init__(seed)

    def _order(self) -> Sliceable:
        return _shuffled(self._size, self._next_key(), self._method)

    def __len__(self) -> int:
        return self._size

    def pass_state(self) -> dict[str, Any]:
        return {**super().pass_state(), "method": self._method}


class SubsetSampler(SeededSampler):
    """The indices that are given, each as often as it is there.

    Args:
        indices: ints, a list or an array.
        shuffle: a new order each epoch, a function of (seed, epoch); otherwise as they come.
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
        return _Picked(self._indices, _shuffled(size, self._next_key(), _method(size)))

    def __len__(self) -> int:
        return len(self._indices)

    def pass_state(self) -> dict[str, Any]:
        return {**super().pass_state(), "shuffle": self._shuffle, "indices": self._digest}


class BlockShuffleSampler(SeededSampler):
    """Every index once: blocks in a new order each epoch, and indices shuffled among the blocks of a buffer.

    For a file that is read block by block, such as the row groups of a Parquet file: no more than `buffer` blocks are
    needed at a time, and each is needed during one stretch of the epoch only. Shares of a `ShardedSampler` over it need
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
        """Of `length` samples in blocks of `block_size`; the last may be shorter."""
        whole, rest = divmod(check_length("length", length), check_int("block_size", block_size, 1))
        return cls(np.append(np.full(whole, block_size), [rest] * (rest > 0)).astype(np.int64), buffer, seed)

    def _order(self) -> Sliceable:
        return _Groups(self._starts, self._sizes, self._buffer, self._next_key())

    def __len__(self) -> int:
        return self._length

    def pass_state(self) -> dict[str, Any]:
        return {**super().pass_state(), "buffer": self._buffer, "blocks": self._digest}


class _Picked:
    """Of `indices` those at the positions that `order` gives."""

    def __init__(self, indices: Integers, order: Sliceable) -> None:
        self._indices, self._order = indices, order

    def __getitem__(self, part: slice) -> Integers:
        picked: Integers = self._indices[self._order[part]]
        return picked


class _Groups:
    """Blocks in shuffled order, `buffer` of them to a group; each group is shuffled when it is needed."""

    def __init__(self, starts: Integers, sizes: Integers, buffer: int, key: int) -> None:
        self._starts, self._sizes, self._key = starts, sizes, key
        self._blocks = blocks = np.random.default_rng(key).permutation(len(sizes))
        self._buffer, first = buffer, np.arange(0, len(blocks), buffer)
        self._ends = np.cumsum(np.add.reduceat(sizes[blocks], first)) if len(blocks) else first
        self._number, self._indices = -1, first  # the group that was made last

    def __getitem__(self, part: slice) -> Integers:
        start, stop, step = part.indices(int(self._ends[-1]) if len(self._ends) else 0)
        number = int(np.searchsorted(self._ends, start, "right"))
        pieces = [np.arange(0)]
        while start < stop:
            begin, end = int(self._ends[number - 1]) if number else 0, int(self._ends[number])
            pieces.append(self._group(number)[start - begin : stop - begin])
            start, number = end, number + 1
        whole: Integers = np.concatenate(pieces)
        return whole[::step]

    def _group(self, number: int) -> Integers:
        if number != self._number:
            blocks = self._blocks[number * self._buffer : (number + 1) * self._buffer]
            ranges = [np.arange(self._starts[block], self._starts[block] + self._sizes[block]) for block in blocks]
            rng = np.random.default_rng(batch_seed(self._key, number))
            self._number, self._indices = number, rng.permutation(np.concatenate(ranges))
        return self._indices


def _method(length: int) -> Method:
    return "permutation" if length <= _TABLE else "bijection"


def _shuffled(length: int, key: int, method: Method) -> Sliceable:
    return np.random.default_rng(key).permutation(length) if method == "permutation" else Bijection(length, key)


def _integers(name: str, values: Any) -> Integers:
    right = f"{name}: give a list or an array of ints"
    try:
        array = np.array(values, np.int64)  # first, since without a dtype a ragged list is a warning in NumPy 1.23
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{right} ({error})") from None
    dtype = np.asarray(values).dtype
    if array.ndim != 1 or (array.size and dtype.kind not in "iu"):
        raise ValueError(f"{right}, not shape {array.shape} and dtype {dtype}")
    return array
