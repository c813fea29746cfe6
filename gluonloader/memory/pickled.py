"""Heads that are pickles, of batches that are more than arrays in one tuple, list or dict.

`reducer_override` replaces NumPy arrays, because that is faster than NumPy's own reduction. (`persistent_id` could do
the same, but pickle calls it for every text in a list, too.) Arrays of other frameworks travel as NumPy arrays and come
back as arrays of their framework. All other types that pickle their buffers out of band are transferred in the slab,
too.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import tree
from ..errors import SharedMemoryError, TransportError
from ..frameworks import named, owner
from .allocator import Arena, needs_pickle
from .slab import Head


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
    spans = pickle.dumps(reducer.spans) if reducer.spans else b""
    file.write(spans)
    offset = arena.write(file.getbuffer())
    return None if offset is None else Head(offset, file.tell(), len(spans))


def rebuild_by_pickle(memory: NDArray[np.uint8], head: Head) -> Any:
    """See `rebuild`."""
    view: memoryview = memory.data
    end = head.offset + head.length
    body = end - head.spans
    buffers: Iterable[memoryview] = ()
    if head.spans:
        spans: list[int] = pickle.loads(view[body:end])
        buffers = [view[at : at + size] for at, size in zip(spans[::2], spans[1::2], strict=True)]
    return rebuild_by_pickle_of(memory, view[head.offset : body], buffers)


def rebuild_by_pickle_of(memory: NDArray[np.uint8], pickled: memoryview, buffers: Iterable[memoryview]) -> Any:
    """The batch that `reduce_by_pickle` has pickled; `buffers` are those outside its pickle."""
    rebuilder = _Rebuilder(io.BytesIO(pickled), buffers=buffers)
    rebuilder.memory = memory
    return rebuilder.load()


class _Reducer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, arena: Arena) -> None:
        super().__init__(file, protocol=5, buffer_callback=self._take_buffer)
        self._arena = arena
        self.spans: list[int] = []
        self.framework_error: Exception | None = None

    def reducer_override(self, obj: Any) -> Any:
        """Called for every object that is not a number, a text, bytes, None or a plain container."""
        if type(obj) is np.ndarray:
            return NotImplemented if obj.dtype.hasobject else (_in_slab, self._location(obj))
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
        return _in_slab, (*self._location(array), framework.name)

    def _location(self, array: NDArray[Any]) -> tuple[Any, ...]:
        dtype = array.dtype if needs_pickle(array.dtype) else array.dtype.str
        return self._arena.place(array), array.shape, dtype, self._arena.strides_of(array)

    def _take_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        try:
            data = buffer.raw()
        except BufferError:
            return True  # not contiguous: the array is pickled into the head
        self.spans += (self._arena.write(data) or 0, len(data))
        return False


class _Rebuilder(pickle.Unpickler):
    memory: NDArray[np.uint8]

    def find_class(self, module: str, name: str) -> Any:
        is_array = module == __name__ and name == _in_slab.__name__
        return partial(_in_slab, self.memory) if is_array else super().find_class(module, name)


def _in_slab(memory: Any, offset: int, shape: Any, dtype: Any, strides: Any, *framework: str) -> Any:
    """The array that `_Reducer` has placed in `memory`."""
    array: NDArray[Any] = np.ndarray(shape, dtype, memory, offset, strides)
    return named(*framework).from_numpy(array) if framework else array


def _find_unpicklable(value: Any, path: str) -> tuple[str, Any]:
    """Returns the path and value of the first leaf that cannot be pickled on its own."""
    for step, child in tree.children(value) or ():
        try:
            pickle.dumps(child)
        except Exception:
            return _find_unpicklable(child, path + step)
    return path, value
