"""Short descriptions of datasets, functions and loaders: the texts of `repr`.

A description is one line of limited length. It reads no samples, takes no lock and raises no error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial, wraps
from numbers import Number
from typing import Any, Final, TypeVar

T = TypeVar("T")

_MAX_OBJECTS: Final = 24  # described in one text; datasets may contain each other, so there may be very many
_MAX_PARTS: Final = 12  # of one object that its text shows
_FEW: Final = 4  # items of a tuple that its text shows
_MAX_OUTER: Final = 240  # characters of a text
_MAX_INNER: Final = 100  # characters of a text inside another text


class _Described(threading.local):
    objects = 0  # described so far in the current text


_described = _Described()


def short_repr(method: Callable[[T], str]) -> Callable[[T], str]:
    """Decorates a `__repr__`, which then never raises an error and returns one line of limited length."""

    @wraps(method)
    def short(self: T) -> str:
        outer = _described.objects
        if outer >= _MAX_OBJECTS:
            return "..."
        try:
            _described.objects += 1
            text = method(self)
        except Exception:  # for example, an attribute is missing because the constructor has failed
            text = f"{type(self).__name__}(...)"
        finally:
            if not outer:
                _described.objects = 0
        return _cut(text, _MAX_INNER if outer else _MAX_OUTER)

    vars(short)["is_short"] = True
    return short


def describe(value: Any) -> str:
    """Describes a dataset, a function or an argument.

    A `__repr__` is called only if `short_repr` decorates it, since any other `__repr__` may show all samples.

    >>> describe([1, 2, 3]), describe(sorted), describe(0.5)
    ('list(3)', 'sorted', '0.5')
    >>> describe((0, 4))
    '(0, 4)'
    """
    if getattr(type(value).__repr__, "is_short", False) or isinstance(value, (str, bytes, Number)):
        return repr(value)
    if type(value) is tuple and len(value) <= _FEW and all(isinstance(item, (str, Number)) for item in value):
        return repr(value)
    value = value.func if isinstance(value, partial) else value
    try:
        name = value.__name__ if callable(value) else None
    except Exception:
        name = None
    return _cut(name if isinstance(name, str) else sized(value), _MAX_INNER)


def class_name(dataset: Any) -> str:
    """The name of a dataset's class for a text; of the user's dataset if a drop-in has put one of its own around it."""
    return type(getattr(dataset, "_users_dataset", dataset)).__name__


def sized(value: Any) -> str:
    """The class of an object and its length, if the object has a length: `ArrayDataset(60,000)`."""
    try:
        length = f"{len(value):,}"
    except Exception:
        length = ""
    return f"{type(value).__name__}({length})"


def counted(number: int, one: str, many: str) -> str:
    """A number and a noun: `1 batch` or `1,875 batches`."""
    return f"{number:,} {one if number == 1 else many}"


def call(value: Any, *parts: str) -> str:
    """Formats `parts` as the arguments of a call of the object's class, for example `Pad(val=-1)`."""
    more = [f"{len(parts) - _MAX_PARTS:,} more"] * (len(parts) > _MAX_PARTS)
    return f"{type(value).__name__}({', '.join([*parts[:_MAX_PARTS], *more])})"


def arguments(**values: Any) -> list[str]:
    """Formats keyword arguments for `call`, and omits arguments that are None.

    >>> arguments(val=-1, dtype=None)
    ['val=-1']
    """
    return [f"{name}={describe(value)}" for name, value in values.items() if value is not None]


def _cut(text: str, most: int) -> str:
    text = " ".join(text.splitlines())
    half = most // 2
    return text if len(text) <= most else f"{text[: half - 2]}...{text[-half + 1 :]}"
