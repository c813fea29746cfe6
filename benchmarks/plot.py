"""Draws the results as an SVG image, with a group of bars for each case, in two columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

from .cases import CASES
from .measure import Result
from .report import LIMITS, base_of, cores_for, time_of

__all__ = ["plot"]

_COLUMNS: Final = 2
_WIDTH, _LEFT, _RIGHT = 490, 122, 104  # pixels: of a column, of the names in a column, and of the figures in a column
_HEADING, _BAR, _GAP, _TOP = 15, 14, 16, 62
_TICKS: Final = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_NAMES: Final = {"auto": 'executor="auto"'}
_OURS: Final = ("gluonloader", "auto")
_SHOWN: Final = (*_OURS, "torch", "MXNet", "Grain", "SPDL", *LIMITS)  # variants are shown only on the page
_COLOURS: Final = {"ours": "#2563a8", "theirs": "#c9803a", "limit": "#8a8a8a"}
_TITLE: Final = "Time per batch as a multiple of gluonloader's (logarithmic; shorter bars are better)"


def plot(times: Mapping[str, Sequence[Result]]) -> str:
    """Draws the time of each loader relative to the base of the case, on a logarithmic scale.

    A bar starts at 1. It goes to the right if the loader is slower than the base, and to the left if it is faster.
    """
    cases = {name: [r for r in results if r.times and r.loader in _SHOWN] for name, results in times.items()}
    bases = {name: base for name, results in cases.items() if (base := base_of(CASES[name], results))}
    low, high = _span(cases, bases)
    columns = _columns({name: cases[name] for name in bases})
    height = _TOP + max(map(_height, columns), default=0)
    parts = [_text(8, 20, _TITLE, "bold")]
    for number, column in enumerate(columns):
        parts.append(f'<g transform="translate({number * _WIDTH} 0)">')
        parts += [line for tick in _TICKS if low <= tick <= high for line in _rule(tick, low, high, height - _GAP)]
        y = _TOP
        for name, results in column.items():
            parts += _group(name, results, bases[name], y, (low, high))
            y += _height({name: results})
        parts.append("</g>")
    box = f'viewBox="0 0 {_COLUMNS * _WIDTH} {height}" font-family="sans-serif" font-size="11"'
    background = f'<rect width="{_COLUMNS * _WIDTH}" height="{height}" fill="white"/>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {box}>', background, *parts, "</svg>\n"])


def _columns(cases: Mapping[str, Sequence[Result]]) -> list[dict[str, Sequence[Result]]]:
    """Splits the cases into columns of about equal height, and keeps their order."""
    columns: list[dict[str, Sequence[Result]]] = [{} for _ in range(_COLUMNS)]
    total, above = _height(cases), 0
    for name, results in cases.items():
        height = _height({name: results})
        columns[min(_COLUMNS - 1, int((above + height / 2) / total * _COLUMNS))][name] = results
        above += height
    return columns


def _height(cases: Mapping[str, Sequence[Result]]) -> int:
    return sum(_HEADING + _BAR * len(results) + _GAP for results in cases.values())


def _span(cases: Mapping[str, Sequence[Result]], bases: Mapping[str, Result]) -> tuple[float, float]:
    """Returns the smallest and the largest ratio of the axis, which always contains 1."""
    ratios = [_ratio(result, base) for name, base in bases.items() for result in cases[name]]
    return min([0.8, *ratios]), max([1.25, *ratios])


def _x(ratio: float, low: float, high: float) -> float:
    share = math.log(ratio / low) / math.log(high / low)
    return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)


def _ratio(result: Result, base: Result) -> float:
    return result.ratio_to(base) / _cores(result, base)


def _cores(result: Result, base: Result) -> float:
    return cores_for(result, base) if result.loader in LIMITS else 1


def _group(name: str, results: Sequence[Result], base: Result, y: int, span: tuple[float, float]) -> list[str]:
    lines = [_text(8, y + 4, name, "bold")]
    for number, result in enumerate(results):
        lines += _bar(result, base, y + _HEADING + number * _BAR, span)
    return lines


def _bar(result: Result, base: Result, y: int, span: tuple[float, float]) -> list[str]:
    ratio, cores = _ratio(result, base), _cores(result, base)
    kind = "ours" if result.loader in _OURS else "limit" if result.loader in LIMITS else "theirs"
    one, end = _x(1, *span), _x(ratio, *span)
    left, width = min(one, end), max(abs(end - one), 1.5)
    name = _NAMES.get(result.loader, result.loader) if cores == 1 else f"{result.loader}, {cores:g} cores"
    return [
        _text(16, y + 3, name),
        f'<rect x="{left}" y="{y - 6}" width="{width:.1f}" height="{_BAR - 4}" fill="{_COLOURS[kind]}"/>',
        _text(max(one, end) + 5, y + 3, f"{ratio:.2f}  ({time_of(result.median / cores)})"),
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
