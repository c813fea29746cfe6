"""Checks of arguments. Each check raises a ValueError with the argument, its value and the values that are allowed."""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import numpy as np

from .errors import bad_argument

ExecutorName = Literal["serial", "thread", "process", "auto"]
LastBatch = Literal["keep", "discard", "rollover"]

_MIN_MEMORY_LIMIT: Final = 1 << 20  # bytes; a loader needs about that much for one small batch
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def check_int(name: str, value: Any, least: int | None = 0, expected: str = "") -> int:
    """Returns the argument as an int, at least `least` unless that is None; `expected` replaces the error text."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or (least is not None and value < least):
        raise bad_argument(name, value, expected or "must be an int" + ("" if least is None else f" >= {least}"))
    return int(value)


def check_flags(**flags: object) -> None:
    for name, flag in flags.items():
        if not isinstance(flag, (bool, int, np.bool_)):
            raise bad_argument(name, flag, "must be True or False")


def check_functions(**functions: object) -> None:
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise bad_argument(name, function, "must be a function or None")


def check_timeout(timeout: Any) -> None:
    if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
        raise bad_argument("timeout", timeout, "must be a number of seconds > 0, or None to wait without limit")


def check_last_batch(value: Any) -> LastBatch:
    """Checks the argument `last_batch`."""
    if value not in ("keep", "discard", "rollover"):
        raise bad_argument("last_batch", value, "must be 'keep', 'discard' or 'rollover'")
    checked: LastBatch = value
    return checked


def parse_bytes(limit: int | str | None) -> int | None:
    """Returns the bytes of a memory limit such as 268435456, "256MB" or "1.5 GiB" (units of 1024)."""
    expected = f'pass at least {_MIN_MEMORY_LIMIT:,} bytes, as an int or as text such as "256MB", or None for no limit'
    if limit is None:
        return None
    if isinstance(limit, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", limit, re.IGNORECASE)
        if match is None:
            raise bad_argument("memory_limit", limit, expected)
        nbytes = int(float(match[1]) * _UNITS[match[2].upper()])
    else:
        nbytes = limit
    if not isinstance(nbytes, int) or isinstance(nbytes, bool) or nbytes < _MIN_MEMORY_LIMIT:
        raise bad_argument("memory_limit", limit, expected)
    return nbytes
