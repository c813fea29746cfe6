"""JAX: arrays on its default device. XLA hangs in a forked process, so workers use NumPy arrays instead."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import Array, Empty, in_worker, without_carrier


class Promised(np.ndarray[Any, Any]):
    """A NumPy array in a worker that becomes a JAX array in the main program."""


class Jax:
    """Arrays that lie completely on this host."""

    name = "jax"

    def __init__(self) -> None:
        self._jax: Any = sys.modules["jax"]

    def owns(self, kind: type) -> bool:
        return kind is Promised or issubclass(kind, self._jax.Array)

    def to_numpy(self, array: Any) -> Array | None:
        return np.asarray(array)

    def from_numpy(self, array: Array) -> Any:
        array = without_carrier(array, "JAX", "convert the array in the dataset, e.g. x.astype('float32')")
        if in_worker():
            return array.view(Promised)
        if array.dtype.kind in "iu" and array.itemsize == 8 and not self._jax.config.jax_enable_x64 and array.size:
            # By default JAX would silently cut 64-bit integers to 32 bits.
            fits = np.iinfo(np.int32 if array.dtype.kind == "i" else np.uint32)
            least, most = array.min(), array.max()
            if least < fits.min or most > fits.max:
                raise OverflowError(
                    f"{least if least < fits.min else most} does not fit JAX's {fits.dtype}; to keep {array.dtype}, "
                    "call jax.config.update('jax_enable_x64', True) first"
                )
        # On a CPU, JAX copies only memory that is not aligned to 64 bytes or has a dtype that JAX has not enabled.
        return self._jax.device_put(array)

    def stack(self, arrays: Sequence[Any], empty: Empty) -> Any:
        return None

    def pin(self, array: Any, device_id: int) -> Any:
        return array
