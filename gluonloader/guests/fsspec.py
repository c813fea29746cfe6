"""fsspec: which of its filesystems reads a URL."""

from __future__ import annotations

import os
from functools import cache
from types import ModuleType
from typing import Any

from ..errors import import_extra
from ..messages import message


@message(frozen=True, slots=True)
class FileOfFilesystem:
    """A file, as fsspec knows it.

    Attributes:
        kind, options: the class of the filesystem, and its arguments.
        name: of the file in it.
    """

    kind: Any
    options: dict[str, Any]
    name: str


def load() -> ModuleType:
    """fsspec; raises MissingExtraError if it is not installed."""
    fsspec = import_extra("fsspec", "fsspec")
    _renew_lock_in_forks()
    return fsspec


def locate(url: str) -> FileOfFilesystem:
    """The file that a URL names.

    The filesystem is not made: it may start a thread, which forked workers should not inherit.

    Raises:
        MissingExtraError: fsspec is not installed.
        ValueError: fsspec does not know the protocol.
        ImportError: the package for the protocol is not installed; the text names it.
    """
    fsspec = load()
    try:
        kind: Any = fsspec.get_filesystem_class(url.partition("://")[0])
    except (ImportError, ValueError) as error:
        raise type(error)(f"{url}: {error}") from None
    return FileOfFilesystem(kind, kind._get_kwargs_from_urls(url), kind._strip_protocol(url))


def http_failure(error: FileNotFoundError) -> BaseException | None:
    """Why an HTTP server has not described a file: its filesystem raises a FileNotFoundError for each failure.

    Returns:
        None if there is no such file, or the error is that of another filesystem.
    """
    cause = error.__cause__
    is_of_http = isinstance(cause, TimeoutError) or type(cause).__module__.startswith("aiohttp.")
    return cause if is_of_http and getattr(cause, "status", None) not in (404, 410) else None


@cache  # once
def _renew_lock_in_forks() -> None:
    # fsspec itself leaves this lock as it is in a forked process, although another thread may have held it.
    os.register_at_fork(after_in_child=import_extra("fsspec.asyn", "fsspec").reset_lock)
