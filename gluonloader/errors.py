"""Every exception of the library, and the helpers that say where it went wrong and what to do.

Each class also derives from the built-in that a caller would catch, so `except ValueError` or
`except TimeoutError` keeps working.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = [
    "BatchTimeout",
    "BatchifyError",
    "GluonLoaderError",
    "LoaderClosed",
    "MissingExtraError",
    "RemoteTraceback",
    "SharedMemoryError",
    "TransportError",
    "WorkerDied",
    "WorkerStartError",
    "add_note",
    "bad_argument",
    "bad_state",
    "other_words",
]

P = ParamSpec("P")
R = TypeVar("R")


class GluonLoaderError(Exception):
    """Base of everything that gluonloader raises in its own name."""


class BatchifyError(GluonLoaderError, ValueError):
    """Samples do not fit together in one batch.

    Args:
        reason: what differs, and what was expected.
        position: position of the offending sample in its batch.
        path: where in the sample the leaf lies, as Python would index it, e.g. ``['image'][0]``.
        sample: what to call the sample; a loader, which knows its index in the dataset, says it.
    """

    def __init__(self, reason: str, position: int | None = None, path: str = "", sample: str = "") -> None:
        super().__init__(reason, position, path, sample)
        self.reason, self.position, self.path = reason, position, path
        self.sample = sample or ("" if position is None else f"sample at position {position}")

    def __str__(self) -> str:
        at = f" at {self.path}" if self.path else ""
        return f"{self.sample}{at}: {self.reason}" if self.sample or at else self.reason


class WorkerDied(GluonLoaderError, RuntimeError):
    """A worker process died more often on one batch than `max_retries` allows."""


class WorkerStartError(GluonLoaderError, RuntimeError):
    """Workers could not start: the dataset or `worker_init_fn` fails there. Raised once; the loader is closed."""


class BatchTimeout(GluonLoaderError, TimeoutError, multiprocessing.TimeoutError):
    """A batch took longer than `timeout` seconds; the text shows the stack of the worker that is stuck."""


class LoaderClosed(GluonLoaderError, RuntimeError):
    """The loader was closed and is used again."""


class TransportError(GluonLoaderError, TypeError):
    """A batch holds something that cannot travel between processes."""


class SharedMemoryError(GluonLoaderError, OSError):
    """Shared memory could not be had; the text says how much was asked for and why it failed."""


class MissingExtraError(GluonLoaderError, ImportError):
    """A framework was asked for that is not installed; the text says how to install it."""

    def __init__(self, package: str) -> None:
        super().__init__(f'{package} is not installed: pip install "gluonloader[{package}]"')


class RemoteTraceback(Exception):
    """Carries a worker's traceback as text; it is the `__cause__` of an error that came from a worker."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def add_note(error: BaseException, note: str) -> None:
    """Attaches a line of context to an exception, shown under its traceback (on Python 3.10: kept in `__notes__`)."""
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        error.__dict__.setdefault("__notes__", []).append(note)


def bad_argument(name: str, value: object, right: str) -> ValueError:
    """The error for a wrong argument: its name, its value, and what would be right."""
    return ValueError(f"{name}={value!r:.200}: {right}")


def bad_state(field: str, value: object, right: str) -> ValueError:
    """The error for a saved position that does not fit: its field, what that holds, and what would be right."""
    return ValueError(f"state: {field}={value!r:.200}: {right}")


def other_words(**words: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Has a function say what to do in the place of an argument that it has in torch, and not here.

    Args:
        words: by name of the argument, the cure.

    >>> @other_words(generator="give seed, an int")
    ... def draw(seed: int) -> int:
    ...     return seed
    >>> draw(generator=3)
    Traceback (most recent call last):
    TypeError: draw() has no argument generator: give seed, an int
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        name = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            for word in kwargs:
                if word in words:
                    raise TypeError(f"{name}() has no argument {word}: {words[word]}")
            return function(*args, **kwargs)

        return checked

    return decorate
