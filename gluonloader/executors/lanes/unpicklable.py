"""Finds the attribute because of which an object cannot be pickled, for the text of an error.

find_unpicklable(dataset, "dataset", dump) --> dataset.transform.lock: cannot pickle '_thread.lock' object
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any, Final

from ...messages import message
from .inherited import is_inherited

# Pickles a value; the second argument is the `buffer_callback` of `pickle.dumps`.
Dump = Callable[[Any, Callable[[pickle.PickleBuffer], bool]], bytes]

_MOST_STEPS: Final = 50  # into nested objects


@message(frozen=True, slots=True)
class Unpicklable:
    """An object that cannot be pickled: where it is, the error, and the object."""

    path: str
    error: Exception
    value: Any


def find_unpicklable(value: Any, path: str, dump: Dump) -> Unpicklable | None:
    """The innermost part of a value that cannot be pickled; None if the value can be pickled.

    Args:
        path: the name of the value, to which the names of attributes and indices are added.
    """
    error = _error_of(value, dump)
    if error is None:
        return None
    around = {id(value)}  # the objects on the path, which may contain each other
    for _ in range(_MOST_STEPS):
        for name, part in _parts(value):
            if id(part) not in around and (inner := _error_of(part, dump)) is not None:
                value, path, error = part, path + name, inner
                around.add(id(value))
                break
        else:
            break
    return Unpicklable(path, error, value)


def _error_of(value: Any, dump: Dump) -> Exception | None:
    try:
        dump(value, lambda buffer: False)  # without the memory of arrays, which may be large
    except Exception as error:
        return error
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """What the pickle of a value contains: names such as `.attribute` or `[0]`, and objects."""
    kind = type(value)
    if kind in (list, tuple):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
    elif kind is dict:
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif not isinstance(value, (type, FunctionType)) and not is_inherited(value):
        yield from _parts_of_object(value)


def _parts_of_object(value: Any) -> Iterator[tuple[str, Any]]:
    try:
        reduced = value.__reduce_ex__(5)
    except Exception:  # it is the object itself that cannot be pickled
        return
    if not isinstance(reduced, tuple):
        return
    _, arguments, state, *items = (*reduced, None, None, None)[:5]
    yield from (("", argument) for argument in arguments)  # of the constructor, whose names are not known
    for part in state if isinstance(state, tuple) else (state,):  # attributes, and those of __slots__
        if isinstance(part, Mapping):
            yield from ((f".{name}", attribute) for name, attribute in part.items())
        else:
            yield "", part
    for part in filter(None, items):  # of a subclass of list or dict
        yield from (("", item) for item in part)
