"""Gluon 2.0's batchify functions, as its documentation states them: Gluon 1.9 has none."""

import numpy as np
import pytest

from .differences import differs
from .sides import CONTEXTS, OURS, WAYS, facts, mx

FLOAT = np.float32
gluon_2 = differs("gluon-2-names", raises=AttributeError)


def nd(dtype, values, context="cpu(0)"):
    return "nd", context, dtype, values


@gluon_2
def test_stack(gdata):
    stack = gdata.batchify.Stack()
    assert facts(stack([mx.nd.zeros(2), mx.nd.ones(2)])) == nd("float32", [[0, 0], [1, 1]])
    assert facts(stack([np.zeros(2, np.uint8), np.ones(2, np.uint8)])) == nd("uint8", [[0, 0], [1, 1]])
    assert facts(stack([1, 2])) == nd("int64", [1, 2])
    assert facts(stack([0.5])) == nd("float64", [0.5])


@gluon_2
@pytest.mark.parametrize("container", [tuple, list])
def test_stack_splits_tuples_and_lists(gdata, container):
    samples = [container([i, (mx.nd.zeros(1), FLOAT(i))]) for i in range(2)]
    wanted = [nd("int64", [0, 1]), [nd("float32", [[0], [0]]), nd("float32", [0, 1])]]
    assert facts(gdata.batchify.Stack()(samples)) == wanted


@gluon_2
def test_pad(gdata):
    pad = gdata.batchify.Pad()
    assert facts(pad([[1, 2, 3, 4], [4, 5, 6], [8, 2]])) == nd("int64", [[1, 2, 3, 4], [4, 5, 6, 0], [8, 2, 0, 0]])
    assert facts(gdata.batchify.Pad(val=-1)([[1, 2], [3]])) == nd("int64", [[1, 2], [3, -1]])
    assert facts(gdata.batchify.Pad(-1)([[0.5, 1.5], [2.5]])) == nd("float64", [[0.5, 1.5], [2.5, -1]])


@gluon_2
def test_pad_of_every_axis(gdata):
    samples = [np.ones((2, 1), FLOAT), np.ones((1, 3), FLOAT)]
    wanted = [[[1, 0, 0], [1, 0, 0]], [[1, 1, 1], [0, 0, 0]]]
    assert facts(gdata.batchify.Pad()(samples)) == nd("float32", wanted)
    assert facts(gdata.batchify.Pad(0)([mx.nd.array(x) for x in samples])) == nd("float32", wanted)


@gluon_2
def test_pad_dtype_and_round_to(gdata):
    assert facts(gdata.batchify.Pad(dtype="int32")([[1, 2], [3]])) == nd("int32", [[1, 2], [3, 0]])
    assert facts(gdata.batchify.Pad(round_to=4)([np.ones(3, FLOAT)])) == nd("float32", [[1, 1, 1, 0]])
    assert gdata.batchify.Pad(round_to=4)([np.ones((5, 4)), np.ones((2, 3))]).shape == (2, 8, 4)


@pytest.mark.parametrize("array", [np.array, mx.nd.array], ids=["numpy", "mx.nd"])
def test_our_pad_returns_lengths_and_masks(array, way):
    pad = OURS.batchify.Pad(-1, axis=0, ret_length=True, mask=True)
    samples = [array(np.ones((size, 2), FLOAT)) for size in (1, 2)]
    loader = OURS.DataLoader(OURS.SimpleDataset(samples), 2, batchify_fn=pad, **WAYS[way])
    ((batch, lengths, mask),) = [facts(batch) for batch in loader]
    assert [batch[0], lengths[0], mask[0]] == ["nd"] * 3
    assert batch[2:] == ("float32", [[[1, 1], [-1, -1]], [[1, 1], [1, 1]]])
    assert lengths[2:] == ("int32", [1, 2])
    assert mask[2:] == ("bool", [[True, False], [True, True]])
    assert repr(pad) == "Pad(val=-1, axis=0, ret_length=True, mask=True)"


@gluon_2
def test_append(gdata):
    samples = [np.zeros((1, 2), FLOAT), np.ones(3, np.uint8)]
    assert facts(gdata.batchify.Append()(samples)) == [nd("float32", [[[0, 0]]]), nd("uint8", [[1, 1, 1]])]
    assert facts(gdata.batchify.Append(expand=False)(samples)) == [nd("float32", [[0, 0]]), nd("uint8", [1, 1, 1])]
    arrays = gdata.batchify.Append(True, 1)([mx.nd.zeros((2, 3)), mx.nd.zeros(4)])
    assert [array.shape for array in arrays] == [(2, 1, 3), (4, 1)]


@gluon_2
@pytest.mark.parametrize("several", [False, True], ids=["arguments", "a list"])
def test_group(gdata, several):
    functions = [gdata.batchify.Stack(), gdata.batchify.Pad(val=-1), gdata.batchify.AsList()]
    group = gdata.batchify.Group(functions) if several else gdata.batchify.Group(*functions)
    batch = group([(1, [1, 2], "a"), (2, [3], "b")])
    assert type(batch) is tuple
    assert facts(batch) == (nd("int64", [1, 2]), nd("int64", [[1, 2], [3, -1]]), ["a", "b"])


@gluon_2
def test_as_list(gdata):
    assert gdata.batchify.AsList()(("a", None)) == ["a", None]


@gluon_2
def test_shared_memory_when_asked_for(gdata):
    batchify, context = gdata.batchify, "cpu_shared(0)"
    assert facts(batchify.Stack(use_shared_mem=True)([1, 2])) == nd("int64", [1, 2], context)
    assert facts(batchify.Pad(use_shared_mem=True)([[1], [2]])) == nd("int64", [[1], [2]], context)
    assert facts(batchify.Append(use_shared_mem=True)([np.ones(1, FLOAT)])) == [nd("float32", [[1]], context)]


@gluon_2
def test_in_a_loader(gdata, way):
    batchify = gdata.batchify
    samples = [(i, np.full(i + 1, i, FLOAT), "abc"[i], np.ones((i, 2))) for i in range(3)]
    function = batchify.Group(batchify.Stack(True), batchify.Pad(-1, use_shared_mem=True), batchify.AsList(),
                              batchify.Append(use_shared_mem=True))  # fmt: skip
    (batch,) = gdata.DataLoader(samples, 3, batchify_fn=function, **WAYS[way])
    context = "cpu_shared(0)"
    assert facts(batch[:2]) == (
        nd("int64", [0, 1, 2], context),
        nd("float32", [[0, -1, -1], [1, 1, -1], [2, 2, 2]], context),
    )
    assert batch[2] == ["a", "b", "c"]
    assert [array.shape for array in batch[3]] == [(1, 0, 2), (1, 1, 2), (1, 2, 2)]


@gluon_2
def test_what_workers_make_is_in_shared_memory_anyway(gdata, way):
    (batch,) = gdata.DataLoader([1, 2], 2, batchify_fn=gdata.batchify.Stack(), **WAYS[way])
    if way != "threads":
        assert facts(batch) == nd("int64", [1, 2], CONTEXTS[way])


@gluon_2
def test_in_gluons_own_loader(gdata):
    function = gdata.batchify.Group(gdata.batchify.Stack(), gdata.batchify.Pad(0))
    for num_workers in (0, 2):
        samples = [(i, np.ones(i + 1, FLOAT)) for i in range(4)]
        loader = mx.gluon.data.DataLoader(samples, 2, batchify_fn=function, num_workers=num_workers)
        batches = [[part.asnumpy().tolist() for part in batch] for batch in loader]
        assert batches == [[[0, 1], [[1, 0], [1, 1]]], [[2, 3], [[1, 1, 1, 0], [1, 1, 1, 1]]]]


@gluon_2
def test_the_numpy_mode(gdata, np_mode):
    batchify = gdata.batchify
    for batch in (
        batchify.Stack()([np_mode.ones(1), np_mode.ones(1)]),
        batchify.Pad()([np_mode.ones(1), np_mode.ones(2)]),
        batchify.Append()([np_mode.ones(2)])[0],
        batchify.Stack()([1, 2]),
    ):
        assert isinstance(batch, np_mode.ndarray)


@gluon_2
def test_errors(gdata):
    batchify = gdata.batchify
    for use in (
        lambda: batchify.Stack()([np.ones(1), np.ones(2)]),
        lambda: batchify.Pad()([np.ones(1), np.ones((1, 1))]),
        lambda: batchify.Group(batchify.Stack())([(1, 2)]),
        lambda: batchify.Group(5),
    ):
        with pytest.raises((ValueError, TypeError)):
            use()
