"""NumPy arrays of a batch -> NDArrays, in the context that Gluon gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from .. import frameworks

__all__ = ["to_ndarray"]


@cache
def to_ndarray(shared: bool) -> Callable[[Any], Any]:
    """What makes one array an NDArray (`mx.np.ndarray` under `set_np`).

    Args:
        shared: in `cpu_shared(0)`, where all that comes from workers is, threads included; else in `cpu(0)`.
    """
    return frameworks.converter(frameworks.mxnet_arrays(shared))
