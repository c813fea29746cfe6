"""Which blocks a cache contains, and which of them go first."""

import itertools
import random
import tracemalloc
from collections import OrderedDict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gluonloader.stores.contents import Contents
from gluonloader.stores.objects import Block

BLOCKS = [Block(key, start, start + 10) for key in "abc" for start in range(0, 80, 10)]


@given(st.lists(st.tuples(st.sampled_from(BLOCKS), st.integers(1, 50))), st.sets(st.sampled_from("abc")))
def test_the_space_of_all_blocks_is_known_and_those_of_unknown_objects_go_first(steps, known):
    contents, spaces = Contents(limit=200), {}
    for number, (block, space) in enumerate(steps):
        if number == len(steps) // 2:
            for key in known:
                contents.know(key)
        if block in spaces:
            contents.remove(block)
            del spaces[block]
        else:
            contents.add(block, space)
            spaces[block] = space
        assert (block in contents, len(contents)) == (block in spaces, len(spaces))
        assert contents.used == sum(spaces.values())
        assert contents.has_room(200 - contents.used)
        assert not contents.has_room(201 - contents.used)
    known = known if steps else set()
    order = sorted(spaces, key=lambda block: (block.key in known, block.priority))
    assert list(contents.unneeded(())) == order
    needed = set(order[::2])
    assert list(contents.unneeded(needed)) == order[1::2]


def test_objects_that_have_passed_take_no_memory():
    contents = Contents(limit=100)
    contents.know("kept")
    kept = Block("kept", 0, 50)
    contents.add(kept, 50)
    tracemalloc.start()
    try:
        for number in range(40_000):
            block = Block(f"{number:032}", 0, 10)
            contents.forget_others([block.key])
            contents.know(block.key)
            contents.add(block, 10)
            contents.remove(block)
            if number == 5000:
                before = tracemalloc.get_traced_memory()[0]
        assert tracemalloc.get_traced_memory()[0] < before + 500_000  # 35,000 keys are 5 MB
    finally:
        tracemalloc.stop()
    contents.add(Block("unknown", 0, 10), 10)
    assert [block.key for block in contents.unneeded(())] == ["unknown", "kept"]


def hits_of(epochs, room):
    """Whether each block is a hit, after the first epoch, if each epoch reads each block once."""
    contents, hits = Contents(limit=room), []
    contents.know("object")
    for block in itertools.chain(*epochs):
        hits.append(block in contents)
        if block not in contents:
            if not contents.has_room(1):
                contents.remove(next(contents.unneeded({block})))
            contents.add(block, 1)
    return hits[len(epochs[0]) :]


def hits_of_lru(epochs, room):
    kept, hits = OrderedDict(), []
    for block in itertools.chain(*epochs):
        hits.append(block in kept)
        kept.pop(block, None)
        kept[block] = None
        if len(kept) > room:
            kept.popitem(last=False)
    return hits[len(epochs[0]) :]


def test_as_many_blocks_are_hits_as_there_is_room_for():
    rng = random.Random(3)
    blocks = [Block("object", start, start + 1) for start in range(400)]
    shuffled = [rng.sample(blocks, len(blocks)) for _ in range(6)]
    for share in (0.25, 0.5, 0.75):
        room = int(share * len(blocks))
        for epochs in (shuffled, [blocks] * 6):
            assert abs(np.mean(hits_of(epochs, room)) - share) < 0.02
        assert not any(hits_of_lru([blocks] * 6, room))
    assert np.mean(hits_of_lru(shuffled, 100)) < 0.1
    quarters = np.array(hits_of([blocks] * 2, 200)).reshape(4, -1).mean(axis=1)
    assert (abs(quarters - 0.5) < 0.15).all()  # the hits are spread over the epoch


def test_a_block_has_the_same_priority_in_each_process():
    assert Block("key", 0, 4096).priority == 4591670113830568410
