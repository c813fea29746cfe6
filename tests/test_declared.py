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


class OwnList(list):
    def __getitem__(self, index):
        return np.random.random()


class OwnSample(dict):
    def __getitem__(self, key):
        return np.random.random()


PLAIN = [1, 2.5, "a", b"b", np.float32(1), np.ones(2), (1, np.ones(2)), [1, 2], {"x": [(1, "a")], "y": True}]


def datasets_of(items):
    lists = [items, tuple(items), gl.SimpleDataset(items), gl.ArrayDataset(items, items), gl.Subset(items, [0])]
    return [*lists, gl.ConcatDataset([items, items])]


@pytest.mark.parametrize("item", PLAIN, ids=repr)
def test_a_list_of_plain_samples_draws_nothing(item):
    assert not any(map(draws, datasets_of([item] * 3)))
    assert draws(gl.SimpleDataset([item]).transform(jitter))
    assert draws(OwnList([item]))


OBJECTS = [OwnSample(), (1, OwnSample()), {"x": [OwnSample()]}, None, np.array([None])]


@pytest.mark.parametrize("item", OBJECTS, ids=repr)
def test_a_list_of_objects_may_draw_when_a_batch_is_made_of_them(item):
    assert all(map(draws, datasets_of([1, (2,), item])))


def test_one_object_among_many_items_of_a_column_may_draw():
    items = [*range(5000), OwnSample(), *range(5000)]
    assert draws(gl.ArrayDataset(items))
    assert draws(gl.ArrayDataset(np.ones(len(items)), items))


def test_samples_that_draw_are_seeded():
    def epoch(seed):
        with SERIAL.loader([OwnSample(x=0) for _ in range(8)], 4, seed=seed) as loader:
            return [dict.__getitem__(batch, "x").tolist() for batch in loader]

    np.random.seed(1)
    assert epoch(0) == epoch(0) != epoch(1)
    assert np.random.random() == np.random.RandomState(1).random_sample()


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


def test_gil_free_says_so_of_functions_classes_and_objects():
    @gl.gil_free
    def decode(data):
        return data

    @gl.gil_free
    class Decoded(gl.Dataset):
        pass

    class ReadsItsOwnWay(Decoded):
        def __getitem__(self, index):
            return index

    said = (decode, Decoded, Decoded(), gl.gil_free(gl.Dataset()), np.ones(2), [1], range(3))
    assert all(map(is_gil_free, said))
    assert not is_gil_free(gl.Dataset())
    assert not is_gil_free(ReadsItsOwnWay())
    with pytest.raises(ValueError, match="it accepts no attributes; decorate a function that calls it"):
        gl.gil_free(len)

    @functools.wraps(decode)
    def wrapper(data):
        return decode(data)

    assert not is_gil_free(wrapper), "what is said of a function is not said of what wraps it"
    assert is_gil_free(gl.gil_free(wrapper))
