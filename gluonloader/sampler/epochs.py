"""The epochs of samplers. gluonloader's samplers count their epochs; a loader sets the epochs of a user's samplers.

NOTE [epochs of users' samplers]: a user's sampler with `set_epoch` yields the same order until its epoch is set. So the
loader calls `set_epoch` with the number of the next epoch as soon as an epoch has ended, or when the next epoch starts
if the epoch was left early. The user may call it, too, and the last call before an epoch counts. If the sampler has an
attribute `epoch`, it shows whether anything but the loader has set it: then that number stays, and the loader counts on
from it. Nothing is set before the first epoch, so a sampler that the user has set keeps its epoch in a new loader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..state import has_state
from .base import SeededSampler
from .saved import chain_of, knows_epoch
from .sharded import ShardedSampler


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
