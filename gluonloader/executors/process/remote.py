"""Exceptions of workers, sent to the loader's process with type, arguments, and traceback as text."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

from ...errors import GluonLoaderError, RemoteTraceback, add_note


class RemoteError(GluonLoaderError, RuntimeError):
    """Replaces a worker's exception that cannot be pickled; its text names the original type."""


def encode_error(error: BaseException, who: str) -> bytes:
    """Pickles an exception in the worker, in the first of three ways that can be unpickled again.

    The ways are: the exception itself; its class, arguments and attributes, if its constructor takes other arguments
    than the exception stores; a `RemoteError` with its text.
    """
    text = "".join(traceback.format_exception(error))
    notes = [*getattr(error, "__notes__", ()), f"gluonloader: {who}"]
    try:
        message = str(error)
    except Exception as failure:
        message = f"its __str__ raised {failure!r}"
    fallback = RemoteError(f"{type(error).__module__}.{type(error).__qualname__}: {message}")
    # A SystemExit becomes a RemoteError: sys.exit() in a dataset must not end the user's program.
    for candidate in (error, _Parts(error), fallback) if isinstance(error, Exception) else (fallback,):
        try:
            data = pickle.dumps((candidate, notes, text))
            revived = _whole(pickle.loads(data)[0])
            # Unpickling calls the constructor again, which may change the text.
            kept = type(revived) is type(error) and (candidate is not error or str(revived) == message)
        except Exception:
            continue
        if kept or candidate is fallback:
            return data
    raise AssertionError("a RemoteError pickles")


def decode_error(data: bytes) -> BaseException:
    """The exception of a worker, with the worker's traceback as its cause, and with a note on where it was raised."""
    error, notes, text = pickle.loads(data)
    error = _whole(error)
    error.__dict__.pop("__notes__", None)
    for note in notes:
        add_note(error, note)
    error.__cause__ = RemoteTraceback(text)
    return error


class _Parts:
    """The class, arguments and attributes of an exception."""

    def __init__(self, error: BaseException) -> None:
        self.kind, self.args = type(error), error.args
        self.state = {name: value for name, value in error.__dict__.items() if can_pickle(value)}

    def whole(self) -> BaseException:
        error = self.kind.__new__(self.kind, *self.args)
        error.args = self.args
        error.__dict__.update(self.state)
        return error


def can_pickle(value: Any) -> bool:
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True


def _whole(value: Any) -> BaseException:
    error: BaseException = value.whole() if isinstance(value, _Parts) else value
    return error
