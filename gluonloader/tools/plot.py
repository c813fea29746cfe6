"""`python -m gluonloader plot`: draws a trace of `DataLoader.trace` as a picture, with matplotlib."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from .arguments import add_json, describe
from .pictures import STAGES, Recording, Span, check_path, draw_recording
from .printing import show

_EXAMPLES: Final = """\
  with loader.trace("run.json"): ...             in a program
  python -m gluonloader plot run.json run.png    afterwards
"""


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
    check_path(options.picture)
    draw_recording(recording, options.picture)
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
            if (stage := event["name"].partition(":")[0]) in STAGES
        ]
        counts = [event for event in events if event["ph"] == "C" and event["name"] == "window"]
        times, ready = [event["ts"] * 1e-6 for event in counts], [event["args"]["ready"] for event in counts]
    except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: this is not a trace that DataLoader.trace has written") from error
    if not times:
        raise ValueError(f"{path}: the trace has no batches; read some batches before the recording is stopped")
    return Recording(rows, spans, times, ready, " ".join(verdicts))
