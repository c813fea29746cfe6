"""Common mistakes with objects of stores and their cache, and the errors that answer them.

Each row contains a description of the mistake, the call, the type of the error, and its complete text. In a text, "..."
stands for any characters.
"""

import os
import pickle
import re
import sys

import numpy as np
import pytest
from remote_files import http_server
from stores.store_server import store_server

from gluonloader import DataLoader, FileDataset, NodeCache
from gluonloader.errors import ColumnError, MissingExtraError, RecordError, StoreError, TokenError
from gluonloader.records import IndexedRecordIO, RecordFileDataset
from gluonloader.stores.source import Fault, Source, check_readable
from gluonloader.tables import ArrowDataset
from gluonloader.text import TokenDataset

pytest.importorskip("obstore")

LIMIT = 'pass at least 67,174,400 bytes, as an int or as text such as "256MB", so that 16 blocks of 4 MB fit'
EXAMPLE = 'NodeCache("/scratch/cache", limit="100 GB")'
FOLDER = "must be the path of a folder on a local disk"
A_URL = f"a URL is read through a cache on the local disk; pass cache={EXAMPLE}"
ONLY_BIN = (
    "a file in a store must be a .bin file; make one with its .idx file by `gluonloader tokens make`, and pass no end"
)
NOTHING = "[Errno 2] there is no such object, or no such bucket"
OTHER_FILES = "it contains other files; pass a new folder, since a cache removes files"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a bucket, with files, and with a folder for caches beside it."""
    folder = tmp_path_factory.mktemp("store")
    for name in ("bucket", "bucket/files", "caches", "caches/full"):
        (folder / name).mkdir()
    (folder / "caches" / "full" / "notes.txt").write_text("mine")
    bucket = folder / "bucket"
    TokenDataset.write(bucket / "a", [np.arange(2000)] * 20)
    TokenDataset.write(bucket / "long", [np.arange(60000)] * 2)
    for name in ("r", "large"):
        with IndexedRecordIO(bucket / f"{name}.rec", "w") as file:
            for key in range(100):
                file.write_idx(key, bytes(1000 if name == "r" or key else 200_000))
    (bucket / "alone.rec").write_bytes((bucket / "r.rec").read_bytes())
    (bucket / "alone.bin").write_bytes(bytes(4001))
    (bucket / "ones").write_bytes(b"\x01" * 100)
    for number in range(40):
        (bucket / "files" / f"{number}").write_bytes(bytes(5000))
    with store_server(folder) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        patch.chdir(folder / "caches")
        yield folder
        assert [file.name for file in (folder / "caches" / "full").iterdir()] == ["notes.txt"]
        assert (folder / "caches" / "full" / "notes.txt").read_text() == "mine"


def cache(name="small", limit=16 * 8192, **options):
    return NodeCache(name, limit, **{"block": 4096, **options})


def tokens(name="a.bin", **options):
    return TokenDataset(f"s3://bucket/{name}", **{"cache": cache(), **options})


def records(name="r.rec", **options):
    return RecordFileDataset(f"s3://bucket/{name}", **{"cache": cache(), **options})


def files(paths="s3://bucket/files/*", **options):
    return FileDataset(paths, **{"cache": cache(), **options})


MISTAKES = [
    ("records of a URL without a cache", lambda: records(cache=None), ValueError, f"path='s3://bucket/r.rec': {A_URL}"),
    ("tokens of a URL without a cache", lambda: tokens(cache=None), ValueError, f"source='s3://bucket/a.bin': {A_URL}"),
    (
        "a cache for a local file",
        lambda: RecordFileDataset("../bucket/r.rec", cache=cache()),
        ValueError,
        "path='...bucket/r.rec': a local file needs no cache; remove cache, or pass a URL",
    ),
    (
        "a URL with one slash",
        lambda: TokenDataset("s3:/bucket/a.bin", cache=cache()),
        ValueError,
        "source='...s3:/bucket/a.bin': a local file needs no cache; remove cache, or pass a URL",
    ),
    (
        "a cache for a list",
        lambda: TokenDataset([[1]], cache=cache()),
        ValueError,
        "cache=NodeCache('...small', limit='128 kB'): only for a source that is a URL; remove it",
    ),
    (
        "a path as cache",
        lambda: tokens(cache="/scratch"),
        ValueError,
        f"cache='/scratch': must be a NodeCache, e.g. {EXAMPLE}",
    ),
    ("a small limit", lambda: NodeCache("new", "10 MB"), ValueError, f"limit='10 MB': {LIMIT}"),
    ("a limit in gigabytes", lambda: NodeCache("new", 100), ValueError, f"limit=100: {LIMIT}"),
    ("a limit without a number", lambda: NodeCache("new", "many"), ValueError, f"limit='many': {LIMIT}"),
    ("no limit", lambda: NodeCache("new", None), ValueError, f"limit=None: {LIMIT}"),
    ("a limit as a float", lambda: NodeCache("new", 1e9), ValueError, f"limit=1000000000.0: {LIMIT}"),
    ("a cache as limit", lambda: NodeCache("new", cache()), ValueError, f"limit=NodeCache(...): {LIMIT}"),
    ("limit and folder swapped", lambda: NodeCache("100 GB", "/scratch"), ValueError, f"limit='/scratch': {LIMIT}"),
    ("a cache as folder", lambda: NodeCache(cache(), "1 GB"), ValueError, f"folder=NodeCache(...): {FOLDER}"),
    ("no folder", lambda: NodeCache(None, "1 GB"), ValueError, f"folder=None: {FOLDER}"),
    ("a URL as folder", lambda: NodeCache("s3://b/c", "1 GB"), ValueError, f"folder='s3://b/c': {FOLDER}"),
    (
        "a block as small as a sample",
        lambda: NodeCache("new", "1 GB", block=100),
        ValueError,
        'block=100: pass at least 4,096 bytes, as an int or as text such as "256MB"',
    ),
    ("no requests", lambda: cache(requests=0), ValueError, "requests=0: must be an int >= 1"),
    ("no timeout", lambda: cache(timeout=None), ValueError, "timeout=None: must be a number of seconds > 0"),
    ("the folder of other files", lambda: cache("full"), StoreError, f"folder='...full': {OTHER_FILES}"),
    (
        "the path of a file",
        lambda: cache("full/notes.txt"),
        StoreError,
        "folder='...notes.txt': File exists; pass a folder that you may write to",
    ),
    (
        "a folder that cannot be made",
        lambda: cache("/proc/cache"),
        StoreError,
        "folder='/proc/cache': No such file or directory; pass a folder that you may write to",
    ),
    ("no such object", lambda: records("b.rec"), FileNotFoundError, f"{NOTHING}: 's3://bucket/b.rec'"),
    (
        "no such bucket",
        lambda: RecordFileDataset("s3://buckets/r.rec", cache=cache()),
        FileNotFoundError,
        f"{NOTHING}: 's3://buckets/r.rec'",
    ),
    (
        "no such bucket of files",
        lambda: files("s3://buckets/*"),
        FileNotFoundError,
        f"{NOTHING}: 's3://buckets/'",
    ),
    (
        "no bucket",
        lambda: RecordFileDataset("s3:///r.rec", cache=cache()),
        StoreError,
        "s3:///r.rec: ...; correct the URL, or the variables of its client, such as AWS_REGION",
    ),
    ("no object but a bucket", lambda: records(""), FileNotFoundError, f"{NOTHING}: 's3://bucket/'"),
    (
        "a protocol that does not exist",
        lambda: TokenDataset("s4://bucket/a.bin", cache=cache()),
        StoreError,
        "s4://bucket/a.bin: Protocol not known: s4; install it, or correct the URL",
    ),
    (
        "a protocol whose package is not installed",
        lambda: TokenDataset("gcs://bucket/a.bin", cache=cache()),
        StoreError,
        "gcs://bucket/a.bin: Please install gcsfs...; install it, or correct the URL",
    ),
    (
        "a chained URL",
        lambda: files(["zip://a.jpg::s3://bucket/a.zip"]),
        StoreError,
        "zip://a.jpg::s3://bucket/a.zip: a chained URL of fsspec cannot be read through a cache; upload the files that "
        "it stands for, and pass their URLs",
    ),
    (
        "columns of a file that is no Parquet file",
        lambda: pytest.importorskip("pyarrow") and ArrowDataset("s3://bucket/ones", cache=cache()),
        ColumnError,
        "s3://bucket/ones: not a Parquet file, or a damaged one (ValueError: it contains no footer of 16,843,009 "
        "bytes); copy the file again, or remove it",
    ),
    (
        "records without an index",
        lambda: records("alone.rec"),
        FileNotFoundError,
        "[Errno 2] the file has no index; write the index with gluonloader.records.build_index("
        "'s3://bucket/alone.rec'), with the path of the file on a local disk, and upload the index: 's3://bucket/alone.idx'",
    ),
    (
        "tokens without an index and a dtype",
        lambda: tokens("alone.bin"),
        ValueError,
        "dtype=None: there is no s3://bucket/alone.idx, so pass the dtype of the tokens, e.g. dtype='uint16'",
    ),
    (
        "tokens of another dtype",
        lambda: tokens("alone.bin", dtype="uint16"),
        TokenError,
        "s3://bucket/alone.bin: its 4001 bytes are no whole number of uint16; pass the dtype of its tokens, or copy "
        "the file again, since it was cut",
    ),
    (
        "another dtype than that of the index",
        lambda: tokens(dtype="int32"),
        TokenError,
        "s3://bucket/a.idx is for tokens of uint16, not of int32; pass no dtype",
    ),
    ("a .npy file", lambda: tokens("a.npy"), ValueError, f"source='s3://bucket/a.npy': {ONLY_BIN}"),
    ("the end of documents", lambda: tokens(end=0), ValueError, f"source='s3://bucket/a.bin': {ONLY_BIN}"),
    (
        "a record larger than the cache",
        lambda: records("large.rec"),
        ValueError,
        "cache=NodeCache('...small', limit='128 kB'): it has no room for a block of 195 kB, since samples of "
        "s3://bucket/large.rec are so large; pass a larger limit",
    ),
    (
        "windows larger than the cache",
        lambda: tokens("long.bin").windows(100_000),
        ValueError,
        "cache=NodeCache('...small', limit='128 kB'): it has no room for a block of 195 kB, since samples of "
        "s3://bucket/long.bin are so large; pass a larger limit",
    ),
    (
        "a full shuffle of a file larger than the cache",
        lambda: DataLoader(records(), 4, shuffle=True),
        ValueError,
        "shuffle=True: the samples of this order lie in 25 blocks of 4 kB, and the cache has no room for them, so a "
        "full shuffle would fetch a block for most samples, up to 4 times the data; shuffle in blocks: "
        "DataLoader(dataset, batch_size, sampler=BlockShuffleSampler(data.blocks, buffer=16)), where data is the "
        "RecordFileDataset",
    ),
    (
        "batches larger than the cache",
        lambda: iter(DataLoader(files(), 20)),
        ValueError,
        "cache=NodeCache('...small', limit='128 kB'): the next 8 batches need 320 kB, and its limit is 128 kB; pass at "
        "least 640 kB as limit, a smaller batch_size, or a smaller buffer to BlockShuffleSampler",
    ),
    (
        "local files and a cache",
        lambda: files(["a.jpg"]),
        ValueError,
        "paths='a.jpg': a local file needs no cache; remove cache, or pass a URL",
    ),
    (
        "a cache that is a folder",
        lambda: files(cache="small"),
        ValueError,
        """cache='small': must be a NodeCache, e.g. NodeCache("/scratch/cache", limit="100 GB")""",
    ),
    (
        "a filesystem and a cache",
        lambda: files(fs=pytest.importorskip("fsspec").filesystem("memory")),
        ValueError,
        "fs=<fsspec.implementations.memory.MemoryFileSystem object at ...>: with a cache, its fetcher reads the files; "
        "remove fs, and pass URLs",
    ),
    (
        "a pattern without files",
        lambda: files("s3://bucket/none/*"),
        ValueError,
        "paths='s3://bucket/none/*': no file matches this pattern; to read a file whose name contains *, ? or [, pass "
        "a list",
    ),
    (
        "a pattern for buckets",
        lambda: files("s3://buck*/*.jpg"),
        ValueError,
        "paths='s3://buck*/*.jpg': the bucket cannot be a pattern; make a FileDataset for each bucket",
    ),
    (
        "a file that is larger than the cache",
        lambda: files(["s3://bucket/large.rec"]),
        ValueError,
        "cache=NodeCache('...small', limit='128 kB'): it has no room for s3://bucket/large.rec, which has 293 kB; pass "
        "a larger limit",
    ),
    (
        "another limit than another program",
        lambda: [records(), records(cache=cache(limit=2 << 20))],
        StoreError,
        "s3://bucket/r.rec: its length and version: limit=2097152 here, but limit=131072 in another program (pid ...) "
        "that uses this cache; pass the same, or use another folder",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES])
def test_a_mistake_causes_an_error_with_this_text(call, kind, text, folder):
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    assert re.fullmatch(re.escape(text).replace(re.escape("..."), ".*"), str(caught.value)), str(caught.value)


def test_documents_larger_than_the_cache_are_read_in_pieces(folder):
    data = tokens("long.bin")
    assert [len(document) for document in data] == [60000, 60000]
    assert (data[1] == np.arange(60000)).all()
    assert (tokens("long.bin").windows(100, 0, 3000)[20] == np.arange(100)).all()
    (folder / "bucket" / "raw.bin").write_bytes(np.arange(60000, dtype=np.uint16).tobytes())
    assert (tokens("raw.bin", dtype="uint16")[0] == np.arange(60000)).all()


@pytest.mark.parametrize(
    ("url", "absent", "text"),
    [
        ("s3://bucket/a", ["obstore", "fsspec"], r"obstore is not installed; run pip install .*\[stores\]"),
        ("many://a", ["fsspec"], r"fsspec is not installed; run pip install .*\[fsspec\]"),
    ],
)
def test_a_package_that_is_not_installed_is_named(url, absent, text, monkeypatch):
    for name in absent:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=text):
        check_readable(url)


@pytest.mark.parametrize("library", ["obstore", "aiohttp"])
def test_an_object_without_a_version_is_refused(library, monkeypatch):
    pytest.importorskip(library)
    if library != "obstore":  # fsspec reads it
        monkeypatch.setitem(sys.modules, "obstore", None)
    with http_server() as url:
        assert "2015" in Source(10.0).find(f"{url}/dated").etag
        with pytest.raises(Fault, match="neither an ETag nor the time of the last change.*; download the object"):
            Source(10.0).find(f"{url}/a.bin")


def test_an_object_of_unknown_length_is_refused():
    pytest.importorskip("aiohttp")
    with http_server() as url, pytest.raises(Fault, match="does not tell how long the object is; download the object"):
        Source(10.0).find(f"{url}/dated/encoded?by=fsspec")


def test_an_object_that_the_store_refuses_names_the_variables(folder, tmp_path):
    with store_server(folder, refused=1.0) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT", server.url)
        patch.setenv("AWS_ENDPOINT_URL", server.url)
        with pytest.raises(StoreError, match="403 Forbidden: ; set the variables of its client, such as AWS_"):
            records(cache=cache(tmp_path / "other"))


def test_a_process_that_gets_a_dataset_refuses_another_version_of_the_object(folder):
    bucket = folder / "bucket"
    for name in ("changing.rec", "changing.idx"):
        (bucket / name).write_bytes((bucket / name.replace("changing", "r")).read_bytes())
    data = pickle.dumps(records("changing.rec"))
    assert len(pickle.loads(data)) == 100
    os.utime(bucket / "changing.rec", (1, 1))  # the ETag depends on it
    with pytest.raises(RecordError, match="was changed since the dataset was made; make it again"):
        pickle.loads(data)
