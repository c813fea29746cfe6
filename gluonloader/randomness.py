"""Randomness that does not depend on who loads a batch: seeds from (seed, epoch, batch number), and `get_rng`.

NOTE [batch seeds]: promise P1. Every batch has a seed of its own, a hash of the loader's seed, the epoch and the
batch number, so augmentation is the same for every executor, worker count and resume. A worker process, which has
its global generators to itself, reseeds them before each batch: Python's, NumPy's, and those of torch and MXNet
where they are loaded (frameworks/loaded.py). The serial executor does the same and puts the user's state back, but
leaves MXNet's alone, which cannot be read. Threads share the process's global generators, so no seeding could be
right there: they get `get_rng()` only.
"""

from __future__ import annotations

import hashlib
import random
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

__all__ = ["batch_seed", "draw_seed", "get_rng", "preserved_generators", "seed_generators", "set_current_seed"]


_WORDS: Final = struct.Struct("<QQQ")
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF


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
    random.seed(seed)
    np.random.seed(seed & 0xFFFF_FFFF)


@contextmanager
def preserved_generators() -> Iterator[None]:
    """Puts the state of Python's and NumPy's global generators back at the end of the block."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def set_current_seed(seed: int | None) -> None:
    """From now on `get_rng` in this thread is the generator of the batch with this seed; None: of no batch."""
    _local.seed, _local.rng = seed, None


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
