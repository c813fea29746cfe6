"""Samplers that plan their order window by window, so that a start takes the same time for any number of keys.

    order of the sampler below --a window of its keys--> plan --> units of the order: rows, or batches

The number of units in a window is known only after the window is planned. So the order has no length, and `Windows`
counts the units before each window. A saved position contains one of these counts, so a resume plans only one window.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..checks import check_flags, check_int
from ..describe import call, describe, short_repr
from ..errors import bad_argument, bad_state
from ..indices import is_int_array
from ..lengths import checksum_of_lengths, length_if_known
from ..messages import message
from ..sampler.base import SeededSampler, check_ints, check_orders_documents, copy_of, order_of
from ..sampler.passes import Integers, Order, UnknownLength, as_keys, can_change, change_from, length_of
from ..sampler.saved import FIXED, PATH, identity_of, inner_state, loading_order, saved_order
from ..sampler.shuffled import RandomSampler
from ..state import field, int_field

S = TypeVar("S", bound="Sums")

_KEPT: Final = 2  # planned windows; batches in flight and saved positions need the last ones
_MOST_FORGOTTEN: Final = 64  # windows that were planned ahead, and are not counted any more if they are planned again


class Sums:
    """Base class of dataclasses of numbers, which can be added."""

    __slots__ = ()

    def __add__(self: S, other: S) -> S:
        return type(self)(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))  # type: ignore[arg-type]


@message(frozen=True, slots=True)
class PlannedWindow:
    """What was planned for a window.

    Attributes:
        units: a sequence of them.
        stats: what the sampler counts.
    """

    units: Any
    stats: Any = None


@message(frozen=True, slots=True)
class Checkpoint:
    """How many units come before a window."""

    window: int = 0
    units: int = 0


class Windows:
    """The windows of one pass, and how many units come before each.

    Args:
        keys: the order of the sampler below.
        length: number of these keys; None if it is not known.
        size: number of keys in a window.
        plan: plans a window from its number and its keys.
        saved_below: what a position in `keys` contains, a function of its offset.
        start: the first window that is counted.
        stats: what was counted before anything is planned.

    Attributes:
        stats: the sum of the `stats` of all windows that were planned, each counted once, without those forgotten.
    """

    def __init__(
        self,
        keys: Order,
        length: int | None,
        size: int,
        plan: Callable[[int, Integers], PlannedWindow],
        saved_below: Callable[[int], dict[str, Any]],
        start: Checkpoint,
        stats: Any,
    ) -> None:
        self._keys, self._length, self._size, self._plan, self.stats = keys, length, size, plan, stats
        self._saved_below, self._no_stats = saved_below, stats
        self._first, self._before = start.window, array("q", [start.units])
        self._kept: dict[int, PlannedWindow] = {}
        self._stats_before: dict[int, Any] = {}  # by window, of the last ones

    def from_start(self) -> Windows:
        """The same windows, counted from the first one."""
        start = Checkpoint(), self._no_stats
        return Windows(self._keys, self._length, self._size, self._plan, self._saved_below, *start)

    def take_counts(self, other: Windows) -> None:
        """Takes the counts of the same epoch, so that their windows need not be planned again."""
        self._first, self._before = other._first, other._before[:]

    def number_of(self, unit: int) -> int:
        """The last counted window that starts at this unit or before it; -1 if there is none."""
        number = bisect_right(self._before, unit) - 1
        return self._first + number if number >= 0 else -1

    def before(self, number: int) -> int:
        """How many units come before a counted window."""
        return self._before[number - self._first]

    def change_from(self, unit: int) -> bool:
        """Lets what the user has changed apply from the first window that starts at this unit or after it.

        Windows that were planned from there on are forgotten; see NOTE [changes] in passes.py.
        """
        number = self.number_of(unit)
        if number < 0 or not can_change(self._keys):
            return False
        while self.before(number) < unit:
            if self.units(number) is None:
                return False
            number += 1
        if not change_from(self._keys, number * self._size):
            return False
        self.stats = self._stats_before.get(number, self.stats)
        del self._before[number - self._first + 1 :]
        self._kept = {known: window for known, window in self._kept.items() if known < number}
        return True

    def saved(self, unit: int) -> dict[str, Any]:
        """What a position before a unit contains: a checkpoint, and where the sampler below is there."""
        number = max(self.number_of(unit), 0)
        units = 0 if number < self._first else self.before(number)
        return {"checkpoint": [number, units], "sampler": self._saved_below(number * self._size)}

    def units(self, number: int) -> Any:
        """Plans a window if that is necessary, and returns its units; None after the last window.

        The units of all windows before it must have been counted.
        """
        found = self._kept.get(number)
        if found is None:
            start, stop = number * self._size, (number + 1) * self._size
            stop = stop if self._length is None else min(stop, self._length)
            keys = as_keys(self._keys[start:stop]) if start < stop else []
            if not len(keys):
                return None
            documents = np.asarray(keys)
            if not is_int_array(documents):
                raise TypeError(f"the indices of documents must be ints, not {keys[0]!r}")
            found = self._plan(number, documents)
            if number - self._first == len(self._before) - 1:  # it was not counted yet
                self._stats_before = dict([*self._stats_before.items(), (number, self.stats)][-_MOST_FORGOTTEN:])
                self.stats += found.stats
                self._before.append(self._before[-1] + len(found.units))
            kept = [*self._kept.items(), (number, found)]
            self._kept = dict(kept[-_KEPT:])
        return found.units


class PlannedOrder:
    """The order whose units are those of one window after another; a window contains a list of them."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows

    def __getitem__(self, part: slice) -> list[Any]:
        windows, start, units = self.windows, part.start, []
        number = windows.number_of(start)
        if number < 0:
            return PlannedOrder(windows.from_start())[part]
        while start < part.stop and (planned := windows.units(number)) is not None:
            before = windows.before(number)
            units += planned[start - before : part.stop - before]
            number += 1
            start = max(start, windows.before(number))
        return units[:: part.step]

    def change_from(self, offset: int) -> bool:
        """See NOTE [changes] in passes.py."""
        return self.windows.change_from(offset)

    def saved(self, offset: int) -> dict[str, Any]:
        """See `Order` in passes.py."""
        return self.windows.saved(offset)


class WindowedSampler(SeededSampler):
    """Base class of samplers that plan windows of documents by their lengths.

    Args:
        lengths: number of tokens of each document, ints of shape (N,).
        window: number of documents in a window.
        sampler: the order of the documents; None for a random order if `shuffle`, otherwise for the order of `lengths`.
        shuffle: whether the plan draws random numbers.
        seed: of the random order, and of what the plan draws.
    """

    _read_ahead = 0
    _units = "units"  # what the order consists of, for the texts
    _no_stats: Any  # what the sampler counts, before anything was planned

    def __init__(self, lengths: Any, window: int, sampler: Any, shuffle: bool, seed: int | None) -> None:
        check_flags(shuffle=shuffle)
        super().__init__(seed, bool(shuffle))
        self.lengths, self._window = _checked_lengths(lengths), check_int("window", window, 1)
        self._shuffle = bool(shuffle)
        if sampler is not None:
            check_orders_documents("sampler", sampler)
        self.sampler = self._documents() if sampler is None else sampler
        self._identity = {
            "documents": len(self.lengths),
            "lengths": checksum_of_lengths(self.lengths),
            "window": self._window,
            "shuffle": self._shuffle,
            **self._keys_of_list(),  # last, since without `shuffle` there is a list: an error is to name `shuffle`
        }
        self._loaded = 0, Checkpoint()  # the epoch of a loaded position, and the place where its windows are counted
        self._newest: tuple[int, Windows] | None = None  # the epoch and the windows of the newest pass

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_newest": None}  # its windows are planned again

    def _keys_of_list(self) -> dict[str, Any]:
        """What says which list or array gives the order of the documents; another sampler has its own state."""
        return {"first_documents": identity_of(self.sampler)["first_keys"]} if isinstance(self.sampler, FIXED) else {}

    def _documents(self) -> Any:
        count = len(self.lengths)
        sampler = RandomSampler(count, self.seed) if self._shuffle else range(count)
        if isinstance(sampler, RandomSampler):
            sampler.adopts = self.adopts
        return sampler

    def _plan(self, seed: int, number: int, documents: Integers) -> PlannedWindow:
        """Plans a window; `seed` is that of the epoch."""
        raise NotImplementedError

    def _lengths_of(self, documents: Integers) -> NDArray[np.int64]:
        """The lengths of these documents."""
        if documents.max() >= len(self.lengths) or documents.min() < 0:
            wrong = int(documents[(documents >= len(self.lengths)) | (documents < 0)][0])
            right = f"it yields the index {wrong}, but there are lengths of {len(self.lengths)} documents"
            raise bad_argument("sampler", self.sampler, right)
        lengths: NDArray[np.int64] = np.asarray(self.lengths[documents], np.int64)
        if lengths.min() < 0:
            index = int(lengths.argmin())
            raise bad_argument(f"lengths[{documents[index]}]", int(lengths[index]), "a length must be >= 0")
        return lengths

    def check_fits(self, dataset: Any, ranks: int) -> None:
        """See `OrderedSampler`."""
        documents = getattr(dataset, "documents", dataset)  # those of a PackedDataset
        count = length_if_known(documents)
        if count not in (None, len(self.lengths)):
            what = f"there are {count:,} documents, but lengths of {len(self.lengths):,}, which the sampler plans with"
            raise ValueError(f"dataset: {what}; pass the lengths of this dataset, or Subset(documents, indices)")

    def _order_of(self, windows: Windows) -> Order:
        return PlannedOrder(windows)

    def order(self, epoch: int) -> Order:
        return self._order_of(self._windows(epoch))

    def reading(self, epoch: int) -> Order:
        windows = self._windows(epoch, reads=True)
        self._newest = epoch, windows
        return self._order_of(windows)

    def _windows(self, epoch: int, reads: bool = False) -> Windows:
        """The windows of an epoch; they are counted from the last place on that is known."""
        loaded, start = self._loaded
        keys = order_of(self.sampler, epoch, reads)
        assert keys is not None, "only samplers whose order is computed are accepted"
        windows = Windows(
            keys,
            length_of(self.sampler),
            self._window,
            partial(self._plan, self.epoch_seed(epoch)),
            partial(saved_order, self.sampler, epoch, keys),
            start if epoch == loaded else Checkpoint(),
            self._no_stats,
        )
        if self._newest is not None and self._newest[0] == epoch and not reads:
            windows.take_counts(self._newest[1])
        return windows

    @property
    def _stats(self) -> Any:
        """What was planned in the newest pass."""
        return self._no_stats if self._newest is None else self._newest[1].stats

    def __len__(self) -> int:
        raise UnknownLength(
            f"the number of {self._units} of an epoch is known only when the whole epoch was planned, so a "
            f"{type(self).__name__} has no length; sampler.count() plans the next epoch and returns the number"
        )

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration use the order of this epoch."""
        if int(epoch) != self.epoch:  # otherwise the iteration may continue at a loaded position
            self._loaded = 0, Checkpoint()
        super().set_epoch(epoch)
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def count(self) -> int:
        """Plans the whole next epoch and returns the number of its units; the sampler does not change."""
        windows: Windows = copy_of(self)._windows(self.epoch).from_start()
        number = 0
        while windows.units(number) is not None:
            number += 1
        return windows.before(number)

    @short_repr
    def __repr__(self) -> str:
        return call(self, f"{len(self.lengths):,} documents", describe(self.sampler))

    def identity(self) -> dict[str, Any]:
        return {**self._identity, **({} if self.adopts else {"seed": self.seed})}

    def loading(self, state: Mapping[str, Any]) -> Callable[[], None]:
        load_rest, checkpoint = super().loading(state), _loaded(state)
        load_sampler = loading_order(self.sampler, inner_state(state))

        def load() -> None:
            load_rest()
            load_sampler()
            self._loaded, self._newest = (self.epoch, checkpoint), None
            if hasattr(self.sampler, "keep_first"):  # the window is planned again, and has to be the same
                self.sampler.keep_first((checkpoint.window + 1) * self._window)

        return load


def _loaded(state: Mapping[str, Any]) -> Checkpoint:
    value = field(state, "checkpoint", PATH)
    if not isinstance(value, list) or len(value) != 2:
        raise bad_state(f"{PATH}checkpoint", value, "must be two ints: a window, and the units before it")
    window, units = (int_field({"checkpoint": number}, "checkpoint", path=PATH) for number in value)
    return Checkpoint(window, units)


def _checked_lengths(lengths: Any) -> NDArray[Any]:
    """The lengths as an array; a mapped array of any int dtype is neither copied nor read."""
    right = "pass the number of tokens of each document, e.g. the attribute `lengths` of a TokenDataset"
    return lengths if is_int_array(lengths) else check_ints("lengths", lengths, right)
