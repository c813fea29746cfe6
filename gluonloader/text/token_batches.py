"""`TokenBatchSampler` makes batches of documents with a limited number of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import check_flags, check_int, is_positive
from ..describe import arguments, call, describe, short_repr
from ..errors import bad_argument
from ..randomness import batch_seed
from ..sampler.passes import Integers
from .windowed import PlannedWindow, Sums, WindowedSampler

LongSamples = Literal["drop", "error"]

_SIMILAR: Final = 64  # batches that follow each other and have similar costs: ranks get them at the same step


@dataclass(frozen=True, slots=True)
class TokenBatchStats(Sums):
    """What a `TokenBatchSampler` has planned in its newest epoch; more than was delivered, since it plans ahead.

    Attributes:
        batches: number of batches.
        documents: number of documents in the batches.
        cost: the sum of the costs of the batches.
        budget: the largest possible cost of so many batches.
        dropped: number of documents that cost more than a batch may cost.
    """

    batches: int = 0
    documents: int = 0
    cost: float = 0.0
    budget: float = 0.0
    dropped: int = 0

    @property
    def use(self) -> float:
        """The share of the budget that is used, from 0 to 1."""
        return self.cost / self.budget if self.budget else 0.0


class TokenBatchSampler(WindowedSampler):
    """Yields batches of documents of similar length, as many documents as a budget of tokens allows.

    Pass it as `batch_sampler`. A window of documents is sorted by length and cut into batches. Over ranks, all ranks
    get the same number of batches, and batches of similar cost at each step.

    Args:
        lengths: number of tokens of each document, ints of shape (N,).
        max_tokens: what a batch may cost: with `padded`, the number of its documents times the cost of the longest one,
            otherwise the sum of their costs. The cost of a document is its number of tokens; see `quadratic`.
        sampler: the order of the documents, a sampler of gluonloader or a list of indices. None for a random order if
            `shuffle`, otherwise for the order of `lengths`.
        max_samples: the largest number of documents in a batch; None for no limit.
        padded: whether the documents of a batch are padded to the longest one.
        quadratic: a document of n tokens costs n + n**2 / quadratic, since attention costs more for long documents;
            None for n.
        window: number of documents that are sorted at once.
        multiple: lengths are rounded up to a multiple of this, as the padding of the batches does.
        long: what to do with a document that costs more than `max_tokens`: 'error' raises a ValueError, 'drop' leaves
            it out.
        shuffle: the order of the documents is random, unless `sampler` is passed, and so is the order of the batches of
            a window. Without it, the longest come first in each window.
        seed: an int; None draws one from NumPy's global generator now.

    The number of batches is known only when all of them are planned, so `len()` raises a TypeError: `count()` plans an
    epoch and returns the number.

    >>> list(TokenBatchSampler([5, 3, 2, 6, 1], max_tokens=8, shuffle=False))
    [[3], [0], [1, 2], [4]]
    >>> list(TokenBatchSampler([5, 3, 2, 6, 1], max_tokens=8, padded=False, shuffle=False))
    [[3], [0, 1], [2, 4]]
    """

    _units = "batches"
    _yields_batches = True
    _no_stats = TokenBatchStats()

    def __init__(
        self,
        lengths: Any,
        max_tokens: int,
        sampler: Any = None,
        max_samples: int | None = None,
        padded: bool = True,
        quadratic: float | None = None,
        window: int = 2048,
        multiple: int = 1,
        long: LongSamples = "error",
        shuffle: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__(lengths, window, sampler, shuffle, seed)
        check_flags(padded=padded)
        self._max_tokens, self._multiple = check_int("max_tokens", max_tokens, 1), check_int("multiple", multiple, 1)
        self._max_samples = None if max_samples is None else check_int("max_samples", max_samples, 1)
        if quadratic is not None and not is_positive(quadratic):
            raise bad_argument("quadratic", quadratic, "must be a number > 0, or None")
        if long not in ("drop", "error"):
            raise bad_argument("long", long, "must be 'drop' or 'error'")
        self._padded, self._quadratic, self._long = bool(padded), quadratic and float(quadratic), long
        self._identity = {
            **self._identity, "max_tokens": self.max_tokens, "max_samples": self._max_samples,
            "padded": self._padded, "quadratic": self._quadratic, "multiple": self._multiple, "long": long,
        }  # fmt: skip

    @property
    def max_tokens(self) -> int:
        """The budget of a batch."""
        return self._max_tokens

    @short_repr
    def __repr__(self) -> str:
        about = f"{len(self.lengths):,} documents", describe(self.sampler)
        return call(self, *about, *arguments(max_tokens=self.max_tokens, max_samples=self._max_samples))

    def stats(self) -> TokenBatchStats:
        """What was planned so far in the newest epoch, since it started or was resumed."""
        stats: TokenBatchStats = self._stats
        return stats

    def _plan(self, seed: int, number: int, documents: Integers) -> PlannedWindow:
        costs = self._costs(documents)
        fits = costs <= self.max_tokens
        if self._long == "error" and not fits.all():
            index = int(fits.argmin())
            raise ValueError(
                f"document {documents[index]} costs {costs[index]:g} tokens, more than max_tokens={self.max_tokens}; "
                "pass long='drop' to leave such documents out, or a larger max_tokens"
            )
        longest_first = np.argsort(-costs, kind="stable")[len(costs) - int(fits.sum()) :]
        sizes = self._cut(costs[longest_first])
        ends = np.cumsum(sizes)
        batches = [part.tolist() for part in np.split(documents[longest_first], ends[:-1])] if sizes else []
        if self._shuffle:
            batches = _shuffled(batches, np.random.default_rng(batch_seed(seed, number)))
        return PlannedWindow(batches, self._stats_of(costs[longest_first], sizes, len(documents)))

    def _costs(self, documents: Integers) -> NDArray[Any]:
        rounded = (
            -(-np.maximum(self._lengths_of(documents), 1) // self._multiple) * self._multiple
        )  # an empty document is a row, too
        return rounded if self._quadratic is None else rounded + rounded**2 / self._quadratic

    def _cut(self, costs: NDArray[Any]) -> list[int]:
        """The number of documents in each batch, for documents in the order of falling costs."""
        sizes, start, most = [], 0, self._max_samples or len(costs)
        sums = None if self._padded else np.cumsum(costs)
        while start < len(costs):
            if sums is None:
                size = int(self.max_tokens // costs[start])
            else:
                before = sums[start - 1] if start else 0
                size = int(np.searchsorted(sums, before + self.max_tokens, "right")) - start
            size = min(max(size, 1), most, len(costs) - start)
            sizes.append(size)
            start += size
        return sizes

    def _stats_of(self, costs: NDArray[Any], sizes: list[int], read: int) -> TokenBatchStats:
        starts = np.cumsum([0, *sizes])[:-1]
        if not sizes:
            return TokenBatchStats(dropped=read)
        cost = (costs[starts] * sizes).sum() if self._padded else costs.sum()
        return TokenBatchStats(len(sizes), len(costs), float(cost), len(sizes) * self.max_tokens, read - len(costs))


def _shuffled(batches: list[list[int]], rng: np.random.Generator) -> list[list[int]]:
    """The batches in random order, of which those of similar cost stay together."""
    groups = [batches[start : start + _SIMILAR] for start in range(0, len(batches), _SIMILAR)]
    shuffled: list[list[int]] = []
    for group in rng.permutation(len(groups)).tolist():
        shuffled += [groups[group][number] for number in rng.permutation(len(groups[group])).tolist()]
    return shuffled
