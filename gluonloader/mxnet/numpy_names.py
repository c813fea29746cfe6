"""`patch_numpy` restores the names that MXNet 1.9.1 uses and that newer versions of NumPy lack."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NoReturn

import numpy as np

from ..errors import logger
from ..frameworks import preparations


def _in1d(ar1: Any, ar2: Any, *args: Any, **kwargs: Any) -> Any:
    return np.isin(ar1, ar2, *args, **kwargs).reshape(-1)


def _financial(name: str) -> Callable[..., NoReturn]:
    def removed(*args: object, **kwargs: object) -> NoReturn:
        raise RuntimeError(
            f"NumPy 1.20 removed {name}(); run pip install numpy-financial, and call numpy_financial.{name}()"
        )

    return removed


# The keys are the NumPy versions that removed the names. `import mxnet` needs all names except `int` and `compat`,
# which mx.test_utils and mx.np.pad use when they run.
_REMOVED: Final[dict[tuple[int, int], dict[str, object]]] = {
    (1, 24): {"bool": bool, "int": int},
    (2, 0): {
        "Inf": np.inf,
        "NAN": np.nan,
        "NINF": -np.inf,
        "NZERO": -0.0,
        "NaN": np.nan,
        "PINF": np.inf,
        "PZERO": 0.0,
        "alltrue": np.all,
        "compat": SimpleNamespace(basestring=str),
        "msort": partial(np.sort, axis=0),
        "product": np.prod,
        "round_": np.round,
        "sometrue": np.any,
        # As in NumPy 1.20 to 1.26, MXNet can import these functions, but calling one is an error.
        **{name: _financial(name) for name in ("mirr", "npv", "pmt", "ppmt", "pv", "rate")},
    },
    (2, 4): {"in1d": _in1d, "trapz": vars(np).get("trapezoid")},
}


def patch_numpy() -> tuple[str, ...]:
    """Adds the names to the module `numpy` that MXNet 1.9.1 needs and the installed NumPy lacks.

    Call it before `import mxnet`; if `import mxnet` has already failed in this process, repeat the import after this
    call. `patch_numpy` does not import MXNet or replace an existing name. It logs the added names at level INFO on the
    logger "gluonloader".

    Returns:
        The names that were added, sorted; an empty tuple with NumPy 1.23, and at a second call.
    """
    version = tuple(map(int, np.__version__.split(".")[:2]))
    removed = {name: value for since, names in _REMOVED.items() if version >= since for name, value in names.items()}
    # Not hasattr(): NumPy warns or raises from its own __getattr__ for names like these.
    added = tuple(sorted(removed.keys() - vars(np).keys()))
    for name in added:
        setattr(np, name, removed[name])
    if "mxnet" not in sys.modules:
        # A failed import leaves the submodules in sys.modules. Another import would not bind them to the new package,
        # which would then lack mx.autograd, mx.context and others.
        for name in [name for name in sys.modules if name.startswith("mxnet.")]:
            del sys.modules[name]
    if patch_numpy not in preparations:
        preparations.append(patch_numpy)
    logger().info("patch_numpy: NumPy %s, names added for MXNet 1.9.1: %s", np.__version__, ", ".join(added) or "none")
    return added
