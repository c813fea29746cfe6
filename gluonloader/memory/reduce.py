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

from ..frameworks import arriving, owner
from .allocator import Arena, needs_pickle
from .loans import BatchBytes
from .pickled import rebuild_by_pickle, reduce_by_pickle
from .slab import Head

_CONTAINERS: Final = (None, tuple, list, dict)  # a head without a pickle holds an index into this; None for an array
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
    data = source.view[head.offset : head.offset + head.length]
    return _rebuild_arrays(source, data[1:]) if data[0] == _NO_PICKLE[0] else rebuild_by_pickle(source, data, head.tail)


def _head_of_arrays(batch: Any, arena: Arena) -> bytes | None:
    """Returns the head of an array, or of a tuple, list or dict of arrays; None for any other batch."""
    kind = type(batch)
    arrays = batch.values() if kind is dict else batch if kind is tuple or kind is list else (batch,)
    keys = tuple(batch) if kind is dict else ()
    for key in keys:
        if type(key) is not str:
            return None
    frameworks = {kind: owner(kind) for kind in set(map(type, arrays)) if kind is not np.ndarray}
    if None in frameworks.values():
        return None
    if len({*map(id, arrays)}) < len(arrays):  # a pickle contains the same object once
        return None
    names: list[str] = []
    if frameworks:
        found = [frameworks.get(type(array)) for array in arrays]
        names = ["" if framework is None else framework.name for framework in found]
        arrays = [a if framework is None else framework.to_numpy(a) for a, framework in zip(arrays, found, strict=True)]
    for array in arrays:
        if array is None or array.dtype.hasobject or needs_pickle(array.dtype):
            return None
    locations = [(*arena.place(array), array.shape, array.dtype.str) for array in arrays]
    number = _CONTAINERS.index(kind) if kind in _CONTAINERS else 0
    return _NO_PICKLE + marshal.dumps((number, keys, locations, names, arena.spans()))


def _rebuild_arrays(source: BatchBytes, head: memoryview) -> Any:
    number, keys, locations, names, spans = marshal.loads(head)
    pieces, array = source.pieces(spans), source.array
    arrays: list[Any] = [array(pieces, *location) for location in locations]
    if names:
        arrays = [arriving(name).from_numpy(a) if name else a for a, name in zip(arrays, names, strict=True)]
    kind = _CONTAINERS[number]
    if kind is None:
        return arrays[0]
    return kind(zip(keys, arrays, strict=True)) if keys else kind(arrays)
