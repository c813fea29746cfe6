"""`PackedList`: a list of text, arrays or objects in a few arrays, so that workers share its memory for good.

A forked worker shares the program's memory until one of them writes to it, and reading an object writes to it: Python
counts references in the object itself. So the pages of a list's items are copied into each worker, bit by bit.
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

__all__ = ["PackedList"]

_Kind = tuple[Any, ...]  # ("str",), ("bytes",), ("array", dtype, number of axes) or ("object",)
_OBJECT: Final[_Kind] = ("object",)


class PackedList(Dataset):
    """A list of str, bytes, arrays or any picklable objects, packed into arrays: a dataset that workers share.

    Use it in place of a list of very many items. Each read makes the item anew; an array is a view on the packed
    memory. Text, bytes and arrays of one dtype and number of axes, whatever their shapes, are stored as they are. All
    else, and any mixture, is pickled item by item.

    Args:
        items: any iterable; it is read once, and need not be in memory as a whole.

    Raises:
        Exception: what pickling raises.

    >>> PackedList(["a", "text"])[1], PackedList([(1, "a"), (2, "b")])[-1]
    ('text', (2, 'b'))
    >>> [row.tolist() for row in PackedList([np.arange(3), np.arange(1)])]
    [[0, 1, 2], [0]]
    """

    gil_free = False  # Python makes text and objects of the bytes

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
        return (self._data,) if self._kind != _OBJECT else ([],)  # as a list of them: an object may do anything

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
        if others:  # a mixture: once more from the start, which is unpacked bit by bit while the new memory is filled
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
