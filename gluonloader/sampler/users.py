"""A user's samplers: their epochs, their states, and copies of them that draw an order again.

gluonloader's samplers count their epochs; a loader sets the epochs of a user's samplers. Their orders are not computed.
To draw the order of an epoch again, a copy draws it, and has to draw the same order each time. A sampler with
`state_dict` and `load_state_dict` continues from a state instead.

NOTE [epochs of users' samplers]: a user's sampler with `set_epoch` yields the same order until its epoch is set. So the
loader calls `set_epoch` with the number of the next epoch as soon as an epoch has ended, or when the next epoch starts
if the epoch was left early. The user may call it, too, and the last call before an epoch counts. If the sampler has an
attribute `epoch`, it shows whether anything but the loader has set it: then that number stays, and the loader counts on
from it. Nothing is set before the first epoch, so a sampler that the user has set keeps its epoch in a new loader.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Any, Final

from ..frameworks import state_from_json, state_to_json
from ..indices import COMPARED, as_list
from ..randomness import seed_restorable
from ..state import has_state
from .base import BatchSampler, SeededSampler, iterating_class, start_pass
from .saved import chain_of, knows_epoch
from .sharded import ShardedSampler

_MOST_COMPARED: Final = 100_000


class UsersEpochs:
    """Sets the epochs of a user's samplers; see NOTE [epochs of users' samplers].

    Args:
        batch_sampler: it and the samplers in it are set, except those of gluonloader.

    Attributes:
        sets: whether they are set; may be set to False.
    """

    def __init__(self, batch_sampler: Any) -> None:
        self._batch_sampler, self.sets = batch_sampler, True
        # The number of the epoch for which the samplers are set, and their own epochs then. All in one attribute, so
        # that `move` can be repeated after an interrupt; see NOTE [interrupts] in executors/base.py.
        self._set: tuple[int, list[int | None]] | None = None

    def move(self, number: int) -> None:
        """Sets the samplers for this epoch, if they are not set for it; a number that the user has set stays."""
        if self.sets and self._set is not None and number != self._set[0]:
            set_users_epochs(self._batch_sampler, self.of(number, number))
        self.note(number)

    def note(self, number: int) -> None:
        """Notes that the samplers are set for this epoch."""
        self._set = number, epochs_of(self._batch_sampler)

    def of(self, number: int, upcoming: int) -> list[int]:
        """The epochs of the samplers in epoch `number`, if the user sets no other epochs.

        Args:
            upcoming: the epoch that starts next, for which the user may have set the samplers.
        """
        set_for, left = self._set or (upcoming, [])
        found = []
        for place, epoch in enumerate(epochs_of(self._batch_sampler)):
            if epoch is None or not self.sets:
                found.append(number)
            else:
                changed = left[place : place + 1] != [epoch]
                found.append(epoch + number - (upcoming if changed else set_for))
        return found

    @property
    def any_late(self) -> bool:
        """Whether a pass may use an epoch that is set after the pass has started, since generators start late."""
        return self.sets and bool(_users_samplers(self._batch_sampler))


def _users_samplers(batch_sampler: Any) -> list[Any]:
    """The samplers with `set_epoch` that do not count their epochs as those of gluonloader do."""
    ours = SeededSampler, ShardedSampler
    return [part for part in chain_of(batch_sampler) if hasattr(part, "set_epoch") and not isinstance(part, ours)]


def epochs_of(batch_sampler: Any) -> list[int | None]:
    """The epoch of each of the user's samplers; None if it has no attribute `epoch` that is an int."""
    epochs = [getattr(sampler, "epoch", None) for sampler in _users_samplers(batch_sampler)]
    return [epoch if isinstance(epoch, int) and not isinstance(epoch, bool) else None for epoch in epochs]


def set_epoch(batch_sampler: Any, epoch: int, users: Sequence[int] = (), loaded: bool = False) -> bool:
    """Sets the epoch of a batch sampler and the samplers in it; returns whether there was one to set.

    Args:
        users: the epochs of the user's samplers, if they are not `epoch`.
        loaded: leave out the samplers whose epoch a loaded position has set.
    """
    known, saved = False, loaded
    for sampler in chain_of(batch_sampler):
        in_state = knows_epoch(sampler) if saved else loaded and has_state(sampler)
        if hasattr(sampler, "set_epoch") and not in_state:
            sampler.set_epoch(epoch)
            known = True
        saved = saved and hasattr(sampler, "order_state")  # no state contains the sampler in a user's batch sampler
    set_users_epochs(batch_sampler, users)
    return known


def set_users_epochs(batch_sampler: Any, epochs: Sequence[int]) -> None:
    """Sets the epoch of each of the user's samplers; the outer ones first, since they may pass their epoch on."""
    for sampler, epoch in zip(_users_samplers(batch_sampler), epochs, strict=False):
        sampler.set_epoch(epoch)


def leave_epoch(batch_sampler: Any, epoch: int) -> None:
    """Sets another epoch than this one, since a user's sampler with a state may keep its place if this is set again."""
    for sampler in _users_samplers(batch_sampler):
        if has_state(sampler):
            sampler.set_epoch(abs(epoch - 1))


def stateful_part(batch_sampler: Any) -> Any:
    """The batch sampler or its sampler, whichever has `state_dict` and `load_state_dict`; None if neither has.

    A sampler whose order ranks divide does not count: all ranks need its state from before the pass, which
    `ShardedSampler.stateful` saves.
    """
    inner = None if isinstance(batch_sampler, ShardedSampler) else getattr(batch_sampler, "sampler", None)
    for sampler in (batch_sampler, inner):
        if has_state(sampler):
            return sampler
    return None


def snapshot(stateful: Any) -> Any:
    """The state of a stateful sampler, as JSON."""
    return state_to_json(type(stateful).__name__, stateful.state_dict())


def restore(stateful: Any, saved: Any) -> None:
    """Loads a `snapshot` into a stateful sampler."""
    stateful.load_state_dict(state_from_json(saved))


class Snapshots:
    """The states of a stateful sampler before each batch that it has yielded ahead of delivery.

    Args:
        stateful: the sampler.
    """

    def __init__(self, stateful: Any) -> None:
        self._stateful = stateful
        self._states: dict[int, Any] = {}  # by the number of the batch

    def take(self, number: int, position: int) -> Any:
        """Saves the state before batch `number`, and returns it; drops states before `position`."""
        state = snapshot(self._stateful)
        self._states = {drawn: kept for drawn, kept in self._states.items() if drawn >= position} | {number: state}
        return state

    def before(self, number: int) -> Any:
        """The state before a batch that was drawn, or the state now, before the next batch."""
        return self._states[number] if number in self._states else snapshot(self._stateful)

    def restore(self, number: int) -> None:
        """Makes the sampler continue with this batch."""
        restore(self._stateful, self.before(number))


def users_copy(batch_sampler: Any, shared: Any) -> Any:
    """A copy of a batch sampler, at the start of a pass; it refers to the same object `shared`."""
    new = copy.deepcopy(batch_sampler, {id(shared): shared})
    if isinstance(new, BatchSampler):
        new.carried = []
    return new


def repeats(batch_sampler: Any, epoch: int, users: Sequence[int]) -> bool:
    """Whether each pass of this copy yields the same order, whatever the global generators draw; this seeds them.

    Args:
        users: the epochs of the user's samplers in it.
    """
    first: list[Any] | None = None
    compared = passes = 0
    while passes < 2 or (0 < compared < COMPARED):
        seed_restorable(passes)
        set_epoch(batch_sampler, epoch, users)
        order = list(islice(_keys(batch_sampler), _MOST_COMPARED))
        first = order if first is None else first
        if order != first:
            return False
        compared, passes = compared + len(order), passes + 1
    return True


def _keys(batch_sampler: Any) -> Iterable[Any]:
    """The keys of a pass, also those that are in no batch of the epoch, since they may be carried over."""
    if iterating_class(batch_sampler) is BatchSampler:
        return start_pass(batch_sampler.sampler)
    return chain.from_iterable(map(as_list, batch_sampler))
