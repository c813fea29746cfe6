"""The blocks of an object: each sample lies in one of them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gluonloader.stores.bounds import Bounds

BLOCKS = st.integers(1, 50)


def check(starts, stops, block):
    bounds = Bounds.of(starts, stops, block)
    assert (np.diff(bounds.starts) > 0).all()
    assert (np.diff(bounds.stops) >= 0).all()
    assert sum(bounds.counts) == len(starts)
    if not len(starts):
        return
    assert min(bounds.counts) > 0
    places = bounds.places(starts)
    assert np.bincount(places).tolist() == bounds.counts
    assert (bounds.starts[places] <= starts).all()
    assert (stops <= bounds.stops[places]).all()
    assert set(bounds.starts) <= set(starts)
    assert set(bounds.stops) <= set(stops)
    assert (bounds.stops - bounds.starts < block + (stops - starts).max() + 1).all()


@given(lengths=st.lists(st.integers(0, 80), max_size=60), block=BLOCKS)
def test_each_document_lies_in_one_block(lengths, block):
    stops = np.cumsum(np.array(lengths, np.int64))
    check(stops - np.array(lengths, np.int64), stops, block)


@given(count=st.integers(0, 60), width=st.integers(1, 40), stride=st.integers(1, 60), block=BLOCKS)
def test_each_window_lies_in_one_block_although_windows_overlap_or_leave_gaps(count, width, stride, block):
    starts = np.arange(count) * stride
    check(starts, starts + width, block)


@given(size=st.integers(0, 300), block=BLOCKS)
def test_equal_blocks_cover_an_object(size, block):
    bounds = Bounds.equal(size, block)
    assert (bounds.starts[0], bounds.stops[-1]) == (0, size)
    assert (bounds.starts[1:] == bounds.stops[:-1]).all()
    assert (bounds.stops - bounds.starts <= block).all()
    everywhere = np.arange(size)
    places = bounds.places(everywhere)
    assert ((bounds.starts[places] <= everywhere) & (everywhere < bounds.stops[places])).all()
