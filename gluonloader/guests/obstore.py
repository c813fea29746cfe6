"""obstore: which URLs it reads, its clients, and what its errors mean.

obstore does not survive a fork: if a process has sent a request, a request of a forked child waits for ever.
"""

from __future__ import annotations

import os
from datetime import timedelta
from functools import cache
from importlib.util import find_spec
from typing import Any, Final, Literal

from ..errors import import_extra

Failure = Literal["missing", "changed", "throttled", "refused", "invalid", "other"]

_STORES: Final = {
    "s3": "S3Store",
    "gs": "GCSStore",
    "az": "AzureStore",
    "abfs": "AzureStore",
    "http": "HTTPStore",
    "https": "HTTPStore",
}
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound")  # what stores answer to a request for a list
SETTINGS: Final = ("AWS_", "GOOGLE_", "AZURE_")  # the environment variables that obstore reads


def knows(url: str) -> bool:
    """Whether obstore knows the protocol of a URL."""
    return url.partition("://")[0] in _STORES


def reads(url: str) -> bool:
    """Whether obstore is installed, and is the library that reads a URL."""
    if not knows(url) or find_spec("obstore") is None:
        return False
    if url.startswith("http") and any(sign in url for sign in "%?#"):
        return False  # obstore takes these signs for a part of the name, and would ask for another object
    return not (url.startswith("s3:") and _has_credentials_in_file() and find_spec("s3fs") is not None)


def _has_credentials_in_file() -> bool:
    """Whether the credentials for S3 are in a file, which s3fs reads, but obstore does not."""
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    return "AWS_ACCESS_KEY_ID" not in os.environ and os.path.exists(os.path.expanduser(file))


def check_installed(url: str) -> None:
    """Raises a MissingExtraError if obstore knows the protocol of a URL, but is not installed."""
    if knows(url):
        import_extra("obstore", "stores", "obstore")


def store_of(url: str, silence_s: float = 10.0, retries: int = 0) -> tuple[Any, str]:
    """The store of obstore that reads a URL, and the key of the object in it.

    A process makes one store for each bucket, and another one if the environment variables of the stores change.

    Args:
        url: s3://, gs://, az://, abfs://, http:// or https://.
        silence_s: a request fails if no byte arrives for so many seconds.
        retries: how often the store repeats a request that has failed.

    Raises:
        MissingExtraError: obstore is not installed.
        ValueError: obstore refuses the URL or the environment variables.
    """
    scheme, _, rest = url.partition("://")
    place, _, key = rest.partition("/")
    if key.startswith("/"):  # obstore would leave it out, and name another object
        raise ValueError("obstore reads no key that starts with a slash; correct the URL, or rename the object")
    settings = frozenset((name, value) for name, value in os.environ.items() if name.startswith(SETTINGS))
    return _store(scheme, place, settings, silence_s, retries, os.getpid()), key


def failure_of(error: BaseException) -> Failure:
    """What an error of obstore means."""
    exceptions = import_extra("obstore.exceptions", "stores", "obstore")
    if isinstance(error, FileNotFoundError) or any(code in str(error) for code in _NO_BUCKET):
        return "missing"
    if isinstance(error, exceptions.PreconditionError):
        return "changed"
    if isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)):
        return "refused"
    if isinstance(error, (exceptions.InvalidPathError, ValueError)):
        return "invalid"
    if isinstance(error, exceptions.GenericError) and any(f"code: {code}" in str(error) for code in (429, 503)):
        return "throttled"
    return "other"


@cache
def _store(
    scheme: str, place: str, settings: frozenset[tuple[str, str]], silence_s: float, retries: int, process: int
) -> Any:
    stores = import_extra("obstore.store", "stores", "obstore")
    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=5),
        "read_timeout": timedelta(seconds=silence_s),
        "timeout": timedelta(hours=1),  # of a whole request; the default of 30 s would stop large files
        "allow_http": scheme == "http" or any(value.startswith("http://") for _, value in settings),
    }
    retry = {"max_retries": retries}
    make = getattr(stores, _STORES[scheme]).from_url
    try:
        return make(f"{scheme}://{place}", client_options=options, retry_config=retry)
    except import_extra("obstore.exceptions", "stores", "obstore").BaseError as error:
        what = f"{error}".partition("\n")[0]
        raise ValueError(f"{what}; correct the URL, or the variables of its client, such as AWS_REGION") from error
