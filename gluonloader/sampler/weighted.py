"""`WeightedSampler` draws random indices by weights, which the user may change while an epoch runs."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..checks import check_int
from ..errors import bad_argument, bad_state, explain_arguments, warn
from ..state import field
from .base import SeededSampler, chained
from .bijection import hashes
from .passes import Computed, Integers, Sliceable
from .saved import PATH, digest

Floats = NDArray[np.float64]

_DRAWN_AT_ONCE: Final = 4096  # random numbers
_MOST_SAVED: Final = 64 * 1024  # bytes of compressed weights in a state
_COMPRESSED_AT_ONCE: Final = 64 * 1024  # bytes of weights: more are not compressed if these exceed the limit already


class WeightedSampler(SeededSampler):
    """Yields random indices, each with a probability in proportion to its weight.

    Index number k of an epoch depends only on (seed, epoch), k and the weights at the moment when it is drawn. New
    `weights` apply from the next index that is drawn or, without replacement, from the next epoch. A loader draws
    indices ahead: after `it.sampler.weights = new`, call `it.flush()` on its iterator to draw these indices again. The
    state of a loader contains weights that were changed, if they have at most 64 kB when they are compressed.

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

    @explain_arguments(generator="pass an int as seed instead")
    def __init__(
        self, weights: Any, num_samples: int | None = None, replacement: bool = True, seed: int | None = None
    ) -> None:
        if not isinstance(replacement, (bool, np.bool_)):
            raise bad_argument("replacement", replacement, "must be True or False")
        self._replacement = bool(replacement)
        checked = _checked(weights)
        self._count = len(checked) if num_samples is None else check_int("num_samples", num_samples)
        self._given = _Saved(checked)  # the weights that every new sampler with the same arguments has
        self._set(self._given)
        super().__init__(seed)

    @property
    def draws_by_current_weights(self) -> bool:
        """Whether new weights apply to an epoch that has started."""
        return self._replacement

    @property
    def weights(self) -> Floats:
        """The weights, as a read-only array; to change a weight, assign a new array with all weights."""
        return self._weights

    @weights.setter
    def weights(self, weights: Any) -> None:
        checked = _checked(weights)
        if len(checked) != len(self._weights):
            raise ValueError(f"weights: the number of weights must stay {len(self._weights)}, not {len(checked)}")
        self._set(_Saved(checked))
        self.changes += 1

    def _set(self, new: _Saved, next_pass: _Saved | None = None) -> None:
        """Sets the weights; `next_pass` are those that replace them when the next pass has started."""
        possible = self._possible(new.weights)
        self._table = np.cumsum(new.weights), int(possible[-1])
        self._saved, self._weights, self._next = new, new.weights, next_pass

    def _possible(self, weights: Floats) -> Integers:
        """The indices with a weight > 0."""
        possible: Integers = np.flatnonzero(weights)
        if not self._replacement and self._count > len(possible):
            right = f"must be at most {len(possible)}, the number of weights > 0, if replacement=False"
            raise bad_argument("num_samples", self._count, right)
        return possible

    @property
    def random_over(self) -> Any:
        return np.flatnonzero(self._weights)

    def _may_yield(self, key: Any) -> bool:
        return type(key) is int and 0 <= key < len(self._weights)

    def _order(self) -> Sliceable:
        seed = self.next_pass_seed()
        if self._replacement:
            ends = range(_DRAWN_AT_ONCE, self._count + _DRAWN_AT_ONCE, _DRAWN_AT_ONCE)
            drawn = np.arange(_DRAWN_AT_ONCE)
            uniform = chained(self._count, ends, lambda number: _uniform(seed, drawn + number * _DRAWN_AT_ONCE))
            return Computed(lambda part: self.pick(uniform[part]))  # uses the weights at the moment of the read
        # If each index arrives after an exponential waiting time whose rate is its weight, the order of arrival is an
        # order of drawing by weight without replacement. Logarithms of the times avoid overflow.
        possible = np.flatnonzero(self._weights)
        waits = np.log(-np.log(_uniform(seed, possible))) - np.log(self._weights[possible])
        order: Integers = possible[np.argsort(waits, kind="stable")[: self._count]]
        if self._next is not None:
            self._set(self._next)
            self.changes += 1
        return order

    def __len__(self) -> int:
        return self._count

    def pick(self, uniform: Floats) -> Integers:
        """The indices that random numbers from (0, 1) choose by the current weights."""
        cumulated, last = self._table
        picked: Integers = np.minimum(np.searchsorted(cumulated, uniform * cumulated[-1], "right"), last)
        return picked

    def pass_state(self) -> dict[str, Any]:
        about = {**super().pass_state(), "replacement": self._replacement, "given": self._given.digest}
        state = {**about, "weights": self._field(self._saved)}
        return state if self._next is None else {**state, "next_weights": self._field(self._next)}

    def refreshed(self, state: dict[str, Any], drawn: int) -> dict[str, Any]:
        """With replacement, the pass draws by the weights of now; without, only the next pass does."""
        now = self._field(self._saved)
        if self._replacement:
            return {**state, "weights": now}
        same = {name: value for name, value in state.items() if name != "next_weights"}
        return same if now == state["weights"] else {**same, "next_weights": now}

    def _field(self, saved: _Saved) -> str | dict[str, str]:
        """The field of a state: a digest of the weights; the weights themselves, if they were changed."""
        is_given = saved is self._given or saved.digest == self._given.digest
        return saved.digest if is_given or saved.packed is None else {"zlib": saved.packed}

    def check_pass_state(self, state: Mapping[str, Any], *free: str) -> None:
        super().check_pass_state(state, "given", "weights", "next_weights", *free)
        given = field(state, "given", PATH)
        if not isinstance(given, str) or not re.fullmatch("[0-9a-f]{32}", given):
            raise bad_state(f"{PATH}given", given, "must be a hash, 32 hexadecimal digits")
        for name in self._weights_in(state):
            self._load(name, state[name])

    def load_pass_state(self, state: Mapping[str, Any], drawn: int) -> int:
        super().load_pass_state(state, drawn)
        now, *later = [self._load(name, state[name]) for name in self._weights_in(state)]
        if state["given"] != self._given.digest and now is not self._saved:
            warn(
                f"the weights of this {type(self).__name__} differ from those in the state, which apply from now on; "
                "for others, set the attribute `weights` after the state is loaded"
            )
        if now is not self._saved or later or self._next is not None:
            self._set(now, *later)
            self.changes += 1
        return drawn

    def _weights_in(self, state: Mapping[str, Any]) -> list[str]:
        """The names of the fields with weights."""
        field(state, "weights", PATH)
        return ["weights", *["next_weights"] * ("next_weights" in state and not self._replacement)]

    def _load(self, name: str, value: Any) -> _Saved:
        """The weights of a field; ValueError if they are not known here, or do not fit."""
        whose = f"this {type(self).__name__}"
        known = {saved.digest: saved for saved in (self._given, self._saved)}
        if isinstance(value, str):
            if value not in known:
                raise bad_state(PATH + name, value, _OTHER.format(whose))
            return known[value]
        try:
            saved = _Saved(_checked(_unpacked(field(value, "zlib", f"{PATH}{name}."), len(self._weights))))
            self._possible(saved.weights)
        except (TypeError, ValueError, zlib.error) as error:
            raise bad_state(PATH + name, value, f"these weights do not fit {whose} ({error})") from None
        return known.get(saved.digest, saved)


_OTHER: Final = (
    "it was saved with other weights than {} has; set the saved weights first: sampler.weights = weights. A state "
    "contains weights only if they were changed and have at most 64 kB when they are compressed; save others beside "
    'the state, for example with numpy.save("weights.npy", sampler.weights)'
)


class _Saved:
    """Weights, and how a state contains them; both are computed when a state is saved.

    Attributes:
        weights: a read-only array.
    """

    def __init__(self, weights: Floats) -> None:
        self.weights = weights

    @cached_property
    def digest(self) -> str:
        """A hash of the weights."""
        return digest(self.weights)

    @cached_property
    def packed(self) -> str | None:
        """The weights as a text, exact to the last bit; None if the text would be too long."""
        data = self.weights.astype("<f8", copy=False).view(np.uint8).data
        compressor, packed = zlib.compressobj(), b""
        for start in range(0, len(data), _COMPRESSED_AT_ONCE):
            packed += compressor.compress(data[start : start + _COMPRESSED_AT_ONCE])
            if len(packed) > _MOST_SAVED:
                return None
        packed += compressor.flush()
        return None if len(packed) > _MOST_SAVED else base64.b64encode(packed).decode()


def _unpacked(text: Any, count: int) -> Floats:
    """The `count` weights in a text; an error if it has another number of weights."""
    decompressor = zlib.decompressobj()
    data = decompressor.decompress(base64.b64decode(text, validate=True), 8 * count + 1)
    if len(data) != 8 * count or not decompressor.eof or decompressor.unused_data:
        raise ValueError(f"the text does not contain {count} weights")
    return np.frombuffer(data, "<f8").astype(np.float64)


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
