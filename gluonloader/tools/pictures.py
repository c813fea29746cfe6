"""Draws traces and trials with matplotlib, which works without a display."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..errors import bad_argument, import_extra
from ..messages import message
from .tuning.setting import text_of
from .tuning.trial import Trial

# Of a trace, with colours that people with colour blindness can tell apart, after Okabe and Ito.
STAGES: Final = {
    "read": "#0072B2",
    "batchify": "#E69F00",
    "transport": "#009E73",
    "waiting": "#D9D9D9",
    "next": "#D55E00",
    "computing": "#CC79A7",
}
_LABELS: Final = {"next": "program waits", "computing": "program computes", "waiting": "worker is idle"}
_BINS: Final = 100  # of the curve of the throughput
_IN_BIN: Final = 10  # batches, on average
_TITLE: Final = 140  # characters in a line of the title


@message(frozen=True, slots=True)
class Span:
    """A span of a row; seconds."""

    row: int
    stage: str
    start: float
    length: float


@message(frozen=True, slots=True)
class Recording:
    """What a picture shows: the rows with their names, their spans, the counters of the window, and the verdict."""

    rows: dict[int, str]
    spans: list[Span]
    times: list[float]  # of the deliveries
    ready: list[int]
    verdict: str  # what limited the loader; "" in a trace of an earlier version


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


def draw_recording(recording: Recording, picture: str) -> None:
    """Draws the rows, the batches that are ready, and the throughput."""
    numbers = sorted(recording.rows, reverse=True)
    ratios = [max(2, len(numbers)), 1, 1]
    figure = _figure(figsize=(12, 3 + 0.5 * len(numbers)), layout="constrained")
    axes = figure.subplots(3, sharex=True, gridspec_kw={"height_ratios": ratios})
    for place, row in enumerate(numbers):
        for stage, color in STAGES.items():
            spans = [span for span in recording.spans if (span.row, span.stage) == (row, stage)]
            bars = [(span.start, span.length) for span in spans]
            axes[0].broken_barh(bars, (place - 0.4, 0.8), facecolors=color)
    axes[0].set_yticks(range(len(numbers)), [recording.rows[row] for row in numbers])
    patches: Any = import_extra("matplotlib.patches", "plot", "matplotlib")
    handles = [patches.Patch(color=color) for color in STAGES.values()]
    labels = [_LABELS.get(stage, stage) for stage in STAGES]
    figure.legend(handles, labels, ncols=len(labels), loc="outside upper center", frameon=False)
    axes[0].set_title(textwrap.fill(recording.verdict, _TITLE), fontsize="medium", loc="left")
    axes[1].step(recording.times, recording.ready, where="post", color=STAGES["read"])
    axes[1].set_ylabel("ready")
    counts, edges = np.histogram(recording.times, min(_BINS, max(1, len(recording.times) // _IN_BIN)))
    axes[2].step(edges[:-1], counts / np.diff(edges), where="post", color=STAGES["transport"])
    axes[2].set_ylabel("batches / s")
    axes[2].set_xlabel("seconds")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=150)


def draw_trials(trials: Sequence[Trial], best: Trial, path: str | os.PathLike[str]) -> None:
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
