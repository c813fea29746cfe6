"""The files of a cache: only whole and checked blocks are read, and no block is removed that a process uses."""

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gluonloader.stores import folder as module
from gluonloader.stores.client import address_of
from gluonloader.stores.folder import LOCK, Folder, is_ours, open_block, path_of, space_of
from gluonloader.stores.objects import Block

KEY = "0123456789abcdef" * 2  # of an object
BLOCK, OTHER = Block(KEY, 0, 5), Block(KEY, 5, 10)


@pytest.fixture
def folder(tmp_path):
    return Folder(str(tmp_path))


def content(path, block):
    found = open_block(path_of(str(path), block))
    return None if found is None else found[: block.stop - block.start]


def files_in(path):
    return sorted(os.path.join(parent, name) for parent, _, names in os.walk(path) for name in names)


def test_a_block_that_was_written_is_read_by_its_name(folder, tmp_path):
    assert content(tmp_path, BLOCK) is None
    folder.write(BLOCK, b"12345")
    assert content(tmp_path, BLOCK) == b"12345"
    assert content(tmp_path, OTHER) is None
    assert files_in(tmp_path) == [path_of(str(tmp_path), BLOCK)]


@pytest.mark.parametrize("nbytes", [0, 1, 4075, 4076, 4077, 4096, 100_000])
def test_a_block_occupies_as_much_space_as_is_counted(nbytes, folder, tmp_path):
    block = Block(KEY, 0, nbytes)
    folder.write(block, bytes(nbytes))
    status = os.stat(path_of(str(tmp_path), block))
    assert space_of(nbytes) - 4096 < status.st_size <= space_of(nbytes)


def test_blocks_of_an_earlier_fetcher_are_read_only_after_they_were_checked(folder, tmp_path):
    folder.write(BLOCK, b"12345")
    next_one = Folder(str(tmp_path))
    (left,) = next_one.take_over()
    assert (left.block, left.space) == (BLOCK, space_of(5))
    assert next_one.is_unchecked(BLOCK)
    assert content(tmp_path, BLOCK) is None
    assert next_one.check(BLOCK)
    assert not next_one.is_unchecked(BLOCK)
    assert content(tmp_path, BLOCK) == b"12345"


def test_unchecked_blocks_of_two_earlier_fetchers_are_found(folder, tmp_path):
    folder.write(BLOCK, b"12345")
    second = Folder(str(tmp_path))
    list(second.take_over())
    second.write(OTHER, b"67890")
    third = Folder(str(tmp_path))
    assert {left.block for left in third.take_over()} == {BLOCK, OTHER}
    assert third.check(BLOCK)
    assert third.check(OTHER)
    assert [content(tmp_path, block) for block in (BLOCK, OTHER)] == [b"12345", b"67890"]


def flip(path):
    data = bytearray(path.read_bytes())
    data[2] ^= 1
    path.write_bytes(data)


def swap_with_another(path):
    os.replace(path, path_of(str(path.parents[2]), OTHER))


DAMAGES = [flip, swap_with_another, lambda path: path.write_bytes(path.read_bytes()[:-1]),
           lambda path: path.write_bytes(b""), lambda path: path.write_bytes(bytes(4096))]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=["flipped", "moved", "cut", "empty", "zeros"])
def test_a_damaged_block_of_an_earlier_fetcher_is_removed(damage, folder, tmp_path):
    folder.write(BLOCK, b"12345")
    damage(Path(path_of(str(tmp_path), BLOCK)))
    next_one = Folder(str(tmp_path))
    (left,) = next_one.take_over()
    assert not next_one.check(left.block)
    assert not next_one.is_unchecked(left.block)
    assert files_in(tmp_path) == []


def test_a_block_that_is_open_is_not_removed(folder, tmp_path):
    folder.write(BLOCK, b"12345")
    first, second = (open_block(path_of(str(tmp_path), BLOCK)) for _ in range(2))
    assert not folder.remove(BLOCK)
    first.close()
    assert not folder.remove(BLOCK)
    assert second[:5] == b"12345"
    second.close()
    assert folder.remove(BLOCK)
    assert files_in(tmp_path) == []
    assert folder.remove(BLOCK)  # somebody else has removed it


def test_a_block_that_is_removed_just_before_it_is_locked_is_not_read(folder, tmp_path, monkeypatch):
    folder.write(BLOCK, b"12345")

    def late_lock(descriptor, operation, lock=fcntl.flock):
        os.unlink(path_of(str(tmp_path), BLOCK))
        lock(descriptor, operation)

    monkeypatch.setattr(module.fcntl, "flock", late_lock)
    assert open_block(path_of(str(tmp_path), BLOCK)) is None


def test_a_block_that_is_being_removed_is_not_read(folder, tmp_path):
    folder.write(BLOCK, b"12345")
    with open(path_of(str(tmp_path), BLOCK)) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert content(tmp_path, BLOCK) is None
    assert content(tmp_path, BLOCK) == b"12345"


def test_what_was_not_written_to_the_end_is_removed(folder, tmp_path, monkeypatch):
    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", full)
        with pytest.raises(OSError, match="full"):
            folder.write(BLOCK, b"12345")
    assert files_in(tmp_path) == []
    (tmp_path / "new" / "0123456789abcdef").write_bytes(b"12")
    Folder(str(tmp_path))
    assert files_in(tmp_path) == []


def test_a_cache_uses_only_an_empty_folder_or_its_own(tmp_path):
    assert is_ours(str(tmp_path / "none"))
    assert is_ours(str(tmp_path))
    (tmp_path / "notes.txt").write_text("mine")
    assert not is_ours(str(tmp_path))
    (tmp_path / LOCK).write_text("")
    assert is_ours(str(tmp_path))


@pytest.mark.spawn
def test_a_fetcher_ends_at_once_if_another_one_holds_the_lock(tmp_path):
    """See NOTE [one fetcher]; it must not touch the files of the other one, even if that one has no name yet."""
    address = address_of(str(tmp_path))
    facts = {"limit": 1 << 20, "block": 4096, "requests": 1}
    given = json.dumps({"folder": str(tmp_path), "address": address, "facts": facts})
    program = "from gluonloader.stores.fetcher import main; main()"
    with open(tmp_path / LOCK, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([sys.executable, "-c", program, given], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.listdir(tmp_path) == [LOCK]
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as free:
        free.bind(address)
