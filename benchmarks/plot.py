"""Draws the picture of speed for the landing page of the documentation: `python -m benchmarks.plot`.

It shows one case of benchmarks/RESULTS.md, in both themes, so narrow that a telephone can show it. It needs
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
SHOWN: Final = "jpeg"  # the case that most readers know; docs/speed.md shows the others

_OURS: Final = "gluonloader"
_TITLE: Final = "Time per batch, 2 workers on 2 cores; shorter is better"
_WIDTH, _LEFT, _RIGHT = 360, 80, 104  # pixels: of the picture, of the names, and of the figures
_BAR, _TOP = 22, 46  # pixels: of a bar, and of the two lines of the title
_NORMAL, _LARGE = 12, 13  # pixels: sizes of the text


@dataclass(frozen=True)
class Bar:
    """The time per batch of a loader in seconds, and as a multiple of gluonloader's in the same round."""

    loader: str
    time: float
    ratio: float


def bars_of(page: str) -> list[Bar]:
    """Returns the bars of the case that is shown, from the text of a page of results."""
    rows = read_results(page)[SHOWN]
    return [
        Bar(loader, seconds_of(rows[loader]["per batch"]), _ratio(rows, loader) / _ratio(rows, _OURS))
        for loader in (_OURS, *PEERS)
        if loader in rows
    ]


def _ratio(rows: Mapping[str, Mapping[str, str]], loader: str) -> float:
    return float(rows[loader]["ratio"])


def draw(bars: Sequence[Bar], theme: Theme) -> Figure:
    """Draws the times on a linear scale from 0."""
    height = _TOP + len(bars) * _BAR
    figure = Figure(figsize=(_WIDTH / DPI, height / DPI), dpi=DPI)
    for line, (text, weight) in enumerate([(_TITLE, "normal"), (OVERVIEW[SHOWN], "bold")]):
        figure.text(0, 1 - (14 + line * 18) / height, text, color=theme.text, size=_LARGE, weight=weight)
    axes = _axes(figure, height)
    axes.set(xlim=(0, max(bar.time for bar in bars)), ylim=(len(bars) * _BAR, 0))
    for place, bar in enumerate(bars):
        y = (place + 0.5) * _BAR
        axes.barh(y, bar.time, _BAR - 4, color=theme.ours if bar.loader == _OURS else theme.theirs)
        style = {"va": "center", "color": theme.text, "size": _NORMAL}
        axes.annotate(bar.loader, (0, y), (-_LEFT, 0), ("axes fraction", "data"), "offset points", **style)
        label = time_of(bar.time) if bar.loader == _OURS else f"{time_of(bar.time)} ({bar.ratio:.2g}x)"
        axes.annotate(label, (bar.time, y), (5, 0), "data", "offset points", **style)
    return figure


def _axes(figure: Figure, height: float) -> Axes:
    """Adds axes without a frame, between the names and the figures; the lengths are in pixels."""
    box = (_LEFT / _WIDTH, 0, (_WIDTH - _LEFT - _RIGHT) / _WIDTH, (height - _TOP) / height)
    axes: Axes = figure.add_axes(box, frameon=False)
    axes.set(xticks=[], yticks=[])
    return axes


def main(page: Path = RESULTS, picture: Path = PICTURE) -> None:
    """Draws the picture in both themes."""
    bars = bars_of(page.read_text())
    save(lambda theme: draw(bars, theme), picture)


if __name__ == "__main__":
    main()
