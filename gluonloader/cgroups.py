"""The control groups of this process: folders in which the kernel says what it allows them, and what they take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["GROUPS", "OWN", "group_folders", "text_of"]

OWN: Final = Path("/proc/self/cgroup")
GROUPS: Final = Path("/sys/fs/cgroup")


def group_folders(controller: str, own: Path, groups: Path) -> Iterator[Path]:
    """The folders of this process's groups, the innermost first, in version 1 and 2 of control groups.

    Each of them may bound it. In a container those on the outside are not there, and the container's own is the root.

    Args:
        controller: what version 1 has a tree of its own for, e.g. "memory".
        own: the file that names this process's groups.
        groups: where control groups are mounted.
    """
    for line in text_of(own).splitlines():
        number, controllers, path = [*line.split(":", 2), "", ""][:3]
        if number == "0" or controller in controllers.split(","):
            root, parts = groups if number == "0" else groups / controller, Path(path).parts[1:]
            for depth in range(len(parts), -1, -1):
                yield root.joinpath(*parts[:depth])


def text_of(file: Path) -> str:
    """What the file holds; nothing if it cannot be read."""
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""
