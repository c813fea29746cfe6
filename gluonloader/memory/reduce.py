"""Reduce a batch to a head of few bytes with its arrays in a slab, and rebuild it as views on the slab.

    worker   reduce(batch, arena)   arrays -> slab (already there, or copied), all else -> head
    parent   rebuild(head, memory)  head -> the same objects, arrays as views on `memory`, zero copies

There is one head per batch, however many arrays it has. Of an array, or a tuple, list or dict of some, which most
batches are, it says only where they lie. Of all else it is a pickle, protocol 5: plain arrays are told apart by
`persistent_id`, which costs less than NumPy's own reduction; so are the arrays of other frameworks, which travel as
NumPy arrays and are rebuilt as what they were; and every other type that offers its buffers out of band is served.
Heads are read only from slabs that this loader's own workers wrote.
"""

from __future__ import annotations

import io
import marshal
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import SharedMemoryError, TransportError
from ..frameworks import named, owner
from ..tree import children
from .arena import Arena

__all__ = ["Head", "Sealed", "rebuild", "reduce"]


@dataclass(slots=True)  # not frozen: see records.py
class Head:
    """Where the head of a batch lies in its slab: `length` bytes at `offset`, the last `spans` name buffers."""

    offset: int
    length: int
    spans: int


@dataclass(frozen=True, slots=True)
class Sealed:
    """Samples as they lie in a slab, for another worker to rebuild. The loan keeps them there, and stays here."""

    slab: int
    head: Head
    loan: Any = None

    def __reduce__(self) -> Any:
        return Sealed, (self.slab, self.head)


_PLAIN: Final = frozenset((str, int, float, bool, bytes, tuple, list, dict, type(None)))


_CONTAINERS: Final = (np.ndarray, tuple, list, dict)  # of arrays alone, by their number in a head
_NO_PICKLE: Final = b"\0"  # what such a head begins with

_dtype_of = cache(np.dtype)


class _Reducer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, arena: Arena) -> None:
        super().__init__(file, protocol=5, buffer_callback=self._take_buffer)
        self._arena = arena
        self.spans: list[int] = []
        self.own_error: Exception | None = None

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is np.ndarray:
            return None if obj.dtype.hasobject else _place(obj, self._arena)
        framework = None if kind in _PLAIN else owner(kind)
        if framework is None:
            return None
        try:
            array = framework.to_numpy(obj)
        except Exception as error:  # of the user's own: MXNet tells of a failed operation when its result is read
            self.own_error = error
            raise
        return None if array is None or array.dtype.hasobject else (*_place(array, self._arena), framework.name)

    def _take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        try:
            data = buffer.raw()
        except BufferError:
            return True  # not contiguous: travels in the head
        self.spans += (self._arena.write(data) or 0, len(data))
        return False


def _place(array: NDArray[Any], arena: Arena) -> tuple[Any, ...]:
    """Puts an array into the slab, and says where: offset, shape, dtype, strides."""
    offset = arena.place(array)
    in_place = array.flags.c_contiguous or not arena.holds(array)
    dtype = array.dtype if _is_special(array.dtype) else array.dtype.str
    return offset, array.shape, dtype, None if in_place else array.strides


def _is_special(dtype: np.dtype[Any]) -> bool:
    """Whether it is more than its str says: fields, metadata, or another package's."""
    return dtype.isbuiltin != 1 and bool(dtype.names or dtype.metadata or dtype.isbuiltin == 2)


def _head_of_arrays(batch: Any, arena: Arena) -> bytes | None:
    """The head of an array, or of a tuple, list or dict of arrays; None for all else."""
    kind = type(batch)
    if kind not in _CONTAINERS:
        return None
    arrays = batch.values() if kind is dict else (batch,) if kind is np.ndarray else batch
    keys = tuple(batch) if kind is dict else ()
    for array in arrays:
        if type(array) is not np.ndarray or array.dtype.hasobject or _is_special(array.dtype):
            return None
    for key in keys:
        if type(key) is not str:
            return None
    places = [_place(array, arena) for array in arrays]
    return _NO_PICKLE + marshal.dumps((_CONTAINERS.index(kind), keys, places))


class _ByValue(_Reducer):
    """Takes only what is as good as its copy: all that is compared by value, and what is pickled by its name."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj).__eq__ is _BY_IDENTITY and not isinstance(obj, _BY_NAME):
            raise TransportError(f"a {type(obj).__qualname__} is compared by identity, so a copy is another thing")
        return NotImplemented


_BY_IDENTITY: Final[Any] = object.__eq__
_BY_NAME: Final = (type, Enum, FunctionType, BuiltinFunctionType)


def reduce(batch: Any, arena: Arena, by_value: bool = False) -> Head | None:
    """Puts a batch into the arena's slab.

    Args:
        batch: any object.
        arena: where to.
        by_value: refuse what is compared by identity.

    Returns:
        Where its head lies; None if the batch is larger than the arena's allowance (`arena.needed` says how large).

    Raises:
        TransportError: something in the batch cannot be pickled; the text says what and where.
    """
    plain = _head_of_arrays(batch, arena)
    if plain is not None:
        at = arena.write(plain)
        return None if at is None else Head(at, len(plain), 0)
    file = io.BytesIO()
    reducer = _ByValue(file, arena) if by_value else _Reducer(file, arena)
    try:
        reducer.dump(batch)
    except (SharedMemoryError, TransportError):
        raise
    except Exception as error:
        if error is reducer.own_error:
            raise
        raise TransportError(_unpicklable(batch, error)) from error
    spans = pickle.dumps(reducer.spans) if reducer.spans else b""
    file.write(spans)
    offset = arena.write(file.getbuffer())
    return None if offset is None else Head(offset, file.tell(), len(spans))


class _Rebuilder(pickle.Unpickler):
    memory: NDArray[np.uint8]

    def persistent_load(self, pid: Any) -> Any:
        offset, shape, dtype, strides, *framework = pid
        array: NDArray[Any] = np.ndarray(shape, dtype, self.memory, offset, strides)
        return named(*framework).from_numpy(array) if framework else array


def rebuild(memory: NDArray[np.uint8], head: Head) -> Any:
    """The batch whose head and arrays lie in `memory`; its arrays are views that keep `memory` alive."""
    view: memoryview = memory.data
    if view[head.offset] == _NO_PICKLE[0]:
        return _rebuild_arrays(memory, view[head.offset + 1 : head.offset + head.length])
    end = head.offset + head.length
    body = end - head.spans
    buffers: Iterable[memoryview] = ()
    if head.spans:
        spans: list[int] = pickle.loads(view[body:end])
        buffers = [view[at : at + size] for at, size in zip(spans[::2], spans[1::2], strict=True)]
    rebuilder = _Rebuilder(io.BytesIO(view[head.offset : body]), buffers=buffers)
    rebuilder.memory = memory
    return rebuilder.load()


def _rebuild_arrays(memory: NDArray[np.uint8], head: memoryview) -> Any:
    number, keys, places = marshal.loads(head)
    arrays: list[Any] = [
        np.ndarray(shape, _dtype_of(dtype), memory, at, strides) for at, shape, dtype, strides in places
    ]
    if number == 0:
        return arrays[0]
    kind: Any = _CONTAINERS[number]
    return kind(zip(keys, arrays, strict=True)) if keys else kind(arrays)


def _unpicklable(batch: Any, error: Exception) -> str:
    """Says which leaf cannot be pickled, by trying them one by one."""
    path, leaf = _find_unpicklable(batch, "")
    return (
        f"the batch cannot leave its worker: {path or 'it'} is a {type(leaf).__module__}.{type(leaf).__qualname__}, "
        f"which cannot be pickled ({error}); let batchify_fn return arrays, numbers, strings and containers of them"
    )


def _find_unpicklable(value: Any, path: str) -> tuple[str, Any]:
    """The path and value of the first leaf that cannot be pickled."""
    for step, item in children(value) or ():
        try:
            pickle.dumps(item)
        except Exception:
            return _find_unpicklable(item, path + step)
    return path, value
