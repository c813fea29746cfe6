"""Files for a store: they are written to a local folder, and sent when they are whole."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ..errors import StoreError, import_extra
from ..guests import fsspec, obstore
from .objects import is_url
from .source import check_readable

_SILENCE_S: Final = 300.0  # a store may say nothing while a part of a file is sent
_TRIES: Final = 10


@contextmanager
def writable(path: str, last: str) -> Iterator[str]:
    """Yields a local path for files whose names start alike; at the end of the block they are sent to a URL.

    If they cannot be sent, they stay where they are, and the error names the folder. If the block raises, none is sent.

    Args:
        path: of a local file, which is yielded as it is, or a URL.
        last: the ending of the file that is sent last, since readers look for it.

    Raises:
        MissingExtraError: what writes to such URLs is not installed.
        StoreError: the store does not take the files.
        ValueError: the URL is that of a folder.
    """
    if not is_url(path):
        yield path
        return
    check_readable(path)
    place, _, name = path.rpartition("/")
    if not name:
        raise ValueError(f"{path}: it is a folder; pass the URL of a file")
    folder = tempfile.mkdtemp(prefix="gluonloader-")
    try:
        yield os.path.join(folder, name)
    except BaseException:
        shutil.rmtree(folder)
        raise
    for file in sorted(os.listdir(folder), key=lambda file: file.endswith(last)):
        _send(os.path.join(folder, file), f"{place}/{file}")
    shutil.rmtree(folder)


def _send(path: str, url: str) -> None:
    try:
        if obstore.reads(url):
            store, key = obstore.store_of(url, _SILENCE_S, _TRIES)
            import_extra("obstore", "stores").put(store, key, Path(path))
        else:
            file = fsspec.locate(url)
            file.kind(**file.options).put_file(path, file.name)
    except Exception as error:  # the libraries raise errors of their own
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise StoreError(f"{url}: {reason}; the file is kept as {path}: copy it, or run the command again") from error
