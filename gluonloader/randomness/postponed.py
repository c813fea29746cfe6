"""`postponed`: calls a function now, but lets it change the global generators only later."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from .seeds import RESTORABLE, restore_all


def postponed(function: Callable[[], object]) -> Callable[[], None]:
    """Calls `function` and restores the global generators; returns a function that sets those which it had changed."""
    before = _states()
    try:
        function()
        after = _states()
    finally:
        restore_all(before.copy())
    changed = [new for new, old in zip(after, before, strict=False) if not _are_equal(new[1], old[1])]
    return lambda: restore_all(changed.copy())


def _states() -> list[tuple[Any, Any]]:
    states = [(generator, generator.save()) for package, generator in RESTORABLE.items() if package in sys.modules]
    restore_all(states.copy())  # since `save` may draw a number
    return states


def _are_equal(one: Any, other: Any) -> bool:
    if type(one) is type(other) and isinstance(one, (tuple, dict)):
        parts = zip(one, other, strict=False) if isinstance(one, tuple) else ((one[key], other[key]) for key in one)
        return len(one) == len(other) and all(_are_equal(*pair) for pair in parts)
    return one is other or np.array_equal(one, other)
