"""`reduce` turns a batch into a small head and arrays in a slab; `rebuild` turns them into the batch again.

    worker   reduce(batch, arena)   arrays -> slab (unless they lie there already), everything else -> head
    main     rebuild(memory, head)  head -> the same objects; arrays are views on `memory`, without a copy

A batch with any number of arrays has only one head. Most batches are an array, or a tuple, list or dict of arrays;
their head only says where the arrays lie. The head of any other batch is a pickle (protocol 5); see pickled.py. The
main program reads heads only from slabs that its own workers wrote, so unpickling them is safe.
"""

from __future__ import annotations

import marshal
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .allocator import Arena, needs_pickle
from .pickled import rebuild_by_pickle, rebuild_by_pickle_of, reduce_by_pickle
from .slab import Head

_CONTAINERS: Final = (np.ndarray, tuple, list, dict)  # a head without a pickle holds an index into this
_NO_PICKLE: Final = b"\0"  # first byte of a head without a pickle

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
    return reduce_by_pickle(batch, arena)


def rebuild(memory: NDArray[np.uint8], head: Head) -> Any:
    """Returns the batch whose head and arrays lie in `memory`; its arrays are views that keep `memory` alive."""
    view: memoryview = memory.data
    if view[head.offset] == _NO_PICKLE[0]:
        return _rebuild_arrays(memory, view[head.offset + 1 : head.offset + head.length])
    return rebuild_by_pickle(memory, head)


def rebuild_with(memory: NDArray[np.uint8], head: bytes) -> Any:
    """Like `rebuild`, with a head that lies outside of `memory`, and lists no buffers."""
    view = memoryview(head)
    return _rebuild_arrays(memory, view[1:]) if view[0] == _NO_PICKLE[0] else rebuild_by_pickle_of(memory, view, ())


def _head_of_arrays(batch: Any, arena: Arena) -> bytes | None:
    """Returns the head of an array, or of a tuple, list or dict of arrays; None for any other batch."""
    kind = type(batch)
    if kind not in _CONTAINERS:
        return None
    arrays = batch.values() if kind is dict else (batch,) if kind is np.ndarray else batch
    keys = tuple(batch) if kind is dict else ()
    for array in arrays:
        if type(array) is not np.ndarray or array.dtype.hasobject or needs_pickle(array.dtype):
            return None
    for key in keys:
        if type(key) is not str:
            return None
    locations = [(arena.place(array), array.shape, array.dtype.str, arena.strides_of(array)) for array in arrays]
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
