"""The interface of a framework, the dtypes that NumPy lacks, and restrictions on frameworks in a worker.

    worker   array of a framework --to_numpy--> NumPy view --> slab
    main     slab --> NumPy view --from_numpy--> array of the framework, over the same memory

An array of a dtype that NumPy lacks (bfloat16, 8-bit floats, torch's bits8 and int4) travels with a carrier dtype. A
carrier is a structured dtype with one field of unsigned integers, whose name is that of the missing dtype. So does
MXNet for bfloat16.
"""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import warn

Array = NDArray[Any]
Empty = Callable[[tuple[int, ...], "np.dtype[Any]"], Array]

_UNSIGNED: Final = {1: "u1", 2: "u2", 4: "u4"}
# The names of dtypes that NumPy lacks; other structured dtypes with one field are the user's.
LACKING: Final = re.compile(r"bfloat16|complex32|bits\d+(x\d)?|u?int[1-7]|float[4-8]_\w+")

_SPARE_DESCRIPTORS: Final = 16  # for the user's own files

# A worker that was not forked from this process calls these functions before it unpickles its job.
preparations: list[Callable[[], object]] = []

_in_worker = False


class Framework(Protocol):
    """Converts the arrays of one framework to NumPy and back."""

    name: str  # the name for `named`; it is sent together with the arrays

    def owns(self, kind: type) -> bool:
        """Whether arrays of exactly this type belong to the framework."""

    def to_numpy(self, array: Any) -> Array | None:
        """Returns a NumPy view of the array's memory, with any order of axes.

        Returns None for an array that is sparse or lies on a device: it travels as its own pickle.
        """

    def from_numpy(self, array: Array) -> Any:
        """Returns an array over the memory of `array`, or over a copy if the framework needs another layout.

        The caller does not change that memory while the new array lives. Raises TypeError if the framework lacks the
        dtype.
        """

    def stack(self, arrays: Sequence[Any], empty: Empty) -> Any:
        """Returns the arrays, of the same type, stacked along a new first axis in memory that `empty` allocates.

        Returns None if the framework cannot stack them faster than by `to_numpy` for each array, or if they differ in
        shape or dtype.
        """

    def pin(self, array: Any, device_id: int) -> Any:
        """Returns the array in page-locked memory; without a device it warns, and may return the array itself."""


class Lending(Protocol):
    """The memory of a delivered batch.

    Attributes:
        mappings: a framework's own mappings of the memory; they live as long as the batch.
    """

    mappings: dict[Any, Any]

    @property
    def address(self) -> int:
        """The address of byte 0 in this process."""

    @property
    def nbytes(self) -> int:
        """Bytes that the batch uses."""

    def share(self) -> int | None:
        """Returns a new descriptor of the slab, so that a framework can map it and become one of its holders.

        When the holder is done with the slab, it subtracts 1 from the int32 at byte 0. None if the memory cannot be
        shared.
        """


class Lent(np.ndarray[Any, Any]):
    """A large array of a delivered batch, as bytes; because it is a subclass, NumPy makes it the base of all views."""

    loan: Lending


def leaves_room(descriptor: int) -> bool:
    """Whether this process can still open some files after this one; batches must not use up all descriptors."""
    return descriptor < resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_DESCRIPTORS


def carrier(name: str, itemsize: int) -> np.dtype[Any]:
    """Returns the carrier of a dtype that NumPy lacks.

    >>> carrier("bfloat16", 2)
    dtype([('bfloat16', '<u2')])
    """
    return np.dtype([(name, _UNSIGNED[itemsize])])


def carried(dtype: np.dtype[Any]) -> str | None:
    """Returns the name behind a carrier or a dtype that `ml_dtypes` adds to NumPy; None for other dtypes."""
    if dtype.isbuiltin == 1 or dtype.itemsize not in _UNSIGNED:
        return None
    name: str = dtype.names[0] if dtype.names else dtype.name
    is_carrier = LACKING.fullmatch(name) is not None and dtype == carrier(name, dtype.itemsize)
    return name if dtype.isbuiltin == 2 or is_carrier else None


def raw(array: Array) -> Array:
    """Returns the bits of an array as unsigned integers; for dtypes that NumPy lacks."""
    return array.view(_UNSIGNED[array.dtype.itemsize])


def extension(name: str) -> np.dtype[Any] | None:
    """Returns the dtype of this name that `ml_dtypes` adds to NumPy; None if `ml_dtypes` is not loaded."""
    found = getattr(sys.modules.get("ml_dtypes"), name, None)
    return None if found is None else np.dtype(found)


def without_carrier(array: Array, framework: str, cure: str) -> Array:
    """Returns the array with a dtype of `ml_dtypes` instead of a carrier; a TypeError if `ml_dtypes` is not loaded."""
    name = carried(array.dtype) if array.dtype.names else None
    if name is None:
        return array
    dtype = extension(name)
    if dtype is None:
        raise no_dtype(framework, array, cure)
    return raw(array).view(dtype)


def is_numeric(dtype: np.dtype[Any]) -> bool:
    """Whether frameworks have this dtype; texts, times, objects and structured dtypes stay NumPy arrays."""
    return dtype.kind in "biufc" or carried(dtype) is not None


def fit_for_views(array: Array) -> Array:
    """Returns the array, or a copy if it is not writable, contiguous and in native byte order, as frameworks need."""
    if array.flags.c_contiguous and array.flags.writeable and array.dtype.isnative:
        return array
    dtype = array.dtype if array.dtype.isnative else array.dtype.newbyteorder("=")
    return np.array(array, dtype, order="C", copy=True, subok=False)


@cache
def warn_once(text: str) -> None:
    """Warns the first time that it is called with this text."""
    warn(text)


def no_dtype(framework: str, array: Array, cure: str) -> TypeError:
    """Returns the error for a dtype that the framework lacks."""
    return TypeError(f"{framework} has no dtype {carried(array.dtype) or array.dtype}; {cure}")


def enter_worker() -> None:
    """Marks this process as a worker and limits torch to one thread.

    A forked process does not have the threads of torch's OpenMP pool, and would wait for them forever.
    """
    global _in_worker
    _in_worker = True
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "set_num_threads"):
        torch.set_num_threads(1)


def in_worker() -> bool:
    return _in_worker
