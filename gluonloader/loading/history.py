"""`History`: how the epochs of a loader have started; see NOTE [replay] in replay.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..sampler import BatchSampler, changes_of, epochs_of
from .plan import Start, Started


class History:
    """How the epochs of a map-style dataset have started since the loader was made or a position was loaded.

    Attributes:
        started: by epoch; for a loaded position, also before its epoch starts.
        first: the earliest position at which an epoch has started: its epoch, and how it started; None if no epoch has
            started. The state of a stateful sampler stays known only for this start and for the newest start.
    """

    def __init__(self) -> None:
        self.started: dict[int, Started] = {}
        self.first: tuple[int, Started] | None = None
        self._newest: Started | None = None

    def add(self, epoch: int, started: Started) -> None:
        known = self.started.get(epoch)
        if started.carried is None and known is not None:
            started.carried = known.carried
        if known is not None and known.new_batch_size and started.number >= known.number:
            started.new_batch_size = True
        if self._newest is not None and (self.first is None or self._newest is not self.first[1]):
            self._newest.snapshot = None  # it may be large
        if self.first is None or (epoch, started.number) <= (self.first[0], self.first[1].number):
            self.first = epoch, started
        self.started[epoch] = self._newest = started

    @classmethod
    def of_state(cls, batch_sampler: Any, fields: Mapping[str, Any], start: Start, new_batch_size: bool) -> History:
        """The history of a loader that has loaded a state, which may have been saved with another batch size."""
        history = cls()
        carries = isinstance(batch_sampler, BatchSampler)
        whole = fields["sampler"]["carried"] if carries else []
        carried = whole if fields["skip"] == fields["batch"] else None
        changes, users_epochs = changes_of(batch_sampler), epochs_of(batch_sampler)
        started = Started(start.number, carried, changes, users_epochs, fields.get("snapshot"))
        started.new_batch_size = new_batch_size and start.number > 0
        history.add(fields["epoch"], started)
        return history

    def carried_before(self, epoch: int) -> tuple[int, list[Any]]:
        """The last epoch up to `epoch` whose carried indices are known, and these indices.

        Raises:
            ValueError: an epoch between them was resumed with another batch size, so it carries over other indices.
        """
        known = [number for number, started in self.started.items() if number <= epoch and started.carried is not None]
        for number, started in self.started.items():
            if started.new_batch_size and max(known, default=-1) < number < epoch:
                raise ValueError(
                    f"epoch={epoch}: epoch {number} was resumed with another batch_size, so the samples that it "
                    f"carries over are known only when epoch {number + 1} has started"
                )
        if not known:
            return 0, []
        return max(known), list(self.started[max(known)].carried or [])
