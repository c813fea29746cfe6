"""Objects that a worker can only inherit when it starts: what `multiprocessing` shares, sockets, and shared tensors.

A plain pickle of some of them is no error, but wrong: it contains the number of a descriptor, or a copy of the memory.
So the pickle of a job calls `check_inheritable` for each object.
"""

from __future__ import annotations

import socket
from multiprocessing import context
from multiprocessing.connection import Connection
from typing import Any

from ...frameworks import is_shared

_known: dict[type, bool] = {}


def may_be_inherited(kind: type) -> bool:
    """Whether objects of this class may be such objects; it saves the time to ask for each object of other classes."""
    if kind not in _known:
        is_shared_by_library = library_of(kind) in ("multiprocessing", "torch")
        _known[kind] = is_shared_by_library or _is_of_ctypes(kind) or issubclass(kind, (Connection, socket.socket))
    return _known[kind]


def is_inherited(value: Any) -> bool:
    """Whether it is such an object."""
    return library_of(type(value)) == "multiprocessing" or _is_pickled_wrongly(value)


def check_inheritable(value: Any) -> None:
    """Raises a RuntimeError if it is such an object, and no worker can inherit it; other such objects raise it, too."""
    if may_be_inherited(type(value)) and _is_pickled_wrongly(value):
        context.assert_spawning(value)


def _is_pickled_wrongly(value: Any) -> bool:
    is_raw = _is_of_ctypes(type(value)) and hasattr(value, "_wrapper")  # a RawValue or a RawArray
    return is_raw or isinstance(value, (Connection, socket.socket)) or is_shared(value)


def _is_of_ctypes(kind: type) -> bool:
    return hasattr(kind, "_b_needsfree_")


def library_of(kind: type) -> str:
    """The name of the package that defines a class."""
    return kind.__module__.partition(".")[0]
