"""Objects of a store, and the blocks in which they are cached."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

from ..messages import message


@message(frozen=True)
class Remote:
    """A version of an object.

    Attributes:
        url: where it is.
        size: its length in bytes.
        etag: what the store calls this version; "" if it has no name.
    """

    url: str
    size: int
    etag: str

    @cached_property
    def key(self) -> str:
        """The name of the folder with its blocks; another version of the object has another folder."""
        return blake2b(repr((self.url, self.size, self.etag)).encode(), digest_size=16).hexdigest()


class Block(NamedTuple):
    """A part of an object: the bytes from `start` to `stop - 1`. Where blocks end is the business of the dataset.

    It is no dataclass, since a batch looks up some hundred blocks, and a tuple is hashed and compared much faster.
    """

    key: str  # of the object
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.start}-{self.stop}"

    @property
    def priority(self) -> int:
        """A fixed random number; of two blocks that are not needed now, the one with the higher number stays."""
        return int.from_bytes(blake2b(f"{self.key}/{self.name}".encode(), digest_size=8).digest(), "big")


def is_url(path: str) -> bool:
    """Whether a path is that of an object in a store, and not of a local file."""
    return "://" in path


def full_path(path: Any) -> str:
    """Returns the absolute path; `~` is the home folder of the user. A URL stays as it is."""
    text = os.fsdecode(path)
    return text if is_url(text) else os.path.abspath(os.path.expanduser(text))


def joined(pieces: Iterable[bytes]) -> bytes:
    """The pieces as one, without a copy if there is only one."""
    found = list(pieces)
    return found[0] if len(found) == 1 else b"".join(found)
