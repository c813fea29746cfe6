"""torch: tensors that share their memory with NumPy arrays, and the reverse."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, Final

import numpy as np

from ..interrupts import from_signal_handler
from .base import LACKING, Array, Empty, carried, carrier, extension, fit_for_views, in_worker, no_dtype, raw, warn_once

_DTYPE: Final = attrgetter("dtype")
# Up to so many bytes, torch stacks tensors faster in memory of its own. In a worker, they are then copied.
_SMALL_IN_WORKER: Final = 16 * 1024
_SMALL: Final = 1024 * 1024


def is_shared(value: Any) -> bool:
    """Whether it is a tensor, or the storage of one, in memory that torch can pass to another process as it is.

    Tensors on a device do not count, nor those that `torch.from_file` maps: torch has closed the file.
    """
    torch: Any = sys.modules.get("torch")
    storages = () if torch is None else (torch.UntypedStorage, torch.TypedStorage)
    if torch is None or type(value) not in (torch.Tensor, torch.nn.Parameter, *storages):
        return False
    if type(value) not in storages:
        if value.layout is not torch.strided or (value.requires_grad and not value.is_leaf):
            return False
        value = value.untyped_storage()
    storage = getattr(value, "_untyped_storage", value)
    if storage.device.type != "cpu" or not storage.is_shared():
        return False
    by_name = torch.multiprocessing.get_sharing_strategy() == "file_system"
    return by_name or not storage.size() or storage._share_fd_cpu_()[0] >= 0


def sees_device(torch: Any) -> bool:
    """Whether torch can use a device, so that it can pin memory."""
    accelerator = getattr(torch, "accelerator", None)
    return bool(torch.cuda.is_available() or (accelerator is not None and accelerator.is_available()))


class Torch:
    """Dense CPU tensors. Tensors that need a gradient, are sparse or lie on a device travel as torch's own pickles."""

    name = "torch"

    def __init__(self) -> None:
        self._torch: Any = sys.modules["torch"]
        # The dtypes that NumPy lacks, by name: torch.bfloat16 is "bfloat16".
        named = {str(value)[6:]: value for value in vars(self._torch).values() if isinstance(value, self._torch.dtype)}
        self._extra = {name: dtype for name, dtype in named.items() if LACKING.fullmatch(name)}
        self._carriers = {dtype: carrier(name, dtype.itemsize) for name, dtype in self._extra.items()}
        self._uints = {1: self._torch.uint8, 2: self._torch.int16, 4: self._torch.int32}
        self._dtypes: dict[Any, np.dtype[Any]] = self._carriers.copy()  # by dtype of torch
        for code in np.typecodes["AllInteger"] + "?efdFD":
            with suppress(TypeError):  # torch lacks it
                self._dtypes[self._torch.from_numpy(np.empty(0, code)).dtype] = np.dtype(code)

    def owns(self, kind: type) -> bool:
        return kind is self._torch.Tensor

    def to_numpy(self, array: Any) -> Array | None:
        try:
            values: Array = array.numpy()
            return values
        except (TypeError, RuntimeError):
            return self._unusual(array)

    def _unusual(self, array: Any) -> Array | None:
        """Converts what `Tensor.numpy` refuses: lazily conjugated or negated tensors, and dtypes that NumPy lacks."""
        if array.requires_grad or array.device.type != "cpu" or array.layout is not self._torch.strided:
            return None
        kind = self._carriers.get(array.dtype)
        try:
            array = array.resolve_conj().resolve_neg()
            values: Array = array.numpy() if kind is None else array.view(self._uints[kind.itemsize]).numpy()
        except (TypeError, RuntimeError):  # quantized
            return None
        return values if kind is None else values.view(extension(str(array.dtype)[6:]) or kind)

    def from_numpy(self, array: Array) -> Any:
        array = fit_for_views(array)
        name = carried(array.dtype)
        try:
            if name is None:
                return self._torch.from_numpy(array)
            bits = self._torch.from_numpy(raw(array).view(f"i{array.dtype.itemsize}"))
            return bits.view(self._extra[name])
        except (TypeError, KeyError):
            if array.dtype == np.uint64:  # NumPy has two dtypes of 64 unsigned bits, of which torch knows one
                return self._torch.from_numpy(array.view(np.uint64))
            raise no_dtype("torch", array, "convert the array in the dataset, e.g. x.astype('float32')") from None

    def stack(self, arrays: Sequence[Any], empty: Empty) -> Any:
        torch, first = self._torch, arrays[0]
        dtype = self._dtypes.get(first.dtype)
        if type(first) is not torch.Tensor or dtype is None or len(set(map(_DTYPE, arrays))) > 1:
            return None
        try:
            if first.nbytes * len(arrays) <= (_SMALL_IN_WORKER if in_worker() else _SMALL):
                stacked = torch.stack(arrays)
                is_plain = stacked.layout is torch.strided and stacked.is_cpu and not stacked.requires_grad
                return stacked if is_plain else None
            batch = empty((len(arrays), *first.shape), dtype)
            return torch.stack(arrays, out=torch.from_numpy(batch) if dtype.names is None else self.from_numpy(batch))
        except RuntimeError as error:
            if from_signal_handler(error):
                raise
            return None  # they differ in shape, or some need a gradient, are sparse or lie on a device

    def pin(self, array: Any, device_id: int) -> Any:
        if sees_device(self._torch):
            return array.pin_memory()
        warn_once("pin_memory=True, but torch sees no device: tensors stay in ordinary memory; remove pin_memory")
        return array
