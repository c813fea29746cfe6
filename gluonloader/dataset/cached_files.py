"""`CachedFiles`: files of an object store, each of which is read through a cache as a whole.

    a pattern, or URLs --list the folders--> URL, size and version of each file --> a block for each

A list of a folder needs one request for 1,000 files. To ask for the version of each file would need one for each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fnmatch import fnmatchcase
from glob import has_magic
from itertools import groupby, islice, takewhile
from typing import Final, TypeVar

import numpy as np

from ..errors import StoreError, bad_argument
from ..stores.cache import Needed, NodeCache
from ..stores.client import BlockReader
from ..stores.folder import space_of
from ..stores.objects import Block, Remote
from ..stores.source import check_readable
from ..units import size
from .compact import CompactList

R = TypeVar("R")

_IN_A_LIST: Final = 1000  # files, as object stores answer


class CachedFiles:
    """Files of an object store, read through a cache.

    Args:
        urls: of the files; or one pattern, which stands for all files that match it, sorted by their URLs.

    Attributes:
        urls: of the files, in the order of the samples.
    """

    def __init__(self, cache: NodeCache, urls: list[str], is_pattern: bool) -> None:
        for place in dict.fromkeys(url if "::" in url else _place_of(url) for url in urls):
            check_readable(place)
        self._cache = cache
        remotes = _matches(cache, urls[0]) if is_pattern else _versions(cache, urls)
        self.urls = CompactList(remote.url for remote in remotes)
        self._sizes = np.array([remote.size for remote in remotes], np.int64)
        self._etags = CompactList(remote.etag for remote in remotes)
        keys = [remote.key.encode() for remote in remotes]  # to compute a key takes as long as to open a file
        self._keys = np.array(keys, "S32")
        largest = max(remotes, key=lambda remote: remote.size, default=Remote("", 0, ""))
        if space_of(largest.size) > cache.options.limit:
            what = f"it has no room for {largest.url}, which has {size(largest.size)}; pass a larger limit"
            raise bad_argument("cache", cache, what)

    def read(self, indices: Sequence[int]) -> Iterator[bytes]:
        """The contents of these files, in their order.

        Raises:
            FileNotFoundError: a file was removed since.
            StoreError: a file was changed since, the store refuses it, or it has not come before the timeout.
        """
        return self._cache.reader.read(self._blocks(indices), lambda: self._remotes(indices))

    def needed(self, indices: Sequence[int]) -> Needed:
        """The blocks that are these files."""
        return Needed(self._cache, self._remotes(indices), self._blocks(indices))

    def _blocks(self, indices: Sequence[int]) -> list[Block]:
        return [Block(self._keys.item(index).decode(), 0, self._sizes.item(index)) for index in indices]

    def _remotes(self, indices: Sequence[int]) -> dict[str, Remote]:
        remotes = [Remote(self.urls[index], self._sizes.item(index), self._etags[index]) for index in indices]
        return {remote.key: remote for remote in remotes}


def _place_of(url: str) -> str:
    """The protocol and the bucket of a URL."""
    return "/".join(url.split("/", 3)[:3]) + "/"


def _matches(cache: NodeCache, pattern: str) -> list[Remote]:
    """The files that match a pattern."""
    if has_magic(_place_of(pattern)):
        raise bad_argument("paths", pattern, "the bucket cannot be a pattern; make a FileDataset for each bucket")
    fixed = takewhile(lambda part: not has_magic(part), pattern.split("/")[:-1])
    folder = "/".join([*fixed, ""])
    parts = pattern[len(folder) :].split("/")
    inside = (found for found in cache.reader.listed(folder) if found.url != folder)  # fsspec also lists a single file
    likes = (found for found in inside if _is_like(found.url[len(folder) :].split("/"), parts))
    remotes = {found.url: found for found in likes}  # a folder may have the name of a file
    unsure = [url for url, remote in remotes.items() if not _is_sure(remote)]
    known = dict(zip(unsure, _found(cache, unsure, _find_if_there), strict=True))
    return [found for url, remote in remotes.items() if (found := known.get(url, remote)) is not None]


def _is_sure(listed: Remote) -> bool:
    """Whether a list tells enough of an object.

    An empty one may only stand for a folder, as consoles of stores make them; then no file of its name is found.
    """
    return bool(listed.etag and listed.size)


def _find_if_there(reader: BlockReader, url: str) -> Remote | None:
    with suppress(FileNotFoundError):
        return reader.find(url)
    return None


def _is_like(names: list[str], parts: list[str]) -> bool:
    """Whether a path matches a pattern; `**` stands for any number of folders."""
    if not parts or not names:
        return not names and all(part == "**" for part in parts)
    if parts[0] == "**":
        return any(_is_like(names[skipped:], parts[1:]) for skipped in range(len(names) + 1))
    return fnmatchcase(names[0], parts[0]) and _is_like(names[1:], parts[1:])


def _versions(cache: NodeCache, urls: list[str]) -> list[Remote]:
    """The versions of these files that are in the store now; raises FileNotFoundError if one is missing."""
    known: dict[str, Remote] = {}
    wanted = sorted(set(urls))
    for place, group in groupby(wanted, _place_of):
        if not place.startswith(("http://", "https://")):
            started = time.monotonic()
            try:
                known.update(_listed(cache, list(group)))
            except StoreError:
                if time.monotonic() - started >= cache.options.timeout:
                    raise
                # The store allows no lists, for example, so it is asked for each file.
    unknown = [url for url in wanted if url not in known]
    known.update(zip(unknown, _found(cache, unknown, BlockReader.find), strict=True))
    return [known[url] for url in urls]


def _found(cache: NodeCache, urls: list[str], find: Callable[[BlockReader, str], R]) -> list[R]:
    """What `find` returns for each of these files, which no list tells; each takes a request."""
    cache.stats()  # it starts the fetcher; otherwise each thread would start one at the same time
    with ThreadPoolExecutor(cache.options.requests) as threads:  # each has a reader, with a connection of its own
        return list(threads.map(lambda url: find(cache.reader, url), urls))


def _listed(cache: NodeCache, urls: list[str]) -> Iterator[tuple[str, Remote]]:
    """Those of these files, sorted and in one bucket, whose versions a list of their common folder tells."""
    wanted = set(urls)
    parts = zip(urls[0].split("/")[:-1], urls[-1].split("/")[:-1], strict=False)
    folder = "/".join([*(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], parts)), ""])
    # A folder may contain many more files than these: lists never take longer than to ask for each file would.
    most = _IN_A_LIST * max(1, len(urls) // cache.options.requests)
    for remote in islice(cache.reader.listed(folder, urls[0][:-1]), most):
        if remote.url > urls[-1]:
            return
        if remote.url in wanted and _is_sure(remote):
            yield remote.url, remote
