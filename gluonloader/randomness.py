"""Randomness that does not depend on who loads a batch: seeds from (seed, epoch, batch number), and `get_rng`.

NOTE [batch seeds]: promise P1. Every batch has a seed of its own, a hash of the loader's seed, the epoch and the
batch number, so augmentation is the same for every executor, worker count and resume. A worker process, which has
its global generators to itself, reseeds them before each batch: Python's, NumPy's, and those of torch and MXNet
where they are loaded (frameworks/loaded.py). The serial executor does the same and puts the user's state back, but
leaves MXNet's alone, which cannot be read. Threads share the process's global generators, so no seeding could be
right there: they get `get_rng()` only. NumPy makes a state from a seed in less than half of the time that Python takes,
and both have a Mersenne Twister: so NumPy makes both, of one half of the seed each.

NOTE [saving states]: to get and set the states of Python's and NumPy's generators takes 60 us, as much as making a
small batch. So their bytes are copied, which takes one. NumPy tells the address of its own. They are not all: the
second of a pair of normal variates may be kept beside them, to be given next. Whether there is one is seen by taking
it: `randn` uses no bytes then. Python's lie in the object, behind its head; where they do not, as is looked at once,
the state is got and set in the usual way.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
import struct
import sys
import threading
from typing import Any, Final

import numpy as np

from .declared import has_gil

__all__ = [
    "PreservedGenerators",
    "batch_seed",
    "draw_seed",
    "get_rng",
    "is_rng_in_use",
    "seed_generators",
    "set_current_seed",
    "state_of_generators",
]


_TwisterBytes: Final = ctypes.c_char * (624 * 4 + 4)  # the key of a Mersenne Twister, and the position in it
_WORDS: Final = struct.Struct("<QQQ")
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_HALF: Final = 0xFFFF_FFFF


class _Local(threading.local):
    seed: int | None = None
    rng: np.random.Generator | None = None


_local = _Local()


def draw_seed() -> int:
    """A 63-bit seed from NumPy's global generator, so that `np.random.seed(0)` makes a run repeat."""
    return int(np.random.randint(0, 2**63 - 1, dtype=np.int64))


def batch_seed(seed: int, epoch: int, batch: int = 0) -> int:
    """A 64-bit hash of three integers; neighbours have nothing in common.

    >>> batch_seed(0, 0, 1) == batch_seed(0, 0, 1), batch_seed(0, 0, 1) == batch_seed(0, 1, 0)
    (True, False)
    """
    words = _WORDS.pack(seed & _MASK, epoch & _MASK, batch & _MASK)
    return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "little")


def seed_generators(seed: int) -> None:
    """Seeds Python's and NumPy's global generators for one batch; see NOTE [batch seeds]."""
    np.random.seed(seed & _HALF)
    _SOURCE.seed(seed >> 32 & _HALF)
    if _PYTHON_BYTES is None:
        state = _SOURCE.get_state(legacy=False)["state"]
        random.setstate((3, (*state["key"].tolist(), state["pos"]), None))
    else:
        key_and_position = _SOURCE_BYTES.raw
        _PYTHON_BYTES.raw = key_and_position[-4:] + key_and_position[:-4]
        _PYTHON.gauss_next = None


def state_of_generators() -> object:
    """What is equal after a batch was seeded and later, if nothing was drawn from Python's and NumPy's generators.

    A normal variate that either keeps needs no look: its pair was drawn after the seeding, and changed the bytes.
    """
    generator = _mersenne_twister()
    python = random.getstate() if _PYTHON_BYTES is None else _PYTHON_BYTES.raw
    return python, object() if generator is None else _bytes_of(generator).raw


class PreservedGenerators:
    """Puts the state of Python's and NumPy's global generators back at the end of the block."""

    def __enter__(self) -> None:
        self._python, self._numpy = _SavedPython(), _SavedNumpy()

    def __exit__(self, *exc_info: object) -> None:
        self._python.put_back()
        self._numpy.put_back()


class _SavedPython:
    """The state of Python's global generator; see NOTE [saving states]."""

    def __init__(self) -> None:
        self._state: Any = None
        if _PYTHON_BYTES is None:
            self._state = random.getstate()
            return
        self._bytes: bytes = _PYTHON_BYTES.raw
        self._variate = _PYTHON.gauss_next

    def put_back(self) -> None:
        if _PYTHON_BYTES is None:
            random.setstate(self._state)
        else:
            _PYTHON_BYTES.raw, _PYTHON.gauss_next = self._bytes, self._variate


class _SavedNumpy:
    """The state of NumPy's global generator, which is spoilt; see NOTE [saving states]."""

    def __init__(self) -> None:
        self._state: Any = None
        generator = _mersenne_twister()
        if generator is None:
            self._state = np.random.get_state(legacy=False)
            return
        where = _bytes_of(generator)
        self._bytes: bytes = where.raw
        self._variate = _take_variate(where)

    def put_back(self) -> None:
        generator = _mersenne_twister()
        if self._state is not None:
            np.random.set_state(self._state)
        elif self._variate is None and generator is not None:
            where = _bytes_of(generator)
            _take_variate(where)
            with generator.lock:
                where.raw = self._bytes
        else:
            key, position = np.frombuffer(self._bytes, np.uint32, 624), int.from_bytes(self._bytes[-4:], sys.byteorder)
            np.random.set_state(("MT19937", key, position, self._variate is not None, self._variate or 0.0))


def _take_variate(where: Any) -> float | None:
    """The normal variate that NumPy's generator keeps, which has its bytes at `where`; from now on it keeps none."""
    before = where.raw
    variate: float = np.random.randn()
    if where.raw == before:
        return variate
    np.random.randn()  # the second of a new pair
    return None


def _bytes_of_python() -> Any:
    """Position and key of Python's Mersenne Twister, in place; None if they do not lie where they are looked for."""
    generator = getattr(random.random, "__self__", None)
    exact = has_gil() and sys.implementation.name == "cpython"
    if not exact or type(generator) is not random.Random:
        return None
    head = object.__basicsize__
    if head + ctypes.sizeof(_TwisterBytes) > random.Random.__basicsize__:
        return None
    found = _TwisterBytes.from_address(id(generator) + head)
    *key, position = generator.getstate()[1]
    return found if found.raw == struct.pack("=I624I", position, *key) else None


def _mersenne_twister() -> Any:
    """The bit generator of `np.random`; None if somebody has set one of another kind."""
    generator = np.random.mtrand._rand._bit_generator  # type: ignore[attr-defined]
    return generator if type(generator) is np.random.MT19937 else None


def _bytes_of(generator: Any) -> Any:
    return _TwisterBytes.from_address(generator.ctypes.state_address)


def set_current_seed(seed: int | None) -> None:
    """From now on `get_rng` in this thread is the generator of the batch with this seed; None: of no batch."""
    _local.seed, _local.rng = seed, None


def is_rng_in_use() -> bool:
    """Whether `get_rng` was asked for since the batch of this thread was seeded."""
    return _local.rng is not None


def get_rng() -> np.random.Generator:
    """The random generator of the batch that is being made, for use in a dataset, a transform or a batchify.

    It gives the same numbers for every executor, number of workers and resume, threads included, and costs
    nothing unless asked for. Outside of a batch (say, when trying `dataset[0]` by hand) it is a new generator,
    seeded from NumPy's global one.

    Returns:
        A `numpy.random.Generator`; within one batch always the same object.

    >>> np.random.seed(0)
    >>> flip = get_rng().random() < 0.5
    """
    if _local.seed is None:
        return np.random.default_rng(draw_seed())
    if _local.rng is None:
        _local.rng = np.random.default_rng(_local.seed)
    return _local.rng


_PYTHON: Final[Any] = getattr(random.random, "__self__", None)
_PYTHON_BYTES: Final = _bytes_of_python()
_TWISTER: Final = np.random.MT19937(0)  # where NumPy makes Python's states
_SOURCE: Final = np.random.RandomState(_TWISTER)
_SOURCE_BYTES: Final = _bytes_of(_TWISTER)
