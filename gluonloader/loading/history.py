"""`History`: how the epochs of a loader have started; see NOTE [replay] in replay.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..sampler import changes_of
from .plan import Start, Started


class History:
    """How the epochs of a map-style dataset have started since the loader was made or a position was loaded.

    Attributes:
        started: by epoch; for a loaded position, also before its epoch starts.
        first: the epoch that started first; None if no epoch has started. Only its state of the sampler stays known.
    """

    def __init__(self) -> None:
        self.started: dict[int, Started] = {}
        self.first: int | None = None
        self._newest: int | None = None

    def add(self, epoch: int, started: Started) -> None:
        known = self.started.get(epoch)
        if started.carried is None and known is not None:
            started.carried = known.carried
        if self.first is None:
            self.first = epoch
        if self._newest is not None and self._newest not in (self.first, epoch):
            self.started[self._newest].snapshot = None  # it may be large
        self.started[epoch], self._newest = started, epoch

    @classmethod
    def of_state(cls, batch_sampler: Any, fields: Mapping[str, Any], start: Start) -> History:
        """The history of a loader that has loaded a state."""
        history = cls()
        carried = fields["sampler"].get("carried", []) if fields["skip"] == fields["batch"] else None
        started = Started(start.number, carried, changes_of(batch_sampler), fields.get("snapshot"))
        history.add(fields["epoch"], started)
        return history

    def carried_before(self, epoch: int) -> tuple[int, list[Any]]:
        """The last epoch up to `epoch` whose carried indices are known, and these indices."""
        known = [number for number, started in self.started.items() if number <= epoch and started.carried is not None]
        if not known:
            return 0, []
        return max(known), list(self.started[max(known)].carried or [])
