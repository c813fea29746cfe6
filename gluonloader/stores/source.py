"""Where objects come from: obstore for the protocols that it knows, fsspec for all others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final

from ..errors import StoreError, import_extra
from ..guests import fsspec, obstore
from ..locks import Lock
from .messages import FaultKind
from .objects import Remote

_METADATA: Final = "169.254.169.254"  # the service that gives machines of a cloud their credentials
_PAGE: Final = 1000  # objects of a page, as of S3
_PAGE_BYTES: Final = 100_000  # of a page as a message
_MOST_LISTINGS: Final = 4  # that are open
_MISSING: Final = "there is no such object, or no such bucket"
# What filesystems of fsspec call a version of a file.
_VERSIONS: Final = (
    "ETag", "etag", "Last-Modified", "LastModified", "last_modified", "modified", "modify", "modificationTime", "mtime",
    "sha", "blob_id",
)  # fmt: skip


class Fault(Exception):
    """A store has not answered as it should."""

    def __init__(self, kind: FaultKind, text: str) -> None:
        super().__init__(text)
        self.kind: FaultKind = kind


def changed(remote: Remote, etag: str) -> Fault:
    what = f"the object was changed: it had the ETag {remote.etag or 'none'}, and has {etag or 'none'} now"
    return Fault("changed", f"{what}; make the dataset again, and do not change objects while a loader reads them")


def check_readable(url: str) -> None:
    """Raises an error if no library is installed that reads such URLs.

    Raises:
        MissingExtraError: neither obstore nor fsspec is installed.
        StoreError: fsspec does not know the protocol, or lacks the package for it; or the URL is a chained one.
    """
    if "://" in url.partition("::")[2]:
        what = f"{url}: a chained URL of fsspec cannot be read through a cache"
        raise StoreError(f"{what}; upload the files that it stands for, and pass their URLs")
    if obstore.reads(url):
        return
    if find_spec("fsspec") is None:
        obstore.check_installed(url)
    fsspec.load()
    try:
        fsspec.locate(url)
    except (ImportError, ValueError) as error:
        cure = (
            "install it, or obstore, which needs Python 3.11"
            if obstore.knows(url) and find_spec("obstore") is None
            else "install it, or correct the URL"
        )
        raise StoreError(f"{error}; {cure}") from error


class Source:
    """Reads objects, from any thread.

    Args:
        silence_s: a request of obstore fails if no byte arrives for so many seconds.
    """

    def __init__(self, silence_s: float) -> None:
        self._silence_s = silence_s
        self._files = _Files()
        self._listings: dict[tuple[str, str], Iterator[Remote]] = {}  # by folder, and the URL that came last

    def find(self, url: str) -> Remote:
        """The version of an object that is there now; raises Fault."""
        with _no_library():
            found = _find(url, self._silence_s) if obstore.reads(url) else self._files.find(url)
        if not found.etag:
            what = "the server sends neither an ETag nor the time of the last change, so a change would not be noticed"
            raise Fault("refused", f"{what}; download the object and read the local file, or correct the URL")
        return found

    def page(self, folder: str, after: str) -> list[Remote]:
        """The next objects in a folder, in the order of their URLs; none if there are no more; raises Fault.

        Args:
            folder: a URL that ends with "/".
            after: only objects whose URLs come after this one. A listing goes on if this was its last one.
        """
        with _no_library():
            entries = self._listings.pop((folder, after), None)
            if entries is None:
                entries = self._entries(folder, after)
            page = _some(entries, len(folder))
            if page:
                self._listings[folder, page[-1].url] = entries
            if len(self._listings) > _MOST_LISTINGS:  # nobody goes on with the oldest
                self._listings.pop(next(iter(self._listings)), None)
            return page

    def _entries(self, folder: str, after: str) -> Iterator[Remote]:
        if folder.startswith(("http://", "https://")):
            raise Fault("refused", "an HTTP server does not tell which objects it has; pass a list of URLs")
        if obstore.reads(folder):
            return _entries(folder, after, self._silence_s)
        return (remote for remote in self._files.entries(folder) if remote.url > after)

    def read(self, remote: Remote, start: int, stop: int) -> bytes:
        """These bytes of a version of an object; raises Fault."""
        if start == stop:  # there is no request for no bytes
            return b""
        if obstore.reads(remote.url):
            data = _read(remote, start, stop, self._silence_s)
        else:
            data = self._files.read(remote, start, stop)
        if len(data) != stop - start:
            what = f"the answer for bytes {start} to {stop - 1} has {len(data)} bytes instead of {stop - start}"
            raise Fault("other", what)
        return data


@contextmanager
def _no_library() -> Iterator[None]:
    """A library is missing, or nobody knows the protocol: a Fault."""
    try:
        yield
    except (ImportError, ValueError) as error:
        raise Fault("refused", str(error)) from error


def _some(entries: Iterator[Remote], cut: int) -> list[Remote]:
    """As many of these as fit in a message without the first characters of their URLs."""
    page, nbytes = [], 0
    for remote in entries:
        page.append(remote)
        nbytes += len(json.dumps([remote.url[cut:], remote.etag, remote.size]))
        if len(page) >= _PAGE or nbytes > _PAGE_BYTES:
            break
    return page


def _entries(folder: str, after: str, silence_s: float) -> Iterator[Remote]:
    store, prefix = obstore.store_of(folder, silence_s)
    root = folder[: len(folder) - len(prefix)]
    try:
        for chunk in import_extra("obstore", "stores").list(
            store, prefix or None, offset=after[len(root) :] or None, chunk_size=_PAGE
        ):
            for about in chunk:
                yield Remote(root + about["path"], about["size"], about["e_tag"] or "")
    except Exception as error:
        raise _fault(error) from error


def _find(url: str, silence_s: float) -> Remote:
    store, key = obstore.store_of(url, silence_s)
    if key.endswith("/") and not url.startswith("http"):  # a folder; obstore would find the file of its name
        raise Fault("missing", _MISSING)
    try:
        about = import_extra("obstore", "stores").head(store, key)
    except Exception as error:
        raise _fault(error) from error
    return Remote(url, about["size"], _etag(about))


def _read(remote: Remote, start: int, stop: int, silence_s: float) -> bytes:
    store, key = obstore.store_of(remote.url, silence_s)
    options: dict[str, Any] = {"range": (start, stop)}
    if remote.etag.startswith('"'):
        options["if_match"] = remote.etag
    try:
        answer = import_extra("obstore", "stores").get(store, key, options=options)
        about = answer.meta
        if (etag := _etag(about)) != remote.etag or about["size"] != remote.size:
            raise changed(remote, etag)
        return bytes(answer.bytes())
    except Fault:
        raise
    except Exception as error:
        fault = _fault(error)
        if fault.kind == "changed":
            fault = changed(remote, _find(remote.url, silence_s).etag)
        raise fault from error


def _etag(about: Any) -> str:
    """The ETag; without one, the time of the last change; "" if the server sends neither."""
    time = about["last_modified"]  # obstore returns the start of 1970 if it is not known
    return about["e_tag"] or (f"{time}" if time.timestamp() else "")


def _version(about: dict[str, Any]) -> str:
    """The version of a file, as its filesystem of fsspec describes it; "" if it does not."""
    return str(next((about[name] for name in _VERSIONS if about.get(name)), ""))


def _fault(error: Exception) -> Fault:
    kind, text = obstore.failure_of(error), f"{type(error).__name__}: {error}".partition("\n")[0]
    if kind == "missing":
        text = _MISSING
    elif kind == "refused":
        text += "; set the variables of its client, such as AWS_ACCESS_KEY_ID, before the program starts"
    elif kind == "invalid":
        text += "; correct the URL, or rename the object: obstore reads no keys with empty parts, `.` or `..`"
    elif _METADATA in text:
        text += "; there are no credentials: set AWS_ACCESS_KEY_ID, or AWS_SKIP_SIGNATURE=true for a public bucket"
    return Fault(kind, text)


class _Files:
    """Files of filesystems of fsspec; those that are asynchronous are used by all threads."""

    def __init__(self) -> None:
        self._shared: dict[str, Any] = {}
        self._lock = Lock()

    def find(self, url: str) -> Remote:
        filesystem, path = self._of(url)
        with _faults():
            filesystem.invalidate_cache()
            about = filesystem.info(path)
        if about.get("type") == "directory":
            raise Fault("missing", _MISSING)
        if about["size"] is None:
            what = "the server does not tell how long the object is"
            raise Fault("refused", f"{what}; download the object and read the local file")
        return Remote(url, about["size"], _version(about))

    def entries(self, folder: str) -> list[Remote]:
        """All objects in a folder, in the order of their URLs."""
        filesystem, path = self._of(folder)
        with _faults():
            filesystem.invalidate_cache()
            found = filesystem.find(path, detail=True)
        names = {folder + name[len(path.rstrip("/")) :].lstrip("/"): about for name, about in found.items()}
        # A list has the time of a link, and not that of its file.
        return [
            Remote(url, about["size"], "" if about.get("islink") else _version(about))
            for url, about in sorted(names.items())
        ]

    def read(self, remote: Remote, start: int, stop: int) -> bytes:
        filesystem, path = self._of(remote.url)
        try:
            data: bytes = filesystem.cat_file(path, start=start, end=stop)
        except Exception as error:
            self.find(remote.url)  # it says so if it is missing
            raise Fault("other", f"{type(error).__name__}: {error}") from error
        now = self.find(remote.url)
        if now != remote:
            raise changed(remote, now.etag)
        return data

    def _of(self, url: str) -> tuple[Any, str]:
        file = fsspec.locate(url)
        if not file.kind.async_impl:
            return file.kind(**file.options), file.name
        with self._lock:
            key = repr((file.kind, file.options))
            if key not in self._shared:
                self._shared[key] = file.kind(**file.options)
        return self._shared[key], file.name


@contextmanager
def _faults() -> Iterator[None]:
    """Errors of fsspec become a Fault."""
    try:
        yield
    except FileNotFoundError as error:
        failure = fsspec.http_failure(error)
        if failure is None:
            raise Fault("missing", _MISSING) from error
        is_refused = getattr(failure, "status", None) in (401, 403)
        raise Fault("refused" if is_refused else "other", f"{type(failure).__name__}: {failure}") from error
    except PermissionError as error:
        raise Fault("refused", f"{error}") from error
    except Exception as error:
        raise Fault("other", f"{type(error).__name__}: {error}") from error
