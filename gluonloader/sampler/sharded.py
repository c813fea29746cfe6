"""One order shared out over ranks, at any number of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Literal

from ..checks import check_int
from ..errors import bad_argument, explain_torch_arguments
from ..indices import Keys
from ..state import check_same, int_field
from .base import (
    PATH,
    Pass,
    Sampler,
    SizedIterable,
    Sliceable,
    as_keys,
    begin_order,
    inner_state,
    join_keys,
    load_saved_pass,
    saved_pass,
)
from .ranks import Source, rank_and_size

__all__ = ["Even", "ShardedSampler"]

Even = Literal["pad", "drop", "keep"]


class ShardedSampler(Sampler):
    """One of `num_shards` shares of a sampler's order, for processes that train together.

    Share `index` gets the indices at positions `index`, `index + num_shards`, ... of one order that all shares have in
    common.

    Args:
        sampler: any sized iterable of indices; one that shuffles needs a `seed`, the same for all shares.
        num_shards: number of shares.
        index: which one to give, from 0.
        even: what becomes of the last round, where it does not reach for all shares: 'pad' gives the order's first
            indices again, so that all have as many; 'drop' leaves it out; 'keep' gives it to the first shares.

    A position that all shares saved after the same number of batches can be loaded with another `num_shards`: the rest
    of the epoch is shared out anew, and each index comes once over all shares. Load that of share 0, which always has
    the most, everywhere; or, with `last_batch="rollover"`, each share its own.

    >>> [list(ShardedSampler(range(5), 2, index)) for index in range(2)]
    [[0, 2, 4], [1, 3, 0]]
    """

    @explain_torch_arguments(
        num_replicas="give num_shards",
        rank="give index",
        drop_last='give even="drop"',
        shuffle="give RandomSampler(len(dataset), seed=...) as sampler",
        seed="give RandomSampler(len(dataset), seed=...) as sampler",
    )
    def __init__(self, sampler: SizedIterable, num_shards: int, index: int, even: Even = "pad") -> None:
        self.num_shards, self.index = check_int("num_shards", num_shards, 1), check_int("index", index)
        if self.index >= self.num_shards:
            raise bad_argument("index", index, f"give an int from 0 to num_shards - 1 ({self.num_shards - 1})")
        if even not in ("pad", "drop", "keep"):
            raise bad_argument("even", even, "give 'pad', 'drop' or 'keep'")
        if not hasattr(sampler, "__len__"):
            right = "it has no length; give a sampler, or indices, e.g. range(len(dataset))"
            raise bad_argument("sampler", sampler, right)
        if getattr(sampler, "adopts", False):
            right = "it has a seed of its own, so that no two shares have one order; give it seed=, the same for all"
            raise bad_argument("sampler", sampler, right)
        self.sampler, self.even = sampler, even
        self._start = 0  # position in the common order from which on it is shared out
        self._loaded_epoch: int | None = None  # until the pass begins that a position was loaded for

    @classmethod
    def of_rank(cls, sampler: SizedIterable, source: Source, even: Even = "pad") -> ShardedSampler:
        """The share of this process, by its rank.

        Args:
            sampler, even: as above.
            source: who knows the rank and the number of processes: 'torch' (its process group), 'mpi' (mpi4py), or
                'env', the variables that torchrun, Open MPI, MPICH or Slurm set.

        Raises:
            ValueError: `source` does not know; the text says what was looked for.
            MissingExtraError: its package is not installed.
        """
        index, num_shards = rank_and_size(source)
        return cls(sampler, num_shards, index, even)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration gives the order of this epoch, from its start; of that of a loaded position, the rest."""
        if epoch == self._loaded_epoch:
            return
        self._start, self._loaded_epoch = 0, None
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return self._share().length

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} of {len(self.sampler)}, share {self.index} of {self.num_shards})"

    def __iter__(self) -> Iterator[Any]:
        share, self._start, self._loaded_epoch = self._share(), 0, None
        order, ahead = begin_order(self.sampler)
        if order is None:
            return share.drawn_from(iter(self.sampler))
        return Pass(_Strided(order, share), share.length, ahead)

    def _share(self) -> _Share:
        return _Share(len(self.sampler), self._start, self.num_shards, self.index, self.even)

    def pass_state(self) -> dict[str, Any]:
        """What the next pass depends on, as JSON."""
        where = {"start": self._start, "num_shards": self.num_shards, "index": self.index}
        return {**where, "length": len(self.sampler), "sampler": saved_pass(self.sampler)}

    def load_pass_state(self, state: Mapping[str, Any], drawn: int) -> int:
        """Has the next pass go on where all shares were after `drawn` indices each, with any number of shares.

        Returns:
            0: nothing is left to skip.

        Raises:
            ValueError: the state does not fit; it names the field, and nothing has changed.
        """
        start, shards = int_field(state, "start", path=PATH), int_field(state, "num_shards", 1, PATH)
        int_field(state, "index", path=PATH)
        length = len(self.sampler)
        check_same(state, "length", length, f"the sampler of the {type(self).__name__} here", PATH)
        load_saved_pass(self.sampler, inner_state(state), 0)
        self._start = min(length, start + drawn * shards)
        epoch = inner_state(state).get("epoch")
        self._loaded_epoch = epoch if isinstance(epoch, int) else None
        return 0


class _Share:
    """The positions of one share: `own`, and after these `extra` if it is padded."""

    def __init__(self, length: int, start: int, num_shards: int, index: int, even: Even) -> None:
        rounds, odd = divmod(max(length - start, 0), num_shards)
        first = start + index
        self.own = range(first, first + rounds * num_shards, num_shards)
        self.extra: int | None = None
        last = first + rounds * num_shards
        if odd and even != "drop" and last < length:
            self.own = range(first, last + 1, num_shards)
        elif odd and even == "pad":
            self.extra = last % length
        self.length = len(self.own) + (self.extra is not None)
        self._total = length

    def drawn_from(self, keys: Iterator[Any]) -> Iterator[Any]:
        """The keys of this share, from an iterator over all."""
        extra = None
        for position, key in enumerate(islice(keys, self._total)):
            if position == self.extra:
                extra = key
            if position in self.own:
                yield key
        if self.extra is not None:
            yield extra


class _Strided:
    """The order of one share, of an order that is known by position."""

    def __init__(self, order: Sliceable, share: _Share) -> None:
        self._order, self._share = order, share

    def __getitem__(self, part: slice) -> Keys:
        share = self._share
        own = share.own[part]
        keys = as_keys(self._order[own.start : own.stop : own.step] if own else [])
        if share.extra is not None and part.stop == share.length:
            return join_keys(keys, as_keys(self._order[share.extra : share.extra + 1]))
        return keys
