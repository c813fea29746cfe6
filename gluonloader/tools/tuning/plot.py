"""Draws the speeds of trials with matplotlib."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import bad_argument, import_extra
from .setting import text_of
from .trial import Trial


def check_path(path: str) -> None:
    """Checks whether `draw` can write this file, so that an error comes before the trials.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OSError: there is no such folder.
        ValueError: the ending is not that of an image.
    """
    formats = _figure().canvas.get_supported_filetypes()
    folder, ending = Path(path).parent, Path(path).suffix[1:].lower()
    if ending not in formats:
        raise bad_argument("plot", path, "the file must end with .png, .svg or .pdf")
    if not folder.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {folder}")


def draw(trials: Sequence[Trial], best: Trial, path: str | os.PathLike[str]) -> None:
    """Writes an image with a bar for each trial, the fastest at the top; the best one has another color."""
    shown = [trial for trial in reversed(trials) if not trial.error]
    figure = _figure(figsize=(9, 1.2 + 0.3 * len(shown)), layout="constrained")
    axes = figure.subplots()
    speeds = [trial.samples_per_s for trial in shown]
    around = [
        [max(0.0, trial.samples_per_s - trial.low) for trial in shown],
        [max(0.0, trial.high - trial.samples_per_s) for trial in shown],
    ]
    colors = ["tab:blue" if trial is best else "lightgray" for trial in shown]
    axes.barh([text_of(trial.arguments) for trial in shown], speeds, xerr=around, color=colors)
    axes.set_xlabel("samples/s (line: the middle half of the measurements)")
    figure.suptitle(f"Best: {text_of(best.arguments)}")
    figure.savefig(path)


def _figure(**options: Any) -> Any:
    """A figure of matplotlib, which works without a display."""
    import_extra("matplotlib", "plot", "matplotlib")
    figures: Any = import_extra("matplotlib.figure", "plot", "matplotlib")
    return figures.Figure(**options)
