"""Samplers that yield each index once, in a random order that is a function of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Literal

import numpy as np

from ..checks import check_int
from ..errors import bad_argument, explain_arguments, warn
from ..indices import checksum_of_array
from ..randomness import batch_seed
from .base import SeededSampler, chained, check_ints, check_length
from .bijection import LARGEST, Bijection
from .passes import Computed, Integers, Order, lazily

Method = Literal["permutation", "bijection"]

_MOST_IN_TABLE: Final = 2**20  # by default, longer orders are computed by a bijection


class RandomSampler(SeededSampler):
    """Yields each index of `range(length)` once, in a new random order each epoch.

    The order depends only on (seed, epoch). Each iteration is the next epoch, unless `set_epoch` chose another epoch.

    Args:
        length: number of samples, at most 2**62.
        seed: an int; None draws one from NumPy's global generator now.
        method: 'permutation' makes a table of the order when an epoch starts, with 8 bytes for each sample. 'bijection'
            computes each index when it is needed, without a table, so an epoch of any length starts at once. None means
            'permutation' for up to 2**20 samples and 'bijection' for more.

    >>> sampler = RandomSampler(4, seed=1)
    >>> sorted(sampler) == sorted(sampler) == [0, 1, 2, 3]
    True
    >>> sampler.set_epoch(0); first = list(sampler)
    >>> sampler.set_epoch(0); first == list(sampler)
    True
    >>> next(iter(RandomSampler(10**12, seed=1)))
    593367043002
    """

    @explain_arguments(
        data_source="pass length=len(dataset) instead",
        replacement="remove replacement; WeightedSampler(np.ones(length), num_samples) draws with replacement",
        num_samples="remove num_samples; WeightedSampler(np.ones(length), num_samples) draws with replacement",
        generator="pass an int as seed instead",
    )
    def __init__(self, length: int, seed: int | None = None, method: Method | None = None) -> None:
        self._indices = range(check_length("length", length))
        if length > LARGEST:
            raise bad_argument("length", length, "must be at most 2**62")
        if method not in (None, "permutation", "bijection"):
            raise bad_argument("method", method, "must be 'permutation', 'bijection', or None to choose by the length")
        self._identity = {"method": method or _method(length)}
        super().__init__(seed)

    @property
    def random_over(self) -> Any:
        return self._indices

    def order(self, epoch: int) -> Order:
        return _shuffled(len(self), self.epoch_seed(epoch), self._identity["method"])


class SubsetSampler(SeededSampler):
    """Yields the indices that you pass, each as often as you pass it.

    Args:
        indices: ints, a list or an array.
        shuffle: True for a new random order each epoch, which depends only on (seed, epoch); False for the order
            passed.
        seed: an int; None draws one from NumPy's global generator now.

    >>> list(SubsetSampler([3, 7, 5]))
    [3, 7, 5]
    >>> sorted(SubsetSampler([3, 7, 5], shuffle=True, seed=0))
    [3, 5, 7]
    """

    def __init__(self, indices: Sequence[int] | Integers, shuffle: bool = False, seed: int | None = None) -> None:
        self._indices = check_ints("indices", indices, "pass a list or an array of ints")
        if not isinstance(shuffle, (bool, np.bool_)):
            raise bad_argument("shuffle", shuffle, "must be True or False")
        self._shuffle = bool(shuffle)
        self._identity = {"shuffle": self._shuffle, "indices": checksum_of_array(self._indices)}
        super().__init__(seed, self._shuffle)

    @property
    def random_over(self) -> Any:
        return self._indices if self._shuffle else None

    def order(self, epoch: int) -> Order:
        if not self._shuffle:
            return self._indices
        shuffled = _shuffled(len(self), self.epoch_seed(epoch), _method(len(self)))
        return Computed(lambda part: self._indices[shuffled[part]])


class BlockShuffleSampler(SeededSampler):
    """Yields each index once: takes `buffer` random blocks at a time, and shuffles the indices of these blocks.

    Use it for files that are read block by block, such as Parquet files with their row groups: only `buffer` blocks are
    in use at a time, and each block is in use only once per epoch. The shares of a `ShardedSampler` over this sampler
    use the same blocks at the same time. If these blocks have more than 2**20 indices, each index is computed when it
    is needed, as by the method 'bijection' of `RandomSampler`.

    Args:
        blocks: the length of each block, in the order of the file.
        buffer: number of blocks that are shuffled together, at least 1.
        seed: an int; None draws one from NumPy's global generator now.
        nodes: number of machines that train together, if each of them should read a fixed share of the blocks, since it
            keeps them in a cache. Only the last samples of an epoch may come from other shares.
        ranks_per_node: number of ranks on each of these machines, if `nodes` is more than 1.

    >>> list(BlockShuffleSampler([2, 2, 3], buffer=1, seed=3))
    [2, 3, 1, 0, 6, 4, 5]
    >>> len(BlockShuffleSampler.of_size(length=10, block_size=4))
    10
    """

    def __init__(
        self,
        blocks: Sequence[int] | Integers,
        buffer: int = 4,
        seed: int | None = None,
        nodes: int = 1,
        ranks_per_node: int = 1,
    ) -> None:
        self._sizes = check_ints("blocks", blocks, "pass a list or an array of ints")
        if self._sizes.size and self._sizes.min() < 0:
            raise bad_argument("blocks", int(self._sizes.min()), "all lengths must be >= 0")
        self._buffer = check_int("buffer", buffer, 1)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._indices = range(int(self._sizes.sum()))
        self._nodes = check_int("nodes", nodes, 1)
        self._ranks = check_int("ranks_per_node", ranks_per_node, 1)
        self._identity = {"buffer": self._buffer, "blocks": checksum_of_array(self._sizes)}
        if self._nodes > 1:
            self._identity |= {"nodes": self._nodes, "ranks_per_node": self._ranks}
        super().__init__(seed)

    @classmethod
    def of_size(cls, length: int, block_size: int, buffer: int = 4, seed: int | None = None) -> BlockShuffleSampler:
        """Returns a sampler over `length` samples in blocks of `block_size`; the last block may be shorter."""
        whole, rest = divmod(check_length("length", length), check_int("block_size", block_size, 1))
        return cls(np.append(np.full(whole, block_size), [rest] * (rest > 0)).astype(np.int64), buffer, seed)

    def check_fits(self, dataset: Any, ranks: int) -> None:
        """See `OrderedSampler`."""
        planned = self._nodes * self._ranks
        if self._nodes > 1 and ranks not in (1, planned):
            warn(
                f"sampler: nodes={self._nodes} and ranks_per_node={self._ranks} are for {planned} ranks, but {ranks} "
                "divide the order, so nodes read the blocks of others, which are not in their caches; pass the number "
                "of ranks on each node as ranks_per_node"
            )

    def order(self, epoch: int) -> Order:
        seed = self.epoch_seed(epoch)
        if self._nodes == 1:
            return lazily(partial(self._blocks_in_order, seed, np.arange(len(self._sizes))))
        return lazily(partial(self._in_turn, seed))

    def _in_turn(self, seed: int) -> Order:
        """The orders of all nodes, so that each rank, which reads every `num_shards`-th index, gets those of its node.

        A round is one index for each rank. At the end, the nodes with more samples than others share the rest.
        """
        mixed = np.random.default_rng(0).permutation(len(self._sizes))  # the shares are the same in each epoch
        shares = [mixed[node :: self._nodes] for node in range(self._nodes)]
        lengths = [int(self._sizes[share].sum()) for share in shares]
        own = [self._blocks_in_order(batch_seed(seed, node), share) for node, share in enumerate(shares)]
        per_round, rounds = self._nodes * self._ranks, min(lengths) // self._ranks

        def tail() -> Integers:
            parts = zip(own, lengths, strict=True)
            return np.concatenate([np.asarray(order[rounds * self._ranks : length]) for order, length in parts])

        rest = lazily(tail)

        def read(part: slice) -> Integers:
            start, stop, step = part.indices(len(self))
            first, last = (min(at // per_round, rounds) for at in (start, stop + per_round - 1))
            span = slice(first * self._ranks, last * self._ranks)
            turns = [np.asarray(order[span]).reshape(-1, self._ranks) for order in own]
            found = np.stack(turns, axis=1).reshape(-1)
            if stop > rounds * per_round:
                found = np.concatenate([found, np.asarray(rest[:])])
            indices: Integers = found[start - first * per_round : stop - first * per_round : step].astype(np.int64)
            return indices

        return Computed(read)

    def _blocks_in_order(self, seed: int, among: Integers) -> Order:
        """The indices of these blocks in a random order."""
        buffer = self._buffer
        blocks: Integers = np.random.default_rng(seed).permutation(among)
        first = np.arange(0, len(blocks), buffer)  # of each group of `buffer` blocks
        ends = np.cumsum(np.add.reduceat(self._sizes[blocks], first)) if len(blocks) else first

        def shuffled_group(number: int) -> Order:
            group = blocks[number * buffer : (number + 1) * buffer]
            ends_in_group = np.cumsum(self._sizes[group])
            shifts = self._starts[group] - (ends_in_group - self._sizes[group])
            length = int(ends_in_group[-1])
            shuffled = _shuffled(length, batch_seed(seed, number), _method(length))

            def read(part: slice) -> Integers:
                offsets: Integers = shuffled[part]
                return offsets + shifts[np.searchsorted(ends_in_group, offsets, "right")]

            return Computed(read)

        return chained(int(self._sizes[among].sum()), ends, shuffled_group)


def _method(length: int) -> Method:
    return "permutation" if length <= _MOST_IN_TABLE else "bijection"


def _shuffled(length: int, seed: int, method: Method) -> Order:
    if method == "bijection":
        return Bijection(length, seed)
    return lazily(lambda: np.random.default_rng(seed).permutation(length))
