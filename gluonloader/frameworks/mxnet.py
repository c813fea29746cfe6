"""MXNet: NDArrays of the legacy and of the NumPy-like interface."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

from .base import Array, Empty, Lent, carried, fit_for_views, no_dtype, raw, warn_once
from .mxnet_memory import MXNetMemory

_LARGE: Final = 64 * 1024  # bytes; smaller arrays are copied sooner than borrowed
_CURE: Final = "MXNet 1.9.1 has float16/32/64, int8/32/64, uint8 and bool: convert the array, e.g. x.astype('int64')"


class MXNet:
    """Dense arrays in host memory.

    Args:
        numpy_like: True for `mx.np.ndarray`, False for `mx.nd.NDArray`, None for both. With None,
            `mx.util.is_np_array()` decides what new arrays are.
        shared: where arrays go that are no large part of a slab: if True, they are copied to `cpu_shared(0)`, unless
            descriptors run out; if False, they become arrays in `cpu(0)`, large ones without a copy. Arrays that are a
            large part of a slab are always in `cpu_shared(0)`, and not copied.
    """

    def __init__(self, numpy_like: bool | None, shared: bool = False) -> None:
        self.name = {None: "mxnet", False: "mxnet.nd", True: "mxnet.np"}[numpy_like]
        self._mx: Any = sys.modules["mxnet"]
        if not self._mx.__version__.startswith("1."):
            what = f"MXNet {self._mx.__version__} is installed, but gluonloader cannot read its arrays"
            raise ImportError(f'{what}; run pip install "mxnet==1.9.1"')
        self._memory = MXNetMemory(self._mx)
        self._numpy_like, self._shared = numpy_like, shared
        self._types: tuple[type, type] = (self._mx.nd.NDArray, self._mx.np.ndarray)

    def owns(self, kind: type) -> bool:
        return kind in self._types if self._numpy_like is None else kind is self._types[self._numpy_like]

    def to_numpy(self, array: Any) -> Array | None:
        return self._memory.view(array)

    def from_numpy(self, array: Array) -> Any:
        array = fit_for_views(array)
        base = array.base
        if carried(array.dtype) == "bfloat16":
            array = raw(array).view(self._memory.bfloat16)
        if array.dtype not in self._memory.codes:
            raise no_dtype("MXNet", array, _CURE)
        numpy_like = self._mx.util.is_np_array() if self._numpy_like is None else self._numpy_like
        return self._types[numpy_like](handle=self._handle_over(array, base))

    def _handle_over(self, array: Array, base: Any) -> Any:
        """Returns the handle of an NDArray over the memory of `array`, or over a copy."""
        memory = self._memory
        if not array.size or not array.ndim:
            return memory.copy(array, self._shared)
        lent = isinstance(base, Lent)
        handle = memory.attach(array, base) if lent else None
        if handle is None and self._shared:
            handle = memory.share(array)
        if handle is None:  # not `borrow`, which would notice too late that MXNet no longer uses a slab
            handle = memory.copy(array, False) if lent or array.nbytes < _LARGE else memory.borrow(array)
        return handle

    def stack(self, arrays: Sequence[Any], empty: Empty) -> Any:
        batch = self._memory.stack(arrays, empty)
        return None if batch is None else self.from_numpy(batch)

    def pin(self, array: Any, device_id: int) -> Any:
        if not self._mx.context.num_gpus():
            warn_once("pin_memory=True, but MXNet sees no GPU: arrays stay in ordinary memory; remove pin_memory")
        return array.as_in_context(self._mx.Context("cpu_pinned", device_id))
