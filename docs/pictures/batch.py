"""Draws the way of a batch for docs/design.md: `python docs/pictures/batch.py`.

Needs matplotlib: pip install "gluonloader[plot]".
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent.parent))

from benchmarks.themes import DPI, Theme, save  # noqa: E402  # the line above finds them

WIDTH, HEIGHT = 470, 510  # pixels, as all lengths in this file
TITLE, TEXT, LINE = 13, 11.5, 15  # two sizes of text, and the height of a line


@dataclass(frozen=True)
class Station:
    """A box with a title and lines of text; `x`, `y` is its upper left corner."""

    x: float
    y: float
    width: float
    title: str
    lines: tuple[str, ...]
    place: str = "box"

    @property
    def height(self) -> float:
        return 14 + LINE * (1 + len(self.lines))

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def right(self) -> float:
        return self.x + self.width


LEFT, RIGHT = {"x": 26, "width": 190}, {"x": 292, "width": 160}
DRAW = Station(
    y=40,
    title="1 Draw",
    lines=("The sampler yields the", "indices of the next batch."),
    **LEFT,
)
BACKLOG = Station(
    y=124,
    title="2 Backlog",
    lines=("The task waits for a free", "slab and for a worker."),
    **LEFT,
)
WORKER = Station(
    y=109,
    title="4 Worker",
    lines=("Reads the samples;", "batchify_fn makes", "the batch of them."),
    **RIGHT,
)
SLAB = Station(
    y=262,
    title="5 Slab",
    lines=("Contains the arrays", "of this batch only."),
    place="slab",
    **RIGHT,
)
DELIVERY = Station(
    y=255,
    title="7 Delivery",
    lines=(
        "next() returns arrays that",
        "are views on the slab.",
        "Nothing is copied.",
    ),
    **LEFT,
)
STEP = Station(
    y=354, title="8 Training step", lines=("Your program uses", "the batch."), **LEFT
)
FREE = Station(
    y=438,
    title="9 Free again",
    lines=("The last array is deleted:", "the slab can be reused."),
    **LEFT,
)


def draw(theme: Theme) -> Figure:
    """Draws the stations of a batch, and the arrows between them."""
    figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(HEIGHT, 0))
    axes.axis("off")
    for words, station in (("Your program", DRAW), ("A worker process", WORKER)):
        axes.text(
            station.x + station.width / 2,
            20,
            words,
            color=theme.text,
            size=TITLE,
            ha="center",
            va="center",
        )
    draw_shared_memory(axes, theme)
    for station in (DRAW, BACKLOG, WORKER, SLAB, DELIVERY, STEP, FREE):
        draw_station(axes, station, theme)
    draw_arrows(axes, theme)
    return figure


def draw_shared_memory(axes: Axes, theme: Theme) -> None:
    """Draws a region around the slab."""
    corner, width, height = (
        (SLAB.x - 10, SLAB.y - 12),
        SLAB.width + 20,
        SLAB.height + 36,
    )
    shape = "round,pad=0,rounding_size=6"
    axes.add_patch(
        FancyBboxPatch(corner, width, height, shape, fc="none", ec=theme.lines, ls="--")
    )
    x, y = SLAB.x + SLAB.width / 2, SLAB.bottom + 12
    axes.text(
        x, y, "Shared memory", color=theme.text, size=TEXT, ha="center", va="center"
    )


def draw_station(axes: Axes, station: Station, theme: Theme) -> None:
    """Draws the box of a station with its text."""
    edge = theme.theirs if station.place == "slab" else theme.ours
    corner, shape = (station.x, station.y), "round,pad=0,rounding_size=6"
    axes.add_patch(
        FancyBboxPatch(
            corner, station.width, station.height, shape, fc=theme.box, ec=edge, lw=1.5
        )
    )
    x, y = station.x + 10, station.y + 7 + LINE / 2
    axes.text(
        x, y, station.title, color=theme.text, size=TITLE, weight="bold", va="center"
    )
    for number, line in enumerate(station.lines, 1):
        axes.text(x, y + number * LINE, line, color=theme.text, size=TEXT, va="center")


def draw_arrows(axes: Axes, theme: Theme) -> None:
    """Draws the way from station to station, and what travels on it."""
    middle = LEFT["x"] + LEFT["width"] / 2
    for above, below in ((DRAW, BACKLOG), (DELIVERY, STEP), (STEP, FREE)):
        arrow(axes, [(middle, above.bottom), (middle, below.y)], theme)
    request = BACKLOG.y + 22
    arrow(axes, [(BACKLOG.right, request), (WORKER.x, request)], theme)
    label(axes, 254, request - 12, ("3 request",), theme)
    label(axes, 254, request + 12, ("38 bytes",), theme)
    arrow(axes, [(RIGHT["x"] + 100, WORKER.bottom), (RIGHT["x"] + 100, SLAB.y)], theme)
    reply = RIGHT["x"] + 30
    arrow(
        axes,
        [(reply, WORKER.bottom), (reply, 210), (middle, 210), (middle, DELIVERY.y)],
        theme,
    )
    label(axes, 203, 228, ("6 reply, 45 bytes",), theme)
    views = SLAB.y + 30
    arrow(axes, [(SLAB.x, views), (DELIVERY.right, views)], theme, dashed=True)
    back = FREE.y + FREE.height / 2
    arrow(
        axes,
        [(FREE.x, back), (10, back), (10, BACKLOG.y + 30), (BACKLOG.x, BACKLOG.y + 30)],
        theme,
    )


def arrow(
    axes: Axes, points: list[tuple[float, float]], theme: Theme, dashed: bool = False
) -> None:
    """Draws a line through the points, with an arrow head at the last one."""
    style = {"color": theme.text, "lw": 1.2, "ls": (0, (3, 2)) if dashed else "-"}
    axes.plot(*zip(*points[:-1], strict=True), **style)
    head = {
        "arrowstyle": "-|>",
        "shrinkA": 0,
        "shrinkB": 0,
        "mutation_scale": 11,
        **style,
    }
    axes.annotate("", points[-1], points[-2], arrowprops=head)


def label(axes: Axes, x: float, y: float, lines: tuple[str, ...], theme: Theme) -> None:
    """Writes lines at the middle of an arrow."""
    for number, line in enumerate(lines):
        axes.text(
            x,
            y + number * LINE,
            line,
            color=theme.text,
            size=TEXT,
            ha="center",
            va="center",
        )


if __name__ == "__main__":
    save(draw, FOLDER / "batch.svg")
