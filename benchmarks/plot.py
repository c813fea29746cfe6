"""Draws the tables of a page of results as pictures: `python -m benchmarks.plot benchmarks/RESULTS.md`.

Beside the page, `results.svg` shows all cases. With `--summary FILE`, a narrow picture shows the cases of the landing
page of the documentation. Each picture is saved in two themes. Needs matplotlib: pip install "gluonloader[plot]".
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .measure import LIMITS
from .report import time_of
from .tables import OVERVIEW, read_results, seconds_of
from .themes import DPI, Theme, save

__all__ = ["Bar", "draw_all", "draw_summary", "read_bars"]

_OURS: Final = ("gluonloader", "auto")
_SHOWN: Final = (*_OURS, "torch", "MXNet", "Grain", "SPDL", *LIMITS)  # variants are shown only on the page
_SUMMARY_SHOWN: Final = ("gluonloader", "torch", "MXNet", "Grain", "SPDL")
_NAMES: Final = {"auto": 'executor="auto"'}
_TICKS: Final = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_TITLE: Final = "Time per batch as a multiple of gluonloader's (logarithmic; shorter bars are better)"
_SUMMARY_TITLE: Final = "Time per batch, 2 workers on 2 cores; shorter is better"
_COLUMNS: Final = 2
_WIDTH, _LEFT, _RIGHT = 490, 122, 104  # pixels: of a column, of the names in a column, and of the figures in a column
_BAR, _GAP, _TOP = 14, 30, 40  # pixels: of a bar, between two cases, and of the title
_SMALL, _NORMAL, _LARGE = 11, 12, 13  # pixels: sizes of the text


@dataclass(frozen=True)
class Bar:
    """The time of a loader in a case.

    Attributes:
        loader: its name.
        time: the time per batch, in seconds.
        ratio: the time as a multiple of the time of the loader with ratio 1.
        cores: a limit that uses one core is shown as if it used as many cores as gluonloader has workers.
    """

    loader: str
    time: float
    ratio: float
    cores: int = 1

    @property
    def kind(self) -> str:
        """The name of its colour in a theme."""
        return "ours" if self.loader in _OURS else "limit" if self.loader in LIMITS else "theirs"


def read_bars(page: str) -> dict[str, list[Bar]]:
    """Returns the bars of each case, from the text of a page that `python -m benchmarks --markdown` wrote."""
    cases = {name: _bars(rows) for name, rows in read_results(page).items()}
    return {name: bars for name, bars in cases.items() if bars}


def _bars(rows: Mapping[str, Mapping[str, str]]) -> list[Bar]:
    """Returns the bars of the rows that have a ratio, which are none if the base was not measured."""
    bars = []
    for loader, cells in rows.items():
        ratio, share = cells["ratio"], cells.get("of the limit")
        cores = round(100 / float(share.removesuffix(" %"))) if share and loader in LIMITS else 1
        if loader in _SHOWN and ratio:
            bars.append(Bar(loader, seconds_of(cells["per batch"]) / cores, float(ratio) / cores, cores))
    return bars


def draw_all(cases: Mapping[str, Sequence[Bar]], theme: Theme) -> Figure:
    """Draws the ratios of all cases, on a logarithmic scale, in two columns.

    A bar starts at 1. It goes to the right if the loader is slower than the base, and to the left if it is faster.
    """
    columns = _columns(cases)
    height = max(map(_height, columns))
    figure = _figure(_COLUMNS * _WIDTH, _TOP + height + 24)
    figure.text(
        8 / (_COLUMNS * _WIDTH), 1 - 16 / (_TOP + height + 24), _TITLE, color=theme.text, size=_LARGE, weight="bold"
    )
    ratios = [bar.ratio for bars in cases.values() for bar in bars]
    for number, column in enumerate(columns):
        axes = _axes(figure, number * _WIDTH + _LEFT, 8, _WIDTH - _LEFT - _RIGHT, height)
        axes.set(xscale="log", xlim=(min([0.8, *ratios]), max([1.25, *ratios])), ylim=(height, 0))
        _rule(axes, theme)
        y = 0.0
        for name, bars in column.items():
            _text(axes, -_LEFT + 8, y + 6, name, theme, _NORMAL, weight="bold")
            for place, bar in enumerate(bars, 1):
                _ratio_bar(axes, bar, y + 6 + place * _BAR, theme)
            y += _height({name: bars})
    return figure


def draw_summary(cases: Mapping[str, Sequence[Bar]], theme: Theme) -> Figure:
    """Draws the times of a few cases, each on a linear scale from 0, so narrow that a telephone can show it."""
    chosen = {
        what: [bar for bar in cases[name] if bar.loader in _SUMMARY_SHOWN]
        for name, what in OVERVIEW.items()
        if name in cases
    }
    width, left, right, step = 360, 76, 104, 15  # pixels: the last is the height of a bar
    heights = [len(bars) * step + 28 for bars in chosen.values()]
    bottom = sum(heights)
    figure = _figure(width, bottom + 24)
    figure.text(0, 1 - 14 / (bottom + 24), _SUMMARY_TITLE, color=theme.text, size=_LARGE)
    for (what, bars), height in zip(chosen.items(), heights, strict=True):
        bottom -= height
        axes = _axes(figure, left, bottom, width - left - right, height)
        axes.set(xlim=(0, max(bar.time for bar in bars)), ylim=(height, 0))
        _text(axes, -left, 12, what, theme, _NORMAL, weight="bold")
        base = next(bar for bar in bars if bar.loader == "gluonloader")
        for place, bar in enumerate(bars, 1):
            y = 14 + place * step
            axes.barh(y, bar.time, step - 4, color=getattr(theme, bar.kind))
            _text(axes, -left, y, bar.loader, theme, _NORMAL)
            label = time_of(bar.time) if bar is base else f"{time_of(bar.time)} ({bar.ratio / base.ratio:.2g}x)"
            _label(axes, bar.time, y, label, theme, _NORMAL)
    return figure


def _columns(cases: Mapping[str, Sequence[Bar]]) -> list[dict[str, Sequence[Bar]]]:
    """Splits the cases into columns of about equal height, and keeps their order."""
    columns: list[dict[str, Sequence[Bar]]] = [{} for _ in range(_COLUMNS)]
    total, above = _height(cases), 0
    for name, bars in cases.items():
        height = _height({name: bars})
        columns[min(_COLUMNS - 1, int((above + height / 2) / total * _COLUMNS))][name] = bars
        above += height
    return columns


def _height(cases: Mapping[str, Sequence[Bar]]) -> int:
    return sum(_BAR * len(bars) + _GAP for bars in cases.values())


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width / DPI, height / DPI), dpi=DPI)


def _axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Adds axes without a frame; all lengths are in pixels."""
    across, up = figure.get_size_inches() * DPI
    axes: Axes = figure.add_axes((left / across, bottom / up, width / across, height / up), frameon=False)
    axes.set(xticks=[], yticks=[])
    axes.minorticks_off()
    return axes


def _rule(axes: Axes, theme: Theme) -> None:
    """Draws the vertical lines of a logarithmic scale, with their numbers above them."""
    low, high = axes.get_xlim()
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    axes.xaxis.tick_top()
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], size=_SMALL)
    axes.tick_params(axis="x", length=0, colors=theme.text)
    axes.minorticks_off()
    for tick in ticks:
        axes.axvline(tick, color=theme.text if tick == 1 else theme.lines, linewidth=1, zorder=0)


def _ratio_bar(axes: Axes, bar: Bar, y: float, theme: Theme) -> None:
    name = _NAMES.get(bar.loader, bar.loader) if bar.cores == 1 else f"{bar.loader}, {bar.cores} cores"
    _text(axes, -_LEFT + 16, y + 6, name, theme)
    color = getattr(theme, bar.kind)
    axes.barh(y + 6, bar.ratio - 1, _BAR - 4, left=1, color=color, edgecolor=color, linewidth=1)
    _label(axes, max(1.0, bar.ratio), y + 6, f"{bar.ratio:.2f} ({time_of(bar.time)})", theme)


def _text(axes: Axes, x: float, y: float, words: str, theme: Theme, size: int = _SMALL, weight: str = "normal") -> None:
    """Writes words `x` pixels to the right of the axes' left edge, at height `y` of its scale."""
    place = ("axes fraction", "data")
    style = {"va": "center", "color": theme.text, "size": size, "weight": weight}
    axes.annotate(words, (0, y), (x, 0), place, "offset points", **style)


def _label(axes: Axes, x: float, y: float, words: str, theme: Theme, size: int = _SMALL) -> None:
    axes.annotate(words, (x, y), (5, 0), "data", "offset points", va="center", color=theme.text, size=size)


def main() -> None:
    """Draws the pictures of the page that the arguments name."""
    parser = argparse.ArgumentParser("python -m benchmarks.plot", description="Draws a page of results as pictures.")
    parser.add_argument("page", type=Path, help="a page that `python -m benchmarks --markdown` wrote")
    parser.add_argument("--summary", type=Path, metavar="FILE", help="also draw a narrow picture of a few cases")
    arguments = parser.parse_args()
    cases = read_bars(arguments.page.read_text())
    if not cases:
        parser.error(f"{arguments.page} has no times with a ratio")
    save(lambda theme: draw_all(cases, theme), arguments.page.with_name("results.svg"))
    if arguments.summary is not None:
        save(lambda theme: draw_summary(cases, theme), arguments.summary)


if __name__ == "__main__":
    main()
