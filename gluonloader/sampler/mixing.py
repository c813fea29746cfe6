"""The steps of a mixture: which source each step reads, and the next indices of each source's own order.

    checkpoint --weights--> Mixer.advance --> the indices of the next steps, and the checkpoint after them

NOTE [shares]: each source has a balance, in units of `WHOLE`. At each step every source receives its share of the step,
and the source that is read pays the whole step. So a balance says how far a source is behind its share. A step is one
sample, or as many tokens as the sample has. Balances are ints, so they stay exact however long the order is.

For samples, the sources are chosen as in "The chairman assignment problem" (Tijdeman, 1980): a source may be read as
soon as its balance reaches a small threshold, and of these, the source is read whose balance would exceed the limit
first. So no balance ever reaches a whole sample. For tokens, the source with the largest balance is read.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ..errors import bad_argument
from ..messages import message
from .base import order_of
from .passes import Integers, Order, as_keys

WHOLE: Final = 2**40  # a share of 1; rounding a share to this changes less than one sample in 10**12

Weights = tuple[int, ...]  # the shares of the sources, in units of `WHOLE`


@message(frozen=True, slots=True)
class MixtureCheckpoint:
    """The sums before a step; see NOTE [shares].

    Attributes:
        counts, tokens: the samples and the tokens that were drawn from each source.
        balances: of the sources.
    """

    step: int
    counts: tuple[int, ...]
    balances: tuple[int, ...]
    tokens: tuple[int, ...]


@message(frozen=True, slots=True)
class Advanced:
    """The steps after a checkpoint.

    Attributes:
        indices: of the joined dataset, one for each step.
        after: the checkpoint after these steps.
    """

    indices: Integers
    after: MixtureCheckpoint


class MixtureSource:
    """One dataset of a mixture: its samples in their own order, pass after pass.

    Args:
        name: of the argument that is the sampler, for error texts.
        first: the index of its first sample in the joined dataset.
        size: number of its samples.
        lengths: the tokens of its samples; None if they are not known.
    """

    def __init__(self, name: str, sampler: Any, first: int, size: int, lengths: Any) -> None:
        self.sampler, self.first, self.lengths, self.length = sampler, first, lengths, len(sampler)
        self._name, self._size = name, size
        self._pass = lru_cache(maxsize=2)(self._order_of)

    def __reduce__(self) -> Any:
        return MixtureSource, (self._name, self.sampler, self.first, self._size, self.lengths)

    def _order_of(self, number: int) -> Order:
        order = order_of(self.sampler, number)
        assert order is not None, "only samplers whose order is computed are accepted"
        return order

    def read(self, start: int, count: int) -> Integers:
        """The indices in the dataset at these places of its passes, one after another."""
        parts, stop = [np.empty(0, np.int64)], start + count
        while start < stop:
            number, offset = divmod(start, self.length)
            part = as_keys(self._pass(number)[offset : min(self.length, offset + stop - start)])
            parts.append(np.asarray(part, np.int64))
            start += len(part)
        indices: Integers = np.concatenate(parts)
        wrong = indices[(indices < 0) | (indices >= self._size)]
        if len(wrong):
            right = f"it yields the index {wrong[0]}, but the dataset has {self._size} samples"
            raise bad_argument(self._name, self.sampler, right)
        return indices

    def own(self, indices: Integers) -> Integers:
        """The indices in this dataset of those of the joined dataset that belong to it."""
        return indices[(self.first <= indices) & (indices < self.first + self._size)] - self.first

    def tokens(self, indices: Integers) -> Integers:
        """The number of tokens of each of these samples; 0 if they are not known."""
        return np.zeros_like(indices) if self.lengths is None else np.asarray(self.lengths[indices], np.int64)


class Mixer:
    """Computes steps.

    Args:
        by_tokens: whether the shares count tokens.
    """

    def __init__(self, sources: Sequence[MixtureSource], by_tokens: bool) -> None:
        self._sources, self._by_tokens = sources, by_tokens

    def advance(self, before: MixtureCheckpoint, weights: Weights, count: int) -> Advanced:
        """Computes the next `count` steps after a checkpoint."""
        if self._by_tokens:
            ahead = self._read(before, [count if weight else 0 for weight in weights])
            lengths = [source.tokens(part).tolist() for source, part in zip(self._sources, ahead, strict=True)]
            chosen = choose_by_tokens(before.balances, weights, lengths, count)
            counts = self._counts(chosen)
        else:
            chosen = choose_by_samples(before.balances, weights, count)
            counts = self._counts(chosen)
            ahead = self._read(before, counts)
        indices, tokens = np.empty(count, np.int64), []
        for number, (source, part) in enumerate(zip(self._sources, ahead, strict=True)):
            read = part[: counts[number]]
            indices[chosen == number] = read + source.first
            tokens.append(int(source.tokens(read).sum()))
        paid = tokens if self._by_tokens else counts
        whole = sum(paid)
        balances = [
            balance + weight * whole - WHOLE * own
            for balance, weight, own in zip(before.balances, weights, paid, strict=True)
        ]
        sums = [
            tuple(known + new for known, new in zip(*pair, strict=True))
            for pair in ((before.counts, counts), (before.tokens, tokens))
        ]
        return Advanced(indices, MixtureCheckpoint(before.step + count, sums[0], tuple(balances), sums[1]))

    def _counts(self, chosen: Integers) -> list[int]:
        """How many of these steps read each source."""
        counts: list[int] = np.bincount(chosen, minlength=len(self._sources)).tolist()
        return counts

    def _read(self, before: MixtureCheckpoint, counts: Sequence[int]) -> list[Integers]:
        """The next indices of each source."""
        places = zip(self._sources, before.counts, counts, strict=True)
        return [source.read(first, count) for source, first, count in places]


def choose_by_samples(balances: Sequence[int], weights: Weights, count: int) -> Integers:
    """The source of each of the next steps; see NOTE [shares]."""
    if len(weights) == 1:
        return np.zeros(count, np.int64)
    least = WHOLE // (2 * len(weights) - 2)  # the balance at which a source may be read
    may_read: list[tuple[int, float, int]] = []  # the first step, the last step, the source
    for source, (balance, weight) in enumerate(zip(balances, weights, strict=True)):
        if weight == 0:
            continue
        samples = np.arange(max(0, (balance + (count + 1) * weight) // WHOLE) + 2) * float(WHOLE)
        first = np.maximum(np.ceil((samples + (least - balance)) / weight), 1).astype(np.int64)
        last = (samples + (WHOLE - least - balance)) / weight
        may_read += zip(first.tolist(), last.tolist(), [source] * len(first), strict=True)
    may_read.sort()
    chosen: list[int] = []
    waiting: list[tuple[float, int]] = []  # those that may be read now
    place = 0
    for step in range(1, count + 1):
        while place < len(may_read) and (may_read[place][0] <= step or not waiting):
            heapq.heappush(waiting, may_read[place][1:])
            place += 1
        chosen.append(heapq.heappop(waiting)[1])
    return np.array(chosen)


def choose_by_tokens(balances: Sequence[int], weights: Weights, lengths: list[list[int]], count: int) -> Integers:
    """The source of each of the next steps; see NOTE [shares].

    Args:
        lengths: the tokens of the next `count` samples of each source.
    """
    now, used, chosen = list(balances), [0] * len(weights), []
    readable = [source for source, weight in enumerate(weights) if weight]
    for _ in range(count):
        source = max(readable, key=now.__getitem__)
        tokens = lengths[source][used[source]]
        used[source] += 1
        chosen.append(source)
        for other in readable:
            now[other] += weights[other] * tokens
        now[source] -= WHOLE * tokens
    return np.array(chosen)
