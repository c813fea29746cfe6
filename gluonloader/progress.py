"""Shows a progress bar in the terminal."""

from __future__ import annotations

import sys
import time
from typing import Final

_INTERVAL: Final = 0.2  # seconds between two updates of the bar
_WIDTH: Final = 30  # width of the bar, in characters


class ProgressBar:
    """A progress bar on stderr, shown only if stderr is a terminal; use it in a `with` block."""

    def __init__(self, total: int, unit: str) -> None:
        self._total, self._unit, self._done = total, unit, 0
        self._start = self._shown = time.monotonic()
        self._note: str | None = None
        self._terminal = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: object) -> None:
        self._show(time.monotonic())
        if self._terminal:
            print(file=sys.stderr)

    def advance(self, count: int, note: str | None = None) -> None:
        self.reach(self._done + count, note)

    def reach(self, done: int, note: str | None = None) -> None:
        """Sets how much is done in all; `note` is shown instead of the speed."""
        self._done, self._note = done, note
        now = time.monotonic()
        if now - self._shown >= _INTERVAL:
            self._show(now)

    def _show(self, now: float) -> None:
        if self._terminal:
            share = self._done / max(1, self._total)
            bar = ("#" * int(_WIDTH * share)).ljust(_WIDTH, ".")
            note = f"{self._done / max(1e-9, now - self._start):,.0f}/s" if self._note is None else self._note
            line = f"\r[{bar}] {self._done:,} of {self._total:,} {self._unit}, {note} "
            print(line, end="", file=sys.stderr, flush=True)
            self._shown = now
