"""The seeds of batches, and what they seed: the global generators, whose states are saved and restored, and `get_rng`.

NOTE [batch seeds]: promise P1. The seed of a batch is a hash of the loader's seed, the epoch and the batch number. So
random augmentation is the same for any executor and number of workers, and after a resume. Which generators are seeded
before a batch depends on which other code uses them:

    worker process   seed_all: all generators, since nobody else uses them
    caller           seed_restorable: all except MXNet's, whose state cannot be restored after the batch
    worker thread    set_current_seed: `get_rng` alone, since threads share the global generators

The seed of a sample is a hash of the batch's seed and the row. Only `get_rng` uses it. So a sample gets the same random
numbers if several threads read the samples of a batch, or if another sample of the batch cannot be read.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, Final

import numpy as np

from ..checks import SEEDS, check_int
from ..current import Current, new_current
from ..errors import bad_argument
from . import mxnet, numpy, python, torch

_WORDS: Final = struct.Struct("<QQQ")
_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF


class CurrentBatch:
    """The batch that is made here: its seed, and the generators that `get_rng` returns.

    Attributes:
        seed: of the batch.
        row: of the sample that is being read; None outside of samples and in a bulk read.
    """

    __slots__ = ("_of_batch", "_of_sample", "_row", "row", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.row: int | None = None
        self._of_batch: np.random.Generator | None = None
        self._of_sample: np.random.Generator | None = None
        self._row: int | None = None  # for which `_of_sample` was seeded

    @property
    def rng(self) -> np.random.Generator:
        """The generator of the sample that is being read, or of the batch."""
        if self.row is None:
            if self._of_batch is None:
                self._of_batch = np.random.default_rng(self.seed)
            return self._of_batch
        if self._of_sample is None:
            self._of_sample = np.random.Generator(np.random.PCG64())
        if self._row != self.row:
            _seed_quickly(self._of_sample, self.seed, self.row)
            self._row = self.row
        return self._of_sample


_current: Final[Current[CurrentBatch]] = new_current("gluonloader_batch")


def draw_seed() -> int:
    """Returns a 63-bit seed from NumPy's global generator, so that `np.random.seed(0)` makes a run reproducible."""
    return int(np.random.randint(0, 2**63 - 1, dtype=np.int64))


def checked_seed(seed: Any) -> int:
    """Returns the argument `seed`, of which 64 bits count; draws a seed if it is None."""
    if seed is None:
        return draw_seed()
    if check_int("seed", seed, None) not in SEEDS:
        right = "must be an int from -2**63 to 2**64 - 1; pass seed % 2**64, which has the same effect"
        raise bad_argument("seed", seed, right)
    return int(seed)


def batch_seed(seed: int, epoch: int, batch: int = 0) -> int:
    """Returns a 64-bit hash of three integers; hashes of neighbouring batches are unrelated."""
    return int.from_bytes(_hash(seed, epoch, batch, 8), "little")


def _hash(seed: int, epoch: int, batch: int, nbytes: int) -> bytes:
    words = _WORDS.pack(seed & _MASK, epoch & _MASK, batch & _MASK)
    return hashlib.blake2b(words, digest_size=nbytes).digest()


def _seed_quickly(rng: np.random.Generator, seed: int, row: int) -> None:
    """Sets the state of a PCG64 to a hash of two numbers; a new generator would take four times as long."""
    words = _hash(seed, row, 0, 32)
    state = {"state": int.from_bytes(words[:16], "little"), "inc": int.from_bytes(words[16:], "little") | 1}
    rng.bit_generator.state = {"bit_generator": "PCG64", "state": state, "has_uint32": 0, "uinteger": 0}


def seed_all(seed: int) -> None:
    """Seeds every generator for one batch in a worker process; see NOTE [batch seeds]."""
    seed_restorable(seed)
    if "mxnet.random" in sys.modules:
        mxnet.seed(seed)


def seed_restorable(seed: int) -> None:
    """Seeds every generator that `PreservedGenerators` restores, for one batch in the caller."""
    for generator in loaded():
        generator.seed(seed)
    set_current_seed(seed)


class PreservedGenerators:
    """Saves the states of the global and the `held` generators, and restores them after the block."""

    __slots__ = ("_batch", "_entered", "_held", "_saved")

    def __init__(self, held: Iterable[Any] = ()) -> None:
        self._held, self._entered = held, False
        self._saved: list[tuple[Any, Any]] = []

    def __enter__(self) -> None:
        self._batch = _current.get()
        self._entered = True
        for generator in (*self._globals(), *self._held):
            self._saved.append((generator, generator.save()))

    def _globals(self) -> list[ModuleType]:
        """The modules of the global generators that are saved."""
        return loaded()

    def __exit__(self, *exception: object) -> None:
        self.restore()

    def restore(self) -> None:
        """Restores what is not restored yet; a signal handler may have raised before `__exit__` could start."""
        if self._entered:
            _current.set(self._batch)
            restore_all(self._saved)
            self._entered = False


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
    return [(generator, generator.save()) for generator in loaded()]


def loaded() -> list[ModuleType]:
    """The global generators whose packages are loaded; those of Python and NumPy always are.

    Each is a module with `seed` (of 64 bits), `save`, `restore`, and `peek`, whose results are compared.
    """
    return [python, numpy, torch] if "torch" in sys.modules else [python, numpy]


def _are_equal(one: Any, other: Any) -> bool:
    if type(one) is type(other) and isinstance(one, (tuple, dict)):
        parts = zip(one, other, strict=False) if isinstance(one, tuple) else ((one[key], other[key]) for key in one)
        return len(one) == len(other) and all(_are_equal(*pair) for pair in parts)
    return one is other or np.array_equal(one, other)


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
    """Makes `get_rng` in this thread return the generators of the batch with this seed; None after the batch."""
    _current.set(None if seed is None else CurrentBatch(seed))


def set_current_batch(batch: CurrentBatch | None) -> None:
    """Makes `get_rng` in this thread, or in this task of an event loop, return the generators of `batch`."""
    _current.set(batch)


def current_batch() -> CurrentBatch | None:
    """The batch for which this thread was seeded last, or the batch that was set here."""
    return _current.get()


def get_rng() -> np.random.Generator:
    """Returns the random generator of the current sample or batch, for a dataset, a transform or a batchify function.

    It draws the same numbers with any executor, number of workers and `concurrency`, and after a resume. In a dataset
    that is read sample by sample, each sample has its own generator, also in its transforms. In `__getitems__`, in an
    iterable dataset and in a batchify function it is the generator of the batch. Outside of a loader, for example if
    you call `dataset[0]` yourself, each call returns a new generator, seeded from `np.random`.

    Returns:
        A `numpy.random.Generator`; all calls for the same sample return the same object. Do not keep it for later.

    >>> np.random.seed(0)
    >>> flip = get_rng().random() < 0.5
    """
    batch = _current.get()
    return np.random.default_rng(draw_seed()) if batch is None else batch.rng
