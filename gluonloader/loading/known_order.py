"""Draws the indices of any batch; see NOTE [replay] in replay.py.

samplers of gluonloader     `order(epoch)` is read, and so are the indices that were carried over to that epoch
samplers with state_dict    a copy starts at the first known state, and draws all epochs from there
any other sampler           a copy draws the epoch, more than once: the order has to be the same each time
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ..indices import as_list
from ..sampler.base import BatchSampler, changes_of, copy_of, epoch_of, is_computed, iterate, order_of
from ..sampler.passes import BatchPass, as_keys
from ..sampler.users import repeats, restore, set_epoch, stateful_part, users_copy
from .index_source import IndexSource
from .plan import IndexPlan, Start

_AGAIN = "make a new loader with new samplers, as they were before that epoch, and call the method there"


class KnownOrder:
    """The order of a map-style dataset in any epoch.

    Args:
        number: the epoch for which the samplers are set now.

    Attributes:
        is_computed: whether no code of the user draws the order, so that it cannot change the global generators.
    """

    def __init__(self, source: IndexSource, dataset: Any, seed: int, number: int) -> None:
        self._sampler, self._history, self._source = source.sampler, source.history, source
        self._dataset, self._seed, self._number = dataset, seed, number
        self.is_computed = is_computed(self._sampler)

    def plan_at(self, epoch: int, batch: int) -> IndexPlan:
        """A plan whose next task is this batch, if the epoch has so many batches; checked by the history.

        Raises:
            ValueError: the order of this epoch is not known.
        """
        started = self._history.started.get(epoch)
        if started is not None:
            self._check_changes(epoch)
            if started.irregular is not None and batch < started.irregular.number:
                raise ValueError(
                    f"epoch={epoch}, batch={batch}: this epoch was resumed at batch {started.irregular.number} with "
                    "another batch_size or other ranks; call the method on a loader with those that it had before"
                )
            expected, is_known = started.drawn, self.is_computed or stateful_part(self._sampler) is not None
            if expected is None and started.irregular is not None and not is_known:
                raise ValueError(
                    f"epoch={epoch}: this epoch was resumed with another batch_size or other ranks, and nothing was "
                    "drawn since then that could be compared; read a batch first"
                )
            if expected is not None and _first_drawn(self._plan(epoch, started.number)) != expected:
                raise ValueError(
                    f"epoch={epoch}: batch {started.number} of this epoch had other indices than the "
                    f"{self._name} yields for it now, because the sampler was changed or iterated meanwhile, your "
                    "program set it to another epoch, or the epoch was resumed with another number of shards or "
                    f"batch_size; {_AGAIN}"
                )
        return self._plan(epoch, batch)

    @property
    def _name(self) -> str:
        return type(getattr(self._sampler, "sampler", self._sampler)).__name__

    def _check_changes(self, epoch: int) -> None:
        if self._history.started[epoch].changes != changes_of(self._sampler):
            raise ValueError(f"epoch={epoch}: the weights of the {self._name} were changed after it started; {_AGAIN}")

    def _plan(self, epoch: int, batch: int) -> IndexPlan:
        if self.is_computed:
            started = self._history.started.get(epoch)
            first = Start() if started is None or started.irregular is None else started.irregular
            start = Start(batch, batch - first.number + first.skip, first.offset)
            carried = [] if first.number else self._carried_over(epoch)
            return IndexPlan(self._sampler, epoch, self._seed, start, self._order_epoch(epoch), carried)
        batches, skipped = self._batches_of(epoch), 0
        if stateful_part(self._sampler) is not None:
            skipped = self._walk(batches, epoch, batch)
        return IndexPlan(batches, epoch, self._seed, Start(batch, batch - skipped))

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

    def _batches_of(self, epoch: int) -> Any:
        """A copy of a user's batch sampler whose next pass is that of the epoch, except if it is stateful."""
        batches = self._copy()
        if stateful_part(batches) is not None:
            return batches
        users = self._users_epochs(epoch)
        if not repeats(batches, epoch, users):
            knows = "after set_epoch" if set_epoch(batches, epoch, users) else "and has no set_epoch(epoch)"
            raise ValueError(
                f"sampler: this {self._name} yields another order each time, {knows}, so the order of epoch {epoch} is "
                "not known; let its order depend only on set_epoch(epoch) and a seed, not on a global generator or on "
                "earlier epochs, or add state_dict() and load_state_dict(), or pass a function of the epoch instead"
            )
        if isinstance(batches, BatchSampler) and batches.last_batch == "rollover":
            start, batches.carried = self._history.carried_before(epoch)
            self._draw_epochs(batches, start, epoch)
        set_epoch(batches, epoch, users)
        return batches

    def _users_epochs(self, epoch: int) -> list[int]:
        """The epochs that the user's samplers had in this epoch, or will have."""
        usual, started = self._source.users_epochs.of(epoch, self._number), self._history.started.get(epoch)
        if started is None or len(started.users_epochs) != len(usual):
            return usual
        return [other if known is None else known for known, other in zip(started.users_epochs, usual, strict=True)]

    def _copy(self) -> Any:
        try:
            return users_copy(self._sampler, self._dataset)
        except Exception as error:
            right = "so its order cannot be drawn again; let copy.deepcopy() copy it, or use a sampler of gluonloader"
            raise ValueError(f"sampler: this {self._name} cannot be copied ({error}), {right}") from error

    def _carried_over(self, epoch: int) -> list[Any]:
        """The indices that earlier epochs carry over to an epoch: the last ones, by the lengths of the epochs."""
        batches = self._sampler
        if not isinstance(batches, BatchSampler) or batches.last_batch != "rollover":
            return []
        start, carried = self._history.carried_before(epoch)
        if start == epoch:
            return carried
        if start in self._history.started:
            self._check_changes(start)
        length = len(batches.sampler)  # a planned order has none: its error says so
        missing = (len(carried) + (epoch - start) * length) % batches.batch_size
        found: list[Any] = []
        while missing and start < epoch:
            epoch -= 1
            order, first = order_of(copy_of(batches.sampler), self._order_epoch(epoch)), max(length - missing, 0)
            assert order is not None, "it is computed"
            found = as_list(as_keys(order[first:length])) + found
            missing -= length - first
        return carried[len(carried) - missing :] + found

    def _walk(self, batches: Any, epoch: int, batch: int) -> int:
        """Draws with a stateful sampler until its next pass is that of the epoch; returns how many batches it lacks."""
        first, number, carried = self._number, 0, getattr(self._sampler, "carried", [])
        if self._history.first is not None:
            first, started = self._history.first
            number, carried = started.number, started.carried or []
            if started.snapshot is not None:  # otherwise nothing was drawn yet
                restore(stateful_part(batches), started.snapshot)
        if isinstance(batches, BatchSampler):
            batches.carried = [] if number else list(carried)
        if (epoch, batch) < (first, number):
            raise ValueError(
                f"epoch={epoch}, batch={batch}: this {self._name} continues from epoch to epoch, and its state is "
                f"known only from batch {number} of epoch {first} on; load a state of an earlier position"
            )
        self._draw_epochs(batches, first, epoch, keep_first=True)
        if epoch > first:
            set_epoch(batches, epoch, self._users_epochs(epoch))
            return 0
        return number

    def _draw_epochs(self, batches: Any, start: int, stop: int, keep_first: bool = False) -> None:
        """Draws whole epochs; `keep_first`: the epoch of the sampler is already set for the first one."""
        for epoch in range(start, stop):
            if epoch > start or not keep_first:
                set_epoch(batches, epoch, self._users_epochs(epoch))
            whole = iterate(batches)
            deque(whole, maxlen=0)
            if isinstance(whole, BatchPass):
                whole.commit()


def _first_drawn(plan: IndexPlan) -> int | None:
    """The hash of the first indices that a plan draws; 0 if it draws none."""
    try:
        plan.next()
    except StopIteration:
        return 0
    return plan.started.drawn
