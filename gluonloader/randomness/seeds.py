"""The seeds of batches, and what they seed: the global generators and `get_rng`.

NOTE [batch seeds]: promise P1. The seed of a batch is a hash of the loader's seed, the epoch and the batch number. So
random augmentation is the same for any executor and number of workers, and after a resume. Which generators are seeded
before a batch depends on which other code uses them:

    worker process   seed_all: all generators, since nobody else uses them
    caller           seed_restorable: all except MXNet's, whose state cannot be restored after the batch
    worker thread    set_current_seed: `get_rng` alone, since threads share the global generators
"""

from __future__ import annotations

import hashlib
import struct
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import numpy as np

from . import mxnet, numpy, python, torch

_WORDS: Final = struct.Struct("<QQQ")
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF

# The modules with `seed` (of 64 bits), `save` and `restore`. The keys are the packages that the generators belong to;
# packages that are not loaded are skipped.
RESTORABLE: Final[dict[str, ModuleType]] = {"random": python, "numpy": numpy, "torch": torch}


class _Current(threading.local):
    """The batch that this thread makes: its seed, and its random generator once `get_rng` was called."""

    seed: int | None = None
    rng: np.random.Generator | None = None


_current = _Current()


def draw_seed() -> int:
    """Returns a 63-bit seed from NumPy's global generator, so that `np.random.seed(0)` makes a run reproducible."""
    return int(np.random.randint(0, 2**63 - 1, dtype=np.int64))


def batch_seed(seed: int, epoch: int, batch: int = 0) -> int:
    """Returns a 64-bit hash of three integers; hashes of neighbouring batches are unrelated."""
    words = _WORDS.pack(seed & _MASK, epoch & _MASK, batch & _MASK)
    return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "little")


def seed_all(seed: int) -> None:
    """Seeds every generator for one batch in a worker process; see NOTE [batch seeds]."""
    seed_restorable(seed)
    if "mxnet.random" in sys.modules:
        mxnet.seed(seed)


def seed_restorable(seed: int) -> None:
    """Seeds every generator that `preserved_generators` restores, for one batch in the caller."""
    for package, generator in RESTORABLE.items():
        if package in sys.modules:
            generator.seed(seed)
    set_current_seed(seed)


@contextmanager
def preserved_generators(held: Iterable[Any] = ()) -> Iterator[None]:
    """Saves the states of the global and the `held` generators, and restores them after the block; seed them in it."""
    used = [generator for package, generator in RESTORABLE.items() if package in sys.modules]
    saved = [(generator, generator.save()) for generator in (*used, *held)]
    seed, rng = _current.seed, _current.rng
    try:
        yield
    finally:
        _current.seed, _current.rng = seed, rng
        restore_all(saved)


def restore_all(saved: list[tuple[Any, Any]]) -> None:
    """Restores the generators of the list, which is emptied, even if a signal handler raises meanwhile."""
    try:
        _restore_rest(saved)
    finally:
        if saved:
            restore_all(saved)


def _restore_rest(saved: list[tuple[Any, Any]]) -> None:  # see NOTE [loops and try] in interrupts.py
    while saved:
        generator, state = saved[-1]
        generator.restore(state)
        saved.pop()


def set_current_seed(seed: int | None) -> None:
    """Makes `get_rng` in this thread return the generator of the batch with this seed; None after the batch."""
    _current.seed, _current.rng = seed, None


def get_rng() -> np.random.Generator:
    """Returns the random generator of the current batch, for use in a dataset, a transform or a batchify function.

    It draws the same numbers with any executor and number of workers, and after a resume. Outside of a loader, for
    example if you call `dataset[0]` yourself, each call returns a new generator, seeded from `np.random`.

    Returns:
        A `numpy.random.Generator`; all calls for the same batch return the same object.

    >>> np.random.seed(0)
    >>> flip = get_rng().random() < 0.5
    """
    if _current.seed is None:
        return np.random.default_rng(draw_seed())
    if _current.rng is None:
        _current.rng = np.random.default_rng(_current.seed)
    return _current.rng
