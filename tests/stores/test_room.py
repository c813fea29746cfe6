"""How the fetcher makes room: see NOTE [room] in gluonloader/stores/fetcher.py."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import eventually
from stores.store_server import store_server

from gluonloader import NodeCache
from gluonloader.stores.cache import tell
from gluonloader.stores.folder import path_of, space_of

pytest.importorskip("obstore")

ROOM, BLOCKS, SIZE = 16, 40, 4096


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    (folder / "bucket").mkdir()
    (folder / "bucket" / "numbers").write_bytes(np.repeat(np.arange(BLOCKS, dtype=np.uint8), SIZE).tobytes())
    with store_server(folder) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def cache(server, tmp_path):
    return NodeCache(tmp_path / "cache", ROOM * space_of(SIZE), block=SIZE)


def numbers(file):
    """The numbers of the blocks that are in the folder."""
    needed = file.needed(np.arange(BLOCKS) * SIZE, np.arange(1, BLOCKS + 1) * SIZE)
    return [number for number, block in enumerate(needed.blocks) if os.path.exists(path_of(file.cache.folder, block))]


class Owner:
    """Whatever needs blocks."""


def tell_of(file, first, last, loader=None):
    places = np.arange(first, last) * SIZE
    needed = file.needed(places, places + SIZE)
    tell(needed.cache, loader or file, needed.blocks, needed.remotes)


def test_no_more_blocks_are_fetched_ahead_than_there_is_room_for(cache):
    file = cache.open("s3://bucket/numbers")
    tell_of(file, 0, 30)
    assert eventually(lambda: numbers(file) == list(range(ROOM)))
    stats = cache.stats()
    assert (stats.blocks, stats.misses, stats.removed) == (ROOM, ROOM, 0)
    assert stats.nbytes == stats.limit

    assert file.read(35 * SIZE, 35 * SIZE + 3) == bytes([35] * 3)
    # It had the room of the block that is needed last, until it was read.
    assert eventually(lambda: numbers(file) == list(range(ROOM)))
    stats = cache.stats()
    assert (stats.blocks, stats.removed, stats.requests) == (ROOM, 2, ROOM + 3)  # and one for the version


def test_blocks_that_are_not_needed_any_more_make_room(cache):
    file = cache.open("s3://bucket/numbers")
    tell_of(file, 0, ROOM)
    assert eventually(lambda: numbers(file) == list(range(ROOM)))
    tell_of(file, 8, 8 + ROOM)
    assert eventually(lambda: numbers(file) == list(range(8, 8 + ROOM)))
    assert cache.stats().nbytes <= cache.options.limit


def test_a_read_of_more_blocks_than_there_is_room_for_succeeds(cache):
    file = cache.open("s3://bucket/numbers")
    data = file.read(0, len(file))
    assert [data[number * SIZE] for number in range(BLOCKS)] == list(range(BLOCKS))
    assert len(data) == BLOCKS * SIZE
    stats = cache.stats()
    assert (stats.blocks, stats.misses) == (ROOM, BLOCKS)
    assert stats.fetched == len(file)


def test_reads_that_together_need_more_blocks_than_there_is_room_for_do_not_wait_for_each_other(cache):
    file = cache.open("s3://bucket/numbers")

    def read(first):
        numbers = (np.arange(BLOCKS) + first) % BLOCKS if first % 2 else np.arange(BLOCKS)[::-1]
        pieces = file.read_many(numbers * SIZE, numbers * SIZE + 1)
        return [piece[0] for piece in pieces] == numbers.tolist()

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(12)))
    assert cache.stats().nbytes <= cache.options.limit


def test_blocks_that_a_read_has_needed_are_not_kept_for_it(cache):
    file = cache.open("s3://bucket/numbers")
    file.read_many(np.arange(3) * SIZE, np.arange(1, 4) * SIZE)
    tell_of(file, 20, 20 + ROOM)
    others = set(range(20, 20 + ROOM))
    assert eventually(lambda: set(numbers(file)) == others)


def test_blocks_that_come_in_several_messages_are_all_fetched(cache):
    file = cache.open("s3://bucket/numbers")
    for first, goes_on in [(0, False), (8, True)]:
        places = np.arange(first, first + 8) * SIZE
        needed = file.needed(places, places + SIZE)
        tell(cache, file, needed.blocks, needed.remotes, goes_on)
    assert eventually(lambda: numbers(file) == list(range(ROOM)))
    file.read(20 * SIZE, 30 * SIZE)  # these blocks take the room of others, until they have been read
    assert eventually(lambda: numbers(file) == list(range(ROOM)))


def test_each_loader_of_a_thread_has_its_own_blocks_until_it_ends(cache):
    file, first, second = cache.open("s3://bucket/numbers"), Owner(), Owner()
    tell_of(file, 0, 4, first)
    tell_of(file, 10, 14, second)
    assert eventually(lambda: numbers(file) == [*range(4), *range(10, 14)])
    tell_of(file, 4, 8, first)
    tell_of(file, 14, 14 + ROOM, second)
    assert eventually(lambda: numbers(file) == [*range(4, 8), *range(14, 14 + ROOM - 4)])
    del first
    tell_of(file, 14, 14 + ROOM, second)
    assert eventually(lambda: numbers(file) == list(range(14, 14 + ROOM)))
