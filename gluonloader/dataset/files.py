"""`FileDataset`: the bytes of files, local or remote.

Local files are opened directly, and files of object stores are read through a cache, if there is one. All other files
are read by a filesystem object of fsspec: the event loop and the connections of such an object do not survive a fork,
so each process makes its own object.
"""

from __future__ import annotations

import copy
import errno
import glob
import os
import threading
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Any, TypeVar, cast

from ..describe import call, counted, short_repr
from ..errors import add_note, bad_argument
from ..guests import fsspec
from ..indices import checked_index, checked_indices, known_indices
from ..stores.cache import Needed, NodeCache, check_cache
from .base import Dataset
from .bulk import bulk_read, each
from .cached_files import CachedFiles
from .compact import CompactList

S = TypeVar("S", bound=Sized)


class FileDataset(Dataset[bytes]):
    """A dataset of the bytes of files: of local files, or of files in any filesystem that fsspec knows.

    Decode the bytes with a transform, e.g. `FileDataset("data/*.jpg").transform(decode)`. If the filesystem can send
    several files at the same time, as those of HTTP and of object stores can, a bulk read requests all files of a batch
    at once. With a cache, files that the loader needs next are fetched before they are needed, and stay on the local
    disk as long as there is room; see `docs/stores.md`.

    Args:
        paths: a list of paths or URLs. Or a pattern as a single text, such as `"data/*.jpg"` or
            `"s3://bucket/**/*.bin"`, which stands for all files that match it, sorted by their paths.
        fs: the filesystem of fsspec that reads the paths, e.g. `fsspec.filesystem("s3", anon=True)`. If it is None,
            URLs are read by the filesystem of their protocol, and all other paths are local.
        cache: a `NodeCache` for files of object stores. Their folders are listed, to know the version of each file.

    Raises:
        MissingExtraError: `fs` or a URL was passed, but fsspec is not installed; or what reads URLs through a cache.
        ValueError: no file matches the pattern, the list is empty, the URLs are in different filesystems, or the cache
            has no room for a file.
        StoreError: the store refuses a request for the versions of the files, or does not answer.
        FileNotFoundError: raised when a sample is read, if its file does not exist, with a cache at once; the text
            names the path.
    """

    def __init__(self, paths: Any, fs: Any = None, *, cache: NodeCache | None = None) -> None:
        _check_filesystem(fs)
        self._remote: _RemoteFiles | None = None  # None if the files are local, or read through a cache
        self._cached: CachedFiles | None = None
        self._prefix = ""  # the part of each path that precedes the name by which the filesystem knows the file
        is_pattern = isinstance(paths, (str, os.PathLike))
        found = _as_texts([paths] if is_pattern else paths)
        if cache is not None:
            _check_cached(found, fs, cache)
            self._cached = CachedFiles(cache, found, is_pattern)
            self._paths = self._cached.urls
            if is_pattern:
                _not_empty(found[0], self._paths)
            return
        if fs is not None or any("://" in path for path in found):
            self._remote, names = _remote_files(found, fs)
            self._prefix = found[0][: -len(names[0])] if found[0].endswith(names[0]) else ""
            if is_pattern:
                names = _not_empty(found[0], self._remote.matches(names[0]))
                found = [self._prefix + name for name in names]
            elif found != [self._prefix + name for name in names]:
                found, self._prefix = names, ""
        elif is_pattern:
            found = _not_empty(found[0], _local_matches(found[0]))
        if self._remote is None:
            here = os.getcwd()  # workers may start in another folder
            found = [os.path.join(here, path) for path in found]
        self._paths = CompactList(found)

    @property
    def paths(self) -> Sequence[str]:
        """The path or URL of each file, in the order of the samples; a relative local path has become absolute."""
        return cast("Sequence[str]", self._paths)

    def __getitem__(self, index: Any) -> bytes:
        row = checked_index(index, len(self))
        if self._cached is not None:
            (data,) = self._cached.read([row])
            return data
        path = self.paths[row]
        if self._remote is not None:
            return self._remote.read(path, path[len(self._prefix) :])
        try:
            with open(path, "rb", buffering=0) as file:
                return file.read()
        except MemoryError as error:
            add_note(error, f"gluonloader: while reading {path}")
            raise

    # Not for local files: if the file cache of the system contains them, a bulk read gains nothing. Otherwise it is as
    # fast as single reads in 16 threads, which need less memory for decoded samples.
    @bulk_read(lambda self: self._cached is not None or (self._remote is not None and self._remote.reads_many))
    def __getitems__(self, indices: Sequence[Any]) -> Sequence[bytes]:
        rows = checked_indices(indices, len(self)).tolist()
        if self._cached is not None:
            return each(bytes, self._cached.read(rows), indices)
        assert self._remote is not None
        paths = [self.paths[row] for row in rows]
        return each(self._remote.read_many(paths, len(self._prefix)), paths, indices)

    def needed_blocks(self, indices: Any) -> list[Needed]:
        """The files of these samples, as the cache knows them."""
        rows = known_indices(indices, len(self)).tolist()
        return [] if self._cached is None else [self._cached.needed(rows)]

    _parts = ()

    def __len__(self) -> int:
        return len(self._paths)

    @short_repr
    def __repr__(self) -> str:
        others = f", ..., {self.paths[-1]}" if len(self) > 1 else ""
        return call(self, f"{counted(len(self), 'file', 'files')}: {self.paths[0]}{others}")


class _RemoteFiles:
    """Files that a filesystem of fsspec reads.

    Each process makes the filesystem itself; so does each thread, unless the filesystem can be used by several threads.
    An inherited filesystem is not used, and not deleted either: it would close connections of the parent process.

    Args:
        origin: a filesystem, or its class.
        options: the arguments of the class; None if `origin` is a filesystem.
    """

    def __init__(self, origin: Any, options: dict[str, Any] | None = None) -> None:
        kind: Any = origin if isinstance(origin, type) else type(origin)
        self._origin, self._options = origin, options
        self._process = os.getpid()
        self._is_async = bool(kind.async_impl)
        # All others read one file after the other, and threads can do that for several files at the same time.
        self.reads_many = self._is_async or kind.cat is not fsspec.load().AbstractFileSystem.cat
        protocol = kind.protocol
        self._is_in_memory = "memory" in ((protocol,) if isinstance(protocol, str) else protocol)
        self._made: dict[tuple[int, int], Any] = {}
        if options is None:
            self._made[self._owner()] = origin

    def read(self, path: str, name: str) -> bytes:
        """The content of the file `name`; errors name the `path`."""
        try:
            data: bytes = self._filesystem().cat_file(name)
        except Exception as error:
            raise self._located(error, path) from error.__cause__
        return data

    def read_many(self, paths: Sequence[str], cut: int) -> Callable[[str], bytes]:
        """Reads the files at the same time; returns a function that returns the content of a path, or raises its error.

        Args:
            paths: may contain a path several times.
            cut: the number of characters of each path before the name of the file.
        """
        filesystem, names = self._filesystem(), {path[cut:] for path in paths}
        found = {}
        # `cat` replaces a name such as "a[1].bin" by the files that match it as a pattern, but `cat_ranges` does not.
        patterns = sorted(filter(glob.has_magic, names))
        try:
            if names.difference(patterns):
                found = filesystem.cat(sorted(names.difference(patterns)), on_error="return")
            if patterns:
                whole = [None] * len(patterns)  # from the start to the end of each file
                contents = filesystem.cat_ranges(patterns, whole, whole, on_error="return")
                found.update(zip(patterns, contents, strict=True))
        except FileNotFoundError:
            found = {}  # read one by one, so that the error names the file

        def content_of(path: str) -> bytes:
            data = found.get(path[cut:])
            if isinstance(data, Exception):
                raise self._located(data, path) from data.__cause__
            return data if isinstance(data, bytes) else self.read(path, path[cut:])

        return content_of

    def matches(self, pattern: str) -> list[str]:
        """The names of the files that match a pattern, sorted."""
        try:
            found = self._filesystem().glob(pattern, detail=True)
        except FileNotFoundError:  # the folder or the bucket does not exist
            return []
        return sorted(name for name, info in found.items() if info.get("type") != "directory")

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_made": {}}

    def _owner(self) -> tuple[int, int]:
        return os.getpid(), 0 if self._is_async else threading.get_ident()

    def _filesystem(self) -> Any:
        owner = self._owner()
        if owner not in self._made:
            # fsspec copies a filesystem, and the filesystems that it contains, by making them again.
            origin, options = self._origin, self._options
            self._made[owner] = copy.deepcopy(origin) if options is None else origin(**options)
        return self._made[owner]

    def _located(self, error: Exception, path: str) -> Exception:
        """The error of reading a file, with the path added."""
        if not isinstance(error, FileNotFoundError):
            add_note(error, f"gluonloader: while reading {path}")
            return error
        missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if self._is_in_memory and self._process != os.getpid():
            right = 'pass start_method="fork", write the files before workers start, or pass num_workers=0'
            add_note(missing, f"gluonloader: files of memory:// exist only in the process that wrote them; {right}")
        return missing


def _check_filesystem(fs: Any) -> None:
    if fs is None:
        return
    if not isinstance(fs, fsspec.load().AbstractFileSystem):
        raise bad_argument("fs", fs, 'must be a filesystem of fsspec, e.g. fsspec.filesystem("s3", anon=True)')
    if getattr(fs, "asynchronous", False):
        raise bad_argument("fs", fs, "make it without asynchronous=True; it is used outside of coroutines")


def _check_cached(paths: list[str], fs: Any, cache: Any) -> None:
    if fs is not None:
        raise bad_argument("fs", fs, "with a cache, its fetcher reads the files; remove fs, and pass URLs")
    for path in paths:
        check_cache("paths", path, cache)


def _as_texts(paths: Any) -> list[str]:
    """The paths as str; raises ValueError if there is none, or if one is no path."""
    if isinstance(paths, (bytes, set, frozenset)) or not isinstance(paths, Iterable):
        right = 'pass a list of paths or URLs, or a pattern such as "data/*.jpg"'
        if isinstance(paths, (set, frozenset)):
            right = "a set has no order; pass sorted(paths)"
        raise bad_argument("paths", paths, right)
    texts = []
    for number, path in enumerate(paths):
        text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
        if not isinstance(text, str):
            raise bad_argument(f"paths[{number}]", path, "must be a path or a URL, as a text")
        texts.append(str(text))  # not a subclass of str, such as that of NumPy
    if not texts:
        raise bad_argument("paths", paths, 'it is empty; pass at least one path, or a pattern such as "data/*.jpg"')
    return texts


def _not_empty(pattern: str, found: S) -> S:
    """The files that match the pattern; raises ValueError if there is none."""
    if found:
        return found
    what = "no file matches this pattern"
    if "://" not in pattern and os.path.isdir(pattern):
        what = f"it is a folder; pass a pattern for the files in it, e.g. {os.path.join(pattern, '*')!r}"
    elif "://" not in pattern and not os.path.isabs(pattern):
        what += f" in the current folder, {os.getcwd()}"
    elif pattern.startswith("memory://"):
        what += "; files of memory:// exist only in the process that wrote them"
    raise bad_argument("paths", pattern, f"{what}; to read a file whose name contains *, ? or [, pass a list")


def _local_matches(pattern: str) -> list[str]:
    return sorted(filter(os.path.isfile, glob.iglob(os.path.expanduser(pattern), recursive=True)))


def _remote_files(urls: list[str], fs: Any) -> tuple[_RemoteFiles, list[str]]:
    """The files of these URLs, and the names by which their filesystem knows them."""
    if fs is not None:
        return _RemoteFiles(fs), [fs._strip_protocol(url) for url in urls]
    resolved = list(map(_resolved, urls))
    origin, options, _ = resolved[0]
    for url, (*filesystem, _) in zip(urls, resolved, strict=True):
        if filesystem != [origin, options]:
            right = "pass their filesystem as fs, or make a FileDataset for each of them and join them with +"
            raise ValueError(f"paths: {url!r} and {urls[0]!r} are not in the same filesystem; {right}")
    return _RemoteFiles(origin, options), [name for *_, name in resolved]


def _resolved(url: str) -> tuple[Any, dict[str, Any] | None, str]:
    """The filesystem of a URL, or its class and the arguments of the class; and the name of the file."""
    if "://" not in url:
        return None, None, url  # a local path among URLs
    if "::" in url:  # several filesystems, of which each contains the next one
        filesystem, name = fsspec.load().core.url_to_fs(url)
        return filesystem, None, name
    found = fsspec.locate(url)
    return found.kind, found.options, found.name
