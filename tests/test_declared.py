"""Declarations: what may draw random numbers is seeded for each batch, and nothing else is."""

import functools

import numpy as np
import pytest
from conftest import SERIAL, load_or_skip

import gluonloader as gl
import gluonloader.mxnet
from gluonloader.declared import draws, in_memory, is_gil_free

ROWS = np.arange(20.0)


def jitter(samples):
    return np.stack([sample + np.random.random() for sample in samples])


@functools.wraps(gl.default_batchify)
def wrapped(samples):
    return jitter(samples)


class OwnStack(gl.Stack):
    def __call__(self, samples):
        return jitter(samples)


class Named(gl.Stack):
    pass


DRAWING = [jitter, wrapped, functools.partial(jitter), OwnStack(), gl.Split(1, jitter), gl.Split(1, wrapped)]


def test_packed_items_are_in_memory_and_need_the_gil_and_objects_may_draw():
    for items, drawing in (("ab", False), ([b"a"], False), ([np.ones(2), np.ones(3)], False), ([None], True)):
        for data in (gl.CompactList(items), gl.ArrayDataset(np.ones(len(items)), gl.CompactList(items))):
            assert in_memory(data)
            assert not is_gil_free(data)
            assert draws(data) == drawing


def test_the_librarys_batchify_functions_draw_nothing_and_release_the_gil():
    ours = [gl.default_batchify, gl.Stack(), Named(), gl.Pad(), gl.Append(), gl.AsList(), gl.Split(2, gl.Stack())]
    ours += [gl.Group(gl.Stack(), gl.Pad()), gl.Dict({"x": gl.Stack()}), gl.Group(gl.Split(2), gl.default_batchify)]
    assert not any(map(draws, ours))
    assert all(map(is_gil_free, ours))


@pytest.mark.filterwarnings("ignore")
def test_gluons_batchify_draws_nothing_and_releases_the_gil():
    gluonloader.mxnet.patch_numpy()
    load_or_skip("mxnet")
    from gluonloader.mxnet.structure import gluon_batchify

    assert not draws(gluon_batchify)
    assert is_gil_free(gluon_batchify)


@pytest.mark.parametrize("batchify", [*DRAWING, *[gl.Group(fn) for fn in DRAWING], gl.Dict({"x": gl.Group(jitter)})])
def test_user_code_may_draw(batchify):
    assert draws(batchify)
    assert not is_gil_free(batchify)


@pytest.mark.parametrize("batchify", DRAWING)
def test_a_batchify_that_draws_is_seeded(batchify):
    def epoch(seed):
        with SERIAL.loader(ROWS, 4, seed=seed, batchify_fn=batchify) as loader:
            return [np.asarray(batch).tolist() for batch in loader]

    np.random.seed(1)
    assert epoch(0) == epoch(0) != epoch(1)
    assert np.random.random() == np.random.RandomState(1).random_sample()  # the caller's generator is restored
