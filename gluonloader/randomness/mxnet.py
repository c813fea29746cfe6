"""MXNet's generators, which can be seeded, but whose state can neither be saved nor restored.

NOTE [late seeds]: `mx.random.seed` returns quickly, but keeps a thread of MXNet's engine busy for 1 ms, even if nobody
draws a number. So `seed` only stores the seed. The functions of MXNet's C interface that run operators are wrapped, and
the first call of any of them seeds. So seeding costs no time for a batch that does not use MXNet. If user code sets a
seed, it does so later, and so its seed is used.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Final

_RUN_OPERATORS: Final = ("MXImperativeInvokeEx", "MXInvokeCachedOpEx", "MXNetFuncCall", "MXExecutorForward")

_noted_seed: int | None = None


def seed(seed: int) -> None:
    """Seeds MXNet's generators before its next operator runs; for worker processes only."""
    global _noted_seed
    _wrap_operators()
    _noted_seed = seed & 0x7FFF_FFFF


@cache
def _wrap_operators() -> None:
    library: Any = sys.modules["mxnet.base"]._LIB
    seed_now = library.MXRandomSeed

    def seeding_first(function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            global _noted_seed
            noted, _noted_seed = _noted_seed, None
            if noted is not None:
                seed_now(noted)
            return function(*arguments)

        return call

    for name in (*_RUN_OPERATORS, "MXRandomSeed", "MXRandomSeedContext"):
        setattr(library, name, seeding_first(getattr(library, name)))
