"""`reduce` turns a batch into a small head and arrays in a slab; `rebuild` turns them into the batch again.

    worker   reduce(batch, arena)   arrays -> slab (unless they lie there already), everything else -> head
    parent   rebuild(memory, head)  head -> the same objects; arrays are views on `memory`, without a copy

A batch with any number of arrays has only one head. Most batches are an array, or a tuple, list or dict of arrays;
their head only says where the arrays lie. The head of any other batch is a pickle (protocol 5) in which `persistent_id`
replaces NumPy arrays, because that is faster than NumPy's own reduction. Arrays of other frameworks travel as NumPy
arrays and come back as arrays of their framework. All other types that pickle their buffers out of band are transferred
in the slab, too. The parent reads heads only from slabs that its own workers wrote, so unpickling them is safe.
"""

from __future__ import annotations

import io
import marshal
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import tree
from ..errors import SharedMemoryError, TransportError
from ..frameworks import named, owner
from .allocator import Arena


@dataclass(slots=True)  # not frozen, because creating a frozen dataclass is slower
class Head:
    """Where the head of a batch lies in the slab. The head's last `spans` bytes list the buffers outside its pickle."""

    offset: int
    length: int
    spans: int


_CONTAINERS: Final = (np.ndarray, tuple, list, dict)  # a head without a pickle holds an index into this
_NO_PICKLE: Final = b"\0"  # first byte of a head without a pickle
_NEVER_ARRAYS: Final = frozenset((str, int, float, bool, bytes, tuple, list, dict, type(None)))

_dtype_of = cache(np.dtype)


def reduce(batch: Any, arena: Arena) -> Head | None:
    """Puts a batch into the arena's slab and returns where its head lies; None if it exceeds the arena's allowance.

    Raises:
        TransportError: a part of the batch cannot be pickled; the text names its path and type.
    """
    head = _head_of_arrays(batch, arena)
    if head is not None:
        offset = arena.write(head)
        return None if offset is None else Head(offset, len(head), 0)
    file = io.BytesIO()
    reducer = _Reducer(file, arena)
    try:
        reducer.dump(batch)
    except (SharedMemoryError, TransportError):
        raise
    except Exception as error:
        if error is reducer.framework_error:
            raise
        path, leaf = _find_unpicklable(batch, "")
        raise TransportError(
            f"the batch cannot leave its worker process: {path or 'it'} is a {type(leaf).__module__}."
            f"{type(leaf).__qualname__}, which cannot be pickled ({error}); "
            "return arrays, numbers, strings and containers of them from batchify_fn"
        ) from error
    spans = pickle.dumps(reducer.spans) if reducer.spans else b""
    file.write(spans)
    offset = arena.write(file.getbuffer())
    return None if offset is None else Head(offset, file.tell(), len(spans))


def rebuild(memory: NDArray[np.uint8], head: Head) -> Any:
    """Returns the batch whose head and arrays lie in `memory`; its arrays are views that keep `memory` alive."""
    view: memoryview = memory.data
    end = head.offset + head.length
    if view[head.offset] == _NO_PICKLE[0]:
        return _rebuild_arrays(memory, view[head.offset + 1 : end])
    body = end - head.spans
    buffers: Iterable[memoryview] = ()
    if head.spans:
        spans: list[int] = pickle.loads(view[body:end])
        buffers = [view[at : at + size] for at, size in zip(spans[::2], spans[1::2], strict=True)]
    rebuilder = _Rebuilder(io.BytesIO(view[head.offset : body]), buffers=buffers)
    rebuilder.memory = memory
    return rebuilder.load()


def _head_of_arrays(batch: Any, arena: Arena) -> bytes | None:
    """Returns the head of an array, or of a tuple, list or dict of arrays; None for any other batch."""
    kind = type(batch)
    if kind not in _CONTAINERS:
        return None
    arrays = batch.values() if kind is dict else (batch,) if kind is np.ndarray else batch
    keys = tuple(batch) if kind is dict else ()
    for array in arrays:
        if type(array) is not np.ndarray or array.dtype.hasobject or _needs_pickle(array.dtype):
            return None
    for key in keys:
        if type(key) is not str:
            return None
    locations = [(arena.place(array), array.shape, array.dtype.str, _strides(array, arena)) for array in arrays]
    return _NO_PICKLE + marshal.dumps((_CONTAINERS.index(kind), keys, locations))


def _rebuild_arrays(memory: NDArray[np.uint8], head: memoryview) -> Any:
    number, keys, locations = marshal.loads(head)
    arrays: list[Any] = [
        np.ndarray(shape, _dtype_of(dtype), memory, offset, strides) for offset, shape, dtype, strides in locations
    ]
    if number == 0:
        return arrays[0]
    kind: Any = _CONTAINERS[number]
    return kind(zip(keys, arrays, strict=True)) if keys else kind(arrays)


def _strides(array: NDArray[Any], arena: Arena) -> tuple[int, ...] | None:
    """Returns the strides of an array in the slab; None for C order, in which all copies are."""
    return None if array.flags.c_contiguous or arena.offset_of_view(array) is None else array.strides


def _needs_pickle(dtype: np.dtype[Any]) -> bool:
    """Whether `dtype.str` is incomplete: the dtype has fields or metadata, or another package defines it."""
    return dtype.isbuiltin != 1 and bool(dtype.names or dtype.metadata or dtype.isbuiltin == 2)


class _Reducer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, arena: Arena) -> None:
        super().__init__(file, protocol=5, buffer_callback=self._take_buffer)
        self._arena = arena
        self.spans: list[int] = []
        self.framework_error: Exception | None = None

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is np.ndarray:
            return None if obj.dtype.hasobject else self._location(obj)
        framework = None if kind in _NEVER_ARRAYS else owner(kind)
        if framework is None:
            return None
        try:
            array = framework.to_numpy(obj)
        except Exception as error:  # an error of user code: MXNet reports a failed operation when its result is read
            self.framework_error = error
            raise
        return None if array is None or array.dtype.hasobject else (*self._location(array), framework.name)

    def _location(self, array: NDArray[Any]) -> tuple[Any, ...]:
        dtype = array.dtype if _needs_pickle(array.dtype) else array.dtype.str
        return self._arena.place(array), array.shape, dtype, _strides(array, self._arena)

    def _take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        try:
            data = buffer.raw()
        except BufferError:
            return True  # not contiguous: the array is pickled into the head
        self.spans += (self._arena.write(data) or 0, len(data))
        return False


class _Rebuilder(pickle.Unpickler):
    memory: NDArray[np.uint8]

    def persistent_load(self, pid: Any) -> Any:
        offset, shape, dtype, strides, *framework = pid
        array: NDArray[Any] = np.ndarray(shape, dtype, self.memory, offset, strides)
        return named(*framework).from_numpy(array) if framework else array


def _find_unpicklable(value: Any, path: str) -> tuple[str, Any]:
    """Returns the path and value of the first leaf that cannot be pickled on its own."""
    for step, child in tree.children(value) or ():
        try:
            pickle.dumps(child)
        except Exception:
            return _find_unpicklable(child, path + step)
    return path, value
