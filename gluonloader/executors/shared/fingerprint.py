"""`fingerprint`: a number that tells whether two processes have passed the same dataset or function.

It is a hash of the start of the pickle, so it takes some milliseconds, also for a large dataset. Random generators and
sets count only by their type and length, since they may differ between processes that do the same. If a part cannot be
pickled, only the parts before it count.
"""

from __future__ import annotations

import pickle
import random
import zlib
from types import CellType, FunctionType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...frameworks import owner

_MOST_BYTES: Final = 1 << 20  # of the pickle
_ARRAY_BYTES: Final = 4096  # of the start and of the end of each array
_GENERATORS: Final = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)


class _Enough(Exception):
    """The start of the pickle is complete."""


class _Hash:
    """A file that hashes what is written to it."""

    def __init__(self) -> None:
        self.value = self.length = 0

    def write(self, data: bytes | memoryview) -> int:
        self.value = zlib.crc32(data[:_MOST_BYTES], self.value)
        self.length += len(data)
        if self.length >= _MOST_BYTES:
            raise _Enough
        return len(data)


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        """What is pickled instead of an object; None for the object itself. Its parts are pickled in the same way."""
        kind = type(obj)
        if isinstance(obj, _GENERATORS) or (kind.__name__ == "Generator" and kind.__module__.startswith("torch")):
            return "generator", kind.__name__
        if kind is set or kind is frozenset:
            return "set", len(obj)
        if isinstance(obj, type):
            return "class", _module_of(obj), obj.__qualname__
        if kind is FunctionType:
            captured = [_contents(cell) for cell in obj.__closure__ or ()]
            return "function", _module_of(obj), obj.__qualname__, _crc_of_code(obj), captured, obj.__defaults__
        framework = owner(kind)
        array = obj if isinstance(obj, np.ndarray) else None if framework is None else framework.to_numpy(obj)
        if array is not None and not array.dtype.hasobject:
            return "array", array.shape, array.dtype.str, _crc_of(array)
        return None


def fingerprint(value: Any) -> int:
    """A number that is equal for equal values in processes that run the same program."""
    file = _Hash()
    pickler = _Pickler(file, protocol=5)
    pickler.fast = True  # otherwise the pickle depends on which equal objects are the same object
    try:
        pickler.dump(value)
    except Exception:  # it is long enough, or a part cannot be pickled
        pass
    return file.value


def _module_of(thing: Any) -> str:
    return "__main__" if thing.__module__ == "__mp_main__" else str(thing.__module__)


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return None


def _crc_of_code(function: FunctionType) -> int:
    code = function.__code__
    constants = [constant for constant in code.co_consts if isinstance(constant, (int, float, str, bytes))]
    return zlib.crc32(repr((code.co_code, constants, code.co_names)).encode())


def _crc_of(array: NDArray[Any]) -> int:
    count = max(1, _ARRAY_BYTES // max(1, array.itemsize))  # `flat` copies no more than these, whatever the strides
    return zlib.crc32(array.flat[-count:].tobytes(), zlib.crc32(array.flat[:count].tobytes()))
