"""`reduce` turns a batch into a small head and arrays in a slab; `rebuild` turns them into the batch again.

    worker   reduce(batch, arena)   arrays -> slab (unless they lie there already), everything else -> head
    main     rebuild(source, head)  head -> the same objects; large arrays are views on the slab, small ones are copied

A batch with any number of arrays has only one head. Most batches are an array, or a tuple, list or dict of arrays;
their head only says where the arrays lie. The head of any other batch is a pickle (protocol 5); see pickled.py. The
main program reads heads only from slabs that its own workers wrote, so unpickling them is safe.
"""

from __future__ import annotations

import marshal
from typing import Any, Final

import numpy as np

from .allocator import Arena, needs_pickle
from .loans import BatchBytes
from .pickled import rebuild_by_pickle, reduce_by_pickle
from .slab import Head

_CONTAINERS: Final = (np.ndarray, tuple, list, dict)  # a head without a pickle holds an index into this
_NO_PICKLE: Final = b"\0"  # first byte of a head without a pickle


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


def rebuild(source: BatchBytes, head: Head) -> Any:
    """Returns the batch whose head and arrays lie in `source`."""
    return rebuild_with(source, source.view[head.offset : head.offset + head.length], head.tail)


def rebuild_with(source: BatchBytes, head: memoryview, tail: int) -> Any:
    """Like `rebuild`, with a head that may lie elsewhere."""
    return _rebuild_arrays(source, head[1:]) if head[0] == _NO_PICKLE[0] else rebuild_by_pickle(source, head, tail)


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
    return _NO_PICKLE + marshal.dumps((_CONTAINERS.index(kind), keys, locations, arena.spans()))


def _rebuild_arrays(source: BatchBytes, head: memoryview) -> Any:
    number, keys, locations, spans = marshal.loads(head)
    pieces, array = source.pieces(spans), source.array
    arrays: list[Any] = [array(pieces, offset, shape, dtype, strides) for offset, shape, dtype, strides in locations]
    if number == 0:
        return arrays[0]
    kind: Any = _CONTAINERS[number]
    return kind(zip(keys, arrays, strict=True)) if keys else kind(arrays)
