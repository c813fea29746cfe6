"""The plan of a map-style dataset: it draws lists of indices from a batch sampler.

position/indices.py says where it stands, and restores that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import a_class, bad_argument
from ...indices import Keys, as_list, is_int_array
from ...interrupts import from_signal_handler
from ...locks import Lock
from ...position import indices as position
from ...position.error_count import ErrorCount
from ...position.progress import Progress, Start
from ...sampler.base import changes_of
from ...sampler.passes import BatchPass, as_keys
from ...sampler.users import Snapshots, epochs_of, stateful_part
from ...segments import PackedRow
from ...work.in_flight import InFlight
from ...work.task import Task


@dataclass(slots=True)
class Started:
    """How the pass of an epoch started, so that `replay` notices if a sampler yields another order now."""

    start: Start
    order_epoch: int  # the epoch of a computed sampler; see `epoch_of`
    carried: list[Any] | None  # the indices that the last epoch carried over; None if they are not known any more
    changes: int  # see `sampler.changes_of`
    users_epochs: list[int | None]  # see `sampler.users.epochs_of`
    snapshot: Any = None  # the state of a stateful sampler before that batch
    drawn: int | None = None  # a hash of that batch's indices; None if they cannot be hashed
    irregular: Start | None = None  # where it was resumed after batches of another size, or of other ranks

    @property
    def number(self) -> int:
        """The number of the first batch that was drawn."""
        return self.start.number


class IndexPlan:
    """One epoch of a batch sampler.

    Args:
        batch_sampler: any iterable of lists of indices; its next pass starts here.
        start: where the epoch starts; `position.load` returns it for a saved position.
        order_epoch, carried: see `OrderPass`.
    """

    def __init__(
        self,
        batch_sampler: Any,
        epoch: int,
        seed: int,
        start: Start,
        order_epoch: int | None = None,
        carried: Sequence[Any] | None = None,
    ) -> None:
        self.epoch, self.outdated, self._ends = epoch, False, False
        self.lock = Lock()
        self.in_flight = InFlight()
        self.errors = ErrorCount(self.in_flight, start.errors)
        self.sampler = getattr(batch_sampler, "sampler", batch_sampler)
        self._batch_sampler = batch_sampler
        self._seed = position.seed_of_rank(seed, batch_sampler)
        stateful = stateful_part(batch_sampler)
        self._snapshots = None if stateful is None else Snapshots(stateful)
        self._pass = position.OrderPass(batch_sampler, start, order_epoch, carried)
        self._progress = Progress(start.number, start.ahead, self.in_flight)
        known = None if start.number - start.skip else list(getattr(batch_sampler, "carried", ()))
        about = known, changes_of(batch_sampler), epochs_of(batch_sampler)
        self.started = Started(start, self._pass.epoch, *about)
        self._carries_over = True  # `carry_over` was not called yet
        self._drawing = False  # whether `_pass` is perhaps not at the number `upcoming`

    def next(self) -> Task:
        while not self._ends:
            number = self._progress.upcoming
            saved = None if self._snapshots is None else self._snapshots.take(number, self._progress.position)
            self._drawing = True
            started = self.started
            is_first = started.drawn is None and number == started.number
            if is_first:
                started.snapshot = saved
            batches = self._pass.batches
            try:
                if isinstance(batches, BatchPass):
                    indices = batches.cut()
                else:
                    indices = _keys_of(next(batches), number, self._batch_sampler)
            except StopIteration:  # the end
                self._drawing = False
                raise
            except Exception as error:
                self._drawing = from_signal_handler(error)
                raise
            if is_first:
                started.drawn = _hash(indices)
            task = Task(self.epoch, number, self._seed, indices)
            is_new = self._progress.issue(task)
            self._drawing = False
            if is_new:
                return task
            self._skip_settled()
        raise StopIteration

    def _skip_settled(self) -> None:
        """Skips the next batches that were delivered before the epoch was resumed, which may be very many."""
        progress, batches = self._progress, self._pass.batches
        if isinstance(batches, BatchPass) and (settled := progress.settled_from(progress.upcoming)):
            self._drawing = True
            batches.skip(settled)
            progress.upcoming += settled
            self._drawing = False

    def accept(self, task: Task, result: Any) -> Any:
        return result if self.errors.limit is None else self.errors.unwrap(task, result)

    def fail(self, task: Task, error: BaseException) -> bool:
        return True

    def finish(self) -> None:
        self._ends = True

    def finish_if_last(self) -> None:
        """If as many batches were delivered as the epoch has, asks the sampler whether it has ended, too.

        For an epoch that does not draw ahead, before its state is saved: the state of a user's sampler that has ended
        may be that of its start.
        """
        if self._ends or self.in_flight:
            return
        try:
            batches = self.batches
        except (TypeError, NotImplementedError):  # the sampler has no length
            return
        if self._progress.position == batches:
            try:
                self.next()
            except StopIteration:
                self.finish()

    @property
    def batches(self) -> int:
        """The number of batches in this epoch, until it is finished."""
        return self._pass.count

    @property
    def finished(self) -> bool:
        return self._ends and not self.in_flight

    @property
    def position(self) -> int:
        return self._progress.position

    @property
    def samples_read(self) -> None:
        return None

    def carry_over(self) -> None:
        """Moves the indices that are left over to the next epoch (rollover). A second call does nothing."""
        if self._carries_over:
            self._pass.commit()
            self._carries_over = False

    def state(self) -> dict[str, Any]:
        progress = self._progress.frozen()
        fields = progress.state()
        number = fields["batch"]
        fields |= {**self.errors.state(progress.in_flight), **self._pass.state(number)}
        if self._snapshots is not None:
            fields["snapshot"] = self._snapshots.before(number)
        return fields

    def rewind(self) -> None:
        self._drawing, self._ends = True, False
        try:
            self._move(self._progress.position)
        except TypeError:
            self._drawing = False
            raise
        self.errors.rewind()
        self._progress.rewind()
        self._drawing = False

    def undraw(self) -> None:
        """Makes a stateful sampler yield the batches that are not delivered again, to another plan."""
        if self._snapshots is not None:
            self._snapshots.restore(self._progress.position)

    def resume(self) -> None:
        self._progress.resume()
        if self._drawing:
            try:
                self._move(self._progress.upcoming)
            except TypeError as error:
                raise RuntimeError(
                    f"a signal handler interrupted {a_class(self.sampler)}, so this epoch cannot continue; "
                    "start a new epoch with iter(loader), or add state_dict() and load_state_dict() to the sampler"
                ) from error
            self._drawing = False

    def _move(self, number: int) -> None:
        """Makes the pass continue with the batch of this number.

        Raises:
            TypeError: the sampler cannot do that.
        """
        if self._snapshots is not None:
            self._snapshots.restore(number)
            self._pass.restart(number)
        else:
            self._pass.seek(number)


def _hash(keys: Keys) -> int | None:
    listed = as_list(keys)
    return hash(tuple(listed)) if all(isinstance(key, (int, str, np.generic, PackedRow)) for key in listed) else None


def _keys_of(indices: Any, number: int, batch_sampler: Any) -> Keys:
    """The keys that a user's batch sampler yielded. An array is copied, since the sampler may overwrite it."""
    keys = as_keys(indices) if is_int_array(indices) else list(indices) if hasattr(indices, "__iter__") else []
    if not len(keys):
        what = f"it yielded {indices!r} for batch {number}; it must yield lists of at least one index"
        raise bad_argument("batch_sampler", batch_sampler, f"{what}; if it yields single ones, pass it as sampler")
    return keys
