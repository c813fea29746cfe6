"""Texts for durations, sizes and shares."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """A duration with a unit.

    >>> duration(0.0000123), duration(0.0456), duration(7.89), duration(4000)
    ('12 us', '46 ms', '7.9 s', '4000 s')
    """
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        value = seconds * factor
        if value >= 1 or unit == "us":
            return f"{value:.1f} {unit}" if value < 9.95 and value else f"{value:.0f} {unit}"
    raise AssertionError


def size(nbytes: float) -> str:
    """A number of bytes with a unit.

    >>> size(999), size(12_345), size(4_560_000), size(7_890_000_000)
    ('999 bytes', '12 kB', '4.6 MB', '7.9 GB')
    """
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if nbytes >= factor:
            value = nbytes / factor
            return f"{value:.1f} {unit}" if value < 9.95 else f"{value:,.0f} {unit}"
    return f"{nbytes:.0f} bytes"


def percent(share: float) -> str:
    """A share from 0 to 1 as percent.

    >>> percent(0.714), percent(0.0042)
    ('71 %', '0.4 %')
    """
    value = 100 * share
    return f"{value:.1f} %" if 0 < value < 0.95 else f"{value:.0f} %"
