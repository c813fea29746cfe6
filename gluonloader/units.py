"""Texts for durations, sizes and shares."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """A duration with a unit.

    >>> duration(0.0000123), duration(0.0456), duration(7.89), duration(4000)
    ('12 us', '46 ms', '7.9 s', '4000 s')
    """
    if seconds >= 1:
        return _number(seconds, "s")
    return _number(seconds * 1e3, "ms") if seconds >= 1e-3 else _number(seconds * 1e6, "us")


def size(nbytes: float) -> str:
    """A number of bytes with a unit, in powers of 1024, as `memory_limit` counts.

    >>> size(512), size(64 << 20), size(1.5 * 2**30)
    ('512 bytes', '64 MB', '1.5 GB')
    """
    if nbytes < 1024:
        return f"{nbytes:.0f} bytes"
    power = next((power for power in (1, 2, 3) if nbytes < 1000 * 1024**power), 4)
    return _number(nbytes / 1024**power, ("kB", "MB", "GB", "TB")[power - 1])


def percent(share: float) -> str:
    """A share from 0 to 1 as percent.

    >>> percent(0.714), percent(0.0042)
    ('71 %', '0.4 %')
    """
    value = 100 * share
    return f"{value:.1f} %" if 0 < value < 0.95 else f"{value:.0f} %"


def _number(value: float, unit: str) -> str:
    return f"{value:.1f} {unit}".replace(".0 ", " ") if value < 9.95 else f"{value:.0f} {unit}"
