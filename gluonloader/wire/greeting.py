"""The greeting of a process and a server; messages as JSON.

process --Hello--> server
process <--Welcome, or Refused-- server
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from ..messages import message
from .descriptors import receive_bytes
from .ends import close_end

MESSAGE_BYTES: Final = 128 * 1024  # the most bytes of a message


@message(frozen=True, slots=True)
class Hello:
    """A process wants to use a server. Each kind of server may need to know more of it."""

    version: str  # of the library


@message(frozen=True, slots=True)
class Welcome:
    """The process may use the server. Each kind of server may say more of itself."""

    pid: int  # of the server


@message(frozen=True, slots=True)
class Refused:
    """The server does not take the process."""

    why: str


def encode(message: Any) -> bytes:
    """A dataclass as JSON."""
    content = {field.name: getattr(message, field.name) for field in fields(message)}
    return json.dumps([type(message).__name__, content]).encode()


def decode(data: bytes, *kinds: type) -> Any:
    """The message of one of these kinds that `encode` has encoded; raises ValueError for anything else."""
    try:
        name, fields = json.loads(data)
        return {kind.__name__: kind for kind in kinds}[name](**fields)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("not a message of gluonloader") from None


def greet(
    connection: socket.socket, hello: Hello, await_answer: Callable[[socket.socket], object], *kinds: type
) -> Any:
    """Says hello to a server, and returns its answer; None if it ends just now.

    The connection is closed unless the answer is a `Welcome`.

    Args:
        await_answer: waits until the connection can be read, or raises an error.
        kinds: the messages that may come as an answer, in addition to `Refused`.
    """
    answer = None
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # it ends just now; perhaps it has said why
            connection.send(encode(hello))
        await_answer(connection)
        with suppress(ConnectionResetError):
            data = receive_bytes(connection, MESSAGE_BYTES)
            answer = decode(data, Refused, *kinds) if data else None
    finally:
        if not isinstance(answer, Welcome):
            close_end(connection)
    return answer


def library_version() -> str:
    """The version of this library, which both sides of a connection must have."""
    try:
        return version("gluonloader")
    except PackageNotFoundError:  # it was not installed, but copied
        return "an unknown version"
