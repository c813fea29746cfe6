"""Sampling by weight, where weights may change at any moment."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..checks import check_int
from ..errors import bad_argument, bad_state, explain_torch_arguments
from ..state import field
from .base import PATH, SeededSampler, Sliceable, digest
from .bijection import hashes

__all__ = ["WeightedSampler"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_BLOCK: Final = 4096


class WeightedSampler(SeededSampler):
    """Indices drawn by chance, each in proportion to its weight.

    What is drawn at each position is a function of (seed, epoch) and of the weights at that moment. Setting `weights`
    takes effect with the very next index that is drawn; without replacement, with the next epoch. A loader draws ahead:
    after `it.sampler.weights = new`, `it.flush()` has it draw anew.

    Args:
        weights: a number >= 0 for each sample, at least one of them more than 0.
        num_samples: how many indices an epoch has; default: as many as there are weights.
        replacement: whether an index can come more than once.
        seed: an int; None draws one from NumPy's global generator now.

    >>> sampler = WeightedSampler([0, 3, 1], num_samples=8, seed=0)
    >>> list(sampler)
    [2, 1, 2, 2, 1, 1, 2, 1]
    >>> sampler.weights = [1, 0, 0]
    >>> list(sampler)
    [0, 0, 0, 0, 0, 0, 0, 0]
    """

    @explain_torch_arguments(generator="give seed, an int")
    def __init__(
        self, weights: Any, num_samples: int | None = None, replacement: bool = True, seed: int | None = None
    ) -> None:
        if not isinstance(replacement, (bool, np.bool_)):
            raise bad_argument("replacement", replacement, "give True or False")
        self._replacement = bool(replacement)
        self._ahead = 0  # weights may change before what was read ahead is taken
        self.live = ("weights",) if self._replacement else ()
        checked = _checked(weights)
        self._count = len(checked) if num_samples is None else check_int("num_samples", num_samples)
        self._set(checked)
        super().__init__(seed)

    @property
    def weights(self) -> Floats:
        """The weights, read-only: set all of them to change any."""
        return self._weights

    @weights.setter
    def weights(self, weights: Any) -> None:
        checked = _checked(weights)
        if len(checked) != len(self._weights):
            raise ValueError(f"weights: give {len(self._weights)}, as many as before, not {len(checked)}")
        self._set(checked)

    def _set(self, weights: Floats) -> None:
        possible = np.flatnonzero(weights)
        if not self._replacement and self._count > len(possible):
            right = f"without replacement give at most {len(possible)}, the number of weights that are more than 0"
            raise bad_argument("num_samples", self._count, right)
        self._weights, self._digest = weights, ""
        self._table = np.cumsum(weights), int(possible[-1])

    def _order(self) -> Sliceable:
        key = self._next_key()
        return _Draws(self, key) if self._replacement else self._without_replacement(key)

    def __len__(self) -> int:
        return self._count

    def pick(self, uniform: Floats) -> Integers:
        """The index that each number from (0, 1) stands for, by the weights as they are now."""
        cumulated, last = self._table
        picked: Integers = np.minimum(np.searchsorted(cumulated, uniform * cumulated[-1], "right"), last)
        return picked

    def _without_replacement(self, key: int) -> Integers:
        # Waiting times with the weights as rates: who comes first is chosen by weight, then who of the rest, and so on.
        possible = np.flatnonzero(self._weights)
        waits = np.log(-np.log(_uniform(key, possible))) - np.log(self._weights[possible])
        first: Integers = possible[np.argsort(waits, kind="stable")[: self._count]]
        return first

    def pass_state(self) -> dict[str, Any]:
        self._digest = self._digest or digest(self._weights)
        return {**super().pass_state(), "replacement": self._replacement, "weights": self._digest}

    def _check_state(self, state: Any, *free: str) -> None:
        super()._check_state(state, "weights", *free)
        saved = field(state, "weights", PATH)
        if saved != self.pass_state()["weights"]:
            right = f"is of other weights than the {type(self).__name__} here has; set those it was saved with first"
            raise bad_state(PATH + "weights", saved, right)


class _Draws:
    """An order that is drawn when it is asked for."""

    def __init__(self, sampler: WeightedSampler, key: int) -> None:
        self._sampler, self._key = sampler, key
        self._start, self._uniform = 0, np.empty(0)  # a block of chance, which does not depend on weights

    def __getitem__(self, part: slice) -> Integers:
        start, stop, step = part.indices(len(self._sampler))
        if start < self._start or stop > self._start + len(self._uniform):
            self._start = start
            self._uniform = _uniform(self._key, np.arange(start, max(stop, start + _BLOCK)))
        return self._sampler.pick(self._uniform[start - self._start : stop - self._start : step])


def _uniform(key: int, numbers: Integers) -> Floats:
    """A number from (0, 1) for each."""
    chance: Floats = ((hashes(key, numbers) >> np.uint64(12)) + 0.5) * 2.0**-52
    return chance


def _checked(weights: Any) -> Floats:
    right = "weights: give a number >= 0 for each sample, at least one of them more than 0"
    try:
        checked: Floats = np.asarray(weights, np.float64).copy()
    except (TypeError, ValueError) as error:
        raise ValueError(f"{right} ({error})") from None
    if checked.ndim != 1:
        raise ValueError(f"{right}, not shape {checked.shape}")
    wrong = np.flatnonzero(~(np.isfinite(checked) & (checked >= 0)))
    if wrong.size:
        raise ValueError(f"{right}; weights[{wrong[0]}] is {checked[wrong[0]]}")
    with np.errstate(over="ignore"):
        total = checked.sum()
    if not 0 < total < np.inf:
        raise ValueError(f"{right}; their sum is {total}")
    checked.flags.writeable = False
    return checked
