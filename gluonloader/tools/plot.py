"""`python -m gluonloader plot`: draws a trace of `DataLoader.trace` as a picture, with matplotlib."""

from __future__ import annotations

import argparse
import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from ..errors import import_extra
from .arguments import add_json, describe
from .printing import show

# Colours that people with colour blindness can tell apart, after Okabe and Ito.
_COLORS: Final = {
    "read": "#0072B2",
    "batchify": "#E69F00",
    "transport": "#009E73",
    "waiting": "#D9D9D9",
    "next": "#D55E00",
    "computing": "#CC79A7",
}
_LABELS: Final = {"next": "program waits", "computing": "program computes", "waiting": "worker is idle"}
_EXAMPLES: Final = """\
  with loader.trace("run.json"): ...             in a program
  python -m gluonloader plot run.json run.png    afterwards
"""
_BINS: Final = 100  # of the curve of the throughput
_IN_BIN: Final = 10  # batches, on average
_TITLE: Final = 140  # characters in a line of the title


@dataclass(frozen=True, slots=True)
class Span:
    """A span of a row; seconds."""

    row: int
    stage: str
    start: float
    length: float


@dataclass(frozen=True, slots=True)
class Recording:
    """What a picture shows: the rows with their names, their spans, the counters of the window, and the verdict."""

    rows: dict[int, str]
    spans: list[Span]
    times: list[float]  # of the deliveries
    ready: list[int]
    verdict: str  # what limited the loader; "" in a trace of an earlier version


def add_to(parser: argparse.ArgumentParser) -> None:
    text = "Draws a trace: what each worker did, how many batches were ready, and the speed. It needs matplotlib."
    describe(parser, text, _EXAMPLES)
    parser.add_argument("trace", metavar="RUN.json", help="the file that DataLoader.trace has written")
    parser.add_argument("picture", metavar="OUT.png", help="the picture to write; also .svg or .pdf")
    add_json(parser, "print what the picture shows as JSON")
    parser.set_defaults(run=plot)


def plot(options: argparse.Namespace) -> int:
    """Writes the picture."""
    recording = read(options.trace)
    draw(recording, options.picture)
    waited = sum(span.length for span in recording.spans if span.stage == "next")
    if options.json:
        about = {"picture": options.picture, "batches": len(recording.times), "waited_s": waited}
        show(json.dumps({**about, "verdict": recording.verdict}))
    else:
        show(f"{options.picture}: {len(recording.times):,} batches; the program waited {waited:.1f} s")
        show(*[recording.verdict] * bool(recording.verdict))
    return 0


def read(path: str) -> Recording:
    """Reads a trace.

    Raises:
        ValueError: the file is no trace of gluonloader.
    """
    try:
        events: list[dict[str, Any]] = json.loads(Path(path).read_text())["traceEvents"]
        rows = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
        verdicts = [event["args"]["labels"] for event in events if event["name"] == "process_labels"]
        found = [event for event in events if event["ph"] == "X"]
        spans = [
            Span(event["tid"], stage, event["ts"] * 1e-6, event["dur"] * 1e-6)
            for event in found
            if (stage := event["name"].partition(":")[0]) in _COLORS
        ]
        counts = [event for event in events if event["ph"] == "C" and event["name"] == "window"]
        times, ready = [event["ts"] * 1e-6 for event in counts], [event["args"]["ready"] for event in counts]
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: this is not a trace that DataLoader.trace has written") from error
    if not times:
        raise ValueError(f"{path}: the trace has no batches; read some batches before the recording is stopped")
    return Recording(rows, spans, times, ready, " ".join(verdicts))


def draw(recording: Recording, picture: str) -> None:
    """Draws the rows, the batches that are ready, and the throughput."""
    pyplot = import_extra("matplotlib.pyplot", "plot", "matplotlib")
    pyplot.switch_backend("agg")
    numbers = sorted(recording.rows, reverse=True)
    ratios = [max(2, len(numbers)), 1, 1]
    size = (12, 3 + 0.5 * len(numbers))
    figure, axes = pyplot.subplots(
        3, sharex=True, figsize=size, gridspec_kw={"height_ratios": ratios}, layout="constrained"
    )
    for place, row in enumerate(numbers):
        for stage, color in _COLORS.items():
            spans = [span for span in recording.spans if (span.row, span.stage) == (row, stage)]
            bars = [(span.start, span.length) for span in spans]
            axes[0].broken_barh(bars, (place - 0.4, 0.8), facecolors=color)
    axes[0].set_yticks(range(len(numbers)), [recording.rows[row] for row in numbers])
    handles = [pyplot.Rectangle((0, 0), 1, 1, color=color) for color in _COLORS.values()]
    labels = [_LABELS.get(stage, stage) for stage in _COLORS]
    figure.legend(handles, labels, ncols=len(labels), loc="outside upper center", frameon=False)
    axes[0].set_title(textwrap.fill(recording.verdict, _TITLE), fontsize="medium", loc="left")
    axes[1].step(recording.times, recording.ready, where="post", color=_COLORS["read"])
    axes[1].set_ylabel("ready")
    counts, edges = np.histogram(recording.times, min(_BINS, max(1, len(recording.times) // _IN_BIN)))
    axes[2].step(edges[:-1], counts / np.diff(edges), where="post", color=_COLORS["transport"])
    axes[2].set_ylabel("batches / s")
    axes[2].set_xlabel("seconds")
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=150)
    pyplot.close(figure)
