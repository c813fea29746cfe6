"""Gluon 2.0's batchify functions, as its documentation states them: Gluon 1.9 has none, see `gluon-2-names`."""

import numpy as np
import pytest

from .sides import OURS, WAYS, epoch, facts, mx

Append, AsList, Group, Pad, Stack = (
    getattr(OURS.batchify, name) for name in ("Append", "AsList", "Group", "Pad", "Stack")
)
ONES, ZERO = np.ones(3, np.uint8), np.zeros((1, 2), np.float32)
AXES = [np.ones((2, 1), np.float32), np.ones((1, 3), np.float32)]


def nd(dtype, values, context="cpu(0)"):
    return "nd", context, dtype, values


# A function, samples, and the batch of them.
CALLS = {
    "Stack NDArrays": (Stack(), [mx.nd.zeros(2), mx.nd.ones(2)], nd("float32", [[0, 0], [1, 1]])),
    "Stack arrays": (Stack(), [ONES, ONES], nd("uint8", [[1, 1, 1]] * 2)),
    "Stack ints": (Stack(), [1, 2], nd("int64", [1, 2])),
    "Stack floats": (Stack(), [0.5], nd("float64", [0.5])),
    "Stack tuples": (Stack(), [(0, (1.5, 2)), (1, (2.5, 3))], [
        nd("int64", [0, 1]), [nd("float64", [1.5, 2.5]), nd("int64", [2, 3])]]),
    "Stack lists": (Stack(), [[0, [1.5]], [1, [2.5]]], [nd("int64", [0, 1]), [nd("float64", [1.5, 2.5])]]),
    "Stack shared": (Stack(use_shared_mem=True), [1, 2], nd("int64", [1, 2], "cpu_shared(0)")),
    "Pad": (Pad(), [[1, 2, 3], [4], [5, 6]], nd("int64", [[1, 2, 3], [4, 0, 0], [5, 6, 0]])),
    "Pad val": (Pad(val=-1), [[1, 2], [3]], nd("int64", [[1, 2], [3, -1]])),
    "Pad floats": (Pad(-1), [[0.5, 1.5], [2.5]], nd("float64", [[0.5, 1.5], [2.5, -1]])),
    "Pad axes": (Pad(), AXES, nd("float32", [[[1, 0, 0], [1, 0, 0]], [[1, 1, 1], [0, 0, 0]]])),
    "Pad NDArrays": (Pad(0), [mx.nd.ones((2, 1)), mx.nd.ones((1, 3))], nd(
        "float32", [[[1, 0, 0]] * 2, [[1, 1, 1], [0, 0, 0]]])),
    "Pad dtype": (Pad(dtype="int32"), [[1, 2], [3]], nd("int32", [[1, 2], [3, 0]])),
    "Pad round_to": (Pad(round_to=4), [np.ones(3, np.float32)], nd("float32", [[1, 1, 1, 0]])),
    "Pad shared": (Pad(use_shared_mem=True), [[1], [2]], nd("int64", [[1], [2]], "cpu_shared(0)")),
    "Append": (Append(), [ZERO, ONES], [nd("float32", [[[0, 0]]]), nd("uint8", [[1, 1, 1]])]),
    "Append expand": (Append(expand=False), [ZERO, ONES], [nd("float32", [[0, 0]]), nd("uint8", [1, 1, 1])]),
    "Append axis": (Append(True, 1), [mx.nd.zeros(2)], [nd("float32", [[0], [0]])]),
    "Append shared": (Append(use_shared_mem=True), [ZERO], [nd("float32", [[[0, 0]]], "cpu_shared(0)")]),
    "AsList": (AsList(), ("a", None), ["a", None]),
    "Group": (Group(Stack(), Pad(val=-1), AsList()), [(1, [1, 2], "a"), (2, [3], "b")], (
        nd("int64", [1, 2]), nd("int64", [[1, 2], [3, -1]]), ["a", "b"])),
    "Group of a list": (Group([Stack(), Pad()]), [(1, [2])], (nd("int64", [1]), nd("int64", [[2]]))),
}  # fmt: skip


@pytest.mark.parametrize("kind", CALLS)
def test_batches(kind):
    function, samples, wanted = CALLS[kind]
    batch = function(samples)
    assert facts(batch) == wanted
    assert type(batch) is type(wanted) or isinstance(batch, mx.nd.NDArray)


@pytest.mark.parametrize(
    "use",
    [
        lambda: Stack()([np.ones(1), np.ones(2)]),
        lambda: Pad()([np.ones(1), np.ones((1, 1))]),
        lambda: Group(Stack())([(1, 2)]),
        lambda: Group(5),
    ],
)
def test_errors(use):
    with pytest.raises((ValueError, TypeError)):
        use()


@pytest.mark.parametrize("array", [np.array, mx.nd.array], ids=["numpy", "mx.nd"])
def test_our_pad_returns_lengths_and_masks(array, way):
    pad = Pad(-1, axis=0, ret_length=True, mask=True)
    samples = [array(np.ones((size, 2), np.float32)) for size in (1, 2)]
    loader = OURS.DataLoader(OURS.SimpleDataset(samples), 2, batchify_fn=pad, **WAYS[way])
    ((batch, lengths, mask),) = [facts(batch) for batch in loader]
    assert [batch[0], lengths[0], mask[0]] == ["nd"] * 3
    assert batch[2:] == ("float32", [[[1, 1], [-1, -1]], [[1, 1], [1, 1]]])
    assert lengths[2:] == ("int32", [1, 2])
    assert mask[2:] == ("bool", [[True, False], [True, True]])
    assert repr(pad) == "Pad(val=-1, axis=0, ret_length=True, mask=True)"


def test_in_a_loader(way):
    samples = [(i, np.full(i + 1, i, np.float32), "abc"[i], np.ones((i, 2))) for i in range(3)]
    function = Group(Stack(), Pad(-1, use_shared_mem=True), AsList(), Append(use_shared_mem=True))
    (batch,) = OURS.DataLoader(samples, 3, batchify_fn=function, **WAYS[way])
    assert facts(batch[:2]) == (
        nd("int64", [0, 1, 2], "cpu_shared(0)" if way == "processes" else "cpu(0)"),  # in processes anyway
        nd("float32", [[0, -1, -1], [1, 1, -1], [2, 2, 2]], "cpu_shared(0)"),
    )
    assert batch[2] == ["a", "b", "c"]
    assert [array.shape for array in batch[3]] == [(1, 0, 2), (1, 1, 2), (1, 2, 2)]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_in_gluons_own_loader(num_workers):
    samples = [(i, np.ones(i + 1, np.float32)) for i in range(4)]
    loader = mx.gluon.data.DataLoader(samples, 2, batchify_fn=Group(Stack(), Pad(0)), num_workers=num_workers)
    assert epoch(loader) == [[[0, 1], [[1, 0], [1, 1]]], [[2, 3], [[1, 1, 1, 0], [1, 1, 1, 1]]]]


def test_the_numpy_mode(np_mode):
    one, two = np_mode.ones(1), np_mode.ones(2)
    batches = [Stack()([one, one]), Pad()([one, two]), Append()([two])[0], Stack()([1, 2])]
    assert [type(batch) for batch in batches] == [np_mode.ndarray] * 4
