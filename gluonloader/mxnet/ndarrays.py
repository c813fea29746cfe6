"""NumPy arrays of a batch -> NDArrays, in the context that Gluon gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from .. import frameworks
from .gluon import mx

__all__ = ["to_ndarray"]


@cache
def to_ndarray(shared: bool) -> Callable[[Any], Any]:
    """What makes one array an NDArray (`mx.np.ndarray` under `set_np`).

    Args:
        shared: in `cpu_shared(0)`, where all that comes from workers is, threads included; else in `cpu(0)`.
    """
    return _ToNDArray(shared)


class _ToNDArray:
    def __init__(self, shared: bool) -> None:
        self._shared, self._mxnet = shared, frameworks.mxnet_arrays(shared)
        self._convert = frameworks.converter(self._mxnet)

    def __call__(self, array: Any) -> Any:
        # A batch of NDArrays that threads, or a direct call, made lies in cpu(0).
        if self._shared and isinstance(array, mx.nd.NDArray) and array.ctx.device_type == "cpu":
            array = self._mxnet.to_numpy(array)
        return self._convert(array)

    def __reduce__(self) -> Any:
        return to_ndarray, (self._shared,)
