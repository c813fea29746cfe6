"""What the fetcher of a cache and its clients send each other after the greeting.

    client --Find-------> fetcher    which version of an object is there?
    client --List-------> fetcher    which objects are in a folder of the store?
    client --Want-------> fetcher    these blocks are needed now
    client --Soon-------> fetcher    these blocks are needed next, in this order
    client --AskCounts--> fetcher    what has the cache done so far?
    client <--Found, Listed, Ready, Trouble, Unavailable, Counts-- fetcher

All are JSON. Each message stands for itself, so a client that was interrupted may ignore answers to older questions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import field
from hashlib import blake2b
from typing import Any, Literal, get_args

from ..guests.obstore import SETTINGS
from ..messages import message
from ..wire.greeting import Hello, decode
from .objects import Block, Remote

FaultKind = Literal["missing", "changed", "refused", "invalid", "throttled", "other"]


@message(frozen=True, slots=True)
class CacheHello(Hello):
    """A process wants to use the cache.

    Attributes:
        facts: the arguments of the cache, which all clients must have in common.
        environment: hashes of the variables that the client of the store reads.
    """

    facts: dict[str, Any]
    environment: dict[str, str]


def environment_hashes() -> dict[str, str]:
    """A hash of each variable that says how to reach a store; the values themselves, such as keys, are not sent."""
    found = {name: value for name, value in os.environ.items() if name.startswith(SETTINGS)}
    return {name: blake2b(f"{name}={value}".encode(), digest_size=8).hexdigest() for name, value in found.items()}


@message(frozen=True, slots=True)
class Find:
    """Which version of an object is there now?"""

    url: str


@message(frozen=True, slots=True)
class Found:
    """The answer to `Find`."""

    url: str
    size: int
    etag: str


@message(frozen=True, slots=True)
class List:
    """Which objects are in a folder of the store, after this one? A folder is a URL that ends with "/"."""

    url: str
    after: str


@message(frozen=True, slots=True)
class Listed:
    """The answer to `List`: the next objects in the order of their URLs; none if there are no more.

    Attributes:
        names: the URL of each, without that of the folder.
    """

    url: str
    after: str
    names: list[str]
    sizes: list[int]
    etags: list[str]


@message(frozen=True, slots=True)
class Blocks:
    """Blocks of several objects.

    Attributes:
        objects: (url, size, etag) of each object.
        blocks: (place in `objects`, start, stop) of each block.
    """

    objects: list[list[Any]]
    blocks: list[list[int]]


@message(frozen=True, slots=True)
class Want(Blocks):
    """The client needs these blocks now, in this order; those that it wanted before, it has or needs no more.

    Attributes:
        waited_s: how long the client has waited for blocks since it said so last.
    """

    waited_s: float = 0.0


@message(frozen=True, slots=True)
class Soon(Blocks):
    """The blocks that the batches of a loader need next, in the order in which they are needed first.

    Attributes:
        loader: the number of this loader; each loader of a client has its own.
        loaders: the numbers of all loaders that still exist; what the others have told is needed no more.
        goes_on: they come after those of the last message, which had no room for all.
    """

    loader: int
    loaders: list[int]
    goes_on: bool = False


def located(blocks: Iterable[Block], remotes: Mapping[str, Remote]) -> tuple[list[list[Any]], list[list[int]]]:
    """The fields of `Blocks` for these blocks; `remotes` are their objects, by their keys."""
    places: dict[str, int] = {}
    rows = [[places.setdefault(block.key, len(places)), block.start, block.stop] for block in blocks]
    objects = [[remotes[key].url, remotes[key].size, remotes[key].etag] for key in places]
    return objects, rows


@message(frozen=True, slots=True)
class AskCounts:
    """What has the cache done so far?"""


@message(frozen=True, slots=True)
class Ready:
    """The first block that the client wants is in the folder now."""


@message(frozen=True, slots=True)
class Trouble:
    """Something that the client wants cannot be had now; the fetcher goes on trying."""

    text: str


@message(frozen=True, slots=True)
class Unavailable:
    """Something that the client wants cannot be had at all."""

    url: str
    kind: FaultKind
    text: str


@message(frozen=True, slots=True)
class Counts:
    """What the fetcher has done; see `CacheStats`."""

    counts: dict[str, Any] = field(default_factory=dict)


FromClient = Find | List | Want | Soon | AskCounts
FromFetcher = Found | Listed | Ready | Trouble | Unavailable | Counts


def from_client(data: bytes) -> Any:
    """The message of a client; raises ValueError for anything else."""
    return decode(data, *get_args(FromClient))


def from_fetcher(data: bytes) -> Any:
    """The message of a fetcher; raises ValueError for anything else."""
    return decode(data, *get_args(FromFetcher))
