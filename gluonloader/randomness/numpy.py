"""NumPy's global generator, `np.random`.

NOTE [saving NumPy's state]: `get_state` and `set_state` take 70 us together, as long as making a small batch. So `save`
and `restore` copy two pieces of memory: the Mersenne Twister, whose address NumPy publishes for this purpose, and a
normal variate. Normal variates are made in pairs, and the second one of a pair is kept in the RandomState for the next
call. `_variate` looks for its place in another RandomState. If it is not found, or if the bit generator is no Mersenne
Twister, `get_state` and `set_state` are used.
"""

from __future__ import annotations

import ctypes
import pickle
import struct
from functools import cache
from typing import Any, Final

import numpy as np

from ..locks import release_held

# NumPy 1.24 has a function for it.
_bit_generator: Final = getattr(np.random, "get_bit_generator", lambda: np.random.mtrand._rand._bit_generator)
_Twister: Final = ctypes.c_char * (624 * 4 + 4)  # the key of a Mersenne Twister and the index of its next word
_End: Final = ctypes.c_char * 12  # the last words of the key and the index; each draw changes one of them
_END_AT: Final = ctypes.sizeof(_Twister) - ctypes.sizeof(_End)
_VARIATE: Final = struct.Struct("@id")  # whether a variate is kept, and the variate
_Variate: Final = ctypes.c_char * _VARIATE.size


def seed(seed: int) -> None:
    """Seeds the generator with the lower 32 bits of `seed`, since it takes no more."""
    np.random.seed(seed & 0xFFFF_FFFF)


@cache  # at the first use, since it takes 0.2 ms
def _variate() -> Any:
    """The memory of the variate in the global RandomState; None if it is not where it is expected."""
    state, variate = np.random.RandomState(0), 0.123456789
    state.set_state({**state.get_state(legacy=False), "has_gauss": 1, "gauss": variate})  # type: ignore[arg-type, dict-item]
    memory = ctypes.string_at(id(state), type(state).__basicsize__)
    offset = memory.find(struct.pack("d", variate)) - _VARIATE.size + 8
    if offset < 0 or _VARIATE.unpack_from(memory, offset)[0] != 1:
        return None
    state.standard_normal()
    if _VARIATE.unpack(ctypes.string_at(id(state) + offset, _VARIATE.size))[0] != 0:
        return None
    get_state: Any = np.random.get_state
    return _Variate.from_address(id(get_state.__self__) + offset)


def save() -> tuple[Any, bytes, bytes | None]:
    """Returns the state, for `restore`."""
    generator, variate = _bit_generator(), _variate()
    if variate is None or type(generator) is not np.random.MT19937:
        return generator, pickle.dumps(np.random.get_state(legacy=False)), None
    return generator, _memory_of(generator).raw, variate.raw


def peek() -> Any:
    """A value that changes when numbers are drawn."""
    generator, variate = _bit_generator(), _variate()
    if variate is None or type(generator) is not np.random.MT19937:
        return save()
    return generator, _End.from_address(generator.ctypes.state_address + _END_AT).raw, variate.raw


def restore(state: tuple[Any, bytes, bytes | None]) -> None:
    generator, saved, variate = state
    if _bit_generator() is not generator:  # user code has replaced it
        np.random.set_bit_generator(generator)  # type: ignore[attr-defined]
    if variate is None:
        np.random.set_state(pickle.loads(saved))
        return
    try:
        with generator.lock:
            _memory_of(generator).raw, _variate().raw = saved, variate
    except BaseException:  # of a signal handler; see NOTE [locks] in locks.py
        release_held(generator.lock)
        raise


def _memory_of(twister: Any) -> Any:
    return _Twister.from_address(twister.ctypes.state_address)
