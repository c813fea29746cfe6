"""Finds the indices of any batch; see NOTE [replay] in replay.py.

samplers of gluonloader     `order(epoch)` is read, and so are the indices that were carried over to that epoch
any other sampler           a copy yields them again, the only place that draws: with `state_dict` from the first known
                            state on, otherwise from the start of the epoch, if it has the same order each time
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import Any

from ..indices import as_list
from ..position.progress import Start
from ..sampler.base import BatchSampler, changes_of, copy_of, epoch_of, is_computed, iterate, order_of
from ..sampler.passes import BatchPass, as_keys, length_of
from ..sampler.users import repeats, restore, set_epoch, snapshot, stateful_part, users_copy
from .index_source import IndexSource
from .plan import IndexPlan, Started

_AGAIN = "make a new loader with new samplers, as they were before that epoch, and call the method there"


class KnownOrder:
    """The order of a map-style dataset in one epoch.

    Args:
        number: the epoch for which the samplers are set now.
        epoch: the epoch of the order.

    Attributes:
        is_computed: whether no code of the user draws the order, so that it cannot change the global generators.
    """

    def __init__(self, source: IndexSource, dataset: Any, seed: int, number: int, epoch: int) -> None:
        self._sampler, self._history, self._source = source.sampler, source.history, source
        self._dataset, self._seed, self._number, self._epoch = dataset, seed, number, epoch
        self.is_computed = is_computed(self._sampler)

    def plan_at(self, batch: int) -> IndexPlan:
        """A plan whose next task is this batch, if the epoch has so many batches; checked by the history.

        Raises:
            ValueError: the order of this epoch is not known.
        """
        started = self._history.started.get(self._epoch)
        if started is not None:
            self._check(started, batch)
        return self._plan(batch)

    def _check(self, started: Started, batch: int) -> None:
        self._check_changes(self._epoch)
        if started.irregular is not None and batch < started.irregular.number:
            raise ValueError(
                f"epoch={self._epoch}, batch={batch}: this epoch was resumed at batch {started.irregular.number} with "
                "another batch_size or other ranks; call the method on a loader with those that it had before"
            )
        if started.drawn is not None and _first_drawn(self._plan(started.number)) != started.drawn:
            raise ValueError(
                f"epoch={self._epoch}: batch {started.number} of this epoch had other indices than the {self._name} "
                "yields for it now, because the sampler was changed or iterated meanwhile, your program set it to "
                f"another epoch, or the epoch was resumed with another number of shards or batch_size; {_AGAIN}"
            )

    @property
    def _name(self) -> str:
        return type(getattr(self._sampler, "sampler", self._sampler)).__name__

    def _check_changes(self, epoch: int) -> None:
        if self._history.started[epoch].changes != changes_of(self._sampler):
            raise ValueError(f"epoch={epoch}: the weights of the {self._name} were changed after it started; {_AGAIN}")

    def _plan(self, batch: int) -> IndexPlan:
        epoch, started = self._epoch, self._history.started.get(self._epoch)
        first = Start() if started is None or started.irregular is None else started.irregular
        start = Start(batch, batch - first.number + first.skip, first.offset)
        if self.is_computed:
            carried = [] if first.number else self._carried_over()
            return IndexPlan(self._sampler, epoch, self._seed, start, self._order_epoch(epoch), carried)
        batches, known, saved = self._users
        if (epoch, batch) < known:
            raise ValueError(
                f"epoch={epoch}, batch={batch}: this {self._name} continues from epoch to epoch, and its state is "
                f"known only from batch {known[1]} of epoch {known[0]} on; load a state of an earlier position"
            )
        if saved is not None:
            restore(stateful_part(batches), saved)
            start = Start(batch, batch - (known[1] if known[0] == epoch else 0))
        else:
            set_epoch(batches, epoch, self._users_epochs(epoch))
        return IndexPlan(batches, epoch, self._seed, start)

    def _order_epoch(self, epoch: int) -> int:
        """The epoch of a computed sampler in an epoch of the loader.

        Raises:
            ValueError: it is negative.
        """
        if epoch in self._history.started:
            return self._history.started[epoch].order_epoch
        of_next = epoch_of(self._sampler, self._number)
        if of_next + epoch < self._number:
            raise ValueError(
                f"the next epoch of this {self._name} is {of_next}, but the loader has started more epochs; the "
                f"{self._name} was changed outside of the loader, so make a new loader with a new {self._name}"
            )
        return of_next + epoch - self._number

    def _carried_over(self) -> list[Any]:
        """The indices that earlier epochs carry over to this one: the last ones, by the lengths of the epochs."""
        batches, epoch = self._sampler, self._epoch
        if not isinstance(batches, BatchSampler) or batches.last_batch != "rollover":
            return []
        start, carried = self._history.carried_before(epoch)
        if start == epoch:
            return carried
        if start in self._history.started:
            self._check_changes(start)
        length = length_of(batches.sampler)
        if length is None:
            raise ValueError(
                f"epoch={epoch}: with last_batch='rollover', an epoch starts with samples that earlier epochs carry "
                f"over, and a {self._name} has no length, so they are known only when epoch {epoch} has started; call "
                "the method then, or pass last_batch='keep' or 'discard'"
            )
        missing = (len(carried) + (epoch - start) * length) % batches.batch_size
        found: list[Any] = []
        while missing and start < epoch:
            epoch -= 1
            order, first = order_of(copy_of(batches.sampler), self._order_epoch(epoch)), max(length - missing, 0)
            assert order is not None, "it is computed"
            found = as_list(as_keys(order[first:length])) + found
            missing -= length - first
        return carried[len(carried) - missing :] + found

    @cached_property
    def _users(self) -> tuple[Any, tuple[int, int], Any]:
        """A copy of a user's batch sampler whose next pass is that of the epoch.

        Returns:
            The copy, the epoch and the number of the first known batch, and the state before the pass if it has one.
        """
        batches, first, number, carried = self._copy(), self._epoch, 0, []
        stateful = stateful_part(batches)
        if stateful is not None:
            first, carried = self._number, list(getattr(self._sampler, "carried", []))
            if self._history.first is not None:
                first, started = self._history.first
                number, carried = started.number, [] if started.number else list(started.carried or [])
                if started.snapshot is not None:  # otherwise nothing was drawn yet
                    restore(stateful, started.snapshot)
        else:
            self._check_repeats(batches)
            if isinstance(batches, BatchSampler) and batches.last_batch == "rollover":
                first, carried = self._history.carried_before(self._epoch)
        if isinstance(batches, BatchSampler):
            batches.carried = carried
        for epoch in range(first, self._epoch + 1):
            if stateful is None or epoch > first:  # its state contains the epoch
                set_epoch(batches, epoch, self._users_epochs(epoch))
            if epoch < self._epoch:
                whole = iterate(batches)
                deque(whole, maxlen=0)
                if isinstance(whole, BatchPass):
                    whole.commit()
        return batches, (first, number), None if stateful is None else snapshot(stateful)

    def _copy(self) -> Any:
        try:
            return users_copy(self._sampler, self._dataset)
        except Exception as error:
            right = "so its order cannot be drawn again; let copy.deepcopy() copy it, or use a sampler of gluonloader"
            raise ValueError(f"sampler: this {self._name} cannot be copied ({error}), {right}") from error

    def _check_repeats(self, batches: Any) -> None:
        users = self._users_epochs(self._epoch)
        if not repeats(batches, self._epoch, users):
            knows = "after set_epoch" if set_epoch(batches, self._epoch, users) else "and has no set_epoch(epoch)"
            raise ValueError(
                f"sampler: this {self._name} yields another order each time, {knows}, so the order of epoch "
                f"{self._epoch} is not known; let its order depend only on set_epoch(epoch) and a seed, not on a "
                "global generator or on earlier epochs, or add state_dict() and load_state_dict(), or pass a function "
                "of the epoch instead"
            )

    def _users_epochs(self, epoch: int) -> list[int]:
        """The epochs that the user's samplers had in this epoch, or will have."""
        usual, started = self._source.users_epochs.of(epoch, self._number), self._history.started.get(epoch)
        if started is None or len(started.users_epochs) != len(usual):
            return usual
        return [other if known is None else known for known, other in zip(started.users_epochs, usual, strict=True)]


def _first_drawn(plan: IndexPlan) -> int | None:
    """The hash of the first indices that a plan draws; 0 if it draws none."""
    try:
        plan.next()
    except StopIteration:
        return 0
    return plan.started.drawn
