"""How many workers are in use, by how much of its time the program waits for them. Pure logic, no processes."""

from __future__ import annotations

from typing import Final

__all__ = ["Pace"]

_BUSY: Final = 0.10  # of the time waited: one more
_CALM: Final = 0.02  # less than this for a while: one less
_PATIENCE: Final = 2  # looks
_MOST_PATIENCE: Final = 256


class Pace:
    """A number of lanes, from 1 to `most`, that is just enough.

    Where one less was too few, it waits twice as long before it tries again.

    >>> pace = Pace(4)
    >>> for waited in (0.0, 0.0, 0.0, 0.0, 0.5): pace.step(waited)
    >>> pace.lanes
    3
    """

    def __init__(self, most: int) -> None:
        self.most = self.lanes = most
        self._calm, self._patience = 0, _PATIENCE

    def step(self, waited: float) -> None:
        """One look: the share of the time since the last one that the program waited, from 0 to 1."""
        if waited > _BUSY:
            self._calm = 0
            if self.lanes < self.most:
                self.lanes += 1
                self._patience = min(2 * self._patience, _MOST_PATIENCE)
        elif waited < _CALM:
            self._calm += 1
            if self._calm >= self._patience and self.lanes > 1:
                self.lanes, self._calm = self.lanes - 1, 0
        else:
            self._calm = 0
