"""`python -m gluonloader cache`: shows, fills and empties the folder of a cache."""

import json

import numpy as np
import pytest
from conftest import run_program
from stores.store_server import store_server

from gluonloader import NodeCache
from gluonloader.__main__ import main
from gluonloader.records import IndexedRecordIO, RecordFileDataset
from gluonloader.text import TokenDataset

pytest.importorskip("obstore")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with records and tokens."""
    folder = tmp_path_factory.mktemp("store")
    (folder / "bucket").mkdir()
    with IndexedRecordIO(str(folder / "bucket" / "a.rec"), "w") as file:
        for number in range(100):
            file.write_idx(number, np.full(2000, number, np.uint8).tobytes())
    TokenDataset.write(folder / "bucket" / "t", [np.arange(1000)] * 20)
    with store_server(folder) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def folder(store, tmp_path):
    """The folder of a cache, which does not exist yet."""
    return str(tmp_path / "cache")


def run(capsys, *arguments):
    """The exit status of the command, and what it has printed."""
    status = main(["cache", *arguments])
    return status, "".join(capsys.readouterr())


def test_warm_fetches_what_fits_and_status_shows_it(folder, capsys):
    arguments = "--limit", "131 kB", "--block", "4 kB", "s3://bucket/a.rec", "s3://bucket/t.bin", "s3://bucket/*.idx"
    status, text = run(capsys, "warm", folder, *arguments)
    assert status == 0
    assert " blocks are in " in text

    status, text = run(capsys, "status", folder, "--json")
    shown = json.loads(text)
    assert (status, shown["folder"]) == (0, folder)
    assert 0 < shown["blocks"] == shown["stats"]["blocks"]
    assert 0 < shown["nbytes"] == shown["stats"]["nbytes"] <= shown["stats"]["limit"] == 131 * 1024
    status, text = run(capsys, "status", folder)
    assert status == 0
    assert f"fetched by process {shown['stats']['pid']}" in text


UNREAD = """
import os, sys
from gluonloader.__main__ import main

read, write = os.pipe()
os.close(read)
os.dup2(write, 1)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.spawn
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_status_ends_quietly_if_nobody_reads_it(tmp_path, options):
    done = run_program(UNREAD, "cache", "status", str(tmp_path), *options)
    assert (done.returncode, done.stderr) == (0, "")


def test_status_shows_a_cache_that_another_object_uses(folder, capsys):
    """The command does not know the arguments of the cache."""
    cache = NodeCache(folder, "1 MB", block="8 kB", requests=3)
    data = RecordFileDataset("s3://bucket/a.rec", cache=cache)
    assert data[7] == bytes([7] * 2000)
    shown = json.loads(run(capsys, "status", folder, "--json")[1])
    assert shown["stats"]["pid"] == cache.stats().pid
    assert shown["stats"]["limit"] == 1 << 20


def test_clear_removes_blocks_that_nobody_uses(folder, capsys):
    cache = NodeCache(folder, "1 MB", block="8 kB")
    data = RecordFileDataset("s3://bucket/a.rec", cache=cache)
    assert data[0] == bytes(2000)
    status, text = run(capsys, "clear", folder)
    assert (status, "a program uses this cache" in text) == (2, True)
    del data, cache
    status, text = run(capsys, "clear", folder)
    assert (status, text.startswith("removed ")) == (0, True)
    status, text = run(capsys, "status", folder)
    assert (status, ": 0 blocks of 0 objects" in text, "no program uses it now" in text) == (0, True, True)


def test_mistakes(folder, tmp_path, capsys):
    (tmp_path / "mine.txt").touch()
    assert run(capsys, "status", str(tmp_path)) == (
        2,
        f"python -m gluonloader: folder={str(tmp_path)!r}: it is not the folder of a cache\n",
    )
    status, text = run(capsys, "warm", folder, "--limit", "1 MB", "--block", "8 kB", "s3://bucket/a.jpg")
    assert (
        status,
        "must be that of a .rec file, or of a .bin file of tokens, or a pattern for single files" in text,
    ) == (2, True)
    cache = NodeCache(folder, "1 MB", block="8 kB")
    assert cache.stats().requests == 0  # its fetcher has started
    arguments = "--limit", "1 MB", "--block", "8 kB", "--timeout", "0.5", "http://127.0.0.1:9/a.rec"
    status, text = run(capsys, "warm", folder, *arguments)
    assert (status, "did not come within 0.5 s" in text) == (2, True)
