"""MXNet's generators, which can be seeded but neither read nor restored.

NOTE [late seeds]: `mx.random.seed` returns quickly, but keeps a thread of MXNet's engine busy for 1 ms, even if nobody
draws a number. So `seed` only notes the seed. The functions of MXNet's C interface that run operators are wrapped, and
the first call seeds. A batch that does not use MXNet costs nothing. A seed that the user's code sets comes later and
therefore wins.
"""

from __future__ import annotations

import sys
from typing import Any, Final

__all__ = ["seed"]

_OPERATORS: Final = ("MXImperativeInvokeEx", "MXInvokeCachedOpEx", "MXNetFuncCall", "MXExecutorForward")
_SEEDS: Final = ("MXRandomSeed", "MXRandomSeedContext")

_late_seed: _LateSeed | None = None


def seed(seed: int) -> None:
    """Seeds MXNet's generators before its next operator runs; for worker processes only."""
    global _late_seed
    if _late_seed is None:
        _late_seed = _LateSeed(sys.modules["mxnet.base"])
    _late_seed.seed = seed & 0x7FFF_FFFF


class _LateSeed:
    """Wraps functions of the C interface; the first call after `seed` was set seeds MXNet.

    Attributes:
        seed: what to seed MXNet with before its next operator; None if that is done.
    """

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
