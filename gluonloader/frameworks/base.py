"""What a framework has to offer, and the dtypes that NumPy does not know.

    worker   array of a framework --to_numpy--> NumPy view --> slab
    parent   slab --> NumPy view --from_numpy--> array of the framework, over the same memory

A dtype that NumPy lacks (bfloat16, the 8-bit floats) travels as its carrier: a structured dtype of one field of
unsigned integers, which is named like it. It is what MXNet itself gives for bfloat16.
"""

from __future__ import annotations

import resource
import sys
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Array",
    "Framework",
    "Lent",
    "carried",
    "carrier",
    "extension",
    "fit_for_views",
    "is_numeric",
    "leaves_room",
    "no_dtype",
    "raw",
    "without_carrier",
]

Array = NDArray[Any]

_UNSIGNED: Final = {1: "u1", 2: "u2"}

_ROOM: Final = 16  # descriptors


class Framework(Protocol):
    """One framework's kind of array.

    Attributes:
        name: what `named` finds it by; it travels with the arrays.
    """

    name: str

    def owns(self, kind: type) -> bool:
        """Whether arrays of exactly this type are the framework's."""

    def to_numpy(self, array: Any) -> Array | None:
        """The same values as a NumPy array, a view where they lie in this process's memory in any order of axes.

        None where they do not (sparse, on a device): such an array travels as its own pickle.
        """

    def from_numpy(self, array: Array) -> Any:
        """An array over the memory of `array`, which stays untouched as long as it lives; a copy only if it has to be.

        Raises:
            TypeError: the framework has no such dtype.
        """

    def pin(self, array: Any, device_id: int) -> Any:
        """The array in page-locked memory; itself, with a warning the first time, where there is no device."""


class Lent(np.ndarray[Any, Any]):
    """The bytes of a delivered batch in their slab, base of all its arrays; a framework can map the slab by itself.

    Attributes:
        address: of byte 0 in this process.
        mappings: what a framework keeps of its mappings, as long as the batch lives.
    """

    address: int
    mappings: dict[Any, Any]

    def share(self) -> int | None:
        """A new descriptor of the slab, for a holder that subtracts 1 from the int32 at byte 0 when it is done.

        None where the slab cannot be shared any more.
        """
        raise NotImplementedError


def leaves_room(descriptor: int) -> bool:
    """Whether this process may open some more files after this one: batches that are kept must not take the last."""
    return descriptor < resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _ROOM


def carrier(name: str, itemsize: int) -> np.dtype[Any]:
    """The dtype that stands for one that NumPy does not know.

    >>> carrier("bfloat16", 2)
    dtype([('bfloat16', '<u2')])
    """
    return np.dtype([(name, _UNSIGNED[itemsize])])


def carried(dtype: np.dtype[Any]) -> str | None:
    """The name of the dtype that a carrier, or an extension dtype as in `ml_dtypes`, stands for; else None."""
    if dtype.itemsize not in _UNSIGNED:
        return None
    name: str = dtype.names[0] if dtype.names else dtype.name
    return name if dtype.isbuiltin == 2 or dtype == carrier(name, dtype.itemsize) else None


def raw(array: Array) -> Array:
    """The bits of an array with a carried dtype, as unsigned integers."""
    return array.view(_UNSIGNED[array.dtype.itemsize])


def extension(name: str) -> np.dtype[Any] | None:
    """The dtype of that name that `ml_dtypes` adds to NumPy; None where it is not loaded."""
    found = getattr(sys.modules.get("ml_dtypes"), name, None)
    return None if found is None else np.dtype(found)


def without_carrier(array: Array, framework: str, cure: str) -> Array:
    """The array with the dtype of `ml_dtypes` in place of a carrier.

    Raises:
        TypeError: `ml_dtypes` is not loaded; the text names the framework and the cure.
    """
    name = carried(array.dtype) if array.dtype.names else None
    if name is None:
        return array
    dtype = extension(name)
    if dtype is None:
        raise no_dtype(framework, array, cure)
    return raw(array).view(dtype)


def is_numeric(dtype: np.dtype[Any]) -> bool:
    """Whether a framework could have it; texts, times, objects and records stay NumPy arrays."""
    return dtype.kind in "biufc" or carried(dtype) is not None


def fit_for_views(array: Array) -> Array:
    """The array itself, or a copy of it, in a layout that every framework can look at: native, writable, C order."""
    if array.flags.c_contiguous and array.flags.writeable and array.dtype.isnative:
        return array
    dtype = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    return np.array(array, dtype, order="C", copy=True, subok=False)


def no_dtype(framework: str, array: Array, cure: str) -> TypeError:
    """The error for a dtype that a framework does not have."""
    return TypeError(f"{framework} has no dtype {carried(array.dtype) or array.dtype}; {cure}")
