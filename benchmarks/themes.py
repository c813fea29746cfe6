"""The two themes of the pictures, light and dark, and how a picture is saved. Needs matplotlib."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import matplotlib
from matplotlib.figure import Figure

DPI: Final = 72  # matplotlib measures SVG images in points; `save` makes them pixels, so both are the same number
_SETTINGS: Final = {
    "svg.fonttype": "none",  # text stays text: small files, and a reader can search and copy it
    "svg.hashsalt": "gluonloader",  # the same picture gives the same file
    "font.family": "sans-serif",
}


@dataclass(frozen=True)
class Theme:
    """The colours of a picture on a light or on a dark page; the background is transparent."""

    text: str
    lines: str
    ours: str
    theirs: str
    box: str


LIGHT: Final = Theme("#1f2328", "#c4c9d0", "#2563a8", "#c9803a", "#eef2f7")
DARK: Final = Theme("#d7dae0", "#4a5058", "#5fa3ea", "#dd9a54", "#22272e")


def save(draw: Callable[[Theme], Figure], path: Path) -> None:
    """Saves a picture as SVG in both themes: in `path`, and with "-dark" in front of the suffix."""
    with matplotlib.rc_context(_SETTINGS):
        for theme, name in ((LIGHT, path.name), (DARK, f"{path.stem}-dark{path.suffix}")):
            file = path.with_name(name)
            draw(theme).savefig(file, format="svg", transparent=True, metadata={"Date": None})
            image = re.sub(r'(width|height)="([\d.]+)pt"', r'\1="\2"', file.read_text())
            file.write_text(re.sub(r" +$", "", image, flags=re.MULTILINE))
