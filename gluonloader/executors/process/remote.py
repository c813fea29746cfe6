"""What travels beside batches: jobs to workers, and exceptions back, with type, arguments and traceback as text."""

from __future__ import annotations

import pickle
import traceback
from typing import Any

from ...errors import GluonLoaderError, RemoteTraceback, TransportError, add_note
from ...work.task import Job
from .packed_job import PackedJob, pack_job


class RemoteError(GluonLoaderError, RuntimeError):
    """Stands for a worker's exception that cannot be pickled; its text names the original type."""


def encode_error(error: BaseException, who: str) -> bytes:
    """Pickles an exception in the worker, where a failure to do so can still be told.

    Three ways, the first that survives a round trip: as it is; its class, arguments and attributes, without calling
    the class (whose constructor may want other arguments than the exception keeps); a `RemoteError` with its text.
    """
    text = "".join(traceback.format_exception(error))
    notes = [*getattr(error, "__notes__", ()), f"gluonloader: {who}"]
    try:
        said = str(error)
    except Exception as unsaid:
        said = f"its text cannot be had ({unsaid!r})"
    fallback = RemoteError(f"{type(error).__module__}.{type(error).__qualname__}: {said}")
    # sys.exit() in a dataset must not end the user's program.
    for candidate in (error, _Parts(error), fallback) if isinstance(error, Exception) else (fallback,):
        try:
            data = pickle.dumps((candidate, notes, text))
            revived = _whole(pickle.loads(data)[0])
            # A constructor that is called again may make another text of its own one.
            kept = type(revived) is type(error) and (candidate is not error or str(revived) == said)
        except Exception:
            continue
        if kept or candidate is fallback:
            return data
    raise AssertionError("a RemoteError pickles")


def decode_error(data: bytes) -> BaseException:
    """The exception of a worker, with the worker's traceback as its cause and where it happened as a note."""
    error, notes, text = pickle.loads(data)
    error = _whole(error)
    error.__dict__.pop("__notes__", None)
    for note in notes:
        add_note(error, note)
    error.__cause__ = RemoteTraceback(text)
    return error


class _Parts:
    """An exception taken apart."""

    def __init__(self, error: BaseException) -> None:
        self.kind, self.args = type(error), error.args
        self.state = {name: value for name, value in error.__dict__.items() if pickles(value)}

    def whole(self) -> BaseException:
        error = self.kind.__new__(self.kind, *self.args)
        error.args = self.args
        error.__dict__.update(self.state)
        return error


def pickles(value: Any) -> bool:
    """Whether a value can be pickled."""
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True


def _whole(value: Any) -> BaseException:
    error: BaseException = value.whole() if isinstance(value, _Parts) else value
    return error


def pack_for(start_method: str, job: Job) -> PackedJob:
    """Pickles a job for workers that do not inherit it.

    Raises:
        TransportError: it cannot be pickled; the text names the part that cannot.
    """
    try:
        return pack_job(job)
    except GluonLoaderError:
        raise
    except Exception as error:
        parts = ("dataset", "batchify_fn", "worker_init_fn", "payloads")
        part = next((name for name in parts if not pickles(getattr(job, name))), "job")
        raise TransportError(
            f"start_method={start_method!r} has to pickle the {part}, which fails: {error}. Define its functions and "
            "classes at the top level of a module, or use start_method='fork'"
        ) from error
