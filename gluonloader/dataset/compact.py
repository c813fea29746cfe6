"""`CompactList`: a list of text, arrays or objects, stored in a few arrays so that forked workers share its memory.

A forked worker shares a page of memory with the program until the worker or the program writes to it. Even reading a
Python object writes to its reference count. So each worker would gradually copy all items of an ordinary list.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final

import numpy as np

from ..indices import checked_index
from .base import Dataset

_Kind = tuple[Any, ...]  # ("str",), ("bytes",), ("array", dtype, number of axes) or ("object",)
_OBJECT: Final[_Kind] = ("object",)


class CompactList(Dataset):
    """A list of str, bytes, arrays or any picklable objects, packed into a few arrays whose memory the workers share.

    Use it instead of a list of very many items. Each read returns a new object; an array is a view of the packed
    memory. If all items are str, or all are bytes, or all are arrays of the same dtype and number of axes, they are
    stored without pickling. Otherwise each item is pickled.

    Args:
        items: an iterable; it is read once, item by item, so only the packed items must fit in memory.

    Raises:
        Exception: any exception that pickling an item raises.

    >>> CompactList(["a", "text"])[1], CompactList([(1, "a"), (2, "b")])[-1]
    ('text', (2, 'b'))
    >>> [row.tolist() for row in CompactList([np.arange(3), np.arange(1)])]
    [[0, 1, 2], [0]]
    """

    gil_free = False  # decoding text and unpickling hold the GIL

    def __init__(self, items: Iterable[Any]) -> None:
        iterator = iter(items)
        first = list(islice(iterator, 1))
        self._pack(chain(first, iterator), _kind(first[0]) if first else _OBJECT)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        row = checked_index(index, len(self))
        packed: Any = self._data[self._ends[row] : self._ends[row + 1]]
        name, *rest = self._kind
        if name == "str":
            return str(packed, "utf-8", "surrogatepass")
        if name == "array":
            return packed.view(rest[0]).reshape(self._shapes[row])
        return packed.tobytes() if name == "bytes" else pickle.loads(packed)

    def __len__(self) -> int:
        return len(self._ends) - 1

    @property
    def _parts(self) -> tuple[Any, ...]:
        return (self._data,) if self._kind != _OBJECT else ([pickle.loads],)  # unpickling an object may run any code

    @property
    def nbytes(self) -> int:
        """Size of the packed memory in bytes."""
        return self._data.nbytes + self._ends.nbytes + self._shapes.nbytes

    def _pack(self, items: Iterator[Any], kind: _Kind) -> None:
        name, *rest = kind
        pack = _PACK[name]
        data, ends, shapes = bytearray(), array("q", [0]), array("q")
        others: list[Any] = []
        for item in items:
            if name != "object" and _kind(item) != kind:
                others.append(item)
                break
            data += pack(item)
            ends.append(len(data))
            if name == "array":
                shapes.extend(item.shape)
        self._kind = kind
        self._data, self._ends = np.frombuffer(data, np.uint8), np.frombuffer(ends, np.int64)
        self._shapes = np.frombuffer(shapes, np.int64).reshape(len(self), rest[1] if rest else 0)
        if others:  # items of mixed kinds: pack again from the start, and unpack the packed items one by one
            self._pack(chain(self, others, items), _OBJECT)


def _kind(item: Any) -> _Kind:
    kind = type(item)
    if kind is str or kind is bytes:
        return (kind.__name__,)
    if kind is np.ndarray and not item.dtype.hasobject:
        return ("array", item.dtype, item.ndim)
    return _OBJECT


_PACK: Final[dict[str, Callable[[Any], bytes]]] = {
    "str": lambda text: text.encode("utf-8", "surrogatepass"),
    "bytes": lambda data: data,
    "array": lambda array: array.tobytes(),
    "object": lambda item: pickle.dumps(item, protocol=5),
}
