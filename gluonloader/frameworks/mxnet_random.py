"""MXNet's random generators in a worker, seeded for each batch that uses MXNet.

NOTE [late seeds]: a call of `mx.random.seed` is short, but it gives a thread of the engine 1 ms to do, whether anybody
draws or not. So a batch's seed is only noted, and the functions of MXNet's C interface through which all operators go
seed first, once a batch: whoever does not use MXNet pays nothing. A seed that the user's own code sets comes after
it, and stays.
"""

from __future__ import annotations

import sys
from typing import Any, Final

__all__ = ["noted_seed", "seed_later"]

_OPERATORS: Final = ("MXImperativeInvokeEx", "MXInvokeCachedOpEx", "MXNetFuncCall", "MXExecutorForward")
_SEEDS: Final = ("MXRandomSeed", "MXRandomSeedContext")

_late_seed: _LateSeed | None = None


def seed_later(seed: int) -> None:
    """Has MXNet's generators seeded before its next operator runs; for workers only, which have MXNet to themselves."""
    global _late_seed
    if _late_seed is None:
        _late_seed = _LateSeed(sys.modules["mxnet.base"])
    _late_seed.seed = seed & 0x7FFF_FFFF


def noted_seed() -> int | None:
    """The seed that waits for MXNet's next operator; None where one has run since, or MXNet was not seeded at all."""
    return None if _late_seed is None else _late_seed.seed


class _LateSeed:
    """The functions of the C interface, with a look at the noted seed before each call."""

    def __init__(self, base: Any) -> None:
        self.seed: int | None = None
        self._seed_now = base._LIB.MXRandomSeed
        for name in (*_OPERATORS, *_SEEDS):
            setattr(base._LIB, name, self._seeding_first(getattr(base._LIB, name)))

    def _seeding_first(self, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            seed, self.seed = self.seed, None
            if seed is not None:
                self._seed_now(seed)
            return function(*arguments)

        return call
