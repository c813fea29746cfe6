"""Interrupts of the main thread for tests: a signal at a chosen point of the library, or after a random time.

Python runs signal handlers when a function starts, after a call of a function that is not written in Python, and when a
loop jumps back. `SignalAt` counts these points in the library's own code, and in `contextlib`, which it uses, and
raises the signal at one of them.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import os
import signal
import sys
from types import CodeType, FrameType

import gluonloader

_FOLDER = os.path.dirname(gluonloader.__file__) + os.sep
_CHECKED = {code for name, code in dis.opmap.items() if name.startswith(("CALL", "JUMP_BACKWARD", "JUMP_ABSOLUTE"))}


def _is_library(frame: FrameType | None) -> bool:
    """Whether it runs code of the library, or of `contextlib` for the library."""
    if frame is None:
        return False
    file = frame.f_code.co_filename
    return file.startswith(_FOLDER) or (file == contextlib.__file__ and _is_library(frame.f_back))


class Alarm(TimeoutError):
    """What the handler of SIGALRM raises in these tests: an OSError, as handlers that limit a time often do."""


def raise_alarm(number: int, frame: FrameType | None) -> None:
    raise Alarm


def interrupted_start(loader, point: int) -> str:
    """Where a SIGALRM at this point has ended the start of an epoch; empty if the epoch had started. See `alarms`."""
    with SignalAt(point, signal.SIGALRM) as signalled:
        try:
            iter(loader)
        except Alarm:
            return "" if signalled.where.endswith((" next", " __init__")) else signalled.where
    return ""


class SignalAt:
    """Within the `with` block the signal arrives at one point of the library.

    Attributes:
        where: file, line and function of the point; empty if the block ended before.
    """

    def __init__(self, point: int, number: signal.Signals) -> None:
        self._left, self._number, self.where = point, number, ""
        self._last: dict[FrameType, int] = {}  # the last instruction of each frame, -1 if no handler can run after it
        self._codes: dict[int, tuple[CodeType, bytes]] = {}  # by id: the hash of a code object takes long

    def __enter__(self) -> SignalAt:
        self._before = sys.gettrace()
        # Python 3.11 may crash if a trace function raises an error in a finalizer that the garbage collector calls.
        gc.disable()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.settrace(self._before)
        gc.enable()
        self._last.clear()  # frames keep iterators alive

    def _trace(self, frame, event, arg):
        if not _is_library(frame):
            return None
        frame.f_trace_opcodes = True
        self._point(frame)
        return self._trace_frame

    def _trace_frame(self, frame, event, arg):
        if event == "opcode":
            if self._last.get(frame) in _CHECKED:
                self._point(frame)
            code = frame.f_code
            if id(code) not in self._codes:
                self._codes[id(code)] = code, code.co_code
            self._last[frame] = self._codes[id(code)][1][frame.f_lasti]
        elif event == "exception":
            self._last[frame] = -1  # after a call that has failed, Python runs no handler before the `except` block
        elif event == "return":
            self._last.pop(frame, None)
            if frame.f_back is not None:
                self._last[frame.f_back] = -1
        else:
            frame.f_trace_opcodes = True  # Python 3.13 forgets what was set when the function was called
        return self._trace_frame

    def _point(self, frame):
        self._left -= 1
        if self._left == -1:
            self.where = f"{frame.f_code.co_filename.removeprefix(_FOLDER)}:{frame.f_lineno} {frame.f_code.co_name}"
            sys.settrace(None)
            signal.raise_signal(self._number)
