"""States of the user's objects as JSON: what comes back as it was, and what is refused when it is saved."""

import collections
import enum
import json
import random

import numpy as np
import pytest

from gluonloader.frameworks import state_from_json, state_to_json


def through_json(state):
    return state_from_json(json.loads(json.dumps(state_to_json("Sampler", state))))


class Level(enum.IntEnum):
    HIGH = 3


@pytest.mark.parametrize(
    "state",
    [
        {"a": [1, 2.5, True, None, "text"]},
        {1: "a", 2.5: "b", None: "c", (1, "x"): "e", b"k": "f"},
        {"gluonloader.array": "not an array", "x": {"gluonloader.tuple": 1}},
        (1, (2, [3, ()]), {"x": (4,)}),
        b"\x00\xff",
        float("inf"),
        2**200,
        random.Random(1).getstate(),
        [],
    ],
    ids=repr,
)
def test_a_state_comes_back_as_it_was(state):
    restored = through_json(state)
    assert restored == state
    assert repr(restored) == repr(state)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="i2").reshape(2, 3).T,
        np.array(1.5, "f4"),
        np.zeros((0, 3), "u8"),
        np.array([1, 2], ">i4"),
        np.array([True, False]),
        np.array([1 + 2j]),
        np.array(["a", "longer"]),
        np.array([b"ab"]),
        np.array(["2026-01-01"], "M8[D]"),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_an_array_comes_back_with_its_dtype_and_shape(array):
    restored = through_json({"x": [array]})["x"][0]
    assert type(restored) is np.ndarray
    assert (restored.dtype, restored.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(restored, array)
    assert restored.flags.writeable


@pytest.mark.parametrize("scalar", [np.int64(-3), np.float32(0.1), np.float64(0.5), np.bool_(True), np.str_("ab")])
def test_a_scalar_of_numpy_comes_back_with_its_type(scalar):
    restored = through_json(scalar)
    assert type(restored) is type(scalar)
    assert restored == scalar


def test_subclasses_come_back_as_the_equal_value_of_the_plain_class():
    Point = collections.namedtuple("Point", "x y")
    state = {"level": Level.HIGH, "at": Point(1, 2), "order": collections.OrderedDict(b=1, a=2)}
    assert through_json(state) == state


def test_a_restored_state_shares_nothing_with_the_saved_one():
    state = {"order": [1, 2], "x": np.arange(3)}
    saved = state_to_json("Sampler", state)
    state["order"].append(3)
    state["x"][0] = 9
    restored = state_from_json(saved)
    restored["order"].append(4)
    assert restored["x"].tolist() == [0, 1, 2]
    assert state_from_json(saved)["order"] == [1, 2]


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        1 + 2j,
        object(),
        bytearray(b"x"),
        np.array([object()]),
        np.zeros(2, "i4,f8"),
        np.ma.masked_array([1], [True]),
        np.random.default_rng(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_could_not_come_back_is_refused_when_it_is_saved(value):
    with pytest.raises(TypeError, match=r"Sampler\.state_dict\(\) returned something that JSON cannot store \(an "):
        state_to_json("Sampler", {"x": [value]})


@pytest.mark.parametrize(
    "saved",
    [
        {"gluonloader.array": "os", "dtype": "<i8", "shape": [1], "base64": ""},
        {"gluonloader.array": "numpy", "dtype": "<i8", "shape": [1], "base64": ""},
        {"gluonloader.array": "numpy", "dtype": "|O", "shape": [1], "base64": "AAAAAAAAAAA="},
        {"gluonloader.array": "numpy", "dtype": "<i8"},
        {"gluonloader.array": ["numpy"], "dtype": "<i8", "shape": [1], "base64": "AAAAAAAAAAA="},
        {"gluonloader.code": "1"},
        {"gluonloader.tuple": 5},
        {"gluonloader.dict": [[1]]},
        {"gluonloader.dict": [[[1], 2]]},
        {"gluonloader.bytes": 5},
    ],
    ids=str,
)
def test_an_edited_state_is_refused(saved):
    with pytest.raises(ValueError, match=r"state: gluonloader\.\w+="):
        state_from_json({"x": [saved]})


def test_tensors_come_back_as_tensors():
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(3)
    state = {"generator": generator.get_state(), "x": torch.arange(6).reshape(2, 3).T, "scalar": torch.tensor(0.5)}
    restored = through_json(state)
    for name, tensor in state.items():
        assert type(restored[name]) is torch.Tensor
        assert restored[name].dtype == tensor.dtype
        assert torch.equal(restored[name], tensor)
    other = torch.Generator()
    other.set_state(restored["generator"])
    assert torch.equal(torch.rand(3, generator=other), torch.rand(3, generator=generator))


@pytest.mark.parametrize("name", ["needs a gradient", "sparse", "bfloat16", "parameter"])
def test_a_tensor_that_could_not_come_back_is_refused(name):
    torch = pytest.importorskip("torch")
    tensors = {
        "needs a gradient": lambda: torch.ones(2, requires_grad=True),
        "sparse": lambda: torch.eye(2).to_sparse(),
        "bfloat16": lambda: torch.ones(2, dtype=torch.bfloat16),
        "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    }
    with pytest.raises(TypeError, match="JSON cannot store"):
        state_to_json("Sampler", [tensors[name]()])
