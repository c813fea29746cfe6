"""Lists of images (`.lst`), as MXNet's `im2rec` writes them, and the files that count as images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

SUFFIXES: Final = (".jpg", ".jpeg", ".png")  # those of im2rec

_EXPECTED: Final = "must be INDEX<tab>LABEL<tab>PATH, with at least one label"


def is_image(name: str) -> bool:
    """Whether a file with this name counts as an image."""
    return name.lower().endswith(SUFFIXES)


def read_list(path: str) -> Iterator[tuple[str, int, list[float], str]]:
    """Yields (place, key, labels, path of the image) for each line that is not blank.

    The place is the file and the line, for the texts of errors.

    Raises:
        ValueError: a line is wrong, or has the key of a line before it.
    """
    lines: dict[int, int] = {}  # by the keys
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            place = f"{path}, line {number}"
            try:
                text = line.decode("utf-8-sig").strip()
            except UnicodeDecodeError as error:
                raise ValueError(f"{place}: the line is not UTF-8 ({error}); save the list as UTF-8") from None
            if not text:
                continue
            fields = [field.strip() for field in text.split("\t")]
            if len(fields) < 3:
                raise ValueError(f"{place}: {_EXPECTED}, but the line has {len(fields)} fields: {text[:80]!r}")
            try:
                key, labels = int(fields[0]), [float(label) for label in fields[1:-1]]
            except ValueError as error:
                raise ValueError(f"{place}: {_EXPECTED}, which are numbers ({error})") from None
            if key in lines:
                raise ValueError(f"{place}: line {lines[key]} has the key {key}, too; each image needs its own key")
            lines[key] = number
            yield place, key, labels, fields[-1]
