"""Draws the picture of speed for the landing page of the documentation: `python -m benchmarks.plot`.

It shows a few cases of benchmarks/RESULTS.md, in both themes, so narrow that a telephone can show it. It needs
matplotlib: pip install "gluonloader[plot]".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .report import time_of
from .tables import OVERVIEW, PEERS, RESULTS, ROOT, read_results, seconds_of
from .themes import DPI, Theme, save

PICTURE: Final = ROOT / "docs" / "pictures" / "speed.svg"

_OURS: Final = "gluonloader"
_TITLE: Final = "Time per batch, 2 workers on 2 cores; shorter is better"
_WIDTH, _LEFT, _RIGHT = 360, 76, 104  # pixels: of the picture, of the names, and of the figures
_BAR, _GAP, _TOP = 15, 28, 24  # pixels: of a bar, between two cases, and of the title
_NORMAL, _LARGE = 12, 13  # pixels: sizes of the text


@dataclass(frozen=True)
class Bar:
    """The time per batch of a loader in seconds, and as a multiple of gluonloader's in the same round."""

    loader: str
    time: float
    ratio: float


def bars_of(page: str) -> dict[str, list[Bar]]:
    """Returns the bars of each case that is shown, from the text of a page of results."""
    results = read_results(page)
    cases = {what: results[case] for case, what in OVERVIEW.items() if case in results}
    return {
        what: [
            Bar(loader, seconds_of(rows[loader]["per batch"]), _ratio(rows, loader) / _ratio(rows, _OURS))
            for loader in (_OURS, *PEERS)
            if loader in rows
        ]
        for what, rows in cases.items()
    }


def _ratio(rows: Mapping[str, Mapping[str, str]], loader: str) -> float:
    return float(rows[loader]["ratio"])


def draw(cases: Mapping[str, Sequence[Bar]], theme: Theme) -> Figure:
    """Draws the times of the cases, each on a linear scale from 0."""
    heights = [len(bars) * _BAR + _GAP for bars in cases.values()]
    bottom = sum(heights)
    figure = Figure(figsize=(_WIDTH / DPI, (bottom + _TOP) / DPI), dpi=DPI)
    figure.text(0, 1 - 14 / (bottom + _TOP), _TITLE, color=theme.text, size=_LARGE)
    for (what, bars), height in zip(cases.items(), heights, strict=True):
        bottom -= height
        axes = _axes(figure, bottom, height)
        axes.set(xlim=(0, max(bar.time for bar in bars)), ylim=(height, 0))
        _text(axes, 12, what, theme, weight="bold")
        for place, bar in enumerate(bars, 1):
            y = 14 + place * _BAR
            axes.barh(y, bar.time, _BAR - 4, color=theme.ours if bar.loader == _OURS else theme.theirs)
            _text(axes, y, bar.loader, theme)
            label = time_of(bar.time) if bar.loader == _OURS else f"{time_of(bar.time)} ({bar.ratio:.2g}x)"
            style = {"va": "center", "color": theme.text, "size": _NORMAL}
            axes.annotate(label, (bar.time, y), (5, 0), "data", "offset points", **style)
    return figure


def _axes(figure: Figure, bottom: float, height: float) -> Axes:
    """Adds axes without a frame; the lengths are in pixels."""
    across, up = figure.get_size_inches() * DPI
    box = (_LEFT / across, bottom / up, (_WIDTH - _LEFT - _RIGHT) / across, height / up)
    axes: Axes = figure.add_axes(box, frameon=False)
    axes.set(xticks=[], yticks=[])
    return axes


def _text(axes: Axes, y: float, words: str, theme: Theme, weight: str = "normal") -> None:
    """Writes words at the left edge of the picture."""
    style = {"va": "center", "color": theme.text, "size": _NORMAL, "weight": weight}
    axes.annotate(words, (0, y), (-_LEFT, 0), ("axes fraction", "data"), "offset points", **style)


def main(page: Path = RESULTS, picture: Path = PICTURE) -> None:
    """Draws the picture in both themes."""
    cases = bars_of(page.read_text())
    save(lambda theme: draw(cases, theme), picture)


if __name__ == "__main__":
    main()
