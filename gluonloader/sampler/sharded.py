"""A sampler for several processes: it distributes an order over ranks.

Its position can be loaded with a different number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, Literal

from ..checks import check_shard
from ..describe import arguments, call, describe, short_repr
from ..errors import bad_argument, explain_arguments
from ..indices import Keys, as_list
from ..ranks import RankSource, rank_and_size
from ..state import has_state
from .base import (
    RearrangedSampler,
    SizedIterable,
    iterating_class,
    may_yield,
    read_ahead_of,
    start_order,
)  # fmt: skip
from .passes import Computed, Order, Pass, as_keys, change_from, join_keys, length_of
from .saved import chain_of, replicas_of

Even = Literal["pad", "drop", "keep"]


class ShardedSampler(RearrangedSampler):
    """Yields one of `num_shards` shares of a sampler's order, for processes that train together.

    The order is the same in all processes. Share `index` contains keys number `index`, `index + num_shards`, and so on.
    A `DataLoader` with the argument `ranks` does this by itself. Use this class for a loader that has no such argument,
    for example in a program for Gluon.

    Args:
        sampler: any iterable of indices with a length. A sampler that shuffles needs the same `seed` in all processes.
        num_shards: number of shares.
        index: number of this share, from 0.
        even: what to do with the last keys if they are too few for all shares: 'pad' adds the first keys of the order,
            so that all shares have the same length; 'drop' drops the last keys; 'keep' adds them to the first shares.

    If all processes save their position after the same number of batches, the position can be loaded with any
    `num_shards`: the rest of the epoch is distributed over the new shares, and each index comes once. Load the position
    of share 0 in all processes, since share 0 always has the most indices. Only with `last_batch="rollover"`, load into
    each share its own position.

    >>> [list(ShardedSampler(range(5), 2, index)) for index in range(2)]
    [[0, 2, 4], [1, 3, 0]]
    """

    _identifying = "num_shards", "index"

    @explain_arguments(
        num_replicas="pass num_shards instead",
        rank="pass index instead",
        drop_last='pass even="drop" instead',
        shuffle="pass sampler=RandomSampler(len(dataset), seed=...) instead",
        seed="pass sampler=RandomSampler(len(dataset), seed=...) instead",
    )
    def __init__(self, sampler: SizedIterable, num_shards: int, index: int, even: Even = "pad") -> None:
        num_shards, index = check_shard(num_shards, index)
        self.num_shards, self.index = int(num_shards), int(index)
        if even not in ("pad", "drop", "keep"):
            raise bad_argument("even", even, "must be 'pad', 'drop' or 'keep'")
        if not hasattr(sampler, "__len__"):
            right = "it has no length; pass a sampler or indices, e.g. range(len(dataset))"
            raise bad_argument("sampler", sampler, right)
        if getattr(sampler, "adopts", False):
            right = "its seed is random, so the order differs between shards; set the same seed in all shards"
            raise bad_argument("sampler", sampler, right)
        self.sampler, self.even = sampler, even

    @classmethod
    def of_rank(cls, sampler: SizedIterable, source: RankSource, even: Even = "pad") -> ShardedSampler:
        """Returns the share of this process, chosen by its rank.

        Args:
            sampler, even: as for the class.
            source: where the rank and the number of processes come from: 'torch' (its process group), 'mpi' (mpi4py),
                or 'env', the variables that torchrun, Open MPI, MPICH or Slurm set.

        Raises:
            ValueError: `source` does not know the rank; the text lists where the rank was looked for.
            MissingExtraError: torch or mpi4py is not installed.
        """
        index, num_shards = rank_and_size(source)
        return cls(sampler, num_shards, index, even)

    def _may_yield(self, key: Any) -> bool:
        return iterating_class(self) is not ShardedSampler or may_yield(self.sampler, key)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration yield this epoch."""
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return self.count(len(self.sampler))

    @short_repr
    def __repr__(self) -> str:
        return call(self, describe(self.sampler), *arguments(num_shards=self.num_shards, index=self.index))

    def __iter__(self) -> Iterator[Any]:
        order = start_order(self.sampler)
        return self.pass_over(iter(self.sampler) if order is None else order, 0)

    def pass_over(self, order: Order | Iterator[Any], start: int) -> Iterator[Any]:
        """A pass over the share of an order, or of the keys that an iterator yields, distributed from an offset on."""
        length = length_of(self.sampler)
        if isinstance(order, Iterator):
            assert length is not None, "only planned orders have no length"
            return self._share(length, start).drawn_from(order)
        length = None if length is None else self._share(length, start).length
        return Pass(self.rearranged(order, start), length, read_ahead_of(self.sampler))

    def rearranged(self, order: Order, start: int = 0) -> Order:
        """This share of an order that is distributed from an offset on."""
        length, read = length_of(self.sampler), partial(self._read_rounds, order, start)
        if length is not None:
            read = partial(self._share(length, start).read, order)
        return Computed(read, lambda offset: change_from(order, start + offset * self.num_shards))

    def _share(self, length: int, start: int) -> _Share:
        return _Share(length, start, self.num_shards, self.index, self.even)

    @property
    def stateful(self) -> Any:
        """The user's sampler in this one that saves its own state; None if there is none."""
        return next((sampler for sampler in chain_of(self.sampler) if has_state(sampler)), None)

    def count(self, length: int) -> int:
        """How many keys of this share an order with so many keys has."""
        return self._share(length, 0).length

    def _read_rounds(self, order: Order, start: int, part: slice) -> Keys:
        """Part of the order of this share, if the length of the order of all shares is not known.

        It reads the keys of all shares. If they are too few for a last round, the order has ended.
        """
        first = start + part.start * self.num_shards
        keys = as_list(order[first : start + part.stop * self.num_shards])
        rounds, odd = divmod(len(keys), self.num_shards)
        own = keys[self.index :: self.num_shards]
        if odd and self.even == "drop":
            return own[:rounds]
        if self.index >= odd > 0 and self.even == "pad":
            extra = (first + rounds * self.num_shards + self.index) % (first + len(keys))
            return own + as_list(order[extra : extra + 1])
        return own


def rank_of(sampler: Any) -> tuple[int, int] | None:
    """The rank whose part of an order a sampler yields, and the number of ranks; None if it yields all of the order.

    Known are `ShardedSampler`, torch's `DistributedSampler`, and samplers with the attributes of the latter.
    """
    if isinstance(sampler, ShardedSampler):
        return sampler.index, sampler.num_shards
    count, rank = replicas_of(sampler), getattr(sampler, "rank", 0)
    return None if count is None else (rank if isinstance(rank, int) else 0, count)


class _Share:
    """The keys of the order that belong to one share: at the offsets `own`, then at `extra` if the share is padded."""

    def __init__(self, length: int, start: int, num_shards: int, index: int, even: Even) -> None:
        rounds, odd = divmod(max(length - start, 0), num_shards)
        self.start = start
        self.own = range(start + index, length, num_shards)
        if even == "drop":
            self.own = self.own[:rounds]
        padded = even == "pad" and index >= odd > 0
        self.extra = (start + index + rounds * num_shards) % length if padded else None
        self.length = len(self.own) + padded
        self._total, self._even = length, even != "keep"

    def drawn_from(self, keys: Iterator[Any]) -> Iterator[Any]:
        """The keys of this share, from an iterator over the keys of all shares."""
        extra, drawn = None, 0
        for offset, key in enumerate(islice(keys, self._total)):
            drawn += 1
            if offset == self.extra:
                extra = key
            if offset in self.own:
                yield key
        next(keys, None)  # a generator runs to its end, since it may do something there
        if self._even and drawn < self._total:
            what = f"the length of the sampler is {self._total:,}, but it has yielded {drawn:,} indices"
            raise ValueError(f"{what}, so the ranks would have different numbers of batches; correct its __len__")
        if self.extra is not None:
            yield extra

    def read(self, order: Order, part: slice) -> Keys:
        """Part of the order of this share, from the order of all shares."""
        own = self.own[part]
        keys = as_keys(order[own.start : own.stop : own.step] if own else [])
        last = self.length - 1
        if self.extra is not None and part.start <= last < part.stop and (last - part.start) % (part.step or 1) == 0:
            return join_keys(keys, as_keys(order[self.extra : self.extra + 1]))
        return keys
