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

from ..locks import release_held

# NumPy 1.24 has a function for it.
_bit_generator: Final = getattr(np.random, "get_bit_generator", lambda: np.random.mtrand._rand._bit_generator)
_Memory: Final = ctypes.c_char * (624 * 4 + 4)  # the key of a Mersenne Twister and the index of its next word


def seed(seed: int) -> None:
    """Seeds the generator with the lower 32 bits of `seed`, since it takes no more."""
    np.random.seed(seed & 0xFFFF_FFFF)


def save() -> tuple[Any, Any, list[float]]:
    """Returns the state for `restore`. This may draw a number: seed or restore the generator next."""
    generator = _bit_generator()
    if type(generator) is not np.random.MT19937:
        return generator, np.random.get_state(legacy=False), []
    memory = _memory_of(generator)
    variates: list[float] = []
    before, draw = memory.raw, map(np.random.standard_normal, [None])
    try:
        variates.extend(draw)  # one operation, so no signal handler can raise between drawing and keeping the variate
        if memory.raw != before:
            variates.clear()  # it was not a stored one
    except BaseException:  # of a signal handler
        restore((generator, before, variates if memory.raw == before else []))
        raise
    return generator, before, variates


def peek() -> Any:
    """A value that changes when numbers are drawn; draws nothing."""
    generator = _bit_generator()
    if type(generator) is not np.random.MT19937:
        return str(generator.state)
    return _memory_of(generator).raw


def restore(state: tuple[Any, Any, list[float]]) -> None:
    generator, saved, variates = state
    if _bit_generator() is not generator:  # user code has replaced it
        np.random.set_bit_generator(generator)  # type: ignore[attr-defined]
    if not isinstance(saved, bytes):
        np.random.set_state(saved)
        return
    memory = _memory_of(generator)
    if variates:
        stored = {"has_gauss": 1, "gauss": variates[0]}
        np.random.set_state({**np.random.get_state(legacy=False), **stored})  # type: ignore[arg-type, dict-item]
    else:
        before = memory.raw
        np.random.standard_normal()
        if memory.raw != before:  # none was stored, but now the second variate of a pair is
            np.random.standard_normal()
    try:
        with generator.lock:
            memory.raw = saved
    except BaseException:  # of a signal handler; see NOTE [locks] in locks.py
        release_held(generator.lock)
        raise


def _memory_of(twister: Any) -> Any:
    return _Memory.from_address(twister.ctypes.state_address)
