"""NumPy's global generator, `np.random`.

NOTE [saving NumPy's state]: `get_state` and `set_state` take 70 us together, as long as making a small batch. So `save`
and `restore` copy the memory of the Mersenne Twister, whose address NumPy publishes for this purpose; that takes 5 us.
But normal variates are made in pairs, and the second variate of a pair is stored elsewhere for the next call. `save`
draws a normal variate to find it: if the Twister did not move, the variate was such a stored one.
"""

from __future__ import annotations

import ctypes
from typing import Any, Final

import numpy as np

_STATE_BYTES: Final = 624 * 4 + 4  # the key of a Mersenne Twister and the index of its next word


def seed(seed: int) -> None:
    """Seeds the generator with the lower 32 bits of `seed`, since it takes no more."""
    np.random.seed(seed & 0xFFFF_FFFF)


def save() -> tuple[Any, Any]:
    """Returns the state for `restore`. This may draw a number: seed or restore the generator next."""
    generator = _bit_generator()
    if type(generator) is not np.random.MT19937:
        return generator, np.random.get_state(legacy=False)
    before = ctypes.string_at(generator.ctypes.state_address, _STATE_BYTES)
    variate = np.random.standard_normal()
    if ctypes.string_at(generator.ctypes.state_address, _STATE_BYTES) != before:
        return generator, before
    return generator, {**np.random.get_state(legacy=False), "has_gauss": 1, "gauss": variate}  # type: ignore[dict-item]


def peek() -> Any:
    """A value that changes when numbers are drawn; draws nothing."""
    generator = _bit_generator()
    if type(generator) is not np.random.MT19937:
        return str(generator.state)
    return ctypes.string_at(generator.ctypes.state_address, _STATE_BYTES)


def restore(state: tuple[Any, Any]) -> None:
    generator, saved = state
    if _bit_generator() is not generator:  # user code has replaced it
        np.random.set_bit_generator(generator)  # type: ignore[attr-defined]
    if not isinstance(saved, bytes):
        np.random.set_state(saved)
        return
    np.random.seed(0)  # drops a stored normal variate
    with generator.lock:
        ctypes.memmove(generator.ctypes.state_address, saved, _STATE_BYTES)


def _bit_generator() -> Any:
    if hasattr(np.random, "get_bit_generator"):  # NumPy 1.24
        return np.random.get_bit_generator()
    return np.random.mtrand._rand._bit_generator
