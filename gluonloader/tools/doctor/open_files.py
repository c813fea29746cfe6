"""The files and sockets that this process has open, and whether reading samples moves their offsets."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

from ...messages import message

_DESCRIPTORS: Final = Path("/proc/self/fd")
_INFO: Final = Path("/proc/self/fdinfo")
_WRITE_ONLY: Final = 1


@message(frozen=True, slots=True)
class OpenFile:
    """A file that is open for reading, or a socket.

    Attributes:
        name: the path, or "socket:[...]".
        offset: where the next read starts. Forked workers share it.
        moved: whether reading samples has moved the offset.
    """

    descriptor: int
    name: str
    offset: int
    moved: bool = False

    @property
    def is_socket(self) -> bool:
        return self.name.startswith("socket:")

    def after_reading(self) -> OpenFile:
        """The same file, with `moved`. A mapped file and one that is read by `pread` keep their offset."""
        now = _open_file(self.descriptor)
        return replace(self, moved=now is not None and now.name == self.name and now.offset != self.offset)


def open_files() -> list[OpenFile]:
    """Returns the files that are open for reading, and the sockets; [] if there is no /proc."""
    try:
        descriptors = sorted(int(name) for name in os.listdir(_DESCRIPTORS))
    except OSError:
        return []
    found = map(_open_file, descriptors)
    return [file for file in found if file is not None]


def _open_file(descriptor: int) -> OpenFile | None:
    try:
        name = os.readlink(_DESCRIPTORS / str(descriptor))
        info = dict(re.findall(r"^(\w+):\s*(\S+)$", (_INFO / str(descriptor)).read_text(), re.MULTILINE))
    except OSError:
        return None  # it was closed meanwhile
    is_file = name.startswith("/") and not name.startswith(("/dev/", "/memfd:", "/proc/"))
    if not (is_file or name.startswith("socket:")) or int(info["flags"], 8) & os.O_ACCMODE == _WRITE_ONLY:
        return None
    return OpenFile(descriptor, name, int(info["pos"]))
