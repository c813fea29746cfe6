"""Writes new files beside old ones, so that an interrupted program leaves the old files as they were."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .interrupts import Uninterrupted


@contextmanager
def replacing(*paths: str) -> Iterator[list[str]]:
    """Yields the path of a new file for each of these files; at the end of the block, the new files replace the old.

    They do so in the order of `paths`. A program that has mapped an old file into memory keeps the old one. If the
    block raises, no file changes, and no new file is left.

    Raises:
        FileNotFoundError: the folder of a file does not exist.
        FileExistsError: there is a folder, a pipe or a device such as /dev/null, which no file may replace.
    """
    for path in paths:
        if not os.path.isdir(folder := os.path.dirname(os.path.abspath(path))):
            raise FileNotFoundError(f"{path}: there is no folder {folder}; make it first")
        if os.path.exists(path) and not os.path.isfile(path):
            raise FileExistsError(f"{path}: it is a folder, a pipe or a device; pass the path of a file")
    final = [os.path.realpath(path) for path in paths]  # a symbolic link stays one
    new = [f"{path}.{os.urandom(4).hex()}.part" for path in final]
    try:
        yield new
        with Uninterrupted():  # some files would be new, and others old
            for one, other in zip(new, final, strict=True):
                os.replace(one, other)
    finally:
        for path in new:
            with suppress(FileNotFoundError):
                os.unlink(path)
