"""`fingerprint`: a number that tells whether two processes have passed the same dataset or function.

It is a hash of all parts of a value: numbers, texts, arrays, the items of containers, the code of functions, and what
objects pickle. A part that cannot be pickled counts by its type. The hash depends neither on the order of sets and
dicts, which may differ between processes that do the same, nor on which equal parts are the same object. The parts are
visited level by level up to a limit, so that a large dataset takes some tens of milliseconds, rarely more than 0.2 s.
"""

from __future__ import annotations

import copyreg
import io
import random
import threading
import zlib
from array import array
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from mmap import mmap
from multiprocessing.process import BaseProcess
from pickle import PickleBuffer
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...frameworks import owner

_MOST_PARTS: Final = 50_000  # of a value; eight numbers or short texts in a container count as one
_MOST_ITEMS: Final = 10_000  # of a list or dict; of a longer one, so many that are evenly spaced
_PARTS_OF_KEY: Final = 100  # of a key of a dict
_MOST_LEVELS: Final = 50
_MOST_ATTRIBUTES: Final = 100  # of a dataset, that have a fingerprint each
_MOST_BYTES: Final = 1 << 20  # of an array or text; of a larger one, so many in pieces that are evenly spaced
_BYTES_OF_ITEMS: Final = 16 << 20  # of all arrays and texts in one list or dict
_LEAST_BYTES: Final = 4096  # of an array or text in a long list
_MOST_PIECES: Final = 64

# What is hashed together with the container around it.
_NUMBERS: Final = frozenset({type(None), bool, float, complex})
_LARGE: Final = 1 << 64
_SHORT: Final = 1000  # characters or bytes of a text
_SHORT_ITEMS: Final = 16  # of a list or tuple of numbers and short texts

_BYTES: Final = (bytes, bytearray, memoryview, PickleBuffer, array, mmap, np.generic)
_NAMED: Final = (FunctionType, BuiltinFunctionType, type)
_GENERATORS: Final = (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)
_NOT_PICKLED: Final = "not pickled"
# They differ between processes that do the same.
_NOT_COMPARED: Final = (*_GENERATORS, threading.Thread, BaseProcess)
_UNIMPORTANT: Final = frozenset({"_IterableDataset__hffs_cache"})  # an attribute of Hugging Face with ids of processes


class _Parts(NamedTuple):
    """A value taken apart."""

    about: tuple[Any, ...]  # its type, its length, a hash of its bytes; only numbers and texts
    items: Sequence[Any] = ()
    attributes: Mapping[str, Any] = {}


def fingerprint(value: Any, most_parts: int = _MOST_PARTS) -> int:
    """A number that is equal for equal values in processes that run the same program."""
    return _Visit(most_parts).hash_of(value)


def fingerprints(**values: Any) -> dict[str, int]:
    """The fingerprints of values, such as `dataset`, and of each of their attributes, such as `dataset.root`."""
    found: dict[str, int] = {}
    for name, value in values.items():
        about, items, attributes = _Visit(_MOST_PARTS).parts_of(value)
        if about[0] == _NOT_PICKLED:
            attributes = _attributes_of(value)
        if 0 < len(attributes) <= _MOST_ATTRIBUTES and all(map(str.isidentifier, attributes)):
            found[name] = fingerprint((*about, *items))
            found.update((f"{name}.{key}", fingerprint(part)) for key, part in attributes.items())
        else:
            found[name] = fingerprint(value)
    return found


class _Visit:
    """Visits the parts of a value level by level, and hashes them."""

    def __init__(self, most_parts: int) -> None:
        self._left = most_parts

    def hash_of(self, value: Any, around: tuple[Any, ...] = ()) -> int:
        hashed = 0
        # Each value with the most bytes of it that are hashed, and the values around it.
        queue: deque[tuple[Any, int, tuple[Any, ...]]] = deque([(value, _MOST_BYTES, around)])
        while queue and self._left > 0:
            value, most_bytes, around = queue.popleft()
            about, items, attributes = self.parts_of(value, most_bytes, around)
            if len(items) > _BYTES_OF_ITEMS // _MOST_BYTES:
                most_bytes = max(_LEAST_BYTES, min(most_bytes, _BYTES_OF_ITEMS // len(items)))
            parts = [*items, *attributes.values()]
            if not _are_plain(parts):
                inside = (*around, value)
                for place, part in enumerate(parts):
                    if not _is_short(part):
                        queue.append((part, most_bytes, inside))
                        parts[place] = ...
            self._left -= 1 + len(parts) // 8
            hashed = zlib.crc32(_text_of((about, list(attributes), parts)), hashed)
        return hashed

    def parts_of(self, value: Any, most_bytes: int = _MOST_BYTES, around: tuple[Any, ...] = ()) -> _Parts:
        for level, outer in enumerate(around):
            if outer is value:
                return _Parts(("contains itself", level))
        if len(around) > _MOST_LEVELS:
            return _Parts(("too deep", *_name_of(type(value))))
        try:
            if isinstance(value, (set, frozenset)):
                about = ("set", *_name_of(type(value)), len(value), self._sum_over(value, (*around, value)))
                return _Parts(about, (), _attributes_of(value))
            return _take_apart(value, most_bytes)
        except Exception:  # of a user's `__reduce__`, `__class__`, ...
            return _Parts(("unreadable", *_name_of(type(value))))

    def _sum_over(self, values: Collection[Any], inside: tuple[Any, ...]) -> int:
        """A number that does not depend on the order of the values."""
        if len(values) > 8 * self._left:  # a choice would depend on the order
            return 0
        short = [value for value in values if _is_short(value)]
        others = len(values) - len(short)
        self._left -= len(short) // 8 + others
        hashed = sum(zlib.crc32(_text_of(value)) for value in short)
        if 0 < others <= self._left:
            each = self._left // others
            hashed += sum(_Visit(each).hash_of(value, inside) for value in values if not _is_short(value))
        return hashed


def _take_apart(value: Any, most_bytes: int) -> _Parts:
    kind = type(value)
    if kind is list or kind is tuple:
        return _Parts((kind.__name__, len(value)), _chosen(value))
    if kind is dict:
        keys = sorted(value, key=_place_of) if len(value) <= _MOST_ITEMS else _chosen(list(value))
        return _Parts(("dict", len(value)), [part for key in keys for part in (key, value[key])])
    if kind is int:
        return _Parts(("int", hex(value)))
    if kind is str:
        return _Parts(("str", *_about_bytes(value.encode("utf-8", "surrogatepass"), most_bytes)))
    if isinstance(value, type):
        return _Parts(("class", *_name_of(value)))
    if isinstance(value, ModuleType):
        return _Parts(("module", value.__name__))
    if isinstance(value, _NOT_COMPARED) or (kind.__name__ == "Generator" and kind.__module__.startswith("torch")):
        return _Parts(("not compared", *_name_of(kind)))
    if kind is FunctionType:
        inside = [value.__code__, _captured_by(value), value.__defaults__, value.__kwdefaults__]
        return _Parts(("function", *_name_of(value)), inside, _in_order(vars(value)))
    if kind is CodeType:
        return _Parts(("code", value.co_code, value.co_names, value.co_varnames), value.co_consts)
    with suppress(Exception):  # it lends no memory, or its memory lies on a device
        if (values := _as_array(value)) is not None:
            return _parts_of_array(kind, values, most_bytes)
        if isinstance(value, _BYTES):
            return _Parts(("bytes", *_name_of(kind), *_about_bytes(value, most_bytes)))
    if isinstance(value, io.IOBase) and not isinstance(value, io.BytesIO | io.StringIO):
        path = getattr(value, "name", None)
        return _Parts(("file", path if value.readable() and isinstance(path, str) else ""))  # ranks may write elsewhere
    return _parts_of_object(value)


def _as_array(value: Any) -> NDArray[Any] | None:
    if isinstance(value, np.ndarray):
        return value
    framework = owner(type(value))
    if framework is None:
        return None
    return framework.to_numpy(value.detach() if framework.name == "torch" else value)


def _parts_of_array(kind: type, values: NDArray[Any], most_bytes: int) -> _Parts:
    about = ("array", *_name_of(kind), values.shape, str(values.dtype))
    mask = [np.ma.getmaskarray(values)] if isinstance(values, np.ma.MaskedArray) else []
    values = np.asarray(values)
    if values.dtype.hasobject:
        return _Parts(about, [*map(values.item, _chosen(range(values.size))), *mask])
    return _Parts((*about, _crc_of(values, most_bytes)), mask)


def _about_bytes(value: Any, most_bytes: int) -> tuple[str, int, int]:
    view = memoryview(value)
    values = np.frombuffer(view if view.contiguous else view.tobytes(), np.uint8)
    return view.format, len(values), _crc_of(values, most_bytes)


def _parts_of_object(value: Any) -> _Parts:
    """The parts that a pickle of the object contains."""
    kind = type(value)
    try:
        reduce = copyreg.dispatch_table.get(kind)
        reduced: Any = value.__reduce_ex__(5) if reduce is None else reduce(value)
        if isinstance(reduced, str):
            return _Parts(("global", *_name_of(value), reduced), (), _attributes_of(value))
        function, arguments, state, listed, keyed = (*reduced, None, None, None)[:5]
        items = list(arguments[1:] if arguments and arguments[0] is kind else arguments)
        items += _chosen(list(listed or ()))
        items += chain.from_iterable(_chosen(list(keyed or ())))
    except Exception:  # it is a lock or an open file, for example
        return _Parts((_NOT_PICKLED, *_name_of(kind)))
    is_named = isinstance(function, _NAMED)
    about = ("object", *_name_of(kind), *(_name_of(function) if is_named else ()))
    items += [] if is_named else [function]
    states = state if type(state) is tuple and len(state) == 2 else (state,)  # two if the class has slots
    if all(held is None or isinstance(held, dict) for held in states):
        attributes = {key: part for held in states for key, part in (held or {}).items() if key not in _UNIMPORTANT}
        return _Parts(about, items, _in_order(attributes))
    return _Parts(about, [*items, state])


def _attributes_of(value: Any) -> dict[str, Any]:
    with suppress(Exception):
        return _in_order(vars(value))
    return {}


def _in_order(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): attributes[name] for name in sorted(attributes, key=str)}


def _captured_by(function: FunctionType) -> list[Any]:
    """The values of the variables that the function uses from the functions around it."""
    captured = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # the variable has no value yet
            captured.append(cell.cell_contents)
    return captured


def _name_of(thing: Any) -> tuple[str, str]:
    module = str(getattr(thing, "__module__", ""))
    return "__main__" if module == "__mp_main__" else module, str(getattr(thing, "__qualname__", ""))


def _chosen(items: Sequence[Any]) -> Sequence[Any]:
    """The items, or of a long sequence a part that is evenly spaced, with the first and the last one."""
    if len(items) <= _MOST_ITEMS:
        return items
    return [items[place] for place in _evenly_spaced(len(items) - 1, _MOST_ITEMS)]


def _evenly_spaced(last: int, count: int) -> list[int]:
    """So many numbers from 0 to `last`."""
    return [last * number // (count - 1) for number in range(count)]


def _is_short(value: Any) -> bool:
    """Whether `repr` shows the whole value, and is fast."""
    if type(value) is tuple or type(value) is list:
        return len(value) <= _SHORT_ITEMS and all(map(_is_plain, value))
    return _is_plain(value)


def _is_plain(value: Any) -> bool:
    """Whether it is a number or a short text."""
    kind = type(value)
    if kind is str or kind is bytes:
        return len(value) <= _SHORT
    return -_LARGE < value < _LARGE if kind is int else kind in _NUMBERS


def _place_of(key: Any) -> bytes:
    """By what the keys of a dict are sorted: their order may be that of a set, and differ between processes."""
    return _text_of(key) if _is_short(key) else b"%d" % fingerprint(key, _PARTS_OF_KEY)


def _are_plain(values: Sequence[Any]) -> bool:
    """Whether all are numbers, or all are short texts; much faster than `_is_plain` for each of them."""
    kinds = set(map(type, values))
    if kinds == {str}:
        return max(map(len, values)) <= _SHORT
    return kinds <= _NUMBERS or (kinds == {int} and min(values) > -_LARGE and max(values) < _LARGE)


def _text_of(value: Any) -> bytes:
    return repr(value).encode(errors="backslashreplace")


def _crc_of(values: NDArray[Any], most_bytes: int) -> int:
    if values.nbytes <= most_bytes:
        return zlib.crc32(values.tobytes())
    pieces = min(_MOST_PIECES, max(2, most_bytes // _LEAST_BYTES))
    count = max(1, most_bytes // pieces // values.itemsize)
    hashed = 0
    for start in _evenly_spaced(values.size - count, pieces):
        piece = values.flat[start : start + count]  # copies no more, whatever the strides
        hashed = zlib.crc32(piece.tobytes(), hashed)
    return hashed
