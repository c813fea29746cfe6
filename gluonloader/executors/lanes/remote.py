"""Exceptions of workers, sent to the main program with type, arguments, and traceback as text.

The code of an exception (`__str__`, `__reduce__`, properties) may raise. Then the exception is sent in a simpler form:
first by class and arguments, then as text.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ...errors import (
    GluonLoaderError,
    RemoteTraceback,
    WorkerStartError,
    add_note,
    hide_own_frames,
    notes_of,
    says_everything,
    text_of,
)

# The start of the library's notes, and of those that name a place.
_OURS: Final = "gluonloader: "
_PLACE: Final = "gluonloader: in "


class RemoteError(GluonLoaderError, RuntimeError):
    """Replaces a worker's exception that cannot be pickled; its text names the original type."""


def encode_error(error: BaseException, who: str) -> bytes:
    """Pickles an exception in the worker: its own pickle, and texts from which a `RemoteError` can be made.

    Its own pickle is the first of two that can be unpickled again: that of the exception itself; that of its class,
    arguments and attributes, if its constructor takes other arguments than the exception stores. If neither can be
    unpickled, it is empty. It is also empty for a SystemExit: sys.exit() in a dataset must not end the user's program.

    Frames of the library are removed from the traceback; see `hide_own_frames`.
    """
    kind = type(error)
    name = _try_to_say(lambda: f"{kind.__module__}.{kind.__qualname__}", "a class without a name, which raised")
    text = _try_to_say(lambda: str(error), "its __str__ raised")
    notes: list[str] = []
    with suppress(BaseException):
        notes += notes_of(error)
    shown = _try_to_say(lambda: _traceback(hide_own_frames(error), notes), "")
    if not shown:  # the exceptions that caused it cannot be formatted
        shown = _try_to_say(lambda: "".join(traceback.format_tb(error.__traceback__)), "its traceback raised")
        shown += f"{name}: {text}\n"
    own = _pickled(error, text) if issubclass(kind, Exception) else b""
    if kind.__name__ == "BdbQuit":
        what = "a debugger cannot run in a worker process, because the worker has no standard input"
        notes.append(f"{_OURS}{what}; pass num_workers=0")
    notes.append(f"{_OURS}{who}")
    places = ", ".join(note.removeprefix(_OURS) for note in notes if note.startswith(_PLACE) or note is notes[-1])
    shown = "" if says_everything(error) else f"{places}\n{shown.rstrip()}"
    return pickle.dumps((own, f"{name}: {text}", notes, shown))


def decode_error(data: bytes) -> BaseException:
    """The exception of a worker, with a note on where it was raised, and with the worker's traceback as its cause.

    It has no cause if the traceback would only repeat the text of the exception.
    """
    own, text, notes, shown = pickle.loads(data)
    try:
        error = _whole(pickle.loads(own))
        error.__dict__.pop("__notes__", None)
    except Exception:  # empty, or this process cannot import its class
        error = RemoteError(text)
    for note in notes:
        add_note(error, note)
    if shown:
        with suppress(Exception):
            BaseException.__setattr__(error, "__cause__", RemoteTraceback(shown))  # its own __setattr__ may refuse
    return error


def cannot_start(worker: str, error: BaseException) -> WorkerStartError:
    """The error for a worker that has reported an error instead of starting; the library's notes are in its text."""
    *notes, who = notes_of(error)
    cures = [note.removeprefix(_OURS) for note in notes if note.startswith(_OURS)]
    with suppress(Exception):
        error.__dict__["__notes__"] = [note for note in notes if not note.startswith(_OURS)] + [who]
    text = ". ".join([f"{type(error).__name__}: {text_of(error)}", *(cure[:1].upper() + cure[1:] for cure in cures)])
    failed = WorkerStartError(f"{worker} could not start: {text}")
    failed.__cause__ = error
    return failed


def shorten_error(data: bytes, most: int) -> bytes:
    """Replaces an encoded exception that does not fit into shared memory by a `RemoteError` of at most `most` bytes."""
    _, text, notes, shown = pickle.loads(data)
    length = most // 20  # characters, each up to 4 bytes
    note = f"gluonloader: this error was shortened: its {len(data):,} bytes do not fit into shared memory"
    notes = [*(note[: length // 4] for note in notes[-4:]), note]
    if len(shown) > 2 * length:
        shown = f"{shown[:length]}\n...\n{shown[-length:]}"
    return pickle.dumps((b"", text[:length], notes, shown))


def _traceback(error: BaseException, notes: list[str]) -> str:
    """The traceback with the user's notes; those of the library stand before it."""
    shown: Any = traceback.TracebackException.from_exception(error)
    shown.__notes__ = [note for note in notes if not note.startswith(_OURS)]
    return "".join(shown.format())


def _try_to_say(say: Callable[[], str], otherwise: str) -> str:
    """What `say` returns, or `otherwise` and what it raised. Called in workers, where nothing else interrupts it."""
    try:
        return "".join([say()])
    except BaseException as failure:
        return otherwise and f"{otherwise} {type(failure).__name__}"


def _pickled(error: BaseException, text: str) -> bytes:
    with suppress(BaseException):
        data = pickle.dumps(error)
        revived = pickle.loads(data)
        # Unpickling calls the constructor again, which may change the text.
        if type(revived) is type(error) and str(revived) == text:
            return data
    with suppress(BaseException):
        data = pickle.dumps(_Parts(error))
        revived = _whole(pickle.loads(data))
        with suppress(Exception):
            str(revived)
        if type(revived) is type(error):
            return data
    return b""


class _Parts:
    """The class, arguments and attributes of an exception."""

    def __init__(self, error: BaseException) -> None:
        self.kind, self.args = type(error), error.args
        self.state = {name: value for name, value in error.__dict__.items() if _can_pickle(value)}

    def whole(self) -> BaseException:
        error = self.kind.__new__(self.kind, *self.args)
        BaseException.__setattr__(error, "args", self.args)
        error.__dict__.update(self.state)
        return error


def _can_pickle(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True


def _whole(value: Any) -> BaseException:
    error: BaseException = value.whole() if isinstance(value, _Parts) else value
    return error
