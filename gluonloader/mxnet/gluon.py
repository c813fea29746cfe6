"""Imports Gluon, and converts the arrays of a batch to NDArrays in the MXNet context that Gluon uses."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from .. import frameworks

frameworks.named("mxnet")  # if MXNet does not import, this raises an error that says what to do

import mxnet as mx  # noqa: E402
from mxnet.gluon import data  # noqa: E402
from mxnet.gluon.data import dataloader, dataset, sampler, vision  # noqa: E402

__all__ = ["data", "dataloader", "dataset", "mx", "sampler", "to_ndarray", "vision"]


@cache
def to_ndarray(shared: bool) -> Callable[[Any], Any]:
    """A function from an array to an NDArray (`mx.np.ndarray` under `set_np`), in `cpu_shared(0)` or in `cpu(0)`."""
    return _ToNDArray(shared)


class _ToNDArray:
    def __init__(self, shared: bool) -> None:
        self._shared, self._mxnet = shared, frameworks.named("mxnet.shared" if shared else "mxnet")
        self._convert = frameworks.converter(self._mxnet)

    def __call__(self, array: Any) -> Any:
        # NDArrays that were stacked in a thread or by a direct call lie in cpu(0).
        if self._shared and isinstance(array, mx.nd.NDArray) and array.ctx.device_type == "cpu":
            array = self._mxnet.to_numpy(array)
        return self._convert(array)

    def __reduce__(self) -> Any:
        return to_ndarray, (self._shared,)
