"""Prints results, also to a pipe that is closed early, as in `check x.rec | head -1`."""

from __future__ import annotations

import os
import sys
from typing import TextIO


def show(*lines: str, file: TextIO | None = None) -> None:
    """Prints lines. If nobody reads them any more, the command continues, so that its exit status is right."""
    stream = sys.stdout if file is None else file
    try:
        print(*(f"{line}\n" for line in lines), sep="", end="", file=stream, flush=True)
    except BrokenPipeError:
        discard(stream)


def discard(stream: TextIO) -> None:
    """Discards what is written to a closed pipe; otherwise the interpreter would write there again at its end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
