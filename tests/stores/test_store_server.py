"""The store server itself, as obstore sees it."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from conftest import eventually, is_running
from stores.store_server import __file__ as program
from stores.store_server import store_server

obstore = pytest.importorskip("obstore")
stores = pytest.importorskip("obstore.store")
exceptions = pytest.importorskip("obstore.exceptions")

CONTENT = bytes(range(100))


@pytest.fixture
def server(tmp_path):
    (tmp_path / "bucket" / "folder").mkdir(parents=True)
    (tmp_path / "bucket" / "a.bin").write_bytes(CONTENT)
    for number in range(5):
        (tmp_path / "bucket" / "folder" / f"{number} & more.bin").write_bytes(b"%d" % number)
    with store_server(tmp_path) as server:
        yield server


@pytest.fixture
def bucket(server, monkeypatch):
    return bucket_of(server, monkeypatch)


def bucket_of(server, monkeypatch, max_retries=10, **options):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    backoff = {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=2)}
    return stores.S3Store(
        "bucket",
        client_options={"allow_http": True, **options},
        retry_config={"max_retries": max_retries, "backoff": backoff},
    )


def read(bucket, key="a.bin", **options):
    return bytes(obstore.get(bucket, key, options=options).bytes())


def test_get_head_and_ranges(server, bucket):
    assert read(bucket) == CONTENT
    assert read(bucket, range=(10, 20)) == CONTENT[10:20]
    assert read(bucket, range={"offset": 90}) == CONTENT[90:]
    assert read(bucket, range={"suffix": 3}) == CONTENT[-3:]
    assert obstore.head(bucket, "a.bin")["size"] == 100
    counts = server.counts()
    assert [counts[name] for name in ("get", "range", "head", "bytes", "most")] == [4, 3, 1, 123, 1]
    assert server.counts()["get"] == 0
    with pytest.raises(FileNotFoundError):
        read(bucket, "none.bin")
    with pytest.raises(FileNotFoundError):
        obstore.head(bucket, "folder")


def test_if_match(server, bucket, tmp_path):
    tag = obstore.head(bucket, "a.bin")["e_tag"]
    assert read(bucket, if_match=tag) == CONTENT
    (tmp_path / "bucket" / "a.bin").write_bytes(b"changed")
    with pytest.raises(exceptions.PreconditionError):
        read(bucket, if_match=tag)
    assert server.counts()["changed"] == 1


def test_listing(server, bucket):
    folder = [f"folder/{number} & more.bin" for number in range(5)]
    assert [item["path"] for page in obstore.list(bucket) for item in page] == ["a.bin", *folder]
    assert [item["path"] for page in obstore.list(bucket, "folder") for item in page] == folder
    found = obstore.list_with_delimiter(bucket)
    assert found["common_prefixes"] == ["folder"]
    assert [item["path"] for item in found["objects"]] == ["a.bin"]
    assert server.counts()["list"] == 3


def test_a_long_listing_has_pages(server, bucket, tmp_path):
    for number in range(1500):
        (tmp_path / "bucket" / "folder" / f"many-{number}").touch()
    assert len({item["path"] for page in obstore.list(bucket) for item in page}) == 1506
    assert server.counts()["list"] == 2


def test_put_and_delete(server, bucket, tmp_path):
    obstore.put(bucket, "new/folder/b.bin", b"new", use_multipart=False)
    assert read(bucket, "new/folder/b.bin") == (tmp_path / "bucket/new/folder/b.bin").read_bytes() == b"new"
    obstore.delete(bucket, ["a.bin", "new/folder/b.bin"])
    assert [file.name for file in (tmp_path / "bucket").rglob("*.bin") if file.parent.name != "folder"] == []
    counts = server.counts()
    assert (counts["put"], counts["delete"]) == (1, 1)


def test_503s_are_answered_as_often_as_asked(server, monkeypatch):
    bucket = bucket_of(server, monkeypatch)
    server.set(busy_next=3)
    assert read(bucket) == CONTENT
    counts = server.counts()
    assert (counts["get"], counts["busy"]) == (4, 3)
    server.set(busy=1)
    with pytest.raises(exceptions.GenericError, match="503"):
        read(bucket_of(server, monkeypatch, max_retries=2))
    assert server.counts()["busy"] == 3


def test_a_burst_of_503s(server, monkeypatch):
    server.set(busy=0.2, burst=4)
    bucket = bucket_of(server, monkeypatch, max_retries=50)
    assert [read(bucket) for _ in range(20)] == [CONTENT] * 20
    counts = server.counts()
    assert counts["busy"] >= 4
    assert counts["get"] == counts["busy"] + 20


def test_refused(server, bucket):
    server.set(refused=1)
    with pytest.raises(exceptions.PermissionDeniedError):
        read(bucket)


def test_cut_answers_are_continued_by_obstore(server, bucket):
    server.set(cut=0.5)
    assert [read(bucket) for _ in range(10)] == [CONTENT] * 10
    counts = server.counts()
    assert counts["range"] == counts["cut"] > 0


@pytest.mark.parametrize("fault", ["stall", "freeze", "slow"])
def test_answers_that_do_not_come(server, monkeypatch, fault):
    bucket = bucket_of(server, monkeypatch, max_retries=1, read_timeout=timedelta(milliseconds=200))
    server.set(slow_s=60, **{fault: 1})
    with pytest.raises(exceptions.GenericError):
        read(bucket)
    server.set(**{fault: 0})
    assert read(bucket) == CONTENT
    assert server.counts()[fault] == 2


def test_wrong_lengths(server, bucket):
    server.set(wrong_length=1)
    assert read(bucket) == CONTENT[:-1]
    assert read(bucket, range=(10, 20)) == CONTENT[10:19]


def test_an_ignored_range(server, monkeypatch):
    server.set(ignore_range=1)
    with pytest.raises(exceptions.BaseError):
        read(bucket_of(server, monkeypatch), range=(10, 20))
    assert server.counts()["ignore_range"] == 1


def test_etags(server, bucket):
    tag = obstore.head(bucket, "a.bin")["e_tag"]
    assert obstore.get(bucket, "a.bin").meta["e_tag"] == tag
    server.set(other_etag=1)
    assert len({tag, *(obstore.get(bucket, "a.bin").meta["e_tag"] for _ in range(3))}) == 4
    server.set(no_etag=1)
    assert obstore.get(bucket, "a.bin").meta["e_tag"] is None


def test_requests_at_once(server, bucket):
    server.set(delay_s=0.2)
    with ThreadPoolExecutor(5) as threads:
        assert list(threads.map(lambda _: read(bucket), range(5))) == [CONTENT] * 5
    assert 1 < server.counts()["most"] <= 5


def test_an_unknown_fault_is_an_error(server, tmp_path):
    with pytest.raises(ValueError, match="unknown"):
        server.set(unknown=1)


def test_it_ends_with_its_parent(tmp_path):
    code = (
        "import subprocess, sys, time\n"
        "server = subprocess.Popen([sys.executable, *sys.argv[1:]], stdout=subprocess.PIPE)\n"
        "server.stdout.readline()\n"
        "print(server.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, program, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with parent:
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        os.kill(parent.pid, signal.SIGKILL)
    assert eventually(lambda: not is_running(pid))
