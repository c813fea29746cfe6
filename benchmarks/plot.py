"""The results as a picture: one group of bars for each case, as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

from .cases import CASES
from .measure import Result
from .report import LIMITS, base_of, cores_for, time_of

__all__ = ["plot"]

_LEFT, _RIGHT, _WIDTH = 170, 140, 820  # of the bars' area, and of it all
_BAR, _GAP, _TOP = 16, 30, 60
_TICKS: Final = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_OURS: Final = ("gluonloader", "tensors out", "NDArrays out", "auto", "serial", "threads")
_COLOURS: Final = {"ours": "#2563a8", "theirs": "#c9803a", "limit": "#8a8a8a"}


def plot(times: Mapping[str, Sequence[Result]]) -> str:
    """Bars of time relative to the case's base, logarithmic; they begin at 1, the faster ones go to the left."""
    low, high = _span(times)
    parts: list[str] = []
    y = _TOP
    for name, results in times.items():
        base = base_of(CASES[name], results)
        if base is None:
            continue
        parts.append(_text(8, y + 4, name, "bold"))
        y += 12
        for result in results:
            if result.times:
                parts += _bar(result, base, y, low, high)
                y += _BAR
        y += _GAP
    title = _text(8, 20, "Time per batch as a multiple of gluonloader's (logarithmic; shorter is better)", "bold")
    lines = [line for tick in _TICKS if low <= tick <= high for line in _rule(tick, low, high, y - _GAP)]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" font-family="sans-serif" font-size="12">'
    )
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{y}" fill="white"/>', title, *lines, *parts, "</svg>\n"])


def _span(times: Mapping[str, Sequence[Result]]) -> tuple[float, float]:
    """From the shortest bar to the longest; 1 is always within."""
    bases = {name: base_of(CASES[name], results) for name, results in times.items()}
    ratios = [_ratio(r, base) for name, base in bases.items() if base for r in times[name] if r.times]
    return min([0.8, *ratios]), max([1.25, *ratios])


def _x(ratio: float, low: float, high: float) -> float:
    share = math.log(ratio / low) / math.log(high / low)
    return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)


def _ratio(result: Result, base: Result) -> float:
    return result.ratio_to(base) / _cores(result, base)


def _cores(result: Result, base: Result) -> float:
    return cores_for(result, base) if result.loader in LIMITS else 1


def _bar(result: Result, base: Result, y: int, low: float, high: float) -> list[str]:
    ratio, cores = _ratio(result, base), _cores(result, base)
    kind = "ours" if result.loader in _OURS else "limit" if result.loader in LIMITS else "theirs"
    one, end = _x(1, low, high), _x(ratio, low, high)
    left, width = min(one, end), max(abs(end - one), 1.5)
    name = result.loader if cores == 1 else f"{result.loader} x {cores:g} cores"
    return [
        _text(20, y + _BAR - 5, name),
        f'<rect x="{left}" y="{y + 2}" width="{width:.1f}" height="{_BAR - 4}" fill="{_COLOURS[kind]}"/>',
        _text(max(one, end) + 5, y + _BAR - 5, f"{ratio:.2f}  ({time_of(result.median / cores)})"),
    ]


def _rule(tick: float, low: float, high: float, bottom: int) -> list[str]:
    x = _x(tick, low, high)
    stroke = "#555" if tick == 1 else "#ddd"
    return [
        f'<line x1="{x}" y1="{_TOP - 16}" x2="{x}" y2="{bottom}" stroke="{stroke}"/>',
        _text(x - 6, _TOP - 20, f"{tick:g}"),
    ]


def _text(x: float, y: float, words: str, weight: str = "normal") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-weight="{weight}" fill="#222">{escape(words)}</text>'
