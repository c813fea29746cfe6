"""What the doctor has found: one line of text, and a cure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Level = Literal["ok", "note", "warning", "problem"]

LEVELS: Final[tuple[Level, ...]] = ("problem", "warning", "note", "ok")


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of the doctor.

    Args:
        name: what was checked, such as "cores".
        level: "problem": something will break; "warning": it works, but is slow or wrong in some cases; "note": worth
            knowing; "ok".
        text: what was found, with the values.
        cure: what to do; "" if there is nothing to do.
    """

    name: str
    level: Level
    text: str
    cure: str = ""


def size(nbytes: float) -> str:
    """A number of bytes as text, in powers of 1024.

    >>> size(512), size(64 << 20), size(1.5 * 2**30)
    ('512 bytes', '64 MB', '1.5 GB')
    """
    if nbytes < 1024:
        return f"{nbytes:.0f} bytes"
    power = next((power for power in (1, 2, 3) if nbytes < 1000 * 1024**power), 4)
    return _number(nbytes / 1024**power, ("kB", "MB", "GB", "TB")[power - 1])


def duration(seconds: float) -> str:
    """A time as text.

    >>> duration(0.0000123), duration(0.0123), duration(12.3)
    ('12 us', '12 ms', '12 s')
    """
    if seconds >= 1:
        return _number(seconds, "s")
    return _number(seconds * 1e3, "ms") if seconds >= 1e-3 else _number(seconds * 1e6, "us")


def _number(value: float, unit: str) -> str:
    return f"{value:.1f} {unit}".replace(".0 ", " ") if value < 10 else f"{value:.0f} {unit}"
