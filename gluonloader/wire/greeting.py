"""Messages as JSON, and what every server says to a process that it does not take."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any


@dataclass(frozen=True, slots=True)
class Refused:
    """The server does not take the process that has connected."""

    why: str


def encode(message: Any) -> bytes:
    """A dataclass as JSON."""
    return json.dumps([type(message).__name__, asdict(message)]).encode()


def decode(data: bytes, *kinds: type) -> Any:
    """The message of one of these kinds that `encode` has encoded; raises ValueError for anything else."""
    try:
        name, fields = json.loads(data)
        return {kind.__name__: kind for kind in kinds}[name](**fields)
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("not a message of gluonloader") from None


def library_version() -> str:
    """The version of this library, which both sides of a connection must have."""
    try:
        return version("gluonloader")
    except PackageNotFoundError:  # it was not installed, but copied
        return "an unknown version"
