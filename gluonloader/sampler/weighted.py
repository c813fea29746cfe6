"""`WeightedSampler` draws random indices by weights, which the user may change while an epoch runs."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..checks import check_int
from ..errors import bad_argument, bad_state, explain_arguments, warn
from ..indices import checksum_of_array
from ..state import field
from .base import SeededSampler, chained
from .bijection import hashes
from .passes import Computed, Integers, Order, lazily
from .saved import PATH

Floats = NDArray[np.float64]

_DRAWN_AT_ONCE: Final = 4096  # random numbers
_MOST_SAVED: Final = 64 * 1024  # bytes of compressed weights in a state
_COMPRESSED_AT_ONCE: Final = 64 * 1024  # bytes of weights: more are not compressed if these exceed the limit already


class WeightedSampler(SeededSampler):
    """Yields random indices, each with a probability in proportion to its weight.

    Index number k of an epoch depends only on (seed, epoch), k and the weights at the moment when it is drawn. New
    `weights` apply from the next index that is drawn or, without replacement, from the next epoch that has not started.
    A loader draws indices ahead: after `it.sampler.weights = new`, call `it.flush()` on its iterator to draw these
    indices again. The state of a loader contains weights that were changed, if they have at most 64 kB when they are
    compressed.

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
        self._given = WeightTable(checked)  # the weights that every new sampler with the same arguments has
        # From which epoch on which weights apply; with replacement, those of now.
        self._since = [(0, self._possible(self._given))]
        super().__init__(seed)
        self._identity = {"replacement": self._replacement}

    @property
    def draws_by_current_weights(self) -> bool:
        """Whether new weights apply to an epoch that has started."""
        return self._replacement

    @property
    def weights(self) -> Floats:
        """The weights, as a read-only array; to change a weight, assign a new array with all weights."""
        return self._since[-1][1].weights

    @weights.setter
    def weights(self, weights: Any) -> None:
        checked = _checked(weights)
        if len(checked) != len(self.weights):
            raise ValueError(f"weights: the number of weights must stay {len(self.weights)}, not {len(checked)}")
        first = 0 if self._replacement else self.epoch
        kept = [(epoch, saved) for epoch, saved in self._since if epoch < first][-1:]
        self._since = [*kept, (first, self._possible(WeightTable(checked)))]
        self.changes += 1

    @property
    def weights_checksum(self) -> str:
        """A checksum of `weights`, which is computed once."""
        return self._since[-1][1].checksum

    def _possible(self, saved: WeightTable) -> WeightTable:
        """The same weights; ValueError if too few of them are > 0."""
        possible = np.count_nonzero(saved.weights)
        if not self._replacement and self._count > possible:
            right = f"must be at most {possible}, the number of weights > 0, if replacement=False"
            raise bad_argument("num_samples", self._count, right)
        return saved

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration use the order of this epoch, and the weights that were set last."""
        super().set_epoch(epoch)
        self._since = [(min(first, self.epoch), saved) for first, saved in self._since]

    @property
    def random_over(self) -> Any:
        return np.flatnonzero(self.weights)

    def _may_yield(self, key: Any) -> bool:
        return type(key) is int and 0 <= key < len(self.weights)

    def order(self, epoch: int) -> Order:
        if self._replacement:
            read = self._drawn(self.epoch_seed(epoch)).__getitem__
            return Computed(read, saved=lambda offset: self._fields([(0, self._since[-1][1])], epoch))
        since = [(first, saved) for first, saved in self._since if first <= epoch][-1:] or self._since[:1]
        order = lazily(partial(self._once, self.epoch_seed(epoch), since[0][1].weights))
        return Computed(order.__getitem__, saved=lambda offset: self._fields(since + self._since[-1:], epoch))

    def _drawn(self, seed: int) -> Order:
        """With replacement, by the weights at the moment of the read."""
        ends = range(_DRAWN_AT_ONCE, self._count + _DRAWN_AT_ONCE, _DRAWN_AT_ONCE)
        drawn = np.arange(_DRAWN_AT_ONCE)
        uniform = chained(self._count, ends, lambda number: _uniform(seed, drawn + number * _DRAWN_AT_ONCE))
        return Computed(lambda part: self._since[-1][1].pick(uniform[part]))

    def _once(self, seed: int, weights: Floats) -> Integers:
        # If each index arrives after an exponential waiting time whose rate is its weight, the order of arrival is an
        # order of drawing by weight without replacement. Logarithms of the times avoid overflow.
        possible = np.flatnonzero(weights)
        waits = np.log(-np.log(_uniform(seed, possible))) - np.log(weights[possible])
        order: Integers = possible[np.argsort(waits, kind="stable")[: self._count]]
        return order

    def __len__(self) -> int:
        return self._count

    def _fields(self, since: list[tuple[int, WeightTable]], epoch: int) -> dict[str, Any]:
        """What a position contains: the weights of its epoch, and those of the next epoch if they differ."""
        fields = {"given": self._given.checksum, "weights": self._field(since[0][1])}
        later = self._field(since[-1][1])
        return fields if later == fields["weights"] else {**fields, "next_weights": later}

    def _field(self, saved: WeightTable) -> str | dict[str, str]:
        """The field of a state: a checksum of the weights; the weights themselves, if they were changed."""
        is_given = saved is self._given or saved.checksum == self._given.checksum
        return saved.checksum if is_given or saved.packed is None else {"zlib": saved.packed}

    def loading(self, state: Mapping[str, Any]) -> Callable[[], None]:
        load_rest = super().loading(state)
        given = field(state, "given", PATH)
        if not isinstance(given, str) or not re.fullmatch("[0-9a-f]{8}", given):
            raise bad_state(f"{PATH}given", given, "must be a checksum, 8 hexadecimal digits")
        now, *later = [self._load(name, state[name]) for name in self._weights_in(state)]

        def load() -> None:
            load_rest()
            if given != self._given.checksum and now.checksum != self._since[-1][1].checksum:
                warn(
                    f"the weights of this {type(self).__name__} differ from those in the state, which apply from now "
                    "on; for others, set the attribute `weights` after the state is loaded"
                )
            since = [(0, now), *((self.epoch + 1, saved) for saved in later)]
            if [saved.checksum for _, saved in since] != [saved.checksum for _, saved in self._since]:
                self.changes += 1
            self._since = since

        return load

    def _weights_in(self, state: Mapping[str, Any]) -> list[str]:
        """The names of the fields with weights."""
        field(state, "weights", PATH)
        return ["weights", *["next_weights"] * ("next_weights" in state and not self._replacement)]

    def _load(self, name: str, value: Any) -> WeightTable:
        """The weights of a field; ValueError if they are not known here, or do not fit."""
        whose = f"this {type(self).__name__}"
        known = {saved.checksum: saved for saved in (self._given, *(saved for _, saved in self._since))}
        if isinstance(value, str):
            if value not in known:
                raise bad_state(PATH + name, value, _OTHER.format(whose))
            return known[value]
        try:
            saved = WeightTable(_checked(_unpacked(field(value, "zlib", f"{PATH}{name}."), len(self.weights))))
            self._possible(saved)
        except (TypeError, ValueError, zlib.error) as error:
            raise bad_state(PATH + name, value, f"these weights do not fit {whose} ({error})") from None
        return known.get(saved.checksum, saved)


_OTHER: Final = (
    "it was saved with other weights than {} has; set the saved weights first: sampler.weights = weights. A state "
    "contains weights only if they were changed and have at most 64 kB when they are compressed; save others beside "
    'the state, for example with numpy.save("weights.npy", sampler.weights)'
)


class WeightTable:
    """Weights, how indices are drawn by them, and how a state contains them; all is computed when it is used.

    Attributes:
        weights: a read-only array.
    """

    def __init__(self, weights: Floats) -> None:
        self.weights = weights

    @cached_property
    def _table(self) -> tuple[Floats, int]:
        return np.cumsum(self.weights), int(np.flatnonzero(self.weights)[-1])

    def pick(self, uniform: Floats) -> Integers:
        """The indices that random numbers from (0, 1) choose by these weights."""
        cumulated, last = self._table
        picked: Integers = np.minimum(np.searchsorted(cumulated, uniform * cumulated[-1], "right"), last)
        return picked

    @cached_property
    def checksum(self) -> str:
        """8 hexadecimal digits."""
        return f"{checksum_of_array(self.weights):08x}"

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
