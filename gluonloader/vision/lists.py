"""Lists of images (`.lst`), as MXNet's `im2rec` writes them, and the files that count as images."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Final

SUFFIXES: Final = (".jpg", ".jpeg", ".png")  # those of im2rec

_KINDS: Final = {stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a character device", stat.S_IFBLK: "a block device"}
_EXPECTED: Final = "must be INDEX<tab>LABEL<tab>PATH, with at least one label"


def is_image(name: str) -> bool:
    """Whether a file with this name counts as an image."""
    return name.lower().endswith(SUFFIXES)


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry of a folder is a folder; a link that cannot be followed is none."""
    try:
        return entry.is_dir()
    except OSError:  # for example, the link points to itself
        return False


def read_file(path: str, most: int | None = None) -> bytes:
    """The content of a regular file. A FIFO or a device would block the reader, or never end.

    Raises:
        OSError: the file cannot be read, is not a regular file, has more than `most` bytes, or does not fit into
            memory; the text names it.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "another kind of file")
            raise OSError(errno.EINVAL, f"this is {kind}; only regular files can be read", path)
        if most is not None and status.st_size > most:
            raise OSError(errno.EFBIG, f"the file has {status.st_size:,} bytes, more than {most:,}", path)
        try:
            return file.read()
        except MemoryError:
            what = f"the file has {status.st_size:,} bytes, more than fit into memory; remove it, or use fewer workers"
            raise OSError(errno.EFBIG, what, path) from None


def _open_at_once(path: str, flags: int) -> int:
    """Opens a file, without waiting for a writer if it is a FIFO."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # Windows has no FIFOs in its file system


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
