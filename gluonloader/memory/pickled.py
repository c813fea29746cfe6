"""Heads that are pickles, of batches that are more than arrays in one tuple, list or dict.

`reducer_override` replaces NumPy arrays, because that is faster than NumPy's own reduction. (`persistent_id` could do
the same, but pickle calls it for every text in a list, too.) Arrays of other frameworks travel as NumPy arrays and come
back as arrays of their framework. All other types that pickle their buffers out of band are transferred in the slab,
too.
"""

from __future__ import annotations

import io
import marshal
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .. import tree
from ..errors import SharedMemoryError, TransportError, as_exception
from ..frameworks import arriving, owner
from .allocator import Arena, needs_pickle
from .loans import BatchBytes
from .slab import Head

_BYTE: Final = np.dtype(np.uint8)


def reduce_by_pickle(batch: Any, arena: Arena) -> Head | None:
    """See `reduce`."""
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
    spans = arena.spans()
    tail = marshal.dumps((spans, reducer.buffers)) if spans or reducer.buffers else b""
    file.write(tail)
    offset = arena.write(file.getbuffer())
    return None if offset is None else Head(offset, file.tell(), len(tail))


def rebuild_by_pickle(source: BatchBytes, head: memoryview, tail: int) -> Any:
    """See `rebuild`; the last `tail` bytes of the head list the spans of the arena, and the buffers."""
    body = len(head) - tail
    spans, buffers = marshal.loads(head[body:]) if tail else ((), ())
    pieces = source.pieces(spans)
    outside = [source.array(pieces, offset, None, length, _BYTE).data for offset, length in buffers]
    rebuilder = _Rebuilder(io.BytesIO(head[:body]), buffers=outside)
    rebuilder.array = partial(source.array, pieces)
    try:
        return rebuilder.load()
    except StopIteration as error:  # of a user's class
        raise as_exception(error, "unpickling the batch") from error


class _Reducer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, arena: Arena) -> None:
        super().__init__(file, protocol=5, buffer_callback=self._take_buffer)
        self._arena = arena
        self.buffers: list[tuple[int, int]] = []  # where they lie, and how long they are
        self.framework_error: Exception | None = None

    def reducer_override(self, obj: Any) -> Any:
        """Called for every object that is not a number, a text, bytes, None or a plain container."""
        if type(obj) is np.ndarray:
            return NotImplemented if obj.dtype.hasobject else (in_slab, self._location(obj))
        framework = owner(type(obj))
        if framework is None:
            return NotImplemented
        try:
            array = framework.to_numpy(obj)
        except Exception as error:  # an error of user code: MXNet reports a failed operation when its result is read
            self.framework_error = error
            raise
        if array is None or array.dtype.hasobject:
            return NotImplemented
        return in_slab, (*self._location(array), framework.name)

    def _location(self, array: NDArray[Any]) -> tuple[Any, ...]:
        dtype = array.dtype if needs_pickle(array.dtype) else array.dtype.str
        return *self._arena.place(array), array.shape, dtype

    def _take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        try:
            data = buffer.raw()
        except BufferError:
            return True  # not contiguous: the array is pickled into the head
        self.buffers.append((self._arena.put(data), len(data)))
        return False


class _Rebuilder(pickle.Unpickler):
    array: Callable[..., NDArray[Any]]

    def find_class(self, module: str, name: str) -> Any:
        is_array = module == __name__ and name == in_slab.__name__
        return partial(in_slab, self.array) if is_array else super().find_class(module, name)


def in_slab(
    array: Callable[..., NDArray[Any]], offset: int, strides: Any, shape: Any, dtype: Any, *framework: str
) -> Any:
    """The array that was placed in the slab, as one of its framework."""
    values = array(offset, strides, shape, dtype)
    return arriving(*framework).from_numpy(values) if framework else values


def _find_unpicklable(value: Any, path: str) -> tuple[str, Any]:
    """Returns the path and value of the first leaf that cannot be pickled on its own."""
    for step, child in tree.children(value) or ():
        try:
            pickle.dumps(child)
        except Exception:
            return _find_unpicklable(child, path + step)
    return path, value
