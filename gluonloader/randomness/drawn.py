"""`Draws`: notices that random numbers were drawn from a global generator, or from one that the dataset holds."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, Final

from . import numpy, python, torch
from .held import Held
from .seeds import loaded

_NAMES: Final = {python: "`random`", numpy: "`numpy.random`", torch: "`torch`"}
_LOOKS: Final = 100  # comparisons; each takes 30 us


class Draws:
    """Compares the states of generators at two points; `held` are generators that the dataset holds."""

    def __init__(self, held: Sequence[Held]) -> None:
        self._held, self._left = held, _LOOKS
        self._before: dict[str, Any] | None = None

    def mark(self) -> None:
        """From now on, `found` looks for draws."""
        self._before = self._states() if self._left else None

    def forget(self) -> None:
        """Called before the generators are seeded, which is no draw: `found` finds nothing until the next `mark`."""
        self._before = None

    def found(self) -> list[str]:
        """The names of the generators from which numbers were drawn since `mark`.

        It is empty if `mark` was not called since `forget`, if an earlier call has found draws, and after many calls.
        """
        if self._before is None or not self._left:
            return []
        before, after = self._before, self._states()
        names = [name for name, state in after.items() if name in before and before[name] != state]
        self._left = 0 if names else self._left - 1
        return names

    def _states(self) -> dict[str, Any]:
        states = {_NAMES[generator]: generator.peek() for generator in loaded()}
        if self._held:
            states["a generator of the dataset"] = [_pickled(held.save()) for held in self._held]
        return states


def _pickled(state: Any) -> bytes | None:
    try:
        return pickle.dumps(state)
    except Exception:
        return None
