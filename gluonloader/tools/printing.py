"""Prints results and tables, also to a pipe that is closed early, as in `check x.rec | head -1`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
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


def table(rows: Sequence[Sequence[str]], texts: int = 0) -> list[str]:
    """The lines of a table.

    Args:
        rows: the cells; the first row has the titles. The first column is aligned on the left, figures on the right.
        texts: how many of the last columns are aligned on the left, too.

    >>> table([("", "batches/s"), ("this", "1,200.5"), ("torch", "90.1")])
    ['       batches/s', 'this     1,200.5', 'torch       90.1']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = range(1, len(widths) - texts)
    lines = []
    for row in rows:
        cells = enumerate(zip(row, widths, strict=True))
        lines.append("  ".join(cell.rjust(width) if n in right else cell.ljust(width) for n, (cell, width) in cells))
    return [line.rstrip() for line in lines]
