"""The random generators around a batch, seeded for it by whoever makes it; see NOTE [batch seeds] in randomness.py.

    a worker process   Python's, NumPy's, those of the frameworks that are loaded, and `get_rng`'s
    the caller         the same but for MXNet's, and all are put back
    a thread           `get_rng`'s alone

NOTE [undrawn]: to seed Python's and NumPy's generators, and in the caller to put them back, takes as long as making a
small batch, and most datasets draw nothing from them. So if a worker's first batches drew nothing, the next ones are
made without, and it is looked at afterwards if they drew, which takes a tenth of that. One that did is made again,
seeded, as all after it are: every batch that is delivered is the one that seeded generators give. Only a dataset that
reads their state, draws nothing and does so in none of the first batches would see the state of an earlier batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, ParamSpec, Protocol, TypeVar

from .. import frameworks
from ..randomness import (
    SavedGenerators,
    is_rng_in_use,
    seed_generators,
    set_current_seed,
    state_of_generators,
)

__all__ = ["CallersGenerators", "Generators", "ProcessGenerators", "ThreadGenerators"]

_WATCHED: Final = 64  # batches that drew nothing, before one is made without seeds

P = ParamSpec("P")
T = TypeVar("T")


class Generators(Protocol):
    """The generators of one worker."""

    def seed(self, seed: int) -> None:
        """Seeds them all."""

    def state(self) -> object:
        """What is equal as long as nothing is drawn from them, after they were seeded."""

    def run(self, seed: int | None, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `make` returns with generators that have this seed; None: it seeds them by itself."""


class ThreadGenerators:
    """Those of a worker thread, which shares all global ones."""

    def seed(self, seed: int) -> None:
        set_current_seed(seed)

    def state(self) -> object:
        return is_rng_in_use()

    def run(self, seed: int | None, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if seed is not None:
            set_current_seed(seed)
        return make(*args, **kwargs)


class ProcessGenerators:
    """Those of a worker process, which has them to itself."""

    def __init__(self) -> None:
        self._undrawn = 0.0  # batches that drew nothing
        self._untouched: object = None  # the state that they left, once there were enough of them

    def seed(self, seed: int) -> None:
        seed_generators(seed)
        self._seed_others(seed)

    def _seed_others(self, seed: int) -> None:
        frameworks.seed_generators(seed)
        set_current_seed(seed)

    def state(self) -> object:
        return state_of_generators(), frameworks.state_of_generators(), is_rng_in_use()

    def run(self, seed: int | None, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if seed is None:
            return make(*args, **kwargs)
        return self._run(seed, self._untouched, make, *args, **kwargs)

    def _run(self, seed: int, untouched: object, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `make` returns, unseeded as long as the state is `untouched`, if that is given; see NOTE [undrawn]."""
        if untouched is None:
            return self._run_seeded(seed, make, *args, **kwargs)
        self._seed_others(seed)
        try:
            made = make(*args, **kwargs)
        except Exception:
            if state_of_generators() == untouched:
                raise
        else:
            if state_of_generators() == untouched:
                return made
            del made
        return self._run_seeded(seed, make, *args, **kwargs)

    def _run_seeded(self, seed: int, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.seed(seed)
        if self._undrawn < 0:
            return make(*args, **kwargs)
        before = state_of_generators()
        try:
            return make(*args, **kwargs)
        finally:
            self._undrawn = self._undrawn + 1 if state_of_generators() == before else -math.inf
            self._untouched = before if self._undrawn >= _WATCHED else None


class CallersGenerators(ProcessGenerators):
    """Those of the program that makes its batches by itself: after a batch they are what they were before."""

    def _seed_others(self, seed: int) -> None:
        frameworks.seed_restorable(seed)
        set_current_seed(seed)

    def run(self, seed: int | None, make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        saved, others = SavedGenerators(), frameworks.SavedGenerators()
        try:
            if seed is None:
                return make(*args, **kwargs)
            return self._run(seed, self._untouched and saved.bare_state, make, *args, **kwargs)
        finally:
            saved.put_back()
            others.put_back()
            set_current_seed(None)
