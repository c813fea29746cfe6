"""Draws the speeds of trials by matplotlib."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..errors import import_extra
from .setting import text_of
from .trial import Trial


def draw(trials: Sequence[Trial], best: Trial, path: str | os.PathLike[str]) -> None:
    """Writes an image with a bar for each trial, the fastest at the top; the best one has another color."""
    import_extra("matplotlib", "plot", "matplotlib")
    figures: Any = import_extra("matplotlib.figure", "plot", "matplotlib")
    shown = [trial for trial in reversed(trials) if not trial.error]
    figure = figures.Figure(figsize=(9, 1.2 + 0.3 * len(shown)), layout="constrained")  # works without a display
    axes = figure.subplots()
    speeds = [trial.samples_per_s for trial in shown]
    around = [
        [max(0.0, trial.samples_per_s - trial.low) for trial in shown],
        [max(0.0, trial.high - trial.samples_per_s) for trial in shown],
    ]
    colors = ["tab:blue" if trial is best else "lightgray" for trial in shown]
    axes.barh([text_of(trial.arguments) for trial in shown], speeds, xerr=around, color=colors)
    axes.set_xlabel("samples/s, with the range of half of all measurements")
    figure.suptitle(f"Best: {text_of(best.arguments)}")
    figure.savefig(path)
