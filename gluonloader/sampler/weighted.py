"""`WeightedSampler` draws random indices by weights, which the user may change while an epoch runs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..checks import check_int
from ..errors import bad_argument, bad_state, explain_torch_arguments
from ..state import field
from .base import SeededSampler, chained
from .bijection import hashes
from .passes import Computed, Integers, Sliceable
from .saved import PATH, digest

Floats = NDArray[np.float64]

_DRAWN_AT_ONCE: Final = 4096  # random numbers


class WeightedSampler(SeededSampler):
    """Yields random indices, each with a probability in proportion to its weight.

    Index number k of an epoch depends only on (seed, epoch), k and the weights at the moment when it is drawn. New
    `weights` apply from the next index that is drawn or, without replacement, from the next epoch. A loader draws
    indices ahead: after `it.sampler.weights = new`, call `it.flush()` on its iterator to draw these indices again.

    Args:
        weights: a number >= 0 for each sample; at least one weight is more than 0.
        num_samples: number of indices in an epoch; the default is the number of weights.
        replacement: whether an epoch may contain an index more than once.
        seed: an int; None draws one from NumPy's global generator now.

    >>> sampler = WeightedSampler([0, 3, 1], num_samples=8, seed=0)
    >>> list(sampler)
    [2, 1, 2, 2, 1, 1, 2, 1]
    >>> sampler.weights = [1, 0, 0]
    >>> list(sampler)
    [0, 0, 0, 0, 0, 0, 0, 0]
    """

    _read_ahead = 0  # weights may change before an index that was read ahead is used
    changes = 0  # how often `weights` was set

    @explain_torch_arguments(generator="pass an int as seed instead")
    def __init__(
        self, weights: Any, num_samples: int | None = None, replacement: bool = True, seed: int | None = None
    ) -> None:
        if not isinstance(replacement, (bool, np.bool_)):
            raise bad_argument("replacement", replacement, "must be True or False")
        self._replacement = bool(replacement)
        self.live = ("weights",) if self._replacement else ()
        checked = _checked(weights)
        self._count = len(checked) if num_samples is None else check_int("num_samples", num_samples)
        self._set(checked)
        super().__init__(seed)

    @property
    def weights(self) -> Floats:
        """The weights, as a read-only array; to change a weight, assign a new array with all weights."""
        return self._weights

    @weights.setter
    def weights(self, weights: Any) -> None:
        checked = _checked(weights)
        if len(checked) != len(self._weights):
            raise ValueError(f"weights: the number of weights must stay {len(self._weights)}, not {len(checked)}")
        self._set(checked)
        self.changes += 1

    def _set(self, weights: Floats) -> None:
        possible = np.flatnonzero(weights)
        if not self._replacement and self._count > len(possible):
            right = f"must be at most {len(possible)}, the number of weights > 0, if replacement=False"
            raise bad_argument("num_samples", self._count, right)
        self._weights, self._digest = weights, ""
        self._table = np.cumsum(weights), int(possible[-1])

    @property
    def random_over(self) -> Any:
        return np.flatnonzero(self._weights)

    def _order(self) -> Sliceable:
        seed = self._next_pass_seed()
        if self._replacement:
            ends = range(_DRAWN_AT_ONCE, self._count + _DRAWN_AT_ONCE, _DRAWN_AT_ONCE)
            drawn = np.arange(_DRAWN_AT_ONCE)
            uniform = chained(self._count, ends, lambda number: _uniform(seed, drawn + number * _DRAWN_AT_ONCE))
            return Computed(lambda part: self.pick(uniform[part]))  # uses the weights at the moment of the read
        # If each index arrives after an exponential waiting time whose rate is its weight, the order of arrival is an
        # order of drawing by weight without replacement. Logarithms of the times avoid overflow.
        possible = np.flatnonzero(self._weights)
        waits = np.log(-np.log(_uniform(seed, possible))) - np.log(self._weights[possible])
        return possible[np.argsort(waits, kind="stable")[: self._count]]

    def __len__(self) -> int:
        return self._count

    def pick(self, uniform: Floats) -> Integers:
        """The indices that random numbers from (0, 1) choose by the current weights."""
        cumulated, last = self._table
        picked: Integers = np.minimum(np.searchsorted(cumulated, uniform * cumulated[-1], "right"), last)
        return picked

    def pass_state(self) -> dict[str, Any]:
        self._digest = self._digest or digest(self._weights)
        return {**super().pass_state(), "replacement": self._replacement, "weights": self._digest}

    def _check_state(self, state: Any, *free: str) -> None:
        super()._check_state(state, "weights", *free)
        saved = field(state, "weights", PATH)
        if saved != self.pass_state()["weights"]:
            right = f"it was saved with other weights than this {type(self).__name__} has; set the saved weights first"
            raise bad_state(PATH + "weights", saved, right)


def _uniform(seed: int, numbers: Integers) -> Floats:
    """A random number from (0, 1) for each of `numbers`, a hash of the number and the seed."""
    uniform: Floats = ((hashes(seed, numbers) >> np.uint64(12)) + 0.5) * 2.0**-52
    return uniform


def _checked(weights: Any) -> Floats:
    right = "weights: pass a number >= 0 for each sample, and at least one number > 0"
    try:
        checked: Floats = np.asarray(weights, np.float64).copy()
    except (TypeError, ValueError) as error:
        raise ValueError(f"{right} ({error})") from None
    if checked.ndim != 1:
        raise ValueError(f"{right}, not values of shape {checked.shape}")
    wrong = np.flatnonzero(~(np.isfinite(checked) & (checked >= 0)))
    if wrong.size:
        raise ValueError(f"{right}; weights[{wrong[0]}] is {checked[wrong[0]]}")
    with np.errstate(over="ignore"):
        total = checked.sum()
    if not 0 < total < np.inf:
        raise ValueError(f"{right}; their sum is {total}")
    checked.flags.writeable = False
    return checked
