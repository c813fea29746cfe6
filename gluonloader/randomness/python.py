"""The global generator of Python's `random`, which takes the whole 64-bit seed.

NOTE [saving Python's state]: `getstate` and `setstate` convert 625 numbers, which takes 10 us together, as long as
stacking a small batch. So `save` and `restore` copy the memory of the Mersenne Twister. CPython keeps it right behind
the head of the object. `_find` compares this memory with `getstate` when this module is imported. If it differs, or if
there is no GIL to protect it, `getstate` and `setstate` are used.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
from typing import Any, Final

from ..limits import has_gil

_STATE: Final = struct.Struct("=I624I")  # the index of the next word, and the key
_Memory: Final = ctypes.c_char * _STATE.size
_Start: Final = ctypes.c_char * 12  # the index and the first words of the key; each draw changes one of them

_generator: Final[Any] = getattr(random.random, "__self__", None)  # of the functions of `random`

seed: Final = random.seed


def _find() -> Any:
    """The memory of the state; None if it is not where it is expected."""
    start, size = object.__basicsize__, random.Random.__basicsize__
    if sys.implementation.name != "cpython" or not has_gil() or size < start + _STATE.size:
        return None
    if type(_generator) is not random.Random:  # somebody has replaced the function
        return None
    _, (*key, index), _ = _generator.getstate()
    memory = _Memory.from_address(id(_generator) + start)
    return memory if memory.raw == _STATE.pack(index, *key) else None


_memory: Final = _find()
_start: Final = None if _memory is None else _Start.from_buffer(_memory)


def save() -> tuple[Any, ...]:
    """Returns the state, for `restore`."""
    if _memory is None:
        return random.getstate()
    return _memory.raw, _generator.gauss_next


def peek() -> Any:
    """A value that changes when numbers are drawn."""
    return random.getstate() if _start is None else (_start.raw, _generator.gauss_next)


def restore(state: tuple[Any, ...]) -> None:
    if _memory is None:
        random.setstate(state)
    else:
        _memory.raw, _generator.gauss_next = state
