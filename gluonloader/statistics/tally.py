"""Counts how the program spends its time, and what it gets: each epoch by itself, and all of them together."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from ..errors import logger
from ..interrupts import from_signal_handler
from ..locks import Lock
from ..tree import leaves
from ..work.info import BadSample

if TYPE_CHECKING:
    from .trace import Trace

_TIMES: Final = 4096  # batches, for percentiles
_EPOCHS: Final = 100  # epochs that are counted each by itself; older ones are added up
_LOGGED: Final = 1000  # different errors of samples
_SIZED: Final = 64  # one batch of so many is measured in bytes, since this takes as long as all other counting

T = TypeVar("T")


@dataclass(slots=True)
class EpochTally:
    """The counts of one epoch; see `EpochStats` in stats.py."""

    epoch: int
    batches: int = 0
    samples: int = 0
    waited_s: float = 0.0
    first_s: float = 0.0
    program_s: float = 0.0
    made_s: float = 0.0
    slowest_s: float = 0.0
    slowest: int | None = None
    ready: int = 0
    returned: float = 0.0  # when `next` returned last, as `time.perf_counter()`
    waits: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES))
    makes: deque[float] = field(default_factory=lambda: deque(maxlen=_TIMES))
    _sized: int = 0  # batches whose bytes were counted
    _nbytes: int = 0

    def count(self, batch: Any, number: int, samples: int, made_s: float, start: float) -> float:
        """Counts a batch that `next`, called at `start`, is about to return; returns the time now."""
        now = self.wait(start)
        if not self.batches % _SIZED:
            self._size(batch)
        if not self.batches:
            self.first_s = now - start
        self.batches += 1
        self.samples += samples
        self.waits.append(now - start)
        self.made_s += made_s
        self.makes.append(made_s)
        if made_s > self.slowest_s:
            self.slowest_s, self.slowest = made_s, number
        return now

    def wait(self, start: float) -> float:
        """Counts the time of `next`, called at `start`, which is about to return or to raise; returns the time now."""
        now = time.perf_counter()
        self.waited_s += now - start
        self.program_s += start - self.returned if self.returned else 0.0
        self.returned = now
        return now

    def _size(self, batch: Any) -> None:
        """Counts the bytes of a batch; 0 if a container of the user raises an error."""
        try:
            nbytes = sum(_nbytes_of(leaf) for _, leaf in leaves(batch))
        except Exception as error:
            if from_signal_handler(error):
                raise
            nbytes = 0
        self._sized += 1
        self._nbytes += nbytes

    def add(self, other: EpochTally) -> None:
        for name in ("batches", "samples", "waited_s", "first_s", "program_s", "made_s", "ready", "_sized", "_nbytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.slowest_s > self.slowest_s:
            self.slowest_s, self.slowest = other.slowest_s, other.slowest
        self.waits.extend(items_of(other.waits))
        self.makes.extend(items_of(other.makes))

    @property
    def nbytes(self) -> int:
        """The bytes of all batches, estimated from those that were measured."""
        return round(self._nbytes / self._sized * self.batches) if self._sized else 0


@dataclass(slots=True)
class Tally:
    """The counts of all epochs of a loader in one process; `trace` records each batch, if that was asked for."""

    errors: int = 0
    skipped: int = 0
    failed: int = 0
    deaths: int = 0  # of workers of earlier executors
    retries: int = 0  # the same
    pid: int = field(default_factory=os.getpid)
    trace: Trace | None = None
    _epochs: deque[EpochTally] = field(default_factory=deque)
    _earlier: EpochTally = field(default_factory=lambda: EpochTally(0))  # the sum of epochs that are not kept
    _logged: set[str] = field(default_factory=set)  # errors of samples
    _lock: Lock = field(default_factory=Lock)  # while an epoch is added to the earlier ones

    def start(self, epoch: int) -> EpochTally:
        """Starts to count an epoch."""
        tally = EpochTally(epoch)
        with self._lock:
            self._epochs.append(tally)
            if len(self._epochs) > _EPOCHS:
                self._earlier.add(self._epochs.popleft())
        return tally

    def sums(self) -> EpochTally:
        """The counts of all epochs together."""
        with self._lock:
            sums = EpochTally(self._epochs[-1].epoch if self._epochs else 0)
            for tally in (self._earlier, *self._epochs):
                sums.add(tally)
        return sums

    def epochs(self) -> list[EpochTally]:
        """The counts of the last epochs, each by itself."""
        return items_of(self._epochs)

    def absorb(self, other: Tally) -> None:
        """Adds the counts of another tally."""
        with self._lock:
            self._earlier.add(other.sums())
        for name in ("errors", "skipped", "failed", "deaths", "retries"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def note(self, errors: Iterable[BadSample]) -> None:
        """Counts samples that raised an error, and logs each different error once."""
        for bad in errors:
            self.errors += 1
            self.skipped += bad.skipped
            if bad.error in self._logged or len(self._logged) > _LOGGED:
                continue
            self._logged.add(bad.error)
            if len(self._logged) > _LOGGED:
                logger().warning("samples raised more than %d different errors; further errors are not logged", _LOGGED)
            else:
                logger().warning("%s raised an error, so on_error applies: %s", bad.sample, bad.error)


def items_of(items: deque[T]) -> list[T]:
    """The items of a deque, to which another thread may append meanwhile."""
    while True:
        try:
            return list(items)
        except RuntimeError:  # without a GIL, it may change while it is copied
            continue


def _nbytes_of(leaf: Any) -> int:
    """Bytes of an array of any framework; 0 for anything else."""
    try:
        nbytes = getattr(leaf, "nbytes", None)
        if nbytes is None and hasattr(leaf, "dtype"):  # MXNet's arrays
            nbytes = leaf.size * np.dtype(leaf.dtype).itemsize
        return int(nbytes or 0)
    except Exception:  # sparse arrays raise different errors
        return _nbytes_of_sparse(leaf)


def _nbytes_of_sparse(leaf: Any) -> int:
    """Bytes of the parts of a sparse array of torch or MXNet; 0 for anything else."""
    try:
        if hasattr(leaf, "_values"):
            return _nbytes_of(leaf._values()) + _nbytes_of(leaf._indices())
        return sum(map(_nbytes_of, (leaf.data, leaf.indices, getattr(leaf, "indptr", None))))
    except Exception:
        return 0
