"""Signals in the main thread: finds out whether a handler raised an exception, and delays handlers in a block.

Python runs signal handlers in the main thread between any two function calls. If a handler raises, as the handler of
Ctrl-C does, the exception appears in whatever code runs there.

NOTE [loops and try]: Python also runs handlers where a loop jumps back. Since version 3.12, if the last statement of a
loop is conditional, that jump does not belong to a `try` or `with` around the loop in the same function. An exception
that a handler raises there leaves the function without its `finally`, and a lock stays locked. So code that runs in the
main thread calls a function in the `try` or `with`, and the loop is in that function. A test looks for such jumps.

NOTE [exit]: when a program ends, Python sets the names of all modules to None before it deletes the last
objects. In a program that imports torch, these include the variables of the main script. So `__del__` has
`sys.is_finalizing` as the default of an argument, and does nothing then: workers have ended before, at exit, and the
system closes everything else.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import signal
import threading
from types import CodeType, FrameType
from typing import Any, Final

# `signal` wraps the functions of `_signal`, to return enums; for all signals, that takes 50 times as long.
_NUMBERS: Final = tuple(map(int, signal.valid_signals()))


def from_signal_handler(error: BaseException) -> bool:
    """Whether a signal handler raised this exception, and not the code that the handler interrupted."""
    if threading.current_thread() is not threading.main_thread():
        return False
    if isinstance(error, KeyboardInterrupt) and callable(signal.getsignal(signal.SIGINT)):  # workers ignore SIGINT
        return True
    codes = [_code_of(handler) for handler in _handlers().values()]
    # Not `error.__traceback__`, since a class may define an attribute of that name.
    traceback = BaseException.__traceback__.__get__(error)  # type: ignore[union-attr]
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


class Uninterrupted:
    """Delays signal handlers until the end of a `with` block; does nothing outside of the main thread.

    It takes some 5 us, so it is only for rare steps that could not be repaired after an interrupt: starting a
    worker, making a slab.
    """

    _current: Uninterrupted | None = None

    def __init__(self) -> None:
        self._handlers: dict[int, Any] = {}  # by signal; `_take` replaces them
        self._arrived: list[tuple[int, FrameType | None]] = []
        self._delays = False

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread() or Uninterrupted._current is not None:
            return
        self._delays = True
        try:
            for number, handler in _handlers().items():
                self._handlers[number] = handler
                _signal.signal(number, self._take)
        except BaseException:
            self._end()
            raise
        Uninterrupted._current = self

    def __exit__(self, *exception: object) -> None:
        if self._delays:
            self._end()

    def _take(self, number: int, frame: FrameType | None) -> None:
        self._arrived.append((number, frame))

    def _end(self) -> None:
        """Restores the handlers and calls them for the signals that have arrived; all of them, even if one raises."""
        try:
            if self._delays:
                self._restore()
            self._call_handlers()
        finally:
            if self._delays or self._arrived:
                self._end()

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            _signal.signal(number, handler)
        self._delays, Uninterrupted._current = False, None

    def _call_handlers(self) -> None:
        while self._arrived:
            number, frame = self._arrived[0]
            del self._arrived[0]  # not `pop`: after a call, another handler could raise
            self._handlers[number](number, frame)


def _handlers() -> dict[int, Any]:
    """The signal handlers that are Python objects, by signal."""
    handlers = {number: _signal.getsignal(number) for number in _NUMBERS}
    return {number: handler for number, handler in handlers.items() if callable(handler)}


def _code_of(handler: Any) -> CodeType | None:
    """The code of a function, a method, a partial function or an object with `__call__`."""
    function = getattr(handler, "func", handler)
    function = getattr(function, "__func__", function)
    method = type(function).__call__
    code: CodeType | None = getattr(function, "__code__", getattr(method, "__code__", None))
    return code


def _restore_in_child() -> None:
    """In a child that was forked inside of such a block, as workers are: restores the handlers of the parent."""
    block = Uninterrupted._current
    if block is not None:
        block._arrived.clear()
        block.__exit__()


os.register_at_fork(after_in_child=_restore_in_child)
