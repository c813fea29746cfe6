"""Values of the running thread, or of the running task of an event loop: the current batch, the current worker.

A context variable is such a value, except where `sys.flags.thread_inherit_context` is set, as it is without a GIL. Each
new thread starts there with a copy of the variables of the thread that starts it, so threads of a user's code would
draw from the generator of a sample. So a value belongs to its thread there, until a task is started for it:

    set --> the thread --bind_to_task, in a copy of the context--> the task and what it awaits, `asyncio.to_thread` too
    get <-- the task, if there is one, or the thread

NOTE [finalizers]: up to Python 3.11, the garbage collector may run while a context variable is set. If a finalizer sets
one in the same context then, the interpreter may lose variables of the user, or crash (github.com/python/cpython issue
148891). So a `__del__` that sets values does it in a copy of the context.
"""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar
from typing import Any, Final, Generic, TypeVar, cast

Value = TypeVar("Value")

_UNBOUND: Final = object()
_all: list[Current[Any]] = []


class Current(Generic[Value]):
    """One such value; None where none was set."""

    def __init__(self, name: str) -> None:
        self._of_thread = threading.local()
        self._of_task: ContextVar[Any] = ContextVar(name, default=_UNBOUND)
        _all.append(self)

    def get(self) -> Value | None:
        value = self._of_task.get()
        if value is _UNBOUND:
            value = getattr(self._of_thread, "value", None)
        return cast("Value | None", value)

    def set(self, value: Value | None) -> None:
        if self._of_task.get() is _UNBOUND:
            self._of_thread.value = value
        else:
            self._of_task.set(value)

    def bind_to_task(self) -> None:
        """Makes the value of this thread that of the current context, in which a task will run."""
        self._of_task.set(self.get())


def new_current(name: str) -> Current[Any]:
    """A `Current`, or a context variable where that is the same, since it is faster."""
    if getattr(sys.flags, "thread_inherit_context", False):
        return Current(name)
    return cast("Current[Any]", ContextVar(name, default=None))


def bind_to_task() -> None:
    """Makes the values of this thread those of the current context, in which a task will run."""
    for current in _all:
        current.bind_to_task()
